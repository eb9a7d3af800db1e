//! Leasing addresses, with the bridge as the gateway if configured.

use cni::{Add, AddResult, Error, Result, Undo};
use iface::Namespace;
use iface::attach::InterfaceSetup;

use crate::conf::Conf;
use crate::gateway;
use crate::port::Port;

/// Leases addresses, configures the container's interface, and returns the leases.
pub fn configure(
    call: &Add<Conf>,
    host: &Namespace,
    sandbox: &Namespace,
    port: &Port,
    undo: &mut Undo,
) -> Result<AddResult> {
    let conf = &call.conf;
    let Some(link) = &port.container else {
        return if call.net.ipam.is_some() { Err(nothing_to_address()) } else { Ok(AddResult::default()) };
    };
    let setup = InterfaceSetup { net: &call.net, conf: &conf.interface, sandbox, link };
    let mut leases = setup.lease_when(|| port.wait_until_up(host, sandbox), undo)?;
    gateway::complete(&mut leases, &call.prev_result, conf)?;
    if conf.container_down {
        setup.set_accept_ra()?;
    } else {
        setup.configure(&leases)?;
    }
    Ok(leases)
}

fn nothing_to_address() -> Error {
    Error::config("ipam: the container has no interface that could get an address").detail(
        "the host-side interface of prevResult became the bridge's port; remove ipam from the configuration",
    )
}
