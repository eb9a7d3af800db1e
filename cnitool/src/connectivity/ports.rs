//! Host ports: connections from the host, from the other container, and from another machine. That machine is a third
//! namespace, which ptp attaches with addresses for documentation (RFC 5737, RFC 3849).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use netns::NetNs;
use runtime::Network;
use serde_json::json;

use super::pods::{Made, Pod, SERVER, accept};
use super::{Outcome, Row, Test};
use crate::live::Live;

const PROMISE: &str = "host port";
const TIMEOUT: Duration = Duration::from_secs(4);

/// A free port of the host, if the network forwards ports.
pub fn free(network: &Network) -> Option<u16> {
    network.capabilities().contains("portMappings").then_some(())?;
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    Some(listener.local_addr().ok()?.port())
}

/// Checks that the port is forwarded to the container, over each address family of the container.
pub fn host_port(test: &Test<'_>, a: &Pod, b: &Pod, rows: &mut Vec<Row>) {
    let Some(port) = a.port else { return };
    let host = NetNs::current().ok();
    // Choose the host's address before the other machine is attached: its gateway is an address of the host, too.
    let addresses = [true, false].map(|is_v4| host_address(is_v4, a).filter(|_| a.address(is_v4).is_some()));
    let machine = machine(test, rows);
    for address in addresses.into_iter().flatten() {
        let (is_v4, to) = (address.is_ipv4(), SocketAddr::new(address, port));
        let outside = machine.as_ref().filter(|machine| machine.address(is_v4).is_some());
        let clients = [
            ("the host", host.as_ref()),
            ("container b", b.address(is_v4).is_some().then_some(&b.netns)),
            ("another machine", outside.map(|machine| &machine.netns)),
        ];
        let clients = clients.into_iter().filter_map(|(name, from)| Some((name, from?)));
        for (name, from) in clients.take_while(|_| !test.is_stopped()) {
            let outcome = match connects(a, from, to) {
                Ok(()) => Outcome::Passed(String::new()),
                Err(e) => Outcome::failed(
                    e.to_string(),
                    format!(
                        "run `cnitool repair {}` if rules were flushed, and `cnitool doctor` for firewalls that drop",
                        test.network.name
                    ),
                ),
            };
            rows.push(Row::new(PROMISE, name, address.to_string(), outcome));
        }
    }
    rows.extend(machine.and_then(|machine| machine.remove(test)));
}

/// Whether a connection from a namespace reaches the server in the container.
fn connects(server: &Pod, from: &NetNs, to: SocketAddr) -> io::Result<()> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let listen = || TcpListener::bind((any, SERVER));
    let listener = server.netns.enter(listen).map_err(io::Error::other)??;
    let connect = || TcpStream::connect_timeout(&to, TIMEOUT);
    let _client = from.enter(connect).map_err(io::Error::other)??;
    accept(&listener).map(drop)
}

/// An address of the host that is not the network's own gateway. None: the host has no other address.
fn host_address(is_v4: bool, a: &Pod) -> Option<IpAddr> {
    let live = Live::host().ok()?;
    let is_usable = |ip: &IpAddr| {
        let is_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        ip.is_ipv4() == is_v4 && !ip.is_loopback() && !is_local
    };
    let gateways: Vec<IpAddr> = a.result.ips.iter().filter_map(|ip| ip.gateway).collect();
    let own = || live.addresses.iter().map(|address| address.net.ip()).filter(is_usable);
    own().find(|ip| !gateways.contains(ip)).or_else(|| own().next())
}

/// Another machine. None if ptp is not installed or the host does not forward packets yet: the test changes no
/// setting.
fn machine(test: &Test<'_>, rows: &mut Vec<Row>) -> Option<Pod> {
    let mut skip = |why: String| rows.push(Row::skipped(PROMISE, "another machine", "", why));
    let forwards = |key: &str| std::fs::read_to_string(key).is_ok_and(|value| value.trim() != "0");
    if !forwards("/proc/sys/net/ipv4/ip_forward") {
        skip("the host does not forward IPv4".to_owned());
        return None;
    }
    let mut addresses = vec![json!({"address": "192.0.2.2/24", "gateway": "192.0.2.1"})];
    let mut routes = vec![json!({"dst": "0.0.0.0/0"})];
    if forwards("/proc/sys/net/ipv6/conf/all/forwarding") {
        addresses.push(json!({"address": "2001:db8:c0de::2/64", "gateway": "2001:db8:c0de::1"}));
        routes.push(json!({"dst": "::/0"}));
    }
    let ipam = json!({"type": "static", "addresses": addresses, "routes": routes});
    let network =
        json!({"cniVersion": "1.0.0", "name": "cnitool-outside", "plugins": [{"type": "ptp", "ipam": ipam}]});
    let network = Network::from_bytes(network.to_string().as_bytes()).ok()?;
    match Pod::attach_to(&network, test, "outside", None) {
        Ok(Made::Pod(machine)) => Some(*machine),
        Ok(Made::Failed(Row { outcome: Outcome::Failed { cause, .. }, .. })) => {
            skip(cause);
            None
        }
        _ => None,
    }
}
