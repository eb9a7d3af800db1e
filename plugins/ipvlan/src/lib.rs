//! ipvlan: an interface with the hardware address of a link of the host, and its own IP addresses.

mod conf;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod inherited;

use cni::{Add, AddResult, Check, Code, Command, Del, Plugin, Result, ResultExt, Role, Status, Undo};
use conf::Conf;
use iface::attach::{self, Attach};
use iface::child::{self, Spec};
use iface::{Namespace, remove, verify};

/// The plugin.
#[derive(Debug)]
pub struct Ipvlan;

impl Plugin for Ipvlan {
    const NAME: &'static str = "ipvlan";
    const ROLE: Role = Role::Interface;
    type Conf = Conf;

    fn add(call: &Add<Conf>, undo: &mut Undo) -> Result<AddResult> {
        let conf = &call.conf;
        let (host, sandbox) = (Namespace::host()?, Namespace::open(&call.netns)?);
        if let Some(mac) = conf.interface.mac(&call.args)? {
            cni::warn(&format!("the MAC {mac} is not set: an ipvlan has the MAC of its master"));
        }
        let parent = conf.parent.find(&host, &sandbox, &call.prev_result)?;
        parent.warn_if_down();
        let spec = Spec { kind: conf.kind(), parent: Some(&parent), mac: None, mtu: parent.mtu(conf.mtu)? };
        let link = child::create(&sandbox, call, &spec, undo)?;

        let eth = Attach { net: &call.net, conf: &conf.interface, sandbox: &sandbox, link: &link };
        let inherited = inherited::leases(call);
        let (leases, call) = match &inherited {
            Some((leases, rest)) => (leases.clone(), rest),
            None => (eth.lease(undo)?, call),
        };
        // The kernel announces the addresses when the link is set up. Setting the MAC is not possible.
        eth.configure(&leases)?;
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
