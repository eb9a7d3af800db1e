//! MTU: packets that are too large for the next link.

use netlink::{Link, Netlink, RouteFilter};
use runtime::{Entry, Result};

use super::host::label;
use super::{Finding, Host};
use crate::live::Live;

/// Containers whose MTU is larger than that of the host's end or of its bridge.
pub fn bridge(host: &Host<'_>) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for entry in host.alive() {
        let Some(own) = container_link(entry) else { continue };
        let Ok(result) = entry.result() else { continue };
        let on_host = result.host_interfaces().filter_map(|interface| host.live.link(&interface.name));
        for link in on_host.filter(|link| link.mtu < own.mtu && link.kind_name() != Some("ifb")) {
            findings.push(Finding::error(
                label(entry),
                format!(
                    "{} in the container has MTU {}, but {} on the host has {}: larger packets are lost",
                    own.name, own.mtu, link.name, link.mtu
                ),
                format!(
                    "run `ip link set {} mtu {}`, or set `mtu` of the network and restart the container",
                    link.name, own.mtu
                ),
            ));
        }
    }
    Ok(findings)
}

/// Containers whose MTU is larger than that of the host's uplink.
pub fn uplink(host: &Host<'_>) -> Result<Vec<Finding>> {
    let netlink = Netlink::open().map_err(cni::Error::from)?;
    let routes = netlink.routes(RouteFilter::default()).map_err(cni::Error::from)?;
    let default = routes.iter().filter(|route| route.dst.prefix() == 0).filter_map(|route| route.link);
    let links: Vec<&Link> =
        default.filter_map(|index| host.live.links.iter().find(|link| link.index == index)).collect();
    let Some(uplink) = links.into_iter().min_by_key(|link| link.mtu) else { return Ok(Vec::new()) };
    let mut findings = Vec::new();
    for entry in host.alive() {
        let Some(own) = container_link(entry).filter(|own| own.mtu > uplink.mtu) else { continue };
        findings.push(Finding::warning(
            label(entry),
            format!(
                "{} has MTU {}, but the host's uplink {} has {}: connections hang where ICMP is filtered",
                own.name, own.mtu, uplink.name, uplink.mtu
            ),
            format!("set `\"mtu\": {}` in network {}, and restart the container", uplink.mtu, entry.network),
        ));
    }
    Ok(findings)
}

fn container_link(entry: &Entry) -> Option<Link> {
    let live = Live::at(entry.attach.netns.as_deref()?)?;
    live.link(&entry.attach.attachment.ifname).cloned()
}
