//! macvlan: an interface with its own hardware address on a link of the host, as if connected to the same switch.

mod conf;
#[cfg(any(test, fuzzing))]
pub mod fuzz;

use std::path::Path;

use cni::{Add, AddResult, Check, Command, Del, Plugin, Result, Role, Status, Undo};
use conf::Conf;
use iface::attach::{self, Attach};
use iface::{announce, remove};
use netlink::{Link, Mac};

/// The plugin.
#[derive(Debug)]
pub struct Macvlan;

impl Plugin for Macvlan {
    const NAME: &'static str = "macvlan";
    const READS_ARGS: bool = true;
    const ROLE: Role = Role::Interface;
    type Conf = Conf;

    fn add(call: &Add<Conf>, undo: &mut Undo) -> Result<AddResult> {
        let conf = &call.conf;
        let mac = conf.stacked.interface.mac(&call.args)?;
        let stack = conf.stacked.find_master(call)?;
        stack.master.warn_if_down();
        let link = stack.create(call, conf.kind(), mac, undo)?;
        warn(&stack.master.link, mac, &link);

        let eth =
            Attach { net: &call.net, conf: &conf.stacked.interface, sandbox: &stack.sandbox, link: &link };
        let leases = eth.lease(undo)?;
        eth.configure(&leases)?;
        if !leases.ips.is_empty() {
            announce::addresses(&stack.sandbox, &link)?;
        }
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

    fn status(call: &Status<Conf>) -> Result<()> {
        call.conf.stacked.available()?;
        call.net.ask_ipam(Command::Status)
    }
}

/// Warns about settings that have no effect or may not work.
fn warn(master: &Link, requested: Option<Mac>, link: &Link) {
    if let (Some(requested), Some(mac)) =
        (requested.filter(|requested| link.mac != Some(*requested)), link.mac)
    {
        cni::warn(&format!(
            "the interface's MAC is {mac}, not {requested}: in mode passthru it is the master's"
        ));
    }
    // The name comes from the kernel, so it is not a path.
    if Path::new("/sys/class/net").join(&master.name).join("phy80211").exists() {
        cni::warn(&format!(
            "master {} is a wireless interface: access points drop frames from a second MAC",
            master.name
        ));
    }
}
