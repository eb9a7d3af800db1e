//! Lets what is forwarded to and from the container pass the host's firewall, and keeps it from other containers.

mod conf;
mod firewalld;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod port;

use cni::{
    Add, AddResult, Check, Code, Del, Error, Failures, Gc, Plugin, Repair, Result, ResultExt, Role, Status,
    Undo,
};
use conf::{Backend, Conf, Policy};
use firewalld::Zone;
use iface::verify;
use netfilter::{Barrier, Family, Forward, Isolation, Kind, Owner, Removal, Rules, Separation};
use port::Port;

/// The plugin.
#[derive(Debug)]
pub struct Firewall;

/// All that it installs.
const KINDS: &[Kind] = &[Forward::KIND, Isolation::KIND, Separation::KIND];

impl Plugin for Firewall {
    const NAME: &'static str = "firewall";
    const ROLE: Role = Role::Chained;
    const UNCHAINED: &'static str = "missing prevResult from earlier plugin";
    const REPAIRS: bool = true;
    type Conf = Conf;

    fn add(call: &Add<Conf>, undo: &mut Undo) -> Result<AddResult> {
        let result = call.net.prev_result.clone().ok_or_else(|| Error::config("prevResult is missing"))?;
        let owner = Owner::new(&call.net.name, &call.attachment);
        let wanted = Wanted::of(&call.conf, &result, &call.netns, &call.attachment.ifname)?;
        if wanted.opens_nothing() {
            cni::warn(
                "prevResult has no address that packets are forwarded to: nothing is allowed through the firewall",
            );
        }
        if !wanted.is_empty() {
            let rules = netfilter::Firewall::open(backend(&call.conf))?;
            // What keeps others away comes before what lets them in.
            wanted.all().try_for_each(|wanted| rules.install(&owner, wanted, undo))?;
            wanted.barriers(&rules)?.iter().for_each(|barrier| cni::warn(&barrier.to_string()));
        }
        if let Some(zone) = &wanted.zone {
            zone.add(&call.net.name, &call.attachment, undo)?;
        }
        Ok(result)
    }

    fn del(call: &Del) -> Result<()> {
        let owner = Owner::new(&call.net.name, &call.attachment);
        let prev = call.net.prev_result.as_ref();
        let addresses = prev.map(conf::addresses).unwrap_or_default();
        let mut failures = Failures::new();
        let zone = conf::zone_of_reference(&call.conf).map(|zone| Zone::new(&zone, addresses.clone()));
        failures.note(firewalld::remove(&call.net.name, &call.attachment, zone.as_ref()));
        let removal = Removal::start().knowing(addresses);
        failures.note(removal.remove(&owner, KINDS));
        removal.close_later();
        failures.into_result()
    }

