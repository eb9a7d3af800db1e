//! MTU: packets that are too large for the next link.

use netlink::Link;
use runtime::{Entry, Result};

use super::host::label;
use super::{Finding, Host, RECREATE};
use crate::live::Live;

/// Containers whose MTU is larger than that of the host's end or of its bridge.
pub fn bridge(host: &Host<'_>) -> Result<Vec<Finding>> {
    let live = host.live()?;
    let mut findings = Vec::new();
    for entry in host.alive() {
        let own = match container_link(entry) {
            Ok(Some(own)) => own,
            Ok(None) => continue,
            Err(e) => {
                findings.push(Finding::unread(label(entry), format!("its namespace cannot be read: {e}")));
                continue;
            }
        };
        // `attachments.results` reports results that cannot be read.
        let Ok(result) = entry.result() else { continue };
        let on_host = result.host_interfaces().filter_map(|interface| live.link(&interface.name));
        for link in on_host.filter(|link| link.mtu < own.mtu && link.kind_name() != Some("ifb")) {
            findings.push(Finding::error(
                label(entry),
                format!(
                    "{} in the container has MTU {}, but {} on the host has {}: larger packets are lost",
                    own.name, own.mtu, link.name, link.mtu
                ),
                format!(
                    "run `ip link set {} mtu {}`, or set `mtu` of the network, and {RECREATE}",
                    link.name, own.mtu
                ),
            ));
        }
    }
    Ok(findings)
}

/// Containers whose MTU is larger than that of the host's uplink.
pub fn uplink(host: &Host<'_>) -> Result<Vec<Finding>> {
    let live = host.live()?;
    let default = live.routes.iter().filter(|route| route.dst.prefix() == 0).filter_map(|route| route.link);
    let links: Vec<&Link> =
        default.filter_map(|index| live.links.iter().find(|link| link.index == index)).collect();
    let Some(uplink) = links.into_iter().min_by_key(|link| link.mtu) else { return Ok(Vec::new()) };
    let mut findings = Vec::new();
    for entry in host.alive() {
        // `mtu.bridge` reports namespaces that cannot be read.
        let own = container_link(entry).ok().flatten();
        let Some(own) = own.filter(|own| own.mtu > uplink.mtu) else { continue };
        findings.push(Finding::warning(
            label(entry),
            format!(
                "{} has MTU {}, but the host's uplink {} has {}: connections hang where ICMP is filtered",
                own.name, own.mtu, uplink.name, uplink.mtu
            ),
            format!("set `\"mtu\": {}` in network {}, and {RECREATE}", uplink.mtu, entry.network),
        ));
    }
    Ok(findings)
}

/// The attachment's interface in the container. None if it does not exist.
fn container_link(entry: &Entry) -> cni::Result<Option<Link>> {
    let live = entry.attach.netns.as_deref().map_or(Ok(None), Live::at)?;
    Ok(live.and_then(|live| live.link(&entry.attach.attachment.ifname).cloned()))
}
