//! The targets of all sweeps. Add a new plugin here.

use lab::Feature;
use serde_json::{Value, json};

use crate::plugin_file::{PluginFile, administrators, directory, of_a_tool, own};
use crate::target::{Capabilities, Hit, StateFiles, StayingPorts, Target};

/// The UDP port of the host that portmap forwards to the container.
pub const HOST_PORT: u16 = 5353;

const NONE: Capabilities = &[];
const NET: Capabilities = &["net_admin"];
const SYS: Capabilities = &["sys_admin"];
const BOTH: Capabilities = &["net_admin", "sys_admin"];

pub fn all() -> Vec<Target> {
    let rules =
        ["nftables", "iptables"].map(|backend| vec![guarded(backend), ptp(backend), portmap(backend)]);
    let claims = ["nftables", "iptables"].map(claimed);
    [
        vec![
            loopback(),
            bridge_alone(),
            macvlan(),
            macvtap(),
            ipvlan(),
            vlan(),
            dummy(),
            host_device(),
            tap(),
            host_local(),
            static_addresses(),
            flannel(),
        ],
        rules.concat(),
        vec![firewall("nftables"), firewall("iptables"), firewalld(), tuning(), bandwidth(), sbr(), vrf()],
        claims.concat(),
        tools(),
        vec![delegate(), runtime(), dhcp(), dnsname(), dnsname_alone()],
        first_and_last(),
    ]
    .concat()
}

fn loopback() -> Target {
    Target {
        name: "loopback",
        network: vec![json!({"type": "loopback"})],
        capabilities: vec![(json!({}), [BOTH, BOTH, SYS, NONE, BOTH])],
        ..Target::default()
    }
}

fn bridge_alone() -> Target {
    let needs = [BOTH, NET, SYS, NET, BOTH];
    Target {
        name: "bridge",
        network: vec![bridge(json!({}))],
        // The other files are only host-local's.
        state: Some(StateFiles { directory: STORE, files: &HOST_LOCAL[..3] }),
        capabilities: vec![(json!({"isDefaultGateway": false}), needs), (json!({}), needs)],
        ..Target::default()
    }
}

