//! Forwarding: whether the host routes for its containers.

use runtime::Result;

use super::{Finding, Host};
use crate::live::Live;

/// Address families that containers use while the host does not forward packets of that family.
pub fn check(host: &Host<'_>) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for (is_v4, family, key) in
        [(true, "IPv4", "net/ipv4/ip_forward"), (false, "IPv6", "net/ipv6/conf/all/forwarding")]
    {
        if host.sysctl(key)?.is_none_or(|value| value != "0") {
            continue;
        }
        let live = host.live()?;
        let mut networks: Vec<&str> =
            host.alive().filter(|entry| is_routed(live, entry, is_v4)).map(|entry| &*entry.network).collect();
        networks.dedup();
        if !networks.is_empty() {
            findings.push(Finding::error(
                format!("network {}", networks.join(", ")),
                format!("the host does not forward {family}, so containers reach only the host: {key} is 0"),
                format!("run `sysctl -w {key}=1`, and remove the contrary setting from /etc/sysctl.d"),
            ));
        }
    }
    Ok(findings)
}

/// Whether the host is a container's gateway.
fn is_routed(live: &Live, entry: &runtime::Entry, is_v4: bool) -> bool {
    let Ok(result) = entry.result() else { return false };
    let mut gateways =
        result.ips.iter().filter_map(|ip| ip.gateway).filter(|gateway| gateway.is_ipv4() == is_v4);
    gateways.any(|gateway| live.addresses.iter().any(|own| own.net.ip() == gateway))
}
