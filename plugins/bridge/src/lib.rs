//! A veth pair between container and host, the host's end a port of a bridge.

mod bridge;
mod conf;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod gateway;
mod port;
mod rules;
mod vlan;

use cni::{Add, AddResult, AsWritten, Check, Del, Error, Failures, Gc, Plugin, Repair, Result, Status, Undo};
use conf::Conf;
use firewall::{Owner, Removal};
use iface::{Namespace, announce, apply, remove, verify, veth};
use port::Port;

/// The plugin.
#[derive(Debug)]
pub struct Bridge;

impl Plugin for Bridge {
    const NAME: &'static str = "bridge";
    const READS_ARGS: bool = true;
    const REPAIRS: bool = true;
    type Raw = AsWritten;
    type Conf = Conf;

    fn add(call: &Add<Conf>, undo: &mut Undo) -> Result<AddResult> {
        let conf = &call.conf;
        let host = Namespace::host()?;
        let sandbox = Namespace::open(&call.netns)?;
        let mtu = conf.mtu.resolve(&host)?;
        let mac = conf.mac(&call.args)?;
        let adopted = port::of_chain(&host, call)?;
        if adopted.is_none() {
            veth::refuse_taken_name(&sandbox, &call.attachment)?;
        }

        // All that can be judged before is: the bridge stays, whatever comes of the rest.
        let bridge = bridge::ensure(&host, conf, mtu)?;
        let port = match adopted {
            Some(link) => port::adopt(&host, &bridge, link, call, &sandbox, undo)?,
            None => {
                let spec = veth::Spec { mtu, mac, master: Some(bridge.index) };
                port::create(&host, &sandbox, call, spec, undo)?
            }
        };
        port::configure(&host, &port.host, conf)?;

        let (mut result, position) = report(call, &host, &bridge, &sandbox, &port);
        let owner = Owner::new(&call.net.name, &call.attachment);
        if !port.adopted {
            let ends = (&result.interfaces[position - 1], &result.interfaces[position]);
            rules::check_sources(conf, &owner, ends, undo)?;
        }
        if let Some(ipam) = &call.net.ipam {
            let container = port.container.as_ref().ok_or_else(nothing_to_address)?;
            result.put_first(ipam.add(undo)?, position);
            gateway::complete(&mut result, position, conf)?;
            apply::addresses_and_routes(&sandbox, container, &result, position, conf.enable_dad)?;
            gateway::assign(&host, &bridge, &mut result, position, conf)?;
            conf.masquerade.install(&owner, rules::addresses(&result, position), undo)?;
        } else if let Some(container) = port.container.as_ref().filter(|_| !conf.container_down) {
            sandbox.nl.set_up(container)?;
        }
        if !conf.container_down {
            port.wait_until_up(&host, &sandbox)?;
        }
        if let Some(container) = port.container.as_ref().filter(|_| call.net.ipam.is_some()) {
            announce::forget(&host, &gateway::seen_through(&host, &bridge, conf)?, &result)?;
            announce::addresses(&sandbox, container)?;
        }
        bridge::warn_without_netfilter(&host, conf);
        if !call.net.dns.is_empty() {
            result.dns = call.net.dns.clone();
        }
        Ok(result)
    }

    fn del(call: &Del<AsWritten>) -> Result<()> {
        let mut failures = Failures::new();
        // Rules first, and closed last: so the kernel's grace periods for rules and links pass at the same time.
        let (removal, owner) = (Removal::start(), Owner::new(&call.net.name, &call.attachment));
        failures.note(removal.remove(&owner, &rules::KINDS));
        if let Some(host) = failures.note(Namespace::host()) {
            failures.note(port::release_adopted(&host, call));
            failures.note(remove::veth(&host, &call.net.name, &call.attachment, call.netns.as_ref()));
            failures.note(removal.remove_repaired(&owner));
            failures.note(vlan::remove_unused_gateway(&host, &call.conf));
        }
        // Last, so that nobody else gets the address while the container still answers to it.
        if let Some(ipam) = &call.net.ipam {
            failures.note(ipam.del());
        }
        failures.into_result()
    }

    fn check(call: &Check<Conf>) -> Result<()> {
        let host = Namespace::host()?;
        let sandbox = Namespace::open(&call.netns)?;
        let bridge = bridge::verify(&host, &call.conf, &call.prev_result)?;
        if let Some(container) = port::verify(&host, &bridge, &sandbox, call)? {
            let position = verify::position(&call.prev_result, &call.attachment)?;
            verify::addresses_and_routes(&sandbox, &container, &call.prev_result)?;
            rules::verify(call, position)?;
        }
        match &call.net.ipam {
            Some(ipam) => ipam.check(),
            None => Ok(()),
        }
    }

    fn repair(call: &Repair<Conf>) -> Result<bool> {
        verify::while_attached(&call.check, |undo| rules::repair(&call.check, undo))
    }

    fn gc(call: &Gc<AsWritten>) -> Result<()> {
        let mut failures = Failures::new();
        let removal = Removal::start();
        failures.note(removal.retain(&call.net.name, &rules::KINDS, &call.valid));
        if let Some(host) = failures.note(Namespace::host()) {
            failures.note(remove::stale_veths(&host, call));
            failures.note(vlan::remove_unused_gateway(&host, &call.conf));
        }
        if let Some(ipam) = &call.net.ipam {
            failures.note(ipam.gc());
        }
        failures.into_result()
    }

    fn status(call: &Status<Conf>) -> Result<()> {
        Namespace::host()?.permits_attachments()?;
        rules::available(call)?;
        match &call.net.ipam {
            Some(ipam) => ipam.status(),
            None => Ok(()),
        }
    }
}

/// What the plugins before this one made, the bridge, the port, and the container's end, with the position of the latter.
fn report(
    call: &Add<Conf>,
    host: &Namespace,
    bridge: &netlink::Link,
    sandbox: &Namespace,
    port: &Port,
) -> (AddResult, usize) {
    let mut result = call.net.prev_result.clone().unwrap_or_default();
    result.forget_unlisted_interfaces();
    result.interfaces.push(host.report(bridge));
    if port.adopted {
        let listed = result.container_interface(&call.attachment.ifname);
        let unlisted = port.container.as_ref().filter(|_| listed.is_none());
        result.interfaces.extend(unlisted.map(|link| sandbox.report(link)));
        let position = listed.unwrap_or(result.interfaces.len() - 1);
        return (result, position);
    }
    result.interfaces.push(host.report(&port.host));
    result.interfaces.extend(port.container.as_ref().map(|link| sandbox.report(link)));
    let position = result.interfaces.len() - 1;
    (result, position)
}

fn nothing_to_address() -> Error {
    Error::config("ipam: the container has no interface that could get an address")
        .detail("the host-side interface of prevResult became the bridge's port; its container's side is not an interface")
}
