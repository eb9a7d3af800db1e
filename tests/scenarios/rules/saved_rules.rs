//! Rulesets that an administrator saves and restores, with tools of several releases.

use std::path::Path;

use lab::{Chain, Lab, Outcome, beyond_reference, quoted, tcp_is_cut_off, tcp_says, unpacked};
use serde_json::{Value, json};

use crate::common::dual_stack;

/// The commands `iptables-save`, `ip6tables-save` and their counterparts of a release, for a shell.
struct Tools {
    release: &'static str,
    setup: String,
}

impl Tools {
    /// The machine's tools, and 1.8.7 of Debian 11 if it has been unpacked.
    fn all() -> Vec<Self> {
        let here = Self { release: "the machine's", setup: String::new() };
        let old = unpacked("iptables-bullseye").map(|tree| Self::of_tree("1.8.7", &tree));
        [Some(here), old].into_iter().flatten().collect()
    }

    fn of_tree(release: &'static str, tree: &Path) -> Self {
        let tree = quoted(tree);
        let setup = format!(
            "LD_LIBRARY_PATH=$(echo {tree}/usr/lib/*-linux-gnu)
             XTABLES_LIBDIR=$LD_LIBRARY_PATH/xtables
             export LD_LIBRARY_PATH XTABLES_LIBDIR
             for family in ip ip6; do for verb in save restore; do
                 alias ${{family}}tables-$verb=\"{tree}/usr/sbin/xtables-nft-multi ${{family}}tables-$verb\"
             done; done
             "
        );
        Self { release, setup }
    }

    /// Saves the rules of both families, and restores them.
    fn round_trip(&self, lab: &Lab) {
        // An alias is defined only from the next line on.
        lab.host().sh(&format!(
            "{}
             iptables-save >/run/lab/saved4
             ip6tables-save >/run/lab/saved6
             iptables-restore </run/lab/saved4
             ip6tables-restore </run/lab/saved6",
            self.setup
        ));
    }
}

/// A bridge, ports and the firewall plugin, on a host that drops forwarded packets.
fn network(lab: &Lab, firewall: Value) -> Chain {
    let mut bridge = dual_stack();
    bridge["type"] = json!("bridge");
    bridge["ipMasq"] = json!(true);
    bridge["macspoofchk"] = json!(true);
    let ports =
        ["tcp", "udp"].map(|protocol| json!({"hostPort": 8080, "containerPort": 80, "protocol": protocol}));
    let portmap = json!({"type": "portmap", "runtimeConfig": {"portMappings": ports}});
    let mut plugin = firewall;
    plugin["type"] = json!("firewall");
    lab.chain(json!({"cniVersion": "1.0.0", "name": "net", "plugins": [bridge, portmap, plugin]}))
}

/// A network without containers. Its machine has 203.0.113.2.
fn unrelated(lab: &Lab) -> lab::Container {
    let other = lab.container("other");
    lab.host().sh(&format!(
        "ip link add other0 type veth peer name eth0 netns {}; ip addr add 203.0.113.1/24 dev other0; ip link set other0 up",
        other.name()
    ));
    other
        .sh("ip addr add 203.0.113.2/24 dev eth0; ip link set eth0 up; ip route add default via 203.0.113.1");
    other
}

const POLICY_DROP: &str = "iptables -P FORWARD DROP; ip6tables -P FORWARD DROP";

#[test]
fn after_iptables_save_and_restore_containers_pass_and_unrelated_networks_do_not() {
    beyond_reference!("firewall-nftables");
    for tools in Tools::all() {
        let lab = Lab::new();
        let (far, other, pod) = (lab.machine("far"), unrelated(&lab), lab.container("pod"));
        lab.host().sh(POLICY_DROP);
        let network = network(&lab, json!({}));
        let result = network.add(&pod, "eth0").ok_result();
        tools.round_trip(&lab);
        let _servers = [far.serve_tcp("far", "198.51.100.2:7"), far.serve_tcp("far", "[2001:db8:51::2]:7")];
        let release = tools.release;
        assert!(tcp_is_cut_off(&other, "198.51.100.2:7"), "{release}: {}", lab.host().sh("iptables-save"));
        assert!(tcp_says(&pod, "198.51.100.2:7").is_some(), "{release}");
        assert!(tcp_says(&pod, "[2001:db8:51::2]:7").is_some(), "{release}");
        network.check(&pod, "eth0", &result).iter().for_each(Outcome::ok);
        // The next attachment finds everything that it needs, and the last one removes it.
        let second = lab.container("second");
        let next = network.add(&second, "eth0").ok_result();
        network.check(&second, "eth0", &next).iter().for_each(Outcome::ok);
        network.del(&second, "eth0", &next).iter().for_each(Outcome::ok);
        network.del(&pod, "eth0", &result).iter().for_each(Outcome::ok);
        let left = lab.host().sh("iptables-save; ip6tables-save");
        assert!(!left.to_lowercase().contains("ferrule") && !left.contains("CNI-"), "{release}: {left}");
    }
}

