//! Each invalid input causes one error object with the right code and a message that names the culprit, and changes
//! nothing.

use std::fs;

use lab::{Call, Lab, beyond_reference};
use serde_json::{Value, json};

use crate::common::host_local;

/// The mistake, the code, the word that names the culprit, and the change of the call.
pub struct Bad(pub &'static str, pub u64, pub &'static str, pub fn(Call) -> Call);

/// Runs every row separately, and reports all failures together.
pub fn refuses(lab: &Lab, call: &Call, command: &str, rows: &[Bad]) {
    let mut before = lab.snapshot();
    let mut faults = String::new();
    for Bad(what, code, culprit, spoil) in rows {
        let outcome = spoil(call.clone().env("CNI_COMMAND", command)).run_as_is();
        let after = lab.snapshot();
        let verdict = outcome.verdict(*code, culprit).err().unwrap_or_default() + &after.since(&before);
        before = after;
        if !verdict.is_empty() {
            faults += &format!("- {what}: {verdict}\n");
        }
    }
    assert!(faults.is_empty(), "\n{faults}");
}

fn conf() -> Value {
    json!({"bridge": "br0", "isGateway": true, "ipam": host_local(&[&["10.1.2.0/24"]])})
}

fn bridge(lab: &Lab) -> Call {
    lab.plugin("bridge").config(conf()).on(&lab.container("pod"))
}

#[test]
fn variables_of_the_environment() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    let call = bridge(&lab);
    fs::write("/run/lab/file", "").unwrap();
    lab.host().sh("ip -n pod link add taken0 type veth peer name taken1");
    #[rustfmt::skip]
    let rows = [
        Bad("an unknown command", 4, "CNI_COMMAND", |c| c.env("CNI_COMMAND", "FETCH")),
        Bad("a command in small letters", 4, "CNI_COMMAND", |c| c.env("CNI_COMMAND", "add")),
        Bad("no container id", 4, "CNI_CONTAINERID", |c| c.without("CNI_CONTAINERID")),
        Bad("an empty container id", 4, "CNI_CONTAINERID", |c| c.env("CNI_CONTAINERID", "")),
        Bad("a container id that climbs", 4, "CNI_CONTAINERID", |c| c.env("CNI_CONTAINERID", "../../etc")),
        Bad("a container id with a space", 4, "CNI_CONTAINERID", |c| c.env("CNI_CONTAINERID", "a b")),
        Bad("a container id with a line end", 4, "CNI_CONTAINERID", |c| c.env("CNI_CONTAINERID", "a\nb")),
        Bad("no interface name", 4, "CNI_IFNAME", |c| c.without("CNI_IFNAME")),
        Bad("an empty interface name", 4, "CNI_IFNAME", |c| c.ifname("")),
        Bad("an interface name too long", 4, "CNI_IFNAME", |c| c.ifname("sixteen-letters-")),
        Bad("an interface name with a slash", 4, "CNI_IFNAME", |c| c.ifname("eth/0")),
        Bad("an interface name that climbs", 4, "CNI_IFNAME", |c| c.ifname("..")),
        Bad("an interface name with a colon", 4, "CNI_IFNAME", |c| c.ifname("eth:0")),
        Bad("an interface name with a space", 4, "CNI_IFNAME", |c| c.ifname("eth 0")),
        Bad("an interface name that means all sysctls", 4, "CNI_IFNAME all", |c| c.ifname("all")),
        Bad("an interface name that means the default sysctls", 4, "CNI_IFNAME default", |c| c.ifname("default")),
        Bad("an interface name that is taken", 4, "CNI_IFNAME", |c| c.ifname("taken0")),
        Bad("no namespace", 4, "CNI_NETNS", |c| c.without("CNI_NETNS")),
        Bad("an empty namespace", 4, "CNI_NETNS", |c| c.env("CNI_NETNS", "")),
        Bad("a namespace that was unmounted", 4, "run DEL", |c| c.env("CNI_NETNS", "/run/lab/file")),
        Bad("a namespace that is a directory", 4, "/run/lab", |c| c.env("CNI_NETNS", "/run/lab")),
        Bad("a namespace of another kind", 4, "/proc/self/ns/uts", |c| c.env("CNI_NETNS", "/proc/self/ns/uts")),
        Bad("a namespace that does not exist", 3, "/run/netns/gone", |c| c.env("CNI_NETNS", "/run/netns/gone")),
        Bad("the plugin's own namespace", 8, "/run/netns/host", |c| c.env("CNI_NETNS", "/run/netns/host")),
        Bad("no search path", 4, "CNI_PATH", |c| c.without("CNI_PATH")),
        Bad("arguments without a value", 4, "nonsense", |c| c.args("nonsense")),
        Bad("an unknown argument", 4, "COLOUR", |c| c.args("COLOUR=red")),
    ];
    refuses(&lab, &call, "ADD", &rows);
    let all =
        call.without("CNI_CONTAINERID").without("CNI_NETNS").ifname("a/b").add().refused(4, "CNI_IFNAME");
    assert!(
        all.msg.contains("CNI_CONTAINERID") && all.msg.contains("CNI_NETNS"),
        "all are named together: {all:?}"
    );
}

#[test]
fn text_on_stdin() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    #[rustfmt::skip]
    let rows = [
        Bad("nothing", 6, "stdin", |c| c.stdin("")),
        Bad("an object cut short", 6, "line 1", |c| c.stdin(r#"{"name": "net""#)),
        Bad("a list", 6, "stdin", |c| c.stdin("[]")),
        Bad("a word", 6, "stdin", |c| c.stdin("bridge")),
        Bad("two objects", 6, "stdin", |c| c.stdin("{} {}")),
        Bad("bytes that are no UTF-8", 6, "stdin", |c| c.stdin(*b"{\"name\": \"\xff\xfe\"}")),
        Bad("a thousand brackets", 6, "stdin", |c| c.stdin("[".repeat(1000))),
        Bad("a name that is a number", 6, "name", |c| c.config(json!({"name": 5}))),
        Bad("an ipam that is a number", 6, "ipam", |c| c.config(json!({"ipam": 5}))),
        Bad("a version that is a number", 6, "cniVersion", |c| c.config(json!({"cniVersion": 1}))),
        Bad("a version of the future", 1, "9.9.9", |c| c.version("9.9.9")),
        Bad("a version that is none", 1, "latest", |c| c.version("latest")),
        Bad("no name", 7, "name", |c| c.config(json!({"name": null}))),
        Bad("an empty name", 7, "name", |c| c.config(json!({"name": ""}))),
        Bad("a name that climbs", 7, "../etc", |c| c.config(json!({"name": "../etc"}))),
        Bad("a name with a space", 7, "a b", |c| c.config(json!({"name": "a b"}))),
        Bad("a result before that is none", 6, "prevResult", |c| c.config(json!({"prevResult": "none"}))),
    ];
    refuses(&lab, &bridge(&lab), "ADD", &rows);
}

#[test]
fn commands_and_versions() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    let call = bridge(&lab);
    #[rustfmt::skip]
    let rows = [
        Bad("CHECK before there was one", 1, "CHECK", |c| c.version("0.3.1").config(json!({"prevResult": {}}))),
        Bad("CHECK without a result", 7, "prevResult", |c| c),
        Bad("GC before there was one", 1, "GC", |c| c.env("CNI_COMMAND", "GC")),
        Bad("STATUS before there was one", 1, "STATUS", |c| c.env("CNI_COMMAND", "STATUS")),
    ];
    refuses(&lab, &call, "CHECK", &rows);
}

