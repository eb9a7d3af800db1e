//! The part of ADD that is independent of the interface's kind: from a link to an attachment.
//!
//! [`InterfaceSetup::lease`] requests addresses, and [`InterfaceSetup::configure`] sets them on the link. In between, a plugin may complete the leases, for
//! example with gateways. [`report`] builds the result.

use std::time::Duration;

use cni::{Add, AddResult, Attachment, Interface, IpConfig, NetConf, Result, Undo};
use ipnetwork::IpNetwork;
use netlink::Link;

use crate::{InterfaceConf, Namespace, apply};

/// Duplicate address detection takes RetransTimer times DupAddrDetectTransmits, one second by default, after a random delay of up to one
/// second (RFC 4862, section 5.4).
const DUPLICATE_DETECTION: Duration = Duration::from_secs(10);

/// The container's interface during ADD. It was created down, and its addresses and routes are deleted with it, so only the lease is
/// registered in [`Undo`].
#[derive(Clone, Copy, Debug)]
pub struct InterfaceSetup<'a> {
    /// Common keys of the configuration.
    pub net: &'a NetConf,
    /// Keys about the interface.
    pub conf: &'a InterfaceConf,
    /// The container's namespace.
    pub sandbox: &'a Namespace,
    /// The interface.
    pub link: &'a Link,
}

impl InterfaceSetup<'_> {
    /// Requests addresses, routes and DNS settings from the IPAM plugin. Returns an empty result without an IPAM plugin.
    ///
    /// An IPAM plugin that needs the link gets it up.
    ///
    /// # Errors
    /// If the IPAM plugin fails, with its code.
    pub fn lease(&self, undo: &mut Undo) -> Result<AddResult> {
        self.lease_when(|| Ok(()), undo)
    }

    /// Like [`InterfaceSetup::lease`]. An IPAM plugin that needs the link is started when `ready` reports that packets pass.
    ///
    /// # Errors
    /// If the IPAM plugin or `ready` fails, with their codes.
    pub fn lease_when(&self, ready: impl FnOnce() -> Result<()>, undo: &mut Undo) -> Result<AddResult> {
        let Some(ipam) = &self.net.ipam else { return Ok(AddResult::default()) };
        if ipam.needs_link() {
            apply::prepare(self.sandbox, self.link, self.conf, true)?;
            self.sandbox.nl.set_up(self.link)?;
            ready()?;
        }
        ipam.add(undo)
    }

    /// Sets the addresses, sets the link up, and adds the routes.
    ///
    /// # Errors
    /// If the kernel refuses; the message names the address or route.
    pub fn configure(&self, leases: &AddResult) -> Result<()> {
        self.set_up(leases, true)?;
        self.add_routes(leases)
    }

    /// For an interface that stays down: sets only whether it accepts router advertisements when it is up.
    ///
    /// # Errors
    /// If the namespace cannot be entered.
    pub fn set_accept_ra(&self) -> Result<()> {
        match self.conf.accept_ra {
            Some(_) => apply::prepare(self.sandbox, self.link, self.conf, false),
            None => Ok(()),
        }
    }

    /// Like [`InterfaceSetup::configure`], without the leased routes. With `enabledad`, waits for duplicate address detection. With
    /// `subnet_routes`, the kernel adds a route to each address's subnet.
    ///
    /// # Errors
    /// If the kernel refuses; the message names the address or route.
    pub fn set_up(&self, leases: &AddResult, subnet_routes: bool) -> Result<()> {
        let Self { conf, sandbox, link, .. } = *self;
        let v6 = leases.addresses().any(|address| address.is_ipv6());
        if !leases.ips.is_empty() || conf.accept_ra.is_some() {
            apply::prepare(sandbox, link, conf, v6)?;
        }
        for address in leases.addresses() {
            apply::add_address(sandbox, link, address, conf.enable_dad, subnet_routes)?;
        }
        if v6 {
            apply::enable_ipv6_of_loopback(sandbox)?;
        }
        sandbox.nl.set_up(link).map_err(|e| apply::mac_taken(link.mac, e))?;
        if conf.enable_dad && v6 {
            sandbox.nl.wait_for_addresses(link, DUPLICATE_DETECTION)?;
        }
        Ok(())
    }

    /// Adds the leased routes.
    ///
    /// # Errors
    /// If the kernel refuses; the message names the route.
    pub fn add_routes(&self, leases: &AddResult) -> Result<()> {
        let own: Vec<&IpConfig> = leases.ips.iter().collect();
        leases.routes.iter().try_for_each(|route| apply::add_route(self.sandbox, self.link, route, &own))
    }
}

/// Addresses of the attachment's interface from this network's IPAM plugin, as listed in the result. Empty without an IPAM plugin, even if
/// an earlier plugin of the chain leased addresses.
pub fn addresses<'a>(
    net: &NetConf,
    at: &'a Attachment,
    result: &'a AddResult,
) -> impl Iterator<Item = IpNetwork> {
    let given = net.ipam.as_ref().map(|_| result.ips_of(&at.ifname));
    given.into_iter().flatten().map(|ip| ip.address)
}

/// The container's interface for the result. Call it after leasing: the IPAM plugin may have set the MTU.
///
/// # Errors
/// If the link no longer exists.
pub fn interface(net: &NetConf, sandbox: &Namespace, link: &Link) -> Result<Interface> {
    match &net.ipam {
        Some(ipam) if ipam.needs_link() => Ok(sandbox.to_interface(&sandbox.link(&link.name)?)),
        _ => Ok(sandbox.to_interface(link)),
    }
}

/// Builds the result: `prevResult`, the plugin's interfaces, and the leases of its container interface.
pub fn report<C>(call: &Add<C>, made: impl IntoIterator<Item = Interface>, leases: AddResult) -> AddResult {
    let mut result = call.prev_result.clone();
    result.interfaces.extend(made);
    let known = [&leases.dns, &result.dns];
    let known = || known.into_iter().find(|dns| !dns.is_empty()).cloned();
    let dns = call.net.dns.clone().or_else(known).unwrap_or_default();
    if let Some(container) = result.container_interface(&call.attachment.ifname).cloned() {
        result.put_first(leases, &container);
    }
    AddResult { dns, ..result }
}
