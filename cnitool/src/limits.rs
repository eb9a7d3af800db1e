//! Bandwidth limits in the kernel: token bucket filters (tc-tbf(8)) of the host's links.

use cni::AddResult;
use netlink::Link;
use netlink::tc::Tbf;
use serde_json::{Value, json};

use crate::live::Live;

/// The maximum rate at which a container can receive or send.
#[derive(Debug, PartialEq)]
pub struct Limit {
    /// The link with the token bucket filter.
    pub link: String,
    /// The direction as in the configuration of bandwidth: `ingress` is towards the container.
    pub direction: &'static str,
    /// Bits per second.
    pub rate: u128,
    /// Bits.
    pub burst: u128,
}

/// The limits of an attachment: of the host's end of a veth pair, and of the ifb that redirects the container's
/// outgoing packets.
pub fn of(result: &AddResult, host: &Live) -> Vec<Limit> {
    let on_host = result.interfaces.iter().filter(|interface| interface.sandbox.is_none());
    on_host.filter_map(|interface| of_link(host.link(&interface.name)?, host)).collect()
}

fn of_link(link: &Link, host: &Live) -> Option<Limit> {
    let direction = match link.kind_name()? {
        "veth" => "ingress",
        "ifb" => "egress",
        _ => return None,
    };
    let root = host.qdiscs.iter().find(|qdisc| qdisc.link == link.index && qdisc.is_root())?;
    let tbf = root.tbf()?;
    Some(Limit { link: link.name.clone(), direction, rate: u128::from(tbf.rate) * 8, burst: burst(&tbf) * 8 })
}

/// The burst in bytes. The kernel reports the time in which the bucket fills, but only its lower 32 bits. The upper
/// bits follow from the limit of the queue: it is the burst plus the data of a short latency, so the burst is the
/// largest possible one below the limit.
fn burst(tbf: &Tbf) -> u128 {
    let lap = Tbf::burst_of(tbf.rate, u32::MAX).max(1);
    let ticks_burst = Tbf::burst_of(tbf.rate, tbf.ticks);
    ticks_burst + u128::from(tbf.limit).saturating_sub(ticks_burst) / lap * lap
}

impl Limit {
    /// The limit in words.
    pub fn text(&self) -> String {
        let does = if self.direction == "ingress" { "receives" } else { "sends" };
        let (rate, burst) = (with_unit(self.rate), with_unit(self.burst));
        format!("{does} {rate}bit/s, burst {burst}bit, enforced by {}", self.link)
    }

    pub fn json(&self) -> Value {
        let number = |bits: u128| u64::try_from(bits).unwrap_or(u64::MAX);
        json!({
            "interface": self.link, "direction": self.direction, "rate": number(self.rate), "burst": number(self.burst),
        })
    }
}

/// A number rounded for people, and the letter of its unit: `1.5 M`.
pub fn with_unit(number: u128) -> String {
    let units = [(1_000_000_000, "G"), (1_000_000, "M"), (1000, "k")];
    let Some((unit, letter)) = units.into_iter().find(|(unit, _)| number >= *unit) else {
        return format!("{number} ");
    };
    let hundredths = (number * 100 + unit / 2) / unit;
    let text = format!("{}.{:02}", hundredths / 100, hundredths % 100);
    format!("{} {letter}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_that_fills_too_slowly_for_the_kernels_clock_is_computed_from_the_queue() {
        // The kubelet's burst at 1 Mbit/s, with a latency of 25 ms: 2147 s. The counter of 4294967296 ticks wraps
        // after 275 s.
        let (rate, bytes) = (125_000, (1 << 28) - 1);
        let tbf = |rate, bytes: u32, ticks| Tbf { rate, limit: bytes + 3125, ticks, burst: None };
        let ticks_burst = Tbf::ticks_of(rate, bytes) as u32;
        assert!(burst(&tbf(rate, bytes, ticks_burst)).abs_diff(u128::from(bytes)) < 100);
        assert_eq!(burst(&tbf(1_000_000, 100_000, 1_562_500)), 100_000);
        assert_eq!(burst(&Tbf { rate: 0, limit: 0, ticks: 0, burst: None }), 0);
    }

    #[test]
    fn numbers_are_rounded_for_people() {
        let cases =
            [(0, "0 "), (999, "999 "), (1500, "1.5 k"), (8_000_000, "8 M"), (2_147_483_640, "2.15 G")];
        for (number, text) in cases {
            assert_eq!(with_unit(number), text);
        }
        assert_eq!(with_unit(1_000_000), "1 M");
    }
}