/// Mistakes in the name of a veth's end on the host, for bridge and ptp.
#[rustfmt::skip]
const HOST_INTERFACES: [Bad; 5] = [
    Bad("a host interface's name too long", 7, "sixteen-letters-", |c| c.config(json!({"hostInterface": "sixteen-letters-"}))),
    Bad("a host interface's name with a slash", 7, "args.cni.hostInterface", |c| c.config(json!({"args": {"cni": {"hostInterface": "a/b"}}}))),
    Bad("a host interface that the network does not permit", 7, "args.cni.hostInterface eth7", |c| c.config(json!({"args": {"cni": {"hostInterface": "eth7"}}}))),
    Bad("a host interface named like all sysctls", 7, "hostInterface all", |c| c.config(json!({"hostInterface": "all", "mtu": 1200}))),
    Bad("a requested host interface named like the default sysctls", 7, "args.cni.hostInterface default", |c| c.config(json!({"hostInterface": "def", "args": {"cni": {"hostInterface": "default"}}}))),
];

#[test]
fn keys_of_bridge() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    let call = bridge(&lab);
    lab.host().sh("ip link add cable0 type veth peer name cable1
                   ip link add br9 address 02:00:00:00:00:09 type bridge; ip link set br9 up; ip addr add 10.9.9.1/24 dev br9");
    #[rustfmt::skip]
    let rows = [
        Bad("a bridge's name too long", 7, "sixteen-letters-", |c| c.config(json!({"bridge": "sixteen-letters-"}))),
        Bad("a bridge's name with a slash", 7, "br/0", |c| c.config(json!({"bridge": "br/0"}))),
        Bad("a bridge that is none", 7, "cable0", |c| c.config(json!({"bridge": "cable0"}))),
        Bad("a bridge with another address", 7, "10.9.9.1", |c| c.config(json!({"bridge": "br9"}))),
        Bad("an MTU too small for IPv4", 7, "mtu", |c| c.config(json!({"mtu": 10}))),
        Bad("an MTU too large for a packet", 7, "mtu", |c| c.config(json!({"mtu": 70000}))),
        Bad("hairpin and promiscuous mode together", 7, "hairpinMode", |c| c.config(json!({"hairpinMode": true, "promiscMode": true}))),
        Bad("a VLAN below nothing", 7, "vlan", |c| c.config(json!({"vlan": -1}))),
        Bad("a VLAN that is reserved", 7, "vlan 4095 is out of range, 0 to 4094", |c| c.config(json!({"vlan": 4095}))),
        Bad("a trunk of VLAN 0", 7, "vlanTrunk", |c| c.config(json!({"vlanTrunk": [{"id": 0}]}))),
        Bad("a trunk that ends before it starts", 7, "vlanTrunk", |c| c.config(json!({"vlanTrunk": [{"minID": 9, "maxID": 5}]}))),
        Bad("a trunk that never ends", 7, "maxID", |c| c.config(json!({"vlanTrunk": [{"minID": 9}]}))),
        Bad("a trunk that ends too late", 7, "5000", |c| c.config(json!({"vlanTrunk": [{"minID": 9, "maxID": 5000}]}))),
        Bad("a MAC that is none", 7, "zz:00", |c| c.config(json!({"runtimeConfig": {"mac": "zz:00"}}))),
        Bad("a MAC of a group", 7, "01:00:5e:00:00:01", |c| c.config(json!({"args": {"cni": {"mac": "01:00:5e:00:00:01"}}}))),
        Bad("a MAC argument that is none", 7, "MAC", |c| c.args("MAC=mine")),
        Bad("addresses on an interface left down", 7, "disableContainerInterface", |c| c.config(json!({"disableContainerInterface": true}))),
        Bad("a firewall that is none", 7, "ebpf", |c| c.config(json!({"ipMasq": true, "ipMasqBackend": "ebpf"}))),
        Bad("a family that is none", 7, "ipx", |c| c.config(json!({"ipMasq": true, "ipMasqFamily": "ipx"}))),
        Bad("a host interface that exists", 7, "cable0", |c| c.config(json!({"hostInterface": "cable0"}))),
        Bad("a host interface with the bridge's name", 7, "hostInterface br0", |c| c.config(json!({"hostInterface": "br0"}))),
        Bad("a host interface with the name of the gateway in a VLAN", 7, "hostInterface br0.100", |c| c.config(json!({"hostInterface": "br0.100"}))),
    ];
    refuses(&lab, &call, "ADD", &rows);
    refuses(&lab, &call, "ADD", &HOST_INTERFACES);
}

