//! `useInterfaceNetwork`: the addresses and routes that the device has in the host go with it, and come home with it.
//!
//! Addresses of IPv6 that a router or a DHCP server gives for a time stay behind: nobody would renew them in the container. So do
//! routes that the kernel makes by itself: to the subnets of addresses, and those that routers advertise.

use cni::{IpConfig, Result};
use iface::Namespace;
use netlink::{Address, Link, Route, RouteFilter, in_order_of_restoring, uapi};
use serde::{Deserialize, Serialize};

/// Addresses and routes of a device, each as the payload of the request that makes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Network {
    addresses: Vec<Vec<u8>>,
    routes: Vec<Vec<u8>>,
}

impl Network {
    /// What a device of the host has.
    ///
    /// # Errors
    /// If the kernel refuses to tell.
    pub fn of(host: &Namespace, device: &Link) -> Result<Self> {
        let lasts = |address: &Address| address.net.is_ipv4() || address.flags & uapi::IFA_F_PERMANENT != 0;
        let is_global = |address: &Address| address.scope == uapi::RT_SCOPE_UNIVERSE;
        let addresses = host.nl.addresses(Some(device))?.into_iter();
        let addresses = addresses.filter(|address| is_global(address) && lasts(address));
        let by_itself = [uapi::RTPROT_KERNEL, uapi::RTPROT_RA];
        let is_own = |route: &Route| !route.protocol.is_some_and(|protocol| by_itself.contains(&protocol));
        let routes = host.nl.routes(RouteFilter { link: Some(device.index), table: None })?;
        let mut routes: Vec<Route> = routes
            .iter()
            .filter(|route| is_own(route))
            .filter_map(|route| route.only_by(device.index))
            .collect();
        in_order_of_restoring(&mut routes);
        Ok(Self {
            addresses: addresses.map(|address| address.payload()).collect(),
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

    /// The addresses, for a result: in the container they stay.
    pub fn ips(&self) -> impl Iterator<Item = IpConfig> {
        self.addresses().map(|address| IpConfig::new(address.net, None))
    }

    /// Adds the routes in the container, where the interface has its addresses by now. What a result says of them.
    ///
    /// # Errors
    /// What the kernel refuses, named.
    pub fn add_routes(&self, sandbox: &Namespace, link: &Link) -> Result<Vec<cni::Route>> {
        let added = self.routes(link).map(|route| {
            match sandbox.nl.add_route(&route) {
                Err(e) if !e.is_exists() => return Err(e.into()),
                _ => {}
            }
            Ok(cni::Route {
                gw: route.gateway,
                table: route.table.filter(|table| *table != uapi::RT_TABLE_MAIN),
                // Without it a route without a gateway would be one to the subnet's.
                scope: route.gateway.is_none().then_some(uapi::RT_SCOPE_LINK),
                priority: route.priority,
                mtu: route.mtu,
                advmss: route.advmss,
                ..cni::Route::to(route.dst)
            })
        });
        added.collect()
    }

    /// Gives a device that is home what it had; routes need it up, as they did before. A program that manages the host's network may have been faster.
    ///
    /// # Errors
    /// The first thing that the kernel refuses, after all were tried.
    pub fn restore(&self, host: &Namespace, link: &Link) -> netlink::Result<()> {
        let addresses = self.addresses().map(|address| host.nl.restore_address(link, &address));
        let restored: Vec<_> = addresses.collect();
        let routes = self.routes(link).map(|route| host.nl.add_route(&route));
        let refused =
            restored.into_iter().chain(routes).filter(|r| r.as_ref().is_err_and(|e| !e.is_exists()));
        refused.reduce(|first, _| first).unwrap_or(Ok(()))
    }
}
