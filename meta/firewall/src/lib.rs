//! Allows forwarded traffic to and from the container through the host firewall. With `ingressPolicy`, also isolates the network's
//! containers from other networks.

mod conf;
mod firewalld;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod keys;
mod port;
mod rules;

use cni::schema::Key;
use cni::{
    Add, AddResult, AsWritten, Check, Code, Del, Error, Failures, Gc, Plugin, Repair, Result, ResultExt,
    Role, Status, Undo,
};
use conf::{Backend, Conf, Policy};
use firewalld::Zone;
use iface::{verify, veth};
use netfilter::{BlockingChain, Expected, Family, Forward, Isolation, Kind, Owner, PortIsolation, Removal};
use rules::{FirewallRules, query_bus_for_backend};

/// The plugin.
#[derive(Debug)]
pub struct Firewall;

/// The kinds of rules that it may install.
const KINDS: &[Kind] = &[Forward::KIND, Isolation::KIND, PortIsolation::KIND];

impl Plugin for Firewall {
    const NAME: &'static str = "firewall";
    const ABOUT: &'static str = "Allows the container's traffic through the host's firewall.";
    const ROLE: Role = Role::Chained;
    const KEYS: &'static [Key] = keys::KEYS;
    const UNCHAINED: &'static str = "missing prevResult from earlier plugin";
    const REPAIRS: bool = true;
    type Conf = Conf;

    fn add(call: &Add<Conf>, undo: &mut Undo) -> Result<AddResult> {
        let result = call.prev_result.clone();
        let owner = Owner::new(&call.net.name, &call.attachment);
        let rules = FirewallRules::query_bus_and_namespace(
            &call.conf,
            &result,
            &call.netns,
            &call.attachment.ifname,
            false,
        )?;
        if rules.open_nothing() {
            cni::warn(
                "prevResult has no address that packets are forwarded to: nothing is allowed through the firewall",
            );
        }
        if !rules.is_empty() {
            let firewall = netfilter::Firewall::open(backend(&call.conf))?;
            rules.all().try_for_each(|rules| firewall.install(&owner, rules, undo))?;
            rules.blocking_chains(&firewall)?.iter().for_each(|chain| cni::warn(&chain.to_string()));
        }
        if let Some(zone) = &rules.zone {
            zone.add_over_bus(&call.net.name, &call.attachment, undo)?;
        }
        Ok(result)
    }

    fn del(call: &Del) -> Result<()> {
        let owner = Owner::new(&call.net.name, &call.attachment);
        let prev = call.prev_result.as_ref();
        let addresses = prev.map(conf::addresses).unwrap_or_default();
        let mut failures = Failures::new();
        let zone = conf::zone_of_reference(&call.conf).map(|zone| Zone::new(&zone, addresses.clone()));
        failures.note(firewalld::remove_over_bus(&call.net.name, &call.attachment, zone.as_ref()));
        let removal = Removal::start().with_addresses(addresses);
        failures.note(removal.remove(&owner, KINDS));
        removal.close_later();
        failures.into_result()
    }

    fn check(call: &Check<Conf>) -> Result<()> {
        let owner = Owner::new(&call.net.name, &call.attachment);
        // An interface that no longer exists explains why its bridge is not found.
        let rules = rules_of_add(call).or_else(|e| verify::is_attached(call).and(Err(e)))?;
        if let Some(zone) = &rules.zone {
            zone.check_over_bus()?;
        }
        if rules.is_empty() {
            return Ok(());
        }
        let firewall = netfilter::Firewall::open(backend(&call.conf))?;
        rules.all().try_for_each(|rules| firewall.check(&owner, rules))
    }

    fn repair(calls: &[Repair<Conf>]) -> Vec<Result<bool>> {
        let repaired = netfilter::repair(calls, |call| expected(&call.check), verify::is_attached);
        let zones = calls.iter().map(|call| repair_zone(&call.check, call.reinstall));
        repaired.into_iter().zip(zones).map(|(rules, zone)| Ok(rules? | zone?)).collect()
    }

    fn gc(call: &Gc) -> Result<()> {
        let mut failures = Failures::new();
        failures.note(firewalld::collect_over_bus(call));
        let removal = Removal::start();
        failures.note(removal.collect(&call.net.name, KINDS, &call.scope));
        removal.close_later();
        failures.into_result()
    }