#[test]
fn keys_of_ptp() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = lab.plugin("ptp").config(json!({"ipam": host_local(&[&["10.1.2.0/24"]])})).on(&pod);
    lab.host().sh("ip -n pod link add taken0 type bridge; ip link add taken1 type bridge");
    for (name, ip) in [
        ("doorless", r#"{"address": "10.1.2.2/24"}"#),
        ("other-door", r#"{"address": "10.1.2.2/24", "gateway": "fd00::1"}"#),
        ("own-door", r#"{"address": "10.1.2.2/24", "gateway": "10.1.2.2"}"#),
    ] {
        let result = format!(r#"{{"cniVersion": "1.0.0", "ips": [{ip}]}}"#);
        lab.fake_plugin(name, &format!("[ $CNI_COMMAND != ADD ] || echo '{result}'"));
    }
    #[rustfmt::skip]
    let rows = [
        Bad("an interface name that is taken", 4, "CNI_IFNAME", |c| c.ifname("taken0")),
        Bad("an MTU too small for IPv4", 7, "mtu", |c| c.config(json!({"mtu": 10}))),
        Bad("an MTU too large for a packet", 7, "mtu", |c| c.config(json!({"mtu": 70000}))),
        Bad("two MTUs", 7, "mtuFromDefaultRoute", |c| c.config(json!({"mtu": 1400, "mtuFromDefaultRoute": true}))),
        Bad("a firewall that is none", 7, "ebpf", |c| c.config(json!({"ipMasqBackend": "ebpf"}))),
        Bad("a family that is none", 7, "ipx", |c| c.config(json!({"ipMasqFamily": "ipx"}))),
        Bad("a host interface that exists", 7, "taken1", |c| c.config(json!({"hostInterface": "taken1"}))),
        Bad("a MAC that is none", 7, "zz:00", |c| c.config(json!({"mac": "zz:00"}))),
        Bad("a MAC of a group", 7, "01:00:5e:00:00:01", |c| c.config(json!({"runtimeConfig": {"mac": "01:00:5e:00:00:01"}}))),
        Bad("a MAC of zeros", 7, "args.cni.mac", |c| c.config(json!({"args": {"cni": {"mac": "00:00:00:00:00:00"}}}))),
        Bad("a MAC argument that is none", 7, "MAC", |c| c.args("MAC=mine")),
        Bad("an address without a gateway", 7, "10.1.2.2/24", |c| c.config(json!({"ipam": {"type": "doorless"}}))),
        Bad("a gateway of another family", 7, "10.1.2.2/24", |c| c.config(json!({"ipam": {"type": "other-door"}}))),
        Bad("a gateway that is the address itself", 7, "10.1.2.2/24", |c| c.config(json!({"ipam": {"type": "own-door"}}))),
    ];
    refuses(&lab, &call, "ADD", &rows);
    refuses(&lab, &call, "ADD", &HOST_INTERFACES);
}

#[test]
fn keys_of_host_device() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = crate::host_device::of_cable(&lab, &pod);
    pod.sh("ip link add taken0 type veth peer name taken1");
    #[rustfmt::skip]
    let rows = [
        Bad("no device", 7, "pciBusID", |c| c.config(json!({"device": null}))),
        Bad("a device that there is not", 7, "device gone", |c| c.config(json!({"device": "gone"}))),
        Bad("a device's name with a slash", 7, "device", |c| c.config(json!({"device": "a/b"}))),
        Bad("a MAC that is none", 7, "hwaddr", |c| c.config(json!({"hwaddr": "02:00"}))),
        Bad("a MAC of a group", 7, "hwaddr", |c| c.config(json!({"hwaddr": "01:00:5e:00:00:01"}))),
        Bad("a path elsewhere", 7, "kernelpath", |c| c.config(json!({"kernelpath": "/sys/class/net/dev0"}))),
        Bad("a path that climbs", 7, "kernelpath", |c| c.config(json!({"kernelpath": "/sys/devices/../class/net/dev0"}))),
        Bad("an address that climbs", 7, "pciBusID", |c| c.config(json!({"pciBusID": ".."}))),
        Bad("an address that is a path", 7, "pciBusID", |c| c.config(json!({"pciBusID": "../../../etc"}))),
        Bad("an id that is a path", 7, "runtimeConfig.deviceID", |c| c.config(json!({"runtimeConfig": {"deviceID": "a/b"}}))),
        Bad("a name that is taken", 4, "CNI_IFNAME taken0", |c| c.ifname("taken0")),
    ];
    refuses(&lab, &call, "ADD", &rows);
}

/// Keys of each interface on a master. The master `cable` has an MTU of 1500.
#[rustfmt::skip]
const MASTERS: [Bad; 5] = [
    Bad("a master that there is not", 7, "gone", |c| c.config(json!({"master": "gone"}))),
    Bad("a master that is not in the container", 7, "/run/netns/pod", |c| c.config(json!({"linkInContainer": true}))),
    Bad("a master's name with a slash", 7, "eth/0", |c| c.config(json!({"master": "eth/0"}))),
    Bad("an MTU above the master's", 7, "mtu 1501", |c| c.config(json!({"mtu": 1501}))),
    Bad("an MTU too small for IPv4", 7, "mtu 10", |c| c.config(json!({"mtu": 10}))),
];

/// The sources of a MAC address.
#[rustfmt::skip]
const MACS: [Bad; 3] = [
    Bad("a MAC of a group", 7, "mac: 01:00:5e:00:00:01", |c| c.config(json!({"mac": "01:00:5e:00:00:01"}))),
    Bad("a MAC of zeros", 7, "runtimeConfig.mac", |c| c.config(json!({"runtimeConfig": {"mac": "00:00:00:00:00:00"}}))),
    Bad("a MAC argument that is none", 7, "MAC", |c| c.args("MAC=mine")),
];

#[test]
fn keys_of_macvlan() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    lab.host().sh("ip link add cable type veth peer name far; ip link set cable up
                   ip link add br9 type bridge; ip link add port type veth peer name other; ip link set port master br9");
    let ipam = host_local(&[&["10.1.2.0/24"]]);
    let call =
        lab.plugin("macvlan").config(json!({"master": "cable", "ipam": ipam})).on(&lab.container("pod"));
    lab.host().sh("ip -n pod link add taken0 type veth peer name taken1");
    #[rustfmt::skip]
    let rows = [
        Bad("no master and no default route", 7, "default route", |c| c.config(json!({"master": null}))),
        Bad("a master's name too long", 7, "sixteen-letters-", |c| c.config(json!({"master": "sixteen-letters-"}))),
        Bad("a master that is a bridge's port", 7, "port of a bridge", |c| c.config(json!({"master": "port"}))),
        Bad("a master without frames", 7, "Ethernet link", |c| c.config(json!({"master": "lo"}))),
        Bad("a mode that there is not", 7, "passthrough", |c| c.config(json!({"mode": "passthrough"}))),
        Bad("a mode that cannot be configured", 7, "source", |c| c.config(json!({"mode": "source"}))),
        Bad("an unknown argument", 4, "COLOUR", |c| c.args("COLOUR=red")),
        Bad("a name that is taken", 4, "CNI_IFNAME taken0", |c| c.ifname("taken0")),
    ];
    refuses(&lab, &call, "ADD", &rows);
    refuses(&lab, &call, "ADD", &MASTERS);
    refuses(&lab, &call, "ADD", &MACS);
}

#[test]
fn keys_of_ipvlan() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    lab.host().sh("ip link add cable type veth peer name far; ip link set cable up");
    let call = lab.plugin("ipvlan").config(json!({"master": "cable"})).on(&lab.container("pod"));
    #[rustfmt::skip]
    let rows = [
        Bad("no master and no default route", 7, "default route", |c| c.config(json!({"master": null}))),
        Bad("a mode that there is not", 7, "l4", |c| c.config(json!({"mode": "l4"}))),
        Bad("a flag that there is not", 7, "passthru", |c| c.config(json!({"flag": "passthru"}))),
        Bad("a MAC that is none", 7, "runtimeConfig.mac", |c| c.config(json!({"runtimeConfig": {"mac": "zz:00"}}))),
    ];
    refuses(&lab, &call, "ADD", &rows);
    refuses(&lab, &call, "ADD", &MASTERS);
}

#[test]
fn keys_of_vlan() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    lab.host()
        .sh("ip link add cable type veth peer name far; ip link set cable up; ip link add quiet type bridge");
    let call = lab.plugin("vlan").config(json!({"master": "cable", "vlanId": 100})).on(&lab.container("pod"));
    #[rustfmt::skip]
    let rows = [
        Bad("no VLAN", 7, "vlanId is missing", |c| c.config(json!({"vlanId": null}))),
        Bad("a VLAN that is reserved", 7, "vlanId 4095", |c| c.config(json!({"vlanId": 4095}))),
        Bad("a VLAN of more than 16 bits", 7, "vlanId 65636", |c| c.config(json!({"vlanId": 65_636}))),
        Bad("a tag that there is not", 7, "802.3", |c| c.config(json!({"protocol": "802.3"}))),
        Bad("no master", 7, "master is missing", |c| c.config(json!({"master": null}))),
        Bad("a master that is down", 11, "quiet", |c| c.config(json!({"master": "quiet"}))),
    ];
    refuses(&lab, &call, "ADD", &rows);
    refuses(&lab, &call, "ADD", &MASTERS);
    refuses(&lab, &call, "ADD", &MACS);
}

#[test]
fn keys_of_dummy() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    let call = lab.plugin("dummy").on(&lab.container("pod"));
    #[rustfmt::skip]
    let rows = [
        Bad("an MTU too small for IPv4", 7, "mtu 10", |c| c.config(json!({"mtu": 10}))),
        Bad("an MTU too large for a packet", 7, "mtu 70000", |c| c.config(json!({"mtu": 70000}))),
        Bad("a MAC of a group", 7, "args.cni.mac", |c| c.config(json!({"args": {"cni": {"mac": "01:00:5e:00:00:01"}}}))),
    ];
    refuses(&lab, &call, "ADD", &rows);
    refuses(&lab, &call, "ADD", &MACS);
}

