//! The reference's firewall rules on a host that switches to Ferrule, while containers run.

mod repair_and_gc;

use std::fs;

use lab::{
    Chain, Container, Lab, Outcome, Release, Tool, beyond_reference, tcp_is_cut_off, tcp_is_refused,
    tcp_says, write_program,
};
use serde_json::{Value, json};

use super::to_ours;
use crate::common::{STORE, TOOLS, by_those_tools, choose_tools, dual_stack, host_local};
use crate::portmap::by;

/// bridge with masquerade and spoof check, portmap, and firewall.
fn full_network(keys: &Value, host_port: u16) -> Value {
    let mut bridge = dual_stack();
    bridge["type"] = json!("bridge");
    bridge["ipMasq"] = json!(true);
    bridge["macspoofchk"] = json!(true);
    let mut firewall = json!({"type": "firewall"});
    if let Some(backend) = keys.get("backend") {
        bridge["ipMasqBackend"] = backend.clone();
        firewall["backend"] = backend.clone();
    }
    let mut portmap = keys.clone();
    portmap["type"] = json!("portmap");
    let mappings = ["tcp", "udp"]
        .map(|protocol| json!({"hostPort": host_port, "containerPort": 80, "protocol": protocol}));
    portmap["runtimeConfig"] = json!({"portMappings": mappings});
    json!({"cniVersion": "1.0.0", "name": "net", "plugins": [bridge, portmap, firewall]})
}

/// The [`full_network`]. Without `backend`, the reference installs its rules by iptables.
fn full_chain(lab: &Lab, keys: &Value, host_port: u16) -> Chain {
    lab.chain(full_network(keys, host_port))
}

/// How the reference installs its rules. It has only iptables for its firewall, and `nft` for spoof checks.
#[derive(Debug)]
struct Setup {
    release: Release,
    /// The host's variant of iptables.
    variant: &'static str,
    keys: Value,
}

impl Setup {
    /// Each release with its backends. If a release is not on this machine, the test counts as skipped.
    fn all() -> Vec<Self> {
        let [default, iptables, nftables] = [json!({}), by("iptables"), by("nftables")];
        let all = [
            (Release::V1_1_1, "nft", default.clone()),
            (Release::V1_1_1, "legacy", iptables.clone()),
            (Release::V1_9_1, "nft", default),
            (Release::V1_9_1, "legacy", iptables),
            (Release::V1_9_1, "nft", nftables),
        ];
        let here = Release::with("portmap");
        let all = all.into_iter().filter(|(release, ..)| here.contains(release));
        all.map(|(release, variant, keys)| Self { release, variant, keys }).collect()
    }

    fn is_nftables(&self) -> bool {
        self.keys == by("nftables")
    }

    /// The network by the reference, and by Ferrule.
    fn chains(&self, lab: &Lab, host_port: u16) -> [Chain; 2] {
        let ours = full_chain(lab, &self.keys, host_port).each(by_those_tools);
        [ours.clone().by_release(self.release), ours]
    }

    /// cnitool with the plugins of the reference, and with Ferrule's.
    fn tools(&self, lab: &Lab) -> [Tool; 2] {
        choose_tools(self.variant);
        lab.configure("10-net.conflist", &full_network(&self.keys, 8080));
        let ours = lab.cnitool().env("PATH", TOOLS);
        [ours.clone().by_release(self.release), ours]
    }
}

/// The container's namespace is deleted. The kernel deletes the pair a moment later; `br0` then has one other port.
fn vanish_with_pair(lab: &Lab, pod: &Container) {
    pod.vanish();
    lab.host().wait_until("the pair is gone", |host| host.ip("link show master br0").len() == 1);
}

#[test]
fn our_del_removes_the_references_rules() {
    for setup in Setup::all() {
        let lab = Lab::new();
        let far = lab.machine("far");
        let [stays, goes] = ["stays", "goes"].map(|id| lab.container(id));
        choose_tools(setup.variant);
        let [[first, _], [second, ours]] = [8080, 9090].map(|port| setup.chains(&lab, port));
        first.add(&stays, "eth0").ok_result();
        let before = lab.snapshot();
        let result = second.add(&goes, "eth0").ok_result();
        ours.check(&goes, "eth0", &result).iter().for_each(Outcome::ok);

        ours.del(&goes, "eth0", &result).iter().for_each(Outcome::ok);
        lab.snapshot().assert_same(&before);
        let _server = stays.serve_tcp("stays", "10.1.2.2:80");
        let answer = tcp_says(&far, "198.51.100.1:8080");
        assert_eq!(answer.as_deref(), Some("stays 198.51.100.2"), "{setup:?}");
    }
}

