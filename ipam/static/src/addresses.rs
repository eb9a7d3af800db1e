//! The addresses of an attachment: the requested ones, completed by the entries of the configuration.

use std::net::IpAddr;

use cni::addr::parse_ip;
use cni::{CniArgs, Code, Error, IpConfig, Result, ResultExt};
use ipnetwork::IpNetwork;

use crate::conf::{Conf, Entry, RequestedIp, refuse_unusable};

/// The addresses of an attachment, with their gateways. `runtimeConfig.ips`, otherwise `args.cni.ips`, replace all
/// others. `IP` in `CNI_ARGS` is added to the configuration's.
///
/// # Errors
/// Code 4 for a malformed `CNI_ARGS`. Code 7 if there is no address, if one is listed twice or has no prefix length, or
/// if `GATEWAY` is in the subnet of none of them.
pub fn of_attachment(conf: &Conf, args: &CniArgs) -> Result<Vec<IpConfig>> {
    let requested = [&conf.runtime_ips, &conf.args_ips].into_iter().find(|ips| !ips.is_empty());
    let mut ips: Vec<IpConfig> = match requested {
        Some(requested) => {
            let words = "an entry in the 'ips' field is NOT in CIDR notation";
            requested.iter().map(|ip| conf.complete(*ip, words)).collect::<Result<_>>()?
        }
        None => {
            let added = list(args, "IP", RequestedIp::parse)?;
            let added = added
                .into_iter()
                .map(|ip| conf.complete(ip, "the 'ip' field is expected to be in CIDR notation"));
            conf.as_written().map(Ok).chain(added).collect::<Result<_>>()?
        }
    };
    if ips.is_empty() {
        return Err(Error::config("no address is configured or requested").detail(
            "set one in ipam.addresses, IP of CNI_ARGS, args.cni.ips or runtimeConfig.ips (capability ips)",
        ));
    }
    for gateway in list(args, "GATEWAY", parse_ip)? {
        set_gateway(&mut ips, gateway)?;
    }
    let usable = refuse_unusable(ips.iter().map(|ip| ip.address));
    match requested {
        Some(_) => usable?,
        // The configuration's own addresses are usable.
        None => usable.hint("IP of CNI_ARGS is added to ipam.addresses")?,
    }
    Ok(ips)
}

impl Conf {
    /// The entries with an address.
    fn as_written(&self) -> impl Iterator<Item = IpConfig> {
        self.entries.iter().filter_map(|entry| {
            let address = entry.address?;
            Some(IpConfig::new(address, entry.gateway.or_else(|| self.lone_gateway(address))))
        })
    }

    /// Completes a requested address from the entry whose subnet contains it (containernetworking/plugins#406, #411).
    /// `words`: the start of the reference's error for a missing prefix length.
    fn complete(&self, requested: RequestedIp, words: &str) -> Result<IpConfig> {
        let RequestedIp { ip, prefix } = requested;
        let holds = |entry: &&Entry| entry.address.is_some_and(|subnet| subnet.contains(ip));
        let subnet = || self.entries.iter().find(holds)?.address;
        let Some(prefix) = prefix.or_else(|| subnet().map(|subnet| subnet.prefix())) else {
            return Err(Error::config(format!("{words}, got: '{ip}'")).detail(format!(
                "the address has no prefix length: request {ip}/24, for example, or add an entry to \
                 ipam.addresses whose subnet contains it"
            )));
        };
        let address = IpNetwork::new(ip, prefix)?;
        // A gateway outside of its entry's subnet applies to all addresses in that subnet.
        let is_for = |entry: &Entry, gateway| {
            is_on_link(address, gateway) || entry.address.is_some_and(|subnet| !is_on_link(subnet, gateway))
        };
        let mut entries = self.entries.iter().filter(holds);
        let gateway = entries.find_map(|entry| entry.gateway.filter(|gateway| is_for(entry, *gateway)));
        Ok(IpConfig::new(address, gateway.or_else(|| self.lone_gateway(address))))
    }

    /// The gateway of an entry without an address.
    fn lone_gateway(&self, address: IpNetwork) -> Option<IpAddr> {
        let mut lone = self.entries.iter().filter(|entry| entry.address.is_none());
        lone.find_map(|entry| entry.gateway.filter(|gateway| is_on_link(address, *gateway)))
    }
}