#[test]
fn keys_of_flannel() {
    beyond_reference!("flannel");
    let lab = Lab::new();
    crate::flannel::flanneld_says(&crate::flannel::subnet_env(true));
    fs::write("/run/flannel/torn", "FLANNEL_NETWORK=10.42.0.0/16\nFLANNEL_MTU=1450\n").unwrap();
    fs::write("/run/flannel/odd", crate::flannel::subnet_env(true).replace("10.42.1.1/24", "10.42.1.1"))
        .unwrap();
    let call = lab.plugin("flannel").on(&lab.container("pod"));
    #[rustfmt::skip]
    let rows = [
        Bad("a delegate's name", 7, "delegate.name", |c| c.config(json!({"delegate": {"name": "other"}}))),
        Bad("a delegate's ipam", 7, "delegate.ipam", |c| c.config(json!({"delegate": {"ipam": {"type": "host-local"}}}))),
        Bad("a type that is a number", 6, "delegate.type", |c| c.config(json!({"delegate": {"type": 5}}))),
        Bad("a type that is a path", 7, "../bridge", |c| c.config(json!({"delegate": {"type": "../bridge"}}))),
        Bad("an unknown type", 7, "nobody", |c| c.config(json!({"delegate": {"type": "nobody"}}))),
        Bad("flannel by flannel", 7, "itself", |c| c.config(json!({"delegate": {"type": "flannel"}}))),
        Bad("a key that the delegate refuses", 7, "mtu 10", |c| c.config(json!({"delegate": {"mtu": 10}}))),
        Bad("routes that are no list", 6, "ipam.routes", |c| c.config(json!({"ipam": {"routes": "0.0.0.0/0"}}))),
        Bad("what the runtime asks for, of a wrong type", 6, "runtimeConfig", |c| c.config(json!({"runtimeConfig": []}))),
        Bad("a file that there is not", 11, "/run/flannel/none", |c| c.config(json!({"subnetFile": "/run/flannel/none"}))),
        Bad("a file that is not whole", 11, "FLANNEL_SUBNET", |c| c.config(json!({"subnetFile": "/run/flannel/torn"}))),
        Bad("a file with a value that is none", 6, "FLANNEL_SUBNET", |c| c.config(json!({"subnetFile": "/run/flannel/odd"}))),
        Bad("a file that is a directory", 5, "/run/flannel", |c| c.config(json!({"subnetFile": "/run/flannel"}))),
        Bad("a directory that is a file", 5, "/run/flannel/torn", |c| c.config(json!({"dataDir": "/run/flannel/torn"}))),
    ];
    refuses(&lab, &call, "ADD", &rows);
}

#[test]
fn keys_of_tap() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    let call = lab.plugin("tap").on(&lab.container("pod"));
    lab.host().sh("ip -n pod link add taken0 type veth peer name taken1");
    #[rustfmt::skip]
    let rows = [
        Bad("a bridge that there is not", 7, "bridge gone", |c| c.config(json!({"bridge": "gone"}))),
        Bad("a bridge that is none", 7, "bridge taken1", |c| c.config(json!({"bridge": "taken1"}))),
        Bad("a bridge's name too long", 7, "sixteen-letters-", |c| c.config(json!({"bridge": "sixteen-letters-"}))),
        Bad("a bridge's name with a slash", 7, "br/0", |c| c.config(json!({"bridge": "br/0"}))),
        Bad("an owner that is nobody", 7, "owner 4294967295", |c| c.config(json!({"owner": u32::MAX}))),
        Bad("a group that is nobody", 7, "group 4294967295", |c| c.config(json!({"group": u32::MAX}))),
        Bad("an MTU too small for IPv4", 7, "mtu 10", |c| c.config(json!({"mtu": 10}))),
        Bad("an MTU too large with a header", 7, "mtu 65522", |c| c.config(json!({"mtu": 65522}))),
        Bad("an unknown argument", 4, "COLOUR", |c| c.args("COLOUR=red")),
        Bad("a name that is taken", 4, "CNI_IFNAME taken0", |c| c.ifname("taken0")),
    ];
    refuses(&lab, &call, "ADD", &rows);
    refuses(&lab, &call, "ADD", &MACS);
}

