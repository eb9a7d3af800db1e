//! Network configurations from the field. Each is loaded, validated, attached, checked, detached and collected. Plugins
//! of other projects are replaced by a script that creates a veth pair and returns a result.

pub mod crowd;
pub mod effects;
mod several_networks;
pub mod stubs;

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::Path;

use lab::dhcp::{DhcpSite, RANGE, has_dnsmasq};
use lab::{Container, Feature, Lab, Tool, beyond_reference, repository, skip, together, under_test};
use serde_json::{Value, json};

use crate::common::cable;

/// A script in place of other projects' plugins: it creates a veth pair with an address, and returns a result in that
/// plugin's shape and the configuration's version. If the configuration has `ipam`, it calls host-local. Calico adds
/// the node's subnets to its configuration, in DEL any subnets.
const FOREIGN: &str = r#"
maker=${0##*/}; conf=$(cat); host=cali$(printf %.8s "$CNI_CONTAINERID"); pod=${CNI_NETNS##*/}; address=10.244.7.5
version=$(printf %s "$conf" | grep -o '"cniVersion" *: *"[^"]*"' | head -n 1 | cut -d '"' -f 4)
lease() {
  printf %s "$conf" | sed "s|usePodCidrIPv6|$2|; s|usePodCidr|$1|" | "${CNI_PATH%%:*}/host-local" || exit
}
case $conf in *'"host-local"'*) ipam=1;; *) ipam=;; esac
case $CNI_COMMAND in
ADD)
  [ -z "$ipam" ] || leased=$(lease 10.244.7.0/24 fd00:7::/64) || { echo "$leased"; exit 1; }
  case $maker in calico|antrea) address=$(echo "$leased" | grep -o '[0-9.]*/24' | head -n 1 | cut -d / -f 1);; esac
  ip link show "$host" >/dev/null 2>&1 || {
    ip link add "$host" type veth peer name "$CNI_IFNAME" netns "$pod"; ip link set "$host" up
    ip -n "$pod" addr add "$address/32" dev "$CNI_IFNAME"; ip -n "$pod" link set "$CNI_IFNAME" up; }
  own='{"name": "'"$CNI_IFNAME"'", "sandbox": "'"$CNI_NETNS"'"}' of=', "interface": 1'
  case $maker in
    calico) all='{"name": "'"$host"'"}' of=;;
    aws-cni|egress-cni) all='{"name": "'"$host"'"}, '"$own"', {"name": "dummy5a3fd8d2a86", "mac": "0", "sandbox": "0"}';;
    *) all='{"name": "'"$host"'", "sandbox": ""}, '"$own";;
  esac
  echo '{"cniVersion": "'"$version"'", "interfaces": ['"$all"'], "ips": [{"version": "4", "address": "'"$address"'/32"'"$of"'}], "dns": {}}';;
DEL) [ -z "$ipam" ] || lease 0.0.0.0/0 ::/0; ip link del "$host" 2>/dev/null; exit 0;;
esac"#;

/// The PCI address of a card.
const CARD: &str = "0000:3b:02.5";

/// The address at the other end of the host's cable.
const GATEWAY: &str = "10.9.0.1";

/// The requested limits, in bits a second.
const INGRESS: u64 = 10_000_000;
const EGRESS: u64 = 20_000_000;

/// A network on which Multus requests the addresses and the MAC that the pod's annotation contains.
const A_PODS_ADDRESSES: &str = "Multus, macvlan with a pod's addresses";

/// Plugins of other projects.
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

/// A network of one plugin, as in a `.conf` file.
fn single(version: &str, name: &str, mut plugin: Value) -> Value {
    plugin["cniVersion"] = json!(version);
    plugin["name"] = json!(name);
    plugin
}

/// Each plugin of a network.
fn plugins_of(network: &Value) -> Vec<&Value> {
    network["plugins"].as_array().map_or_else(|| vec![network], |plugins| plugins.iter().collect())
}

/// The executables that a plugin's configuration starts: the plugin, and those to which it delegates.
fn executables(plugin: &Value) -> Vec<&str> {
    let mut names = vec![plugin["type"].as_str().unwrap()];
    names.extend(plugin["ipam"]["type"].as_str());
    if names == ["flannel"] {
        let delegate = &plugin["delegate"];
        names.push(delegate["type"].as_str().unwrap_or("bridge"));
        names.push(delegate["ipam"]["type"].as_str().unwrap_or("host-local"));
    }
    names
}

/// A plugin's name, even if BuildKit has renamed it.
fn kind(executable: &str) -> &str {
    executable.strip_prefix("buildkit-cni-").unwrap_or(executable)
}

