//! The firewall plugin with other programs' firewalls that drop forwarded packets.

mod reference;
mod zones;

use std::fs;

use lab::{Chain, Lab, Netns, Outcome, beyond_reference, tcp_is_cut_off, tcp_says, write_program};
use serde_json::{Value, json};

use crate::common::{both_families, by_those_tools, choose_tools, dual_stack};

/// A bridge with a host port and the firewall plugin, as nerdctl configures them, in both families.
fn network(lab: &Lab, firewall: Value) -> Chain {
    let mut bridge = dual_stack();
    bridge["type"] = json!("bridge");
    let mapping = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    let portmap = json!({"type": "portmap", "runtimeConfig": {"portMappings": mapping}});
    let mut plugin = firewall;
    plugin["type"] = json!("firewall");
    lab.chain(json!({"cniVersion": "1.0.0", "name": "net", "plugins": [bridge, portmap, plugin]}))
}

/// A container with a server in it, and a server on another machine.
struct Traffic<'a> {
    pod: &'a Netns,
    far: &'a Netns,
}

impl Traffic<'_> {
    /// Connections of the container and to its host port work, over both families.
    fn flows(&self, host: &str) {
        let _servers = [
            self.far.serve_tcp("far", "198.51.100.2:7"),
            self.far.serve_tcp("far", "[2001:db8:51::2]:7"),
            self.pod.serve_tcp("pod", "10.1.2.2:80"),
            self.pod.serve_tcp("pod", "[fd00:1:2::2]:80"),
        ];
        for (from, to, answer) in [
            (self.pod, "198.51.100.2:7", "far 10.1.2.2"),
            (self.pod, "[2001:db8:51::2]:7", "far fd00:1:2::2"),
            (self.far, "198.51.100.1:8080", "pod 198.51.100.2"),
            (self.far, "[2001:db8:51::1]:8080", "pod 2001:db8:51::2"),
        ] {
            assert_eq!(tcp_says(from, to).as_deref(), Some(answer), "{host}, to {to}");
        }
    }
}

const DROP: &str = "$tool -P FORWARD DROP";

/// Docker's rules, before all later ones.
const DOCKER: &str = "$tool -P FORWARD DROP
    for chain in DOCKER DOCKER-USER DOCKER-ISOLATION-STAGE-1 DOCKER-ISOLATION-STAGE-2; do $tool -N $chain; done
    $tool -A DOCKER-USER -j RETURN
    $tool -A DOCKER-ISOLATION-STAGE-1 -i docker0 ! -o docker0 -j DOCKER-ISOLATION-STAGE-2
    $tool -A DOCKER-ISOLATION-STAGE-1 -j RETURN
    $tool -A DOCKER-ISOLATION-STAGE-2 -o docker0 -j DROP
    $tool -A DOCKER-ISOLATION-STAGE-2 -j RETURN
    $tool -A FORWARD -j DOCKER-USER
    $tool -A FORWARD -j DOCKER-ISOLATION-STAGE-1
    $tool -A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
    $tool -A FORWARD -o docker0 -j DOCKER
    $tool -A FORWARD -i docker0 ! -o docker0 -j ACCEPT
    $tool -A FORWARD -i docker0 -o docker0 -j ACCEPT";

/// ufw's rules when it is enabled: by the restore tool, with its chains around the administrator's.
const UFW: &str = "case $tool in ip6*) u=ufw6;; *) u=ufw;; esac
    $tool-restore -n <<END
*filter
:FORWARD DROP [0:0]
:$u-before-logging-forward - [0:0]
:$u-before-forward - [0:0]
:$u-after-forward - [0:0]
:$u-after-logging-forward - [0:0]
:$u-reject-forward - [0:0]
:$u-user-forward - [0:0]
-A FORWARD -j $u-before-logging-forward
-A FORWARD -j $u-before-forward
-A FORWARD -j $u-after-forward
-A FORWARD -j $u-after-logging-forward
-A FORWARD -j $u-reject-forward
-A $u-before-forward -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A $u-before-forward -j $u-user-forward
COMMIT
END";

fn hosts() -> Vec<(&'static str, &'static str, String)> {
    vec![
        ("a policy by iptables-nft", "nft", both_families("nft", DROP)),
        ("a policy by iptables-legacy", "legacy", both_families("legacy", DROP)),
        ("Docker's rules", "nft", both_families("nft", DOCKER)),
        ("Docker's rules in legacy tables", "legacy", both_families("legacy", DOCKER)),
        ("ufw's rules", "nft", both_families("nft", UFW)),
        ("ufw's rules in legacy tables", "legacy", both_families("legacy", UFW)),
    ]
}

