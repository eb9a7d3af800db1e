//! Networks as the field configures them: each loads, is found valid, and attaches, is checked, detached and collected. What is not ours
//! in them is played by a script that makes a veth pair and tells of it.

use lab::{Container, Lab, beyond_reference, plugins, skip};
use serde_json::{Value, json};

use crate::common::cable;

/// What other makers' plugins leave behind: a veth pair, an address, and a result in the configuration's version.
const FOREIGN: &str = r#"
conf=$(cat); host=cali$(printf %.8s "$CNI_CONTAINERID")
version=$(printf %s "$conf" | grep -o '"cniVersion" *: *"[^"]*"' | head -n 1 | cut -d '"' -f 4)
case $CNI_COMMAND in
ADD) ip link show "$host" >/dev/null 2>&1 || {
  ip link add "$host" type veth peer name "$CNI_IFNAME" netns "${CNI_NETNS##*/}"; ip link set "$host" up
  ip -n "${CNI_NETNS##*/}" addr add 10.244.7.5/32 dev "$CNI_IFNAME"; ip -n "${CNI_NETNS##*/}" link set "$CNI_IFNAME" up; }
  echo '{"cniVersion": "'"$version"'", "interfaces": [{"name": "'"$host"'"}, {"name": "'"$CNI_IFNAME"'", "sandbox": "'"$CNI_NETNS"'"}],
    "ips": [{"version": "4", "address": "10.244.7.5/32", "interface": 1}]}';;
DEL) ip link del "$host" 2>/dev/null; exit 0;;
esac"#;

/// Plugins of other makers.
const OTHERS: [&str; 5] = ["calico", "aws-cni", "egress-cni", "cilium-cni", "antrea"];

fn host_local() -> Value {
    json!({"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/16", "gateway": "10.88.0.1"}]], "routes": [{"dst": "0.0.0.0/0"}]})
}

fn portmap() -> Value {
    json!({"type": "portmap", "capabilities": {"portMappings": true}})
}

fn portmap_snat() -> Value {
    json!({"type": "portmap", "snat": true, "capabilities": {"portMappings": true}})
}

fn bandwidth() -> Value {
    json!({"type": "bandwidth", "capabilities": {"bandwidth": true}})
}

fn list(version: &str, name: &str, plugins: Value) -> Value {
    json!({"cniVersion": version, "name": name, "plugins": plugins})
}

/// Who writes it, and the network.
fn networks() -> Vec<(&'static str, Value)> {
    [kubernetes(), engines(), single_hosts(), second_networks()].concat()
}

fn kubernetes() -> Vec<(&'static str, Value)> {
    let aws =
        json!([{"type": "aws-cni", "mtu": "9001"}, {"type": "egress-cni"}, portmap_snat(), bandwidth()]);
    let mut aws = list("0.4.0", "aws-cni", aws);
    aws["disableCheck"] = json!(true);
    let kindnet = json!({
        "type": "ptp", "ipMasq": false, "mtu": 1500,
        "ipam": {
            "type": "host-local", "dataDir": "/run/cni-ipam-state", "routes": [{"dst": "0.0.0.0/0"}],
            "ranges": [[{"subnet": "10.244.0.0/24"}]],
        },
    });
    let router = json!({
        "type": "bridge", "name": "kubernetes", "bridge": "kube-bridge", "isDefaultGateway": true,
        "hairpinMode": true, "ipam": {"type": "host-local", "subnet": "10.244.1.0/24"},
    });
    let minikube = json!({
        "type": "bridge", "bridge": "bridge", "addIf": "true", "isDefaultGateway": true, "forceAddress": false,
        "ipMasq": true, "hairpinMode": true, "ipam": {"type": "host-local", "subnet": "10.244.0.0/16"},
    });
    let marked = json!({"type": "portmap", "capabilities": {"portMappings": true}, "externalSetMarkChain": "KUBE-MARK-MASQ"});
    let kubenet = |version| {
        let bridge = json!({
            "type": "bridge", "bridge": "cbr0", "isGateway": true, "ipMasq": false, "mtu": 1460,
            "ipam": {"type": "host-local", "subnet": "10.64.3.0/24", "routes": [{"dst": "0.0.0.0/0"}]},
        });
        list(version, "kubenet", json!([bridge, marked]))
    };
    let calico = json!([{"type": "calico", "datastore_type": "kubernetes"}, portmap_snat(), bandwidth()]);
    vec![
        (
            "flannel",
            list(
                "0.3.1",
                "cbr0",
                json!([{"type": "flannel", "delegate": {"hairpinMode": true, "isDefaultGateway": true}}, portmap()]),
            ),
        ),
        ("k3s", k3s()),
        ("calico", list("1.0.0", "k8s-pod-network", calico)),
        ("AWS VPC CNI", aws),
        ("kindnet", list("0.3.1", "kindnet", json!([kindnet, portmap()]))),
        ("cilium", list("0.3.1", "cilium", json!([{"type": "cilium-cni"}, portmap()]))),
        ("Antrea", list("0.3.0", "antrea", json!([{"type": "antrea"}, portmap(), bandwidth()]))),
        ("kube-router", list("0.3.0", "mynet", json!([router, portmap_snat()]))),
        ("minikube", list("0.4.0", "bridge", json!([minikube, portmap(), {"type": "firewall"}]))),
        ("kubenet, 0.3.0", kubenet("0.3.0")),
        ("kubenet, 0.4.0", kubenet("0.4.0")),
    ]
}

