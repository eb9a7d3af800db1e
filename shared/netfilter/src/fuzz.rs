//! Fuzzing: conditions that hold for any input. A unit test replays the seeds in fuzz/corpus.

#![allow(clippy::unwrap_used, reason = "a fuzz target ends with a panic")]

use cni::{Attachment, ContainerId, IfName, NetworkName};
use ipnetwork::IpNetwork;

use crate::kinds::PortForward as Forward;
use crate::{ChainName, Conditions, HostPort, HostPorts, Mark, Masquerade, Owner, Rules, SourceNat};
use crate::{iptables, nft};

/// Host ports, with existing rules. Each line of the input is a word and its value. `network`, `container` and `ifname`
/// identify the attachment, `address` is the container's, `map` is a mapping in the format of a record, `4` and `6` are
/// words of a condition, `bit` and `chain` set the mark. After `-`, the conditions end and the output of iptables-save
/// follows.
///
/// # Panics
/// If a script for iptables-restore contains unexpected lines, or a record is not parsed back as it was.
pub fn rules(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (expected, saved) = text.split_once("\n-\n").unwrap_or((&text, ""));
    let values = |key: &'static str| {
        expected.lines().filter_map(move |line| line.strip_prefix(key)?.strip_prefix(' '))
    };
    let value = |key, default| values(key).next().unwrap_or(default);
    let words = |key| values(key).map(str::to_owned).collect::<Vec<String>>();
    let Ok(conditions) = Conditions::parse(&words("4"), &words("6")) else { return };
    let Some(owner) = owner([value("network", "net"), value("container", "c"), value("ifname", "eth0")])
    else {
        return;
    };
    let mark = match (values("bit").next(), values("chain").next()) {
        (_, Some(chain)) => ChainName::parse(chain).map(Mark::Chain),
        (Some(bit), _) => Mark::bit(bit.parse().unwrap_or(-1)),
        (None, None) => Ok(Mark::default()),
    };
    let Ok(mark) = mark else { return };
    let mappings: Vec<HostPort> = values("map").filter_map(mapping).collect();
    let addresses: Vec<IpNetwork> =
        values("address").filter_map(|text| cni::addr::parse_cidr(text).ok()).collect();
    let source_nat = [SourceNat::None, SourceNat::Hairpin, SourceNat::All][expected.len() % 3];
    let masquerade = Masquerade { addresses: addresses.clone() };
    let ports = HostPorts { addresses, mappings, source_nat, mark, conditions };
    for rules in [&masquerade as &dyn Rules, &ports] {
        iptables::fuzz::rules(&owner, rules, saved);
        nft::fuzz::rules(&owner, rules);
    }
}

fn owner([network, container, ifname]: [&str; 3]) -> Option<Owner> {
    let at =
        Attachment { container: ContainerId::parse(container).ok()?, ifname: IfName::parse(ifname).ok()? };
    Some(Owner::new(&NetworkName::parse(network).ok()?, &at))
}

fn mapping(text: &str) -> Option<HostPort> {
    let Forward { protocol, host_ip, host_port, to } = text.parse().ok()?;
    Some(HostPort {
        protocol,
        host_ip,
        host_port: host_port.try_into().ok()?,
        container_port: to.port().try_into().ok()?,
    })
}

#[test]
fn every_seed_passes() {
    seeds::replay("rules", rules);
}
