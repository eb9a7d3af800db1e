//! ADD's part that does not depend on the interface's kind: from a link to an attachment.
//!
//! It has two halves. [`Attach::lease`] asks for addresses; [`Attach::configure`] gives them to the link. In between a plugin
//! may complete what was leased, such as gateways. [`report`] says what was made.

use std::time::Duration;

use cni::{Add, AddResult, Attachment, Interface, IpConfig, NetConf, Result, Undo};
use ipnetwork::IpNetwork;
use netlink::Link;

use crate::{InterfaceConf, Namespace, apply};

/// Duplicate address detection sends RetransTimer times DupAddrDetectTransmits, one second by default, after a random
/// delay of up to one (RFC 4862, section 5.4).
const DUPLICATE_DETECTION: Duration = Duration::from_secs(10);

/// The container's interface on its way to an attachment. It was made down, and all that is done to it goes with it: nothing
/// here but the lease is told to [`Undo`].
#[derive(Clone, Copy, Debug)]
pub struct Attach<'a> {
    /// What every configuration says.
    pub net: &'a NetConf,
    /// What the configuration says about the interface.
    pub conf: &'a InterfaceConf,
    /// The container's namespace.
    pub sandbox: &'a Namespace,
    /// The interface.
    pub link: &'a Link,
}

impl Attach<'_> {
    /// Asks the IPAM plugin for addresses, routes and DNS settings. Without one there are none: the interface is for layer 2.
    ///
    /// A plugin that asks over the link itself gets it up.
    ///
    /// # Errors
    /// As [`cni::Ipam::add`].
    pub fn lease(&self, undo: &mut Undo) -> Result<AddResult> {
        self.lease_when(|| Ok(()), undo)
    }

    /// As [`Attach::lease`]. A plugin that asks over the link is started when `ready` has seen that packets pass there.
    ///
    /// # Errors
    /// As [`Attach::lease`], and what `ready` says.
    pub fn lease_when(&self, ready: impl FnOnce() -> Result<()>, undo: &mut Undo) -> Result<AddResult> {
        let Some(ipam) = &self.net.ipam else { return Ok(AddResult::default()) };
        if ipam.needs_link() {
            apply::prepare(self.sandbox, self.link, self.conf, true)?;
            self.sandbox.nl.set_up(self.link)?;
            ready()?;
        }
        ipam.add(undo)
    }

    /// Gives the link its addresses, sets it up, and adds the routes.
    ///
    /// # Errors
    /// What the kernel refuses, named.
    pub fn configure(&self, leases: &AddResult) -> Result<()> {
        self.set_up(leases, true)?;
        self.add_routes(leases)
    }

    /// As [`Attach::configure`], without the leased routes. With `enabledad`, waits until the IPv6 addresses can be used.
    /// `subnet_routes`: the kernel adds a route to each address's subnet.
    ///
    /// # Errors
    /// As [`Attach::configure`].
    pub fn set_up(&self, leases: &AddResult, subnet_routes: bool) -> Result<()> {
        let Self { conf, sandbox, link, .. } = *self;
        let v6 = leases.addresses().any(|address| address.is_ipv6());
        if !leases.ips.is_empty() || conf.accept_ra.is_some() {
            apply::prepare(sandbox, link, conf, v6)?;
        }
        for address in leases.addresses() {
            apply::add_address(sandbox, link, address, conf.enable_dad, subnet_routes)?;
        }
        sandbox.nl.set_up(link).map_err(|e| apply::mac_taken(link, e))?;
        if conf.enable_dad && v6 {
            sandbox.nl.wait_for_addresses(link, DUPLICATE_DETECTION)?;
        }
        Ok(())
    }

    /// Adds the leased routes.
    ///
    /// # Errors
    /// As [`Attach::configure`].
    pub fn add_routes(&self, leases: &AddResult) -> Result<()> {
        let own: Vec<&IpConfig> = leases.ips.iter().collect();
        leases.routes.iter().try_for_each(|route| apply::add_route(self.sandbox, self.link, route, &own))
    }
}

/// The addresses that this network gave the attachment's interface, as the result has them. Without an IPAM plugin it gave none,
/// whatever an earlier plugin of the chain did.
pub fn addresses<'a>(
    net: &NetConf,
    at: &'a Attachment,
    result: &'a AddResult,
) -> impl Iterator<Item = IpNetwork> {
    let given = net.ipam.as_ref().map(|_| result.ips_of(&at.ifname));
    given.into_iter().flatten().map(|ip| ip.address)
}

/// The container's interface as a result names it, when its addresses are leased: a plugin that asked over the link may have set its MTU.
///
/// # Errors
/// If the link is gone.
pub fn interface(net: &NetConf, sandbox: &Namespace, link: &Link) -> Result<Interface> {
    match &net.ipam {
        Some(ipam) if ipam.needs_link() => Ok(sandbox.report(&sandbox.link(&link.name)?)),
        _ => Ok(sandbox.report(link)),
    }
}

/// What the chain has made by now: what the plugins before this one did, the interfaces that it made, and what was leased for the
/// container's one of them.
pub fn report<C>(call: &Add<C>, made: impl IntoIterator<Item = Interface>, leases: AddResult) -> AddResult {
    let mut result = call.net.prev_result.clone().unwrap_or_default();
    result.interfaces.extend(made);
    let known = [&leases.dns, &result.dns];
    let known = || known.into_iter().find(|dns| !dns.is_empty()).cloned();
    let dns = call.net.dns.clone().or_else(known).unwrap_or_default();
    if let Some(container) = result.container_interface(&call.attachment.ifname).cloned() {
        result.put_first(leases, &container);
    }
    AddResult { dns, ..result }
}
