//! The lab's comparison of states. Scenarios find only stale objects that a snapshot contains.

use lab::Lab;

/// The changes by a command, as lines of a snapshot.
fn changes(lab: &Lab, command: &str) -> String {
    let before = lab.snapshot();
    lab.host().sh(command);
    lab.snapshot().since(&before)
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
