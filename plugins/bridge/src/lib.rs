//! bridge: connects a container to a bridge of the host through a veth pair. The host's end of the pair is a port of the
//! bridge.

mod bridge;
mod conf;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod gateway;
mod keys;
mod lease;
mod port;
mod rules;
mod vlan;

use cni::schema::Key;
use cni::{Add, AddResult, Check, Command, Del, Gc, Plugin, Repair, Result, Role, Status, Undo};
use conf::Conf;
pub use gateway::conflict_remedy;
use iface::{Namespace, announce, attach, creation, remove, verify, veth};
use netfilter::{Owner, Removal};

#[derive(Debug)]
pub struct Bridge;

impl Plugin for Bridge {
    const NAME: &'static str = "bridge";
    const ABOUT: &'static str = "Attaches the container to a bridge of the host with a veth pair.";
    const ROLE: Role = Role::Interface;
    const KEYS: &'static [Key] = keys::KEYS;
    const ARGS: &'static [Key] = keys::ARGS;
    const CAPABILITIES: &'static [&'static str] = &["mac"];
    const LINK_KINDS: &'static [(&'static str, &'static str)] = &[("bridge", "bridge"), ("veth", "veth")];
    const READS_ARGS: bool = true;
    const REPAIRS: bool = true;
    type Conf = Conf;

    fn add(call: &Add<Conf>, undo: &mut Undo) -> Result<AddResult> {
        let conf = &call.conf;
        let host = Namespace::host()?;
        let sandbox = Namespace::open(&call.netns)?;
        let mtu = conf.mtu.resolve(&host)?;
        let mac = conf.interface.mac(&call.args)?;
        // An earlier plugin of the chain may have created the link on the host. bridge then makes that link a port of
        // the bridge. Otherwise, bridge creates a veth pair.
        let earlier_link = port::find_link_of_earlier_plugin(&host, call)?;
        if earlier_link.is_some() {
            rules::refuse_spoof_check(conf)?;
        } else {
            creation::refuse_taken_name(&sandbox, &call.attachment)?;
            veth::refuse_taken_host_interface(&host, conf.host_interface.as_ref())?;
        }

        // `ensure` may create the bridge, and a failed ADD does not delete it. Do all validation above this line.
        let bridge = bridge::ensure(&host, conf, mtu)?;
        vlan::undo_gateway(&host, conf, undo);
        let port = match earlier_link {
            Some(link) => port::adopt(&host, &bridge, link, call, &sandbox, undo)?,
            None => {
                let host_interface = conf.host_interface.as_ref();
                let spec = veth::Spec { mtu, mac, master: Some(bridge.index), host_interface };
                port::create(&host, &sandbox, call, spec, undo)?
            }
        };
        port::configure(&host, &port.host, conf)?;

        let owner = Owner::new(&call.net.name, &call.attachment);
        rules::install_spoof_check(conf, &owner, &port, undo)?;
        let leases = lease::configure(call, &host, &sandbox, &port, undo)?;
        let vlan_gateway = gateway::assign(&host, &bridge, &leases, conf)?;
        let port_interfaces = port.new_interfaces(&host, &sandbox, call)?;
        let interfaces = [host.to_interface(&bridge)].into_iter().chain(port_interfaces);
        let gateway_interface = vlan_gateway.as_ref().map(|link| host.to_interface(link));
        let result = attach::report(call, interfaces.chain(gateway_interface), leases);

        conf.masquerade.install(&owner, attach::addresses(&call.net, &call.attachment, &result), undo)?;
        // Not earlier, because an ADD that fails does not restore it.
        for link in [&bridge].into_iter().chain(&vlan_gateway).chain(port.adopted_of_chain()) {
            bridge::ignore_router_advertisements(&host, link)?;
        }
        if !conf.container_down {
            port.wait_until_up(&host, &sandbox)?;
        }
        // Without `ipam`, this plugin has assigned no address to announce.
        if let Some(container) = port.container.as_ref().filter(|_| call.net.ipam.is_some()) {
            announce::forget_neighbours(&host, &gateway::gateway_link(&host, &bridge, conf)?, &result)?;
            announce::addresses(&sandbox, container)?;
        }
        bridge::warn_without_br_netfilter(&host, conf);
        Ok(result)
    }

    fn del(call: &Del) -> Result<()> {
        let owner = Owner::new(&call.net.name, &call.attachment);
        remove::with_leases(&call.net, Command::Del, |failures| {
            // Delete the rules before the link. The kernel waits for an RCU grace period when it deletes the link, and
            // when `removal` closes its sockets at the end of this block. In this order, the two waits overlap.
            let removal = Removal::start();
            failures.note(removal.remove(&owner, &rules::KINDS));
            if let Some(host) = failures.note(Namespace::host()) {
                failures.note(port::release_adopted(&host, call));
                failures.note(remove::veth(&host, call, |end| port::is_of_bridge(&host, end, &call.conf)));
                // A concurrent `cnitool repair` may have installed the rules again before the link was deleted.
                failures.note(removal.remove_repaired(&owner));
                failures.note(vlan::remove_unused_gateways(&host, call));
            }
        })
    }

    fn check(call: &Check<Conf>) -> Result<()> {
        let host = Namespace::host()?;
        let sandbox = Namespace::open(&call.netns)?;
        let bridge = bridge::verify(&host, &call.conf, &call.prev_result)?;
        if let Some(container) = port::verify(&host, &bridge, &sandbox, call)? {
            verify::addresses_and_routes(&sandbox, &container, call)?;
            gateway::verify(&host, &bridge, call)?;
            rules::verify(call)?;
        }
        call.net.ask_ipam(Command::Check)
    }

    fn repair(calls: &[Repair<Conf>]) -> Vec<Result<bool>> {
        netfilter::repair(calls, |call| Ok(rules::expected(&call.check)), verify::is_attached)
    }

    fn gc(call: &Gc) -> Result<()> {
        let removal = Removal::start();
        remove::with_leases(&call.net, Command::Gc, |failures| {
            failures.note(removal.collect(&call.net.name, &rules::KINDS, &call.scope));
            if let Some(host) = failures.note(Namespace::host()) {
                failures.note(remove::stale_veths(&host, call));
                if !call.scope.is_dry() {
                    failures.note(vlan::collect_gateways(&host, call));
                }
            }
        })
    }

    fn status(call: &Status<Conf>) -> Result<()> {
        Namespace::host()?.require_privileges()?;
        rules::check_available(call)?;
        call.net.ask_ipam(Command::Status)
    }
}
