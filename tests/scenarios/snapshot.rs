//! The lab itself: its comparison of states (scenarios find only stale objects that a snapshot contains), and what it
//! keeps from the machine.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;

use lab::{Lab, needs};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::{AccessFlags, access};

/// The changes by a command, as lines of a snapshot. The sweeps, which use the quicker comparison, notice them too.
fn changes(lab: &Lab, command: &str) -> String {
    let (before, then) = (lab.snapshot(), lab.baseline());
    lab.host().sh(command);
    let (seen, quickly) = (lab.snapshot().since(&before), lab.changes_since(&then));
    assert_eq!(seen, quickly, "{command}");
    seen
}

#[test]
fn a_setting_of_the_namespace_or_of_an_interface_is_seen() {
    let lab = Lab::new();
    lab.host().sh("ip link add v0 type veth peer name v1");
    for (key, value) in [
        ("core/somaxconn", "500"),
        ("ipv4/conf/v0/arp_filter", "1"),
        ("ipv6/conf/v0/keep_addr_on_down", "1"),
        ("ipv4/neigh/v0/gc_stale_time", "7"),
        ("ipv4/ip_local_reserved_ports", "4000"),
    ] {
        let seen = changes(&lab, &format!("echo {value} >/proc/sys/net/{key}"));
        assert!(
            seen.starts_with("host: sysctls\n") && seen.ends_with(&format!("+ {key} = {value}\n")),
            "{seen}"
        );
    }
}

#[test]
fn how_an_interface_generates_ipv6_addresses_is_seen() {
    let lab = Lab::new();
    lab.host().sh("ip link add v0 type veth peer name v1");
    for (setting, value, mode) in
        [("v0/addr_gen_mode", "1", "none"), ("v1/stable_secret", "2001:db8::1", "stable_secret")]
    {
        let seen = changes(&lab, &format!("echo {value} >/proc/sys/net/ipv6/conf/{setting}"));
        let has = |mode| seen.contains(&format!("addrgenmode {mode} "));
        assert!(has("eui64") && has(mode), "{seen}");
    }
}

#[test]
fn an_address_and_a_route_that_only_the_table_local_has_are_seen() {
    let lab = Lab::new();
    let seen = changes(&lab, "ip route add local 192.0.2.1 dev lo");
    assert!(seen.contains("+ local 192.0.2.1 dev lo table local"), "{seen}");
    let seen = changes(&lab, "ip addr add 192.0.2.2/32 dev lo");
    assert!(seen.contains("+ 1: lo inet 192.0.2.2/32"), "{seen}");
}

#[test]
fn link_local_addresses_of_plugins_are_in_the_snapshot_and_the_kernels_are_not() {
    let lab = Lab::new();
    lab.host().sh("ip link add v0 type veth peer name v1");
    let before = lab.snapshot();
    lab.host().sh("ip link set v1 up; ip link set v0 up");
    lab.host().wait_for_link_local("v0");
    lab.host().wait_for_link_local("v1");
    let seen = lab.snapshot().since(&before);
    assert!(seen.contains("v0") && !seen.contains("fe80") && !seen.contains("ff00"), "{seen}");
    for (command, line) in [
        ("ip route add 2001:db8:1::/64 via fe80::1 dev v0", "+ unicast 2001:db8:1::/64 via fe80::1 dev v0"),
        ("ip route add default via fe80::1 dev v0", "+ unicast default via fe80::1 dev v0"),
        ("ip addr add fe80::1/64 dev v0 nodad", "+ 3: v0 inet6 fe80::1/64 scope link"),
        ("ip route add fe80::/64 dev v0 table 100", "+ unicast fe80::/64 dev v0 table 100"),
        ("ip neigh add fe80::2 lladdr 02:00:00:00:00:01 dev v0 nud permanent", "+ fe80::2 dev v0 lladdr"),
        ("ip -6 rule add from fe80::5 table 100", "from fe80::5 lookup 100"),
    ] {
        let seen = changes(&lab, command);
        assert!(seen.starts_with("host: rtnetlink\n") && seen.contains(line), "{command}: {seen}");
    }
}

