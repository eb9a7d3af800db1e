//! Rules of the reference's firewall plugin on a host that switches to Ferrule and back.

use lab::{Call, Lab, Outcome, Release, beyond_reference};
use serde_json::{Value, json};

use super::{DROP, Filters};
use crate::common::{both_families, by_those_tools, choose_tools, dual_stack};

/// Only the plugin, on a container with an address of each family.
fn firewall(lab: &Lab, keys: Value) -> Call {
    let prev = json!({
        "cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "/run/netns/x"}],
        "ips": [{"address": "10.1.2.2/24", "interface": 0}, {"address": "fd00:1:2::2/64", "interface": 0}],
    });
    lab.plugin("firewall").config(json!({"cniVersion": "1.0.0", "prevResult": prev})).config(keys)
}

#[test]
fn traffic_allowed_by_the_reference_passes_check_and_our_del_removes_its_rules() {
    beyond_reference!("check-upgrade");
    for (release, variant) in Release::with_each("firewall", ["nft", "legacy"]) {
        let lab = Lab::new();
        let pod = lab.container("pod");
        choose_tools(variant);
        lab.host().sh(&both_families(variant, DROP));
        let call = by_those_tools(firewall(&lab, json!({"backend": "iptables"})).on(&pod));
        let theirs = call.clone().by_release(release);
        let result = theirs.add().ok_result();
        // Shared rules of its attachments stay, as with its own DEL.
        theirs.del().ok();
        let before = lab.host().filters();
        theirs.add().ok_result();
        call.check(&result).ok();
        lab.host().sh(&format!("ip6tables-{variant} -D CNI-FORWARD -s fd00:1:2::2 -j ACCEPT"));
        call.check(&result).refused(999, "net/pod/eth0");
        call.del().ok();
        assert_eq!(lab.host().filters(), before, "{release} {variant}");
    }
}

#[test]
fn traffic_allowed_by_the_reference_passes_check_of_our_default_backend_and_is_removed_too() {
    beyond_reference!("check-upgrade");
    for release in Release::with("firewall") {
        let lab = Lab::new();
        let pod = lab.container("pod");
        let theirs = firewall(&lab, json!({"backend": "iptables"})).on(&pod).by_release(release);
        let result = theirs.add().ok_result();
        theirs.del().ok();
        let before = lab.host().filters();
        theirs.add().ok_result();
        let ours = firewall(&lab, json!({})).on(&pod);
        ours.check(&result).ok();
        ours.del().ok();
        assert_eq!(lab.host().filters(), before, "{release}");
    }
}

#[test]
fn gc_removes_rules_of_ferrule_that_the_references_del_leaves() {
    beyond_reference!("firewall-by-owner");
    for (release, backend) in Release::with_each("firewall", ["nftables", "iptables"]) {
        let lab = Lab::new();
        let pod = lab.container("pod");
        lab.host().sh(&both_families("nft", DROP));
        let before = lab.host().filters();
        let ours = firewall(&lab, json!({"backend": backend})).on(&pod);
        ours.add().ok_result();
        firewall(&lab, json!({"backend": "iptables"})).on(&pod).by_release(release).del().ok();
        ours.gc(&[]).ok();
        let left = lab.host().filters();
        // The reference's DEL creates missing chains of its own.
        let is_theirs = |line: &&str| !line.contains("CNI-");
        assert_eq!(
            left.lines().filter(is_theirs).collect::<Vec<_>>(),
            before.lines().filter(is_theirs).collect::<Vec<_>>(),
            "{release} {backend}"
        );
    }
}

#[test]
fn both_keep_their_containers_connected_on_one_host() {
    beyond_reference!("firewall-by-owner");
    for release in Release::with("firewall") {
        let lab = Lab::new();
        let [theirs, ours] = ["theirs", "ours"].map(|id| lab.container(id));
        let far = lab.machine("far");
        lab.host().sh(&both_families("nft", DROP));
        let mut bridge = dual_stack();
        bridge["type"] = json!("bridge");
        let plugins = json!([bridge, {"type": "firewall", "backend": "iptables"}]);
        let network = lab.chain(json!({"cniVersion": "1.0.0", "name": "net", "plugins": plugins}));
        let old = network.clone().by_release(release).add(&theirs, "eth0").ok_result();
        let new = network.add(&ours, "eth0").ok_result();
        assert!(theirs.reaches("198.51.100.2") && ours.reaches("198.51.100.2"));
        network.check(&theirs, "eth0", &old).iter().for_each(Outcome::ok);
        network.check(&ours, "eth0", &new).iter().for_each(Outcome::ok);
        network.del(&ours, "eth0", &new).iter().for_each(Outcome::ok);
        assert!(theirs.reaches("2001:db8:51::2"));
        network.del(&theirs, "eth0", &old).iter().for_each(Outcome::ok);
        drop(far);
    }
}
