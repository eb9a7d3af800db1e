//! Two machines with a flannel network: each has its own subnet, and a route to the other's, as flanneld's backend
//! host-gw adds it.

use std::fs;

use lab::{Call, Lab, Neighbour, Netns, beyond_reference, tcp_says};
use serde_json::{Value, json};

/// A pod on a machine, with its calls for DEL.
struct Pod {
    netns: Netns,
    flannel: Call,
    portmap: Call,
    result: Value,
}

/// Attaches a pod with host port 8080 on the n-th machine. Its flanneld has routed the other machine's subnets of both
/// families to that machine.
fn start(lab: &Lab, n: u8, flanneld_masquerades: bool) -> Pod {
    let other = 3 - n;
    fs::create_dir_all("/run/flannel").unwrap();
    let said = format!(
        "FLANNEL_NETWORK=10.42.0.0/16\nFLANNEL_SUBNET=10.42.{n}.1/24\nFLANNEL_IPV6_NETWORK=fd00:42::/56\n\
         FLANNEL_IPV6_SUBNET=fd00:42:0:{n}::1/64\nFLANNEL_MTU=1500\nFLANNEL_IPMASQ={flanneld_masquerades}\n"
    );
    fs::write("/run/flannel/subnet.env", said).unwrap();
    lab.host().sh(&format!(
        "ip route add 10.42.{other}.0/24 via 198.51.100.{other} dev uplink onlink
         ip route add fd00:42:0:{other}::/64 via 2001:db8:51::{other} dev uplink onlink"
    ));
    let pod = lab.container(&format!("pod{n}"));
    pod.sh("ip link set lo up");
    let delegate = json!({"hairpinMode": true, "isDefaultGateway": true});
    let flannel = lab.plugin("flannel").config(json!({"name": "cbr0", "delegate": delegate})).on(&pod);
    let mapping = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    let portmap = lab.plugin("portmap").config(json!({"name": "cbr0"})).on(&pod);
    let prev = flannel.add().ok_result();
    let portmap = portmap.config(json!({"runtimeConfig": {"portMappings": mapping}, "prevResult": prev}));
    let result = portmap.add().ok_result();
    Pod { netns: pod.netns, flannel, portmap, result }
}

fn stop(pod: &Pod) {
    pod.flannel.check(&pod.result).ok();
    pod.portmap.del().ok();
    pod.flannel.del().ok();
}

/// The pod's addresses, IPv4 first.
fn addresses(pod: &Pod) -> Vec<String> {
    let address = |ip: &Value| ip["address"].as_str().unwrap().split('/').next().unwrap().to_owned();
    pod.result["ips"].as_array().unwrap().iter().map(address).collect()
}

fn at(address: &str, port: u16) -> String {
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

/// Pods on both reach each other, by their addresses and by the other machine's host port.
fn reach_each_other(flanneld_masquerades: bool) {
    let lab = Lab::new();
    let second = Neighbour::of(&lab);
    let here = start(&lab, 1, flanneld_masquerades);
    let (far, to_far) = second.run(move |lab| {
        let pod = start(lab, 2, flanneld_masquerades);
        let to_pod = addresses(&pod);
        (pod, to_pod)
    });
    // The second machine's namespaces can only be entered there.
    let serving = to_far.clone();
    let (far, servers) = second.run(move |_| {
        let servers: Vec<_> = serving.iter().map(|ip| far.netns.serve_tcp("far", &at(ip, 80))).collect();
        (far, servers)
    });
    let own = addresses(&here);
    let machines = [["198.51.100.1", "2001:db8:51::1"], ["198.51.100.2", "2001:db8:51::2"]];
    for family in 0..2 {
        // If flanneld does not masquerade, the bridge does, for all destinations outside of its own subnet.
        let seen = if flanneld_masquerades { own[family].as_str() } else { machines[0][family] };
        let direct = tcp_says(&here.netns, &at(&to_far[family], 80));
        assert_eq!(direct, Some(format!("far {seen}")), "by the pod's address");
        let mapped = at(machines[1][family], 8080);
        assert_eq!(tcp_says(&here.netns, &mapped), Some(format!("far {seen}")), "by the host port");
        let by_host = tcp_says(lab.host(), &mapped);
        assert_eq!(by_host, Some(format!("far {}", machines[0][family])), "from the machine itself");
    }
    let _server = here.netns.serve_tcp("here", &at(&own[0], 80));
    let back = at(&own[0], 80);
    let (far, answer) = second.run(move |_| {
        let answer = tcp_says(&far.netns, &back);
        (far, answer)
    });
    assert!(answer.is_some_and(|answer| answer.starts_with("here ")), "the other way round");
    second.run(move |_| {
        drop(servers);
        stop(&far);
    });
    stop(&here);
}

#[test]
fn pods_on_two_machines_reach_each_other_where_flanneld_masquerades() {
    beyond_reference!("flannel");
    reach_each_other(true);
}

#[test]
fn pods_on_two_machines_reach_each_other_where_the_bridge_masquerades() {
    beyond_reference!("flannel");
    reach_each_other(false);
}
