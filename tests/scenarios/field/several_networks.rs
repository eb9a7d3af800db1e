//! A pod on several networks, as Multus attaches it: eth0 for the cluster, and second networks.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use cni::IfName;
use lab::dhcp::has_dnsmasq;
use lab::{Container, Feature, Lab, Netns, Outcome, beyond_reference, needs, skip, under_test};
use runtime::{Exec, Invocation, Network, NetworkRequest, Output, Pod, Pods, Processes, Runtime};
use serde_json::{Map, Value, json};

use crate::common::{dual_stack, host_local, seen_as};
use crate::field::stubs;

/// A network of the pod.
struct Joined {
    ifname: &'static str,
    /// The kernel feature that it needs.
    needs: Option<Feature>,
    plugin: Value,
    /// The next plugin in its chain.
    chained: Option<Value>,
    capabilities: Value,
}

impl Joined {
    fn name(&self) -> String {
        format!("of-{}", self.ifname)
    }

    fn list(&self) -> Value {
        let plugins: Vec<_> = [Some(&self.plugin), self.chained.as_ref()].into_iter().flatten().collect();
        json!({"cniVersion": "1.0.0", "name": self.name(), "plugins": plugins})
    }

    fn request(&self) -> NetworkRequest {
        let capabilities: &Map<_, _> = self.capabilities.as_object().unwrap();
        NetworkRequest {
            ifname: Some(IfName::parse(self.ifname).unwrap()),
            capability_args: capabilities.clone(),
            ..NetworkRequest::from(Network::from_bytes(self.list().to_string().as_bytes()).unwrap())
        }
    }
}

/// In the order of attachment. Add new plugins here.
fn networks() -> Vec<Joined> {
    let bridge = {
        let mut keys = dual_stack();
        keys["type"] = json!("bridge");
        keys["ipMasq"] = json!(true);
        keys
    };
    let on_lan = json!({
        "type": "macvlan", "master": "uplink", "capabilities": {"ips": true},
        "ipam": {"type": "static", "addresses": [{"gateway": "198.51.100.2"}], "routes": [{"dst": "192.0.2.0/24"}]},
    });
    let routed = json!({"type": "ptp", "ipam": host_local(&[&["10.9.0.0/24"]])});
    let tagged =
        json!({"type": "vlan", "master": "uplink", "vlanId": 100, "ipam": host_local(&[&["10.100.0.0/24"]])});
    let joined =
        |ifname, needs, plugin, capabilities| Joined { ifname, needs, plugin, chained: None, capabilities };
    let mut all = vec![
        joined("eth0", None, bridge, json!({})),
        joined("net1", Some(Feature::Macvlan), on_lan, json!({"ips": ["198.51.100.77/24"]})),
        joined("net2", None, routed, json!({})),
        joined("net3", Some(Feature::Vlan), tagged, json!({})),
    ];
    // Debian's package has no tap, and a second DEL of its host-device fails.
    if !under_test().reference {
        let device =
            json!({"type": "host-device", "device": "dev0", "ipam": host_local(&[&["10.7.0.0/24"]])});
        all.push(joined("net4", None, device, json!({})));
        let tap = json!({"type": "tap", "ipam": host_local(&[&["10.8.0.0/24"]])});
        all.push(joined("tap0", Some(Feature::Tap), tap, json!({})));
        if has_dnsmasq() {
            let bridge = json!({"type": "bridge", "bridge": "br5", "isGateway": true, "ipam": host_local(&[&["10.5.0.0/24"]])});
            let dnsname =
                json!({"type": "dnsname", "domainName": "dns.test", "capabilities": {"aliases": true}});
            let network = joined("net5", None, bridge, json!({"aliases": ["joined"]}));
            all.push(Joined { chained: Some(dnsname), ..network });
        } else {
            skip("net5: dnsmasq is missing");
        }
    }
    all.retain(|network| {
        let missing = network.needs.filter(|feature| !feature.is_there());
        missing.iter().for_each(|feature| skip(&format!("{}: this kernel has no {feature}", network.ifname)));
        missing.is_none()
    });
    all
}

