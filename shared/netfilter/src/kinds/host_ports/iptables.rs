//! Host ports in iptables.

use std::fmt::{self, Display, Write as _};
use std::net::IpAddr;

use netlink::Family;

use super::forward::{Forward, Protocol};
use super::mapping::HostPorts;
use super::mark::Mark;
use crate::iptables::saved::{self, chain_of, rules, target, word_after};
use crate::kind::{IptablesProperties, IptablesRules, Shared, WaitingPort};
use crate::ruleset::Redirected;
use crate::script::{Place, SHARED, Script, comment};

const HOSTPORTS: &str = "FERRULE-HOSTPORTS";
const HAIRPIN: &str = "FERRULE-HAIRPIN";

/// Maximum number of ports in the match `multiport`.
const MULTIPORT_MAX: usize = 15;

pub(super) const PROPERTIES: IptablesProperties = IptablesProperties {
    table: "nat",
    prefix: "FERRULE-HP-",
    parents: &[HOSTPORTS, super::reference::DNAT, "CNI-HOSTPORT-SNAT"],
    shared: Some(Shared {
        rules: |script, family| {
            share_host_ports(script, family);
            share_mark(script, Mark::DEFAULT_BIT);
        },
        comments: &[SHARED],
        entry: HOSTPORTS,
        chains: &[HAIRPIN, HOSTPORTS],
        hooks: &[("nat", "PREROUTING"), ("nat", "OUTPUT"), ("nat", "POSTROUTING"), ("mangle", "PREROUTING")],
        in_forward: None,
    }),
    waiting: Some(waiting),
};

impl IptablesRules for HostPorts {
    fn write(&self, script: &mut Script, label: &str, family: Family) {
        write(self, script, label, family);
    }
}

/// The rules of a family. Comments in the attachment's own chain contain the container's addresses, so that its
/// connections can be flushed.
fn write(ports: &HostPorts, script: &mut Script, label: &str, family: Family) {
    let mut forwards: Vec<Forward> = ports.forwards().filter(|f| Family::from(f.to) == family).collect();
    if forwards.is_empty() {
        return;
    }
    // The first match decides. A mapping of one address must be before those of all addresses.
    forwards.sort_by_key(|forward| forward.host_ip.is_none());
    share_host_ports(script, family);
    let mark = match &ports.mark {
        Mark::Chain(chain) => chain.as_str().to_owned(),
        Mark::Bit(bit) => {
            share_mark(script, *bit);
            let value = 1_u32 << bit;
            format!("MARK --set-xmark {value:#x}/{value:#x}")
        }
    };
    for forward in &forwards {
        let port = destination(forward);
        for (_, from) in ports.sources().filter(|(to, _)| *to == forward.to.ip()) {
            let from = if from.prefix() == 0 { String::new() } else { format!("-s {from} ") };
            script.own(format!("{port} {from}-j {mark}"));
        }
        script.own(format!("{port} {} -j DNAT --to-destination {}", comment(forward.to.ip()), forward.to));
    }
    let conditions = ports.conditions.iptables(family);
    for (protocol, ports) in by_protocol(&forwards) {
        for ports in ports.chunks(MULTIPORT_MAX) {
            let mut words = format!("-p {protocol} -m multiport --dports {}", ports.join(","));
            conditions.iter().for_each(|word| words.extend([" ", word]));
            let _ = write!(words, " {} -j {}", comment(label), script.chain);
            script.insert(HOSTPORTS, words);
        }
    }
}

fn share_host_ports(script: &mut Script, family: Family) {
    if family == Family::V4 {
        // The kernel drops these for IPv6. Not in the table raw, which the kernel may lack.
        for (name, matches) in [("from", "! -i lo -s 127.0.0.0/8"), ("to", "! -i lo -d 127.0.0.0/8")] {
            script.share(("mangle", "PREROUTING"), &format!("martians {name} loopback"), matches, "DROP");
        }
    }
    script.shared_chains.push(HOSTPORTS.into());
    for chain in ["PREROUTING", "OUTPUT"] {
        // After the rules of other programs, as the reference (CVE-2019-9946): a host port must not redirect connections to
        // their services. But before the reference's rules: its mappings may be stale, and Ferrule's are newer.
        let place = Place::Before(super::reference::DNAT);
        script.share_at(place, ("nat", chain), "to this host", "-m addrtype --dst-type LOCAL", HOSTPORTS);
    }
}

fn share_mark(script: &mut Script, bit: u8) {
    let value = 1_u32 << bit;
    script.shared_chains.push(HAIRPIN.into());
    // Before the rules that masquerade packets which leave a subnet, because these may be final for a packet.
    script.share_at(Place::First, ("nat", "POSTROUTING"), "host ports", "", HAIRPIN);
    let mark = format!("-m mark --mark {value:#x}/{value:#x}");
    script.share(("nat", HAIRPIN), &format!("mark bit {bit}"), &mark, "MASQUERADE");
}

/// The match for packets to a mapped port.
fn destination(forward: &Forward) -> String {
    let Forward { protocol, host_ip, host_port, .. } = forward;
    let ip = host_ip.map_or(String::new(), |ip: IpAddr| format!(" -d {ip}"));
    format!("-p {protocol} -m {protocol} --dport {host_port}{ip}")
}

