//! Host ports that fit no map: those with conditions, or with another mark than usual. Each is a rule, which comes before the
//! maps, the newest first.

use std::net::IpAddr;

use super::conditions::{Match, Operand, Part};
use super::forward::Forward;
use super::mapping::HostPorts;
use super::mark::Mark;
use super::nftables::HOSTPORTS;
use crate::ruleset::uapi::*;
use crate::ruleset::{Expressions, Field, R0, Rule, octets, padded};

/// A rule for each mapping, and for each alternative that its conditions allow. Their comment is the owner's
/// label.
pub(super) fn rules(rules: &HostPorts, label: &str) -> Vec<Rule> {
    let rule =
        |expressions| Rule { chain: HOSTPORTS.name, comment: label.to_owned(), first: true, expressions };
    rules
        .forwards()
        .flat_map(|forward| {
            let alternatives = rules.conditions.nftables(forward.to.is_ipv4());
            alternatives.into_iter().map(move |matches| (forward, matches))
        })
        .map(|(forward, matches)| rule(expressions(&forward, &matches, &rules.mark)))
        .collect()
}

fn expressions(forward: &Forward, matches: &[(&Match, Vec<&Operand>)], mark: &Mark) -> Expressions {
    let v4 = forward.to.is_ipv4();
    let mut this = Expressions::new().family(v4);
    // Only what fits all else counts for a limit.
    let (limits, others): (Vec<_>, Vec<_>) = matches.iter().partition(|(m, _)| m.part == Part::Limit);
    for (condition, operands) in others {
        this = operands.iter().fold(this, |this, operand| matching(this, condition, operand));
    }
    if let Some(ip) = forward.host_ip {
        this = this.load(Field::daddr(v4), R0).compare(R0, NFT_CMP_EQ, &octets(ip));
    }
    this = this
        .load_meta(NFT_META_L4PROTO, R0)
        .compare(R0, NFT_CMP_EQ, &[forward.protocol.number()])
        .load(Field::TH_DPORT, R0)
        .compare(R0, NFT_CMP_EQ, &forward.host_port.to_be_bytes());
    for (condition, operands) in limits {
        this = operands.iter().fold(this, |this, operand| matching(this, condition, operand));
    }
    if let Mark::Bit(bit) = mark {
        this = this.mark(*bit, R0);
    }
    let port = R0 + Field::daddr(v4).registers();
    this.immediate(R0, &octets(forward.to.ip()))
        .immediate(port, &forward.to.port().to_be_bytes())
        .dnat(v4, R0, port)
}

/// One condition on one operand.
fn matching(this: Expressions, condition: &Match, operand: &Operand) -> Expressions {
    let (compare, range) =
        if condition.negated { (NFT_CMP_NEQ, NFT_RANGE_NEQ) } else { (NFT_CMP_EQ, NFT_RANGE_EQ) };
    let this = match condition.part {
        Part::Saddr(v4) => this.load(Field::saddr(v4), R0),
        Part::Daddr(v4) => this.load(Field::daddr(v4), R0),
        Part::Sport(None) => this.load(Field::TH_SPORT, R0),
        Part::Dport(None) => this.load(Field::TH_DPORT, R0),
        Part::Sport(Some(protocol)) => transport(this, protocol.number()).load(Field::TH_SPORT, R0),
        Part::Dport(Some(protocol)) => transport(this, protocol.number()).load(Field::TH_DPORT, R0),
        Part::Protocol => this.load_meta(NFT_META_L4PROTO, R0),
        Part::Iifname => this.load_meta(NFT_META_IIFNAME, R0),
        Part::Mark => this.load_meta(NFT_META_MARK, R0),
        Part::CtMark => this.load_ct(NFT_CT_MARK, R0),
        Part::Day => this.load_meta(NFT_META_TIME_DAY, R0),
        Part::Hour => this.load_meta(NFT_META_TIME_HOUR, R0).network_order(R0),
        Part::CtState | Part::Limit => this,
    };
    match operand {
        Operand::Network(network) if is_host(network.ip(), network.prefix()) => {
            this.compare(R0, compare, &octets(network.ip()))
        }
        Operand::Network(network) => {
            this.prefix(R0, network.mask()).compare(R0, compare, &octets(network.network()))
        }
        Operand::Addresses(from, to) => this.range(R0, range, &octets(*from), &octets(*to)),
        Operand::Ports(from, to) if from == to => this.compare(R0, compare, &from.to_be_bytes()),
        Operand::Ports(from, to) => this.range(R0, range, &from.to_be_bytes(), &to.to_be_bytes()),
        Operand::Protocol(protocol) => this.compare(R0, compare, &[protocol.number()]),
        Operand::Interface(name) => this.compare(R0, compare, &padded(name)),
        Operand::Interfaces(prefix) => this.compare(R0, compare, prefix.as_bytes()),
        Operand::Mark(mark) => this.compare(R0, compare, &mark.to_ne_bytes()),
        Operand::Day(day) => this.compare(R0, compare, &[*day]),
        Operand::Hours(from, to) => this.range(R0, range, &from.to_be_bytes(), &to.to_be_bytes()),
        Operand::States(bits) => this.state(*bits, condition.negated),
        Operand::Rate { packets, seconds, burst } => {
            this.limit(*packets, *seconds, *burst, condition.negated)
        }
    }
}

fn transport(this: Expressions, protocol: u8) -> Expressions {
    this.load_meta(NFT_META_L4PROTO, R0).compare(R0, NFT_CMP_EQ, &[protocol])
}

fn is_host(ip: IpAddr, prefix: u8) -> bool {
    prefix == if ip.is_ipv4() { 32 } else { 128 }
}
