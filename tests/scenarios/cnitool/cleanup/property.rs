//! GC on random hosts, with all kinds of resources that plugins create: a dry run lists exactly what a GC removes, and live containers keep
//! everything.
//!
//! `GC_HOSTS=100` tests 100 hosts. The message of a failure contains the seed.

use std::collections::BTreeSet;
use std::env;

use lab::dhcp::{DhcpNetwork, RANGE_FOR_A_DAY};
use lab::{Container, Tool, beyond_reference};
use serde_json::Value;

use crate::cnitool::cleanup::networks::{ELSEWHERE, NAMES, Network, Subnets, has_name_server, networks};

const HOSTS: u64 = 2;
const CONTAINERS: usize = 16;

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

struct Pod {
    netns: Container,
    /// The arguments of `cnitool` that name the attachment.
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
        let net = DhcpNetwork::with(RANGE_FOR_A_DAY)?;
        let tool = net.lab.cnitool();
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let networks = networks(&net.lab, Subnets(213));
        let shared: Vec<_> = networks.iter().filter(|network| !network.is_of_one_container).collect();
        let versions = ["1.1.0", "1.0.0", "0.4.0"];
        for network in &networks {
            network.configure(&net.lab, versions[random.below(3)]);
        }
        let mut pods = Vec::new();
        for i in 0..CONTAINERS {
            // Each network has at least one container.
            let network: &Network = networks.get(i).unwrap_or_else(|| shared[random.below(shared.len())]);
            let id = format!("random{seed}x{i:02}");
            let netns = net.lab.container(&id);
            let cache = if random.is_heads() { "" } else { ELSEWHERE };
            let line = format!("{} {id} --container-id {id} {cache}", network.name);
            let port = network.publish(9000 + i);
            tool.says(&format!("add {line} {port}"));
            // The first container of each network is alive on every second host.
            let is_alive =
                if i < networks.len() { (seed + i as u64).is_multiple_of(2) } else { random.is_heads() };
            pods.push(Pod { netns, line, is_alive });
        }
        Some(Self { net, tool, pods })
    }

    /// Stops the server of dnsname, which would outlive the test.
    fn end(&self) {
        for pod in self.pods.iter().filter(|pod| pod.line.starts_with("named ")) {
            self.tool.says(&format!("del {}", pod.line));
        }
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

    /// All files, rules and links that contain the container's name, except results in caches, and dnsname's list of DELs for repairs that run
    /// concurrently.
    fn traces(&self, id: &str) -> String {
        let host = self.net.lab.host();
        let kept = "--exclude-dir=results --exclude=deleted";
        let files = format!("grep -rls {id} /var/lib/cni /run/cni {NAMES} {kept} || true");
        let rules = "nft list ruleset; iptables-save 2>/dev/null || true; ip -o link";
        let rules = host.sh(rules);
        let rules: Vec<&str> = rules.lines().filter(|line| line.contains(id)).collect();
        format!("{}{}", host.sh(&files), rules.join("\n"))
    }
}

/// A line for each resource of each network: kind, name, container, interface, and why it is kept.
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
fn a_gc_removes_exactly_what_the_dry_run_lists_for_all_kinds_of_resources() {
    beyond_reference!("gc");
    let hosts = env::var("GC_HOSTS").ok().and_then(|text| text.parse().ok()).unwrap_or(HOSTS);
    for seed in 1..=hosts {
        let Some(world) = World::new(seed) else { return };
        world.kill();
        let tool = &world.tool;
        let before = world.net.lab.snapshot();
        let dry = tool.json("gc --dry-run");
        world.net.lab.snapshot().assert_same(&before);
        let (removed, kept) = (listed(&dry, "wouldRemove"), listed(&dry, "kept"));
        assert!(!removed.is_empty(), "seed {seed}: nothing is stale: {kept:#?}");
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
        let is_on_it = |pod: &Pod| pod.is_alive && pod.line.starts_with("named ");
        let has_names = kept.iter().any(|thing| thing.starts_with("named: name "));
        let is_served = has_names || world.pods.iter().any(is_on_it);
        assert_eq!(has_name_server(&world.net.lab), is_served, "seed {seed}: {kept:#?}");
        world.end();
    }
}
