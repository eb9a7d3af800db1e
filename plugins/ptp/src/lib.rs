//! ptp: a veth pair between container and host, over which the host routes, without a bridge or a shared Ethernet.

mod conf;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod keys;
mod proxy_arp;
mod routes;

use cni::schema::Key;
use cni::{Add, AddResult, Check, Command, Del, Gc, Plugin, Repair, Result, Role, Status, Undo};
use conf::Conf;
use iface::attach::{self, InterfaceSetup};
use iface::verify::{self, Expected};
use iface::{Namespace, creation, enable_ipv6_of_new, forwarding, host_end, remove, veth};
use netfilter::{Kind, Masquerade, Owner, Removal};

/// The plugin.
#[derive(Debug)]
pub struct Ptp;

/// Kinds of rules that ADD may install.
const KINDS: [Kind; 1] = [Masquerade::KIND];

impl Plugin for Ptp {
    const NAME: &'static str = "ptp";
    const ABOUT: &'static str = "\
        Connects the container with the host by a veth pair, without a bridge. The host routes packets \
        to the container.";
    const ROLE: Role = Role::Interface;
    const KEYS: &'static [Key] = keys::KEYS;
    const ARGS: &'static [Key] = keys::ARGS;
    const CAPABILITIES: &'static [&'static str] = &["mac"];
    const LINK_KINDS: &'static [(&'static str, &'static str)] = &[("veth", "veth")];
    const REPAIRS: bool = true;
    type Conf = Conf;

    fn add(call: &Add<Conf>, undo: &mut Undo) -> Result<AddResult> {
        let (net, conf, at) = (&call.net, &call.conf, &call.attachment);
        let host = Namespace::host()?;
        let sandbox = Namespace::open(&call.netns)?;
        creation::refuse_taken_name(&sandbox, at)?;
        let host_interface = conf.host_interface.as_ref();
        veth::refuse_taken_host_interface(&host, host_interface)?;
        let (mtu, mac) = (conf.mtu.resolve(&host)?, conf.interface.mac(&call.args)?);
        let spec = veth::Spec { mtu, mac, master: None, host_interface };
        let pair = veth::create(&host, &sandbox, &net.name, at, spec, undo)?;

        let setup = InterfaceSetup { net, conf: &conf.interface, sandbox: &sandbox, link: &pair.container };
        let leases = setup.lease(undo)?;
        let paths = routes::paths(&leases)?;
        routes::prepare(&host, &pair.host)?;
        if conf.proxy_arp {
            proxy_arp::enable(&host, &pair.host)?;
        }
        setup.set_up(&leases, false)?;
        routes::in_container(&sandbox, &pair.container, &paths, &leases)?;
        setup.add_routes(&leases)?;
        let addresses: Vec<_> = leases.addresses().collect();
        enable_ipv6_of_new(&host, &pair.host, &addresses)?;
        routes::in_host(&host, &pair.host, &paths)?;
        forwarding::enable(&host, &addresses, Some(&pair.host))?;

        let made = [host.to_interface(&pair.host), attach::interface(net, &sandbox, &pair.container)?];
        let result = attach::report(call, made, leases);
        conf.masquerade.install(&Owner::new(&net.name, at), attach::addresses(net, at, &result), undo)?;
        pair.wait_until_up(&host, &sandbox)?;
        Ok(result)
    }

    fn del(call: &Del) -> Result<()> {
        let owner = Owner::new(&call.net.name, &call.attachment);
        remove::with_leases(&call.net, Command::Del, |failures| {
            // Delete rules before the link, and close the sockets after it: the kernel's grace periods for both then overlap.
            let removal = Removal::start();
            failures.note(removal.remove(&owner, &KINDS));
            if let Some(host) = failures.note(Namespace::host()) {
                failures.note(remove::veth(&host, call, |end| Ok(end.master.is_none())));
                failures.note(removal.remove_repaired(&owner));
            }
        })
    }

    fn check(call: &Check<Conf>) -> Result<()> {
        let host = Namespace::host()?;
        let sandbox = Namespace::open(&call.netns)?;
        let listed = verify::listed(&call.prev_result, &call.attachment)?;
        let expected = Expected::kind("veth").mtu(call.conf.mtu.expected(listed));
        let container = verify::container(&sandbox, call, expected)?;
        let end = host_end::find(&host, &sandbox, &container)?;
        let end = end.ok_or_else(|| verify::missing("the host's end of the veth pair", &container))?;
        if let Some(name) = &call.conf.host_interface {
            verify::same(&end, "name", name.as_str(), end.name.as_str())?;
        }
        routes::verify(&host, &end, &container, &call.prev_result)?;
        if call.conf.proxy_arp {
            proxy_arp::verify(&host, &end)?;
        }
        let owner = Owner::new(&call.net.name, &call.attachment);
        let addresses = attach::addresses(&call.net, &call.attachment, &call.prev_result);
        call.conf.masquerade.check(&owner, addresses)?;
        call.net.ask_ipam(Command::Check)
    }

    fn repair(calls: &[Repair<Conf>]) -> Vec<Result<bool>> {
        let expected = |call: &Repair<Conf>| {
            let Check { net, attachment, prev_result, conf, .. } = &call.check;
            let addresses = attach::addresses(net, attachment, prev_result);
            conf.masquerade.expected(&Owner::new(&net.name, attachment), addresses)
        };
        netfilter::repair(calls, |call| Ok(expected(call).into_iter().collect()), verify::is_attached)
    }

    fn gc(call: &Gc) -> Result<()> {
        let removal = Removal::start();
        remove::with_leases(&call.net, Command::Gc, |failures| {
            failures.note(removal.collect(&call.net.name, &KINDS, &call.scope));
            if let Some(host) = failures.note(Namespace::host()) {
                failures.note(remove::stale_veths(&host, call));
            }
        })
    }

    fn status(call: &Status<Conf>) -> Result<()> {
        Namespace::host()?.require_privileges()?;
        call.conf.masquerade.check_available()?;
        call.net.ask_ipam(Command::Status)
    }
}