/// iptables 1.8.7 leaves the rule of an older Ferrule version like this: it does not know the match.
#[test]
fn a_rule_that_accepts_everything_in_place_of_ours_is_noticed_and_replaced_by_the_next_add() {
    beyond_reference!("firewall-nftables");
    for tool in ["iptables", "iptables-legacy"] {
        let lab = Lab::new();
        let (far, other, pod) = (lab.machine("far"), unrelated(&lab), lab.container("pod"));
        lab.host().sh(&format!("{tool} -P FORWARD DROP"));
        let network = network(&lab, json!({}));
        let result = network.add(&pod, "eth0").ok_result();
        lab.host().sh(&format!(
            "number=$({tool} -S CNI-FORWARD | grep ^-A | grep -n 'mark bit 12' | cut -d: -f1)
             {tool} -R CNI-FORWARD $number -m comment --comment 'ferrule: mark bit 12' -j ACCEPT"
        ));
        let _server = far.serve_tcp("far", "198.51.100.2:7");
        assert!(tcp_says(&other, "198.51.100.2:7").is_some(), "the rule accepts everything");
        network.check(&pod, "eth0", &result)[2].refused(999, "CNI-FORWARD");
        let second = lab.container("second");
        network.add(&second, "eth0").ok_result();
        assert!(
            tcp_is_cut_off(&other, "198.51.100.2:7"),
            "{tool}: {}",
            lab.host().sh(&format!("{tool}-save"))
        );
        network.check(&pod, "eth0", &result).iter().for_each(Outcome::ok);
    }
}