/// Networks of Kubernetes projects, with their source.
fn kubernetes() -> Vec<(&'static str, Value)> {
    let egress = json!({
        "type": "egress-cni", "mtu": "9001", "enabled": "true",
        "ipam": {
            "type": "host-local", "ranges": [[{"subnet": "169.254.172.0/22"}]], "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": "/run/cni/v6pd/egress-v4-ipam",
        },
    });
    let aws = json!([{"type": "aws-cni", "mtu": "9001"}, egress, portmap_snat(), bandwidth()]);
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
    let of_node = json!({
        "type": "host-local", "ranges": [[{"subnet": "usePodCidr"}], [{"subnet": "usePodCidrIPv6"}]],
    });
    let calico = json!({"type": "calico", "datastore_type": "kubernetes", "mtu": 0, "ipam": of_node, "policy": {"type": "k8s"}});
    let tuning = json!({"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}});
    let antrea =
        json!({"type": "antrea", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.7.0/24"}]]}});
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
        ("Calico", list("1.0.0", "k8s-pod-network", json!([calico, portmap_snat(), bandwidth(), tuning]))),
        ("Calico, 0.3.1", list("0.3.1", "k8s-pod-network", json!([calico, portmap_snat(), bandwidth()]))),
        ("AWS VPC CNI", aws),
        ("kindnet", list("0.3.1", "kindnet", json!([kindnet, portmap()]))),
        ("cilium", list("0.3.1", "cilium", json!([{"type": "cilium-cni"}, portmap()]))),
        ("Antrea", list("0.3.0", "antrea", json!([antrea, portmap(), bandwidth()]))),
        ("kube-router", list("0.3.0", "mynet", json!([router, portmap_snat()]))),
        ("minikube", list("0.4.0", "bridge", json!([minikube, portmap(), {"type": "firewall"}]))),
    ]
}

/// kubenet's bridge as a single `.conf` file, and with host ports in a chain.
fn kubenets() -> Vec<(&'static str, Value)> {
    let bridge = json!({
        "type": "bridge", "bridge": "cbr0", "mtu": 1460, "addIf": "eth0", "isGateway": true, "ipMasq": false,
        "hairpinMode": false, "ipam": {"type": "host-local", "subnet": "10.64.3.0/24", "routes": [{"dst": "0.0.0.0/0"}]},
    });
    let alone = |version| single(version, "kubenet", bridge.clone());
    let ptp = json!({
        "type": "ptp", "ipMasq": false, "mtu": 1460,
        "ipam": {"type": "host-local", "subnet": "10.64.3.0/24", "routes": [{"dst": "0.0.0.0/0"}]},
    });
    let marked = json!({"type": "portmap", "capabilities": {"portMappings": true}, "externalSetMarkChain": "KUBE-MARK-MASQ"});
    vec![
        ("kubenet, 0.1.0", alone("0.1.0")),
        ("kubenet, 0.2.0", alone("0.2.0")),
        ("kubenet, 0.3.0", list("0.3.0", "kubenet", json!([bridge, marked]))),
        ("kubenet, 0.4.0", list("0.4.0", "kubenet", json!([bridge, marked]))),
        ("ptp as kubenet has bridge, 0.1.0", single("0.1.0", "kubenet", ptp.clone())),
        ("ptp as kubenet has bridge, 0.3.1", list("0.3.1", "kubenet", json!([ptp, marked]))),
    ]
}

/// k3s also has all of its plugins in one executable.
fn k3s() -> Value {
    let delegate = json!({"hairpinMode": true, "forceAddress": true, "isDefaultGateway": true});
    list("1.0.0", "cbr0", json!([{"type": "flannel", "delegate": delegate}, portmap(), bandwidth()]))
}

fn nerdctl() -> Value {
    let ranges =
        json!([[{"subnet": "10.88.0.0/16", "gateway": "10.88.0.1"}], [{"subnet": "2001:db8:4860::/64"}]]);
    let bridge = json!({
        "type": "bridge", "bridge": "nerdctl0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
        "ipam": {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]},
        "capabilities": {"ips": true},
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
        ("buildkit", buildkit()),
    ]
}

fn buildkit() -> Value {
    let bridge = json!({
        "type": "buildkit-cni-bridge", "bridge": "buildkit0", "isDefaultGateway": true, "ipMasq": true,
        "ipam": {"type": "buildkit-cni-host-local", "ranges": [[{"subnet": "10.10.0.0/16"}]]},
    });
    let firewall = json!({"type": "buildkit-cni-firewall", "ingressPolicy": "same-bridge"});
    list("1.0.0", "buildkit", json!([{"type": "buildkit-cni-loopback"}, bridge, firewall]))
}

/// Second networks of Multus and OpenShift, on a link `cable` of the host.
fn second_networks() -> Vec<(&'static str, Value)> {
    let on_cable = |kind: &str, keys: Value| {
        let mut plugin = json!({"type": kind, "master": "cable"});
        plugin.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        plugin
    };
    let fixed = json!({"type": "static", "addresses": [{"address": "10.9.0.7/24", "gateway": "10.9.0.1"}]});
    let dynamic = json!({"type": "dhcp"});
    let local = json!({
        "type": "host-local", "subnet": "10.9.0.0/24", "rangeStart": "10.9.0.20", "rangeEnd": "10.9.0.30",
        "routes": [{"dst": "0.0.0.0/0"}], "gateway": "10.9.0.1",
    });
    let macvlan = on_cable("macvlan", json!({"mode": "bridge", "ipam": fixed}));
    let tuned = json!([macvlan, {"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}}]);
    let requested = json!({"type": "static", "addresses": [{"address": "10.9.0.7/24"}]});
    let requested =
        on_cable("macvlan", json!({"mode": "bridge", "ipam": requested, "capabilities": {"ips": true}}));
    let requested = json!([requested, {"type": "tuning", "capabilities": {"mac": true}}]);
    let leased = on_cable("macvlan", json!({"mode": "bridge", "ipam": dynamic}));
    let ipvlan = on_cable("ipvlan", json!({"mode": "l2", "ipam": local}));
    let vlan = on_cable("vlan", json!({"vlanId": 5, "linkInContainer": false, "ipam": local}));
    let device = json!({"type": "host-device", "device": "card", "ipam": fixed});
    let by_id = json!({"type": "host-device", "capabilities": {"deviceID": true}, "ipam": dynamic});
    vec![
        ("Multus, macvlan", list("0.3.1", "macvlan-conf", json!([macvlan]))),
        (
            "Multus, macvlan, a single one",
            single("0.3.1", "macvlan-conf", on_cable("macvlan", json!({"mode": "bridge", "ipam": local}))),
        ),
        ("Multus, macvlan, 1.0.0", list("1.0.0", "macvlan-conf", tuned)),
        (A_PODS_ADDRESSES, list("0.3.1", "macvlan-conf", requested)),
        ("Multus, macvlan and dhcp, 1.0.0", single("1.0.0", "macvlan-dhcp", leased.clone())),
        ("Multus, macvlan and sbr", list("0.4.0", "macvlan-sbr", json!([macvlan, {"type": "sbr"}]))),
        (
            "Multus, macvlan and vrf",
            list("0.4.0", "macvlan-vrf", json!([macvlan, {"type": "vrf", "vrfname": "blue"}])),
        ),
        ("Multus, ipvlan", single("0.3.1", "ipvlan-conf", ipvlan.clone())),
        ("Multus, ipvlan, 1.0.0", list("1.0.0", "ipvlan-conf", json!([ipvlan]))),
        ("Multus, vlan", single("0.4.0", "vlan-conf", vlan)),
        ("Multus, host-device", single("0.3.1", "host-conf", device)),
        ("Multus, host-device by its id", list("1.0.0", "host-conf", json!([by_id, {"type": "sbr"}]))),
        ("OpenShift, macvlan and dhcp", list("0.3.1", "macvlan-dhcp", json!([leased]))),
    ]
}

/// The networks that are also tested with many concurrent containers.
fn crowded() -> Vec<(&'static str, Value)> {
    vec![("Nomad", nomad()), ("nerdctl", nerdctl()), ("k3s", k3s())]
}

/// The networks that can run here. If one cannot, the test counts as skipped.
fn available(networks: Vec<(&str, Value)>) -> Vec<(&str, Value)> {
    let is_available = |(who, network): &(&str, Value)| {
        let no_server = || sends_to_a_server(network) && !has_dnsmasq();
        let missing = is_missing(network).or_else(|| no_server().then(|| "dnsmasq is missing".to_owned()));
        missing.iter().for_each(|what| skip(&format!("{who}: {what}")));
        missing.is_none()
    };
    networks.into_iter().filter(is_available).collect()
}

/// Why a network cannot run here.
fn is_missing(network: &Value) -> Option<String> {
    let needed = plugins_of(network).into_iter().filter_map(|plugin| match plugin["type"].as_str() {
        Some("bandwidth") => Some(Feature::TrafficControl),
        Some("ipvlan") => Some(Feature::Ipvlan),
        Some("macvlan") => Some(Feature::Macvlan),
        Some("vlan") => Some(Feature::Vlan),
        Some("vrf") => Some(Feature::Vrf),
        _ => None,
    });
    let lacks = needed.filter(|feature| !feature.is_there()).map(|feature| feature.to_string()).next();
    lacks.map(|feature| format!("this kernel has no {feature}"))
}

/// A machine with everything that the network needs. Where the chain has firewall, only firewall lets a container's
/// connections pass. Host ports pass without it, so each effect belongs to one plugin.
fn machine(network: &Value) -> Lab {
    let lab = Lab::new();
    OTHERS.iter().for_each(|name| lab.fake_plugin(name, FOREIGN));
    for plugin in ["loopback", "bridge", "firewall", "host-local"] {
        symlink(together().join("ferrule"), Lab::plugin_dir().join(format!("buildkit-cni-{plugin}")))
            .unwrap();
    }
    cable(&lab);
    // A DHCP server has this address itself.
    if !sends_to_a_server(network) {
        lab.host().sh(&format!("ip addr add {GATEWAY}/24 dev far"));
    }
    if plugins_of(network).iter().any(|plugin| kind(plugin["type"].as_str().unwrap()) == "firewall") {
        // A refusal is known immediately, unlike a timeout.
        lab.host().sh("for t in iptables ip6tables; do
                $t -P FORWARD DROP; $t -A FORWARD -m conntrack --ctstate DNAT -j ACCEPT
                $t -A FORWARD -p tcp -j REJECT --reject-with tcp-reset
            done");
    }
    // A card for host-device, selected by its name and its PCI address.
    lab.host().sh("ip link add card type veth peer name outlet; ip link set outlet up");
    crate::host_device::sysfs(&lab, &crate::host_device::pci_device(CARD, "ice", "net/card"));
    crate::flannel::flanneld_says(&crate::flannel::subnet_env(true));
    // As kube-proxy has them.
    lab.host().sh("for t in iptables ip6tables; do $t -t nat -N KUBE-MARK-MASQ; $t -t nat -A KUBE-MARK-MASQ -j MARK --or-mark 0x4000; done");
    lab
}

fn sends_to_a_server(network: &Value) -> bool {
    plugins_of(network).iter().any(|plugin| plugin["ipam"]["type"] == "dhcp")
}

/// What a user requests for a container, as the runtime passes it.
struct Request {
    arguments: String,
    capabilities: Value,
    /// The requested addresses.
    addresses: Vec<String>,
    /// The requested MAC.
    mac: Option<String>,
}

impl Request {
    /// Everything that depends on the container depends on its host port.
    fn of(who: &str, port: u16) -> Self {
        let [high, low] = port.to_be_bytes();
        let (v4, v6) = (format!("10.88.{high}.{low}"), format!("2001:db8:4860::{port}"));
        let mac = format!("02:00:00:00:{high:02x}:{low:02x}");
        let mut capabilities = json!({
            "portMappings": [{"hostPort": port, "containerPort": 80, "protocol": "tcp"}],
            "bandwidth": {"ingressRate": INGRESS, "ingressBurst": 2_147_483_647, "egressRate": EGRESS, "egressBurst": 2_147_483_647},
            "deviceID": CARD,
        });
        let (arguments, addresses, mac) = match who {
            "podman" => (format!("K8S_POD_NAME=web;IP={v4};MAC={mac}"), vec![format!("{v4}/16")], Some(mac)),
            "nerdctl" => {
                capabilities["ips"] = json!([v6]);
                let addresses = vec![format!("{v4}/16"), format!("{v6}/64")];
                (format!("IP={v4};MAC={mac}"), addresses, Some(mac))
            }
            A_PODS_ADDRESSES => {
                capabilities["ips"] = json!(["10.9.0.9/24"]);
                capabilities["mac"] = json!(mac);
                (String::new(), vec!["10.9.0.9/24".to_owned()], Some(mac))
            }
            _ => (String::new(), Vec::new(), None),
        };
        let pod = "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=pod";
        let arguments = if arguments.is_empty() { pod } else { &arguments };
        Self { arguments: format!("IgnoreUnknown=1;{arguments}"), capabilities, addresses, mac }
    }

    /// cnitool, which passes it to plugins.
    fn by(&self, tool: Tool) -> Tool {
        tool.env("CNI_ARGS", &self.arguments).env("CAP_ARGS", &self.capabilities.to_string())
    }
}

/// ADD, CHECK if the version has it, DEL, and finally GC, with the plugins of a directory.
fn is_served(who: &str, network: &Value, plugins: &Path) {
    let lab = machine(network);
    let client = lab.machine("client");
    let _served = sends_to_a_server(network).then(|| {
        let mut site = DhcpSite::new(&lab, &under_test().dir);
        site.serve(RANGE);
        site.start_daemon("");
        lab.host().sh("for far in far outlet; do ip link set $far master br0; done");
        site
    });
    let file = if network["plugins"].is_array() { "10-net.conflist" } else { "10-net.conf" };
    lab.configure(file, network);
    let tool = Request::of(who, 8080).by(stubs::tool(&lab, plugins));
    let valid = tool.run(&format!("validate /etc/cni/net.d/{file}"));
    let mut warnings = valid.stdout.lines().filter(|line| line.contains(": warning: "));
    // validate warns about unknown keys.
    assert!(valid.succeeded() && warnings.all(|line| line.contains("no key \"addIf\"")), "{who}: {valid:#?}");
    let name = network["name"].as_str().unwrap();
    // Shared objects stay after the first container, so they exist from here on.
    let attach = |pod: &Container| {
        let on_pod = format!("{name} {0} --container-id {0}", pod.id);
        tool.says(&format!("add {on_pod}"));
        if network["cniVersion"].as_str().unwrap() >= "0.4.0" {
            tool.says(&format!("check {on_pod}"));
        }
        let attached = effects::Attached { host: lab.host(), client: &client, pod, port: 8080 };
        effects::assert_all(&attached, who, network);
        tool.says(&format!("del {on_pod}"));
        tool.says(&format!("del {on_pod}"));
    };
    attach(&lab.container("first"));
    let pod = lab.container("pod");
    let before = lab.snapshot().without("pod");
    attach(&pod);
    tool.says(&format!("gc {name}"));
    let left = lab.snapshot().without("pod").since(&before);
    // The files of the test's server stay.
    let left: Vec<_> =
        left.lines().filter(|line| line.starts_with("  ") && !line.contains("/run/lab/")).collect();
    assert!(left.is_empty() && pod.link_names().is_empty(), "{who} has left:\n{}", left.join("\n"));
}

/// Runs each of them on a separate machine.
fn are_served(networks: Vec<(&str, Value)>) {
    for (who, network) in available(networks) {
        is_served(who, &network, &under_test().dir);
    }
}

#[test]
fn networks_of_kubernetes_are_valid_and_are_served_from_add_to_gc() {
    beyond_reference!("flannel");
    are_served(kubernetes());
}

#[test]
fn networks_as_kubenet_has_them_are_valid_and_are_served_from_add_to_gc() {
    beyond_reference!("gc");
    are_served(kubenets());
}

#[test]
fn networks_of_container_engines_are_valid_and_are_served_from_add_to_gc() {
    beyond_reference!("gc");
    are_served(engines());
}

#[test]
fn second_networks_are_valid_and_are_served_from_add_to_gc() {
    beyond_reference!("gc");
    are_served(second_networks());
}

/// A published schema, and another project's validator.
struct Schema {
    schemas: boon::Schemas,
    index: boon::SchemaIndex,
}

impl Schema {
    fn of(name: &str) -> Self {
        let file = repository().join(format!("docs/schema/{name}.json"));
        let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
        let index = compiler.compile(file.to_str().unwrap(), &mut schemas).unwrap();
        Self { schemas, index }
    }

    /// The validator's errors for a document.
    fn refusal(&self, document: &Value) -> String {
        self.schemas.validate(document, self.index).err().map(|e| e.to_string()).unwrap_or_default()
    }
}

#[test]
fn networks_of_runtimes_are_valid_by_the_published_schemas_and_not_with_a_key_of_the_wrong_type() {
    let all = [kubernetes(), kubenets(), engines(), second_networks()].concat();
    assert!(all.len() > 30, "only {} networks", all.len());
    let mut schemas = BTreeMap::new();
    for (who, mut network) in all {
        // A single plugin's configuration is the plugin's object.
        let single = network["type"].as_str().map(str::to_owned);
        let key = if single.is_some() { "ipam" } else { "name" };
        let name = single.unwrap_or_else(|| "network".to_owned());
        let schema = schemas.entry(name).or_insert_with_key(|name| Schema::of(name));
        assert_eq!(schema.refusal(&network), "", "{who}");
        network[key] = json!(7);
        assert!(schema.refusal(&network).contains(key), "{who}: {key} may be a number");
    }
}
