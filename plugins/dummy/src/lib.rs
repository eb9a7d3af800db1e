//! dummy: an interface that drops all packets, to hold addresses that the container itself uses.

mod conf;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod keys;

use cni::schema::Key;
use cni::{Add, AddResult, Check, Command, Del, Gc, Plugin, Result, Role, Status, Undo};
use conf::Conf;
use iface::attach::{self, InterfaceSetup};
use iface::child::{self, Spec};
use iface::verify::{self, Expected};
use iface::{Namespace, remove};
use netlink::LinkKind;

/// The plugin.
#[derive(Debug)]
pub struct Dummy;

impl Plugin for Dummy {
    const NAME: &'static str = "dummy";
    const ABOUT: &'static str = "\
        Creates a dummy interface in the container. It holds addresses, and drops all packets.";
    const ROLE: Role = Role::Interface;
    const KEYS: &'static [Key] = keys::KEYS;
    const ARGS: &'static [Key] = keys::ARGS;
    const CAPABILITIES: &'static [&'static str] = &["mac"];
    const LINK_KINDS: &'static [(&'static str, &'static str)] = &[("dummy", "dummy")];
    type Conf = Conf;

    fn add(call: &Add<Conf>, undo: &mut Undo) -> Result<AddResult> {
        let conf = &call.conf;
        let sandbox = Namespace::open(&call.netns)?;
        let mac = conf.interface.mac(&call.args)?;
        let link = child::create(
            &sandbox,
            call,
            &Spec { kind: LinkKind::Dummy, parent: None, mac, mtu: conf.mtu },
            undo,
        )?;
        let setup = InterfaceSetup { net: &call.net, conf: &conf.interface, sandbox: &sandbox, link: &link };
        let leases = setup.lease(undo)?;
        setup.configure(&leases)?;
        Ok(attach::report(call, [attach::interface(&call.net, &sandbox, &link)?], leases))
    }

    fn del(call: &Del) -> Result<()> {
        remove::with_leases(&call.net, Command::Del, |failures| {
            failures.note(remove::child(call, Self::NAME));
        })
    }

    fn check(call: &Check<Conf>) -> Result<()> {
        let sandbox = Namespace::open(&call.netns)?;
        verify::container(&sandbox, call, Expected::kind(Self::NAME).mtu(call.conf.mtu))?;
        call.net.ask_ipam(Command::Check)
    }

    fn gc(call: &Gc) -> Result<()> {
        remove::stale_children(call, |link| link.is(Self::NAME))
    }

    fn status(call: &Status<Conf>) -> Result<()> {
        let host = Namespace::host()?;
        host.require_privileges()?;
        host.require_link_kinds(Self::LINK_KINDS)?;
        call.net.ask_ipam(Command::Status)
    }
}