/// k3s has all of its plugins in one executable, too.
fn k3s() -> Value {
    let delegate = json!({"hairpinMode": true, "forceAddress": true, "isDefaultGateway": true});
    list("1.0.0", "cbr0", json!([{"type": "flannel", "delegate": delegate}, portmap(), bandwidth()]))
}

fn nerdctl() -> Value {
    let bridge = json!({
        "type": "bridge", "bridge": "nerdctl0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
        "ipam": host_local(), "capabilities": {"ips": true},
    });
    list(
        "1.0.0",
        "bridge",
        json!([bridge, portmap(), {"type": "firewall", "ingressPolicy": "same-bridge"}, {"type": "tuning"}]),
    )
}

fn nomad() -> Value {
    let bridge = json!({
        "type": "bridge", "bridge": "nomad", "ipMasq": true, "isGateway": true, "forceAddress": true,
        "hairpinMode": false, "ipam": host_local(),
    });
    let firewall =
        json!({"type": "firewall", "backend": "iptables", "iptablesAdminChainName": "NOMAD-ADMIN"});
    list("0.4.0", "nomad", json!([{"type": "loopback"}, bridge, firewall, portmap_snat()]))
}

fn engines() -> Vec<(&'static str, Value)> {
    let podman = json!({
        "type": "bridge", "bridge": "cni-podman0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
        "ipam": host_local(), "capabilities": {"ips": true},
    });
    let firewall = json!({"type": "firewall", "backend": "iptables"});
    let containerd = json!({
        "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "promiscMode": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/16"}], [{"subnet": "2001:db8:4860::/64"}]],
                 "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]},
    });
    let crio = |version: &str| {
        let bridge = json!({
            "cniVersion": version, "name": "crio", "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true,
            "hairpinMode": true, "ipam": host_local(),
        });
        let mut list = list(version, "crio", json!([bridge]));
        list["disableGC"] = json!(true);
        list
    };
    vec![
        ("nerdctl", nerdctl()),
        ("Nomad", nomad()),
        ("podman", list("0.4.0", "podman", json!([podman, portmap(), firewall, {"type": "tuning"}]))),
        ("containerd", list("1.0.0", "containerd-net", json!([containerd, portmap()]))),
        ("CRI-O", crio("1.0.0")),
        ("CRI-O, 0.3.1", crio("0.3.1")),
    ]
}

fn single_hosts() -> Vec<(&'static str, Value)> {
    let bridge = json!({
        "type": "bridge", "bridge": "buildkit0", "isDefaultGateway": true, "ipMasq": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.10.0.0/16"}]]},
    });
    vec![(
        "buildkit",
        list(
            "1.0.0",
            "buildkit",
            json!([{"type": "loopback"}, bridge, {"type": "firewall", "ingressPolicy": "same-bridge"}]),
        ),
    )]
}