/// Only firewall needs the result: the reference's rules for an address contain nothing else.
#[test]
fn the_references_rules_are_removed_without_namespace_and_prev_result() {
    beyond_reference!("rules-by-attachment");
    for setup in Setup::all() {
        let lab = Lab::new();
        let [stays, goes] = ["stays", "of-old-rules"].map(|id| lab.container(id));
        choose_tools(setup.variant);
        let [theirs, _] = setup.chains(&lab, 8080);
        theirs.add(&stays, "eth0").ok_result();
        let before = lab.snapshot().without(&goes.id);
        let result = theirs.add(&goes, "eth0").ok_result();
        vanish_with_pair(&lab, &goes);
        for (plugin, keys) in [
            ("firewall", json!({"prevResult": result})),
            ("portmap", json!({})),
            ("bridge", json!({"ipam": dual_stack()["ipam"]})),
        ] {
            by_those_tools(lab.plugin(plugin)).on(&goes).without("CNI_NETNS").config(keys).del().ok();
        }
        lab.snapshot().without(&goes.id).assert_same(&before);
    }
}

#[test]
fn the_references_check_of_our_attachment_fails_because_its_own_host_ports_and_firewall_rules_are_missing() {
    for setup in Setup::all() {
        let lab = Lab::new();
        let pod = lab.container("pod");
        choose_tools(setup.variant);
        let [theirs, ours] = setup.chains(&lab, 8080);
        let result = ours.add(&pod, "eth0").ok_result();
        let [bridge, portmap] = &theirs.check(&pod, "eth0", &result)[..] else { panic!("{setup:?}") };
        bridge.ok();
        assert!(!portmap.succeeded(), "{setup:?}");
        let firewall = by_those_tools(lab.plugin("firewall")).on(&pod).by_release(setup.release);
        assert!(!firewall.check(&result).succeeded(), "{setup:?}");
    }
}

/// With nftables, only after the DEL of its container, because the chains of other programs come first.
#[test]
fn a_new_mapping_replaces_a_stale_mapping_of_the_reference() {
    beyond_reference!("newest-wins");
    for (release, backend) in Release::with_each("portmap", ["nftables", "iptables"]) {
        let lab = Lab::new();
        let far = lab.machine("far");
        let [stale, fresh] = ["stale", "fresh"].map(|id| lab.container(id));
        let network = full_chain(&lab, &by(backend), 8080);
        let old = network.clone().by_release(release).add(&stale, "eth0").ok_result();
        network.add(&fresh, "eth0").ok_result();
        let _servers = [stale.serve_tcp("stale", "10.1.2.2:80"), fresh.serve_tcp("fresh", "10.1.2.3:80")];
        let answer = Some("fresh 198.51.100.2".to_owned());
        let is_first = tcp_says(&far, "198.51.100.1:8080") == answer;
        assert_eq!(is_first, backend == "iptables", "{release} {backend}");
        network.del(&stale, "eth0", &old).iter().for_each(Outcome::ok);
        assert_eq!(tcp_says(&far, "198.51.100.1:8080"), answer, "{release} {backend}");
        network.del(&fresh, "eth0", &old).iter().for_each(Outcome::ok);
        assert!(tcp_is_refused(&far, "198.51.100.1:8080"), "{release} {backend}");
    }
}

#[test]
fn on_a_host_without_rules_of_the_reference_no_program_is_started() {
    beyond_reference!("rules-by-attachment");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let started = lab.dir().join("started");
    fs::create_dir(lab.dir().join("watched")).unwrap();
    for program in ["iptables", "ip6tables", "nft"] {
        for suffix in ["", "-save", "-restore", "-nft-save", "-legacy-save", "-nft-restore"] {
            let path = lab.dir().join(format!("watched/{program}{suffix}"));
            write_program(&path, &format!("#!/bin/sh\necho $0 >>{}\nexit 1\n", started.display()));
        }
    }
    let network = full_chain(&lab, &json!({}), 8080).each(|call| call.env("PATH", "/run/lab/watched"));
    let result = network.add(&pod, "eth0").ok_result();
    network.del(&pod, "eth0", &result).iter().for_each(Outcome::ok);
    assert_eq!(fs::read_to_string(started).unwrap_or_default(), "");
}

