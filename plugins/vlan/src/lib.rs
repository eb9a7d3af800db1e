//! vlan: a VLAN of a host's link. Frames with the VLAN's tag arrive in the container without it, and frames from the container get it.

mod conf;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod keys;
mod name;

use cni::schema::Key;
use cni::{
    Add, AddResult, Check, Code, Command, Del, Error, Gc, Plugin, Result, ResultExt, Role, Status, Undo,
};
use conf::Conf;
use iface::attach::{self, InterfaceSetup};
use iface::{announce, remove};
use netlink::Link;

/// The plugin.
#[derive(Debug)]
pub struct Vlan;

impl Plugin for Vlan {
    const NAME: &'static str = "vlan";
    const ABOUT: &'static str = "Creates a VLAN interface in the container, on an interface of the host.";
    const ROLE: Role = Role::Interface;
    const KEYS: &'static [Key] = keys::KEYS;
    const ARGS: &'static [Key] = keys::ARGS;
    const CAPABILITIES: &'static [&'static str] = &["mac"];
    const LINK_KINDS: &'static [(&'static str, &'static str)] = &[("vlan", "8021q")];
    type Conf = Conf;

    fn add(call: &Add<Conf>, undo: &mut Undo) -> Result<AddResult> {
        let conf = &call.conf;
        let mac = conf.stacked.interface.mac(&call.args)?;
        let stack = conf.stacked.find_parent(call)?;
        require_up(&stack.parent.link)?;
        let renamed = name::with_vlan_name(call, &stack.parent)?;
        let call = renamed.as_ref().unwrap_or(call);
        let link = stack.create(call, conf.kind(), mac, undo)?;

        let setup = InterfaceSetup {
            net: &call.net,
            conf: &conf.stacked.interface,
            sandbox: &stack.sandbox,
            link: &link,
        };
        let leases = setup.lease(undo)?;
        setup.configure(&leases)?;
        if !leases.ips.is_empty() {
            announce::addresses(&stack.sandbox, &link)?;
        }
        Ok(attach::report(call, [attach::interface(&call.net, &stack.sandbox, &link)?], leases))
    }

    fn del(call: &Del) -> Result<()> {
        remove::with_leases(&call.net, Command::Del, |failures| {
            let Some(renamed) = name::deleted(call) else {
                failures.note(remove::child(call, Self::NAME));
                return;
            };
            if failures.note(remove::child_like(&renamed, |link| name::is_ours(link, &renamed)))
                == Some(false)
            {
                failures.note(remove::child_like(call, |link| name::may_be_requested(link, call, &renamed)));
            }
        })
    }

    fn check(call: &Check<Conf>) -> Result<()> {
        let renamed = name::checked(call);
        let call = renamed.as_ref().unwrap_or(call);
        let link = call.conf.stacked.verify(call, Self::NAME)?;
        call.conf.verify(&link)?;
        call.net.ask_ipam(Command::Check)
    }

    fn gc(call: &Gc) -> Result<()> {
        remove::stale_children(call, |link| link.is(Self::NAME) && !name::may_be_renamed(link))
    }

    fn status(call: &Status<Conf>) -> Result<()> {
        let master = call.conf.stacked.available(Self::LINK_KINDS)?;
        master.map_or(Ok(()), |master| require_up(&master.link)).code(Code::NotAvailable)?;
        call.net.ask_ipam(Command::Status)
    }
}

/// Checks that the master is up: the kernel does not set up a VLAN on a master that is down.
fn require_up(master: &Link) -> Result<()> {
    if master.up {
        return Ok(());
    }
    let text = format!("master {} is down, and no VLAN can be up on it", master.name);
    Err(Error::new(Code::TryAgainLater, text).detail(format!("run `ip link set {} up`", master.name)))
}
