//! portmap: forwards host ports to the container. It is a chained plugin: an earlier plugin of the chain attaches the
//! container.

mod conf;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod keys;
mod localnet;

use std::cell::LazyCell;

use cni::schema::Key;
use cni::{Add, AddResult, Check, Del, Failures, Gc, Plugin, Repair, Result, ResultExt, Role, Status, Undo};
pub use conf::Conf;
use iface::verify;
use localnet::LoopbackAnswers;
use netfilter::{Backend, Expected, Firewall, HostPorts, Owner, Removal, Rules, route_localnet};

#[derive(Debug)]
pub struct Portmap;

impl Plugin for Portmap {
    const NAME: &'static str = "portmap";
    const ABOUT: &'static str = "Forwards ports of the host to the container.";
    const ROLE: Role = Role::Chained;
    const KEYS: &'static [Key] = keys::KEYS;
    const CAPABILITIES: &'static [&'static str] = &["portMappings"];
    const REPAIRS: bool = true;
    type Conf = Conf;

    fn add(call: &Add<Conf>, undo: &mut Undo) -> Result<AddResult> {
        let result = call.prev_result.clone();
        if let Some(ports) = call.conf.host_ports(&result, &call.attachment.ifname)? {
            let owner = Owner::new(&call.net.name, &call.attachment);
            call.conf.unreachable_mappings(&ports.addresses).iter().for_each(|text| cni::warn(text));
            conf::repeated_mappings(&ports).for_each(|text| cni::warn(&text));
            let firewall = Firewall::open_for(HostPorts::KIND, call.conf.backend)?;
            firewall.install(&owner, &ports, undo).hint(&call.conf.advice())?;
            if let Some(guard) = localnet::guard_in_nftables(&ports, || Ok(firewall.backend_of_rules()))? {
                firewall.install(&owner, &guard, undo)?;
            }
            // The sysctl route_localnet lets packets from other links reach 127.0.0.0/8. Set it only after the rules
            // exist, because the rules block such packets.
            LoopbackAnswers::new().enable(&ports, &owner, undo)?;
        } else if call.conf.maps_ports() {
            // As with the reference, ADD succeeds.
            let ifname = &call.attachment.ifname;
            cni::warn(&format!("no port is mapped: prevResult has no address of {ifname}"));
        }
        Ok(result)
    }

    fn del(call: &Del) -> Result<()> {
        let prev = call.prev_result.as_ref();
        let addresses = prev.map(|prev| conf::addresses(prev, &call.attachment.ifname)).unwrap_or_default();
        let owner = Owner::new(&call.net.name, &call.attachment);
        let mut failures = Failures::new();
        // Restore the sysctl route_localnet first: while it is set, the guard must protect the host's loopback
        // addresses.
        let kinds = route_localnet::release(&owner, &mut failures);
        let removal = Removal::start().with_addresses(addresses.iter().map(|address| address.ip()));
        failures.note(removal.remove(&owner, kinds));
        removal.close_later();
        failures.into_result()
    }

    fn check(call: &Check<Conf>) -> Result<()> {
        let Some(ports) = host_ports(call)? else { return Ok(()) };
        let firewall = Firewall::open_for(HostPorts::KIND, call.conf.backend)?;
        firewall.check(&owner(call), &ports)?;
        // REPAIR restores it only if the host's backend is still that of the rules.
        let backend = || Ok(firewall.backend_of_rules().filter(|used| *used == firewall.backend()));
        if let Some(guard) = localnet::guard_in_nftables(&ports, backend)? {
            firewall.check(&owner(call), &guard)?;
        }
        LoopbackAnswers::new().check(&ports, &owner(call))
    }

    fn repair(calls: &[Repair<Conf>]) -> Vec<Result<bool>> {
        let default = LazyCell::new(|| Firewall::default_backend(HostPorts::KIND));
        let repaired = netfilter::repair_with(
            calls,
            |call| expected(&call.check, &default),
            verify::is_attached,
            enable_loopback_answers,
        );
        let mut answers = LoopbackAnswers::new();
        let repair = |(call, outcome): (&Repair<Conf>, Result<bool>)| {
            Ok(outcome? || repair_loopback_answers(&call.check, &mut answers)?)
        };
        calls.iter().zip(repaired).map(repair).collect()
    }

    fn gc(call: &Gc) -> Result<()> {
        let (network, scope) = (&call.net.name, &call.scope);
        let mut failures = Failures::new();
        // As in DEL.
        let kinds = route_localnet::release_stale(network, scope, &mut failures);
        let removal = Removal::start();
        failures.note(removal.collect(network, kinds, scope));
        removal.close_later();
        failures.into_result()
    }

    fn status(call: &Status<Conf>) -> Result<()> {
        Firewall::check_available(call.conf.backend, HostPorts::KIND)
    }
}

fn owner(call: &Check<Conf>) -> Owner {
    Owner::new(&call.net.name, &call.attachment)
}

fn host_ports(call: &Check<Conf>) -> Result<Option<HostPorts>> {
    call.conf.host_ports(&call.prev_result, &call.attachment.ifname)
}

/// The rules that ADD installs for an attachment. `default` is the backend of host ports whose configuration names none.
fn expected(
    call: &Check<Conf>,
    default: &LazyCell<Result<Backend>, impl FnOnce() -> Result<Backend>>,
) -> Result<Vec<Expected>> {
    let Some(ports) = host_ports(call)? else { return Ok(Vec::new()) };
    let backend = call.conf.backend;
    let guard = localnet::guard_in_nftables(&ports, || {
        backend.map_or_else(|| LazyCell::force(default).clone(), Ok).map(Some)
    })?;
    let rules =
        [Some(Box::new(ports) as Box<dyn Rules>), guard.map(|guard| Box::new(guard) as Box<dyn Rules>)];
    Ok(rules.into_iter().flatten().map(|rules| Expected { owner: owner(call), rules, backend }).collect())
}

/// Sets the sysctl route_localnet again for an attachment whose rules exist, if another program has reset it. Returns
/// whether it was reset.
fn repair_loopback_answers(call: &Check<Conf>, answers: &mut LoopbackAnswers) -> Result<bool> {
    let Some(ports) = host_ports(call)? else { return Ok(false) };
    let owner = owner(call);
    if answers.check(&ports, &owner).is_ok() {
        return Ok(false);
    }
    verify::while_attached(call, |undo| LoopbackAnswers::new().enable(&ports, &owner, undo))?;
    Ok(true)
}

/// Sets the sysctl route_localnet again for attachments whose rules were repaired, if another program has reset it. The
/// repaired rules already exist, so they protect the host's loopback addresses. Returns for each attachment a result,
/// and an [`Undo`] that the caller runs if the container has exited meanwhile.
fn enable_loopback_answers(calls: &[&Repair<Conf>]) -> Vec<(Undo, Result<()>)> {
    let mut answers = LoopbackAnswers::new();
    let mut enable = |call: &&Repair<Conf>| {
        let (mut undo, check) = (Undo::new(), &call.check);
        let result = host_ports(check).and_then(|ports| match ports {
            Some(ports) => answers.enable(&ports, &owner(check), &mut undo),
            None => Ok(()),
        });
        (undo, result)
    };
    calls.iter().map(&mut enable).collect()
}
