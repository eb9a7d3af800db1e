//! The checked configuration ([`Conf`]). DEL and GC read no keys. No I/O.

use cni::{AsWritten, Code, Error, Result};
use serde::Deserialize;

use crate::limit::Limit;

/// Default of `latencyMs`, the reference's fixed value.
const LATENCY_MS: i64 = 25;

/// Maximum of `latencyMs`: a sender retransmits the packet before that.
const MOST_LATENCY_MS: i64 = 10_000;

/// Rates and bursts, at the top or in `runtimeConfig.bandwidth`: bits per second, and bits.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Limits {
    ingress_rate: Option<i64>,
    ingress_burst: Option<i64>,
    egress_rate: Option<i64>,
    egress_burst: Option<i64>,
    shaped_subnets: Vec<String>,
    unshaped_subnets: Vec<String>,
}

/// Other keys at the top.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Settings {
    latency_ms: Option<i64>,
    shape_in_container: bool,
    runtime_config: RuntimeConfig,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RuntimeConfig {
    bandwidth: Limits,
}

/// The checked configuration.
#[derive(Debug)]
pub struct Conf {
    /// Limit of traffic to the container.
    pub ingress: Option<Limit>,
    /// Limit of traffic from the container.
    pub egress: Option<Limit>,
    /// Maximum time in milliseconds that a packet waits after the burst is used up.
    pub latency_ms: u32,
    /// Whether egress is limited inside the container, not on the host.
    pub in_container: bool,
}

impl Conf {
    /// Whether there is no limit.
    pub fn is_unlimited(&self) -> bool {
        self.ingress.is_none() && self.egress.is_none()
    }
}

impl TryFrom<AsWritten> for Conf {
    type Error = Error;

    fn try_from(raw: AsWritten) -> Result<Self> {
        let network: Limits = raw.decode()?;
        let settings: Settings = raw.decode()?;
        network.refuse_subnets("")?;
        settings.runtime_config.bandwidth.refuse_subnets("runtimeConfig.bandwidth.")?;
        let (limits, place) = if network.are_given() {
            (network, "")
        } else {
            (settings.runtime_config.bandwidth, "runtimeConfig.bandwidth.")
        };
        let latency = settings.latency_ms.unwrap_or(LATENCY_MS);
        let latency_ms = u32::try_from(latency).ok().filter(|_| (1..=MOST_LATENCY_MS).contains(&latency));
        Ok(Self {
            ingress: limit(place, "ingress", limits.ingress_rate, limits.ingress_burst)?,
            egress: limit(place, "egress", limits.egress_rate, limits.egress_burst)?,
            latency_ms: latency_ms.ok_or_else(|| {
                Error::config(format!("latencyMs {latency} is out of range, 1 to {MOST_LATENCY_MS}"))
            })?,
            in_container: settings.shape_in_container,
        })
    }
}

impl Limits {
    /// Whether the network has any of the keys. The runtime's are then ignored.
    fn are_given(&self) -> bool {
        [self.ingress_rate, self.ingress_burst, self.egress_rate, self.egress_burst]
            .iter()
            .any(Option::is_some)
    }

    /// Refuses keys of the reference's releases 1.5.0 and 1.5.1.
    fn refuse_subnets(&self, place: &str) -> Result<()> {
        let lists = [("shapedSubnets", &self.shaped_subnets), ("unshapedSubnets", &self.unshaped_subnets)];
        match lists.iter().find(|(_, list)| !list.is_empty()) {
            None => Ok(()),
            Some((key, _)) => Err(Error::new(
                Code::UnsupportedField,
                format!("{place}{key} is not supported: limits are for all of the container's traffic"),
            )
            .detail("remove the key; only releases 1.5.0 and 1.5.1 of containernetworking/plugins had it")),
        }
    }
}