#[test]
fn check_accepts_the_references_rules_in_either_variant_of_iptables_and_notices_their_removal() {
    beyond_reference!("check-upgrade");
    for (release, variant) in Release::with_each("firewall", ["nft", "legacy"]) {
        let [first, second] = match variant {
            "nft" => ["iptables -t nat -F CNI-HOSTPORT-DNAT", "ip6tables -t nat -F POSTROUTING"],
            _ => ["iptables-legacy -t nat -F OUTPUT", "iptables-legacy -t nat -F POSTROUTING"],
        };
        let lab = Lab::new();
        let pod = lab.container("pod");
        choose_tools(variant);
        let network = full_chain(&lab, &json!({}), 8080);
        let theirs = network.clone().by_release(release).each(by_those_tools);
        let result = theirs.add(&pod, "eth0").ok_result();
        network.check(&pod, "eth0", &result).iter().for_each(Outcome::ok);
        lab.host().sh(first);
        network.check(&pod, "eth0", &result)[1].refused(999, "net/pod/eth0");
        lab.host().sh(second);
        network.check(&pod, "eth0", &result)[0].refused(999, "net/pod/eth0");
    }
}

#[test]
fn check_accepts_the_references_nftables_rules_and_notices_their_removal() {
    beyond_reference!("check-upgrade");
    if !Release::V1_9_1.is_here() {
        return;
    }
    for flushed in
        ["ip6 cni_hostport hostports", "ip cni_hostport prerouting", "ip cni_hostport hostports_all"]
    {
        let lab = Lab::new();
        let pod = lab.container("pod");
        let ours = full_chain(&lab, &by("nftables"), 8080);
        let result = ours.clone().by_release(Release::V1_9_1).add(&pod, "eth0").ok_result();
        ours.check(&pod, "eth0", &result).iter().for_each(Outcome::ok);
        lab.host().sh(&format!("nft flush chain {flushed}"));
        ours.check(&pod, "eth0", &result)[1].refused(999, "net/pod/eth0");
        lab.host().sh("nft flush chain inet cni_plugins_masquerade postrouting");
        ours.check(&pod, "eth0", &result)[0].refused(999, "net/pod/eth0");
    }
}

#[test]
fn check_accepts_a_spoof_check_of_the_reference_and_notices_its_removal_and_del_deletes_only_its_own() {
    beyond_reference!("check-upgrade");
    for [theirs, ours] in to_ours("bridge") {
        let lab = Lab::new();
        let [stays, goes] = ["stays", "goes"].map(|id| lab.container(id));
        let call = lab.plugin("bridge").config(dual_stack()).config(json!({"macspoofchk": true}));
        let kept = theirs.run(&call).on(&stays).add().ok_result();
        let rules = || lab.host().sh("nft list ruleset");
        let before = rules();
        let result = theirs.run(&call).on(&goes).add().ok_result();
        assert_ne!(rules(), before);
        let [stays, goes] = [&stays, &goes].map(|pod| ours.run(&call).on(pod));
        goes.check(&result).ok();
        goes.del().ok();
        assert_eq!(rules(), before);
        stays.check(&kept).ok();
        lab.host().sh("nft flush ruleset");
        stays.check(&kept).refused(999, "net/stays/eth0");
    }
}

/// The reference's rules of `ingressPolicy` are in iptables, with any backend.
#[test]
fn check_accepts_an_ingress_policy_of_the_reference_and_notices_its_removal() {
    beyond_reference!("check-upgrade");
    let losses = [
        ("same-bridge", "iptables -F CNI-ISOLATION-STAGE-2"),
        ("same-bridge", "iptables -F FORWARD"),
        (
            "isolated",
            "iptables-save -t filter | grep -e '-i br0 -o br0' | sed 's/^-A/-D/' | xargs iptables -t filter",
        ),
    ];
    // Release 1.1.1 does not have the policy `isolated`.
    for (release, (policy, loss)) in Release::with_each("firewall", losses) {
        if (release, policy) == (Release::V1_1_1, "isolated") {
            continue;
        }
        let lab = Lab::new();
        let [stays, pod] = ["stays", "pod"].map(|id| lab.container(id));
        let mut bridge = dual_stack();
        bridge["type"] = json!("bridge");
        let firewall = json!({"type": "firewall", "backend": "iptables", "ingressPolicy": policy});
        let ours = lab.chain(json!({"cniVersion": "1.0.0", "name": "net", "plugins": [bridge, firewall]}));
        let theirs = ours.clone().by_release(release);
        let [kept, result] = [&stays, &pod].map(|pod| theirs.add(pod, "eth0").ok_result());
        ours.check(&pod, "eth0", &result).iter().for_each(Outcome::ok);
        ours.del(&pod, "eth0", &result).iter().for_each(Outcome::ok);
        assert!(!lab.host().sh("iptables-save; ip6tables-save").contains("10.1.2.3/"), "{release} {policy}");
        ours.check(&stays, "eth0", &kept).iter().for_each(Outcome::ok);
        lab.host().sh(loss);
        ours.check(&stays, "eth0", &kept)[1].refused(999, "isolat");
    }
}

