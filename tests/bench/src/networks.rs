//! Networks of the scenarios, and preparations before them.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use lab::Lab;
use serde_json::{Value, json};

use crate::process::{How, Spent};
use crate::rounds::attach;
use crate::side::{Backend, Side};

/// The mapping used for traffic.
pub const HOST_PORT: u16 = 8080;
pub const CONTAINER_PORT: u16 = 80;

fn list(plugins: &[Value]) -> Value {
    json!({"cniVersion": "1.0.0", "name": "bench", "plugins": plugins})
}

pub fn loopback(_: Side, _: usize) -> Value {
    list(&[json!({"type": "loopback"})])
}

fn host_local() -> Value {
    json!({"type": "host-local", "ranges": [[{"subnet": "10.0.0.0/8"}]]})
}

/// Only the IPAM plugin.
pub fn store(_: Side, _: usize) -> Value {
    list(&[json!({"type": "host-local", "ipam": host_local()})])
}

pub fn bridged(_: Side, _: usize) -> Value {
    list(&[json!({"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "ipam": host_local()})])
}

/// flannel, which delegates to bridge. The packaged release of the original plugin knows no later version of the protocol.
pub fn by_flannel(_: Side, _: usize) -> Value {
    let mut list = list(&[json!({"type": "flannel", "delegate": {"isDefaultGateway": true}})]);
    list["cniVersion"] = json!("0.4.0");
    list
}

/// The file that flanneld writes.
pub fn with_flanneld(lab: &Lab, _: Side) -> Spent {
    lab.host().sh("mkdir -p /run/flannel; printf 'FLANNEL_%s\\n' NETWORK=10.0.0.0/8 SUBNET=10.0.0.1/8 MTU=1450 IPMASQ=true >/run/flannel/subnet.env");
    Spent::default()
}

/// sbr after bridge.
pub fn source_routed(side: Side, container: usize) -> Value {
    after_bridge(json!({"type": "sbr"}), side, container)
}

/// vrf after bridge.
pub fn in_vrf(side: Side, container: usize) -> Value {
    after_bridge(json!({"type": "vrf", "vrfname": "blue"}), side, container)
}

/// dnsname after bridge. The container's name is an argument (`rounds`).
pub fn named(side: Side, container: usize) -> Value {
    let aliases = json!({"bench": [format!("alias{container}")]});
    let dnsname = json!({"type": "dnsname", "domainName": "dns.test", "runtimeConfig": {"aliases": aliases}});
    after_bridge(dnsname, side, container)
}

fn after_bridge(plugin: Value, side: Side, container: usize) -> Value {
    let mut conflist = bridged(side, container);
    conflist["plugins"].as_array_mut().expect("a list").push(plugin);
    conflist
}

/// A veth pair, and the container's addresses behind its host end.
pub fn point_to_point(side: Side, _: usize) -> Value {
    let mut ptp = json!({"type": "ptp", "ipMasq": true, "ipam": host_local()});
    choose_masquerade(&mut ptp, side);
    list(&[ptp])
}

pub fn on_macvlan(_: Side, _: usize) -> Value {
    list(&[json!({"type": "macvlan", "master": "cable", "ipam": host_local()})])
}

/// Only the IPAM plugin dhcp, over an existing link.
pub fn dynamic(_: Side, _: usize) -> Value {
    list(&[json!({"type": "dhcp", "ipam": {"type": "dhcp"}})])
}

/// Only an IPAM plugin without state.
pub fn fixed(_: Side, container: usize) -> Value {
    let address = format!("{}/8", address(u32::try_from(container).expect("few containers")));
    list(&[json!({"type": "static", "ipam": {"type": "static", "addresses": [{"address": address}]}})])
}

pub fn on_ipvlan(_: Side, _: usize) -> Value {
    list(&[json!({"type": "ipvlan", "master": "cable", "ipam": host_local()})])
}

/// A master can have only one interface for each VLAN.
pub fn on_vlan(_: Side, container: usize) -> Value {
    list(&[json!({"type": "vlan", "master": "cable", "vlanId": 1 + container % 4094, "ipam": host_local()})])
}

pub fn on_dummy(_: Side, _: usize) -> Value {
    list(&[json!({"type": "dummy", "ipam": host_local()})])
}

pub fn on_tap(_: Side, _: usize) -> Value {
    list(&[json!({"type": "tap", "ipam": host_local()})])
}

pub fn of_host_device(_: Side, _: usize) -> Value {
    list(&[json!({"type": "host-device", "device": "cable", "ipam": host_local()})])
}

/// A link for macvlan, ipvlan, vlan and host-device.
pub fn with_master(lab: &Lab, _: Side) -> Spent {
    lab.host().sh("ip link add cable type veth peer name wire; ip link set cable up; ip link set wire up");
    Spent::default()
}

/// The usual chain of Kubernetes nodes: bridge, a sysctl, and two mapped ports for each container.
pub fn kubernetes(side: Side, container: usize) -> Value {
    let mut conflist = ports(side, container);
    let tuning = json!({"type": "tuning", "sysctl": {"net.core.somaxconn": "512"}});
    conflist["plugins"].as_array_mut().expect("a list").insert(1, tuning);
    conflist
}

/// A bridge whose containers have limits in both directions.
pub fn limited(side: Side, container: usize) -> Value {
    let mut conflist = bridged(side, container);
    let limits = json!({
        "type": "bandwidth", "ingressRate": 100_000_000, "ingressBurst": 8_000_000,
        "egressRate": 100_000_000, "egressBurst": 8_000_000,
    });
    conflist["plugins"].as_array_mut().expect("a list").push(limits);
    conflist
}

/// The same with both families.
pub fn dual_stack(side: Side, container: usize) -> Value {
    let mut conflist = kubernetes(side, container);
    let ranges = json!([[{"subnet": "10.0.0.0/8"}], [{"subnet": "fd00:1::/64"}]]);
    conflist["plugins"][0]["ipam"]["ranges"] = ranges;
    conflist
}

/// Bridge and portmap, with all of bridge's firewall rules.
pub fn ports(side: Side, container: usize) -> Value {
    let first = HOST_PORT + 2 * u16::try_from(container).expect("few containers");
    mapped(side, &[(first, CONTAINER_PORT), (first + 1, CONTAINER_PORT + 1)])
}

fn mapped(side: Side, ports: &[(u16, u16)]) -> Value {
    let ports: Vec<_> = ports
        .iter()
        .map(|(host, container)| json!({"hostPort": host, "containerPort": container, "protocol": "tcp"}))
        .collect();
    let mut bridge = json!({"type": "bridge", "bridge": "cni0", "isDefaultGateway": true,
        "ipMasq": true, "hairpinMode": true, "ipam": host_local()});
    let mut portmap = json!({"type": "portmap", "runtimeConfig": {"portMappings": ports}});
    choose_masquerade(&mut bridge, side);
    choose(&mut portmap, "backend", side);
    list(&[bridge, portmap])
}

/// The reference masquerades by iptables, its default. With `"ipMasqBackend": "nftables"`, each DEL of release 1.9.1
/// fails with iptables-nft 1.8.9, because it also deletes the rules of iptables.
fn choose_masquerade(plugin: &mut Value, side: Side) {
    if side.backend != Backend::Nftables {
        choose(plugin, "ipMasqBackend", side);
    }
}

/// Sets a plugin's backend, unless it is the default.
fn choose(plugin: &mut Value, key: &str, side: Side) {
    if let Some(backend) = side.backend.key() {
        plugin[key] = backend.into();
    }
}

/// Bridge, and firewall with its defaults. The reference has no nftables there.
pub fn passing(side: Side, _: usize) -> Value {
    let bridge = json!({"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "ipam": host_local()});
    let mut firewall = json!({"type": "firewall"});
    if side.backend == Backend::Iptables {
        firewall["backend"] = "iptables".into();
    }
    list(&[bridge, firewall])
}

/// Bridge and portmap with masquerade, and firewall.
pub fn with_all_rules(side: Side, container: usize) -> Value {
    let mut conflist = ports(side, container);
    conflist["plugins"].as_array_mut().expect("a list").push(json!({"type": "firewall"}));
    conflist
}

/// A host that drops forwarded packets.
pub fn with_policy_drop(lab: &Lab, _: Side) -> Spent {
    lab.host().sh("iptables -P FORWARD DROP; ip6tables -P FORWARD DROP");
    Spent::default()
}

/// The same as a Kubernetes node with 5 000 services: a chain of four rules for each.
pub fn with_kube_proxy(lab: &Lab, side: Side) -> Spent {
    lab.host().sh("chains() { seq -f KUBE-SVC-%06g 5000; }
        {
            echo '*nat'
            chains | sed 's/.*/:& - [0:0]/'
            echo '-A PREROUTING -j KUBE-SVC-000001'
            for host in 1 2 3 4; do chains | sed \"s/.*/-A & -s 192.0.2.$host -j RETURN/\"; done
            echo COMMIT
        } | iptables-restore --noflush");
    with_policy_drop(lab, side)
}

pub fn nothing(_: &Lab, _: Side) -> Spent {
    Spent::default()
}

/// host-local's directory of leases.
pub const STORE: &str = "/var/lib/cni/networks/bench";

/// The n-th address after the network's own and the gateway's.
pub fn address(n: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 2).to_bits() + n)
}

/// Leases the n-th address in the reference's format.
pub fn lease(n: u32, holder: &str) {
    fs::write(Path::new(STORE).join(address(n).to_string()), holder).expect("write a lease");
}

/// Leases of other containers. The last allocated address is their last one.
pub fn stocked<const LEASES: u32>(_: &Lab, _: Side) -> Spent {
    fs::create_dir_all(STORE).expect("create a store");
    (0..LEASES).for_each(|n| lease(n, &format!("other-{n}\r\neth0")));
    let last = Path::new(STORE).join("last_reserved_ip.0");
    fs::write(last, address(LEASES - 1).to_string()).expect("write the last address");
    Spent::default()
}

/// Containers with a hundred mapped ports each. The scenario uses other ports.
pub fn with_hundreds_of_mappings<const CONTAINERS: u16>(lab: &Lab, side: Side) -> Spent {
    let mut sum = Spent::default();
    for n in 0..CONTAINERS {
        let ports: Vec<_> = (1..=100).map(|port| (20_000 + 100 * n + port, port)).collect();
        let network = side.network(lab, &mapped(side, &ports));
        sum.then(attach(&network, &lab.container(&format!("crowd{n}")), How::Timed, None).0);
    }
    sum
}