/// Multus' second networks, on a link `cable` of the host.
fn second_networks() -> Vec<(&'static str, Value)> {
    let on_cable = |kind: &str, keys: Value| {
        let mut plugin = json!({"type": kind, "master": "cable"});
        plugin.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        plugin
    };
    let fixed = json!({"type": "static", "addresses": [{"address": "10.9.0.7/24", "gateway": "10.9.0.1"}]});
    let macvlan = on_cable("macvlan", json!({"mode": "bridge", "ipam": fixed}));
    let tuned = json!([macvlan, {"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}}]);
    vec![
        ("Multus, macvlan", list("0.3.1", "macvlan-conf", json!([macvlan]))),
        ("Multus, macvlan, 1.0.0", list("1.0.0", "macvlan-conf", tuned)),
        ("Multus, macvlan and sbr", list("0.4.0", "macvlan-sbr", json!([macvlan, {"type": "sbr"}]))),
        (
            "Multus, macvlan and vrf",
            list("0.4.0", "macvlan-vrf", json!([macvlan, {"type": "vrf", "vrfname": "blue"}])),
        ),
    ]
}

/// Those that are run with many containers at once.
pub fn crowded() -> [(&'static str, Value); 3] {
    [("Nomad", nomad()), ("nerdctl", nerdctl()), ("k3s", k3s())]
}

/// Why a network cannot be run here: a plugin that is not there, or a kernel that lacks what it needs.
pub fn is_missing(network: &Value) -> Option<String> {
    let kinds = network["plugins"].as_array().unwrap().iter().map(|plugin| plugin["type"].as_str().unwrap());
    let there = plugins();
    let missing = |kind: &&str| !OTHERS.contains(kind) && !there.iter().any(|one| one == kind);
    let mut kinds: Vec<_> = kinds.collect();
    if kinds.contains(&"vrf") && !std::path::Path::new("/sys/module/vrf").exists() {
        return Some("this kernel has no vrf".to_owned());
    }
    kinds.retain(missing);
    (!kinds.is_empty()).then(|| format!("there is no plugin {}", kinds.join(", ")))
}

/// A machine with all that the networks need of it.
pub fn machine() -> Lab {
    let lab = Lab::new();
    OTHERS.iter().for_each(|name| lab.fake_plugin(name, FOREIGN));
    cable(&lab);
    crate::flannel::flanneld_says(&crate::flannel::subnet_env(true));
    // As kube-proxy has it.
    lab.host().sh("for t in iptables ip6tables; do $t -t nat -N KUBE-MARK-MASQ; $t -t nat -A KUBE-MARK-MASQ -j MARK --or-mark 0x4000; done");
    lab
}

/// ADD, CHECK where the version has it, DEL, and GC after all.
fn is_served(who: &str, network: &Value) {
    let lab = machine();
    lab.configure("10-net.conflist", network);
    let mut tool = lab.cnitool();
    let capabilities = json!({
        "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}],
        "bandwidth": {"ingressRate": 10_000_000, "ingressBurst": 2_147_483_647, "egressRate": 10_000_000, "egressBurst": 2_147_483_647},
    });
    tool = tool.env("CAP_ARGS", &capabilities.to_string());
    let valid = tool.run("validate /etc/cni/net.d/10-net.conflist");
    assert!(valid.succeeded(), "{who}: {valid:#?}");
    let name = network["name"].as_str().unwrap();
    // What all containers share stays, and is there before.
    let attach = |pod: &Container| {
        tool.says(&format!("add {name} {}", pod.id));
        if !network["cniVersion"].as_str().unwrap().starts_with("0.3") {
            tool.says(&format!("check {name} {}", pod.id));
        }
        tool.says(&format!("del {name} {}", pod.id));
        tool.says(&format!("del {name} {}", pod.id));
    };
    attach(&lab.container("first"));
    let pod = lab.container("pod");
    let before = lab.snapshot().without("pod");
    attach(&pod);
    tool.says(&format!("gc {name}"));
    let left = lab.snapshot().without("pod").since(&before);
    assert!(left.is_empty() && pod.link_names().is_empty(), "{who} has left:\n{left}");
}

#[test]
fn the_networks_of_the_field_are_valid_and_are_served_from_add_to_gc() {
    beyond_reference!("flannel");
    for (who, network) in networks() {
        match is_missing(&network) {
            None => is_served(who, &network),
            Some(what) => skip(&format!("{who}: {what}")),
        }
    }
}
