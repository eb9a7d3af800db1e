//! A dry run lists exactly what a GC removes, and no live container loses anything: on random hosts with all kinds of things that plugins
//! leave on a host.
//!
//! `GC_HOSTS=100` tries so many hosts. The seed is in the message of a failure.

use std::collections::BTreeSet;
use std::env;

use lab::dhcp::{DhcpNetwork, RANGE};
use lab::{Container, Feature, Tool, beyond_reference};
use serde_json::{Value, json};

use crate::common::host_local;
use crate::flannel::{flanneld_says, subnet_env};

const HOSTS: u64 = 2;
const CONTAINERS: usize = 12;

/// A cache that cnitool does not know, as that of another runtime.
const ELSEWHERE: &str = "--cache-dir /run/lab/elsewhere";

/// xorshift64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    fn is_heads(&mut self) -> bool {
        self.below(2) == 0
    }
}

fn ports() -> Value {
    json!({"type": "portmap", "capabilities": {"portMappings": true}})
}

/// One network for each kind of thing, with what this kernel has.
fn networks() -> Vec<(&'static str, Value)> {
    let bridge = |name: &str, net: u8| {
        json!({"type": "bridge", "bridge": name, "isGateway": true, "ipMasq": true,
            "ipam": host_local(&[&[&format!("10.213.{net}.0/24")]])})
    };
    let tuning = json!({"type": "tuning", "sysctl": {"net.ipv4.conf.IFNAME.log_martians": "1"}, "mtu": 1400});
    let fixed = |host: &str| json!({"type": "static", "addresses": [{"address": host}]});
    let mut networks = vec![
        // Links, leases, rules of masquerade, host ports and firewall, saved settings.
        (
            "long",
            json!([bridge("br1", 1), ports(), {"type": "firewall", "ingressPolicy": "same-bridge"}, tuning]),
        ),
        (
            "spoof",
            json!([{"type": "bridge", "bridge": "br2", "macspoofchk": true,
            "ipam": host_local(&[&["10.213.2.0/24"]])}]),
        ),
        (
            "ptp",
            json!([{"type": "ptp", "ipMasq": true, "ipam": host_local(&[&["10.213.3.0/24"], &["fd00:213:3::/64"]])}, ports()]),
        ),
        // A device that is moved, and rules behind it.
        (
            "device",
            json!([{"type": "host-device", "device": "cableN", "ipam": fixed("10.213.4.N/24")}, ports()]),
        ),
        ("flannel", json!([{"type": "flannel", "delegate": {"isDefaultGateway": true}}])),
    ];
    if Feature::Macvlan.is_there() {
        networks.push(("dhcp", json!([{"type": "macvlan", "master": "br0", "ipam": {"type": "dhcp"}}])));
        networks.push((
            "quiet",
            json!([{"type": "macvlan", "master": "br0", "ipam": fixed("10.213.5.N/24")}, ports()]),
        ));
    }
    if Feature::TrafficControl.is_there() {
        let limits = json!({"type": "bandwidth", "ingressRate": 1_000_000, "ingressBurst": 1_000_000,
            "egressRate": 1_000_000, "egressBurst": 1_000_000});
        networks.push(("limited", json!([bridge("br3", 6), limits])));
    }
    if Feature::IptablesNat.is_there() {
        let mut old = bridge("br4", 7);
        old["ipMasqBackend"] = "iptables".into();
        let mut old_ports = ports();
        old_ports["backend"] = "iptables".into();
        networks.push(("iptables", json!([old, old_ports])));
    }
    if Feature::Vrf.is_there() {
        networks
            .push(("routed", json!([bridge("br5", 8), {"type": "vrf", "vrfname": "blue"}, {"type": "sbr"}])));
    }
    networks
}

struct Pod {
    netns: Container,
    /// What `cnitool` needs to name it.
    line: String,
    is_alive: bool,
}

/// A host with random containers.
struct World {
    net: DhcpNetwork,
    tool: Tool,
    pods: Vec<Pod>,
}

