//! The tables. Each line has a plugin and its configuration, as text, because a parsed configuration has no key twice.
//! Marks before the plugin: with `+`, it follows another plugin, whose result is [`PREV`], and the container has the
//! interface. With `-`, it follows the same plugin, but the interface is missing.
//!
//! The lists were made by reading the reference's messages, and are not complete. Every key with a value of a wrong
//! type is in `all_plugins::mistyped`; here, each plugin has only examples.

use lab::Feature;
use serde_json::Value;

/// A configuration, and the marks.
pub struct Row {
    pub plugin: &'static str,
    keys: &'static str,
    pub has_interface: bool,
    follows: bool,
}

/// How both sides refuse a configuration.
pub struct Refusal {
    /// In the reference's message.
    pub theirs: &'static str,
    pub code: u64,
    /// In Ferrule's message.
    pub ours: &'static str,
}

/// Ferrule's message begins with the reference's.
pub const SAME_WORDS: &str = r#"
static {"ipam": {"type": "static", "addresses": [{"address": "10.0.0.1"}]}}
static {"ipam": {"type": "static", "addresses": [{"address": "x"}]}}
static {"ipam": {"type": "static"}, "runtimeConfig": {"ips": ["10.0.0.1"]}}
static {"ipam": {"type": "static"}, "args": {"cni": {"ips": ["10.0.0.1"]}}}
host-local {"ipam": {"type": "host-local", "subnet": "10.0.0.0/24"}, "runtimeConfig": {"ips": ["10.1.0.5"]}}
+bandwidth {"ingressBurst": 1000}
+bandwidth {"egressBurst": 1000}
+bandwidth {"ingressRate": 1000}
+bandwidth {"runtimeConfig": {"bandwidth": {"ingressRate": 8000}}}
+bandwidth {"egressRate": 8000, "egressBurst": 99999999999}
bandwidth {"ingressRate": 8000, "ingressBurst": 8000}
portmap {"runtimeConfig": {"portMappings": [{"hostPort": 80, "containerPort": 80, "protocol": "tcp"}]}}
firewall {}
sbr {}
tuning {}
+tuning {"sysctl": {"net.core.somaxconn": "1", "net.core.somaxconn": "2"}}
vrf {"vrfname": "blue"}
+vrf {}
host-device {}
"#;