#[test]
fn address_plugins() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    let call = bridge(&lab);
    // The bridge stays after a failure on purpose, so create it before.
    lab.host().sh("ip link add br0 address 02:00:00:00:00:01 type bridge; ip link set br0 up");
    for (name, script) in [
        ("garbage", "echo lorem ipsum"),
        ("silent", "exit 0"),
        ("mute", "exit 1"),
        ("killed", "kill -9 $$"),
        ("torn", r#"echo '{"cniVersion": "1.0.0", "ips": [{"addr'"#),
        ("homeless", r#"echo '{"cniVersion": "1.0.0"}'"#),
        ("liar", r#"echo '{"cniVersion": "1.0.0", "ips": [{"address": "10.0.0.300/24"}]}'"#),
        ("futurist", r#"echo '{"cniVersion": "9.9.9", "ips": []}'"#),
        ("refuser", r#"echo '{"cniVersion": "1.0.0", "code": 11, "msg": "come back later"}'; exit 1"#),
    ] {
        lab.fake_plugin(name, script);
    }
    fs::create_dir("/run/lab/plugins/directory").unwrap();
    fs::write("/run/lab/plugins/text", "no program").unwrap();
    fn by(call: Call, ipam: &str) -> Call {
        call.config(json!({"ipam": {"type": ipam}}))
    }
    #[rustfmt::skip]
    let rows = [
        Bad("nowhere to be found", 7, "nowhere", |c| by(c, "nowhere")),
        Bad("nowhere, and where that is", 7, "/run/lab/plugins", |c| by(c, "nowhere")),
        Bad("a path", 7, "../bin/sh", |c| by(c, "../bin/sh")),
        Bad("an absolute path", 7, "/bin/sh", |c| by(c, "/bin/sh")),
        Bad("a directory", 7, "directory", |c| by(c, "directory")),
        Bad("a file that is no program", 7, "text", |c| by(c, "text")),
        Bad("prints garbage", 6, "garbage", |c| by(c, "garbage")),
        Bad("prints nothing", 6, "silent", |c| by(c, "silent")),
        Bad("prints half a result", 6, "torn", |c| by(c, "torn")),
        Bad("prints an impossible address", 6, "10.0.0.300", |c| by(c, "liar")),
        Bad("prints a version of the future", 1, "9.9.9", |c| by(c, "futurist")),
        Bad("gives no address", 6, "homeless", |c| by(c, "homeless")),
        Bad("fails without a word", 6, "mute", |c| by(c, "mute")),
        Bad("hangs up", 6, "killed", |c| by(c, "killed")),
        Bad("refuses", 11, "come back later", |c| by(c, "refuser")),
    ];
    refuses(&lab, &call, "ADD", &rows);
}

fn host_local_call(lab: &Lab) -> Call {
    lab.plugin("host-local").env("CNI_CONTAINERID", "a").env("CNI_NETNS", "/run/netns/of-nobody")
}

fn ranges(call: Call, ranges: Value) -> Call {
    call.config(json!({"ipam": {"type": "host-local", "ranges": ranges}}))
}

fn range(call: Call, range: Value) -> Call {
    ranges(call, json!([[range]]))
}

fn net(call: Call, key: &str, value: Value) -> Call {
    range(call, json!({"subnet": "10.0.0.0/24", key: value}))
}

fn more(call: Call, key: &str, value: Value) -> Call {
    let mut ipam = host_local(&[&["10.0.0.0/24"]]);
    ipam[key] = value;
    call.config(json!({"ipam": ipam}))
}

#[test]
fn options_of_dhcp() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = lab.plugin("dhcp").on(&pod);
    fn key(call: Call, key: &str, value: Value) -> Call {
        let mut ipam = json!({"type": "dhcp"});
        ipam[key] = value;
        call.config(json!({"ipam": ipam}))
    }
    #[rustfmt::skip]
    let rows = [
        Bad("no daemon", 11, "/run/cni/dhcp.sock", |c| key(c, "priority", json!(5))),
        Bad("an unknown family", 7, "family", |c| key(c, "family", json!("ipv7"))),
        Bad("an unknown option", 7, "provide[0].option", |c| key(c, "provide", json!([{"option": "colour", "value": "red"}]))),
        Bad("an option without a name", 7, "provide[0].option", |c| key(c, "provide", json!([{"value": "red"}]))),
        Bad("a value that is too long", 7, "provide[0].value", |c| key(c, "provide", json!([{"option": "12", "value": "x".repeat(256)}]))),
        Bad("a value that is too long, by an argument", 4, "NAME", |c| key(c, "provide", json!([{"option": "12", "fromArg": "NAME"}])).args(&format!("NAME={}", "x".repeat(256)))),
        Bad("the end as an option", 7, "request[0].option", |c| key(c, "request", json!([{"option": "255"}]))),
    ];
    refuses(&lab, &call, "ADD", &rows);
}

#[test]
fn addresses_of_static() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    let call = lab.plugin("static").env("CNI_CONTAINERID", "a").env("CNI_NETNS", "/run/netns/of-nobody");
    fn entries(call: Call, entries: Value) -> Call {
        call.config(json!({"ipam": {"type": "static", "addresses": entries}}))
    }
    fn entry(call: Call, entry: Value) -> Call {
        entries(call, json!([{"address": "10.0.0.5/24"}, entry]))
    }
    fn requesting(call: Call, ip: &str) -> Call {
        entry(call, json!({"gateway": "10.1.0.1"})).config(json!({"runtimeConfig": {"ips": [ip]}}))
    }
    #[rustfmt::skip]
    let rows = [
        Bad("no address: the configuration's place for it", 7, "no address", |c| c),
        Bad("no address, but a gateway", 7, "no address", |c| entries(c, json!([{"gateway": "10.0.0.1"}]))),
        Bad("an address that is an entry", 6, "ipam.addresses[0]", |c| entries(c, json!(["10.0.0.5/24"]))),
        Bad("an entry with nothing", 7, "ipam.addresses[1]", |c| entry(c, json!({}))),
        Bad("no prefix length", 6, "ipam.addresses[1].address", |c| entry(c, json!({"address": "10.0.0.6"}))),
        Bad("a prefix length too long", 6, "10.0.0.6/33", |c| entry(c, json!({"address": "10.0.0.6/33"}))),
        Bad("an address of a group", 7, "224.0.0.1/4", |c| entry(c, json!({"address": "224.0.0.1/4"}))),
        Bad("an address of nobody", 7, "::/64", |c| entry(c, json!({"address": "::/64"}))),
        Bad("a gateway that is none", 6, "ipam.addresses[1].gateway", |c| entry(c, json!({"gateway": "door"}))),
        Bad("a gateway of another family", 7, "fd00::1", |c| entry(c, json!({"address": "10.0.0.6/32", "gateway": "fd00::1"}))),
        Bad("an address twice", 7, "10.0.0.5", |c| entry(c, json!({"address": "10.0.0.5/24"}))),
        Bad("an address twice, by an argument", 7, "10.0.0.5", |c| entry(c, json!({"gateway": "10.0.0.1"})).args("IP=10.0.0.5/24")),
        Bad("a route without a destination", 6, "ipam.routes[0]", |c| c.config(json!({"ipam": {"routes": [{}]}}))),
        Bad("requested: no address", 6, "runtimeConfig.ips[0]", |c| requesting(c, "ten")),
        Bad("requested: no prefix length, and none is known", 7, "10.1.0.6", |c| requesting(c, "10.1.0.6")),
        Bad("requested by args: a number", 6, "args.cni.ips", |c| c.config(json!({"args": {"cni": {"ips": [5]}}}))),
        Bad("an argument that is no address", 4, "IP", |c| c.args("IP=10.0.0.5/24,ten")),
        Bad("an argument without a prefix length", 7, "10.0.0.5", |c| c.args("IP=10.0.0.5")),
        Bad("a gateway argument that is none", 4, "GATEWAY", |c| c.args("IP=10.0.0.5/24;GATEWAY=door")),
        Bad("a gateway argument outside", 7, "10.9.0.1", |c| c.args("IP=10.0.0.5/24;GATEWAY=10.9.0.1")),
        Bad("an unknown argument", 4, "COLOUR", |c| c.args("COLOUR=red")),
    ];
    refuses(&lab, &call, "ADD", &rows);
}

#[test]
fn ranges_of_host_local() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    let call = host_local_call(&lab);
    #[rustfmt::skip]
    let rows = [
        Bad("no ipam", 7, "ipam", |c| c),
        Bad("no ranges", 7, "ranges", |c| c.config(json!({"ipam": {"type": "host-local"}}))),
        Bad("empty ranges", 7, "ranges", |c| ranges(c, json!([]))),
        Bad("an empty range set", 7, "ranges", |c| ranges(c, json!([[]]))),
        Bad("a range without a subnet", 6, "subnet", |c| range(c, json!({"rangeStart": "10.0.0.9"}))),
        Bad("a subnet that is none", 6, "ten", |c| range(c, json!({"subnet": "ten"}))),
        Bad("a subnet without a length", 6, "10.0.0.0", |c| range(c, json!({"subnet": "10.0.0.0"}))),
        Bad("a subnet with host bits", 7, "10.0.0.7/24", |c| range(c, json!({"subnet": "10.0.0.7/24"}))),
        Bad("a subnet too small", 7, "10.0.0.0/31", |c| range(c, json!({"subnet": "10.0.0.0/31"}))),
        Bad("a subnet of one address", 7, "fd00::1/128", |c| range(c, json!({"subnet": "fd00::1/128"}))),
        Bad("a start outside", 7, "10.0.1.9", |c| net(c, "rangeStart", json!("10.0.1.9"))),
        Bad("a start of another family", 7, "fd00::9", |c| net(c, "rangeStart", json!("fd00::9"))),
        Bad("an end outside", 7, "10.0.1.9", |c| net(c, "rangeEnd", json!("10.0.1.9"))),
        Bad("an end before the start", 7, "10.0.0.9", |c| range(c, json!({"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.9", "rangeEnd": "10.0.0.5"}))),
        Bad("a gateway outside that a route needs", 7, "10.0.1.1", |c| c.config(json!({"ipam": {"type": "host-local",
            "ranges": [[{"subnet": "10.0.0.0/24", "gateway": "10.0.1.1"}]], "routes": [{"dst": "0.0.0.0/0"}]}}))),
        Bad("a gateway that is none", 6, "door", |c| net(c, "gateway", json!("door"))),
        Bad("ranges of a set that overlap", 7, "10.0.0.0", |c| ranges(c, json!([[{"subnet": "10.0.0.0/24"}, {"subnet": "10.0.0.0/25"}]]))),
        Bad("range sets that overlap", 7, "10.0.0.0", |c| ranges(c, json!([[{"subnet": "10.0.0.0/24"}], [{"subnet": "10.0.0.0/25"}]]))),
        Bad("a set of two families", 7, "fd00::", |c| ranges(c, json!([[{"subnet": "10.0.0.0/24"}, {"subnet": "fd00::/64"}]]))),
    ];
    refuses(&lab, &call, "ADD", &rows);
}

#[test]
fn other_keys_and_addresses_of_host_local() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    #[rustfmt::skip]
    let rows = [
        Bad("a route to nowhere", 6, "somewhere", |c| more(c, "routes", json!([{"dst": "somewhere"}]))),
        Bad("an exclusion that is none", 6, "some", |c| more(c, "exclude", json!(["some"]))),
        Bad("a missing resolvConf", 5, "/run/lab/gone.conf", |c| more(c, "resolvConf", json!("/run/lab/gone.conf"))),
        Bad("a requested address outside", 7, "10.9.9.9", |c| more(c, "x", json!(0)).args("IP=10.9.9.9")),
        Bad("an address that is none", 6, "ten", |c| more(c, "x", json!(0)).config(json!({"runtimeConfig": {"ips": ["ten"]}}))),
        Bad("the gateway is requested", 7, "10.0.0.1", |c| more(c, "x", json!(0)).args("IP=10.0.0.1")),
        Bad("the broadcast address is requested", 7, "10.0.0.255", |c| more(c, "x", json!(0)).args("IP=10.0.0.255")),
    ];
    refuses(&lab, &host_local_call(&lab), "ADD", &rows);
}

