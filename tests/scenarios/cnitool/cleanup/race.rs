//! GC runs in a loop while containers of all plugins come and go.

use std::path::Path;

use lab::dhcp::{DhcpNetwork, RANGE_FOR_A_DAY};
use lab::{Netns, Race, beyond_reference};

use crate::cnitool::cleanup::networks::{ELSEWHERE, NAMES, Subnets, has_name_server, networks};

/// How long containers come and go: `GC_RACE_SECONDS=120` for the whole test. Without it each container comes once.
const SECONDS: &str = "GC_RACE_SECONDS";
const SAMPLE: usize = 40;
const WORKERS: usize = 4;

/// Half of the containers belong to another runtime, whose cache cnitool does not know. Every third container, and every
/// container of the network `named`, exits without a DEL. Half of the others return under their ids.
#[test]
fn containers_that_start_and_stop_keep_everything_while_gc_runs_in_a_loop() {
    beyond_reference!("gc");
    let Some(net) = DhcpNetwork::with(RANGE_FOR_A_DAY) else { return };
    let (lab, networks) = (&net.lab, networks(&net.lab, Subnets(209)));
    let versions = ["1.1.0", "1.0.0", "0.4.0"];
    for (network, version) in networks.iter().zip(versions.into_iter().cycle()) {
        network.configure(lab, version);
    }
    let shared: Vec<_> = networks.iter().filter(|network| !network.is_of_one_container).collect();
    let race = Race::of(SECONDS, SAMPLE, WORKERS);
    let pods: Vec<_> = (0..race.containers).map(|i| lab.container(&format!("race{i}"))).collect();
    let tool = lab.cnitool();
    let live = |i: usize, round: usize| {
        let network = networks.get(i).unwrap_or(shared[i % shared.len()]);
        let cache = if (i / 2).is_multiple_of(2) { "" } else { ELSEWHERE };
        let id = if i % 3 == 1 { format!("race{i}") } else { format!("race{i}x{round}") };
        let names = format!("{} race{i} --container-id {id} {cache}", network.name);
        tool.says(&format!("add {names} {}", network.publish(20_000 + i)));
        for _ in 0..2 {
            tool.says(&format!("check {names}"));
        }
        let exits = i.is_multiple_of(3) || network.name == "named";
        // In a later round the namespace is needed again.
        if !exits || round > 0 || race.least.is_some() {
            tool.says(&format!("del {names}"));
        }
    };
    let collect = || {
        tool.says("gc --all");
    };
    race.run(collect, live);
    assert_eq!(has_name_server(lab), race.least.is_none());
    pods.iter().for_each(|pod| pod.vanish());
    nothing_is_left(&net);
}

fn nothing_is_left(net: &DhcpNetwork) {
    let host = net.lab.host();
    let has_pair = |host: &Netns| host.sh("ip -o link show type veth").contains("race");
    host.wait_until("the kernel has removed all pairs", |host| !has_pair(host));
    net.lab.cnitool().says("gc --all");
    net.until("no lease of DHCP is left", || net.list().is_empty());
    let files = format!("grep -rls race /var/lib/cni /run/cni {NAMES} --exclude-dir=results || true");
    let files = host.sh(&files);
    assert!(!has_name_server(&net.lab));
    assert!(!Path::new(NAMES).join("named").exists());
    let objects = host.sh("nft list ruleset; iptables-save 2>/dev/null || true; ip -o link");
    let objects: Vec<_> = objects.lines().filter(|line| line.contains("race")).collect();
    assert!(files.is_empty() && objects.is_empty(), "{files}\n{objects:#?}");
}
