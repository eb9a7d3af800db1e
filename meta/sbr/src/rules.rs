//! Rules of an ADD, and the tables that it has filled.

use std::collections::BTreeSet;
use std::net::IpAddr;

use cni::Result;
use iface::{Namespace, tables};
use ipnetwork::IpNetwork;
use netlink::{Link, RouteFilter, Rule, uapi};

/// First table to choose, as in the reference.
pub const FIRST: u32 = 100;

/// The protocol of ADD's rules: `ip rule` shows `proto 230`. It distinguishes them from the rules of other programs. The number is not in
/// linux/rtnetlink.h or `/etc/iproute2/rt_protos`, and none of FRR (186 to 198), Calico (80) and OVN (84).
const PROTOCOL: u8 = 230;

/// `from ADDRESS lookup TABLE`.
pub fn made(ip: IpAddr, table: u32) -> Rule {
    Rule { protocol: PROTOCOL, ..Rule::from_source(ip.into(), table) }
}

/// Which rules an ADD may have added.
#[derive(Debug)]
pub struct Made {
    /// All rules of the container.
    pub rules: Vec<Rule>,
    /// `table`.
    table: Option<u32>,
    /// Tables that an ADD has filled.
    filled: BTreeSet<u32>,
    /// Tables with routes.
    routed: BTreeSet<u32>,
}

impl Made {
    /// Lists rules and routes. `link`: the interface, if it exists.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn find(sandbox: &Namespace, link: Option<&Link>, table: Option<u32>) -> Result<Self> {
        let filled = link.map_or_else(|| Ok(BTreeSet::new()), |link| filled_tables(sandbox, link))?;
        let routes = sandbox.nl.all_routes(RouteFilter::default())?;
        let routed = routes.iter().filter_map(|route| route.table).collect();
        Ok(Self { rules: sandbox.nl.rules()?, table, filled, routed })
    }

    /// Rules that an ADD added for an address, with any `table`.
    ///
    /// The reference's rules are not marked. Those that lead to a table which other programs have filled are theirs. If the address has no
    /// subnet, nothing distinguishes the routes of the tables.
    pub fn rules_for(&self, net: IpNetwork) -> impl Iterator<Item = Rule> {
        let alone = net.ip().into();
        let is_of_reference = move |to: u32| {
            let is_own = self.filled.contains(&to) || !self.routed.contains(&to) || net == alone;
            self.table == Some(to) || is_own && !tables::is_of_the_kernel(to)
        };
        let is_made = move |rule: &Rule| match rule.protocol {
            PROTOCOL => true,
            0 => is_of_reference(rule.table),
            _ => false,
        };
        let of_address = self.rules.iter().filter(move |rule| !rule.has_more && rule.source == Some(alone));
        of_address.copied().filter(is_made)
    }

    /// The tables to empty: those of these rules, and those that an ADD has filled, without a rule. ADD was killed before it added the rule,
    /// or the rule was deleted.
    ///
    /// # Errors
    /// If the kernel refuses to list links.
    pub fn tables(&self, sandbox: &Namespace, rules: &[Rule]) -> Result<BTreeSet<u32>> {
        let mut tables = self.filled.clone();
        if !tables.is_empty() {
            let in_effect = tables::in_effect(sandbox, &self.rules)?;
            tables.retain(|table| !in_effect.contains(table));
        }
        tables.extend(rules.iter().map(|rule| rule.table).filter(|table| can_be_chosen(*table)));
        Ok(tables)
    }
}

/// Whether ADD may choose a table.
pub fn can_be_chosen(table: u32) -> bool {
    table >= FIRST && !tables::is_of_the_kernel(table)
}

/// Tables that an ADD has filled with the link's routes.
///
/// Tables that only other programs or `ipam` (`routes[].table`) have filled do not count: they lack the routes to the link's own subnets or
/// gateways, which the kernel and ptp add to the main table with an address of the link.
///
/// # Errors
/// If the kernel refuses to list addresses or routes.
fn filled_tables(sandbox: &Namespace, link: &Link) -> Result<BTreeSet<u32>> {
    let addresses = sandbox.nl.addresses(Some(link))?;
    let is_own = |source: IpAddr| addresses.iter().any(|address| address.net.ip() == source);
    let mut routes = tables::of_link(sandbox, link, None)?;
    routes.retain(|route| route.protocol == Some(uapi::RTPROT_KERNEL) || route.source.is_some_and(is_own));
    let own = routes.into_iter().filter_map(|route| route.table);
    Ok(own.filter(|table| can_be_chosen(*table)).collect())
}
