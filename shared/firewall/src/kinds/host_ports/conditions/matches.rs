//! Conditions in the words of nft(8), as they were understood.

use std::net::IpAddr;

use cni::IfName;
use ipnetwork::IpNetwork;

use crate::kinds::host_ports::forward::Protocol;

/// One condition: part of a packet, and what it must be, or must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Match {
    pub(crate) part: Part,
    pub(crate) negated: bool,
    /// One of them must fit; if negated, none may.
    pub(crate) operands: Vec<Operand>,
}

/// A part of a packet, or a fact about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// `ip saddr` (true) or `ip6 saddr`
    Saddr(bool),
    /// `ip daddr` (true) or `ip6 daddr`
    Daddr(bool),
    /// `tcp sport`, or `th sport` for any protocol
    Sport(Option<Protocol>),
    /// `tcp dport`, or `th dport` for any protocol
    Dport(Option<Protocol>),
    /// `meta l4proto`
    Protocol,
    /// `iifname`
    Iifname,
    /// `meta mark`
    Mark,
    /// `ct mark`
    CtMark,
    /// `ct state`
    CtState,
    /// `meta day`
    Day,
    /// `meta hour`
    Hour,
    /// `limit rate`
    Limit,
}

/// A value to compare with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    Network(IpNetwork),
    Addresses(IpAddr, IpAddr),
    Ports(u16, u16),
    Protocol(Protocol),
    Interface(IfName),
    /// All interfaces whose name begins so (`eth*`).
    Interfaces(String),
    Mark(u32),
    /// Any of the states with these bits.
    States(u32),
    /// From 0, Sunday, in UTC.
    Day(u8),
    /// Seconds since midnight, in UTC, both included.
    Hours(u32, u32),
    /// So many packets in so many seconds, and so many at once.
    Rate {
        packets: u64,
        seconds: u64,
        burst: u32,
    },
}

/// Every way to fulfil the conditions: a rule has no "or".
pub(super) fn alternatives(matches: &[Match]) -> Vec<Vec<(&Match, Vec<&Operand>)>> {
    matches.iter().fold(vec![Vec::new()], |alternatives, condition| {
        let choices: Vec<Vec<&Operand>> = if condition.negated {
            vec![condition.operands.iter().collect()]
        } else {
            condition.operands.iter().map(|operand| vec![operand]).collect()
        };
        let extend = |so_far: Vec<(_, _)>| {
            let choices = choices.clone();
            choices.into_iter().map(move |choice| {
                let mut longer = so_far.clone();
                longer.push((condition, choice));
                longer
            })
        };
        alternatives.into_iter().flat_map(extend).collect()
    })
}
