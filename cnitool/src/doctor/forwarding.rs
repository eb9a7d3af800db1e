//! Forwarding: whether the host routes for its containers.

use std::net::IpAddr;

use netlink::{Address, Link};
use runtime::Result;

use super::{Finding, Host};
use crate::live::Live;

/// Address families and links of which the host does not forward packets, although containers need it.
pub fn check(host: &Host<'_>) -> Result<Vec<Finding>> {
    let live = host.live()?;
    let mut findings = Vec::new();
    for (is_v4, family, key) in
        [(true, "IPv4", "net/ipv4/ip_forward"), (false, "IPv6", "net/ipv6/conf/all/forwarding")]
    {
        let of_family = |own: &&Address| own.net.is_ipv4() == is_v4;
        if host.sysctl(key)?.is_some_and(|value| value == "0") {
            let cause = format!("the host does not forward {family}, so containers reach only the host");
            findings.extend(finding(host, &cause, key, live.addresses.iter().filter(of_family)));
            continue;
        }
        // The kernel reads the setting of the link on which a packet arrives. IPv6 has no such setting.
        for link in live.links.iter().filter(|link| is_v4 && link.forwarding == Some(0)) {
            let is_uplink = is_uplink(live, link);
            let gateways = live.addresses.iter().filter(|own| is_uplink || own.index == link.index);
            let cause = format!("the host does not forward IPv4 packets that arrive on {}", link.name);
            let key = format!("net/ipv4/conf/{}/forwarding", link.name);
            findings.extend(finding(host, &cause, &key, gateways.filter(of_family)));
        }
    }
    Ok(findings)
}

/// The finding for networks whose containers have one of these gateways. None: there are none.
fn finding<'a>(
    host: &Host<'_>,
    cause: &str,
    key: &str,
    gateways: impl Iterator<Item = &'a Address>,
) -> Option<Finding> {
    let gateways: Vec<IpAddr> = gateways.map(|own| own.net.ip()).collect();
    // A port of a bridge has no address. The results need not be read for it.
    if gateways.is_empty() {
        return None;
    }
    let needs_it = |entry: &&runtime::Entry| {
        let result = entry.result();
        result.is_ok_and(|result| {
            result.ips.iter().filter_map(|ip| ip.gateway).any(|gateway| gateways.contains(&gateway))
        })
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

/// Whether an IPv4 default route leads through a link.
fn is_uplink(live: &Live, link: &Link) -> bool {
    let mut defaults = live.routes.iter().filter(|route| route.is_default() && route.is_main());
    defaults.any(|route| route.dst.is_ipv4() && route.uses(link.index))
}
