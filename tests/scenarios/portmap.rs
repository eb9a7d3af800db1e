//! portmap: host ports that are forwarded to a container.

mod bad_host_ports;
mod foreign_results;
mod lifecycle;
mod localnet;
mod options;
mod other_programs;
mod reach;
mod sctp;
mod udp;
mod unrest;

use lab::{Call, Chain, Container, Echo, Lab, Netns, under_test};
use serde_json::{Value, json};

use crate::common::{dual_stack, host_local};

/// The addresses of the first container, of the host on the bridge, and of the host for the other machine.
pub const POD: [&str; 2] = ["10.1.2.2", "fd00:1:2::2"];
pub const GATEWAY: [&str; 2] = ["10.1.2.1", "fd00:1:2::1"];
pub const HOST: [&str; 2] = ["198.51.100.1", "2001:db8:51::1"];
pub const FAR: [&str; 2] = ["198.51.100.2", "2001:db8:51::2"];

/// An entry of `portMappings`.
pub fn port(protocol: &str, host: u16, container: u16) -> Value {
    json!({"hostPort": host, "containerPort": container, "protocol": protocol})
}

/// `tcp` 8080 of one of the host's addresses.
pub fn port_of(host_ip: &str) -> Value {
    json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": host_ip}])
}

pub fn web() -> Value {
    json!([port("tcp", 8080, 80)])
}

/// The keys that select a backend. Debian's reference has only one, and ignores them.
pub fn by(backend: &str) -> Value {
    json!({"backend": backend})
}

/// A network of bridge and portmap.
pub fn network(lab: &Lab, keys: &Value, mappings: Value) -> Chain {
    let mut bridge = dual_stack();
    bridge["type"] = json!("bridge");
    bridge["hairpinMode"] = json!(true);
    let mut portmap = keys.clone();
    portmap["type"] = json!("portmap");
    portmap["runtimeConfig"] = json!({"portMappings": mappings});
    lab.chain(json!({"cniVersion": "1.0.0", "name": "net", "plugins": [bridge, portmap]}))
}

/// Runs a scenario with each backend, each on a separate machine.
pub fn with_each_backend(scenario: impl Fn(&Lab, &Value)) {
    let backends: &[&str] = if under_test().reference { &["iptables"] } else { &["nftables", "iptables"] };
    for backend in backends {
        scenario(&Lab::new(), &by(backend));
    }
}

/// TCP servers at a port of the first container.
pub fn serve_tcp(pod: &Netns, port: u16) -> [Echo; 2] {
    POD.map(|ip| pod.serve_tcp(pod.name(), &at(ip, port)))
}

pub fn at(ip: &str, port: u16) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

/// The first container's answer, if it sees the client with an address.
pub fn pod_sees(client: &str) -> Option<String> {
    Some(format!("pod {client}"))
}

pub fn second_network(lab: &Lab, keys: &Value, mappings: Value) -> Chain {
    let mut portmap = keys.clone();
    portmap["type"] = json!("portmap");
    portmap["runtimeConfig"] = json!({"portMappings": mappings});
    let ipam = host_local(&[&["10.9.0.0/24"]]);
    let bridge = json!({"type": "bridge", "bridge": "br1", "isGateway": true, "ipam": ipam});
    lab.chain(json!({"cniVersion": "1.0.0", "name": "second", "plugins": [bridge, portmap]}))
}

/// Only portmap, after a plugin that gave the container addresses with a number.
pub fn portmap(lab: &Lab, pod: &Container, number: u8) -> Call {
    let interface = json!({"name": "eth0", "sandbox": pod.path()});
    let ips = [format!("10.1.2.{number}/24"), format!("fd00:1:2::{number}/64")];
    let ips = ips.map(|ip| json!({"address": ip, "interface": 0}));
    let prev = json!({"cniVersion": "1.0.0", "interfaces": [interface], "ips": ips});
    lab.plugin("portmap").config(json!({"prevResult": prev})).on(pod).config(mapped(web()))
}

pub fn mapped(mappings: Value) -> Value {
    json!({"runtimeConfig": {"portMappings": mappings}})
}