/// Whether a container with the address can reach the gateway: it is in the subnet, or the subnet has only this
/// address. In the latter case, the interface plugin decides.
pub fn is_on_link(address: IpNetwork, gateway: IpAddr) -> bool {
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let link_local = matches!(gateway, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let same_family = address.is_ipv4() == gateway.is_ipv4();
    same_family && (address.contains(gateway) || link_local || address.prefix() == longest)
}

/// Sets the gateway of all addresses whose subnet contains it.
fn set_gateway(ips: &mut [IpConfig], gateway: IpAddr) -> Result<()> {
    let mut is_used = false;
    for ip in ips.iter_mut().filter(|ip| is_on_link(ip.address, gateway)) {
        (ip.gateway, is_used) = (Some(gateway), true);
    }
    if is_used {
        return Ok(());
    }
    let addresses: Vec<_> = ips.iter().map(|ip| ip.address.to_string()).collect();
    Err(Error::config(format!("CNI_ARGS: GATEWAY: {gateway} is not in the subnet of any address"))
        .detail(format!("the addresses: {}", addresses.join(", "))))
}

/// A comma-separated list in `CNI_ARGS`.
fn list<T>(args: &CniArgs, key: &str, read: fn(&str) -> Result<T, String>) -> Result<Vec<T>> {
    let items = args.get(key).unwrap_or_default().split(',').map(str::trim).filter(|text| !text.is_empty());
    let malformed = |e| Error::new(Code::InvalidEnvironment, format!("CNI_ARGS: {key}: {e}"));
    items.map(|text| read(text).map_err(malformed)).collect()
}

#[cfg(test)]
mod tests {
    use cni::AsWritten;
    use serde_json::{Value, json};

    use super::*;

    /// `ADDRESS via GATEWAY` of each address, or the error.
    fn given(document: Value, args: &str) -> Result<Vec<String>> {
        let conf = Conf::try_from(AsWritten::from(document))?;
        let ips = of_attachment(&conf, &CniArgs::parse(args).unwrap())?;
        let via = |ip: &IpConfig| ip.gateway.map_or(String::new(), |gateway| format!(" via {gateway}"));
        Ok(ips.iter().map(|ip| format!("{}{}", ip.address, via(ip))).collect())
    }

    fn two() -> Value {
        json!([
            {"address": "10.0.0.5/24", "gateway": "10.0.0.1"},
            {"address": "fd00::5/64", "gateway": "fe80::1"},
        ])
    }

    #[test]
    fn the_last_source_replaces_the_others_and_the_argument_is_added() {
        let args = json!({"cni": {"ips": ["10.0.0.7/24"]}});
        let runtime = json!({"ips": ["10.0.0.8/24", "fd00::8/64"]});
        let written = ["10.0.0.5/24 via 10.0.0.1", "fd00::5/64 via fe80::1"];
        for (document, expected) in [
            (json!({"ipam": {"addresses": two()}}), [&written[..], &["10.0.0.6/24 via 10.0.0.1"]].concat()),
            (json!({"ipam": {"addresses": two()}, "args": args}), vec!["10.0.0.7/24 via 10.0.0.1"]),
            (
                json!({"ipam": {"addresses": two()}, "args": args, "runtimeConfig": runtime}),
                vec!["10.0.0.8/24 via 10.0.0.1", "fd00::8/64 via fe80::1"],
            ),
            (json!({}), vec!["10.0.0.6/24"]),
            (
                json!({"ipam": {"addresses": [{"address": "10.1.0.7/24"}, {"gateway": "10.1.0.1"}]}}),
                vec!["10.1.0.7/24 via 10.1.0.1", "10.0.0.6/24"],
            ),
        ] {
            assert_eq!(given(document.clone(), "IP=10.0.0.6/24").unwrap(), expected, "{document}");
        }
    }

    #[test]
    fn missing_values_of_a_call_come_from_the_entry_whose_subnet_contains_the_address() {
        let ask = |ip: &str| {
            let lone = json!({"gateway": "10.1.0.1"});
            let distant = json!({"address": "10.4.0.5/24", "gateway": "169.254.1.1"});
            let entries = json!([two()[0], two()[1], {"address": "10.2.0.9/16"}, lone, distant]);
            given(json!({"ipam": {"addresses": entries}, "runtimeConfig": {"ips": [ip]}}), "")
        };
        for (requested, expected) in [
            ("10.0.0.7", "10.0.0.7/24 via 10.0.0.1"),
            ("10.0.0.7/16", "10.0.0.7/16 via 10.0.0.1"),
            ("10.0.0.129/25", "10.0.0.129/25"),
            ("fd00::7", "fd00::7/64 via fe80::1"),
            ("10.1.0.7/24", "10.1.0.7/24 via 10.1.0.1"),
            ("10.2.0.7", "10.2.0.7/16"),
            ("10.3.0.7/24", "10.3.0.7/24"),
            ("10.4.0.7", "10.4.0.7/24 via 169.254.1.1"),
        ] {
            assert_eq!(ask(requested).unwrap(), [expected]);
        }
        for (requested, culprit) in [("10.1.0.7", "got: '10.1.0.7'"), ("fd01::7", "got: 'fd01::7'")] {
            let error = ask(requested).unwrap_err();
            assert!(error.code() == 7 && error.msg().contains(culprit), "{error}");
        }
    }

    #[test]
    fn the_gateway_in_the_arguments_applies_to_each_address_of_its_subnet() {
        let entries = json!([two()[0], {"address": "10.0.0.6/24"}, {"address": "10.1.0.6/24"}]);
        let document = json!({"ipam": {"addresses": entries}});
        assert_eq!(
            given(document.clone(), "GATEWAY=10.0.0.9, 10.1.0.1").unwrap(),
            ["10.0.0.5/24 via 10.0.0.9", "10.0.0.6/24 via 10.0.0.9", "10.1.0.6/24 via 10.1.0.1"]
        );
        let error = given(document, "GATEWAY=10.9.0.1").unwrap_err();
        assert!(error.code() == 7 && error.msg().contains("10.9.0.1"), "{error}");
    }

    #[test]
    fn the_only_address_of_a_subnet_may_have_any_gateway_of_its_family() {
        let entries =
            json!([{"address": "10.7.7.7/32", "gateway": "169.254.1.1"}, {"address": "fd00::7/128"}]);
        let document = json!({"ipam": {"addresses": entries}});
        assert_eq!(given(document, "").unwrap(), ["10.7.7.7/32 via 169.254.1.1", "fd00::7/128"]);
    }
}