/// Ferrule refuses these too, in other words. After the configuration: words of the reference's message, Ferrule's
/// code, and words of Ferrule's message, which name the key or object.
pub const OTHER_WORDS: &str = r#"
bridge {"mtu": "x"} | NetConf.mtu of type int | 6 mtu: expected a whole number
bridge {"mtu": 100000} | could not add "cni0" | 7 mtu 100000 is out of range
bridge {"macspoofchk": "x"} | NetConf.macspoofchk of type bool | 6 macspoofchk: expected true or false
bridge {"bridge": "cable"} | "cable" already exists but is not a bridge | 7 bridge cable: a link of that name exists already
bridge {"bridge": "a-name-that-is-too-long"} | could not add "a-name-that-is-too-long" | 7 bridge "a-name-that-is-too-long" is wrong
bridge {"bridge": ""} | LinkAttrs.Name cannot be empty | 7 bridge is empty
bridge {"hairpinMode": true, "promiscMode": true} | cannot set hairpin mode and promiscuous mode at the same time | 7 hairpinMode and promiscMode exclude each other
bridge {"disableContainerInterface": true, "ipam": {"type": "static", "addresses": [{"address": "10.0.0.2/24"}]}} | cannot use IPAM when DisableContainerInterface flag is set | 7 disableContainerInterface and ipam exclude each other
bridge {"runtimeConfig": {"mac": "zz"}} | address zz: invalid MAC address | 7 runtimeConfig.mac: "zz" is not a MAC address
bridge {"runtimeConfig": {"mac": "01:00:00:00:00:01"}} | cannot assign requested address | 7 runtimeConfig.mac: 01:00:00:00:00:01 cannot be an interface's address
bridge {"args": {"cni": {"mac": "zz"}}} | address zz: invalid MAC address | 7 args.cni.mac: "zz" is not a MAC address
bridge {"vlan": -1} | invalid VLAN ID -1 | 7 vlan -1 is out of range
bridge {"vlan": 5000} | invalid VLAN ID 5000 | 7 vlan 5000 is out of range
bridge {"vlanTrunk": "x"} | NetConf.vlanTrunk of type | 6 vlanTrunk: expected a list
bridge {"vlanTrunk": [{"minID": 5}]} | minID and maxID should be configured simultaneously, maxID is missing | 7 vlanTrunk: minID is given without maxID
bridge {"vlanTrunk": [{"maxID": 5}]} | minID and maxID should be configured simultaneously, minID is missing | 7 vlanTrunk: maxID is given without minID
bridge {"vlanTrunk": [{"minID": 0, "maxID": 5}]} | incorrect trunk minID parameter | 7 vlanTrunk: minID 0 is out of range
bridge {"vlanTrunk": [{"minID": 5, "maxID": 5000}]} | incorrect trunk maxID parameter | 7 vlanTrunk: maxID 5000 is out of range
bridge {"vlanTrunk": [{"minID": 9, "maxID": 5}]} | minID is greater than maxID in trunk parameter | 7 vlanTrunk: minID 9 is greater than maxID 5
bridge {"vlanTrunk": [{"id": 5000}]} | incorrect trunk id parameter | 7 vlanTrunk: id 5000 is out of range
bridge {"ipam": {"type": "nope"}} | failed to find plugin "nope" | 7 ipam.type: no plugin "nope"
bridge {"ipam": {"type": "static", "addresses": []}} | IPAM plugin returned missing IP config | 7 no address is configured or requested
bridge {"isGateway": true, "ipMasq": true, "ipMasqBackend": "foo", "ipam": {"type": "static", "addresses": [{"address": "10.0.0.2/24"}]}} | unknown ipmasq backend "foo" | 7 ipMasqBackend: backend "foo"
ptp {"mtu": "x"} | NetConf.mtu of type int | 6 mtu: expected a whole number
ptp {"mtu": -1, "ipam": {"type": "static", "addresses": [{"address": "10.0.0.2/24"}]}} | numerical result out of range | 6 mtu: -1 is out of range
ptp {"ipam": {"type": "nope"}} | failed to find plugin "nope" | 7 ipam.type: no plugin "nope"
ptp {"ipam": {"type": "static", "addresses": []}} | IPAM plugin returned missing IP config | 7 no address is configured or requested
ptp {"ipam": {"type": "static", "addresses": [{"address": "10.0.0.2/24"}]}} | numerical result out of range | 7 ipam: address 10.0.0.2/24 needs a gateway
ptp {"ipMasq": true, "ipMasqBackend": "foo", "ipam": {"type": "static", "addresses": [{"address": "10.0.0.2/24", "gateway": "10.0.0.1"}]}} | unknown ipmasq backend "foo" | 7 ipMasqBackend: backend "foo"
macvlan {} | no default route interface found | 7 master is missing
macvlan {"master": "nope"} | Link not found | 7 master nope: this link does not exist
macvlan {"master": "cable", "linkInContainer": true} | Link not found | 7 master cable: this link does not exist in namespace /run/netns/pod
macvlan {"master": "cable", "mode": "foo"} | unknown macvlan mode: "foo" | 7 mode "foo" is none of bridge, private, vepa, passthru
macvlan {"master": "cable", "mtu": 9000} | invalid MTU 9000 | 7 mtu 9000 is more than 1500, the MTU of its master cable
macvlan {"master": "cable", "mtu": -1} | invalid MTU -1 | 6 mtu: -1 is out of range
macvlan {"master": "cable", "bcqueuelen": -1} | NetConf.bcqueuelen of type uint32 | 6 bcqueuelen: -1 is out of range
macvlan {"master": "cable", "mac": "zz"} | invalid args zz for MAC addr | 7 mac: "zz" is not a MAC address
macvlan {"master": "cable", "runtimeConfig": {"mac": "zz"}} | invalid args zz for MAC addr | 7 runtimeConfig.mac: "zz" is not a MAC address
macvlan {"master": "cable", "ipam": {"type": "static", "addresses": []}} | IPAM plugin returned missing IP config | 7 no address is configured or requested
ipvlan {} | no default route interface found | 7 master is missing
ipvlan {"master": "nope"} | failed to lookup master "nope": Link not found | 7 master nope: this link does not exist
ipvlan {"master": "cable", "linkInContainer": true} | failed to lookup master "cable": Link not found | 7 master cable: this link does not exist in namespace /run/netns/pod
ipvlan {"master": "cable", "mode": "foo"} | unknown ipvlan mode: "foo" | 7 mode "foo" is none of l2, l3, l3s
ipvlan {"prevResult": {"cniVersion": "1.0.0", "interfaces": [], "ips": []}} | chained master failure. PrevResult lacks a single named interface | 7 master is missing
vlan {"vlanId": 5} | "master" field is required | 7 master is missing
vlan {"master": "nope", "vlanId": 5} | Link not found | 7 master nope: this link does not exist
vlan {"master": "cable", "vlanId": 5, "linkInContainer": true} | Link not found | 7 master cable: this link does not exist in namespace /run/netns/pod
vlan {"master": "cable", "vlanId": -1} | invalid VLAN ID -1 | 6 vlanId: -1 is out of range
vlan {"master": "cable", "vlanId": 5000} | invalid VLAN ID 5000 | 7 vlanId 5000 is out of range
vlan {"master": "cable", "vlanId": 5, "mtu": 9000} | invalid MTU 9000 | 7 mtu 9000 is more than 1500, the MTU of its master cable
vlan {"master": "cable", "vlanId": 5, "mtu": -1} | invalid MTU -1 | 6 mtu: -1 is out of range
dummy {"ipam": 5} | PluginConf.ipam of type types.IPAM | 6 ipam: expected an object
tap {"mac": "zz"} | "zz" is invalid lladdr | 7 mac: "zz" is not a MAC address
tap {"mac": "01:00:00:00:00:01"} | Cannot assign requested address | 7 mac: 01:00:00:00:00:01 cannot be an interface's address
tap {"mtu": -1} | mtu less than device minimum | 6 mtu: -1 is out of range
tap {"multiQueue": "x"} | NetConf.multiQueue of type bool | 6 multiQueue: expected true or false
tap {"owner": "x"} | NetConf.owner of type uint32 | 6 owner: expected a whole number
tap {"runtimeConfig": {"mac": "zz"}} | "zz" is invalid lladdr | 7 runtimeConfig.mac: "zz" is not a MAC address
tap {"bridge": "nope"} | failed to get bridge nope: Link not found | 7 bridge nope: this link does not exist
tap {"ipam": {"type": "static", "addresses": []}} | IPAM plugin returned missing IP config | 7 no address is configured or requested
host-device {"device": "nope"} | failed to find host device: Link not found | 7 device nope: no such interface
host-device {"device": "cable", "ipam": {"type": "static", "addresses": []}} | IPAM plugin returned missing IP config | 7 no address is configured or requested
host-device {"hwaddr": "zz"} | failed to parse MAC address "zz" | 7 hwaddr: "zz" is not a MAC address
host-device {"hwaddr": "02:00:00:00:00:99"} | failed to find physical interface | 7 hwaddr 02:00:00:00:00:99: no such interface
host-device {"kernelpath": "/etc"} | kernel device path "/etc" must be absolute and begin with /sys/devices/ | 7 kernelpath "/etc" is not a path below /sys/devices
host-device {"kernelpath": "/sys/devices/nope"} | failed to read directory /sys/devices/nope/net | 7 kernelpath /sys/devices/nope: no such interface
host-device {"pciBusID": "0000:99:99.9"} | lstat /sys/bus/pci/devices/0000:99:99.9 | 7 pciBusID 0000:99:99.9: this host has no such PCI device
host-device {"runtimeConfig": {"deviceID": "nope"}} | runtime config DeviceID nope not found or unsupported | 7 runtimeConfig.deviceID nope: this host has no such PCI device
loopback {"prevResult": "x"} | PluginConf.prevResult of type map | 6 prevResult: expected an object
dhcp {"ipam": {"type": "dhcp"}} | error dialing DHCP daemon: dial unix /run/cni/dhcp.sock | 11 ask the DHCP daemon on /run/cni/dhcp.sock
dhcp {"ipam": {"type": "dhcp", "daemonSocketPath": "/nope"}} | error dialing DHCP daemon: dial unix /nope | 11 ask the DHCP daemon on /nope
host-local {} | IPAM config missing 'ipam' key | 7 ipam.ranges is missing or empty
host-local {"ipam": {"type": "host-local"}} | no IP ranges specified | 7 ipam.ranges is missing or empty
host-local {"ipam": {"type": "host-local", "subnet": "x"}} | invalid CIDR address: x | 6 ipam.subnet: "x" has no prefix length
host-local {"ipam": {"type": "host-local", "subnet": "10.0.0.1/24"}} | Network has host bits set | 7 ipam.subnet: subnet 10.0.0.1/24 has host bits set
host-local {"ipam": {"type": "host-local", "subnet": "10.0.0.0/31"}} | Network 10.0.0.0/31 too small to allocate from | 7 ipam.subnet: subnet 10.0.0.0/31 is too small
host-local {"ipam": {"type": "host-local", "subnet": "10.0.0.0/24", "gateway": "x"}} | invalid IP address: x | 6 ipam.gateway: "x" is not an IP address
host-local {"ipam": {"type": "host-local", "subnet": "10.0.0.0/24", "rangeStart": "x"}} | invalid IP address: x | 6 ipam.rangeStart: "x" is not an IP address
host-local {"ipam": {"type": "host-local", "subnet": "10.0.0.0/24", "rangeStart": "10.0.1.1"}} | RangeStart 10.0.1.1 not in network 10.0.0.0/24 | 7 ipam.subnet: rangeStart 10.0.1.1 is not in subnet 10.0.0.0/24
host-local {"ipam": {"type": "host-local", "subnet": "10.0.0.0/24", "rangeEnd": "10.0.1.1"}} | RangeEnd 10.0.1.1 not in network 10.0.0.0/24 | 7 ipam.subnet: rangeEnd 10.0.1.1 is not in subnet 10.0.0.0/24
host-local {"ipam": {"type": "host-local", "subnet": "10.0.0.0/24", "rangeStart": "10.0.0.9", "rangeEnd": "10.0.0.5"}} | RangeStart 10.0.0.9 not in network 10.0.0.0/24 | 7 ipam.subnet: rangeStart 10.0.0.9 comes after rangeEnd 10.0.0.5
host-local {"ipam": {"type": "host-local", "subnet": "10.0.0.0/24", "resolvConf": "/nope"}} | open /nope: no such file or directory | 5 read resolvConf /nope
host-local {"ipam": {"type": "host-local", "subnet": "10.0.0.0/24", "routes": [{"dst": "x"}]}} | invalid CIDR address: x | 6 ipam.routes[0].dst: "x" has no prefix length
host-local {"ipam": {"type": "host-local", "subnet": "10.0.0.0/24", "dataDir": "/proc/nope"}} | mkdir /proc/nope: no such file or directory | 5 create the directory of leases /proc/nope/net
host-local {"ipam": {"type": "host-local", "ranges": [[]]}} | invalid range set 0: empty range set | 7 ipam.ranges[0]: the range set is empty
host-local {"ipam": {"type": "host-local", "ranges": [[{}]]}} | invalid range set 0: IP <nil> not v4 nor v6 | 6 ipam.ranges[0][0]: missing field `subnet`
host-local {"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}, {"subnet": "fd00::/64"}]]}} | invalid range set 0: mixed address families | 7 ipam.ranges[0]: 10.1.0.0/24 and fd00::/64 are of different families
host-local {"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}, {"subnet": "10.1.0.0/24"}]]}} | subnets 10.1.0.1-10.1.0.254 and 10.1.0.1-10.1.0.254 overlap | 7 ipam.ranges[0]: ranges 10.1.0.0/24 and 10.1.0.0/24 overlap
host-local {"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "10.1.0.0/25"}]]}} | range set 0 overlaps with 1 | 7 ipam.ranges[1]: range 10.1.0.0/25 overlaps 10.1.0.0/24
host-local {"ipam": {"type": "host-local", "subnet": "10.0.0.0/24"}, "runtimeConfig": {"ips": ["x"]}} | invalid IP address x | 6 runtimeConfig.ips[0]: "x" is not an IP address
host-local {"ipam": {"type": "host-local", "subnet": "10.0.0.0/24"}, "runtimeConfig": {"ipRanges": [[{"subnet": "x"}]]}} | invalid CIDR address: x | 6 runtimeConfig.ipRanges[0][0].subnet: "x" has no prefix length
host-local {"ipam": {"type": "host-local", "subnet": "10.0.0.0/24"}, "args": {"cni": {"ips": ["x"]}}} | invalid IP address x | 6 args.cni.ips[0]: "x" is not an IP address
static {} | IPAM config missing 'ipam' key | 7 no address is configured or requested
static {"ipam": {"type": "static", "addresses": [{"address": "10.0.0.1/24", "gateway": "x"}]}} | invalid IP address: x | 6 ipam.addresses[0].gateway: "x" is not an IP address
static {"ipam": {"type": "static", "routes": [{"dst": "x"}]}} | invalid CIDR address: x | 6 ipam.routes[0].dst: "x" has no prefix length
static {"ipam": {"type": "static"}, "runtimeConfig": {"ips": ["x"]}} | an entry in the 'ips' field is NOT in CIDR notation, got: 'x' | 6 runtimeConfig.ips[0]: "x" is not an IP address
+tuning {"prevResult": "x"} | TuningConf.NetConf.prevResult of type map | 6 prevResult: expected an object
+tuning {"dataDir": 5} | TuningConf.dataDir of type string | 6 dataDir: expected a string
+tuning {"promisc": "x"} | TuningConf.promisc of type bool | 6 promisc: expected true or false
+tuning {"mtu": -5} | invalid argument | 6 mtu: -5 is out of range
+tuning {"mtu": 100000} | invalid argument | 7 mtu 100000: change link eth0
+tuning {"sysctl": {"kernel.x": "1"}} | invalid net sysctl key: "kernel/x" | 7 sysctl: "kernel.x" = "1" is not below net/
+tuning {"sysctl": {"/x": "1"}} | invalid net sysctl key: "/x" | 7 sysctl: "/x" = "1" is not below net/
+tuning {"sysctl": {"net.ipv4/../x": "1"}} | open /proc/sys/net/ipv4/x | 7 sysctl: "net.ipv4/../x" = "1" is not a path below net/
+tuning {"sysctl": {"net.core.nonesuch": "1"}} | open /proc/sys/net/core/nonesuch | 2 sysctl net.core.nonesuch: read
+tuning {"sysctl": {"net.core.somaxconn": "x"}} | write /proc/sys/net/core/somaxconn: invalid argument | 7 sysctl net.core.somaxconn: write "x"
+tuning {"sysctl": {"net.core.somaxconn": 1}} | sysctlCheck.sysctl of type string | 6 sysctl.net.core.somaxconn: expected a string
+tuning {"mac": "zz"} | invalid args zz for MAC addr | 7 mac: "zz" is not a MAC address
+tuning {"mac": "01:00:00:00:00:01"} | cannot assign requested address | 7 mac: 01:00:00:00:00:01 cannot be an interface's address
+tuning {"args": {"cni": {"mac": "zz"}}} | invalid args zz for MAC addr | 7 args.cni.mac: "zz" is not a MAC address
+tuning {"runtimeConfig": {"mac": "zz"}} | invalid args zz for MAC addr | 7 runtimeConfig.mac: "zz" is not a MAC address
+bandwidth {"prevResult": "x"} | PluginConf.NetConf.prevResult of type map | 6 prevResult: expected an object
+bandwidth {"ingressRate": -1, "ingressBurst": 1} | PluginConf.BandwidthEntry.ingressRate of type uint64 | 7 ingressRate -1 is negative
-bandwidth {"ingressRate": 8000, "ingressBurst": 8000} | container interface eth0 has no veth peer | 4 CNI_IFNAME eth0: this interface does not exist
+portmap {"prevResult": "x"} | PortMapConf.NetConf.prevResult of type map | 6 prevResult: expected an object
+portmap {"snat": "x"} | PortMapConf.snat of type bool | 6 snat: expected true or false
+portmap {"masqAll": "x"} | PortMapConf.masqAll of type bool | 6 masqAll: expected true or false
+portmap {"backend": "foo"} | unrecognized backend "foo" | 7 backend "foo" is neither nftables nor iptables
+portmap {"markMasqBit": 55} | MasqMarkBit must be between 0 and 31 | 7 markMasqBit 55 is not a bit of a mark
+portmap {"markMasqBit": -1} | MasqMarkBit must be between 0 and 31 | 7 markMasqBit -1 is not a bit of a mark
+portmap {"markMasqBit": 5, "externalSetMarkChain": "A"} | Cannot specify externalSetMarkChain and markMasqBit | 7 markMasqBit and externalSetMarkChain exclude each other
+portmap {"externalSetMarkChain": "a-name-of-a-chain-that-is-really-too-long", "runtimeConfig": {"portMappings": [{"hostPort": 80, "containerPort": 80, "protocol": "tcp"}]}} | Invalid target name `a-name-of-a-chain-that-is-really-too-long' | 7 externalSetMarkChain "a-name-of-a-chain-that-is-really-too-long"
+portmap {"backend": "nftables", "conditionsV4": ["-d", "10.0.0.0/8"]} | configuration contains iptables-specific options [conditionsV4] | 7 "backend": "nftables" contradicts conditionsV4
+portmap {"backend": "iptables", "conditionsV4": ["ip daddr 10.0.0.0/8"]} | configuration contains nftables-specific options [conditionsV4] | 7 "backend": "iptables" contradicts conditionsV4
+portmap {"runtimeConfig": {"portMappings": [{"hostPort": 80, "containerPort": 0, "protocol": "tcp"}]}} | Invalid container port number: 0 | 7 runtimeConfig.portMappings[0].containerPort 0 is out of range
+portmap {"runtimeConfig": {"portMappings": [{"hostPort": 80, "containerPort": 70000, "protocol": "tcp"}]}} | Port `70000' not valid | 7 runtimeConfig.portMappings[0].containerPort 70000 is out of range
+portmap {"runtimeConfig": {"portMappings": [{"hostPort": -1, "containerPort": 80, "protocol": "tcp"}]}} | Invalid host port number: -1 | 7 runtimeConfig.portMappings[0].hostPort -1 is out of range
+portmap {"runtimeConfig": {"portMappings": [{"hostPort": 70000, "containerPort": 80, "protocol": "tcp"}]}} | invalid port/service `70000' specified | 7 runtimeConfig.portMappings[0].hostPort 70000 is out of range
+portmap {"runtimeConfig": {"portMappings": [{"hostPort": 80, "containerPort": 80, "protocol": "foo"}]}} | unknown protocol "foo" specified | 7 runtimeConfig.portMappings[0].protocol "foo" is none of tcp, udp, sctp
+portmap {"runtimeConfig": {"portMappings": [{"hostPort": 80, "containerPort": 80}]}} | unknown protocol "" specified | 7 runtimeConfig.portMappings[0].protocol is missing
+firewall {"prevResult": "x"} | FirewallNetConf.NetConf.prevResult of type map | 6 prevResult: expected an object
+firewall {"backend": "firewalld"} | system_bus_socket: connect: no such file or directory | 2 firewalld is not running, and the backend is firewalld
+firewall {"ingressPolicy": "foo"} | unknown ingress policy: "foo" | 7 ingressPolicy "foo" is none of open, same-bridge and isolated
+firewall {"ingressPolicy": "same-bridge", "prevResult": {"cniVersion": "1.0.0", "ips": []}} | interface needs to be set for ingress policy "same-bridge" | 7 ingressPolicy: eth0 is on no bridge
+firewall {"ingressPolicy": "same-bridge", "prevResult": {"cniVersion": "1.0.0", "interfaces": [{"name": ""}], "ips": []}} | got empty bridge name | 7 ingressPolicy: eth0 is on no bridge
+firewall {"iptablesAdminChainName": "a-name-of-a-chain-that-is-really-too-long"} | chain name `a-name-of-a-chain-that-is-really-too-long' too long | 7 iptablesAdminChainName "a-name-of-a-chain-that-is-really-too-long"
+sbr {"prevResult": "x"} | PluginConf.prevResult of type map | 6 prevResult: expected an object
+sbr {"table": "x"} | PluginConf.table of type int | 6 table: expected a whole number
-sbr {} | Cannot find network interface eth0: Link not found | 4 CNI_IFNAME eth0: this interface does not exist
+sbr {"prevResult": {"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "/run/netns/pod"}], "ips": []}} | No IP addresses supplied on interface: eth0 | 7 prevResult has no address of interface eth0
+vrf {"prevResult": "x", "vrfname": "blue"} | VRFNetConf.NetConf.prevResult of type map | 6 prevResult: expected an object
+vrf {"vrfname": "blue", "table": -1} | VRFNetConf.table of type uint32 | 6 table: -1 is out of range
+vrf {"vrfname": "a-name-that-is-too-long"} | could not add VRF a-name-that-is-too-long | 7 vrfname "a-name-that-is-too-long" is wrong
-vrf {"vrfname": "blue"} | cmdAdd failed: could not | 4 CNI_IFNAME eth0: this interface does not exist
"#;

/// The same, for plugins whose interfaces some kernels lack.
pub const OF_KINDS: &str = r#"
dummy {"ipam": {"type": "nope"}} | failed to find plugin "nope" | 7 ipam.type: no plugin "nope"
dummy {"ipam": {"type": "static", "addresses": []}} | IPAM plugin returned missing IP config | 7 no address is configured or requested
vlan {"master": "cable", "vlanId": 5, "ipam": {"type": "static", "addresses": []}} | IPAM plugin returned missing IP config | 7 no address is configured or requested
ipvlan {"master": "cable", "ipam": {"type": "static", "addresses": []}} | IPAM plugin returned missing IP config | 7 no address is configured or requested
"#;

/// The reference refuses these, and Ferrule accepts them. After the configuration: words of the reference's message,
/// and the anchor in docs/reference-quirks.md.
pub const ACCEPTED: &str = r#"
ptp {} | no plugin name provided | ipam-optional
bridge {"isDefaultGateway": true, "ipam": {"type": "static", "addresses": [{"address": "10.1.2.7/24"}], "routes": [{"dst": "0.0.0.0/0"}]}} | failed to add route | default-gateway-twice
ptp {"ipam": {"type": "static", "addresses": [{"address": "10.1.2.7/32", "gateway": "169.254.1.1"}], "routes": [{"dst": "0.0.0.0/0"}]}} | network is unreachable | gateway-outside
static {"ipam": {"type": "static", "addresses": [{"address": "10.1.2.7/24"}]}, "runtimeConfig": {"ips": ["10.1.2.9"]}} | an entry in the 'ips' field is NOT in CIDR notation | static-gateways
host-local {"ipam": {"type": "host-local", "subnet": "10.0.0.0/24"}, "args": {"cni": {"ips": ["10.0.0.7"]}}, "runtimeConfig": {"ips": ["10.0.0.8"]}} | failed to allocate all requested IPs | address-precedence
+bandwidth {"ingressRate": 8000, "ingressBurst": 8000, "prevResult": {"cniVersion": "1.0.0", "interfaces": [], "ips": []}} | no interfaces provided | bandwidth-peer
+bandwidth {"ingressRate": 8000, "ingressBurst": 8000} | no veth peer of container interface found in host ns | bandwidth-peer
"#;

/// The same, for plugins whose interfaces some kernels lack.
pub const ACCEPTED_OF_KINDS: &str = r#"
dummy {} | dummy interface requires an IPAM configuration | ipam-optional
vlan {"master": "cable", "vlanId": 5} | no plugin name provided | ipam-optional
ipvlan {"master": "cable"} | no plugin name provided | ipam-optional
"#;

/// The result of the previous plugin.
const PREV: &str = r#""prevResult": {"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "/run/netns/pod"}], "ips": [{"address": "10.1.2.2/24", "interface": 0}]}"#;

impl Row {
    fn of(text: &'static str) -> Self {
        let (name, object) = text.split_once(' ').unwrap();
        serde_json::from_str::<Value>(object).unwrap_or_else(|e| panic!("{text}: {e}"));
        Self {
            plugin: name.trim_start_matches(['+', '-']),
            keys: &object[1..object.len() - 1],
            has_interface: name.starts_with('+'),
            follows: name.starts_with(['+', '-']),
        }
    }

    /// The configuration, for stdin.
    pub fn document(&self) -> String {
        let Self { plugin, keys, .. } = self;
        let shared = format!(r#""cniVersion": "1.0.0", "name": "net", "type": "{plugin}""#);
        let prev = if self.follows && !keys.contains("prevResult") { PREV } else { "" };
        let members: Vec<_> = [&shared, *keys, prev].into_iter().filter(|part| !part.is_empty()).collect();
        format!("{{{}}}", members.join(", "))
    }

    /// The feature that the plugin needs, if the kernel lacks it.
    pub fn lacks(&self) -> Option<Feature> {
        let kinds = [("dummy", Feature::Dummy), ("ipvlan", Feature::Ipvlan), ("vlan", Feature::Vlan)];
        let (_, feature) = kinds.into_iter().find(|(plugin, _)| *plugin == self.plugin)?;
        Some(feature).filter(|feature| !feature.is_there())
    }
}

impl Refusal {
    fn of(theirs: &'static str, ours: &'static str) -> Self {
        let (code, ours) = ours.split_once(' ').unwrap();
        Self { theirs, code: code.parse().unwrap(), ours }
    }
}

fn lines(table: &'static str) -> impl Iterator<Item = &'static str> {
    table.lines().filter(|line| !line.is_empty())
}

/// The rows of a table without further columns.
pub fn rows(table: &'static str) -> impl Iterator<Item = Row> {
    lines(table).map(Row::of)
}

/// The rows of a table with two further columns.
fn columns(table: &'static str) -> impl Iterator<Item = (Row, [&'static str; 2])> {
    lines(table).map(|line| {
        let [row, theirs, ours] = line.split(" | ").collect::<Vec<_>>().try_into().expect("three columns");
        (Row::of(row), [theirs, ours])
    })
}

pub fn refusals(table: &'static str) -> impl Iterator<Item = (Row, Refusal)> {
    columns(table).map(|(row, [theirs, ours])| (row, Refusal::of(theirs, ours)))
}

/// Each with words of the reference's message, and an anchor.
pub fn accepted(table: &'static str) -> impl Iterator<Item = (Row, [&'static str; 2])> {
    columns(table)
}