/// The rule of older Ferrule versions.
#[test]
fn a_mark_rule_of_an_older_version_is_replaced_by_add() {
    beyond_reference!("firewall-nftables");
    let lab = Lab::new();
    let [pod, second] = ["pod", "second"].map(|id| lab.container(id));
    lab.host().sh(POLICY_DROP);
    lab.host().sh("for f in ip ip6; do nft add chain $f filter CNI-FORWARD
        nft add rule $f filter CNI-FORWARD meta mark and 0x1000 == 0x1000 accept comment '\"ferrule: mark bit 12\"'; done");
    let network = network(&lab, json!({}));
    let results = [&pod, &second].map(|pod| network.add(pod, "eth0").ok_result());
    let rules = lab.host().sh("nft --debug=netlink list chain ip filter CNI-FORWARD");
    assert!(rules.contains("match name mark") && !rules.contains("bitwise"), "{rules}");
    for (pod, result) in [&pod, &second].into_iter().zip(&results) {
        network.del(pod, "eth0", result).iter().for_each(Outcome::ok);
    }
    assert!(!lab.host().ruleset().contains("mark bit"));
}

#[test]
fn rules_and_chains_of_the_administrator_stay_after_the_last_containers_del() {
    beyond_reference!("firewall-nftables");
    for (tool, backend) in
        [("iptables", "nftables"), ("iptables", "iptables"), ("iptables-legacy", "nftables")]
    {
        for own in [
            "-N CNI-ADMIN",
            "-N MINE; T -N CNI-FORWARD; T -A CNI-FORWARD -j MINE",
            "-N CNI-FORWARD; T -A CNI-FORWARD -s 192.0.2.0/24 -j ACCEPT",
            "-N CNI-FORWARD; T -A FORWARD -j CNI-FORWARD",
        ] {
            let lab = Lab::new();
            let pod = lab.container("pod");
            lab.host()
                .sh(&format!("{tool} -P FORWARD DROP; {tool} {}", own.replace("T ", &format!("{tool} "))));
            let rules = || lab.host().sh(&format!("{tool} -S"));
            let before = rules();
            let prev = json!({"interfaces": [{"name": "eth0", "sandbox": pod.path()}],
                              "ips": [{"address": "10.1.2.2/24", "interface": 0}]});
            let call =
                lab.plugin("firewall").on(&pod).config(json!({"backend": backend, "prevResult": prev}));
            call.add().ok_result();
            assert_ne!(rules(), before);
            call.del().ok();
            let after = rules();
            assert!(before.lines().all(|line| after.contains(line)), "{tool}, {backend}, {own}: {after}");
            assert!(
                !after.contains("mark bit") && !after.contains("FERRULE"),
                "{tool}, {backend}, {own}: {after}"
            );
        }
    }
}

/// Rules that are added while containers run, in chains that the plugin has created.
#[test]
fn a_rule_that_an_administrator_adds_to_cni_forward_keeps_the_chain() {
    beyond_reference!("firewall-nftables");
    for (tool, backend) in
        [("iptables", "nftables"), ("iptables", "iptables"), ("iptables-legacy", "nftables")]
    {
        for rule in ["-s 192.0.2.0/24 -j ACCEPT", "-j MINE", "-j LOG"] {
            let lab = Lab::new();
            let pod = lab.container("pod");
            lab.host().sh(&format!("{tool} -P FORWARD DROP; {tool} -N MINE"));
            let prev = json!({"interfaces": [{"name": "eth0", "sandbox": pod.path()}],
                              "ips": [{"address": "10.1.2.2/24", "interface": 0}]});
            let call =
                lab.plugin("firewall").on(&pod).config(json!({"backend": backend, "prevResult": prev}));
            call.add().ok_result();
            lab.host().sh(&format!("{tool} -A CNI-FORWARD {rule}"));
            call.del().ok();
            let left = lab.host().sh(&format!("{tool} -S"));
            assert!(left.contains(&format!("-A CNI-FORWARD {rule}")), "{tool}, {backend}: {left}");
            assert!(left.contains("-j CNI-FORWARD") && left.contains("-N MINE"), "{tool}, {backend}: {left}");
            assert!(!left.contains("mark bit") && !left.contains("FERRULE"), "{tool}, {backend}: {left}");
        }
    }
}

/// The machine's nft(8), and the newest of Debian if it has been unpacked.
fn nfts() -> Vec<String> {
    let newest = unpacked("nftables-unstable").map(|tree| {
        let tree = quoted(&tree);
        format!("\"$(find {tree}/usr/lib* -name 'ld-linux-*' | head -n 1)\" --library-path \"$(echo {tree}/usr/lib/*-linux-gnu)\" {tree}/usr/sbin/nft")
    });
    [Some("nft".to_owned()), newest].into_iter().flatten().collect()
}

/// Rules by their expressions, in their order, without handles and counters. Elements are sorted.
fn kernel_state(lab: &Lab, nft: &str) -> [Vec<String>; 2] {
    let listed = lab.host().sh(&format!("{nft} --debug=netlink list ruleset"));
    let text = lab.host().sh(&format!("{nft} -s list ruleset"));
    let is_rule = |line: &&str| line.starts_with("  [ ") && !line.contains("counter");
    let rules = listed.lines().filter(is_rule).map(str::to_owned).collect();
    let words = text.replace(['{', '}', '\n'], ",");
    let mut elements: Vec<String> = words.split(',').map(|word| word.trim().to_owned()).collect();
    elements.sort();
    [rules, elements]
}

#[test]
fn a_ruleset_saved_and_loaded_by_nft_is_unchanged() {
    beyond_reference!("firewall-nftables");
    for nft in nfts() {
        let lab = Lab::new();
        let [pod, second] = ["pod", "second"].map(|id| lab.container(id));
        let network = network(&lab, json!({"ingressPolicy": "isolated"}));
        let result = network.add(&pod, "eth0").ok_result();
        let with_conditions = lab.plugin("portmap").on(&pod).config(json!({
            "name": "net2", "prevResult": result, "snat": false, "conditionsV4": ["ip", "saddr", "!=", "192.0.2.9"],
            "runtimeConfig": {"portMappings": [{"hostPort": 81, "containerPort": 80, "protocol": "tcp", "hostIP": "127.0.0.1"},
                                               {"hostPort": 82, "containerPort": 80, "protocol": "tcp"}]},
        }));
        with_conditions.add().ok_result();
        let ptp = lab.plugin("ptp").on(&second).config(json!({"name": "net3", "ipMasq": true}));
        let ptp = ptp.config(json!({"ipam": {"type": "host-local", "subnet": "10.9.0.0/20"}}));
        let routed = ptp.add().ok_result();
        let before = kernel_state(&lab, &nft);
        assert!(before[0].len() > 100, "{before:#?}");
        lab.host()
            .sh(&format!("{nft} list ruleset >/run/lab/saved; nft flush ruleset; {nft} -f /run/lab/saved"));
        assert_eq!(kernel_state(&lab, &nft), before, "{nft}");
        network.check(&pod, "eth0", &result).iter().for_each(Outcome::ok);
        with_conditions.check(&result).ok();
        ptp.check(&routed).ok();
        with_conditions.del().ok();
        ptp.del().ok();
        network.del(&pod, "eth0", &result).iter().for_each(Outcome::ok);
        assert_eq!(lab.host().ruleset(), "", "{nft}");
    }
}