    fn status(call: &Status<Conf>) -> Result<()> {
        let isolation: &[Kind] = match call.conf.policy {
            Policy::Open => &[],
            Policy::SameBridge => &[Isolation::KIND],
            Policy::Isolated => &[Isolation::KIND, PortIsolation::KIND],
        };
        for kind in isolation {
            // Isolation always uses nftables.
            netfilter::Firewall::check_available(Some(netfilter::Backend::Nftables), *kind)?;
        }
        if query_bus_for_backend(&call.conf).code(Code::NotAvailable)? {
            return firewalld::available_on_bus();
        }
        netfilter::Firewall::check_available(backend(&call.conf), Forward::KIND)?;
        // Without a configured backend, ADD can use iptables, where a chain that drops packets can be opened.
        let needs_nftables = call.conf.backend == Some(Backend::Nftables);
        let firewall = netfilter::Firewall::open(backend(&call.conf)).code(Code::NotAvailable)?;
        if !needs_nftables {
            return Ok(());
        }
        let blocking = firewall.blocking_chains(call.conf.opening.bit, &Family::ALL)?;
        // The addresses of the network are unknown here: it may have one family only.
        let surely_drops = |family| blocking.iter().find(|chain| chain.surely_drops(family));
        match Family::ALL.map(surely_drops) {
            [Some(chain), Some(_)] => {
                Err(Error::new(Code::NotAvailable, chain.cause()).detail(chain.remedy()))
            }
            _ => Ok(()),
        }
    }
}

/// The chains of nf_tables that drop forwarded packets of containers with this configuration, as in ADD's warning. Calls firewalld over D-Bus
/// unless the configuration names the backend. Empty if firewalld accepts the packets, the configuration is invalid, or the backend is
/// missing.
///
/// # Errors
/// Code 5 or 11 if the bus does not answer. The kernel's error if it does not list the chains.
pub fn blocking_chains(conf: AsWritten, families: &[Family]) -> Result<Vec<BlockingChain>> {
    let Some(conf) = without_firewalld(conf)? else { return Ok(Vec::new()) };
    match netfilter::Firewall::open(backend(&conf)) {
        Err(e) if e.code() == Code::UnsupportedField as u32 => Ok(Vec::new()),
        opened => opened?.blocking_chains(conf.opening.bit, families),
    }
}

/// The errors of legacy tables that drop such packets, or may drop them, and whose tools are not installed. ADD warns of them. See
/// [`blocking_chains`].
///
/// # Errors
/// Code 5 or 11 if the bus does not answer. The kernel's error if it does not return a table.
pub fn closed_legacy(conf: AsWritten, families: &[Family]) -> Result<Vec<Error>> {
    match without_firewalld(conf)? {
        Some(conf) if backend(&conf) != Some(netfilter::Backend::Iptables) => {
            netfilter::Firewall::closed_legacy(&conf.opening, families)
        }
        _ => Ok(Vec::new()),
    }
}

/// The configuration. None if firewalld accepts the packets, or the configuration is invalid.
fn without_firewalld(conf: AsWritten) -> Result<Option<Conf>> {
    match Conf::try_from(conf) {
        Ok(conf) if !query_bus_for_backend(&conf)? => Ok(Some(conf)),
        _ => Ok(None),
    }
}

/// The rules that ADD installed.
fn rules_of_add(call: &Check<Conf>) -> Result<FirewallRules> {
    let Check { net, attachment, conf, prev_result, netns, .. } = call;
    // Stale rules of the reference may contain the address or the bridge of a container that Ferrule has attached.
    let is_of_ferrule = veth::is_of_ferrule(&net.name, attachment, prev_result)?;
    FirewallRules::query_bus_and_namespace(conf, prev_result, netns, &attachment.ifname, !is_of_ferrule)
}

/// The rules that repair looks for.
fn expected(call: &Check<Conf>) -> Result<Vec<Expected>> {
    // The bridge is found through the container's interface.
    if call.conf.policy != Policy::Open {
        verify::is_attached(call)?;
    }
    let rules = rules_of_add(call)?;
    let (owner, backend) = (Owner::new(&call.net.name, &call.attachment), backend(&call.conf));
    let expected = |rules| Expected { owner: owner.clone(), rules, backend };
    Ok(rules.into_all().map(expected).collect())
}

/// Adds missing addresses to firewalld's zone, if it is used. Returns whether any was missing.
fn repair_zone(call: &Check<Conf>, reinstall: bool) -> Result<bool> {
    let addresses = conf::addresses(&call.prev_result);
    if addresses.is_empty() || !query_bus_for_backend(&call.conf)? {
        return Ok(false);
    }
    let zone = Zone::new(&call.conf.zone, addresses);
    if !reinstall && zone.check_over_bus().is_ok() {
        return Ok(false);
    }
    verify::while_attached(call, |undo| zone.add_over_bus(&call.net.name, &call.attachment, undo))?;
    Ok(true)
}

/// The backend for everything except firewalld's zone.
fn backend(conf: &Conf) -> Option<netfilter::Backend> {
    match conf.backend? {
        Backend::Nftables => Some(netfilter::Backend::Nftables),
        Backend::Iptables => Some(netfilter::Backend::Iptables),
        Backend::Firewalld => None,
    }
}
