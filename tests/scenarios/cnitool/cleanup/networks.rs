//! Networks with all kinds of things that plugins leave on a host, for the scenarios of GC.

use lab::{Feature, Lab, skip};
use serde_json::{Value, json};

use crate::common::{cable, host_local, ports};
use crate::flannel::{flanneld_says, subnet_env_in};

/// dnsname's files. The directories in /run/containers/cni/dnsname are symbolic links to these, which `grep -r` does not follow.
pub const NAMES: &str = "/run/ferrule-dnsname";

/// Whether dnsmasq runs for the network `named`.
pub fn has_name_server(lab: &Lab) -> bool {
    !lab.host().processes("dnsname/named/dnsmasq.conf").is_empty()
}

/// A cache that cnitool does not know, as that of another runtime.
pub const ELSEWHERE: &str = "--cache-dir /run/lab/elsewhere";

pub struct Network {
    pub name: &'static str,
    plugins: Value,
    /// Its device, address or VLAN cannot be shared.
    pub is_of_one_container: bool,
}

impl Network {
    fn new(name: &'static str, plugins: Value) -> Self {
        Self { name, plugins, is_of_one_container: false }
    }

    fn of_one_container(name: &'static str, plugins: Value) -> Self {
        Self { name, plugins, is_of_one_container: true }
    }

    pub fn configure(&self, lab: &Lab, version: &str) {
        let conf = json!({"cniVersion": version, "name": self.name, "plugins": self.plugins});
        lab.configure(&format!("10-{}.conflist", self.name), &conf);
    }

    /// The options of cnitool for a host port, if the network has portmap, and for a name, if it has dnsname.
    pub fn publish(&self, port: usize) -> String {
        let plugins = self.plugins.to_string();
        if plugins.contains("portMappings") {
            format!("-p {port}:80")
        } else if plugins.contains("dnsname") {
            format!("--args IgnoreUnknown=1;K8S_POD_NAME=name{port}")
        } else {
            String::new()
        }
    }
}

/// The second number of all addresses. GC keeps a lease while any namespace of the machine has its address, so concurrent tests have different
/// addresses.
#[derive(Clone, Copy)]
pub struct Subnets(pub u8);

impl Subnets {
    fn pool(self, net: u8) -> Value {
        host_local(&[&[&format!("10.{}.{net}.0/24", self.0)]])
    }

    fn both_families(self, net: u8) -> Value {
        host_local(&[&[&format!("10.{}.{net}.0/24", self.0)], &[&format!("fd00:{}:{net}::/64", self.0)]])
    }

    fn bridge(self, name: &str, net: u8) -> Value {
        json!({"type": "bridge", "bridge": name, "isGateway": true, "ipMasq": true, "ipam": self.pool(net)})
    }

    fn fixed(self, net: u8) -> Value {
        json!({"type": "static", "addresses": [{"address": format!("10.{}.{net}.9/24", self.0)}]})
    }
}

/// One network for each kind of thing, with what this kernel has. The host has a bridge br0, as that of
/// [`lab::dhcp::DhcpNetwork`].
pub fn networks(lab: &Lab, subnets: Subnets) -> Vec<Network> {
    flanneld_says(&subnet_env_in(subnets.0, true));
    cable(lab);
    lab.host().sh("ip link add device type veth peer name behind; ip link set behind up");
    let tuning = json!({"type": "tuning", "sysctl": {"net.ipv4.conf.IFNAME.log_martians": "1"}, "mtu": 1400});
    let ptp = json!({"type": "ptp", "ipMasq": true, "ipam": subnets.both_families(3)});
    let mut networks = vec![
        // Links, leases, rules of masquerade, host ports and firewall, saved settings.
        Network::new(
            "long",
            json!([subnets.bridge("br1", 14), ports(), {"type": "firewall", "ingressPolicy": "same-bridge"}, tuning]),
        ),
        Network::new(
            "spoof",
            json!([{"type": "bridge", "bridge": "br2", "macspoofchk": true, "ipam": subnets.pool(2)}]),
        ),
        Network::new("ptp", json!([ptp, ports(), {"type": "firewall"}, {"type": "sbr"}])),
        // A device that is moved, and rules behind it.
        Network::of_one_container(
            "device",
            json!([{"type": "host-device", "device": "device", "ipam": subnets.fixed(4)}, ports()]),
        ),
        Network::new("flannel", json!([{"type": "flannel", "delegate": {"isDefaultGateway": true}}])),
        // Names, and a process that answers queries for them.
        Network::new(
            "named",
            json!([subnets.bridge("br6", 15), {"type": "dnsname", "domainName": "dns.test"}]),
        ),
    ];
    add_links_on_masters(lab, subnets, &mut networks);
    if exists(Feature::Tap) {
        networks.push(Network::new("tap", json!([{"type": "tap", "ipam": subnets.pool(12)}])));
    }
    if exists(Feature::Dummy) {
        networks.push(Network::new("dummy", json!([{"type": "dummy", "ipam": subnets.pool(13)}])));
    }
    add_special_rules(subnets, &mut networks);
    networks
}

/// Networks that need a missing feature are not tested. Then the test counts as skipped.
fn exists(feature: Feature) -> bool {
    if !feature.is_there() {
        skip(&format!("networks with {feature}, which this kernel lacks"));
    }
    feature.is_there()
}

fn add_links_on_masters(lab: &Lab, subnets: Subnets, networks: &mut Vec<Network>) {
    if exists(Feature::Macvlan) {
        let macvlan = |master: &str, ipam: Value| json!({"type": "macvlan", "master": master, "ipam": ipam});
        networks.push(Network::new("dhcp", json!([macvlan("br0", json!({"type": "dhcp"}))])));
        networks.push(Network::new("macvlan", json!([macvlan("cable", subnets.pool(9)), ports()])));
        networks.push(Network::of_one_container("quiet", json!([macvlan("br0", subnets.fixed(5)), ports()])));
    }
    if exists(Feature::Ipvlan) {
        lab.host()
            .sh("ip link add wire type veth peer name wire0; ip link set wire up; ip link set wire0 up");
        let ipvlan = json!({"type": "ipvlan", "master": "wire", "ipam": subnets.pool(10)});
        networks.push(Network::new("ipvlan", json!([ipvlan, ports()])));
    }
    if exists(Feature::Vlan) {
        let vlan = json!({"type": "vlan", "master": "far", "vlanId": 7, "ipam": subnets.pool(11)});
        networks.push(Network::of_one_container("vlan", json!([vlan])));
    }
}

fn add_special_rules(subnets: Subnets, networks: &mut Vec<Network>) {
    if exists(Feature::TrafficControl) {
        let limits = json!({"type": "bandwidth", "ingressRate": 1_000_000, "ingressBurst": 1_000_000,
            "egressRate": 1_000_000, "egressBurst": 1_000_000});
        networks.push(Network::new("limited", json!([subnets.bridge("br3", 6), limits])));
    }
    if exists(Feature::IptablesNat) {
        let mut old = subnets.bridge("br4", 7);
        old["ipMasqBackend"] = "iptables".into();
        let mut old_ports = ports();
        old_ports["backend"] = "iptables".into();
        networks.push(Network::new("iptables", json!([old, old_ports])));
    }
    if exists(Feature::Vrf) {
        let vrf = json!({"type": "vrf", "vrfname": "blue"});
        networks.push(Network::new("routed", json!([subnets.bridge("br5", 8), vrf, {"type": "sbr"}])));
    }
}