/// Parses the keys `WAYRate` and `WAYBurst` of one direction.
fn limit(place: &str, way: &str, rate: Option<i64>, burst: Option<i64>) -> Result<Option<Limit>> {
    let (rate, burst) = (rate.unwrap_or(0), burst.unwrap_or(0));
    let said = |key: &str, value: i64, why: &str| format!("{place}{way}{key} {value} {why}");
    let refused = |key: &str, value: i64, why: &str| Err(Error::config(said(key, value, why)));
    // The reference's words.
    let as_reference = |words: &str, detail| Err(Error::config(words).detail(detail));
    let Ok(rate_bits) = u64::try_from(rate) else { return refused("Rate", rate, "is negative") };
    let Ok(burst_bits) = u64::try_from(burst) else { return refused("Burst", burst, "is negative") };
    match (rate, burst) {
        (0, 0) => return Ok(None),
        (0, _) => {
            let detail = said("Burst", burst, &format!("needs {way}Rate, in bits per second"));
            return as_reference("if burst is set, rate must also be set", detail);
        }
        (_, 0) => {
            let detail = said("Rate", rate, &format!("needs {way}Burst, in bits"));
            return as_reference("if rate is set, burst must also be set", detail);
        }
        (1..8, _) => return refused("Rate", rate, "is less than 8 bits per second, one byte"),
        _ => {}
    }
    let Ok(burst) = u32::try_from(burst_bits / 8) else {
        let detail = said("Burst", burst, "is more than the kernel accepts, 34359738367 bits");
        return as_reference("burst cannot be more than 4GB", detail);
    };
    Ok(Some(Limit { rate: rate_bits / 8, burst }))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn conf(document: Value) -> Result<Conf> {
        Conf::try_from(AsWritten::from(document))
    }

    #[test]
    fn missing_and_zero_values_are_no_limit() {
        let zero = json!({"ingressRate": 0, "ingressBurst": 0, "egressRate": 0, "egressBurst": 0});
        for document in [
            json!({}),
            zero.clone(),
            json!({"runtimeConfig": {"bandwidth": zero}}),
            json!({"runtimeConfig": {"bandwidth": null}, "shapedSubnets": [], "unshapedSubnets": null}),
        ] {
            let conf = conf(document).unwrap();
            assert!(conf.is_unlimited() && conf.latency_ms == 25 && !conf.in_container);
        }
    }

    #[test]
    fn bits_become_bytes_and_64_bits_are_kept() {
        let read = conf(json!({
            "ingressRate": 1_000_000_007, "ingressBurst": 2_147_483_647,
            "egressRate": i64::MAX, "egressBurst": 34_359_738_367_i64,
        }))
        .unwrap();
        assert_eq!(read.ingress, Some(Limit { rate: 125_000_000, burst: 268_435_455 }));
        assert_eq!(read.egress, Some(Limit { rate: (i64::MAX / 8).cast_unsigned(), burst: u32::MAX }));
    }

    #[test]
    fn the_networks_limits_replace_the_runtimes_as_a_whole() {
        let of_the_call =
            json!({"ingressRate": 8000, "ingressBurst": 8000, "egressRate": 80, "egressBurst": 80});
        let both =
            json!({"egressRate": 16000, "egressBurst": 8000, "runtimeConfig": {"bandwidth": of_the_call}});
        let read = conf(both).unwrap();
        assert_eq!((read.ingress, read.egress), (None, Some(Limit { rate: 2000, burst: 1000 })));
        let read =
            conf(json!({"runtimeConfig": {"Bandwidth": {"IngressRate": 8000, "IngressBurst": 80}}})).unwrap();
        assert_eq!((read.ingress, read.egress), (Some(Limit { rate: 1000, burst: 10 }), None));
    }

    #[test]
    fn invalid_values_are_refused_by_key() {
        for (document, code, words) in [
            (json!({"ingressRate": 8}), 7, "ingressRate 8 needs ingressBurst"),
            (json!({"egressBurst": 8}), 7, "egressBurst 8 needs egressRate"),
            (json!({"egressRate": 7, "egressBurst": 8}), 7, "egressRate 7 is less than 8"),
            (json!({"ingressRate": -8, "ingressBurst": 8}), 7, "ingressRate -8 is negative"),
            (json!({"ingressRate": 8, "ingressBurst": -8}), 7, "ingressBurst -8 is negative"),
            (json!({"ingressRate": 8, "ingressBurst": 1_i64 << 35}), 7, "ingressBurst 34359738368 is more"),
            (
                json!({"runtimeConfig": {"bandwidth": {"ingressRate": 8}}}),
                7,
                "runtimeConfig.bandwidth.ingressRate",
            ),
            (json!({"latencyMs": 0}), 7, "latencyMs 0"),
            (json!({"latencyMs": 10_001}), 7, "latencyMs 10001"),
            (json!({"shapedSubnets": ["10.0.0.0/8"]}), 2, "shapedSubnets"),
            (
                json!({"runtimeConfig": {"bandwidth": {"unshapedSubnets": ["10.0.0.0/8"]}}}),
                2,
                "unshapedSubnets",
            ),
            (json!({"ingressRate": "8"}), 6, "ingressRate"),
            (json!({"shapeInContainer": 1}), 6, "shapeInContainer"),
        ] {
            let error = conf(document.clone()).unwrap_err();
            assert_eq!(error.code(), code, "{document}");
            assert!(error.to_string().contains(words), "{document}: {error}");
        }
    }
}
