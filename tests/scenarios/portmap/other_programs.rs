//! Host ports next to nat rules of other programs, which come first.

use lab::{Lab, Netns, Outcome, Release, Tool, beyond_reference, tcp_says, under_test};
use serde_json::{Value, json};

use super::*;

/// The rules of kube-proxy in IPVS mode for the service `kubernetes`, whose address is the node's own.
fn with_ipvs(host: &Netns) {
    host.sh("ip link add kube-ipvs0 type bridge; ip addr add 10.96.0.1/32 dev kube-ipvs0
        iptables -t nat -N KUBE-SERVICES
        for chain in PREROUTING OUTPUT; do iptables -t nat -I $chain -j KUBE-SERVICES; done
        iptables -t nat -A KUBE-SERVICES -d 10.96.0.1/32 -p tcp --dport 443 -j ACCEPT");
}

const API: &str = "10.96.0.1:443";

fn https() -> Value {
    json!([port("tcp", 443, 80)])
}

/// cnitool with these host ports, on a network of bridge and portmap.
fn cnitool(lab: &Lab, mappings: &Value) -> Tool {
    let mut bridge = dual_stack();
    bridge["type"] = json!("bridge");
    let plugins = json!([bridge, {"type": "portmap", "capabilities": {"portMappings": true}}]);
    lab.configure("10-net.conflist", &json!({"cniVersion": "1.0.0", "name": "net", "plugins": plugins}));
    lab.cnitool().env("CAP_ARGS", &json!({"portMappings": mappings}).to_string())
}

fn hide_iptables(host: &Netns) {
    host.sh("for tool in iptables-restore iptables-save; do
             mount --bind /dev/null $(readlink -f /usr/sbin/$tool)
         done");
}

/// Backends, and the one that portmap selects.
fn defaults() -> Vec<Value> {
    if under_test().reference { vec![by("iptables")] } else { vec![json!({}), by("iptables")] }
}

#[test]
fn a_host_port_does_not_redirect_connections_to_services_of_kube_proxy_in_ipvs_mode() {
    // https://github.com/kubernetes/kubernetes/issues/66103
    for keys in defaults() {
        let lab = Lab::new();
        let ([pod, other], far) = (["pod", "other"].map(|id| lab.container(id)), lab.machine("far"));
        with_ipvs(lab.host());
        let rules = || {
            lab.host().sh("iptables-save -t nat | grep -v '^[#:]'; nft list tables | grep ferrule || true")
        };
        let before = rules();
        let network = network(&lab, &keys, https());
        let result = network.add(&pod, "eth0").ok_result();
        super::network(&lab, &keys, json!([])).add(&other, "eth0").ok_result();
        let _servers = [lab.host().serve_tcp("api", API), pod.serve_tcp("pod", &at(POD[0], 80))];
        for from in [lab.host(), &*pod, &*other] {
            let answer = tcp_says(from, API).unwrap_or_default();
            assert!(answer.starts_with("api"), "{keys}: {}: {answer}", from.name());
        }
        assert_eq!(tcp_says(&far, &at(HOST[0], 443)), pod_sees(FAR[0]), "{keys}");
        if !under_test().reference {
            network.check(&pod, "eth0", &result).iter().for_each(Outcome::ok);
            network.del(&pod, "eth0", &result).iter().for_each(Outcome::ok);
            assert_eq!(rules(), before, "{keys}");
        }
    }
}

/// kube-proxy changes its mode while containers run.
#[test]
fn attachments_from_before_and_from_after_the_change_to_ipvs_pass_check_and_are_repaired_and_deleted() {
    beyond_reference!("nat-exemptions");
    let lab = Lab::new();
    let (containers, far) = (["before", "after"].map(|id| lab.container(id)), lab.machine("far"));
    let tool = |port| cnitool(&lab, &json!([super::port("tcp", port, 80), super::port("udp", port, 80)]));
    let pods = [("before", 8080), ("after", 8081)];
    tool(8080).says("add net before --container-id before");
    with_ipvs(lab.host());
    tool(8081).says("add net after --container-id after");
    let _servers =
        [containers[0].serve_tcp("before", "10.1.2.2:80"), containers[1].serve_tcp("after", "10.1.2.3:80")];
    let in_iptables = || {
        let saved = lab.host().sh("iptables-save -t nat");
        ["10.1.2.2:80", "10.1.2.3:80"].map(|to| saved.contains(to))
    };
    assert_eq!(in_iptables(), [false, true]);
    let answer = |number: usize| {
        let (name, port) = pods[number];
        assert_eq!(tcp_says(&far, &at(HOST[0], port)), Some(format!("{name} 198.51.100.2")), "{name}");
    };
    [0, 1].into_iter().for_each(answer);
    tool(0).says("check net --all");
    // The guard of 127.0.0.1 that host ports in iptables need. The host ports stay where they are.
    assert_eq!(tool(0).json("repair --all")["repaired"], json!(["net/before/eth0"]));
    assert_eq!(in_iptables(), [false, true]);
    for is_ipvs in [true, false] {
        if !is_ipvs {
            lab.host().sh("ip link del kube-ipvs0");
        }
        [0, 1].into_iter().for_each(answer);
        tool(0).says("check net --all");
        assert_eq!(tool(0).json("repair --all")["repaired"], json!([]), "{is_ipvs}");
    }
    lab.host().sh("ip link add kube-ipvs0 type bridge; nft flush ruleset");
    assert_eq!(tool(0).json("repair --all")["repaired"], json!(["net/before/eth0", "net/after/eth0"]));
    assert_eq!(in_iptables(), [true, true]);
    [0, 1].into_iter().for_each(answer);
    tool(0).says("check net --all");
    lab.host().sh("ip link del kube-ipvs0");
    for (pod, _) in pods {
        tool(0).says(&format!("del net {pod} --container-id {pod}"));
    }
    assert_eq!(
        lab.host().sh("iptables-save | grep -i ferrule || true; nft list tables | grep ferrule || true"),
        ""
    );
}

/// kube-proxy changes its mode while a container runs, and then another program deletes one of its host ports.
#[test]
fn check_names_the_host_port_that_nftables_lacks_and_a_repair_with_iptables_removes_the_others() {
    beyond_reference!("nat-exemptions");
    let lab = Lab::new();
    let (pod, far) = (lab.container("pod"), lab.machine("far"));
    let tool = cnitool(&lab, &json!([port("tcp", 8080, 80), port("udp", 5353, 53)]));
    tool.says("add net pod --container-id pod");
    with_ipvs(lab.host());
    lab.host().sh("nft delete element inet ferrule hostport4 '{ tcp . 8080 }'");
    let checked = tool.run("check net --all");
    assert!(checked.exit == Some(1), "{checked:#?}");
    assert!(checked.stderr.contains("the nftables rules of net/pod/eth0"), "{checked:#?}");
    assert_eq!(tool.json("repair --all")["repaired"], json!(["net/pod/eth0"]));
    let in_nftables = lab.host().sh("nft list table inet ferrule");
    assert!(!in_nftables.contains("hostports net/pod/eth0"), "{in_nftables}");
    assert!(!in_nftables.contains("5353"), "{in_nftables}");
    assert!(in_nftables.contains("loopback net/pod/eth0") && in_nftables.contains("martians from loopback"));
    let _server = pod.serve_tcp("pod", &at(POD[0], 80));
    assert_eq!(tcp_says(&far, &at(HOST[0], 8080)), pod_sees(FAR[0]));
    tool.says("check net --all");
    tool.says("del net pod --container-id pod");
    assert_eq!(
        lab.host().sh("iptables-save | grep -i ferrule || true; nft list tables | grep ferrule || true"),
        ""
    );
}

#[test]
fn without_iptables_host_ports_on_an_ipvs_node_are_in_nftables_with_a_warning() {
    beyond_reference!("nat-exemptions");
    let lab = Lab::new();
    let (pod, far) = (lab.container("pod"), lab.machine("far"));
    with_ipvs(lab.host());
    lab.host().sh("mount --bind /dev/null $(readlink -f /usr/sbin/iptables-restore)");
    let network = network(&lab, &json!({}), https());
    let added = network.add(&pod, "eth0");
    let result = added.ok_result();
    assert!(added.stderr.contains("kube-ipvs0") && added.stderr.contains("hostIP"), "{added:#?}");
    let _server = pod.serve_tcp("pod", &at(POD[0], 80));
    assert_eq!(tcp_says(&far, &at(HOST[0], 443)), pod_sees(FAR[0]));
    for outcome in network.check(&pod, "eth0", &result).into_iter().chain(network.del(&pod, "eth0", &result))
    {
        outcome.ok();
        assert_eq!(outcome.stderr, "");
    }
    lab.plugin("portmap").status().ok();
    let named = super::network(&lab, &by("nftables"), https()).add(&pod, "eth0");
    named.ok_result();
    assert_eq!(named.stderr, "");
}

/// Such as the DaemonSet for repairs, whose image has no iptables.
#[test]
fn a_repair_without_iptables_leaves_host_ports_of_an_ipvs_node_as_they_are() {
    beyond_reference!("nat-exemptions");
    let lab = Lab::new();
    let pod = lab.container("pod");
    with_ipvs(lab.host());
    let tool = cnitool(&lab, &https());
    tool.says("add net pod --container-id pod");
    let _servers = [lab.host().serve_tcp("api", API), pod.serve_tcp("pod", &at(POD[0], 80))];
    hide_iptables(lab.host());
    let repaired = tool.run("repair --all");
    assert!(repaired.exit == Some(1) && repaired.stderr.contains("iptables-restore"), "{repaired:#?}");
    for from in [lab.host(), &*pod] {
        assert!(tcp_says(from, API).unwrap_or_default().starts_with("api"), "{}", from.name());
    }
}

/// The host of the ADD lacks iptables, too.
#[test]
fn a_repair_without_iptables_restores_host_ports_that_are_in_nftables_on_an_ipvs_node() {
    beyond_reference!("nat-exemptions");
    let lab = Lab::new();
    let (pod, far) = (lab.container("pod"), lab.machine("far"));
    with_ipvs(lab.host());
    hide_iptables(lab.host());
    let tool = cnitool(&lab, &json!([port("tcp", 8080, 80)]));
    tool.says("add net pod --container-id pod");
    lab.host().sh("nft delete element inet ferrule hostport4 '{ tcp . 8080 }'");
    assert_eq!(tool.run("check net --all").exit, Some(1));
    assert_eq!(tool.json("repair --all")["repaired"], json!(["net/pod/eth0"]));
    tool.says("check net --all");
    let _server = pod.serve_tcp("pod", &at(POD[0], 80));
    assert_eq!(tcp_says(&far, &at(HOST[0], 8080)), pod_sees(FAR[0]));
}

/// After a boot, a container may start before kube-proxy.
#[test]
fn check_warns_of_host_ports_from_before_the_link_of_kube_proxy() {
    beyond_reference!("nat-exemptions");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let network = network(&lab, &json!({}), https());
    let result = network.add(&pod, "eth0").ok_result();
    let warnings = || {
        network
            .check(&pod, "eth0", &result)
            .into_iter()
            .map(|outcome| {
                outcome.ok();
                outcome.stderr
            })
            .collect::<String>()
    };
    assert_eq!(warnings(), "");
    with_ipvs(lab.host());
    assert!(warnings().contains("kube-ipvs0") && warnings().contains("create the container again"));
}

/// CVE-2019-9946: the reference's host ports once preceded the rules of Kubernetes.
#[test]
fn a_redirection_by_a_nat_rule_of_another_program_precedes_a_host_port() {
    with_each_backend(|lab, keys| {
        let ([pod, theirs], far) = (["pod", "theirs"].map(|id| lab.container(id)), lab.machine("far"));
        network(lab, keys, json!([])).add(&theirs, "eth0").ok_result();
        lab.host().sh("for chain in PREROUTING OUTPUT; do
            iptables -t nat -A $chain -m addrtype --dst-type LOCAL -p tcp --dport 8080 -j DNAT --to-destination 10.1.2.2:80
            done");
        network(lab, keys, json!([port("tcp", 8080, 80), port("tcp", 8081, 80)]))
            .add(&pod, "eth0")
            .ok_result();
        let _servers = [theirs.serve_tcp("theirs", "10.1.2.2:80"), pod.serve_tcp("pod", "10.1.2.3:80")];
        for from in [lab.host(), &far] {
            let says = |port| tcp_says(from, &at(HOST[0], port)).unwrap_or_default();
            assert!(says(8080).starts_with("theirs"), "{keys}: {}", says(8080));
            assert!(says(8081).starts_with("pod"), "{keys}: {}", says(8081));
        }
    });
}

/// A container of the reference that has exited without a DEL.
#[test]
fn a_stale_mapping_of_the_reference_does_not_precede_one_of_the_iptables_backend() {
    beyond_reference!("newest-wins");
    for release in Release::with("portmap") {
        let lab = Lab::new();
        let ([stale, pod], far) = (["stale", "pod"].map(|id| lab.container(id)), lab.machine("far"));
        let network = network(&lab, &by("iptables"), web());
        network.clone().by_release(release).add(&stale, "eth0").ok_result();
        network.add(&pod, "eth0").ok_result();
        let _servers = [stale.serve_tcp("stale", "10.1.2.2:80"), pod.serve_tcp("pod", "10.1.2.3:80")];
        for from in [lab.host(), &far] {
            let answer = tcp_says(from, &at(HOST[0], 8080));
            assert!(answer.is_some_and(|answer| answer.starts_with("pod")), "{release}");
        }
    }
}
