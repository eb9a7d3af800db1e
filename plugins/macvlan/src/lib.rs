//! macvlan: an interface with its own hardware address on a link of the host, as if connected to the same switch.

mod conf;
#[cfg(any(test, fuzzing))]
pub mod fuzz;

use std::path::Path;

use cni::{Add, AddResult, Check, Code, Command, Del, Plugin, Result, ResultExt, Role, Status, Undo};
use conf::Conf;
use iface::attach::{self, Attach};
use iface::child::{self, Spec};
use iface::{Namespace, announce, remove, verify};
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
        let (host, sandbox) = (Namespace::host()?, Namespace::open(&call.netns)?);
        let mac = conf.interface.mac(&call.args)?;
        let parent = conf.parent.find(&host, &sandbox, &call.prev_result)?;
        parent.warn_if_down();
        let spec = Spec { kind: conf.kind(), parent: Some(&parent), mac, mtu: parent.mtu(conf.mtu)? };
        let link = child::create(&sandbox, call, &spec, undo)?;
        warn(&parent.link, mac, &link);

        let eth = Attach { net: &call.net, conf: &conf.interface, sandbox: &sandbox, link: &link };
        let leases = eth.lease(undo)?;
        eth.configure(&leases)?;
        if !leases.ips.is_empty() {
            announce::addresses(&sandbox, &link)?;
        }
        Ok(attach::report(call, [attach::interface(&call.net, &sandbox, &link)?], leases))
    }

    fn del(call: &Del) -> Result<()> {
        remove::with_leases(&call.net, Command::Del, |failures| {
            failures.note(remove::child(call, Self::NAME));
        })
    }

    fn check(call: &Check<Conf>) -> Result<()> {
        let (host, sandbox) = (Namespace::host()?, Namespace::open(&call.netns)?);
        let parent = call.conf.parent.verify(&host, &sandbox, &call.attachment)?;
        let link = verify::child(&sandbox, call, Self::NAME, call.conf.mtu, &parent)?;
        call.conf.verify(&link)?;
        call.net.ask_ipam(Command::Check)
    }

    fn status(call: &Status<Conf>) -> Result<()> {
        let host = Namespace::host()?;
        host.permits_attachments()?;
        call.conf.parent.find_on_host(&host).code(Code::NotAvailable)?;
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
