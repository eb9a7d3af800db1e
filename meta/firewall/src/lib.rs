//! Lets what is forwarded to and from the container pass the host's firewall, and keeps it from other containers.

mod conf;
mod port;

use cni::{Add, AddResult, Check, Del, Error, Gc, Plugin, Repair, Result, Role, Status, Undo};
use conf::{Backend, Conf, Policy};
use iface::verify;
use netfilter::{Forward, Isolation, Kind, Owner, Removal, Rules, Separation};
use port::Port;

/// The plugin.
#[derive(Debug)]
pub struct Firewall;

/// All that it installs.
const KINDS: &[Kind] = &[Forward::KIND, Isolation::KIND, Separation::KIND];

impl Plugin for Firewall {
    const NAME: &'static str = "firewall";
    const ROLE: Role = Role::Chained;
    const REPAIRS: bool = true;
    type Conf = Conf;

    fn add(call: &Add<Conf>, undo: &mut Undo) -> Result<AddResult> {
        let result = call.net.prev_result.clone().ok_or_else(|| Error::config("prevResult is missing"))?;
        let owner = Owner::new(&call.net.name, &call.attachment);
        let wanted = Wanted::of(&call.conf, &result, &call.netns, &call.attachment.ifname)?;
        // What keeps others away comes before what lets them in.
        let rules = netfilter::Firewall::open(backend(&call.conf)?)?;
        wanted.all().try_for_each(|wanted| rules.install(&owner, wanted, undo))?;
        Ok(result)
    }

    fn del(call: &Del) -> Result<()> {
        let owner = Owner::new(&call.net.name, &call.attachment);
        let removal = Removal::start();
        let removed = removal.remove(&owner, KINDS);
        removal.leave();
        removed
    }

    fn check(call: &Check<Conf>) -> Result<()> {
        let owner = Owner::new(&call.net.name, &call.attachment);
        let wanted = Wanted::of(&call.conf, &call.prev_result, &call.netns, &call.attachment.ifname)?;
        let rules = netfilter::Firewall::open(backend(&call.conf)?)?;
        wanted.all().try_for_each(|wanted| rules.check(&owner, wanted))
    }

    fn repair(Repair { check: call, anew }: &Repair<Conf>) -> Result<bool> {
        let owner = Owner::new(&call.net.name, &call.attachment);
        verify::while_attached(call, |undo| {
            let wanted = Wanted::of(&call.conf, &call.prev_result, &call.netns, &call.attachment.ifname)?;
            let rules = netfilter::Firewall::open(backend(&call.conf)?)?;
            let mut repaired = false;
            for wanted in wanted.all() {
                repaired |= rules.repair(&owner, wanted, *anew, undo)?;
            }
            Ok(repaired)
        })
    }

    fn gc(call: &Gc) -> Result<()> {
        let removal = Removal::start();
        let removed = removal.retain(&call.net.name, KINDS, &call.valid);
        removal.leave();
        removed
    }

    fn status(call: &Status<Conf>) -> Result<()> {
        netfilter::Firewall::available(backend(&call.conf)?, Forward::KIND)
    }
}

/// The rules of an attachment.
struct Wanted {
    isolation: Option<Isolation>,
    separation: Option<Separation>,
    forward: Option<Forward>,
}

impl Wanted {
    fn of(conf: &Conf, result: &AddResult, netns: &std::path::Path, ifname: &cni::IfName) -> Result<Self> {
        let addresses = conf::addresses(result, ifname);
        let port = (conf.policy != Policy::Open).then(|| Port::of(result, netns, ifname)).transpose()?;
        let within = conf.policy == Policy::Isolated;
        Ok(Self {
            isolation: port.clone().map(|port| Isolation { bridge: port.bridge, within }),
            separation: port.filter(|_| within).map(|port| Separation { port: port.name }),
            forward: (!addresses.is_empty()).then(|| Forward { addresses, opening: conf.opening.clone() }),
        })
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

fn backend(conf: &Conf) -> Result<Option<netfilter::Backend>> {
    match conf.backend {
        None => Ok(None),
        Some(Backend::Nftables) => Ok(Some(netfilter::Backend::Nftables)),
        Some(Backend::Iptables) => Ok(Some(netfilter::Backend::Iptables)),
        Some(Backend::Firewalld) => Err(Error::new(
            cni::Code::UnsupportedField,
            "backend firewalld is not supported; set the backend to nftables",
        )),
    }
}