    fn check(call: &Check<Conf>) -> Result<()> {
        let owner = Owner::new(&call.net.name, &call.attachment);
        let wanted = Wanted::of(&call.conf, &call.prev_result, &call.netns, &call.attachment.ifname)?;
        if let Some(zone) = &wanted.zone {
            zone.check()?;
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let rules = netfilter::Firewall::open(backend(&call.conf))?;
        wanted.all().try_for_each(|wanted| rules.check(&owner, wanted))
    }

    fn repair(Repair { check: call, anew }: &Repair<Conf>) -> Result<bool> {
        let owner = Owner::new(&call.net.name, &call.attachment);
        verify::while_attached(call, |undo| {
            let wanted = Wanted::of(&call.conf, &call.prev_result, &call.netns, &call.attachment.ifname)?;
            let mut repaired = false;
            if !wanted.is_empty() {
                let rules = netfilter::Firewall::open(backend(&call.conf))?;
                for wanted in wanted.all() {
                    repaired |= rules.repair(&owner, wanted, *anew, undo)?;
                }
            }
            if let Some(zone) = wanted.zone.as_ref().filter(|zone| *anew || zone.check().is_err()) {
                zone.add(&call.net.name, &call.attachment, undo)?;
                repaired = true;
            }
            Ok(repaired)
        })
    }

    fn gc(call: &Gc) -> Result<()> {
        let mut failures = Failures::new();
        failures.note(firewalld::collect(call));
        let removal = Removal::start();
        failures.note(removal.collect(&call.net.name, KINDS, &call.scope));
        removal.close_later();
        failures.into_result()
    }

    fn status(call: &Status<Conf>) -> Result<()> {
        if call.conf.policy != Policy::Open {
            // Whatever lets the container's traffic pass, these rules are nftables'.
            netfilter::Firewall::available(Some(netfilter::Backend::Nftables), Isolation::KIND)?;
        }
        if is_by_firewalld(&call.conf).code(Code::NotAvailable)? {
            return firewalld::available();
        }
        netfilter::Firewall::available(backend(&call.conf), Forward::KIND)?;
        // Where the choice was ours, the host may have another way in.
        let asked = call.conf.backend == Some(Backend::Nftables);
        let rules = netfilter::Firewall::open(backend(&call.conf)).code(Code::NotAvailable)?;
        let barriers = rules.barriers(call.conf.opening.bit, &Family::ALL)?;
        match barriers.first().filter(|_| asked) {
            Some(barrier) => Err(Error::new(Code::NotAvailable, barrier.to_string())),
            None => Ok(()),
        }
    }
}

/// The rules of an attachment.
struct Wanted {
    isolation: Option<Isolation>,
    separation: Option<Separation>,
    forward: Option<Forward>,
    /// In place of `forward`.
    zone: Option<Zone>,
}

impl Wanted {
    fn of(conf: &Conf, result: &AddResult, netns: &std::path::Path, ifname: &cni::IfName) -> Result<Self> {
        let addresses = conf::addresses(result);
        let port = (conf.policy != Policy::Open).then(|| Port::of(result, netns, ifname)).transpose()?;
        let within = conf.policy == Policy::Isolated;
        let is_by_firewalld = !addresses.is_empty() && is_by_firewalld(conf)?;
        let zone = is_by_firewalld.then(|| Zone::new(&conf.zone, addresses.iter().copied()));
        Ok(Self {
            zone,
            isolation: port.clone().map(|port| Isolation {
                bridge: port.bridge,
                within,
                bit: conf.opening.bit,
            }),
            separation: port
                .filter(|_| within)
                .map(|port| Separation { port: port.name, bit: conf.opening.bit }),
            forward: (!is_by_firewalld && !addresses.is_empty())
                .then(|| Forward { addresses, opening: conf.opening.clone() }),
        })
    }

    /// Whether no address is allowed through the host's firewall.
    fn opens_nothing(&self) -> bool {
        self.forward.is_none() && self.zone.is_none()
    }

    /// Whether there is nothing but a zone.
    fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }

    /// The chains of others through which the container's packets do not pass.
    fn barriers(&self, rules: &netfilter::Firewall) -> Result<Vec<Barrier>> {
        let Some(forward) = &self.forward else { return Ok(Vec::new()) };
        let families: Vec<Family> = forward.addresses.iter().copied().map(Family::from).collect();
        rules.barriers(forward.opening.bit, &families)
    }

    fn all(&self) -> impl Iterator<Item = &dyn Rules> {
        let rules = [
            self.isolation.as_ref().map(|rules| rules as &dyn Rules),
            self.separation.as_ref().map(|rules| rules as &dyn Rules),
            self.forward.as_ref().map(|rules| rules as &dyn Rules),
        ];
        rules.into_iter().flatten()
    }
}

/// Whether firewalld is to let the container's traffic pass: it drops what no zone of it accepts, whoever else would.
fn is_by_firewalld(conf: &Conf) -> Result<bool> {
    match conf.backend {
        Some(Backend::Firewalld) => Ok(true),
        Some(_) => Ok(false),
        None => firewalld::is_running(),
    }
}

/// The backend of all that is not firewalld's.
fn backend(conf: &Conf) -> Option<netfilter::Backend> {
    match conf.backend? {
        Backend::Nftables => Some(netfilter::Backend::Nftables),
        Backend::Iptables => Some(netfilter::Backend::Iptables),
        Backend::Firewalld => None,
    }
}
