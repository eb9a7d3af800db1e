//! macvlan: an interface on a master link. On the master's network, the container looks like a separate machine with its
//! own MAC address (in mode passthru: the master's). The host and the container do not reach each other through the
//! master.

mod conf;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod keys;

use std::path::Path;

use cni::schema::Key;
use cni::{Add, AddResult, Check, Command, Del, Gc, Plugin, Result, Role, Status, Undo};
use conf::Conf;
use iface::attach::{self, InterfaceSetup};
use iface::parent::Parent;
use iface::{announce, ownership, remove};
use netlink::{Link, LinkKind, Mac};

/// The plugin `macvlan`.
#[derive(Debug)]
pub struct Macvlan;

impl Plugin for Macvlan {
    const NAME: &'static str = "macvlan";
    const ABOUT: &'static str = "\
        Creates a macvlan interface in the container: a MAC address of its own, on an interface of the \
        host.";
    const ROLE: Role = Role::Interface;
    const KEYS: &'static [Key] = keys::KEYS;
    const ARGS: &'static [Key] = keys::ARGS;
    const CAPABILITIES: &'static [&'static str] = &["mac"];
    const LINK_KINDS: &'static [(&'static str, &'static str)] = &[("macvlan", "macvlan")];
    const READS_ARGS: bool = true;
    type Conf = Conf;

    fn add(call: &Add<Conf>, undo: &mut Undo) -> Result<AddResult> {
        let conf = &call.conf;
        let mac = conf.stacked.interface.mac(&call.args)?;
        let stack = conf.stacked.find_parent(call)?;
        stack.parent.warn_if_down();
        let link = stack.create(call, conf.kind(), mac, undo)?;
        warn(&stack.parent, mac, &link);

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
            // The reference creates no macvtap, so one that Ferrule has not created is another program's.
            let is_own = |link: &Link| match link.kind {
                Some(LinkKind::Macvlan { tap, .. }) => !tap || ownership::is_of(&call.net.name, link),
                _ => false,
            };
            failures.note(remove::child_like(call, is_own).map(drop));
        })
    }

    fn check(call: &Check<Conf>) -> Result<()> {
        let link = call.conf.stacked.verify(call, call.conf.kind().name())?;
        call.conf.verify(&link)?;
        call.net.ask_ipam(Command::Check)
    }

    fn gc(call: &Gc) -> Result<()> {
        remove::stale_children(call, |link| matches!(link.kind, Some(LinkKind::Macvlan { .. })))
    }

    fn status(call: &Status<Conf>) -> Result<()> {
        // macvlan or macvtap. Their modules have the same names.
        let kind = call.conf.kind();
        call.conf.stacked.available(&[(kind.name(), kind.name())])?;
        call.net.ask_ipam(Command::Status)
    }
}

/// Warns if the requested MAC has no effect, or if the master is a wireless interface.
fn warn(master: &Parent, requested: Option<Mac>, link: &Link) {
    if let (Some(requested), Some(mac)) =
        (requested.filter(|requested| link.mac != Some(*requested)), link.mac)
    {
        cni::warn(&format!(
            "the interface's MAC is {mac}, not {requested}: in mode passthru it is the master's"
        ));
    }
    let name = &master.link.name;
    // The kernel refuses link names that contain a slash, or are "." or "..". So this path stays in /sys/class/net.
    let is_wireless = || Path::new("/sys/class/net").join(name).join("phy80211").exists();
    // sysfs normally shows the links of the plugin's own namespace only.
    if !master.in_container && link.mac != master.link.mac && is_wireless() {
        cni::warn(&format!(
            "master {name} is a wireless interface: access points drop frames from a second MAC"
        ));
    }
}