/// A machine on the host's uplink, with the addresses of two networks behind it.
fn with_machine(lab: &Lab) -> Netns {
    let far = lab.machine("far");
    far.sh("ip addr add 203.0.113.1/32 dev lo; ip addr add 192.0.2.1/32 dev lo");
    lab.host().sh("ip route add 203.0.113.0/24 via 198.51.100.2
                   ip link add dev0 type veth peer name cable netns far; ip link set dev0 up alias storage");
    far.sh("ip addr add 10.7.0.200/24 dev cable; ip link set cable up");
    if Feature::Vlan.is_there() {
        far.sh("ip link add link eth0 name tagged type vlan id 100; ip addr add 10.100.0.200/24 dev tagged; ip link set tagged up");
    }
    far
}

/// Asserts that each network's traffic takes the right way.
fn is_attached(lab: &Lab, pod: &Container, far: &Netns) {
    let _server = far.serve_tcp("far", "0.0.0.0:80");
    let networks = networks();
    for Joined { ifname, plugin, .. } in &networks {
        let [kind, ipam] = [&plugin["type"], &plugin["ipam"]["type"]].map(|kind| kind.as_str().unwrap());
        assert!(pod.link(ifname).is_some(), "{ifname}: {kind} has done nothing");
        assert!(!pod.addresses(ifname).is_empty(), "{ifname}: {ipam} has done nothing");
    }
    for Joined { ifname, plugin, chained, .. } in &networks {
        let own = pod.addresses(ifname).remove(0).replace("/24", "");
        let leads = match *ifname {
            // The way out, masqueraded.
            "eth0" => seen_as(pod, "203.0.113.1:80") == "198.51.100.1",
            // On the machine's network, and through its gateway.
            "net1" => ["198.51.100.2:80", "192.0.2.1:80"].iter().all(|to| seen_as(pod, to) == own),
            "net2" => lab.host().reaches(&own) && pod.reaches("10.9.0.1"),
            // The machine with its tag.
            "net3" => pod.reaches("10.100.0.200"),
            "net4" => pod.reaches("10.7.0.200"),
            // The network's server knows its names.
            "net5" => finds_the_name(pod).starts_with(&own),
            "tap0" => {
                let _machine = pod.machine_behind("tap0", None, Ipv4Addr::new(10, 8, 0, 200));
                pod.reaches("10.8.0.200")
            }
            other => panic!("no traffic is sent through {other}"),
        };
        let kind = chained.as_ref().unwrap_or(plugin)["type"].as_str().unwrap();
        assert!(leads, "{ifname}: {kind} has done nothing");
    }
}

/// The answer of the server of net5. Empty: there is none.
fn finds_the_name(pod: &Container) -> String {
    pod.sh("printf 'nameserver 10.5.0.1\\nsearch dns.test\\n' >/run/lab/resolv.net5");
    pod.sh(
        "unshare -m sh -ec 'mount --bind /run/lab/resolv.net5 /etc/resolv.conf; getent ahostsv4 joined || true'
         rm /run/lab/resolv.net5",
    )
}

/// Runs the plugins, and records `COMMAND INTERFACE` of each.
#[derive(Clone, Debug, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

impl Recorder {
    fn take(&self) -> Vec<String> {
        let mut all = std::mem::take(&mut *self.0.lock().unwrap());
        // The plugins of a chain follow each other.
        all.dedup();
        all
    }
}

impl Exec for Recorder {
    fn run(&self, invocation: &Invocation<'_>) -> cni::Result<Output> {
        let ifname = invocation.env.iter().find(|(key, _)| *key == "CNI_IFNAME");
        let ifname = ifname.map_or("", |(_, name)| name.to_str().unwrap());
        self.0.lock().unwrap().push(format!("{} {ifname}", invocation.command));
        Processes::default().run(invocation)
    }
}

fn pods(recorder: &Recorder) -> Pods {
    Pods::new(Runtime::new([&under_test().dir]).exec(recorder.clone()))
}

fn on_all(container: &Container) -> Pod {
    on(container, &networks())
}

fn on(container: &Container, networks: &[Joined]) -> Pod {
    let pod = Pod::new(&container.id, container.path()).unwrap();
    networks.iter().fold(pod, |pod, network| pod.join(network.request()))
}

/// Shared objects stay after the first container, so they exist from here on.
fn settled(lab: &Lab) {
    let first = lab.container("first");
    let pods = pods(&Recorder::default());
    pods.set_up(&on_all(&first)).unwrap();
    pods.tear_down(&on_all(&first)).unwrap();
}

#[test]
fn a_pod_reaches_each_of_its_networks_and_leaves_them_in_reverse_order() {
    let lab = Lab::new();
    let far = with_machine(&lab);
    settled(&lab);
    let container = lab.container("pod");
    let (recorder, pod) = (Recorder::default(), on_all(&container));
    let pods = pods(&recorder);
    let before = lab.snapshot();
    let attached = pods.set_up(&pod).unwrap();
    assert_eq!(attached.len(), networks().len());
    let mut order: Vec<_> = networks().iter().map(|network| network.ifname).collect();
    assert_eq!(recorder.take(), order.iter().map(|ifname| format!("ADD {ifname}")).collect::<Vec<_>>());
    is_attached(&lab, &container, &far);
    pods.check(&pod).unwrap();
    recorder.take();
    order.reverse();
    for _ in 0..2 {
        pods.tear_down(&pod).unwrap();
        assert_eq!(recorder.take(), order.iter().map(|ifname| format!("DEL {ifname}")).collect::<Vec<_>>());
        lab.snapshot().assert_same(&before);
    }
}

#[test]
fn if_one_network_fails_the_pod_is_detached_from_the_others_too() {
    let lab = Lab::new();
    with_machine(&lab);
    settled(&lab);
    let container = lab.container("pod");
    let mut pod = on_all(&container);
    // Nothing announces its address.
    let mut last = networks().remove(0);
    (last.ifname, last.plugin["ipam"]) = ("last", json!({"type": "static"}));
    pod = pod.join(last.request());
    let before = lab.snapshot();
    let error = pods(&Recorder::default()).set_up(&pod).unwrap_err().to_string();
    assert!(error.contains("network of-last"), "{error}");
    lab.snapshot().assert_same(&before);
}

#[test]
fn nothing_is_left_on_any_network_of_a_pod_whose_namespace_was_deleted() {
    beyond_reference!("nothing-left");
    let lab = Lab::new();
    with_machine(&lab);
    settled(&lab);
    let before = lab.snapshot();
    let container = lab.container("on-all-networks");
    let mut networks = networks();
    // The device here is a veth, which is deleted with its namespace.
    networks.retain(|network| network.plugin["type"] != "host-device");
    let (pods, mut pod) = (pods(&Recorder::default()), on(&container, &networks));
    pods.set_up(&pod).unwrap();
    container.vanish();
    lab.host()
        .wait_until("the pairs are deleted", |host| host.link_names().iter().all(|n| !n.starts_with("veth")));
    pod.netns = None;
    pods.tear_down(&pod).unwrap();
    lab.snapshot().without("on-all-networks").assert_same(&before);
}

#[test]
fn cnitool_attaches_a_pod_to_second_networks_and_shows_and_detaches_all() {
    cnitool_joins_all(&under_test().dir);
}

/// All plugins, as if they were a chain.
pub fn plugins() -> Value {
    let plugins = networks().into_iter().flat_map(|network| [Some(network.plugin), network.chained]);
    json!({"plugins": plugins.flatten().collect::<Vec<_>>()})
}

/// Attaches a pod to all networks, checks, shows and detaches it.
pub fn cnitool_joins_all(plugins: &Path) {
    let lab = Lab::new();
    let far = with_machine(&lab);
    settled(&lab);
    let (networks, container) = (networks(), lab.container("pod"));
    for network in &networks {
        lab.configure(&format!("{}.conflist", network.name()), &network.list());
    }
    let before = lab.snapshot();
    let tool = stubs::tool(&lab, plugins);
    let on_pod =
        |network: &Joined| format!("{} pod --container-id pod --ifname {}", network.name(), network.ifname);
    for network in &networks {
        tool.says(&format!("add {} --cap-args {}", on_pod(network), network.capabilities));
    }
    is_attached(&lab, &container, &far);
    for network in &networks {
        tool.says(&format!("check {}", on_pod(network)));
    }
    let shown = tool.json("show pod");
    assert_eq!(shown.as_array().unwrap().len(), networks.len(), "{shown:#}");
    for network in networks.iter().rev() {
        tool.says(&format!("del {}", on_pod(network)));
    }
    lab.snapshot().assert_same(&before);
}

/// The chained plugins that change the interface itself. Add new ones here.
fn chained() -> Value {
    json!([
        {"type": "tuning", "mac": "02:00:00:00:00:07", "mtu": 1300, "promisc": true},
        {"type": "bandwidth", "ingressRate": 8_000_000, "ingressBurst": 800_000,
         "egressRate": 8_000_000, "egressBurst": 800_000},
        {"type": "sbr"},
    ])
}

/// A runtime calls DEL after an ADD that failed.
#[test]
fn a_network_that_is_refused_because_the_interface_exists_changes_nothing_of_it() {
    beyond_reference!("own-kind");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let network = |name: &str, bridge: &str, subnet: &str, chained: Value| {
        let ipam = host_local(&[&[subnet]]);
        let mut plugins =
            vec![json!({"type": "bridge", "bridge": bridge, "isDefaultGateway": true, "ipam": ipam})];
        plugins.extend(chained.as_array().unwrap().iter().cloned());
        lab.chain(json!({"cniVersion": "1.1.0", "name": name, "plugins": plugins}))
    };
    let (first, second) =
        (network("a", "br0", "10.1.2.0/24", chained()), network("b", "br1", "10.9.0.0/24", chained()));
    let result = first.add(&pod, "eth0").ok_result();
    // The bridge of the second network stays after its first container.
    let other = lab.container("other");
    let settled = second.add(&other, "eth0").ok_result();
    second.del(&other, "eth0", &settled).iter().for_each(Outcome::ok);
    let before = lab.snapshot();
    second.add(&pod, "eth0").refused(4, "eth0");
    second.del(&pod, "eth0", &Value::Null).iter().for_each(Outcome::ok);
    lab.snapshot().assert_same(&before);
    first.check(&pod, "eth0", &result).iter().for_each(Outcome::ok);
}

/// Like [`a_network_that_is_refused_because_the_interface_exists_changes_nothing_of_it`].
#[test]
fn a_network_that_is_refused_leaves_the_interface_in_its_vrf() {
    beyond_reference!("own-kind");
    needs!(Vrf);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let network = |name: &str| {
        let bridge = json!({"type": "bridge", "bridge": "br0", "ipam": host_local(&[&["10.1.2.0/24"]])});
        let plugins = json!([bridge, {"type": "vrf", "vrfname": "red"}]);
        lab.chain(json!({"cniVersion": "1.1.0", "name": name, "plugins": plugins}))
    };
    let (first, second) = (network("a"), network("b"));
    let result = first.add(&pod, "eth0").ok_result();
    second.add(&pod, "eth0").refused(4, "eth0");
    second.del(&pod, "eth0", &Value::Null).iter().for_each(Outcome::ok);
    first.check(&pod, "eth0", &result).iter().for_each(Outcome::ok);
}