#[test]
fn stores_of_host_local() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    lab.host().sh("cd /run/lab; echo >file; mkdir frozen full brimful
        mount -t tmpfs -o ro none frozen
        mount -t tmpfs -o nr_inodes=1 none full
        mount -t tmpfs -o size=4k none brimful; mkdir brimful/net; head -c 4096 /dev/zero >brimful/ballast");
    let call = host_local_call(&lab);
    let pool = json!({"ipam": host_local(&[&["10.0.0.0/30"]])});
    call.clone().config(pool).env("CNI_CONTAINERID", "holder").add().ok_result();
    fn kept_in(call: Call, dir: &str) -> Call {
        let mut ipam = host_local(&[&["10.0.0.0/24"]]);
        ipam["dataDir"] = json!(dir);
        call.config(json!({"ipam": ipam}))
    }
    #[rustfmt::skip]
    let rows = [
        Bad("a full pool", 999, "10.0.0.1-10.0.0.2", |c| c.config(json!({"ipam": host_local(&[&["10.0.0.0/30"]])}))),
        Bad("an address that is taken", 999, "holder", |c| c.config(json!({"ipam": host_local(&[&["10.0.0.0/24"]])})).args("IP=10.0.0.2")),
        Bad("a store that is a file", 5, "/run/lab/file", |c| kept_in(c, "/run/lab/file")),
        Bad("a read-only store", 5, "/run/lab/frozen", |c| kept_in(c, "/run/lab/frozen")),
        Bad("a store without an inode left", 5, "/run/lab/full", |c| kept_in(c, "/run/lab/full")),
        Bad("a store without a byte left", 5, "/run/lab/brimful", |c| kept_in(c, "/run/lab/brimful")),
    ];
    refuses(&lab, &call, "ADD", &rows);
}

/// A call for an existing interface, with a result that lists it.
fn tuning(lab: &Lab) -> Call {
    let pod = lab.container("pod");
    lab.host().sh("ip link add eth0 netns pod type veth peer name cable");
    lab.plugin("tuning").on(&pod).config(json!({"prevResult": listing("eth0")}))
}

fn listing(ifname: &str) -> Value {
    json!({"cniVersion": "1.0.0", "interfaces": [{"name": ifname, "sandbox": "/run/netns/pod"}]})
}

/// The configuration with duplicate keys, which a map cannot contain.
fn twice(call: Call, members: &str) -> Call {
    let document = String::from_utf8(call.input()).unwrap();
    call.stdin(format!("{{{members}, {}", &document[1..]))
}

fn sysctl(call: Call, key: &str, value: &str) -> Call {
    call.config(json!({"sysctl": {"net.ipv4.conf.IFNAME.arp_notify": "1", key: value}}))
}