#[test]
fn changes_of_links_ports_sets_and_connections_are_seen() {
    needs!(BridgeVlanFiltering, Nftables, TrafficControl);
    let lab = Lab::new();
    lab.host().sh("ip link add br0 type bridge vlan_filtering 1; ip link add v0 type veth peer name v1
                   ip link set v0 up; ip link set v0 master br0; ip addr add 192.0.2.1/24 dev v0
                   nft 'table inet t { set s { type inet_service; }; map m { type inet_service: verdict; }; chain c { }; }'");
    for (command, line) in [
        ("ip link set v0 alias someone", "alias someone"),
        ("ip link set v1 mtu 1400", "mtu 1400"),
        ("ip link set v1 address 02:00:00:00:00:01", "link/ether 02:00:00:00:00:01"),
        ("ip link set v1 promisc on", "promiscuity 1"),
        ("ip link set br0 type bridge ageing_time 100", "ageing_time 100"),
        ("bridge link set dev v0 hairpin on", "hairpin on"),
        ("bridge link set dev v0 isolated on", "isolated on"),
        ("bridge vlan add dev v0 vid 7", "bridge VLANs\n"),
        ("bridge vlan add dev br0 vid 8 self", "bridge VLANs\n"),
        ("ip link add link v1 name v1.5 type vlan id 5", "vlan protocol 802.1Q id 5"),
        ("ip link del v1.5", "- 5: v1.5"),
        ("nft add element inet t s '{ 80 }'", "elements = { 80 }"),
        ("nft add element inet t m '{ 80: drop }'", "80 : drop"),
        ("nft add rule inet t c counter comment mine", "comment \"mine\""),
        ("nft add chain inet t d", "chain d {"),
        ("nft add counter inet t o", "counter o {"),
        ("tc qdisc add dev v1 root tbf rate 8mbit burst 10k latency 25ms", "qdisc tbf"),
        ("tc qdisc add dev v1 clsact", "qdisc clsact"),
        (
            "tc filter add dev v1 ingress protocol ip u32 match u32 0 0 action mirred egress redirect dev v0",
            "mirred (Egress Redirect to device v0)",
        ),
        ("ip route add 198.51.100.0/24 via 192.0.2.2 dev v0 table 7", "198.51.100.0/24 via 192.0.2.2"),
    ] {
        let seen = changes(&lab, command);
        assert!(seen.starts_with("host: ") && seen.contains(line), "{command}: {seen}");
    }
    let pod = lab.container("seen-to-go");
    let then = lab.baseline();
    pod.sh("ip addr add 192.0.2.9/32 dev lo");
    assert!(lab.changes_since(&then).starts_with("seen-to-go: rtnetlink\n  + 1: lo inet 192.0.2.9/32"));
    pod.sh("ip addr del 192.0.2.9/32 dev lo");
    assert_eq!(lab.changes_since(&then), "");
    // The baseline does not keep the namespace: its end of a veth pair goes with it.
    lab.host().sh("ip link add p0 type veth peer name p1 netns seen-to-go");
    pod.vanish();
    lab.host().wait_until("the pair is deleted", |host| host.link("p0").is_none());
    assert!(lab.changes_since(&then).starts_with("seen-to-go\n  - is there\n  + is gone\n"));
}

#[test]
fn a_baseline_keeps_no_pipe_of_another_thread_open() {
    let lab = Lab::new();
    let (reader, writer) = std::io::pipe().unwrap();
    let _then = lab.baseline();
    drop(writer);
    // With another copy of the writer, there would be no end, but nothing to read yet (EAGAIN). A process that another test starts has one
    // until its execve(2).
    fcntl(&reader, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    lab::until("nobody else has the pipe", || (&reader).read(&mut [0; 1]).ok() == Some(0));
}

#[test]
fn a_duplicate_rule_is_noticed() {
    let lab = Lab::new();
    lab.host().sh("nft 'table inet t { chain c { tcp dport 80 accept; }; }'
                   iptables-legacy -A OUTPUT -p tcp -j ACCEPT");
    for (again, line) in [
        ("nft add rule inet t c tcp dport 80 accept", "nftables\n  + tcp dport 80 accept"),
        ("iptables-legacy -A OUTPUT -p tcp -j ACCEPT", "iptables-legacy\n  + -A OUTPUT -p tcp -j ACCEPT"),
    ] {
        assert_eq!(changes(&lab, again), format!("host: {line}\n"));
    }
}

#[test]
fn a_pipe_is_seen_and_not_waited_for() {
    let lab = Lab::new();
    let seen = changes(&lab, "mkfifo /run/pipe");
    assert_eq!(seen, "disk\n  + /run/pipe: a pipe\n");
}

#[test]
fn a_test_that_empties_run_cannot_delete_files_of_the_machine() {
    let lab = Lab::new();
    let theirs = fs::metadata("/usr/share").unwrap().dev();
    // As a machine without it: then /usr/share is replaced by links.
    lab.private_dir("/usr/share/no-such-directory");
    assert_ne!(fs::metadata("/usr/share").unwrap().dev(), theirs);
    assert_eq!(fs::metadata("/usr/share/doc").unwrap().dev(), theirs);
    assert_eq!(access("/usr/share/doc", AccessFlags::W_OK), Err(Errno::EROFS));
    // The list also has mounts of the machine that the lab's own /run hides.
    let mounts = lab.host().sh("findmnt --noheadings --list --output TARGET");
    let below_run = mounts.lines().filter(|target| target.starts_with("/run/"));
    for (target, found) in below_run.filter_map(|target| Some((target, fs::metadata(target).ok()?))) {
        assert_ne!(found.dev(), theirs, "{target}");
    }
}