fn ptp(backend: &'static str) -> Target {
    let ipam = merged(ipam(), json!({"routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}));
    let ptp = json!({"type": "ptp", "ipMasq": true, "ipMasqBackend": backend, "ipam": ipam});
    let needs = [BOTH, NET, BOTH, NET, BOTH];
    Target {
        name: if backend == "iptables" { "ptp, ipMasq, iptables" } else { "ptp, ipMasq, nftables" },
        network: vec![ptp],
        backend: Some(backend),
        translates: true,
        capabilities: vec![(json!({}), needs), (json!({"ipMasq": null}), [BOTH, NET, SYS, NET, BOTH])],
        ..Target::default()
    }
}

/// A link that can be a master.
const CABLE: &str = "ip link add cable type veth peer name far; ip link set cable up; ip link set far up";

fn macvlan() -> Target {
    Target {
        name: "macvlan",
        network: vec![json!({"type": "macvlan", "master": "cable", "mtu": 1400, "ipam": ipam()})],
        host: CABLE,
        state: Some(StateFiles { directory: STORE, files: &HOST_LOCAL[..3] }),
        capabilities: vec![(json!({}), [BOTH, BOTH, SYS, NONE, BOTH])],
        ..Target::default()
    }
}

fn macvtap() -> Target {
    Target { name: "macvlan, tap", needs: &[Feature::Macvtap], ..macvlan().with(&json!({"tap": true})) }
}

fn ipvlan() -> Target {
    Target {
        name: "ipvlan",
        network: vec![json!({"type": "ipvlan", "master": "cable", "mtu": 1400, "ipam": ipam()})],
        host: CABLE,
        needs: &[Feature::Ipvlan],
        state: Some(StateFiles { directory: STORE, files: &HOST_LOCAL[..3] }),
        capabilities: vec![(json!({}), [BOTH, BOTH, SYS, NONE, BOTH])],
        ..Target::default()
    }
}

fn vlan() -> Target {
    let vlan = json!({"type": "vlan", "master": "cable", "vlanId": 100, "mtu": 1400, "ipam": ipam()});
    Target {
        name: "vlan",
        network: vec![vlan],
        host: CABLE,
        needs: &[Feature::Vlan],
        staying_changes: json!({"vlanId": 200}),
        state: Some(StateFiles { directory: STORE, files: &HOST_LOCAL[..3] }),
        capabilities: vec![(json!({}), [BOTH, BOTH, SYS, NONE, BOTH])],
        ..Target::default()
    }
}

fn dummy() -> Target {
    Target {
        name: "dummy",
        network: vec![json!({"type": "dummy", "ipam": ipam()})],
        needs: &[Feature::Dummy],
        state: Some(StateFiles { directory: STORE, files: &HOST_LOCAL[..3] }),
        capabilities: vec![(json!({}), [BOTH, BOTH, SYS, NONE, BOTH])],
        ..Target::default()
    }
}

fn tap() -> Target {
    let tap = json!({
        "type": "tap", "owner": 0, "group": 0, "multiQueue": true, "mtu": 1400, "ipam": ipam(),
    });
    Target {
        name: "tap",
        network: vec![tap],
        needs: &[Feature::Tap],
        state: Some(StateFiles { directory: STORE, files: &HOST_LOCAL[..3] }),
        capabilities: vec![(json!({}), [BOTH, BOTH, SYS, NONE, BOTH])],
        ..Target::default()
    }
}

fn host_device() -> Target {
    Target {
        name: "host-device",
        network: vec![json!({"type": "host-device", "device": "dev0", "ipam": ipam()})],
        host:
            "ip link add dev0 type veth peer name far0; ip link set dev0 up alias storage; ip link set far0 up
               ip link add dev1 type veth peer name far1",
        staying_changes: json!({"device": "dev1"}),
        // The disk with the leases. If both directories were on one disk, a missing path could not be attributed.
        state: Some(StateFiles { directory: STORE, files: HOST_DEVICE }),
        capabilities: vec![(json!({}), [BOTH, BOTH, SYS, BOTH, BOTH])],
        ..Target::default()
    }
}

fn host_local() -> Target {
    let ipam = merged(ipam(), json!({"resolvConf": "/etc/cni/resolv.conf", "resetOnReboot": true}));
    Target {
        name: "host-local",
        network: vec![json!({"type": "host-local", "ipam": ipam})],
        host: "echo 'nameserver 9.9.9.9' >/etc/cni/resolv.conf",
        state: Some(StateFiles { directory: STORE, files: HOST_LOCAL }),
        capabilities: vec![(json!({}), [NONE; 5])],
        ..Target::default()
    }
}

/// It only reads its input.
fn static_addresses() -> Target {
    let addresses = json!([{"address": "10.1.2.7/24", "gateway": "10.1.2.1"}, {"address": "fd00:1:2::7/64"}]);
    Target {
        name: "static",
        network: vec![json!({"type": "static", "ipam": {"type": "static", "addresses": addresses}})],
        capabilities: vec![(json!({}), [NONE; 5])],
        ..Target::default()
    }
}

/// The daemon has a separate sweep (`daemon.rs`).
fn dhcp() -> Target {
    Target {
        name: "dhcp",
        network: vec![json!({"type": "dhcp", "ipam": {"type": "dhcp"}})],
        dhcp: true,
        capabilities: vec![(json!({}), [NONE, NONE, SYS, NONE, NONE])],
        ..Target::default()
    }
}

/// Only its own part. The rest is bridge's and host-local's, which run in its process.
fn flannel() -> Target {
    Target {
        name: "flannel",
        network: vec![json!({"type": "flannel", "delegate": {"bridge": "br0", "isDefaultGateway": true}})],
        host: "mkdir -p /run/flannel; printf 'FLANNEL_%s\\n' NETWORK=10.1.0.0/16 SUBNET=10.1.2.1/24 \
               IPV6_NETWORK=fd00:1::/32 IPV6_SUBNET=fd00:1:2::1/64 MTU=1400 IPMASQ=true >/run/flannel/subnet.env",
        state: Some(StateFiles { directory: "/var/lib/cni/flannel", files: FLANNEL }),
        capabilities: vec![(json!({}), [BOTH, NET, SYS, NET, BOTH])],
        ..Target::default()
    }
}

fn tuning() -> Target {
    let tuning = json!({
        "type": "tuning", "mtu": 1400, "mac": "02:00:00:00:00:77", "promisc": true, "allmulti": true,
        "features": {"tx-checksum-ip-generic": false},
        "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1", "net.core.somaxconn": "500"},
    });
    let sysctls = json!({"mtu": null, "mac": null, "promisc": null, "allmulti": null, "features": null});
    Target {
        name: "tuning",
        network: vec![bridge(json!({})), tuning],
        host: "mkdir -p /etc/cni/tuning; echo '^net\\.' >/etc/cni/tuning/allowlist.conf",
        state: Some(StateFiles { directory: "/run/cni/tuning", files: TUNING }),
        capabilities: vec![
            (sysctls, [SYS, NONE, SYS, NONE, NONE]),
            (json!({"sysctl": null}), [BOTH, BOTH, SYS, NONE, NONE]),
        ],
        ..Target::default()
    }
}

fn bandwidth() -> Target {
    let bandwidth = json!({
        "type": "bandwidth", "ingressRate": 8_000_000, "ingressBurst": 800_000,
        "egressRate": 4_000_000, "egressBurst": 400_000,
    });
    Target {
        name: "bandwidth",
        network: vec![bridge(json!({})), bandwidth],
        needs: &[Feature::TrafficControl],
        capabilities: vec![(json!({}), [BOTH, BOTH, SYS, NET, BOTH])],
        ..Target::default()
    }
}

fn sbr() -> Target {
    Target {
        name: "sbr",
        network: vec![bridge(json!({})), json!({"type": "sbr", "addSourceHints": true})],
        capabilities: vec![(json!({}), [BOTH, BOTH, SYS, NONE, NONE])],
        ..Target::default()
    }
}

fn vrf() -> Target {
    Target {
        name: "vrf",
        network: vec![bridge(json!({})), json!({"type": "vrf", "vrfname": "blue"})],
        needs: &[Feature::Vrf],
        capabilities: vec![(json!({}), [BOTH, BOTH, SYS, NONE, NET])],
        ..Target::default()
    }
}

/// Its server runs for the attachment that stays.
fn dnsname() -> Target {
    let dnsname =
        json!({"type": "dnsname", "domainName": "dns.test", "runtimeConfig": {"aliases": ["alias"]}});
    let signals: Capabilities = &["kill", "net_admin", "sys_ptrace"];
    Target {
        name: "dnsname",
        network: vec![bridge(json!({})), dnsname],
        state: Some(StateFiles { directory: "/run/ferrule-dnsname/net", files: DNSNAME }),
        capabilities: vec![(json!({}), [signals, signals, &["net_admin", "sys_ptrace"], signals, NONE])],
        ..Target::default()
    }
}

/// The first and the last attachment of a network, which starts the server and stops it.
fn dnsname_alone() -> Target {
    let dnsname = dnsname();
    let mut staying = dnsname.network.clone();
    let ranges = json!([[{"subnet": "10.1.3.0/24"}], [{"subnet": "fd00:1:3::/64"}]]);
    staying.iter_mut().for_each(|plugin| plugin["name"] = json!("other"));
    (staying[0]["bridge"], staying[0]["ipam"]["ranges"]) = (json!("br1"), ranges);
    let stops: Capabilities = &["kill", "net_admin", "sys_ptrace"];
    let starts: Capabilities = &["net_admin", "net_bind_service", "setgid", "setuid"];
    Target {
        name: "dnsname, first and last container",
        staying_network: staying,
        state: None,
        capabilities: vec![(json!({}), [starts, stops, &["net_admin", "sys_ptrace"], stops, NONE])],
        ..dnsname
    }
}

/// The first and the last attachment of a host, which create and remove the objects that attachments share.
fn first_and_last() -> Vec<Target> {
    let of = |name, target| Target { name, alone: true, state: None, capabilities: Vec::new(), ..target };
    // ADD also creates the gateway interface of the VLAN, and DEL removes it.
    let in_vlan = Target {
        network: vec![bridge(json!({"vlan": 10}))],
        needs: &[Feature::BridgeVlanFiltering],
        ..bridge_alone()
    };
    let bridges = [
        of("bridge, first and last container", bridge_alone()),
        of("bridge, VLAN, first and last container", in_vlan),
        of("bridge, ipMasq, macspoofchk, nftables, first and last container", guarded("nftables")),
        of("bridge, ipMasq, macspoofchk, iptables, first and last container", guarded("iptables")),
    ];
    let rules = [
        of("ptp, ipMasq, nftables, first and last container", ptp("nftables")),
        of("ptp, ipMasq, iptables, first and last container", ptp("iptables")),
        of("portmap, nftables, first and last container", portmap("nftables")),
        of("portmap, iptables, first and last container", portmap("iptables")),
        of("firewall, nftables, first and last container", firewall("nftables")),
        of("firewall, iptables, first and last container", firewall("iptables")),
    ];
    bridges.map(|target| Target { creates: Some("br0"), ..target }).into_iter().chain(rules).collect()
}

fn guarded(backend: &'static str) -> Target {
    let masquerade = json!({"ipMasq": true, "ipMasqBackend": backend, "hairpinMode": true});
    let without = |key: &str| json!({key: null});
    let needs = [BOTH, NET, BOTH, NET, BOTH];
    let iptables = backend == "iptables";
    Target {
        name: if iptables {
            "bridge, ipMasq, macspoofchk, iptables"
        } else {
            "bridge, ipMasq, macspoofchk, nftables"
        },
        network: vec![bridge(merged(masquerade, json!({"macspoofchk": true})))],
        backend: Some(backend),
        translates: true,
        capabilities: vec![(without("macspoofchk"), needs), (without("ipMasq"), needs)],
        ..Target::default()
    }
}

fn portmap(backend: &'static str) -> Target {
    let mappings = json!([
        {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
        {"hostPort": HOST_PORT, "containerPort": 53, "protocol": "udp"},
    ]);
    let portmap = json!({
        "type": "portmap", "backend": backend, "snat": true, "capabilities": {"portMappings": true},
        "runtimeConfig": {"portMappings": mappings},
    });
    let iptables = backend == "iptables";
    Target {
        name: if iptables { "portmap, iptables" } else { "portmap, nftables" },
        network: vec![bridge(json!({})), portmap],
        backend: Some(backend),
        translates: true,
        capabilities: vec![(json!({}), [NET, NET, NET, NET, if iptables { NONE } else { NET }])],
        ..Target::default()
    }
}

/// Everything that it can install with bridge. With nftables, it changes FORWARD only if that exists.
fn firewall(backend: &'static str) -> Target {
    let iptables = backend == "iptables";
    Target {
        name: if iptables { "firewall, iptables" } else { "firewall, nftables" },
        network: vec![
            bridge(json!({})),
            json!({"type": "firewall", "backend": backend, "ingressPolicy": "isolated"}),
        ],
        backend: Some(backend),
        capabilities: vec![(json!({}), [NET; 5])],
        ..Target::default()
    }
}

/// Only a zone. The rest is as without firewalld.
fn firewalld() -> Target {
    Target {
        name: "firewall, firewalld",
        network: vec![bridge(json!({})), json!({"type": "firewall", "backend": "firewalld"})],
        backend: Some("firewalld"),
        firewalld: true,
        state: Some(StateFiles { directory: "/run/cni/firewalld", files: FIREWALLD }),
        // DEL and GC look for the rules of every backend.
        capabilities: vec![(json!({}), [NONE, NET, NONE, NET, NONE])],
        ..Target::default()
    }
}

/// Host ports that two attachments claim: after the DEL of the attachment under test, they lead to the one that stays.
/// No datagrams are sent: which attachment receives them would be random.
fn claimed(backend: &'static str) -> [Target; 2] {
    let of = |staying_ports, name| Target {
        name,
        translates: false,
        staying_ports,
        capabilities: Vec::new(),
        ..portmap(backend)
    };
    match backend {
        "nftables" => [
            of(StayingPorts::Older, "portmap, a port that an older attachment claims, nftables"),
            of(StayingPorts::Newer, "portmap, a port that a newer attachment claims, nftables"),
        ],
        _ => [
            of(StayingPorts::Older, "portmap, a port that an older attachment claims, iptables"),
            of(StayingPorts::Newer, "portmap, a port that a newer attachment claims, iptables"),
        ],
    }
}

/// Programs that plugins start.
fn tools() -> Vec<Target> {
    let of =
        |name, tools, plugin| Target { name, hit: Hit::Tools(tools), capabilities: Vec::new(), ..plugin };
    vec![
        // In the second family, when the first family's rules exist already.
        of("ip6tables-restore under bridge", &["ip6tables-restore"], guarded("iptables")),
        of("iptables-restore under portmap", &["iptables-restore"], portmap("iptables")),
        Target {
            legacy: true,
            ..of("iptables-legacy-restore under portmap", LEGACY_TOOLS, portmap("iptables"))
        },
    ]
}

const LEGACY_TOOLS: &[&str] =
    &["iptables-restore", "ip6tables-restore", "iptables-legacy-restore", "ip6tables-legacy-restore"];

fn delegate() -> Target {
    Target {
        name: "host-local under bridge",
        hit: Hit::Delegate("host-local"),
        state: None,
        capabilities: Vec::new(),
        ..bridge_alone()
    }
}

/// bridge's spoof check would drop the packets after tuning changes the MAC.
fn runtime() -> Target {
    let mut tuning = tuning().network.remove(1);
    tuning["mac"].take();
    tuning["dataDir"] = json!("/var/lib/cni/tuning");
    Target {
        name: "cnitool",
        network: [guarded("nftables").network, vec![tuning]].concat(),
        hit: Hit::Runtime,
        state: Some(StateFiles { directory: "/var/lib/cni", files: CNITOOL }),
        ..Target::default()
    }
}

/// The legacy iptables tools, which lock a file.
pub fn with_legacy_tools() -> Target {
    Target {
        name: "bridge, ipMasq, iptables-legacy",
        legacy: true,
        state: Some(StateFiles { directory: STORE, files: XTABLES }),
        ..guarded("iptables")
    }
}

fn bridge(keys: Value) -> Value {
    merged(json!({"type": "bridge", "bridge": "br0", "isDefaultGateway": true, "ipam": ipam()}), keys)
}

fn ipam() -> Value {
    json!({"type": "host-local", "ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "fd00:1:2::/64"}]]})
}

fn merged(mut to: Value, keys: Value) -> Value {
    if let (Value::Object(to), Value::Object(keys)) = (&mut to, keys) {
        to.extend(keys);
    }
    to
}

const STORE: &str = "/var/lib/cni/networks";

const HOST_LOCAL: &[PluginFile] = &[
    directory("dataDir", STORE),
    directory("the network's directory", "/var/lib/cni/networks/net"),
    own("lock", "/var/lib/cni/networks/net/lock"),
    own(".lock", "/var/lib/cni/networks/net/.lock"),
    own(".index", "/var/lib/cni/networks/net/.index"),
    own(".boot_id", "/var/lib/cni/networks/net/.boot_id"),
    own("last_reserved_ip.0", "/var/lib/cni/networks/net/last_reserved_ip.0"),
    own("the next lease", "/var/lib/cni/networks/net/10.1.2.100")
        .listed()
        .prepare("echo -n 10.1.2.99 >/var/lib/cni/networks/net/last_reserved_ip.0"),
    own(
        "the attachment's lease",
        "/var/lib/cni/networks/net/$(cat /var/lib/cni/networks/net/last_reserved_ip.0)",
    )
    .listed(),
    administrators("resolvConf", "/etc/cni/resolv.conf"),
];

const TUNING: &[PluginFile] = &[
    directory("dataDir", "/run/cni/tuning"),
    own("the backup", "/run/cni/tuning/victim_eth0.json"),
    administrators("the allowlist", "/etc/cni/tuning/allowlist.conf"),
];

const FIREWALLD: &[PluginFile] = &[
    directory("the records", "/run/cni/firewalld"),
    own("the record", "/run/cni/firewalld/victim~eth0.json"),
];

/// The hosts file has lines of the attachment that stays: those would be lost with it.
const DNSNAME: &[PluginFile] = &[
    own("dnsmasq.conf", "/run/ferrule-dnsname/net/dnsmasq.conf"),
    own("deleted", "/run/ferrule-dnsname/net/deleted"),
    own("pidfile", "/run/ferrule-dnsname/net/pidfile"),
];

const FLANNEL: &[PluginFile] = &[
    directory("dataDir", "/var/lib/cni/flannel"),
    own("what DEL needs", "/var/lib/cni/flannel/victim"),
    administrators("subnetFile", "/run/flannel/subnet.env"),
];

const HOST_DEVICE: &[PluginFile] = &[own("the record", "/run/cni/host-device/victim~eth0.json")];

const CNITOOL: &[PluginFile] = &[
    directory("the results", "/var/lib/cni/results"),
    own("results.lock", "/var/lib/cni/results.lock"),
    own("results.containers.lock", "/var/lib/cni/results.containers.lock"),
    own("the result", "/var/lib/cni/results/net-victim-eth0"),
    administrators("the network's file", "/etc/cni/net.d/net.conflist").listed(),
    administrators("another network's file", "/etc/cni/net.d/00-other.conflist").listed(),
];

const XTABLES: &[PluginFile] = &[of_a_tool("/run/xtables.lock")];
