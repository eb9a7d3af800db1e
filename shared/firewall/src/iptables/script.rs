//! What iptables-restore(8) reads. Written of checked values only: addresses, numbers, labels, checked words.

use std::fmt::{Display, Write as _};
use std::net::IpAddr;

use super::saved;
use crate::owner::Owner;
use crate::rules::{Forward, HostPorts, Kind, MULTICAST_V4, MULTICAST_V6, Mark, Masquerade, Rules, subnet};

pub(crate) const HOSTPORTS: &str = "FERRULE-HOSTPORTS";
pub(crate) const HAIRPIN: &str = "FERRULE-HAIRPIN";

/// What the comments of rules begin with that all attachments share.
pub(crate) const SHARED: &str = "ferrule: ";

/// The most ports that the match `multiport` takes.
const MULTIPORT_MAX: usize = 15;

/// The chain of an attachment's rules of a kind, at most 28 characters.
pub(crate) fn chain(owner: &Owner, kind: Kind) -> String {
    format!("{}{}", prefix(kind), owner.digest(kind.as_str()))
}

/// Whether a chain is some attachment's, of a kind.
pub(crate) fn is_own(kind: Kind, chain: &str) -> bool {
    chain.starts_with(prefix(kind))
}

fn prefix(kind: Kind) -> &'static str {
    if kind == Kind::Masquerade { "FERRULE-MQ-" } else { "FERRULE-HP-" }
}

/// A rule in a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) table: &'static str,
    pub(super) chain: String,
    /// Whether it comes first in its chain.
    pub(super) first: bool,
    pub(super) words: String,
}

/// The rules of an attachment in one family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Script {
    /// The chains that all attachments share.
    pub(super) shared_chains: Vec<&'static str>,
    /// The rules that all attachments share, each known by its comment.
    pub(super) shared: Vec<Line>,
    /// The attachment's own chain.
    pub(super) chain: String,
    pub(super) lines: Vec<Line>,
}

impl Script {
    /// The rules of a family; none if it has none of them. Comments in the attachment's own chain name the container's
    /// addresses: whose connections are to be forgotten with it.
    pub(super) fn of(owner: &Owner, rules: &Rules, v4: bool) -> Option<Self> {
        let mut this = Self { chain: chain(owner, rules.kind()), ..Self::default() };
        match rules {
            Rules::Masquerade(rules) => this.masquerade(&owner.label(), rules, v4),
            Rules::HostPorts(rules) => this.host_ports(&owner.label(), rules, v4),
            Rules::SpoofCheck(_) => {}
        }
        (!this.lines.is_empty()).then_some(this)
    }

    fn masquerade(&mut self, label: &str, rules: &Masquerade, v4: bool) {
        let multicast = if v4 { MULTICAST_V4 } else { MULTICAST_V6 };
        for address in rules.addresses.iter().filter(|address| address.is_ipv4() == v4) {
            let (ip, subnet) = (address.ip(), subnet(*address));
            self.own(format!("-s {ip} -d {subnet} {} -j RETURN", comment(ip)));
            self.own(format!("-s {ip} ! -d {multicast} -j MASQUERADE"));
            let entry = format!("-s {ip} {} -j {}", comment(label), self.chain);
            self.lines.push(Line { table: "nat", chain: "POSTROUTING".into(), first: false, words: entry });
        }
    }

    fn host_ports(&mut self, label: &str, rules: &HostPorts, v4: bool) {
        let forwards: Vec<Forward> = rules.forwards().filter(|f| f.to.is_ipv4() == v4).collect();
        if forwards.is_empty() {
            return;
        }
        self.share_host_ports(v4);
        let mark = match &rules.mark {
            Mark::Chain(chain) => chain.as_str().to_owned(),
            Mark::Bit(bit) => {
                self.share_mark(*bit);
                let value = 1_u32 << bit;
                format!("MARK --set-xmark {value:#x}/{value:#x}")
            }
        };
        for forward in &forwards {
            let port = destination(forward);
            for (_, from) in rules.sources().filter(|(to, _)| *to == forward.to.ip()) {
                let from = if from.prefix() == 0 { String::new() } else { format!("-s {from} ") };
                self.own(format!("{port} {from}-j {mark}"));
            }
            self.own(format!("{port} {} -j DNAT --to-destination {}", comment(forward.to.ip()), forward.to));
        }
        let conditions = rules.conditions.iptables(v4);
        for (protocol, ports) in by_protocol(&forwards) {
            for ports in ports.chunks(MULTIPORT_MAX) {
                let mut words = format!("-p {protocol} -m multiport --dports {}", ports.join(","));
                conditions.iter().for_each(|word| words.extend([" ", word]));
                let _ = write!(words, " {} -j {}", comment(label), self.chain);
                self.lines.push(Line { table: "nat", chain: HOSTPORTS.into(), first: true, words });
            }
        }
    }

    fn own(&mut self, words: String) {
        self.lines.push(Line { table: "nat", chain: self.chain.clone(), first: false, words });
    }