#[test]
fn sysctls_of_tuning() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    #[rustfmt::skip]
    let rows = [
        Bad("a key of another part", 7, "kernel.hostname", |c| sysctl(c, "kernel.hostname", "x")),
        Bad("a key of another part, and its value", 7, "conquered", |c| sysctl(c, "kernel.hostname", "conquered")),
        Bad("a part that begins with net", 7, "nets.x", |c| sysctl(c, "nets.x", "1")),
        Bad("two dots, and that they are not allowed", 7, "\"..\" is not allowed", |c| sysctl(c, "net/../kernel/hostname", "x")),
        Bad("a key that climbs", 7, "net/../kernel/hostname", |c| sysctl(c, "net/../kernel/hostname", "x")),
        Bad("a key that climbs from an interface", 7, "conf/../../../kernel", |c| sysctl(c, "net/ipv4/conf/../../../kernel/hostname", "x")),
        Bad("a key that climbs by dots", 7, "net....kernel", |c| sysctl(c, "net....kernel.hostname", "x")),
        Bad("an absolute key", 7, "/net/core/somaxconn", |c| sysctl(c, "/net/core/somaxconn", "1")),
        Bad("a whole path", 7, "/proc/sys/net", |c| sysctl(c, "/proc/sys/net/core/somaxconn", "1")),
        Bad("an empty key", 7, "\"\"", |c| sysctl(c, "", "1")),
        Bad("net alone", 7, "\"net\"", |c| sysctl(c, "net", "1")),
        Bad("a key with a slash at its end", 7, "somaxconn/", |c| sysctl(c, "net/core/somaxconn/", "1")),
        Bad("a key with a space", 7, "some conn", |c| sysctl(c, "net.core.some conn", "1")),
        Bad("a key with a line end", 7, "somaxconn\\n", |c| sysctl(c, "net.core.somaxconn\n", "1")),
        Bad("a key with a NUL", 7, "\\0", |c| sysctl(c, "net.core.\0", "1")),
        Bad("a value with a line end", 7, "1\\n2", |c| sysctl(c, "net.core.somaxconn", "1\n2")),
        Bad("a value with a NUL", 7, "1\\0", |c| sysctl(c, "net.core.somaxconn", "1\0")),
        Bad("a value that the kernel does not take", 7, "plenty", |c| sysctl(c, "net.core.somaxconn", "plenty")),
        Bad("a value out of the kernel's range", 7, "65536", |c| sysctl(c, "net.ipv4.ip_default_ttl", "65536")),
        Bad("a value that is a number", 6, "sysctl.net.core.somaxconn", |c| c.config(json!({"sysctl": {"net.core.somaxconn": 1}}))),
        Bad("a list", 6, "sysctl", |c| c.config(json!({"sysctl": ["net.core.somaxconn=1"]}))),
        Bad("a key that is given twice", 7, "sysctl: \"net.core.somaxconn\" is given twice", |c| twice(c, r#""sysctl": {"net.core.somaxconn": "1", "net.core.somaxconn": "1"}"#)),
        Bad("a key of the call that is given twice", 7, "args.cni.sysctl: \"net.core.somaxconn\"", |c| twice(c, r#""args": {"CNI": {"sysctl": {"net.core.somaxconn": "1", "net.core.somaxconn": "2"}}}"#)),
        Bad("two spellings with one value", 7, "net/core/somaxconn", |c| c.config(json!({"sysctl": {"net.core.somaxconn": "1", "net/core/somaxconn": "1"}}))),
        Bad("IFNAME and the interface's name", 7, "conf.eth0.arp_filter", |c| c.config(json!({"sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1", "net.ipv4.conf.eth0.arp_filter": "0"}}))),
        Bad("two spellings with two values", 7, "net/core/somaxconn", |c| c.config(json!({"sysctl": {"net.core.somaxconn": "1", "net/core/somaxconn": "2"}}))),
        Bad("a sysctl that there is not, and the remedy", 2, "check its spelling", |c| sysctl(c, "net.core.nonesuch", "1")),
        Bad("a sysctl that there is not", 2, "net.core.nonesuch", |c| sysctl(c, "net.core.nonesuch", "1")),
        Bad("an interface that there is not", 2, "conf/eth7/forwarding", |c| sysctl(c, "net.ipv4.conf.eth7.forwarding", "1")),
        Bad("a congestion control that there is not, and the remedy", 2, "the kernel has no \"hurry\": check the name, or load its module", |c| sysctl(c, "net.ipv4.tcp_congestion_control", "hurry")),
        Bad("a congestion control that there is not", 2, "hurry", |c| sysctl(c, "net.ipv4.tcp_congestion_control", "hurry")),
        Bad("a directory", 5, "ipv4/conf", |c| sysctl(c, "net.ipv4.conf", "1")),
        Bad("one that can only be read", 5, "tcp_available_congestion_control", |c| sysctl(c, "net.ipv4.tcp_available_congestion_control", "x")),
        Bad("a key of the call that climbs", 7, "args.cni.sysctl", |c| c.config(json!({"args": {"cni": {"sysctl": {"../x": "1"}}}}))),
    ];
    refuses(&lab, &tuning(&lab), "ADD", &rows);
}

#[test]
fn attributes_of_tuning() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    let call =
        tuning(&lab).config(json!({"sysctl": {"net.ipv4.conf.IFNAME.arp_notify": "1"}, "allmulti": true}));
    lab.host().sh("cd /run/lab; echo >file; mkdir frozen; mount -t tmpfs -o ro none frozen");
    #[rustfmt::skip]
    let rows = [
        Bad("a MAC that is none", 7, "zz:00", |c| c.config(json!({"mac": "zz:00"}))),
        Bad("a MAC too long", 7, "02:00:00:00:00:00:00:01", |c| c.config(json!({"mac": "02:00:00:00:00:00:00:01"}))),
        Bad("a group's MAC", 7, "01:00:5e:00:00:01", |c| c.config(json!({"mac": "01:00:5e:00:00:01"}))),
        Bad("a broadcast MAC of the runtime", 7, "runtimeConfig.mac", |c| c.config(json!({"runtimeConfig": {"mac": "ff:ff:ff:ff:ff:ff"}}))),
        Bad("a MAC of zeros in the arguments, and the remedy", 7, "set another address, or remove the key", |c| c.config(json!({"args": {"cni": {"mac": "00:00:00:00:00:00"}}}))),
        Bad("a MAC argument that is none", 7, "CNI_ARGS: MAC", |c| c.args("MAC=mine")),
        Bad("an unknown argument", 4, "COLOUR", |c| c.args("COLOUR=red;MAC=02:00:00:00:00:01")),
        Bad("an MTU too small for the interface", 7, "mtu 10", |c| c.config(json!({"mtu": 10}))),
        Bad("an MTU too large for the interface", 7, "mtu 70000", |c| c.config(json!({"mtu": 70000}))),
        Bad("an MTU too large for the kernel", 7, "mtu 4294967295", |c| c.config(json!({"mtu": 4_294_967_295_u32}))),
        Bad("an unknown feature", 7, "rx-grow", |c| c.config(json!({"features": {"rx-gro": true, "rx-grow": true}}))),
        Bad("a feature that the interface lacks", 7, "rx-lro", |c| c.config(json!({"features": {"rx-lro": true}}))),
        Bad("a feature of the call without a name", 7, "features", |c| c.config(json!({"args": {"cni": {"features": {"": true}}}}))),
        Bad("a feature that is a word", 6, "features", |c| c.config(json!({"features": {"rx-gro": "off"}}))),
        Bad("a feature of the call that is a number", 6, "args.cni.features", |c| c.config(json!({"args": {"cni": {"features": {"rx-gro": 0}}}}))),
        Bad("a feature that is given twice", 7, "features: \"rx-gro\" is given twice", |c| twice(c, r#""features": {"rx-gro": true, "rx-gro": false}"#)),
        Bad("features in a list", 6, "features", |c| c.config(json!({"features": ["rx-gro"]}))),
        Bad("a directory that is a file", 5, "/run/lab/file", |c| c.config(json!({"dataDir": "/run/lab/file"}))),
        Bad("a directory that is read-only", 5, "/run/lab/frozen", |c| c.config(json!({"dataDir": "/run/lab/frozen"}))),
        Bad("no result", 7, "prevResult", |c| c.config(json!({"prevResult": null}))),
        Bad("a result of another version", 6, "prevResult", |c| c.version("0.2.0").config(json!({"prevResult": {"ip4": {"ip": "ten"}}}))),
        Bad("an interface that there is not", 4, "eth1", |c| c.ifname("eth1").config(json!({"prevResult": listing("eth1"), "sysctl": null}))),
    ];
    refuses(&lab, &call, "ADD", &rows);
}

#[test]
fn limits_of_bandwidth() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    let pod = crate::tuning::wired(&lab, "eth0");
    let call = crate::bandwidth::limited(&lab, &pod);
    #[rustfmt::skip]
    let rows = [
        Bad("a rate without its burst", 7, "ingressRate 8000000 needs ingressBurst", |c| c.config(json!({"ingressBurst": 0}))),
        Bad("a burst without its rate", 7, "egressBurst 400000 needs egressRate", |c| c.config(json!({"egressRate": null}))),
        Bad("less than a byte in a second", 7, "egressRate 7", |c| c.config(json!({"egressRate": 7}))),
        Bad("a rate below nothing", 7, "ingressRate -1", |c| c.config(json!({"ingressRate": -1}))),
        Bad("a burst below nothing", 7, "egressBurst -8", |c| c.config(json!({"egressBurst": -8}))),
        Bad("a burst too large for the kernel", 7, "ingressBurst 34359738368", |c| c.config(json!({"ingressBurst": 1_u64 << 35}))),
        Bad("a rate too large for a number", 6, "ingressRate", |c| c.config(json!({"ingressRate": u64::MAX}))),
        Bad("a rate with a fraction", 6, "egressRate", |c| c.config(json!({"egressRate": 8.5}))),
        Bad("no time to wait", 7, "latencyMs 0", |c| c.config(json!({"latencyMs": 0}))),
        Bad("too long a time to wait", 7, "latencyMs 10001", |c| c.config(json!({"latencyMs": 10_001}))),
        Bad("subnets to limit", 2, "shapedSubnets", |c| c.config(json!({"shapedSubnets": ["10.0.0.0/8"]}))),
        Bad("subnets not to limit", 2, "unshapedSubnets", |c| c.config(json!({"unshapedSubnets": ["10.0.0.0/8"]}))),
        Bad("subnets of the runtime", 2, "runtimeConfig.bandwidth.shapedSubnets", |c| c.config(json!({"runtimeConfig": {"bandwidth": {"shapedSubnets": ["10.0.0.0/8"]}}}))),
        Bad("a rate of the runtime without its burst", 7, "runtimeConfig.bandwidth.egressRate 8", |c| c.config(json!({"ingressRate": null, "ingressBurst": null, "egressRate": null, "egressBurst": null, "runtimeConfig": {"bandwidth": {"egressRate": 8}}}))),
        Bad("no result", 7, "prevResult", |c| c.config(json!({"prevResult": null}))),
        Bad("an interface that there is not", 4, "eth1", |c| c.ifname("eth1")),
    ];
    refuses(&lab, &call, "ADD", &rows);
}

#[test]
fn lists_of_allowed_sysctls() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    let call = sysctl(tuning(&lab), "net.core.somaxconn", "100").config(json!({"mtu": 1400}));
    fs::create_dir_all("/etc/cni/tuning").unwrap();
    #[rustfmt::skip]
    let lists = [
        ("^net\\.core\\.", 7, "net.ipv4.conf.IFNAME.arp_notify"),
        ("[", 7, "\"[\""),
        ("", 7, "allowlist.conf"),
    ];
    for (list, code, culprit) in lists {
        let before = lab.snapshot();
        fs::write("/etc/cni/tuning/allowlist.conf", list).unwrap();
        call.add().refused(code, culprit);
        lab.snapshot().assert_same(&before);
    }
}

#[test]
fn keys_of_sbr() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    let (_, call) = crate::sbr::manually(&lab);
    #[rustfmt::skip]
    let rows = [
        Bad("no result", 7, "prevResult", |c| c.config(json!({"prevResult": null}))),
        Bad("a table that is none", 7, "table 0", |c| c.config(json!({"table": 0}))),
        Bad("two gateways of a family", 7, "multiple IPv4 addresses: 10.1.0.1 and 10.1.0.3", |c| c.config(json!({"gateways": ["10.1.0.1", "10.1.0.3"]}))),
        Bad("a gateway with a prefix", 7, "10.1.0.1/24", |c| c.config(json!({"gateways": ["10.1.0.1/24"]}))),
        Bad("a gateway that is a group", 7, "224.0.0.1", |c| c.config(json!({"gateways": ["224.0.0.1"]}))),
    ];
    refuses(&lab, &call, "ADD", &rows);
}

