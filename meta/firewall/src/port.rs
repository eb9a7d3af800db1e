//! The bridge that a container is on, and the port that it is behind.

use std::path::Path;

use cni::{AddResult, Error, IfName, Result};
use iface::{Namespace, host_end};
use netlink::Link;

/// A bridge, and a port of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The bridge's name.
    pub bridge: IfName,
    /// The port's name.
    pub name: IfName,
}

impl Port {
    /// The host's end of the container's link, and the bridge that it is a port of. Opens the container's namespace if the result does
    /// not list the port.
    ///
    /// # Errors
    /// Code 7 if the container is on no bridge.
    pub fn find_in_namespace(result: &AddResult, netns: &Path, ifname: &IfName) -> Result<Self> {
        let host = Namespace::host()?;
        let port = match listed(&host, result)? {
            Some(port) => Some(port),
            None => behind(&host, netns, ifname)?,
        };
        let port = port.ok_or_else(|| on_no_bridge(ifname))?;
        let bridge = host.nl.link_named_by(port.master)?.filter(|link| link.is("bridge"));
        let bridge = bridge.ok_or_else(|| on_no_bridge(ifname))?;
        let parse = |link: &Link| IfName::parse(&link.name).map_err(Error::config);
        Ok(Self { bridge: parse(&bridge)?, name: parse(&port)? })
    }
}

/// The port of a bridge that the result tells of. A chain may have made several: the last one is the container's.
fn listed(host: &Namespace, result: &AddResult) -> Result<Option<Link>> {
    for interface in result.host_interfaces().rev() {
        if let Some(link) = host.nl.link(&interface.name)?
            && host.nl.link_named_by(link.master)?.is_some_and(|master| master.is("bridge"))
        {
            return Ok(Some(link));
        }
    }
    Ok(None)
}

/// The other end of the container's veth. Results of older versions do not tell it.
fn behind(host: &Namespace, netns: &Path, ifname: &IfName) -> Result<Option<Link>> {
    let sandbox = Namespace::open(netns)?;
    let link = sandbox.link(ifname)?;
    host_end::find(host, &sandbox, &link)
}

fn on_no_bridge(ifname: &IfName) -> Error {
    Error::config(format!("ingressPolicy: {ifname} is on no bridge"))
        .detail("same-bridge and isolated are for networks of the plugin bridge; set ingressPolicy to open, or remove it")
}
