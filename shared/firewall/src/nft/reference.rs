//! The reference's rules in nf_tables, those of iptables-nft among them.

use netlink::{RequestError, Socket};

use super::foreign::{HOST_PORTS, MASQUERADE, NAT, SPOOF_CHECK, jump};
use super::layout::Table;
use super::query;
use crate::leftovers::Whose;
use crate::reference;
use crate::rules::{Kind, Rules};

/// Whether its rules of an attachment are there and reached.
pub(super) fn has(socket: &Socket, whose: &Whose<'_>, rules: &Rules) -> Result<bool, RequestError> {
    let own = match rules.kind() {
        Kind::Masquerade => has_masquerade(socket, whose)?,
        Kind::HostPorts => has_host_ports(socket, whose, rules)?,
        Kind::SpoofCheck => return has_spoof_check(socket, whose),
    };
    let in_nat = |v4: bool, chain: &str| targets(socket, NAT[usize::from(!v4)], chain);
    Ok(own || reference::in_iptables(whose, rules, in_nat)?)
}

/// Of several addresses, some of its versions keep the last one only.
fn has_masquerade(socket: &Socket, whose: &Whose<'_>) -> Result<bool, RequestError> {
    let own = query::rules(socket, MASQUERADE, "masq_checks")?;
    Ok(own.iter().any(|rule| whose.has_masquerade(&rule.comment))
        && leads(socket, MASQUERADE, "postrouting", "masq_checks")?)
}

fn has_host_ports(socket: &Socket, whose: &Whose<'_>, rules: &Rules) -> Result<bool, RequestError> {
    for (table, v4) in HOST_PORTS.into_iter().zip([true, false]) {
        let (wanted, mut found) = (reference::count(rules, v4), 0);
        for chain in ["hostports", "hostip_hostports"] {
            let own = query::rules(socket, table, chain)?;
            let own = own.iter().filter(|rule| whose.has_host_port(&rule.comment)).count();
            if own > 0
                && !(leads(socket, table, "prerouting", chain)? && leads(socket, table, "output", chain)?)
            {
                return Ok(false);
            }
            found += own;
        }
        if found < wanted {
            return Ok(false);
        }
    }
    Ok(true)
}

fn has_spoof_check(socket: &Socket, whose: &Whose<'_>) -> Result<bool, RequestError> {
    let Some((_, [interface, mac])) = whose.spoof_check() else { return Ok(false) };
    Ok(leads(socket, SPOOF_CHECK, "PREROUTING", &interface)?
        && leads(socket, SPOOF_CHECK, &interface, &mac)?
        && !query::rules(socket, SPOOF_CHECK, &mac)?.is_empty())
}

/// Whether a rule of a chain leads to another chain.
fn leads(socket: &Socket, table: Table, from: &str, to: &str) -> Result<bool, RequestError> {
    Ok(targets(socket, table, from)?.iter().any(|target| target == to))
}

/// What each rule of a chain leads to; empty if it is no chain.
fn targets(socket: &Socket, table: Table, chain: &str) -> Result<Vec<String>, RequestError> {
    Ok(query::rules(socket, table, chain)?.iter().map(|rule| jump(rule).unwrap_or_default()).collect())
}
