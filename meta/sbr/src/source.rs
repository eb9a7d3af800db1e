//! Addresses of the interface with their rules and tables.

use std::collections::BTreeSet;
use std::net::IpAddr;

use cni::{AddResult, Error, Result, Undo};
use iface::{Namespace, tables};
use ipnetwork::IpNetwork;
use netlink::Rule;

/// First table to choose, as in the reference.
const FIRST: u32 = 100;

/// An address and its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The address with its prefix length.
    pub net: IpNetwork,
    /// Gateway of the table's default route.
    pub gateway: Option<IpAddr>,
    /// The table.
    pub table: u32,
    /// Whether the rule exists, from an earlier ADD.
    pub has_rule: bool,
}

impl Source {
    /// `from ADDRESS lookup TABLE`.
    pub fn rule(&self) -> Rule {
        Rule::from_source(alone(self.net.ip()), self.table)
    }
}

/// An address as a /32 or /128.
fn alone(ip: IpAddr) -> IpNetwork {
    ip.into()
}

/// Whether a rule only selects a table for packets from an address.
fn is_for(rule: &Rule, ip: IpAddr) -> bool {
    !rule.has_more && rule.source == Some(alone(ip))
}

/// Whether an ADD may have added a rule: with `table`, it leads there; otherwise to a table that ADD may choose.
fn is_ours(rule: &Rule, table: Option<u32>) -> bool {
    table.map_or_else(|| can_be_chosen(rule.table), |table| rule.table == table)
}

/// Whether ADD may choose a table.
pub fn can_be_chosen(table: u32) -> bool {
    table >= FIRST && !tables::is_of_the_kernel(table)
}

/// Addresses of an interface in a result. Each gets the table of its rule from an earlier ADD, else `table`, else the first unused one.
///
/// # Errors
/// Code 7 if the interface has no address; other errors if the kernel refuses.
pub fn choose(
    sandbox: &Namespace,
    result: &AddResult,
    ifname: &str,
    table: Option<u32>,
    gateways: &[IpAddr],
) -> Result<Vec<Source>> {
    let rules = sandbox.nl.rules()?;
    let mut used = None;
    let mut sources = Vec::new();
    for ip in result.ips_of_name(ifname) {
        let net = ip.address;
        let found = rules.iter().find(|rule| is_for(rule, net.ip()) && is_ours(rule, table));
        let chosen = match found.map(|rule| rule.table).or(table) {
            Some(known) => known,
            None => {
                let used: &mut BTreeSet<u32> = match &mut used {
                    Some(used) => used,
                    none => none.insert(tables::used(sandbox, &rules)?),
                };
                first_free(used)?
            }
        };
        let gateway = gateway_of(result, net, ip.gateway, gateways);
        sources.push(Source { net, gateway, table: chosen, has_rule: found.is_some() });
    }
    if sources.is_empty() {
        return Err(Error::config(format!("prevResult has no address of interface {ifname}")).detail(
            "sbr needs the addresses that an earlier plugin in the chain assigned to the interface",
        ));
    }
    Ok(sources)
}

fn first_free(used: &mut BTreeSet<u32>) -> Result<u32> {
    let free = tables::first_free(used, FIRST)?;
    used.insert(free);
    Ok(free)
}

/// A gateway of `gateways`, else the address's own, else that of a default route of the result.
fn gateway_of(
    result: &AddResult,
    net: IpNetwork,
    own: Option<IpAddr>,
    gateways: &[IpAddr],
) -> Option<IpAddr> {
    let of_family = |ip: &IpAddr| ip.is_ipv4() == net.is_ipv4();
    let configured = gateways.iter().copied().find(of_family);
    let mut defaults =
        result.routes.iter().filter(|route| route.dst.prefix() == 0).filter_map(|route| route.gw);
    let near = defaults.clone().filter(of_family).find(|gateway| net.contains(*gateway));
    configured.or(own.filter(of_family)).or(near).or_else(|| defaults.find(of_family))
}

/// Adds missing rules.
///
/// # Errors
/// If the kernel refuses.
pub fn add_rules(sandbox: &Namespace, sources: &[Source], undo: &mut Undo) -> Result<()> {
    let mut rules: Vec<Rule> = Vec::new();
    for rule in sources.iter().filter(|source| !source.has_rule).map(Source::rule) {
        // An address may be listed twice, and the kernel accepts equal rules.
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    for rule in rules {
        let nl = sandbox.nl.clone();
        undo.push(move || nl.delete_rule(&rule));
        sandbox.nl.add_rule(&rule)?;
    }
    Ok(())
}

/// Rules that an ADD added for the addresses, with any `table`.
///
/// # Errors
/// If the kernel refuses to list rules.
pub fn made_rules(sandbox: &Namespace, addresses: &[IpAddr], table: Option<u32>) -> Result<Vec<Rule>> {
    let mut rules = sandbox.nl.rules()?;
    let may_lead = |to: u32| !tables::is_of_the_kernel(to) || table == Some(to);
    rules.retain(|rule| may_lead(rule.table) && addresses.iter().any(|ip| is_for(rule, *ip)));
    Ok(rules)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use cni::{IpConfig, Route};

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_first_free_table_is_from_100_on_and_none_of_the_kernels() {
        let mut used: BTreeSet<u32> = (100..255).chain([255]).collect();
        assert_eq!((first_free(&mut used).unwrap(), first_free(&mut used).unwrap()), (256, 257));
        assert_eq!(first_free(&mut BTreeSet::new()).unwrap(), 100);
    }

    #[test]
    fn a_gateway_is_the_configured_one_or_the_addresss_or_a_default_routes() {
        let mut result = AddResult::default();
        result.ips.push(IpConfig::new("10.1.0.2/24".parse().unwrap(), None));
        let net = "10.1.0.2/24".parse().unwrap();
        let of = |result: &AddResult, own: Option<&str>, gateways: &[&str]| {
            let gateways: Vec<IpAddr> = gateways.iter().map(|text| ip(text)).collect();
            gateway_of(result, net, own.map(ip), &gateways)
        };
        assert_eq!(of(&result, None, &["fd00::1"]), None);
        for (dst, gw) in [("10.9.0.0/16", "10.1.0.7"), ("0.0.0.0/0", "10.1.0.8"), ("0.0.0.0/0", "10.2.0.9")] {
            result.routes.push(Route { gw: Some(ip(gw)), ..Route::to(dst.parse().unwrap()) });
        }
        assert_eq!(of(&result, None, &["fd00::1"]), Some(ip("10.1.0.8")));
        assert_eq!(of(&result, Some("10.1.0.1"), &[]), Some(ip("10.1.0.1")));
        assert_eq!(of(&result, Some("10.1.0.1"), &["fd00::1", "10.1.0.5"]), Some(ip("10.1.0.5")));
    }
}
