//! Many concurrent containers on one link of the host.

use std::collections::BTreeSet;
use std::path::Path;
use std::thread;

use lab::{Container, Lab, beyond_reference, needs, skip, under_test};
use serde_json::{Value, json};

use crate::common::{cable, host_local, ips, leases};
use crate::field::effects::{self, Attached};
use crate::field::{self, stubs};
use crate::on_master::{self, Kind};

#[test]
fn a_hundred_containers_by_sixteen_workers_on_one_master_attach_and_detach_without_errors_or_leftovers() {
    for Kind { plugin, kind, keys, .. } in on_master::KINDS.into_iter().filter(Kind::is_there) {
        let lab = Lab::new();
        cable(&lab);
        let links = lab.host().link_names();
        let ipam = host_local(&[&["10.1.0.0/16"], &["fd00:1::/64"]]);
        let call = lab.plugin(plugin).config(on_master::parsed(keys));
        let call = call.config(json!({"master": "cable", "ipam": ipam}));
        // Only vlan reads the id. A master has one interface for each.
        let pods: Vec<_> = (1..=100)
            .map(|n| {
                let pod = lab.container(&format!("pod{n}"));
                (call.clone().on(&pod).config(json!({"vlanId": n})), pod)
            })
            .collect();
        let results = by_workers(&pods, |(call, _)| call.add().ok_result());
        let given: BTreeSet<_> = results.iter().flat_map(ips).collect();
        assert_eq!(given.len(), 200, "{kind}: each has an address of each family of its own");
        let attached: Vec<_> = pods.iter().zip(&results).collect();
        by_workers(&attached, |((call, _), result)| call.check(result).ok());
        by_workers(&pods, |(call, _)| call.del().ok());
        assert!(leases().is_empty(), "{kind}");
        assert!(pods.iter().all(|(_, pod)| pod.link_names().is_empty()), "{kind}");
        assert_eq!(lab.host().link_names(), links, "{kind}");
    }
}

/// The chain of k3s, with the part that flannel delegates to bridge.
#[test]
fn a_hundred_containers_by_sixteen_workers_with_limits_attach_and_detach_without_errors_or_leftovers() {
    needs!(TrafficControl);
    let lab = Lab::new();
    let links = lab.host().link_names();
    let pods: Vec<_> = (0..100).map(|n| lab.container(&format!("pod{n}"))).collect();
    let bandwidth = json!({
        "type": "bandwidth", "ingressRate": 80_000_000, "ingressBurst": 2_147_483_647, "egressRate": 80_000_000,
        "egressBurst": 2_147_483_647,
    });
    let bridge = json!({
        "type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "hairpinMode": true, "forceAddress": true,
        "ipam": host_local(&[&["10.1.0.0/16"]]),
    });
    let portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}});
    let plugins = json!([bridge, portmap, bandwidth]);
    let chain = lab.chain(json!({"cniVersion": "1.0.0", "name": "net", "plugins": plugins}));
    let results = by_workers(&pods, |pod| chain.add(pod, "eth0").ok_result());
    assert_eq!(lab.host().ip("link show type ifb").len(), 100);
    let attached: Vec<_> = pods.iter().zip(&results).collect();
    by_workers(&attached, |(pod, result)| chain.check(pod, "eth0", result).iter().for_each(lab::Outcome::ok));
    by_workers(&attached, |(pod, result)| chain.del(pod, "eth0", result).iter().for_each(lab::Outcome::ok));
    assert!(leases().is_empty() && pods.iter().all(|pod| pod.link_names().is_empty()));
    lab.host().sh("ip link del cni0");
    assert_eq!(lab.host().link_names(), links);
}

/// Sixteen workers, each with a part of the items.
pub fn by_workers<T: Sync, R: Send>(all: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let work = &work;
    thread::scope(|scope| {
        let shares = all.chunks(all.len().div_ceil(16));
        let workers: Vec<_> =
            shares.map(|share| scope.spawn(move || share.iter().map(work).collect::<Vec<_>>())).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    })
}

/// The chains of Nomad, nerdctl and k3s, run as by a runtime.
#[test]
fn a_hundred_containers_by_sixteen_workers_on_chains_of_runtimes_attach_and_detach_without_errors_or_leftovers()
 {
    beyond_reference!("flannel");
    for (who, network) in chains_of_the_field() {
        is_crowded(who, &network, 100, &under_test().dir);
    }
}

#[test]
fn the_tests_with_many_containers_fail_if_a_plugin_is_replaced_by_a_stub() {
    beyond_reference!("flannel");
    for (who, network) in chains_of_the_field() {
        stubs::fails_with_stubs(who, &network, |plugins| is_crowded(who, &network, 8, plugins));
    }
}

fn chains_of_the_field() -> Vec<(&'static str, Value)> {
    let mut chains = field::crowded().to_vec();
    chains.retain(|(who, network)| {
        let missing = field::is_missing(network);
        missing.iter().for_each(|what| skip(&format!("{who}: {what}")));
        missing.is_none()
    });
    chains
}

/// Sixteen workers attach and detach containers. Each has a host port to which another machine connects.
fn is_crowded(who: &str, network: &Value, count: u16, plugins: &Path) {
    let lab = field::machine();
    let client = lab.machine("client");
    lab.configure("10-net.conflist", network);
    let path = format!("{}:{}", plugins.display(), Lab::plugin_dir().display());
    let (tool, name) = (lab.cnitool().env("CNI_PATH", &path), network["name"].as_str().unwrap());
    let runs = |command: &str, pod: &Container, port: u16| {
        let tool = tool.clone().env("CAP_ARGS", &field::capabilities(who, port).to_string());
        tool.says(&format!("{command} {name} {}", pod.id));
    };
    // Shared objects stay after the first container, so they exist from here on.
    let first = lab.container("first");
    runs("add", &first, 9000);
    runs("del", &first, 9000);
    let before = lab.snapshot();
    let pods: Vec<_> = (0..count).map(|n| (lab.container(&format!("crowd{n}")), 9001 + n)).collect();
    by_workers(&pods, |(pod, port)| runs("add", pod, *port));
    let host = lab.host();
    by_workers(&pods, |(pod, port)| {
        let attached = Attached { host, client: &client, pod, port: *port };
        effects::assert_all(&attached, who, network);
    });
    by_workers(&pods, |(pod, port)| runs("check", pod, *port));
    by_workers(&pods, |(pod, port)| runs("del", pod, *port));
    assert!(pods.iter().all(|(pod, _)| pod.link_names().is_empty()), "{who}");
    pods.iter().for_each(|(pod, _)| pod.vanish());
    let after = pods.iter().fold(lab.snapshot(), |snapshot, (pod, _)| snapshot.without(&pod.id));
    // The hint about the last allocated address differs.
    let left = after.since(&before);
    let left: Vec<_> =
        left.lines().filter(|line| line.contains("  + ") && !line.contains("last_reserved_ip")).collect();
    assert!(left.is_empty(), "{who} has left:\n{}", left.join("\n"));
}
