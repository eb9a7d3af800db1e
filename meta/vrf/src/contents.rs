//! Addresses and routes of a link, which it loses when it joins or leaves a VRF: the kernel sets it down and up.

use cni::{AddResult, Failures, Result};
use iface::{Namespace, tables};
use netlink::{Address, Link, LinkChange, Route, uapi};
use nix::errno::Errno;

/// Addresses and routes of a link.
#[derive(Clone, Debug)]
pub struct Contents {
    addresses: Vec<Address>,
    /// In the order of restoring.
    routes: Vec<Route>,
}

impl Contents {
    /// Reads the current addresses and routes.
    ///
    /// # Errors
    /// If the kernel refuses to list them.
    pub fn of(sandbox: &Namespace, link: &Link) -> Result<Self> {
        let addresses = sandbox.nl.addresses(Some(link))?;
        // The kernel lists IPv6 addresses newest first.
        let (v4, v6): (Vec<_>, Vec<_>) = addresses.into_iter().partition(|address| address.net.is_ipv4());
        let addresses = v4.into_iter().chain(v6.into_iter().rev()).collect();
        let routes = tables::of_link(sandbox, link, None)?;
        Ok(Self { addresses, routes })
    }

    /// The routes, with those of table `from` in table `to`.
    pub fn moved(&self, link: &Link, from: u32, to: u32) -> Vec<Route> {
        let own = self.routes.iter().filter(|route| route.table == Some(from));
        let own = own.filter_map(|route| route.only_by(link.index));
        own.map(|route| Route { table: Some(to), ..route }).collect()
    }

    /// Changes the link's master, and restores its addresses and routes. Routes of table `from` are in `to` afterwards.
    ///
    /// # Errors
    /// All addresses and routes that could not be restored.
    pub fn change_master(
        &self,
        sandbox: &Namespace,
        link: &Link,
        master: u32,
        (from, to): (u32, u32),
    ) -> Result<()> {
        sandbox.nl.change_link(link, &LinkChange { master: Some(master), ..LinkChange::default() })?;
        let mut failures = Failures::new();
        failures.note(self.put_addresses_back(sandbox, link));
        for route in &self.routes {
            let by_link = route.only_by(link.index);
            let put = match by_link {
                // The kernel adds routes to the addresses' subnets itself.
                _ if route.protocol == Some(uapi::RTPROT_KERNEL) => Ok(()),
                Some(own) if route.table == Some(from) => put(sandbox, &Route { table: Some(to), ..own }),
                _ => tables::restore(sandbox, link, route),
            };
            failures.note(put);
        }
        failures.note(clear(sandbox, link, from));
        failures.into_result()
    }

    /// Restores missing addresses, usable immediately. An address that is being tested again for duplicates has passed the test before.
    fn put_addresses_back(&self, sandbox: &Namespace, link: &Link) -> Result<()> {
        let (now, mut failures) = (sandbox.nl.addresses(Some(link))?, Failures::new());
        for address in self.addresses.iter().filter(|address| !address.duplicate) {
            match now.iter().find(|one| one.net == address.net) {
                Some(kept) if kept.tentative && !address.tentative && kept.scope == 0 => {
                    failures.note(sandbox.nl.delete_address(link, kept.net));
                }
                Some(_) => continue,
                None => {}
            }
            match sandbox.nl.restore_address(link, address) {
                // A link-local address that the kernel restored.
                Err(e) if e.is_exists() => {}
                other => drop(failures.note(other)),
            }
        }
        failures.into_result()
    }
}

/// Restores what an interrupted ADD or DEL has lost, as far as the result lists it.
///
/// # Errors
/// All addresses and routes that could not be restored.
pub fn complete(sandbox: &Namespace, link: &Link, table: u32, result: &AddResult) -> Result<()> {
    let (now, mut failures) = (sandbox.nl.addresses(Some(link))?, Failures::new());
    let lost = result.ips_of(&link.name).filter(|ip| now.iter().all(|one| one.net != ip.address));
    for ip in lost {
        failures.note(sandbox.nl.add_address(link, ip.address, false));
    }
    for route in tables::lost(sandbox, link, table, result)? {
        failures.note(put(sandbox, &route));
    }
    failures.into_result()
}

/// Adds a route, on the link if necessary: the kernel does not accept a gateway before the carrier is back, which takes seconds for a
/// network card.
fn put(sandbox: &Namespace, route: &Route) -> netlink::Result<()> {
    match sandbox.nl.add_route(route) {
        Err(e) if e.is_exists() => Ok(()),
        Err(e) if matches!(e.errno(), Some(Errno::EHOSTUNREACH | Errno::ENETUNREACH)) => {
            tables::put(sandbox, &Route { on_link: true, ..route.clone() })
        }
        other => other,
    }
}

/// Deletes a link's remaining routes in a table. The kernel keeps a link's part of multipath routes.
fn clear(sandbox: &Namespace, link: &Link, table: u32) -> Result<()> {
    let mut failures = Failures::new();
    for route in tables::of_link(sandbox, link, Some(table))?.iter().rev() {
        failures.note(tables::take(sandbox, link, route));
    }
    failures.into_result()
}
