//! `useInterfaceNetwork`: moves the device's addresses and routes with it, into the container and back.
//!
//! Expiring IPv6 addresses (SLAAC, DHCPv6) are not moved, because no program in the container renews them. Neither are the kernel's own
//! routes to subnets, and routes from router advertisements. A network manager may add the kernel's route instead, with its own metric, to
//! an address with `noprefixroute`: DEL restores it, and the container gets the kernel's.

use cni::{IpConfig, Result};
use iface::Namespace;
use netlink::{Address, Link, Route, RouteFilter, in_order_of_restoring, uapi};
use serde::{Deserialize, Serialize};

/// Addresses and routes of a device, each as the payload of the request that adds it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Network {
    addresses: Vec<Vec<u8>>,
    routes: Vec<Vec<u8>>,
}

impl Network {
    /// Reads a device's addresses and routes.
    ///
    /// # Errors
    /// If the kernel refuses to list them.
    pub fn of(host: &Namespace, device: &Link) -> Result<Self> {
        let lasts = |address: &Address| address.net.is_ipv4() || address.flags & uapi::IFA_F_PERMANENT != 0;
        let is_global = |address: &Address| address.scope == uapi::RT_SCOPE_UNIVERSE;
        let addresses = host.nl.addresses(Some(device))?.into_iter();
        let addresses: Vec<Address> =
            addresses.filter(|address| is_global(address) && lasts(address)).collect();
        let is_of_manager = |route: &Route| {
            let mut without = addresses.iter().filter(|a| a.flags & uapi::IFA_F_NOPREFIXROUTE != 0);
            without.any(|a| (a.net.network(), a.net.prefix()) == (route.dst.network(), route.dst.prefix()))
        };
        let is_own = |route: &Route| match route.protocol {
            Some(uapi::RTPROT_KERNEL) => is_of_manager(route),
            protocol => protocol != Some(uapi::RTPROT_RA),
        };
        let routes = host.nl.routes(RouteFilter { link: Some(device.index), table: None })?;
        let mut routes: Vec<Route> = routes
            .iter()
            .filter(|route| is_own(route))
            .filter_map(|route| route.only_by(device.index))
            .collect();
        in_order_of_restoring(&mut routes);
        Ok(Self {
            addresses: addresses.iter().map(Address::payload).collect(),
            routes: routes.iter().map(Route::payload).collect(),
        })
    }

    fn addresses(&self) -> impl Iterator<Item = Address> {
        self.addresses.iter().filter_map(|payload| Address::parse(payload))
    }

    fn routes(&self, link: &Link) -> impl Iterator<Item = Route> {
        let routes = self.routes.iter().filter_map(|payload| Route::parse(payload));
        routes.map(|route| Route { link: Some(link.index), hops: vec![], expires: None, ..route })
    }

    /// The addresses for a result. In the container they are permanent.
    pub fn ips(&self) -> impl Iterator<Item = IpConfig> {
        self.addresses().map(|address| IpConfig::new(address.net, None))
    }

    /// Adds the routes in the container, after the addresses, and returns them for the result. The kernel has added the routes to subnets.
    ///
    /// # Errors
    /// If the kernel refuses a route; the message names it.
    pub fn add_routes(&self, sandbox: &Namespace, link: &Link) -> Result<Vec<cni::Route>> {
        let routes = self.routes(link).filter(|route| route.protocol != Some(uapi::RTPROT_KERNEL));
        let added = routes.map(|route| {
            match sandbox.nl.add_route(&route) {
                Err(e) if !e.is_exists() => return Err(e.into()),
                _ => {}
            }
            Ok(cni::Route {
                gw: route.gateway,
                table: route.table.filter(|table| *table != uapi::RT_TABLE_MAIN),
                // Otherwise the result's route would use the subnet's gateway.
                scope: route.gateway.is_none().then_some(uapi::RT_SCOPE_LINK),
                priority: route.priority,
                mtu: route.mtu,
                advmss: route.advmss,
                ..cni::Route::to(route.dst)
            })
        });
        added.collect()
    }

    /// Restores addresses and routes of a device on the host. Routes need the device up. A network manager may have restored some already.
    ///
    /// # Errors
    /// The first refusal of the kernel, after all were tried.
    pub fn restore(&self, host: &Namespace, link: &Link) -> netlink::Result<()> {
        let addresses = self.addresses().map(|address| host.nl.restore_address(link, &address));
        let restored: Vec<_> = addresses.collect();
        let routes = self.routes(link).map(|route| host.nl.add_route(&route));
        let refused =
            restored.into_iter().chain(routes).filter(|r| r.as_ref().is_err_and(|e| !e.is_exists()));
        refused.reduce(|first, _| first).unwrap_or(Ok(()))
    }
}
