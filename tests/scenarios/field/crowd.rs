//! Many concurrent containers on one link of the host.

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::path::Path;
use std::thread;

use lab::{Container, Lab, beyond_reference, needs, under_test};
use serde_json::{Value, json};

use crate::common::{cable, host_local, ips, leases, ports};
use crate::field::effects::{self, Attached};
use crate::field::{self, Request, stubs};
use crate::on_master::{self, Kind};

#[test]
fn a_hundred_containers_by_sixteen_workers_on_one_master_attach_and_detach_without_errors_or_leftovers() {
    for kind in on_master::KINDS.into_iter().filter(Kind::is_available) {
        is_crowded_master(&kind, 100, &under_test().dir);
    }
}

#[test]
fn the_test_with_many_containers_on_a_master_fails_if_a_plugin_is_replaced_by_a_stub() {
    for kind in on_master::KINDS.into_iter().filter(Kind::is_available) {
        let network = json!({"type": kind.plugin, "ipam": {"type": "host-local"}});
        stubs::fails_with_stubs(kind.kind, &network, |plugins| is_crowded_master(&kind, 8, plugins));
    }
}

fn is_crowded_master(kind: &Kind, count: u16, plugins: &Path) {
    let Kind { plugin, kind, keys, .. } = kind;
    let lab = Lab::new();
    cable(&lab);
    let links = lab.host().link_names();
    let ipam = host_local(&[&["10.1.0.0/16"], &["fd00:1::/64"]]);
    let call = stubs::call(lab.plugin(plugin), plugins).config(on_master::parsed(keys));
    let call = call.config(json!({"master": "cable", "ipam": ipam}));
    // Only vlan reads the id. A master has one interface for each.
    let pods: Vec<_> = (1..=count)
        .map(|n| {
            let pod = lab.container(&format!("pod{n}"));
            (call.clone().on(&pod).config(json!({"vlanId": n})), pod)
        })
        .collect();
    let results = by_workers(&pods, |(call, _)| call.add().ok_result());
    assert!(pods.iter().all(|(_, pod)| pod.link("eth0").is_some()), "{kind}: {plugin} has done nothing");
    let given: BTreeSet<_> = results.iter().flat_map(ips).collect();
    assert_eq!(
        given.len(),
        2 * usize::from(count),
        "{kind}: each has an address of each family of its own, or host-local has done nothing"
    );
    let attached: Vec<_> = pods.iter().zip(&results).collect();
    by_workers(&attached, |((call, _), result)| call.check(result).ok());
    by_workers(&pods, |(call, _)| call.del().ok());
    assert!(leases().is_empty(), "{kind}");
    assert!(pods.iter().all(|(_, pod)| pod.link_names().is_empty()), "{kind}");
    assert_eq!(lab.host().link_names(), links, "{kind}");
}

/// The chain of k3s, with the part that flannel delegates to bridge.
fn limited() -> Value {
    let bandwidth = json!({"type": "bandwidth", "capabilities": {"bandwidth": true}});
    let bridge = json!({
        "type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "hairpinMode": true, "forceAddress": true,
        "ipam": host_local(&[&["10.1.0.0/16"]]),
    });
    json!({"cniVersion": "1.0.0", "name": "limited", "plugins": [bridge, ports(), bandwidth]})
}

#[test]
fn a_hundred_containers_by_sixteen_workers_with_limits_attach_and_detach_without_errors_or_leftovers() {
    needs!(TrafficControl);
    is_crowded("with limits", &limited(), 100, &under_test().dir);
}

/// Sixteen workers, each with a part of the items.
pub fn by_workers<T: Sync, R: Send>(all: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let work = &work;
    thread::scope(|scope| {
        let shares = all.chunks(all.len().div_ceil(16));
        let workers: Vec<_> =
            shares.map(|share| scope.spawn(move || share.iter().map(work).collect::<Vec<_>>())).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}

/// The chains of Nomad, nerdctl and k3s, run as by a runtime.
#[test]
fn a_hundred_containers_by_sixteen_workers_on_chains_of_runtimes_attach_and_detach_without_errors_or_leftovers()
 {
    beyond_reference!("flannel");
    for (who, network) in field::available(field::crowded()) {
        is_crowded(who, &network, 100, &under_test().dir);
    }
}

#[test]
fn the_tests_with_many_containers_fail_if_a_plugin_is_replaced_by_a_stub() {
    beyond_reference!("flannel");
    let mut chains = field::crowded();
    chains.push(("with limits", limited()));
    for (who, network) in field::available(chains) {
        stubs::fails_with_stubs(who, &network, |plugins| is_crowded(who, &network, 8, plugins));
    }
}

/// Sixteen workers attach and detach containers. Each has a host port to which another machine connects.
fn is_crowded(who: &str, network: &Value, count: u16, plugins: &Path) {
    let lab = field::machine(network);
    let client = lab.machine("client");
    lab.configure("10-net.conflist", network);
    let (tool, name) = (stubs::tool(&lab, plugins), network["name"].as_str().unwrap());
    let runs = |command: &str, pod: &Container, port: u16| {
        let tool = Request::of(who, port).by(tool.clone());
        tool.says(&format!("{command} {name} {0} --container-id {0}", pod.id));
    };
    // Shared objects stay after the first container, so they exist from here on.
    let first = lab.container("first");
    runs("add", &first, 9000);
    runs("del", &first, 9000);
    let before = lab.snapshot();
    // No other test of this process may use the names of deleted containers.
    let pod = |n: u16| (lab.container(&format!("{name}-{n}-of-{count}")), 9001 + n);
    let pods: Vec<_> = (0..count).map(pod).collect();
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
