//! What several scenarios ask for, and how they read the answers.

use std::fs;
use std::net::IpAddr;

use lab::{Lab, Netns, tcp_says};
use serde_json::{Value, json};

/// Where host-local keeps the leases of the network `net`.
pub const STORE: &str = "/var/lib/cni/networks/net";

/// A bridge with host-local, of both families, that is the containers' way out.
pub fn dual_stack() -> Value {
    json!({
        "bridge": "br0",
        "isDefaultGateway": true,
        "ipam": host_local(&[&["10.1.2.0/24"], &["fd00:1:2::/64"]]),
    })
}

/// host-local with range sets of whole subnets.
pub fn host_local(sets: &[&[&str]]) -> Value {
    let set = |subnets: &&[&str]| subnets.iter().map(|subnet| json!({"subnet": subnet})).collect::<Vec<_>>();
    json!({"type": "host-local", "ranges": sets.iter().map(set).collect::<Vec<_>>()})
}

/// The addresses of a result, in its order.
pub fn ips(result: &Value) -> Vec<&str> {
    let ips = result["ips"].as_array().map(Vec::as_slice).unwrap_or_default();
    ips.iter().map(|ip| ip["address"].as_str().unwrap()).collect()
}

/// The interface of a result that is in the container.
pub fn container_interface(result: &Value) -> &Value {
    let interfaces = result["interfaces"].as_array().unwrap();
    interfaces.iter().find(|one| one["sandbox"].as_str().is_some_and(|path| !path.is_empty())).unwrap()
}

/// The host's end of the container's veth, by the name that the result gives it.
pub fn host_end(result: &Value) -> &str {
    let mut names = result["interfaces"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap());
    names.rfind(|name| name.starts_with("veth")).unwrap()
}

/// The addresses that are leased on disk.
pub fn leases() -> Vec<String> {
    let entries =
        fs::read_dir(STORE).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap());
    let mut leases: Vec<_> = entries.filter(|name| name.parse::<IpAddr>().is_ok()).collect();
    leases.sort();
    leases
}

/// Under which address a server on another machine sees the container.
pub fn seen_as(pod: &Netns, server: &str) -> String {
    let answer = tcp_says(pod, server).expect("the way to the other machine is open");
    answer.split_once(' ').unwrap().1.to_owned()
}

/// Rules of a container that has vanished go by a DEL that knows no namespace, and another container's stay.
pub fn rules_go_without_a_namespace(plugin: &str, network: Value, rules: Value) {
    let shown = format!("{network} {rules}");
    let lab = Lab::new();
    let [stays, goes] = ["stays", "goes"].map(|id| lab.container(id));
    let call = lab.plugin(plugin).config(network).config(rules);
    call.clone().on(&stays).add().ok_result();
    let before = lab.host().ruleset();
    let call = call.on(&goes);
    call.add().ok_result();
    assert_ne!(lab.host().ruleset(), before, "{shown}");
    goes.vanish();
    call.without("CNI_NETNS").del().ok();
    assert_eq!(lab.host().ruleset(), before, "{shown}");
}
