//! firewall: allows forwarded traffic to and from a container, and isolates it from others.

mod bad_input;
mod beside;
mod isolation;
mod lifecycle;
mod passage;

use lab::{Chain, Container, Lab};
use serde_json::{Value, json};

use crate::common::{host_local, ips};

/// The addresses of the other machine.
const FAR: [&str; 2] = ["198.51.100.2", "2001:db8:51::2"];
/// The host's addresses for the other machine.
const HOST: [&str; 2] = ["198.51.100.1", "2001:db8:51::1"];

/// A host that drops all forwarded packets which no rule accepts.
const POLICY_DROP: &str = "iptables -P FORWARD DROP; ip6tables -P FORWARD DROP";
const POLICY_DROP_LEGACY: &str = "iptables-legacy -P FORWARD DROP; ip6tables-legacy -P FORWARD DROP";

/// A network with a separate bridge, subnets of both families, and host port 8080.
fn network(lab: &Lab, number: u8, keys: &Value) -> Chain {
    lab.chain(list(number, keys))
}

/// Its configuration.
fn list(number: u8, keys: &Value) -> Value {
    let mut firewall = keys.clone();
    firewall["type"] = json!("firewall");
    let (v4, v6) = (format!("10.1.{number}.0/24"), format!("fd00:1:{number}::/64"));
    let bridge = json!({
        "type": "bridge", "bridge": format!("br{number}"), "isDefaultGateway": true, "hairpinMode": true,
        "ipam": host_local(&[&[v4.as_str()], &[v6.as_str()]]),
    });
    let ports = json!([{"hostPort": 8000 + u16::from(number), "containerPort": 80, "protocol": "tcp"}]);
    let portmap = json!({"type": "portmap", "runtimeConfig": {"portMappings": ports}});
    let name = format!("net{number}");
    json!({"cniVersion": "1.0.0", "name": name, "plugins": [bridge, portmap, firewall]})
}

/// Attaches a container, and returns its addresses.
fn attach(network: &Chain, pod: &Container) -> (Value, [String; 2]) {
    let result = network.add(pod, "eth0").ok_result();
    let bare = |n: usize| ips(&result)[n].split('/').next().unwrap().to_owned();
    let addresses = [bare(0), bare(1)];
    (result, addresses)
}

fn at(ip: &str, port: u16) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}