/// The reference's rules for a bridge with the policy `isolated`. Its DEL keeps them, also after the last container.
fn isolate_as_the_reference(lab: &Lab, variant: &str, network: &Value) {
    let pod = lab.container("isolated-by-the-reference");
    choose_tools(variant);
    let theirs = lab.chain(network.clone()).by_release(Release::V1_9_1).each(by_those_tools);
    let result = theirs.add(&pod, "eth0").ok_result();
    theirs.del(&pod, "eth0", &result).iter().for_each(Outcome::ok);
    let rules = lab.host().sh(&format!("iptables-{variant}-save -t filter"));
    for rule in ["-A CNI-ISOLATION-STAGE-1 -i br0 -o br0 ", "-A CNI-ISOLATION-STAGE-2 -o br0 "] {
        assert!(rules.contains(rule), "{variant}: {rule} in {rules}");
    }
}

/// They contain only the bridge, and do not see frames between its ports. Release 1.1.1 does not have the policy.
#[test]
fn the_references_rules_for_a_bridge_do_not_stand_in_for_lost_isolation_of_our_containers() {
    beyond_reference!("check-upgrade");
    if !Release::V1_9_1.is_here() {
        return;
    }
    for variant in ["nft", "legacy"] {
        let lab = Lab::new();
        lab.host()
            .sh("for f in /proc/sys/net/bridge/bridge-nf-call-ip*tables; do [ ! -e $f ] || echo 0 >$f; done");
        let [a, b] = ["a", "b"].map(|id| lab.container(id));
        let mut bridge = dual_stack();
        bridge["type"] = json!("bridge");
        let firewall = json!({"type": "firewall", "ingressPolicy": "isolated"});
        let network = json!({"cniVersion": "1.0.0", "name": "net", "plugins": [bridge, firewall]});
        isolate_as_the_reference(&lab, variant, &network);
        lab.configure("net.conflist", &network);
        let ours = lab.cnitool();
        for pod in ["a", "b"] {
            ours.says(&format!("add net {pod} --container-id {pod}"));
        }
        // host-local has allocated 10.1.2.2 to the reference's container.
        let _server = b.serve_tcp("b", "10.1.2.4:80");
        assert!(a.is_cut_off_from("10.1.2.4"), "{variant}");
        lab.host().sh("nft delete table bridge ferrule");
        assert!(tcp_says(&a, "10.1.2.4:80").is_some(), "{variant}: what is lost is seen");
        assert!(!ours.run("check net --all").succeeded(), "{variant}");
        assert_eq!(ours.json("repair --all")["repaired"], json!(["net/a/eth0", "net/b/eth0"]), "{variant}");
        assert!(a.is_cut_off_from("10.1.2.4"), "{variant}");
        ours.says("check net --all");
    }
}

/// A network whose firewall is the default one.
fn with_firewall(lab: &Lab) -> Chain {
    let mut bridge = dual_stack();
    bridge["type"] = json!("bridge");
    bridge["ipam"] = host_local(&[&["10.1.2.0/24"]]);
    lab.chain(json!({"cniVersion": "1.0.0", "name": "net", "plugins": [bridge, {"type": "firewall"}]}))
}

#[test]
fn check_accepts_the_references_rules_for_an_address_and_notices_their_removal() {
    beyond_reference!("check-upgrade");
    for (release, variant) in Release::with_each("firewall", ["nft", "legacy"]) {
        let lab = Lab::new();
        let pod = lab.container("pod");
        choose_tools(variant);
        let network = with_firewall(&lab);
        let theirs = network.clone().by_release(release).each(by_those_tools);
        let result = theirs.add(&pod, "eth0").ok_result();
        network.check(&pod, "eth0", &result).iter().for_each(Outcome::ok);
        lab.host().sh(&format!("iptables-{variant} -F CNI-FORWARD"));
        network.check(&pod, "eth0", &result)[1].refused(999, "rule");
    }
}