/// The ports of each protocol, without duplicates.
fn by_protocol(forwards: &[Forward]) -> Vec<(&'static str, Vec<String>)> {
    let mut groups: Vec<(&str, Vec<String>)> = Vec::new();
    for forward in forwards {
        let (name, port) = (forward.protocol.as_str(), forward.host_port.to_string());
        match groups.iter_mut().find(|(group, _)| *group == name) {
            Some((_, ports)) if ports.contains(&port) => {}
            Some((_, ports)) => ports.push(port),
            None => groups.push((name, vec![port])),
        }
    }
    groups
}

/// The host ports of an attachment's chain whose packets go to a newer chain. That chain must map the same port for all
/// packets and the same addresses, or for all addresses. A mapping with conditions applies to some packets only.
fn waiting(saved: &str, chain: &str, family: Family) -> Vec<WaitingPort> {
    let jumps = rules(saved, PROPERTIES.table).filter(|rule| chain_of(rule) == HOSTPORTS);
    let newer: Vec<&str> = jumps.take_while(|rule| target(rule) != chain).filter(|r| is_for_all(r)).collect();
    let takes = |port: &Port<'_>, rule: &&&str| {
        ports_of(saved, target(rule)).any(|other| {
            other.number == port.number && (other.address.is_empty() || other.address == port.address)
        })
    };
    let waiting = ports_of(saved, chain).filter_map(|port| {
        let newer = newer.iter().find(|rule| takes(&port, rule))?;
        let text = format!("{} has it now: {port}", saved::comment(newer));
        Some(WaitingPort { port: port.redirected(family)?, text })
    });
    waiting.collect()
}

/// A port that a chain maps.
struct Port<'a> {
    /// Protocol and port.
    number: (&'a str, &'a str),
    /// With a prefix length. Empty: all addresses of the host.
    address: &'a str,
}

/// As in a record of nftables: `tcp 8080`, or `tcp 192.0.2.1:8080`.
impl Display for Port<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (protocol, port) = self.number;
        match self.address.split('/').next().unwrap_or_default() {
            "" => write!(f, "{protocol} {port}"),
            v6 if v6.contains(':') => write!(f, "{protocol} [{v6}]:{port}"),
            v4 => write!(f, "{protocol} {v4}:{port}"),
        }
    }
}

impl Port<'_> {
    /// The packets to the port. None: Ferrule writes no such rule.
    fn redirected(&self, family: Family) -> Option<Redirected> {
        let protocol = self.number.0.parse::<Protocol>().ok()?.number();
        let host_ip = match self.address.split('/').next()? {
            "" => None,
            ip => Some(ip.parse().ok()?),
        };
        Some(Redirected { family, protocol, host_ip, port: self.number.1.parse().ok()? })
    }
}

/// The ports that a chain maps.
fn ports_of<'a>(saved: &'a str, chain: &'a str) -> impl Iterator<Item = Port<'a>> {
    let translated =
        rules(saved, PROPERTIES.table).filter(move |rule| chain_of(rule) == chain && target(rule) == "DNAT");
    translated.map(|rule| Port {
        number: (word_after(rule, " -p "), word_after(rule, " --dport ")),
        address: word_after(rule, " -d "),
    })
}

/// Whether a rule that jumps to an attachment's chain has no conditions except protocol and ports.
fn is_for_all(rule: &str) -> bool {
    let (protocol, ports) = (word_after(rule, " -p "), word_after(rule, " --dports "));
    let plain = format!("-A {HOSTPORTS} -p {protocol} -m multiport --dports {ports} -m comment --comment ");
    let rest = rule.strip_prefix(&plain).and_then(|rest| rest.split_once(" -j "));
    rest.is_some_and(|(comment, _)| !comment.trim_matches('"').contains(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A listing of a host with attachments, the newest first: the jump to each one's chain, and its rules.
    fn host(attachments: &[(&str, &str, &str)]) -> String {
        let jump = |(name, conditions, _): &(&str, &str, &str)| {
            format!(
                "-A {HOSTPORTS}{conditions} -p tcp -m multiport --dports 80 -m comment --comment \"n/{name}/e\" -j {name}\n"
            )
        };
        let own = |(name, _, address): &(&str, &str, &str)| {
            format!("-A {name}{address} -p tcp -m tcp --dport 80 -m comment --comment x -j DNAT --to y\n")
        };
        let jumps: String = attachments.iter().map(jump).collect();
        format!("*nat\n{jumps}{}COMMIT\n", attachments.iter().map(own).collect::<String>())
    }

    #[test]
    fn a_port_waits_for_a_newer_one_that_takes_all_of_its_packets() {
        let (one, other) = (" -d 192.0.2.1/32", " -d 192.0.2.2/32");
        for (newer, older, waits) in
            [("", "", true), ("", one, true), (one, one, true), (one, "", false), (one, other, false)]
        {
            let saved = host(&[("B", "", newer), ("A", "", older)]);
            let port = if older.is_empty() { "tcp 80" } else { "tcp 192.0.2.1:80" };
            let expected = waits.then(|| format!("n/B/e has it now: {port}"));
            let texts = waiting(&saved, "A", Family::V4).into_iter().map(|waiting| waiting.text);
            assert_eq!(texts.collect::<Vec<_>>(), Vec::from_iter(expected), "{newer}, {older}");
            assert!(waiting(&saved, "B", Family::V4).is_empty());
        }
        let saved = host(&[("B", " -s 192.0.2.0/24", ""), ("A", "", "")]);
        assert!(waiting(&saved, "A", Family::V4).is_empty());
    }
}
