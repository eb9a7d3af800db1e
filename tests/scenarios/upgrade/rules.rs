//! The reference's firewall rules on a host that switches to Ferrule, while containers run.

use std::fs;

use lab::{
    Call, Chain, Lab, Outcome, Release, beyond_reference, tcp_is_cut_off, tcp_is_refused, tcp_says,
    write_program,
};
use serde_json::{Value, json};

use crate::common::{dual_stack, host_local};

/// bridge with masquerade, and portmap. The reference installs their rules by iptables.
fn full_chain(lab: &Lab, keys: Value, host_port: u16) -> Chain {
    let mut bridge = dual_stack();
    bridge["type"] = json!("bridge");
    bridge["ipMasq"] = json!(true);
    if let Some(backend) = keys.get("backend") {
        bridge["ipMasqBackend"] = backend.clone();
    }
    let mut portmap = keys;
    portmap["type"] = json!("portmap");
    let mappings = ["tcp", "udp"]
        .map(|protocol| json!({"hostPort": host_port, "containerPort": 80, "protocol": protocol}));
    portmap["runtimeConfig"] = json!({"portMappings": mappings});
    lab.chain(json!({"cniVersion": "1.0.0", "name": "net", "plugins": [bridge, portmap]}))
}

/// The nat tables of iptables, without counters and times.
fn nat(lab: &Lab) -> Vec<String> {
    let saved = lab.host().sh("iptables-save -t nat; ip6tables-save -t nat");
    let lines = saved.lines().filter(|line| !line.starts_with('#'));
    let mut lines: Vec<_> = lines.map(|line| line.split(" [").next().unwrap().to_owned()).collect();
    lines.sort();
    lines
}

#[test]
fn our_del_removes_the_references_rules() {
    let lab = Lab::new();
    let far = lab.machine("far");
    let [stays, goes] = ["stays", "goes"].map(|id| lab.container(id));
    let [first, second] = [8080, 9090].map(|port| full_chain(&lab, json!({}), port));
    first.clone().each(Call::by_the_reference).add(&stays, "eth0").ok_result();
    let before = nat(&lab);
    let result = second.clone().each(Call::by_the_reference).add(&goes, "eth0").ok_result();
    assert_ne!(nat(&lab), before);

    second.del(&goes, "eth0", &result).iter().for_each(Outcome::ok);
    assert_eq!(nat(&lab), before);
    let _server = stays.serve_tcp("stays", "10.1.2.2:80");
    assert_eq!(tcp_says(&far, "198.51.100.1:8080").as_deref(), Some("stays 198.51.100.2"));
}

#[test]
fn the_references_rules_are_removed_without_namespace_and_prev_result() {
    beyond_reference!("rules-by-attachment");
    let lab = Lab::new();
    let [stays, goes] = ["stays", "of-old-rules"].map(|id| lab.container(id));
    let network = full_chain(&lab, json!({}), 8080);
    network.clone().each(Call::by_the_reference).add(&stays, "eth0").ok_result();
    let before = nat(&lab);
    network.clone().each(Call::by_the_reference).add(&goes, "eth0").ok_result();
    goes.vanish();
    for plugin in ["portmap", "bridge"] {
        let call = lab.plugin(plugin).on(&goes).without("CNI_NETNS");
        call.config(json!({"ipam": dual_stack()["ipam"]})).del().ok();
    }
    assert_eq!(nat(&lab), before);
}

#[test]
fn our_gc_removes_the_references_rules() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let [stays, goes] = ["stays", "of-old-rules-gc"].map(|id| lab.container(id));
    let [first, second] = [8080, 9090].map(|port| full_chain(&lab, json!({}), port));
    first.each(Call::by_the_reference).add(&stays, "eth0").ok_result();
    let before = nat(&lab);
    second.each(Call::by_the_reference).add(&goes, "eth0").ok_result();
    goes.vanish();
    for plugin in ["portmap", "bridge"] {
        let call = lab.plugin(plugin).config(json!({"ipam": dual_stack()["ipam"]}));
        call.gc(&[("stays", "eth0")]).ok();
    }
    assert_eq!(nat(&lab), before);
}

