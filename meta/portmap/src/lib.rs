//! Ports of the host that lead to the container which the plugins before in the chain have attached.

mod conf;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod localnet;

use cni::{Add, AddResult, Check, Del, Error, Failures, Gc, Plugin, Repair, Result, Role, Status, Undo};
pub use conf::Conf;
use iface::verify;
use netfilter::{Firewall, HostPorts, Owner, Removal};

/// The plugin.
#[derive(Debug)]
pub struct Portmap;

impl Plugin for Portmap {
    const NAME: &'static str = "portmap";
    const ROLE: Role = Role::Chained;
    const REPAIRS: bool = true;
    type Conf = Conf;

    fn add(call: &Add<Conf>, undo: &mut Undo) -> Result<AddResult> {
        let result = call.net.prev_result.clone().ok_or_else(|| Error::config("prevResult is missing"))?;
        if let Some(ports) = call.conf.host_ports(&result, &call.attachment.ifname)? {
            let owner = Owner::new(&call.net.name, &call.attachment);
            call.conf.unreached(&ports.addresses).iter().for_each(|text| cni::warn(text));
            Firewall::open(call.conf.backend)?.install(&owner, &ports, undo)?;
            // Only now that the rules are there which keep the host's loopback addresses from others.
            localnet::admit(&ports, &owner, undo)?;
        } else if call.conf.maps_ports() {
            let ifname = &call.attachment.ifname;
            cni::warn(&format!("no port is mapped: prevResult has no address of {ifname}"));
        }
        Ok(result)
    }

    fn del(call: &Del) -> Result<()> {
        let prev = call.net.prev_result.as_ref();
        let addresses = prev.map(|prev| conf::addresses(prev, &call.attachment.ifname)).unwrap_or_default();
        let owner = Owner::new(&call.net.name, &call.attachment);
        let mut failures = Failures::new();
        // First: the rules keep others from the host's loopback addresses.
        failures.note(localnet::withdraw(&owner));
        let removal = Removal::start().with_addresses(addresses.iter().map(|address| address.ip()));
        failures.note(removal.remove(&owner, &[HostPorts::KIND]));
        removal.close_later();
        failures.into_result()
    }

    fn check(call: &Check<Conf>) -> Result<()> {
        match call.conf.host_ports(&call.prev_result, &call.attachment.ifname)? {
            Some(ports) => Firewall::open(call.conf.backend)?
                .check(&Owner::new(&call.net.name, &call.attachment), &ports),
            None => Ok(()),
        }
    }

    fn repair(Repair { check: call, reinstall }: &Repair<Conf>) -> Result<bool> {
        let Some(ports) = call.conf.host_ports(&call.prev_result, &call.attachment.ifname)? else {
            return Ok(false);
        };
        verify::while_attached(call, |undo| {
            let owner = Owner::new(&call.net.name, &call.attachment);
            let repaired = Firewall::open(call.conf.backend)?.repair(&owner, &ports, *reinstall, undo)?;
            localnet::admit(&ports, &owner, undo)?;
            Ok(repaired)
        })
    }

    fn gc(call: &Gc) -> Result<()> {
        let mut failures = Failures::new();
        failures.note(localnet::withdraw_stale(&call.net.name, &call.scope));
        let removal = Removal::start();
        failures.note(removal.collect(&call.net.name, &[HostPorts::KIND], &call.scope));
        removal.close_later();
        failures.into_result()
    }

    fn status(call: &Status<Conf>) -> Result<()> {
        Firewall::available(call.conf.backend, HostPorts::KIND)
    }
}
