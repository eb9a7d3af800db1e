//! Addresses of the interface with their rules and tables.

use std::collections::BTreeSet;
use std::net::IpAddr;

use cni::{AddResult, Error, Result, Undo};
use iface::{Namespace, tables};
use ipnetwork::IpNetwork;
use netlink::{Address, Link, Rule};

use crate::rules::{FIRST, Made, can_be_chosen, made};

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
        made(self.net.ip(), self.table)
    }
}

/// Addresses of an interface in a result. Each gets the table of its rule from an earlier ADD, else `table`, else the first unused one.
///
/// # Errors
/// Code 7 if the interface has no address; other errors if the kernel refuses.
pub fn choose(
    sandbox: &Namespace,
    link: &Link,
    result: &AddResult,
    table: Option<u32>,
    gateways: &[IpAddr],
) -> Result<Vec<Source>> {
    let ifname = link.name.as_str();
    let made = Made::find(sandbox, Some(link), table)?;
    let leads_there =
        |rule: &Rule| table.map_or_else(|| can_be_chosen(rule.table), |table| rule.table == table);
    let mut used = None;
    let mut sources = Vec::new();
    for ip in result.ips_of_name(ifname) {
        let net = ip.address;
        let found = made.rules_for(net).find(leads_there);
        let chosen = match found.map(|rule| rule.table).or(table) {
            Some(known) => known,
            None => {
                let used: &mut BTreeSet<u32> = match &mut used {
                    Some(used) => used,
                    none => none.insert(tables::used(sandbox, &made.rules)?),
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

/// Refuses an address that another interface of the container has: a rule cannot distinguish them.
///
/// # Errors
/// Code 7, naming the address; other errors if the kernel refuses to list addresses.
pub fn refuse_shared(sandbox: &Namespace, link: &Link, sources: &[Source]) -> Result<()> {
    let (_, others) = addresses(sandbox, Some(link))?;
    let is_shared = |source: &&Source| others.iter().any(|other| other.ip() == source.net.ip());
    let Some(source) = sources.iter().find(is_shared) else { return Ok(()) };
    Err(Error::config(format!("another interface of {sandbox} has the address {} too", source.net.ip()))
        .detail("sbr selects the route by the source address: each interface needs its own; or use the plugin vrf instead of sbr for both networks"))
}

/// The addresses of a link, and those of all others.
///
/// # Errors
/// If the kernel refuses to list addresses.
pub fn addresses(sandbox: &Namespace, link: Option<&Link>) -> Result<(Vec<IpNetwork>, Vec<IpNetwork>)> {
    let all = sandbox.nl.addresses(None)?;
    let (own, others): (Vec<_>, Vec<_>) =
        all.iter().partition(|address| link.is_some_and(|link| link.index == address.index));
    let nets = |of: Vec<&Address>| of.iter().map(|address| address.net).collect();
    Ok((nets(own), nets(others)))
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
