//! The tables: each line has a plugin and the keys of its configuration. A plugin with `+` follows another one in the
//! chain, whose result is [`prev`].

use serde_json::{Value, json};

/// A refused configuration: the plugin, and its keys.
pub struct Row(pub &'static str, pub Value);

/// Ferrule's message begins with the reference's.
pub const SAME_WORDS: &str = r#"
static {"ipam": {"type": "static", "addresses": [{"address": "10.0.0.1"}]}}
static {"ipam": {"type": "static", "addresses": [{"address": "x"}]}}
static {"ipam": {"type": "static"}, "runtimeConfig": {"ips": ["10.0.0.1"]}}
static {"ipam": {"type": "static"}, "args": {"cni": {"ips": ["10.0.0.1"]}}}
+bandwidth {"ingressBurst": 1000}
+bandwidth {"egressBurst": 1000}
+bandwidth {"ingressRate": 1000}
+bandwidth {"egressRate": 8000, "egressBurst": 99999999999}
bandwidth {"ingressRate": 8000, "ingressBurst": 8000}
portmap {"runtimeConfig": {"portMappings": [{"hostPort": 80, "containerPort": 80, "protocol": "tcp"}]}}
firewall {}
sbr {}
tuning {}
vrf {"vrfname": "blue"}
+vrf {}
host-device {}
"#;

/// Ferrule refuses these too, in other words.
pub const OTHER_WORDS: &str = r#"
bridge {"mtu": "x"}
bridge {"mtu": 100000}
bridge {"bridge": "cable"}
bridge {"hairpinMode": true, "promiscMode": true}
bridge {"disableContainerInterface": true, "ipam": {"type": "static", "addresses": [{"address": "10.0.0.2/24"}]}}
bridge {"runtimeConfig": {"mac": "zz"}}
bridge {"args": {"cni": {"mac": "zz"}}}
bridge {"vlan": -1}
bridge {"vlan": 5000}
bridge {"vlanTrunk": [{"minID": 5}]}
bridge {"vlanTrunk": [{"maxID": 5}]}
bridge {"vlanTrunk": [{"minID": 0, "maxID": 5}]}
bridge {"vlanTrunk": [{"minID": 5, "maxID": 5000}]}
bridge {"vlanTrunk": [{"minID": 9, "maxID": 5}]}
bridge {"vlanTrunk": [{"id": 5000}]}
bridge {"ipam": {"type": "nope"}}
bridge {"ipam": {"type": "static", "addresses": []}}
bridge {"isGateway": true, "ipMasq": true, "ipMasqBackend": "foo", "ipam": {"type": "static", "addresses": [{"address": "10.0.0.2/24"}]}}
ptp {"mtu": "x"}
ptp {"ipam": {"type": "nope"}}
ptp {"ipam": {"type": "static", "addresses": []}}
ptp {"ipMasq": true, "ipMasqBackend": "foo", "ipam": {"type": "static", "addresses": [{"address": "10.0.0.2/24", "gateway": "10.0.0.1"}]}}
macvlan {}
macvlan {"master": "nope"}
macvlan {"master": "cable", "mode": "foo"}
macvlan {"master": "cable", "mtu": 9000}
macvlan {"master": "cable", "mtu": -1}
macvlan {"master": "cable", "mac": "zz"}
macvlan {"master": "cable", "runtimeConfig": {"mac": "zz"}}
macvlan {"master": "cable", "ipam": {"type": "static", "addresses": []}}
ipvlan {}
ipvlan {"master": "nope"}
ipvlan {"master": "cable", "mode": "foo"}
ipvlan {"prevResult": {"cniVersion": "1.0.0", "interfaces": [], "ips": []}}
vlan {"vlanId": 5}
vlan {"master": "nope", "vlanId": 5}
vlan {"master": "cable", "vlanId": -1}
vlan {"master": "cable", "vlanId": 5000}
vlan {"master": "cable", "vlanId": 5, "mtu": 9000}
tap {"mac": "zz"}
tap {"runtimeConfig": {"mac": "zz"}}
tap {"bridge": "nope"}
tap {"ipam": {"type": "static", "addresses": []}}
host-device {"device": "nope"}
host-device {"device": "cable", "ipam": {"type": "static", "addresses": []}}
host-device {"hwaddr": "zz"}
host-device {"hwaddr": "02:00:00:00:00:99"}
host-device {"kernelpath": "/etc"}
host-device {"kernelpath": "/sys/devices/nope"}
host-device {"pciBusID": "0000:99:99.9"}
host-device {"runtimeConfig": {"deviceID": "nope"}}
loopback {"prevResult": "x"}
host-local {}
host-local {"ipam": {"type": "host-local"}}
host-local {"ipam": {"type": "host-local", "subnet": "x"}}
host-local {"ipam": {"type": "host-local", "subnet": "10.0.0.1/24"}}
host-local {"ipam": {"type": "host-local", "subnet": "10.0.0.0/31"}}
host-local {"ipam": {"type": "host-local", "subnet": "10.0.0.0/24", "rangeStart": "10.0.1.1"}}
host-local {"ipam": {"type": "host-local", "subnet": "10.0.0.0/24", "rangeEnd": "10.0.1.1"}}
host-local {"ipam": {"type": "host-local", "subnet": "10.0.0.0/24", "rangeStart": "10.0.0.9", "rangeEnd": "10.0.0.5"}}
host-local {"ipam": {"type": "host-local", "ranges": [[]]}}
host-local {"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}, {"subnet": "fd00::/64"}]]}}
host-local {"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}, {"subnet": "10.1.0.0/24"}]]}}
host-local {"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "10.1.0.0/25"}]]}}
host-local {"ipam": {"type": "host-local", "subnet": "10.0.0.0/24"}, "runtimeConfig": {"ips": ["x"]}}
host-local {"ipam": {"type": "host-local", "subnet": "10.0.0.0/24"}, "args": {"cni": {"ips": ["x"]}}}
static {}
static {"ipam": {"type": "static", "routes": [{"dst": "x"}]}}
+tuning {"prevResult": "x"}
+tuning {"sysctl": {"kernel.x": "1"}}
+tuning {"sysctl": {"net.ipv4/../x": "1"}}
+tuning {"mac": "zz"}
+tuning {"args": {"cni": {"mac": "zz"}}}
+tuning {"runtimeConfig": {"mac": "zz"}}
+portmap {"prevResult": "x"}
+portmap {"backend": "foo"}
+portmap {"markMasqBit": 55}
+portmap {"markMasqBit": 5, "externalSetMarkChain": "A"}
+portmap {"backend": "nftables", "conditionsV4": ["-d", "10.0.0.0/8"]}
+portmap {"backend": "iptables", "conditionsV4": ["ip daddr 10.0.0.0/8"]}
+portmap {"runtimeConfig": {"portMappings": [{"hostPort": 80, "containerPort": 0, "protocol": "tcp"}]}}
+portmap {"runtimeConfig": {"portMappings": [{"hostPort": 80, "containerPort": 70000, "protocol": "tcp"}]}}
+portmap {"runtimeConfig": {"portMappings": [{"hostPort": -1, "containerPort": 80, "protocol": "tcp"}]}}
+portmap {"runtimeConfig": {"portMappings": [{"hostPort": 80, "containerPort": 80, "protocol": "foo"}]}}
+firewall {"ingressPolicy": "foo"}
+vrf {"prevResult": "x", "vrfname": "blue"}
"#;

/// These need something that the result or the host lacks.
pub const MISSING: &str = r#"
+bandwidth {"ingressRate": 8000, "ingressBurst": 8000}
bandwidth {"ingressRate": 8000, "ingressBurst": 8000, "prevResult": {"cniVersion": "1.0.0", "interfaces": [], "ips": []}}
firewall {"ingressPolicy": "same-bridge", "prevResult": {"cniVersion": "1.0.0", "ips": []}}
firewall {"ingressPolicy": "same-bridge", "prevResult": {"cniVersion": "1.0.0", "interfaces": [{"name": ""}], "ips": []}}
+sbr {}
sbr {"prevResult": {"cniVersion": "1.0.0", "interfaces": [{"name": "eth0"}], "ips": []}}
+vrf {"vrfname": "cable"}
"#;

/// The reference refuses these, and Ferrule accepts them. Each follows its anchor in docs/reference-quirks.md.
pub const ACCEPTED: &str = r#"
ipam-optional: ptp {}
default-gateway-twice: bridge {"isDefaultGateway": true, "ipam": {"type": "static", "addresses": [{"address": "10.1.2.7/24"}], "routes": [{"dst": "0.0.0.0/0"}]}}
gateway-outside: ptp {"ipam": {"type": "static", "addresses": [{"address": "10.1.2.7/32", "gateway": "169.254.1.1"}], "routes": [{"dst": "0.0.0.0/0"}]}}
static-gateways: static {"ipam": {"type": "static", "addresses": [{"address": "10.1.2.7/24"}]}, "runtimeConfig": {"ips": ["10.1.2.9"]}}
address-precedence: host-local {"ipam": {"type": "host-local", "subnet": "10.0.0.0/24"}, "args": {"cni": {"ips": ["10.0.0.7"]}}, "runtimeConfig": {"ips": ["10.0.0.8"]}}
"#;

/// The rows of a table.
pub fn rows(table: &'static str) -> impl Iterator<Item = Row> {
    table.lines().filter(|line| !line.is_empty()).map(row)
}

/// A line of a table.
pub fn row(line: &'static str) -> Row {
    let (plugin, keys) = line.split_once(' ').unwrap();
    let mut keys: Value = serde_json::from_str(keys).unwrap_or_else(|e| panic!("{line}: {e}"));
    if plugin.starts_with('+') {
        let keys = keys.as_object_mut().unwrap();
        keys.entry("prevResult").or_insert_with(prev);
    }
    Row(plugin.trim_start_matches('+'), keys)
}

/// The result of the previous plugin.
fn prev() -> Value {
    json!({
        "cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "/run/netns/pod"}],
        "ips": [{"address": "10.1.2.2/24", "interface": 0}],
    })
}
