//! Features of this kernel, found by trying them in a temporary namespace.

use std::fmt;
use std::sync::{LazyLock, Mutex};

use nix::sched::{CloneFlags, unshare};

use crate::netns::{in_a_thread, start_by_path};

/// A feature that minimal kernels lack.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Feature {
    BridgeVlanFiltering,
    Dummy,
    Ext4,
    Ipvlan,
    Macvlan,
    Macvtap,
    /// Two unused network cards that are connected with each other. `FERRULE_SPARE_NICS` contains their MACs.
    SpareNics,
    Tap,
    /// Token bucket filters, ifb, and filters that redirect received packets.
    TrafficControl,
    Vlan,
    Vrf,
    Nftables,
    /// The parts of nf_tables that host ports and masquerade need: NAT in the family inet, and fib expressions.
    NftNat,
    /// NAT by the host's iptables tools.
    IptablesNat,
    Ipv6,
}

impl Feature {
    fn attempt(self) -> &'static str {
        match self {
            Self::BridgeVlanFiltering => {
                "ip link add name br0 type bridge vlan_filtering 1 && bridge vlan add vid 5 dev br0 self"
            }
            Self::Dummy => "ip link add name dummy0 type dummy",
            Self::Ext4 => {
                "image=$(mktemp); trap 'rm $image' EXIT; truncate -s 4M $image; mkfs.ext4 -q $image; \
                 unshare -m mount -o loop $image /mnt"
            }
            Self::Ipvlan => {
                "ip link add name a0 type veth peer name a1 && ip link add link a0 name i0 type ipvlan mode l3s"
            }
            Self::Macvlan => {
                "ip link add name a0 type veth peer name a1 && ip link add link a0 name m0 type macvlan mode bridge"
            }
            Self::Macvtap => {
                "ip link add name a0 type veth peer name a1 && ip link add link a0 name m0 type macvtap mode bridge"
            }
            Self::SpareNics => "[ -n \"$FERRULE_SPARE_NICS\" ]",
            Self::Tap => "ip tuntap add dev tap0 mode tap",
            Self::TrafficControl => {
                "ip link add name ifb7 type ifb; tc qdisc add dev ifb7 root tbf rate 8mbit burst 10k latency 25ms
                 tc qdisc add dev ifb7 clsact
                 tc filter add dev ifb7 ingress u32 match u32 0 0 action mirred egress redirect dev lo"
            }
            Self::Vlan => {
                "ip link add name a0 type veth peer name a1 && ip link add link a0 name vlan5 type vlan id 5"
            }
            Self::Vrf => "ip link add name vrf0 type vrf table 10",
            Self::Nftables => "nft add table inet probe",
            Self::NftNat => {
                "nft 'table inet probe {
                    chain to { type nat hook prerouting priority 0; fib daddr type local dnat ip to 192.0.2.1; }
                    chain from { type nat hook postrouting priority 0; masquerade; }
                }'"
            }
            Self::IptablesNat => {
                "iptables -t nat -A PREROUTING -m addrtype --dst-type LOCAL -p tcp -j DNAT --to 192.0.2.1:80
                 iptables -t nat -A POSTROUTING -j MASQUERADE"
            }
            Self::Ipv6 => "ip link set lo up && ip -6 addr add fd00::1/128 dev lo",
        }
    }

    /// Tried once in each process.
    pub fn is_there(self) -> bool {
        static KNOWN: LazyLock<Mutex<Vec<(Feature, bool)>>> = LazyLock::new(Mutex::default);
        let mut known = KNOWN.lock().expect("no probe panics");
        if let Some((_, there)) = known.iter().find(|(feature, _)| *feature == self) {
            return *there;
        }
        let there = self.probe();
        known.push((self, there));
        there
    }

    fn probe(self) -> bool {
        in_a_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET).is_ok()
                && start_by_path("sh")
                    .args(["-ec", self.attempt()])
                    // The legacy tools would create /run/xtables.lock on the machine.
                    .env("XTABLES_LOCKFILE", "/dev/null")
                    .output()
                    .is_ok_and(|output| output.status.success())
        })
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BridgeVlanFiltering => "VLAN filtering on bridges",
            Self::Dummy => "dummy interfaces",
            Self::Ext4 => "ext4 on loop devices",
            Self::Ipvlan => "ipvlan interfaces",
            Self::Macvlan => "macvlan interfaces",
            Self::Macvtap => "macvtap interfaces",
            Self::SpareNics => "spare network cards (make test-vm has)",
            Self::Tap => "tap interfaces",
            Self::TrafficControl => "traffic control: tbf, ifb, clsact, u32, mirred",
            Self::Vlan => "VLAN interfaces",
            Self::Vrf => "VRFs",
            Self::Nftables => "nftables",
            Self::NftNat => "address translation in nftables",
            Self::IptablesNat => "iptables with address translation",
            Self::Ipv6 => "IPv6",
        })
    }
}