#[test]
fn keys_of_vrf() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    let (_, call) = crate::vrf::manually(&lab);
    #[rustfmt::skip]
    let rows = [
        Bad("no result", 7, "prevResult", |c| c.config(json!({"prevResult": null}))),
        Bad("no name", 7, "vrfname", |c| c.config(json!({"vrfname": null}))),
        Bad("an empty name", 7, "vrfname", |c| c.config(json!({"vrfname": ""}))),
        Bad("a name too long", 7, "sixteen-letters-", |c| c.config(json!({"vrfname": "sixteen-letters-"}))),
        Bad("a name that climbs", 7, "vrfname", |c| c.config(json!({"vrfname": ".."}))),
        Bad("a name that is a link's", 7, "eth1", |c| c.config(json!({"vrfname": "eth1"}))),
    ];
    refuses(&lab, &call, "ADD", &rows);
}

#[test]
fn keys_of_dnsname() {
    beyond_reference!("dnsname");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let bridge = lab.plugin("bridge").config(conf()).on(&pod);
    let call = lab.plugin("dnsname").config(json!({"prevResult": bridge.add().ok_result()})).on(&pod);
    call.add().ok_result();
    call.del().ok();
    #[rustfmt::skip]
    let rows = [
        Bad("no result", 7, "prevResult", |c| c.config(json!({"prevResult": null}))),
        Bad("a result without the interface", 7, "net9", |c| c.ifname("net9")),
        Bad("a domain with a space", 7, "domainName", |c| c.config(json!({"domainName": "a b"}))),
        Bad("a domain with a line end", 7, "domainName", |c| c.config(json!({"domainName": "a\nuser=root"}))),
        Bad("a domain that leaves no room", 7, "domainName", |c| c.config(json!({"domainName": format!("{0}.{0}.{0}", "x".repeat(63))}))),
        Bad("an alias without a list", 6, "runtimeConfig.aliases", |c| c.config(json!({"runtimeConfig": {"aliases": "db"}}))),
        Bad("an alias that is a number", 6, "runtimeConfig.aliases", |c| c.config(json!({"runtimeConfig": {"aliases": [5]}}))),
        Bad("an alias with a line end", 7, "runtimeConfig.aliases", |c| c.config(json!({"runtimeConfig": {"aliases": ["a\nb"]}}))),
        Bad("an alias with a tab", 7, "runtimeConfig.aliases", |c| c.config(json!({"runtimeConfig": {"aliases": ["a\tb"]}}))),
        Bad("an alias that is a comment", 7, "runtimeConfig.aliases", |c| c.config(json!({"runtimeConfig": {"aliases": ["a#b"]}}))),
        Bad("an alias of 300 characters", 7, "runtimeConfig.aliases", |c| c.config(json!({"runtimeConfig": {"aliases": ["x".repeat(300)]}}))),
        Bad("an alias that climbs", 7, "runtimeConfig.aliases", |c| c.config(json!({"runtimeConfig": {"aliases": [".."]}}))),
        Bad("an alias that is a wildcard", 7, "runtimeConfig.aliases", |c| c.config(json!({"runtimeConfig": {"aliases": {"net": ["*"]}}}))),
        Bad("an alias that is an address", 7, "runtimeConfig.aliases", |c| c.config(json!({"runtimeConfig": {"aliases": ["10.1.2.9"]}}))),
        Bad("a container's name that is none", 7, "K8S_POD_NAME", |c| c.args("K8S_POD_NAME=a..b")),
        Bad("a container's other name that is none", 7, "CNI_POD_NAME", |c| c.args("CNI_POD_NAME=a#b")),
    ];
    refuses(&lab, &call, "ADD", &rows);
}

/// A chain without a plugin that creates the interface, or with that plugin at the wrong position.
#[test]
fn the_interface_of_a_chained_plugin_that_does_not_exist() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let prev = json!({
        "cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": pod.netns.path()}],
        "ips": [{"address": "10.1.2.5/24", "gateway": "10.1.2.1", "interface": 0}],
    });
    let before = lab.snapshot();
    for (plugin, keys) in [
        ("tuning", json!({"mtu": 1400})),
        ("bandwidth", json!({"ingressRate": 8_000_000, "ingressBurst": 800_000})),
        ("sbr", json!({})),
        ("vrf", json!({"vrfname": "blue"})),
        ("firewall", json!({"ingressPolicy": "same-bridge", "backend": "nftables"})),
    ] {
        let call = lab.plugin(plugin).config(keys).config(json!({"prevResult": prev})).on(&pod);
        let refused = call.add().refused(4, "CNI_IFNAME eth0: this interface does not exist in namespace");
        assert!(refused.details.contains("must come earlier"), "{plugin}: {refused:?}");
    }
    lab.snapshot().assert_same(&before);
}