#[test]
fn traffic_and_host_ports_pass_each_hosts_firewall_by_each_backend_and_del_restores_it() {
    beyond_reference!("firewall-host-ports");
    for backend in ["nftables", "iptables"] {
        for (host, variant, rules) in hosts() {
            let lab = Lab::new();
            let (pod, far) = (lab.container("pod"), lab.machine("far"));
            choose_tools(variant);
            lab.host().sh(&rules);
            let (host, before) = (format!("{backend} with {host}"), lab.host().filters());
            let network = network(&lab, json!({"backend": backend})).each(by_those_tools);
            let result = network.add(&pod, "eth0").ok_result();
            Traffic { pod: &pod, far: &far }.flows(&host);
            network.check(&pod, "eth0", &result).iter().for_each(Outcome::ok);
            network.del(&pod, "eth0", &result).iter().for_each(Outcome::ok);
            assert_eq!(lab.host().filters(), before, "{host}");
        }
    }
}

trait Filters {
    fn filters(&self) -> String;
}

impl Filters for Netns {
    /// All rules of both variants, without counters and times.
    fn filters(&self) -> String {
        // The legacy tool would create the table that it lists.
        let saved = self.sh("for family in iptables ip6tables; do
            $family-nft-save -t filter 2>/dev/null || true
            if grep -q filter /proc/thread-self/net/$(echo $family | sed s/tables/_tables/)_names; then
                echo legacy; $family-legacy-save -t filter; fi; done
            nft list tables | grep ferrule || true");
        let lines = saved.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.split(" [").next().unwrap_or(line).to_owned() + "\n").collect()
    }
}

#[test]
fn with_a_policy_of_drop_only_the_administrators_rules_allow_new_connections_to_a_container() {
    beyond_reference!("firewall-host-ports");
    for backend in ["nftables", "iptables"] {
        let lab = Lab::new();
        let (pod, far) = (lab.container("pod"), lab.machine("far"));
        lab.host().sh(&both_families("nft", DROP));
        let result = network(&lab, json!({"backend": backend, "iptablesAdminChainName": "OURS"}))
            .add(&pod, "eth0")
            .ok_result();
        let _server = pod.serve_tcp("pod", "10.1.2.2:80");
        assert!(tcp_is_cut_off(&far, "10.1.2.2:80"), "{backend}");
        lab.host().sh("iptables-nft -A OURS -p tcp --dport 80 -j ACCEPT");
        assert_eq!(tcp_says(&far, "10.1.2.2:80").as_deref(), Some("pod 198.51.100.2"), "{backend}");
        // The administrator's rules stay.
        let network = network(&lab, json!({"backend": backend, "iptablesAdminChainName": "OURS"}));
        network.del(&pod, "eth0", &result).iter().for_each(Outcome::ok);
        assert!(lab.host().sh("iptables-nft -S OURS").contains("--dport 80 -j ACCEPT"), "{backend}");
    }
}

#[test]
fn rules_of_the_iptables_backend_are_removed_without_namespace_and_prev_result_and_by_gc() {
    beyond_reference!("firewall-by-owner");
    let lab = Lab::new();
    let [stays, goes, dies] = ["stays", "of-iptables", "dies"].map(|id| lab.container(id));
    lab.host().sh(&both_families("nft", DROP));
    let first = lab.host().filters();
    let firewall = |address: &str| {
        let prev = json!({
            "cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "/run/netns/x"}],
            "ips": [{"address": format!("{address}/24"), "interface": 0}, {"address": "fd00:1:2::2/64", "interface": 0}],
        });
        lab.plugin("firewall").config(json!({"name": "net", "backend": "iptables", "prevResult": prev}))
    };
    firewall("10.1.2.2").on(&stays).add().ok_result();
    let before = lab.host().filters();
    assert_ne!(before, first);
    firewall("10.1.2.3").on(&goes).add().ok_result();
    firewall("10.1.2.4").on(&dies).add().ok_result();
    goes.vanish();
    let bare = lab.plugin("firewall").config(json!({"name": "net"}));
    bare.clone().on(&goes).without("CNI_NETNS").del().ok();
    bare.gc(&[("stays", "eth0")]).ok();
    assert_eq!(lab.host().filters(), before);
    // A late DEL with another container's address removes nothing of that container.
    firewall("10.1.2.2").on(&goes).without("CNI_NETNS").del().ok();
    assert_eq!(lab.host().filters(), before);
    bare.gc(&[]).ok();
    assert_eq!(lab.host().filters(), first);
}

#[test]
fn the_iptables_backend_needs_no_ip6tables_for_an_ipv4_only_container() {
    beyond_reference!("firewall-by-owner");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let bin = lab.dir().join("bin");
    fs::create_dir(&bin).unwrap();
    for tool in ["restore", "save"] {
        let script = format!("#!/bin/sh\nexec /usr/sbin/iptables-{tool} \"$@\"\n");
        write_program(&bin.join(format!("iptables-{tool}")), &script);
        let script = "#!/bin/sh\necho 'there is no ip6tables' >&2\nexit 1\n";
        write_program(&bin.join(format!("ip6tables-{tool}")), script);
    }
    let prev = json!({
        "cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "/run/netns/x"}],
        "ips": [{"address": "10.1.2.2/24", "interface": 0}],
    });
    let call = lab.plugin("firewall").on(&pod).config(json!({"backend": "iptables", "prevResult": prev}));
    let call = call.env("PATH", "/run/lab/bin");
    call.add().ok_result();
    call.del().ok();
}