/// With nftables, only after the DEL of its container, because the chains of other programs come first.
#[test]
fn a_new_mapping_replaces_a_stale_mapping_of_the_reference() {
    beyond_reference!("newest-wins");
    for backend in ["nftables", "iptables"] {
        let lab = Lab::new();
        let far = lab.machine("far");
        let [stale, fresh] = ["stale", "fresh"].map(|id| lab.container(id));
        let network = full_chain(&lab, json!({"backend": backend}), 8080);
        let old = network.clone().each(Call::by_the_reference).add(&stale, "eth0").ok_result();
        network.add(&fresh, "eth0").ok_result();
        let _servers = [stale.serve_tcp("stale", "10.1.2.2:80"), fresh.serve_tcp("fresh", "10.1.2.3:80")];
        let answer = Some("fresh 198.51.100.2".to_owned());
        let is_first = tcp_says(&far, "198.51.100.1:8080") == answer;
        assert_eq!(is_first, backend == "iptables", "{backend}");
        network.del(&stale, "eth0", &old).iter().for_each(Outcome::ok);
        assert_eq!(tcp_says(&far, "198.51.100.1:8080"), answer, "{backend}");
        network.del(&fresh, "eth0", &old).iter().for_each(Outcome::ok);
        assert!(tcp_is_refused(&far, "198.51.100.1:8080"), "{backend}");
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
    let network = full_chain(&lab, json!({}), 8080).each(|call| call.env("PATH", "/run/lab/watched"));
    let result = network.add(&pod, "eth0").ok_result();
    network.del(&pod, "eth0", &result).iter().for_each(Outcome::ok);
    assert_eq!(fs::read_to_string(started).unwrap_or_default(), "");
}

/// Selects the variant of iptables for [`by_the_reference`]: a separate directory has its programs.
fn select_iptables(lab: &Lab, variant: &str) {
    let dir = lab.dir().join(variant);
    fs::create_dir(&dir).unwrap();
    for tool in ["iptables", "ip6tables"] {
        for verb in ["", "-save", "-restore"] {
            std::os::unix::fs::symlink(
                format!("/usr/sbin/{tool}-{variant}{verb}"),
                dir.join(format!("{tool}{verb}")),
            )
            .unwrap();
        }
    }
    lab.host().sh(&format!("echo '{}:/usr/sbin:/usr/bin:/sbin:/bin' >/run/lab/path", dir.display()));
}

/// A call of the reference's plugin, which finds the selected iptables.
fn by_the_reference(call: Call) -> Call {
    let path = fs::read_to_string("/run/lab/path").unwrap();
    call.by_the_reference().env("PATH", path.trim())
}

#[test]
fn check_accepts_the_references_rules_in_either_variant_of_iptables_and_notices_their_removal() {
    beyond_reference!("check-upgrade");
    for (variant, [first, second]) in [
        ("nft", ["iptables -t nat -F CNI-HOSTPORT-DNAT", "ip6tables -t nat -F POSTROUTING"]),
        ("legacy", ["iptables-legacy -t nat -F OUTPUT", "iptables-legacy -t nat -F POSTROUTING"]),
    ] {
        let lab = Lab::new();
        let pod = lab.container("pod");
        select_iptables(&lab, variant);
        let network = full_chain(&lab, json!({}), 8080);
        let result = network.clone().each(by_the_reference).add(&pod, "eth0").ok_result();
        network.check(&pod, "eth0", &result).iter().for_each(Outcome::ok);
        lab.host().sh(first);
        network.check(&pod, "eth0", &result)[1].refused(999, "net/pod/eth0");
        lab.host().sh(second);
        network.check(&pod, "eth0", &result)[0].refused(999, "net/pod/eth0");
    }
}

/// The chain with nftables for all rules, by release 1.9.1. None: it is not on this machine, and the test counts as
/// skipped.
fn by_nftables(lab: &Lab) -> Option<[Chain; 2]> {
    Release::with("tap").first()?;
    let ours = full_chain(lab, json!({"backend": "nftables"}), 8080);
    Some([ours.clone().each(|call| call.by_release(Release::V1_9_1)), ours])
}

#[test]
fn check_accepts_the_references_nftables_rules_and_notices_their_removal() {
    beyond_reference!("check-upgrade");
    for flushed in
        ["ip6 cni_hostport hostports", "ip cni_hostport prerouting", "ip cni_hostport hostports_all"]
    {
        let lab = Lab::new();
        let Some([theirs, ours]) = by_nftables(&lab) else { return };
        let pod = lab.container("pod");
        let result = theirs.add(&pod, "eth0").ok_result();
        ours.check(&pod, "eth0", &result).iter().for_each(Outcome::ok);
        lab.host().sh(&format!("nft flush chain {flushed}"));
        ours.check(&pod, "eth0", &result)[1].refused(999, "net/pod/eth0");
        lab.host().sh("nft flush chain inet cni_plugins_masquerade postrouting");
        ours.check(&pod, "eth0", &result)[0].refused(999, "net/pod/eth0");
    }
}

#[test]
fn nftables_rules_of_the_reference_are_deleted_by_our_del() {
    beyond_reference!("rules-by-attachment");
    let lab = Lab::new();
    let Some([theirs, ours]) = by_nftables(&lab) else { return };
    let [stays, goes] = ["stays", "goes"].map(|id| lab.container(id));
    let result = theirs.add(&stays, "eth0").ok_result();
    ours.check(&stays, "eth0", &result).iter().for_each(Outcome::ok);
    let rules = || lab.host().sh("nft list ruleset");
    let before = rules();
    let result = theirs.add(&goes, "eth0").ok_result();
    assert_ne!(rules(), before);
    ours.del(&goes, "eth0", &result).iter().for_each(Outcome::ok);
    assert_eq!(rules(), before);
}

#[test]
fn check_accepts_a_spoof_check_of_the_reference_and_notices_its_removal() {
    beyond_reference!("check-upgrade");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = lab.plugin("bridge").config(dual_stack()).config(json!({"macspoofchk": true})).on(&pod);
    let result = call.clone().by_the_reference().add().ok_result();
    call.check(&result).ok();
    lab.host().sh("nft flush ruleset");
    call.check(&result).refused(999, "net/pod/eth0");
}

/// The reference's rules of `ingressPolicy` are in iptables, with any backend.
#[test]
fn check_accepts_an_ingress_policy_of_the_reference_and_notices_its_removal() {
    beyond_reference!("check-upgrade");
    if Release::with("tap").is_empty() {
        return;
    }
    for (policy, loss) in [
        ("same-bridge", "iptables -F CNI-ISOLATION-STAGE-2"),
        ("same-bridge", "iptables -F FORWARD"),
        (
            "isolated",
            "iptables-save -t filter | grep -e '-i br0 -o br0' | sed 's/^-A/-D/' | xargs iptables -t filter",
        ),
    ] {
        let lab = Lab::new();
        let [stays, pod] = ["stays", "pod"].map(|id| lab.container(id));
        let mut bridge = dual_stack();
        bridge["type"] = json!("bridge");
        let firewall = json!({"type": "firewall", "backend": "iptables", "ingressPolicy": policy});
        let ours = lab.chain(json!({"cniVersion": "1.0.0", "name": "net", "plugins": [bridge, firewall]}));
        let theirs = ours.clone().each(|call| call.by_release(Release::V1_9_1));
        let [kept, result] = [&stays, &pod].map(|pod| theirs.add(pod, "eth0").ok_result());
        ours.check(&pod, "eth0", &result).iter().for_each(Outcome::ok);
        ours.del(&pod, "eth0", &result).iter().for_each(Outcome::ok);
        assert!(!lab.host().sh("iptables-save; ip6tables-save").contains("10.1.2.3/"), "{policy}");
        ours.check(&stays, "eth0", &kept).iter().for_each(Outcome::ok);
        lab.host().sh(loss);
        ours.check(&stays, "eth0", &kept)[1].refused(999, "isolat");
    }
}

/// The reference's rules for a bridge with the policy `isolated`. They stay after the last container.
fn isolate_as_the_reference(lab: &Lab, variant: &str) {
    let rules = "-N CNI-ISOLATION-STAGE-1
        -N CNI-ISOLATION-STAGE-2
        -I FORWARD -j CNI-ISOLATION-STAGE-1
        -A CNI-ISOLATION-STAGE-1 -i br0 -o br0 -j DROP
        -A CNI-ISOLATION-STAGE-1 -i br0 ! -o br0 -j CNI-ISOLATION-STAGE-2
        -A CNI-ISOLATION-STAGE-2 -o br0 -j DROP";
    for rule in rules.lines() {
        lab.host().sh(&format!("iptables-{variant} {}", rule.trim()));
    }
}

/// They contain only the bridge, and do not see frames between its ports.
#[test]
fn the_references_rules_for_a_bridge_do_not_stand_in_for_lost_isolation_of_our_containers() {
    beyond_reference!("check-upgrade");
    for variant in ["nft", "legacy"] {
        let lab = Lab::new();
        lab.host()
            .sh("for f in /proc/sys/net/bridge/bridge-nf-call-ip*tables; do [ ! -e $f ] || echo 0 >$f; done");
        let [a, b] = ["a", "b"].map(|id| lab.container(id));
        isolate_as_the_reference(&lab, variant);
        let mut bridge = dual_stack();
        bridge["type"] = json!("bridge");
        let firewall = json!({"type": "firewall", "ingressPolicy": "isolated"});
        let network = json!({"cniVersion": "1.0.0", "name": "net", "plugins": [bridge, firewall]});
        lab.configure("net.conflist", &network);
        let ours = lab.cnitool();
        for pod in ["a", "b"] {
            ours.says(&format!("add net {pod} --container-id {pod}"));
        }
        let _server = b.serve_tcp("b", "10.1.2.3:80");
        assert!(a.is_cut_off_from("10.1.2.3"), "{variant}");
        lab.host().sh("nft delete table bridge ferrule");
        assert!(tcp_says(&a, "10.1.2.3:80").is_some(), "{variant}: what is lost is seen");
        assert!(!ours.run("check net --all").succeeded(), "{variant}");
        assert_eq!(ours.json("repair --all")["repaired"], json!(["net/a/eth0", "net/b/eth0"]), "{variant}");
        assert!(a.is_cut_off_from("10.1.2.3"), "{variant}");
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
    for variant in ["nft", "legacy"] {
        let lab = Lab::new();
        let pod = lab.container("pod");
        select_iptables(&lab, variant);
        let network = with_firewall(&lab);
        let result = network.clone().each(by_the_reference).add(&pod, "eth0").ok_result();
        network.check(&pod, "eth0", &result).iter().for_each(Outcome::ok);
        lab.host().sh(&format!("iptables-{variant} -F CNI-FORWARD"));
        network.check(&pod, "eth0", &result)[1].refused(999, "rule");
    }
}

/// If a DEL of the reference has no result, the rules for the address stay, and another container gets the address.
#[test]
fn stale_rules_of_the_reference_for_an_address_do_not_stand_in_for_ours_and_add_deletes_them() {
    beyond_reference!("check-upgrade");
    for variant in ["nft", "legacy"] {
        let lab = Lab::new();
        let pod = lab.container("pod");
        let accept = format!(
            "iptables-{variant} -A CNI-FORWARD -s 10.1.2.2 -j ACCEPT
             iptables-{variant} -A CNI-FORWARD -d 10.1.2.2 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
        );
        lab.host().sh(&format!(
            "iptables-{variant} -N CNI-FORWARD; iptables-{variant} -A FORWARD -j CNI-FORWARD; {accept}"
        ));
        let rules = || lab.host().sh(&format!("iptables-{variant}-save -t filter"));
        let network = with_firewall(&lab);
        let result = network.add(&pod, "eth0").ok_result();
        assert!(!rules().contains("10.1.2.2/32"), "{variant}: {}", rules());
        lab.host().sh(&accept);
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
fn gc_and_repair_keep_an_ingress_policy_of_the_reference_and_repair_installs_ours_if_it_is_missing() {
    beyond_reference!("check-upgrade");
    if !Release::V1_9_1.is_here() {
        return;
    }
    let lab = Lab::new();
    let [a, b, gone] = ["a", "b", "of-old-policy"].map(|id| lab.container(id));
    with_policy(&lab, "one", 3);
    with_policy(&lab, "two", 4);
    let reference = Release::V1_9_1.place().display().to_string();
    let (theirs, ours) = (lab.cnitool().env("CNI_PATH", &reference), lab.cnitool());
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
}
