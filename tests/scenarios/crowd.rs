//! Many containers at once on one link of the host.

use std::collections::BTreeSet;
use std::thread;

use lab::{Feature, Lab};
use serde_json::json;

use crate::common::{cable, host_local, ips, leases};

/// What makes many interfaces on one link of the host. A plugin joins by an entry.
const ON_ONE_MASTER: [(&str, Feature); 2] = [("macvlan", Feature::Macvlan), ("ipvlan", Feature::Ipvlan)];

#[test]
fn a_hundred_containers_by_sixteen_workers_on_one_master_fail_nobody_and_leave_nothing() {
    for (plugin, _) in ON_ONE_MASTER.into_iter().filter(|(_, needs)| needs.is_there()) {
        let lab = Lab::new();
        cable(&lab);
        let links = lab.host().link_names();
        let ipam = host_local(&[&["10.1.0.0/16"], &["fd00:1::/64"]]);
        let call = lab.plugin(plugin).config(json!({"master": "cable", "ipam": ipam}));
        let pods: Vec<_> = (0..100).map(|n| lab.container(&format!("pod{n}"))).collect();
        let results = by_workers(&pods, |pod| call.clone().on(pod).add().ok_result());
        let given: BTreeSet<_> = results.iter().flat_map(ips).collect();
        assert_eq!(given.len(), 200, "{plugin}: each has an address of each family of its own");
        let attached: Vec<_> = pods.iter().zip(&results).collect();
        by_workers(&attached, |(pod, result)| call.clone().on(pod).check(result).ok());
        by_workers(&pods, |pod| call.clone().on(pod).del().ok());
        assert!(leases().is_empty(), "{plugin}");
        assert!(pods.iter().all(|pod| pod.link_names().is_empty()), "{plugin}");
        assert_eq!(lab.host().link_names(), links, "{plugin}");
    }
}

/// Sixteen workers, each with its share of them all.
fn by_workers<T: Sync, R: Send>(all: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let work = &work;
    thread::scope(|scope| {
        let shares = all.chunks(all.len().div_ceil(16));
        let workers: Vec<_> =
            shares.map(|share| scope.spawn(move || share.iter().map(work).collect::<Vec<_>>())).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    })
}
