//! ipvlan: an interface with the hardware address of a link of the host, and its own IP addresses.

mod conf;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod inherited;
mod keys;

use cni::schema::Key;
use cni::{Add, AddResult, Check, Command, Del, Gc, Plugin, Result, Role, Status, Undo};
use conf::Conf;
use iface::attach::{self, InterfaceSetup};
use iface::remove;

/// The plugin.
#[derive(Debug)]
pub struct Ipvlan;

impl Plugin for Ipvlan {
    const NAME: &'static str = "ipvlan";
    const ABOUT: &'static str = "\
        Creates an ipvlan interface in the container: it shares the MAC address of an interface of the \
        host.";
    const ROLE: Role = Role::Interface;
    const KEYS: &'static [Key] = keys::KEYS;
    const ARGS: &'static [Key] = keys::ARGS;
    const CAPABILITIES: &'static [&'static str] = &["mac"];
    const LINK_KINDS: &'static [(&'static str, &'static str)] = &[("ipvlan", "ipvlan")];
    type Conf = Conf;

    fn add(call: &Add<Conf>, undo: &mut Undo) -> Result<AddResult> {
        let conf = &call.conf;
        if let Some(mac) = conf.stacked.interface.mac(&call.args)? {
            cni::warn(&format!("the MAC {mac} is not set: an ipvlan has the MAC of its master"));
        }
        let stack = conf.stacked.find_parent(call)?;
        stack.parent.warn_if_down();
        let link = stack.create(call, conf.kind(), None, undo)?;

        let setup = InterfaceSetup {
            net: &call.net,
            conf: &conf.stacked.interface,
            sandbox: &stack.sandbox,
            link: &link,
        };
        let inherited = inherited::leases(call);
        let (leases, call) = match &inherited {
            Some((leases, rest)) => (leases.clone(), rest),
            None => (setup.lease(undo)?, call),
        };
        // The kernel announces the addresses when the link is set up. Setting the MAC is not possible.
        setup.configure(&leases)?;
        Ok(attach::report(call, [attach::interface(&call.net, &stack.sandbox, &link)?], leases))
    }

    fn del(call: &Del) -> Result<()> {
        remove::with_leases(&call.net, Command::Del, |failures| {
            failures.note(remove::child(call, Self::NAME));
        })
    }

    fn check(call: &Check<Conf>) -> Result<()> {
        let link = call.conf.stacked.verify(call, Self::NAME)?;
        call.conf.verify(&link)?;
        call.net.ask_ipam(Command::Check)
    }

    fn gc(call: &Gc) -> Result<()> {
        remove::stale_children(call, |link| link.is(Self::NAME))
    }

    fn status(call: &Status<Conf>) -> Result<()> {
        call.conf.stacked.available(Self::LINK_KINDS)?;
        call.net.ask_ipam(Command::Status)
    }
}
