//! MTU: packets that are too large for the next link.

use cni::json;
use netlink::{Link, Route};
use runtime::{Entry, Result};
use serde_json::Value;

use super::host::{label, requests};
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
                match lower(entry, link.mtu, host)? {
                    Some(lower) => format!("run `ip link set {} mtu {}`, or {lower}", link.name, own.mtu),
                    None => format!("run `ip link set {} mtu {}`", link.name, own.mtu),
                },
            ));
        }
    }
    Ok(findings)
}

/// Containers whose MTU is larger than that of the host's uplink, which is the link that `mtuFromDefaultRoute` uses.
pub fn uplink(host: &Host<'_>) -> Result<Vec<Finding>> {
    let Some(uplink) = uplink_of(host.live()?) else { return Ok(Vec::new()) };
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
            lower(entry, uplink.mtu, host)?.unwrap_or_default(),
        ));
    }
    Ok(findings)
}

fn uplink_of(live: &Live) -> Option<&Link> {
    let index = Route::default_of(&live.routes)?.link?;
    live.links.iter().find(|link| link.index == index)
}

/// The remedy that gives a container an MTU that is not larger. None: the MTU is the uplink's, which is larger.
fn lower(entry: &Entry, mtu: u32, host: &Host<'_>) -> Result<Option<String>> {
    let known = host.known.iter().find(|one| one.network.name == entry.network);
    let creator = known.and_then(|one| requests(&one.network).next());
    let place = match creator {
        // The plugin refuses a configuration with both keys.
        Some((_, conf)) if json::member(&conf, "mtuFromDefaultRoute") == Some(&Value::Bool(true)) => {
            let is_lower = uplink_of(host.live()?).is_some_and(|uplink| uplink.mtu <= mtu);
            return Ok(is_lower.then(|| RECREATE.to_owned()));
        }
        Some((plugin, _)) if *plugin.kind == *"flannel" => "`delegate` of ",
        _ => "",
    };
    Ok(Some(format!("set `\"mtu\": {mtu}` in {place}network {}, and {RECREATE}", entry.network)))
}

/// The attachment's interface in the container. None if it does not exist.
fn container_link(entry: &Entry) -> cni::Result<Option<Link>> {
    let live = entry.attach.netns.as_deref().map_or(Ok(None), Live::at)?;
    Ok(live.and_then(|live| live.link(&entry.attach.attachment.ifname).cloned()))
}