/// If a DEL of the reference has no result, the rules for the address stay, and another container gets the address.
#[test]
fn stale_rules_of_the_reference_for_an_address_do_not_stand_in_for_ours_and_add_deletes_them() {
    beyond_reference!("check-upgrade");
    for (release, variant) in Release::with_each("firewall", ["nft", "legacy"]) {
        let lab = Lab::new();
        let [former, pod] = ["former", "pod"].map(|id| lab.container(id));
        choose_tools(variant);
        let network = with_firewall(&lab);
        let theirs = network.clone().by_release(release).each(by_those_tools);
        theirs.add(&former, "eth0").ok_result();
        lab.host().sh("rm -r /run/lab/cache");
        theirs.del(&former, "eth0", &Value::Null).iter().for_each(Outcome::ok);
        // host-local would allocate the next address.
        lab.host().sh(&format!("rm -r {STORE}"));
        let rules = || lab.host().sh(&format!("iptables-{variant}-save -t filter"));
        let of_address = |line: &&str| line.starts_with("-A CNI-FORWARD ") && line.contains("10.1.2.2/32");
        let before = rules();
        let stale: Vec<_> = before.lines().filter(of_address).collect();
        assert_eq!(stale.len(), 2, "{release} {variant}: {before}");

        let result = network.add(&pod, "eth0").ok_result();
        assert!(!rules().contains("10.1.2.2/32"), "{release} {variant}: {}", rules());
        for rule in stale {
            lab.host().sh(&format!("iptables-{variant} {rule}"));
        }
        lab.host().sh("nft delete table inet ferrule");
        network.check(&pod, "eth0", &result)[1].refused(999, "net/pod/eth0");
    }
}

/// A network with a policy, on a separate bridge.
fn with_policy(lab: &Lab, name: &str, number: u8) {
    let (v4, v6) = (format!("10.1.{number}.0/24"), format!("fd00:1:{number}::/64"));
    let bridge = json!({
        "type": "bridge", "bridge": format!("br{number}"), "isDefaultGateway": true,
        "ipam": host_local(&[&[v4.as_str()], &[v6.as_str()]]),
    });
    let firewall = json!({"type": "firewall", "backend": "iptables", "ingressPolicy": "same-bridge"});
    let network = json!({"cniVersion": "1.0.0", "name": name, "plugins": [bridge, firewall]});
    lab.configure(&format!("{number}.conflist"), &network);
}

/// The reference's rules of `ingressPolicy` contain bridges, but no attachment.
#[test]
fn del_gc_and_repair_keep_an_ingress_policy_of_the_reference_and_repair_installs_ours_if_it_is_missing() {
    beyond_reference!("firewall-upgrade");
    for release in Release::with("firewall") {
        keep_the_policy_of(release);
    }
}

fn keep_the_policy_of(release: Release) {
    let lab = Lab::new();
    let [a, b, gone] = ["a", "b", "of-old-policy"].map(|id| lab.container(id));
    with_policy(&lab, "one", 3);
    with_policy(&lab, "two", 4);
    let ours = lab.cnitool();
    let theirs = ours.clone().by_release(release);
    for (network, pod) in [("one", "a"), ("two", "b"), ("one", "of-old-policy")] {
        theirs.says(&format!("add {network} {pod} --container-id {pod}"));
    }
    let _servers = ["10.1.4.2:80", "[fd00:1:4::2]:80"].map(|address| b.serve_tcp("b", address));
    let are_apart =
        || ["10.1.4.2:80", "[fd00:1:4::2]:80"].into_iter().all(|address| tcp_is_cut_off(&a, address));
    assert!(are_apart());
    let rules = |words: &str| {
        lab.host().sh(&format!("for t in iptables ip6tables; do $t-save | grep -- '^-A.*{words}' || :; done"))
    };
    let before = rules("");
    let repaired = ours.json("repair --all");
    assert_eq!((&repaired["repaired"], &repaired["whole"]), (&json!([]), &json!(3)));
    assert_eq!(rules(""), before);

    let stages = rules("CNI-ISOLATION");
    gone.vanish();
    ours.says("gc one");
    assert_eq!(rules("CNI-ISOLATION"), stages);
    for network in ["one", "two"] {
        ours.says(&format!("check {network} --all"));
    }
    assert!(are_apart());

    lab.host().sh("for t in iptables ip6tables; do $t -F CNI-ISOLATION-STAGE-1; done");
    assert!(tcp_says(&a, "10.1.4.2:80").is_some(), "what is lost is seen");
    let lost = ours.run("check one --all");
    assert!(!lost.succeeded(), "{lost:#?}");
    assert_eq!(ours.json("repair --all")["repaired"], json!(["one/a/eth0", "two/b/eth0"]));
    assert!(are_apart());
    for (network, pod) in [("one", "a"), ("two", "b")] {
        ours.says(&format!("check {network} --all"));
        ours.says(&format!("del {network} {pod} --container-id {pod}"));
    }
    assert!(!lab.host().sh("nft list ruleset").contains("table inet ferrule"));
    for bridge in ["br3", "br4"] {
        assert!(rules("CNI-ISOLATION").contains(bridge), "{release}: {}", rules(""));
    }
}