    fn share_host_ports(&mut self, v4: bool) {
        if v4 {
            // IPv6 drops these by itself. Not in the table raw: kernels may lack it.
            self.share("mangle", "PREROUTING", "martians from loopback", "! -i lo -s 127.0.0.0/8", "DROP");
            self.share("mangle", "PREROUTING", "martians to loopback", "! -i lo -d 127.0.0.0/8", "DROP");
        }
        self.shared_chains.push(HOSTPORTS);
        for chain in ["PREROUTING", "OUTPUT"] {
            self.share("nat", chain, "to this host", "-m addrtype --dst-type LOCAL", HOSTPORTS);
        }
        // Before what the reference has there: a mapping of its may be stale, and ours is newer.
        self.shared.iter_mut().for_each(|line| line.first = line.table == "nat");
    }

    fn share_mark(&mut self, bit: u8) {
        let value = 1_u32 << bit;
        self.shared_chains.push(HAIRPIN);
        self.share("nat", "POSTROUTING", "host ports", "", HAIRPIN);
        // Before the rules that masquerade what leaves a subnet: theirs may end the way of a packet.
        self.shared.iter_mut().for_each(|line| line.first |= line.chain == "POSTROUTING");
        let mark = format!("-m mark --mark {value:#x}/{value:#x}");
        self.share("nat", HAIRPIN, &format!("mark bit {bit}"), &mark, "MASQUERADE");
    }

    fn share(&mut self, table: &'static str, chain: &str, name: &str, matches: &str, target: &str) {
        let blank = if matches.is_empty() { "" } else { " " };
        let words = format!("{matches}{blank}{} -j {target}", comment(format!("{SHARED}{name}")));
        self.shared.push(Line { table, chain: chain.into(), first: false, words });
    }

    /// Adds the attachment's rules if all that is shared is there and its own chain is not: else the tool
    /// fails, and changes nothing.
    pub(super) fn addition(&self) -> String {
        let new = format!("-N {}\n", self.chain);
        render(|table, text| {
            in_table(&self.shared, table).for_each(|line| put(text, "-C", line));
            if table == "nat" {
                text.push_str(&new);
            }
            in_table(&self.lines, table).for_each(|line| put(text, line.verb(), line));
        })
    }

    /// Adds the attachment's rules to what iptables-save has listed: with what is shared as far as it is missing,
    /// in place of what the attachment has.
    pub(super) fn repair(&self, saved: &str) -> String {
        render(|table, text| {
            if table == "nat" {
                saved::Removal::of_jumps(saved, &self.chain)
                    .iter()
                    .for_each(|rule| text.extend([rule, "\n"]));
                for chain in self.shared_chains.iter().filter(|chain| !saved::has_chain(saved, chain)) {
                    let _ = writeln!(text, "-N {chain}");
                }
                let verb = if saved::has_chain(saved, &self.chain) { "-F" } else { "-N" };
                let _ = writeln!(text, "{verb} {}", self.chain);
            }
            let is_missing = |line: &&Line| !saved::has_rule(saved, line);
            in_table(&self.shared, table).filter(is_missing).for_each(|line| put(text, line.verb(), line));
            in_table(&self.lines, table).for_each(|line| put(text, line.verb(), line));
        })
    }

    /// Fails if any of it is missing, and changes nothing.
    pub(super) fn check(&self) -> String {
        render(|table, text| {
            in_table(&self.shared, table).for_each(|line| put(text, "-C", line));
            in_table(&self.lines, table).for_each(|line| put(text, "-C", line));
        })
    }
}

impl Line {
    fn verb(&self) -> &'static str {
        if self.first { "-I" } else { "-A" }
    }
}

/// Each table is a transaction of its own. The one that may be refused comes first: then nothing was changed.
fn render(of_table: impl Fn(&str, &mut String)) -> String {
    let mut text = String::new();
    for table in ["nat", "mangle"] {
        let mut lines = String::new();
        of_table(table, &mut lines);
        if !lines.is_empty() {
            let _ = write!(text, "*{table}\n{lines}COMMIT\n");
        }
    }
    text
}

fn in_table<'a>(lines: &'a [Line], table: &str) -> impl Iterator<Item = &'a Line> {
    lines.iter().filter(move |line| line.table == table)
}

fn put(text: &mut String, verb: &str, line: &Line) {
    let _ = writeln!(text, "{verb} {} {}", line.chain, line.words);
}

fn comment(text: impl Display) -> String {
    format!("-m comment --comment \"{text}\"")
}

/// What a packet to a mapped port matches.
fn destination(forward: &Forward) -> String {
    let Forward { protocol, host_ip, host_port, .. } = forward;
    let ip = host_ip.map_or(String::new(), |ip: IpAddr| format!(" -d {ip}"));
    format!("-p {protocol} -m {protocol} --dport {host_port}{ip}")
}

/// Each protocol with its ports, each once.
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