impl World {
    fn new(seed: u64) -> Option<Self> {
        let net = DhcpNetwork::with(RANGE)?;
        let tool = net.lab.cnitool();
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        flanneld_says(&subnet_env(true));
        let networks = networks();
        let versions = ["1.1.0", "1.0.0", "0.4.0"];
        for (name, plugins) in &networks {
            let conf = json!({"cniVersion": versions[random.below(3)], "name": name, "plugins": plugins});
            net.lab.configure(&format!("10-{name}.conflist"), &conf);
        }
        let mut pods = Vec::new();
        for i in 0..CONTAINERS {
            // Each network has a container at least. A device and a static address belong to one only.
            let is_own = |name: &str| ["device", "quiet"].contains(&name);
            let shared: Vec<_> = networks.iter().filter(|(name, _)| !is_own(name)).collect();
            let (network, plugins) = networks.get(i).unwrap_or_else(|| shared[random.below(shared.len())]);
            let id = format!("random{seed}x{i:02}");
            let netns = net.lab.container(&id);
            let cache = if random.is_heads() { "" } else { ELSEWHERE };
            let line = format!("{network} {id} --container-id {id} {cache}");
            if is_own(network) {
                net.lab
                    .host()
                    .sh(&format!("ip link add cable{i} type veth peer name far{i}; ip link set far{i} up"));
                let own = plugins.to_string().replace("cableN", &format!("cable{i}"));
                let own: Value = serde_json::from_str(&own.replace(".N/", &format!(".{}/", 10 + i))).unwrap();
                let conf = json!({"cniVersion": "1.1.0", "name": network, "plugins": own});
                net.lab.configure(&format!("10-{network}.conflist"), &conf);
            }
            let has_ports = plugins.to_string().contains("portMappings");
            let port = if has_ports { format!("-p {}:80", 9000 + i) } else { String::new() };
            tool.says(&format!("add {line} {port}"));
            pods.push(Pod { netns, line, is_alive: random.is_heads() });
        }
        Some(Self { net, tool, pods })
    }

    fn kill(&self) {
        for pod in self.pods.iter().filter(|pod| !pod.is_alive) {
            pod.netns.vanish();
            let id = &pod.netns.id;
            let is_gone = |host: &lab::Netns| {
                // An ifb has no peer in the container: GC removes it.
                !host.sh("ip -o link show type veth").lines().any(|line| line.contains(&format!(" {id} ")))
            };
            self.net.lab.host().wait_until("the kernel has removed the container's pair", is_gone);
        }
    }

    /// Whatever tells of a container that is not a record of libcni's or cnitool's.
    fn traces(&self, id: &str) -> String {
        let host = self.net.lab.host();
        let files = format!("grep -rl {id} /var/lib/cni --exclude-dir=results || true");
        let rules = "nft list ruleset; iptables-save 2>/dev/null || true; ip -o link";
        let rules = host.sh(rules);
        let rules: Vec<&str> = rules.lines().filter(|line| line.contains(id)).collect();
        format!("{}{}", host.sh(&files), rules.join("\n"))
    }
}

/// A line for each thing of each network: kind, name, container and interface, and why it is kept.
fn listed(reports: &Value, key: &str) -> BTreeSet<String> {
    let text = |one: &Value, key: &str| one[key].as_str().unwrap_or_default().to_owned();
    let of_network = |report: &Value| {
        let network = text(report, "network");
        let things = report[key].as_array().unwrap().clone();
        let line = move |one: &Value| {
            format!(
                "{network}: {}",
                ["kind", "name", "containerID", "ifname", "why"].map(|key| text(one, key)).join(" ")
            )
        };
        things.iter().map(line).collect::<Vec<_>>()
    };
    reports.as_array().unwrap().iter().flat_map(of_network).collect()
}

#[test]
fn a_gc_removes_exactly_what_the_dry_run_lists_of_all_kinds_of_things() {
    beyond_reference!("gc");
    let hosts = env::var("GC_HOSTS").ok().and_then(|text| text.parse().ok()).unwrap_or(HOSTS);
    for seed in 1..=hosts {
        let Some(world) = World::new(seed) else { return };
        world.kill();
        let tool = &world.tool;
        let dry = tool.json("gc --dry-run");
        let (removed, kept) = (listed(&dry, "wouldRemove"), listed(&dry, "kept"));
        let run = tool.json("gc --all");
        assert_eq!(
            listed(&run, "things"),
            removed,
            "seed {seed}: the dry run listed other things, and kept {kept:#?}"
        );
        assert_eq!(listed(&run, "kept"), kept, "seed {seed}: the dry run kept other things");
        let again = tool.json("gc --dry-run");
        assert_eq!(listed(&again, "wouldRemove"), BTreeSet::new(), "seed {seed}: GC has left what it listed");
        assert_eq!(listed(&again, "kept"), kept, "seed {seed}: GC has removed what it did not list");
        for Pod { netns, line, is_alive } in &world.pods {
            let id = &netns.id;
            if *is_alive {
                let checked = tool.run(&format!("check {line}"));
                assert!(checked.succeeded(), "seed {seed}: {line} has lost something: {checked:#?}");
                assert!(
                    !removed.iter().any(|thing| thing.contains(&format!(" {id} "))),
                    "seed {seed}: {removed:#?}"
                );
            } else if !kept.iter().any(|thing| thing.contains(&format!(" {id} "))) {
                let traces = world.traces(id);
                assert!(traces.is_empty(), "seed {seed}: {line}: {traces}");
            }
        }
    }
}
