//! Two machines with a flannel network, and routes to each other's subnets.

use std::fs;
use std::net::{IpAddr, SocketAddr};

use lab::{Echo, Lab, Neighbour, Netns, tcp_says, under_test};
use runtime::{AttachmentParameters, Cache, Network, Runtime};
use serde_json::json;

use crate::chains;
use crate::network::{CACHE, IFNAME};
use crate::show::{bad, good};

/// A pod on a machine, with its calls for DEL.
struct Pod {
    netns: Netns,
    network: Network,
    runtime: Runtime,
    attach: AttachmentParameters,
    addresses: Vec<IpAddr>,
}

/// Does flanneld's work on the n-th machine (a file, and routes), and attaches a pod.
fn start(lab: &Lab, n: u8) -> Pod {
    let other = 3 - n;
    fs::create_dir_all("/run/flannel").expect("create flanneld's directory");
    let said = format!(
        "FLANNEL_NETWORK=10.42.0.0/16\nFLANNEL_SUBNET=10.42.{n}.1/24\nFLANNEL_IPV6_NETWORK=fd00:42::/56\n\
         FLANNEL_IPV6_SUBNET=fd00:42:0:{n}::1/64\nFLANNEL_MTU=1500\nFLANNEL_IPMASQ=true\n"
    );
    fs::write("/run/flannel/subnet.env", said).expect("write flanneld's file");
    lab.host().sh(&format!(
        "ip route add 10.42.{other}.0/24 via 198.51.100.{other}
         ip route add fd00:42:0:{other}::/64 via 2001:db8:51::{other}"
    ));
    let container = lab.container(&format!("pod{n}"));
    container.sh("ip link set lo up");
    let network = chains::of_the_machines().to_string();
    let network = Network::from_bytes(network.as_bytes()).expect("a network's configuration");
    let runtime = Runtime::new([under_test().dir.as_path()]).cache(Cache::new(CACHE));
    let ports = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    let attach = AttachmentParameters::new(&container.id, IFNAME).expect("names that the protocol takes");
    let attach = attach.netns(container.path()).capability("portMappings", ports);
    let result = runtime.add(&network, &attach).expect("ADD");
    let addresses = result.ips.iter().map(|ip| ip.address.ip()).collect();
    Pod { netns: container.netns, network, runtime, attach, addresses }
}

fn serve(pod: &Pod) -> Vec<Echo> {
    let at = |ip: &IpAddr| SocketAddr::new(*ip, 80).to_string();
    pod.addresses.iter().map(|ip| pod.netns.serve_tcp("pod2", &at(ip))).collect()
}

fn stop(pod: &Pod) {
    pod.runtime.check(&pod.network, &pod.attach).expect("CHECK");
    pod.runtime.del(&pod.network, &pod.attach).expect("DEL");
}

/// Attaches a pod on each machine, and returns which plugins worked.
pub fn reach_each_other() -> [(&'static str, bool); 2] {
    let lab = Lab::new();
    let second = Neighbour::of(&lab);
    let here = start(&lab, 1);
    let (there, to, servers) = second.run(|lab| {
        let pod = start(lab, 2);
        let (to, servers) = (pod.addresses.clone(), serve(&pod));
        (pod, to, servers)
    });
    let row = |from: &Netns, who: &str, to: SocketAddr, what: &str| {
        let answer = tcp_says(from, &to.to_string());
        let reached = answer.as_deref().is_some_and(|answer| answer.starts_with("pod2 "));
        let text = if reached { good("pod2 answers") } else { bad("no answer") };
        println!("  {who:<10} → {what:<22} {:<26} {text}", to.to_string());
        reached
    };
    let (mut reached, mut mapped) = (!to.is_empty(), true);
    for ip in to {
        reached &= row(&here.netns, "pod1", SocketAddr::new(ip, 80), "pod2 itself");
    }
    for machine in ["198.51.100.2", "2001:db8:51::2"] {
        let port = SocketAddr::new(machine.parse().expect("an address of the lab"), 8080);
        mapped &= row(&here.netns, "pod1", port, "the machine's port");
        mapped &= row(lab.host(), "machine 1", port, "the machine's port");
    }
    second.run(move |_| {
        drop(servers);
        stop(&there);
    });
    stop(&here);
    [("flannel with bridge and host-local", reached), ("portmap", mapped)]
}
