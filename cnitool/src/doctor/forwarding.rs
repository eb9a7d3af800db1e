//! Forwarding: whether the host routes for its containers.

use std::net::IpAddr;

use netlink::Link;
use runtime::Result;

use super::{Finding, Host};
use crate::live::Live;

/// Address families and links of which the host does not forward packets, although containers need it.
pub fn check(host: &Host<'_>) -> Result<Vec<Finding>> {
    let live = host.live()?;
    let is_off = |key: &str| host.sysctl(key).map(|value| value.is_some_and(|value| value == "0"));
    let cause = |family| format!("the host does not forward {family}, so containers reach only the host");
    let mut findings = Vec::new();
    let (v4, v6) = ("net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding");
    if is_off(v4)? {
        findings.extend(finding(host, &cause("IPv4"), v4, |ip| ip.is_ipv4() && has(live, None, ip)));
    } else {
        // The kernel reads the setting of the link on which a packet arrives. IPv6 has no such setting.
        for link in live.links.iter().filter(|link| link.forwarding == Some(0)) {
            let gateways = if is_uplink(live, link) { None } else { Some(link) };
            // A port of a bridge has none.
            if gateways.is_some()
                && !live.addresses.iter().any(|own| own.index == link.index && own.net.is_ipv4())
            {
                continue;
            }
            let cause = format!("the host does not forward IPv4 packets that arrive on {}", link.name);
            let key = format!("net/ipv4/conf/{}/forwarding", link.name);
            findings.extend(finding(host, &cause, &key, |ip| ip.is_ipv4() && has(live, gateways, ip)));
        }
    }
    if is_off(v6)? {
        findings.extend(finding(host, &cause("IPv6"), v6, |ip| ip.is_ipv6() && has(live, None, ip)));
    }
    Ok(findings)
}

/// The finding for networks whose containers have such a gateway. None: there are none.
fn finding(host: &Host<'_>, cause: &str, key: &str, is_gateway: impl Fn(IpAddr) -> bool) -> Option<Finding> {
    let needs_it = |entry: &&runtime::Entry| {
        let result = entry.result();
        result.is_ok_and(|result| result.ips.iter().filter_map(|ip| ip.gateway).any(&is_gateway))
    };
    let mut networks: Vec<&str> = host.alive().filter(needs_it).map(|entry| &*entry.network).collect();
    networks.dedup();
    (!networks.is_empty()).then(|| {
        Finding::error(
            format!("network {}", networks.join(", ")),
            format!("{cause}: {key} is 0"),
            format!("run `sysctl -w {key}=1`, and remove the contrary setting from /etc/sysctl.d"),
        )
    })
}

/// Whether a link of the host has an address. None: any link.
fn has(live: &Live, link: Option<&Link>, address: IpAddr) -> bool {
    let mut own = live.addresses.iter().filter(|own| own.net.ip() == address);
    own.any(|own| link.is_none_or(|link| own.index == link.index))
}

/// Whether an IPv4 default route leads through a link.
fn is_uplink(live: &Live, link: &Link) -> bool {
    let mut defaults = live.routes.iter().filter(|route| route.is_default() && route.is_main());
    defaults.any(|route| route.dst.is_ipv4() && route.uses(link.index))
}
