//! tap: an interface in the container that exchanges Ethernet frames with a program, usually a virtual machine.

mod conf;
mod device;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod keys;
mod label;

use std::ffi::OsString;
use std::process::ExitCode;

use cni::schema::Key;
use cni::{Add, AddResult, Check, Code, Command, Del, Error, Gc, Plugin, Result, Role, Status, Undo};
use conf::Conf;
use iface::attach::{self, InterfaceSetup};
use iface::verify::{self, Expected};
use iface::{Namespace, ownership, remove};
use netlink::{Link, LinkKind, TunKind};

/// The kernel's name for the kind of a tap.
const KIND: &str = "tun";

/// The plugin.
#[derive(Debug)]
pub struct Tap;

impl Plugin for Tap {
    const NAME: &'static str = "tap";
    const ABOUT: &'static str = "Creates a tap device in the container, for a virtual machine.";
    const ROLE: Role = Role::Interface;
    const KEYS: &'static [Key] = keys::KEYS;
    const ARGS: &'static [Key] = keys::ARGS;
    const CAPABILITIES: &'static [&'static str] = &["mac"];
    const LINK_KINDS: &'static [(&'static str, &'static str)] = &[("tun", "tun")];
    const READS_ARGS: bool = true;
    type Conf = Conf;

    fn add(call: &Add<Conf>, undo: &mut Undo) -> Result<AddResult> {
        let conf = &call.conf;
        let sandbox = Namespace::open(&call.netns)?;
        let mac = conf.interface.mac(&call.args)?;
        let bridge = bridge(conf, &sandbox)?;
        let tap = device::create(&sandbox, call, mac, bridge.as_ref())?;
        let link = &tap.link;
        let setup = InterfaceSetup { net: &call.net, conf: &conf.interface, sandbox: &sandbox, link };
        let leases = setup.lease(undo)?;
        // While the tap is open here, it has a carrier, so its IPv6 addresses are usable immediately.
        setup.configure(&leases)?;
        tap.keep(&sandbox, undo)?;
        Ok(attach::report(call, [attach::interface(&call.net, &sandbox, link)?], leases))
    }

    fn del(call: &Del) -> Result<()> {
        remove::with_leases(&call.net, Command::Del, |failures| {
            failures.note(remove::child_like(call, is_ours));
        })
    }

    fn check(call: &Check<Conf>) -> Result<()> {
        let sandbox = Namespace::open(&call.netns)?;
        let mtu = promised_mtu(&sandbox, call)?;
        let link = verify::container(&sandbox, call, Expected::kind(KIND).mtu(mtu))?;
        call.conf.verify(&link)?;
        if let Some(bridge) = bridge(&call.conf, &sandbox)?.filter(|bridge| link.master != Some(bridge.index))
        {
            return Err(verify::differs(&link, "bridge", &bridge.name, "missing or different"));
        }
        call.net.ask_ipam(Command::Check)
    }

    fn gc(call: &Gc) -> Result<()> {
        remove::stale_children(call, is_ours)
    }

    fn status(call: &Status<Conf>) -> Result<()> {
        Namespace::host()?.require_privileges()?;
        device::open().map_err(|e| e.with_code(Code::NotAvailable))?;
        call.net.ask_ipam(Command::Status)
    }

    fn serve_itself(arguments: &[OsString]) -> Option<ExitCode> {
        label::serve(arguments)
    }
}

/// Whether DEL may delete a link. A VPN's tun has the same kind, and a tap that is not persistent belongs to its program.
fn is_ours(link: &Link) -> bool {
    matches!(link.kind, Some(LinkKind::Tun(TunKind { tap: true, persistent: true, .. })))
}

/// The configured MTU. The reference ignores `mtu` together with `owner` and `group`, so its taps can have another one.
fn promised_mtu(sandbox: &Namespace, call: &Check<Conf>) -> Result<Option<u32>> {
    let link = sandbox.nl.link(&call.attachment.ifname)?;
    Ok(call.conf.mtu.filter(|_| link.is_some_and(|link| ownership::is_owned(&link))))
}

/// Finds the configured bridge in the container.
fn bridge(conf: &Conf, sandbox: &Namespace) -> Result<Option<Link>> {
    let Some(name) = &conf.bridge else { return Ok(None) };
    match sandbox.nl.link(name)? {
        Some(link) if link.is("bridge") => Ok(Some(link)),
        Some(_) => Err(Error::config(format!("bridge {name}: this link in {sandbox} is not a bridge"))),
        None => Err(Error::config(format!("bridge {name}: this link does not exist in {sandbox}"))
            .detail("the key names a bridge in the container, which must exist before ADD")),
    }
}
