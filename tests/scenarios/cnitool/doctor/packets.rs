//! Lost packets: forwarding, MTU, other programs' firewalls.

use lab::dhcp::{in_background, started_by};
use lab::{Lab, beyond_reference, until};
use serde_json::{Value, json};

use super::{bridge, findings, finds, finds_nothing, healthy, network};
use crate::common::host_local;

#[test]
fn a_host_that_does_not_forward_is_an_error_once_a_container_needs_it() {
    let lab = Lab::new();
    let _pod = lab.container("pod");
    lab.configure(
        "10-net.conflist",
        &network(&json!([
        {"type": "bridge", "bridge": "br0", "isGateway": true,
         "ipam": host_local(&[&["10.206.2.0/24"], &["fd00:206::/64"]])}])),
    );
    let tool = lab.cnitool();
    let off = |key: &str| lab.host().sh(&format!("sysctl -qw {key}=0"));
    let (v4, v6) = ("net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding");
    off(v4);
    finds_nothing(&tool, "forwarding");
    tool.says("add net pod");
    finds_nothing(&tool, "forwarding");
    for (key, family) in [(v4, "IPv4"), (v6, "IPv6")] {
        off(key);
        let remedy = format!("sysctl -w {key}=1");
        finds(&tool, "forwarding", &["error", "network net", &format!("does not forward {family}"), &remedy]);
        lab.host().sh(&format!("sysctl -qw {key}=1"));
        finds_nothing(&tool, "forwarding");
    }
}

#[test]
fn a_link_that_does_not_forward_although_the_host_does_is_an_error() {
    let lab = Lab::new();
    let (_pod, _far) = (lab.container("pod"), lab.machine("far"));
    lab.host().sh("ip route add default via 198.51.100.2; ip link add other type bridge");
    let tool = healthy(&lab);
    let set = |link: &str, value: u8| {
        lab.host().sh(&format!("sysctl -qw net/ipv4/conf/{link}/forwarding={value}"));
    };
    tool.says("add net pod");
    for link in ["br0", "uplink"] {
        set(link, 0);
        let cause = format!("arrive on {link}");
        let remedy = format!("sysctl -w net/ipv4/conf/{link}/forwarding=1");
        finds(&tool, "forwarding", &["error", "network net", &cause, &remedy]);
        set(link, 1);
        finds_nothing(&tool, "forwarding");
    }
    set("other", 0);
    finds_nothing(&tool, "forwarding");
}

#[test]
fn an_mtu_of_the_container_that_its_bridge_does_not_have_is_an_error() {
    let lab = Lab::new();
    let _pod = lab.container("pod");
    let tool = healthy(&lab);
    tool.says("add net pod --container-id web");
    finds_nothing(&tool, "mtu.bridge");
    lab.host().sh("ip link set br0 mtu 1400");
    let words = [
        "error",
        "attachment net/web/eth0",
        "MTU 1500",
        "br0 on the host has 1400",
        "ip link set br0 mtu 1500",
    ];
    finds(&tool, "mtu.bridge", &words);
    lab.host().sh("ip link set br0 mtu 1500");
    finds_nothing(&tool, "mtu.bridge");
}

#[test]
fn an_mtu_of_the_container_that_the_uplink_does_not_have_is_a_warning() {
    let lab = Lab::new();
    let (_pod, _far) = (lab.container("pod"), lab.machine("far"));
    lab.host().sh("ip route add default via 198.51.100.2");
    let tool = healthy(&lab);
    tool.says("add net pod --container-id web");
    finds_nothing(&tool, "mtu.uplink");
    lab.host().sh("ip link set uplink mtu 1420");
    let words = ["warning", "attachment net/web/eth0", "uplink uplink has 1420", "\"mtu\": 1420"];
    finds(&tool, "mtu.uplink", &words);
    tool.says("del net pod --container-id web");
    let mut small = bridge("10.206.2.0/24");
    small["mtu"] = json!(1420);
    lab.configure("10-net.conflist", &network(&json!([small])));
    tool.says("add net pod --container-id web");
    finds_nothing(&tool, "mtu.uplink");
}

/// With both keys, the configuration would be invalid.
#[test]
fn a_pod_with_the_mtu_of_an_earlier_default_route_must_be_recreated() {
    let lab = Lab::new();
    let (_pod, _far) = (lab.container("pod"), lab.machine("far"));
    lab.host().sh("ip link add larger mtu 9000 type veth peer name its-peer && ip link set larger up");
    lab.host().sh("ip route add default dev larger && ip route add default via 198.51.100.2 metric 100");
    let mut plugin = bridge("10.206.2.0/24");
    plugin["mtuFromDefaultRoute"] = json!(true);
    lab.configure("10-net.conflist", &network(&json!([plugin])));
    let tool = lab.cnitool();
    tool.says("add net pod --container-id web");
    finds_nothing(&tool, "mtu.uplink");
    lab.host().sh("ip link set br0 mtu 1500");
    let found = findings(&tool, "mtu.bridge");
    assert!(found.len() == 1 && found[0].ends_with(" | run `ip link set br0 mtu 9000`"), "{found:#?}");
    lab.host().sh("ip link set br0 mtu 9000; ip route del default dev larger");
    let found = findings(&tool, "mtu.uplink");
    let cause = "eth0 has MTU 9000, but the host's uplink uplink has 1500";
    let remedy = " | delete the pod, or restart the container";
    assert!(found.len() == 1 && found[0].contains(cause) && found[0].ends_with(remedy), "{found:#?}");
    lab.host().sh("ip link set br0 mtu 1500");
    let found = findings(&tool, "mtu.bridge");
    let remedy = " | run `ip link set br0 mtu 9000`, or delete the pod, or restart the container";
    assert!(found.len() == 1 && found[0].ends_with(remedy), "{found:#?}");
    tool.says("del net pod --container-id web");
    tool.says("add net pod --container-id web");
    finds_nothing(&tool, "mtu.uplink");
    finds_nothing(&tool, "mtu.bridge");
}

#[test]
fn the_mtu_of_a_network_of_flannel_is_set_in_delegate() {
    let lab = Lab::new();
    let (_pod, _far) = (lab.container("pod"), lab.machine("far"));
    lab.host().sh("ip route add default via 198.51.100.2");
    let file = "/run/lab/subnet.env";
    let flanneld = "FLANNEL_NETWORK=10.206.0.0/16\nFLANNEL_SUBNET=10.206.2.1/24\nFLANNEL_MTU=8950\nFLANNEL_IPMASQ=true\n";
    std::fs::write(file, flanneld).unwrap();
    let with = |delegate: Value| {
        let flannel = json!({"type": "flannel", "subnetFile": file, "delegate": delegate});
        lab.configure("10-net.conflist", &network(&json!([flannel])));
    };
    with(json!({"bridge": "br0"}));
    let tool = lab.cnitool();
    tool.says("add net pod --container-id web");
    finds(&tool, "mtu.uplink", &["warning", "set `\"mtu\": 1500` in `delegate` of network net"]);
    tool.says("del net pod --container-id web");
    with(json!({"bridge": "br0", "mtu": 1500}));
    tool.says("add net pod --container-id web");
    finds_nothing(&tool, "mtu.uplink");
}

#[test]
fn a_chain_of_nftables_that_drops_is_a_warning_for_networks_without_the_plugin_firewall() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let tool = lab.cnitool();
    let check = "firewalls.nftables";
    lab.configure("10-net.conflist", &network(&json!([bridge("10.206.2.0/24")])));
    finds_nothing(&tool, check);
    for plugin in [
        json!({"type": "ptp", "ipam": {"type": "static"}}),
        json!({"type": "flannel"}),
        bridge("10.206.2.0/24"),
    ] {
        lab.configure("10-net.conflist", &network(&json!([plugin])));
        lab.host().sh(
            "nft 'table ip filter { chain FORWARD { type filter hook forward priority 0; policy drop; }\n}'",
        );
        finds(&tool, check, &["warning", "network net", "ip filter FORWARD"]);
        lab.host().sh("nft flush ruleset");
    }
    // By a policy, as with iptables, and by the last rule, as with firewalld.
    for (table, words) in [
        (
            "table ip filter { chain FORWARD { type filter hook forward priority 0; policy drop; }\n}",
            [
                "ip filter FORWARD",
                "Docker, ufw",
                "add the plugin `firewall` to the network, and create its containers again",
            ],
        ),
        (
            "table inet firewalld { chain filter_FORWARD { type filter hook forward priority 10; \
          ct state established accept; reject with icmpx admin-prohibited; }\n}",
            ["inet firewalld filter_FORWARD", "(firewalld)", "zone trusted"],
        ),
        (
            "table inet mine { chain outwards { type filter hook forward priority 0; policy drop; }\n}",
            ["inet mine outwards", "the administrator", "test-connectivity"],
        ),
    ] {
        lab.host().sh(&format!("nft '{table}'"));
        finds(&tool, check, &["warning", "network net", words[0], words[1], words[2]]);
        lab.host().sh("nft flush ruleset");
        finds_nothing(&tool, check);
    }
    // RHEL's iptables-services reject with the last rule.
    let rules =
        ["-P FORWARD DROP", "-A FORWARD -j DROP", "-A FORWARD -j REJECT --reject-with icmp-host-prohibited"];
    for rule in rules {
        lab.host().sh("nft flush ruleset");
        lab.host().sh(&format!("iptables-nft {rule}"));
        finds(&tool, check, &["warning", "network net", "ip filter FORWARD"]);
    }
    healthy(&lab);
    finds_nothing(&tool, check);
    lab.host().sh("nft flush ruleset");
    lab.configure("10-net.conflist", &network(&json!([bridge("10.206.2.0/24")])));
    // The network has no IPv6.
    lab.host().sh("iptables-nft -A FORWARD -i other0 -j REJECT; ip6tables-nft -P FORWARD DROP");
    finds_nothing(&tool, check);
}

/// The remedy of the warning above. The attachment keeps the plugins that it had at its ADD.
#[test]
fn a_container_from_before_the_plugin_firewall_is_a_warning_until_it_is_created_again() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let _pods = ["pod", "pod2"].map(|id| lab.container(id));
    let tool = lab.cnitool();
    let check = "firewalls.nftables";
    lab.configure("10-net.conflist", &network(&json!([bridge("10.206.2.0/24")])));
    tool.says("add net pod --container-id web");
    tool.says("add net pod2 --container-id db");
    lab.host().sh("iptables-nft -P FORWARD DROP; ip6tables-nft -P FORWARD DROP");
    finds(&tool, check, &["warning", "network net", "ip filter FORWARD", "create its containers again"]);
    healthy(&lab);
    let words =
        ["warning", "attachment net/web/eth0", "ip filter FORWARD", "without the plugin", "delete the pod"];
    finds(&tool, check, &words);
    finds(&tool, check, &["attachment net/db/eth0"]);
    assert_eq!(findings(&tool, check).len(), 1, "one finding for the network and its only family");
    for (pod, id) in [("pod", "web"), ("pod2", "db")] {
        tool.says(&format!("del net {pod} --container-id {id}"));
        tool.says(&format!("add net {pod} --container-id {id}"));
    }
    finds_nothing(&tool, check);
}

#[test]
fn a_chain_that_the_plugin_firewall_cannot_open_is_a_warning_with_the_remedy_of_add() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let _pod = lab.container("pod");
    let tool = healthy(&lab);
    let check = "firewalls.nftables";
    lab.host().sh(
        "nft add table inet site; nft 'add chain inet site pass { type filter hook forward priority 0; policy drop; }'
         nft add table ip6 other; nft 'add chain ip6 other pass { type filter hook forward priority 0; policy drop; }'",
    );
    let rule = "nft insert rule inet site pass meta mark and 0x1000 == 0x1000 accept";
    let words = ["warning", "network net", "the chain pass of the table inet site", rule];
    finds(&tool, check, &words);
    lab.configure(
        "10-net.conflist",
        &network(&json!([bridge("10.206.2.0/24"), {"type": "firewall", "backend": "iptables"}])),
    );
    tool.says("add net pod --container-id web");
    let by_iptables =
        ["warning", "network net", "no rule of iptables", "set the backend to nftables, and create"];
    finds(&tool, check, &by_iptables);
    healthy(&lab);
    lab.host().sh(rule);
    finds(&tool, check, &by_iptables);
    tool.says("del net pod --container-id web");
    tool.says("add net pod --container-id web");
    // The network has no IPv6, so the other chain drops nothing of it.
    finds_nothing(&tool, check);
    lab.host().sh("nft flush chain inet site pass");
    finds(&tool, check, &words);
    // STATUS reports the chain if the configuration names the backend.
    lab.host().sh("nft delete table ip6 other");
    lab.configure(
        "10-net.conflist",
        &network(&json!([bridge("10.206.2.0/24"), {"type": "firewall", "backend": "nftables"}])),
    );
    finds(&tool, "networks.status", &["error", "network net", words[2], rule]);
    finds_nothing(&tool, check);
}

/// STATUS fails only for the network whose configuration names the backend.
/// The networks `neta` and `netb`, each with a bridge and further plugins.
fn two_networks(lab: &Lab, further: [Value; 2]) {
    for ((name, bridge_name, subnet), further) in
        [("neta", "br1", "10.206.2.0/24"), ("netb", "br2", "10.206.3.0/24")].into_iter().zip(further)
    {
        let mut interface = bridge(subnet);
        interface["bridge"] = json!(bridge_name);
        let plugins = [&[interface], further.as_array().unwrap().as_slice()].concat();
        let mut conf = network(&plugins.into());
        conf["name"] = json!(name);
        lab.configure(&format!("{name}.conflist"), &conf);
    }
}

#[test]
fn an_error_of_one_network_does_not_hide_the_warning_of_another() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let tool = lab.cnitool();
    lab.host().sh(
        "nft add table inet site; nft 'add chain inet site pass { type filter hook forward priority 0; policy drop; }'",
    );
    two_networks(&lab, [json!([{"type": "firewall", "backend": "nftables"}]), json!([{"type": "firewall"}])]);
    finds(&tool, "networks.status", &["error | network neta |", "the chain pass of the table inet site"]);
    let found = findings(&tool, "firewalls.nftables");
    assert!(
        found.len() == 1 && found[0].starts_with("warning | network netb | the chain pass"),
        "{found:#?}"
    );
}

/// The first network asks firewalld, whose bus does not answer.
#[test]
fn a_network_whose_firewall_cannot_be_examined_does_not_hide_the_warning_of_another() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let tool = lab.cnitool().env("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/run/lab/bus");
    lab.host()
        .sh("nft 'table ip filter { chain FORWARD { type filter hook forward priority 0; policy drop; }\n}'");
    two_networks(&lab, [json!([{"type": "firewall"}]), json!([])]);
    let server =
        "import socket; server = socket.socket(socket.AF_UNIX); server.bind('/run/lab/bus'); server.listen()
while True: server.accept()[0].close()";
    let mut python = started_by("python3", "-c");
    python.arg(server);
    let _server = in_background(lab.host(), python, &lab.dir().join("bus.log"));
    until("the bus listens", || lab.dir().join("bus").exists());
    let found = findings(&tool, "firewalls.nftables");
    for words in [
        "warning | network neta | whether the firewall drops its packets is not known",
        "warning | network netb | the chain ip filter FORWARD",
    ] {
        assert!(found.iter().any(|finding| finding.starts_with(words)), "{words}: {found:#?}");
    }
}

#[test]
fn a_chain_of_legacy_iptables_that_drops_is_a_warning() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let tool = lab.cnitool();
    lab.configure("10-net.conflist", &network(&json!([bridge("10.206.2.0/24")])));
    if !lab.host().try_exec(&["iptables-legacy", "-S"]).status.success() {
        return lab::skip("iptables-legacy");
    }
    let words =
        ["warning", "network net", "FORWARD of table filter (iptables-legacy)", "add the plugin `firewall`"];
    // The network has no IPv6.
    lab.host().sh("iptables-legacy -A FORWARD -i other0 -j REJECT; ip6tables-legacy -P FORWARD DROP");
    finds_nothing(&tool, "firewalls.legacy");
    for (set, unset) in [
        ("-P FORWARD DROP", "-P FORWARD ACCEPT"),
        ("-A FORWARD -j DROP", "-F FORWARD"),
        ("-A FORWARD -j REJECT --reject-with icmp-host-prohibited", "-F FORWARD"),
    ] {
        lab.host().sh(&format!("iptables-legacy {set}"));
        finds(&tool, "firewalls.legacy", &words);
        lab.host().sh(&format!("iptables-legacy {unset}"));
        finds_nothing(&tool, "firewalls.legacy");
    }
}

/// The commands that remove the legacy tools, and restore them. All of them are links to one executable.
fn without_and_with_tools(lab: &Lab) -> [String; 2] {
    let executable = lab.host().sh("readlink -f $(command -v iptables-legacy)");
    ["mount --bind /dev/null", "umount"].map(|command| format!("{command} {}", executable.trim()))
}

/// As in the image of Ferrule, or after the package was removed.
#[test]
fn a_chain_of_legacy_iptables_that_drops_is_found_without_its_tools() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let _pod = lab.container("pod");
    let tool = lab.cnitool();
    if !lab.host().try_exec(&["ip6tables-legacy", "-S"]).status.success() {
        return lab::skip("ip6tables-legacy");
    }
    let check = "firewalls.legacy";
    let [without_tools, with_tools] = &without_and_with_tools(&lab);
    lab.host().sh(&format!("iptables-legacy -S; ip6tables-legacy -P FORWARD DROP; {without_tools}"));
    healthy(&lab);
    let added = tool.run("add net pod --container-id web");
    assert!(added.succeeded() && !added.stderr.contains("legacy"), "the table drops nothing: {added:#?}");
    finds_nothing(&tool, "attachments.check");
    tool.says("del net pod --container-id web");
    lab.configure("10-net.conflist", &network(&json!([bridge("10.206.2.0/24")])));
    finds_nothing(&tool, check);
    lab.host().sh(&format!("{with_tools}; iptables-legacy -P FORWARD DROP; {without_tools}"));
    finds(
        &tool,
        check,
        &["warning", "network net", "FORWARD of table filter (iptables-legacy)", "add the plugin"],
    );
    healthy(&lab);
    let closed =
        ["network net", "FORWARD of iptables-legacy drops", "not installed", "install the package iptables"];
    finds(&tool, check, &closed);
    tool.says("add net pod --container-id web");
    let cut_off = ["error", "attachment net/web/eth0", closed[1], "| install the package iptables"];
    finds(&tool, "attachments.check", &cut_off);
    // The error is enough.
    finds_nothing(&tool, check);
    let repair = tool.run("repair --all");
    assert!(!repair.succeeded() && repair.stderr.contains(closed[1]), "{repair:#?}");
    lab.host().sh(with_tools);
    tool.says("repair --all");
    lab.host().sh(without_tools);
    // The rule exists.
    finds_nothing(&tool, check);
    finds_nothing(&tool, "attachments.check");
    lab.host().sh(&format!("{with_tools}; iptables-legacy -I FORWARD -j DROP; {without_tools}"));
    finds(&tool, "attachments.check", &cut_off);
    lab.host().sh(&format!("{with_tools}; iptables-legacy -F; iptables-legacy -X; {without_tools}"));
    finds(&tool, "attachments.check", &cut_off);
}

/// As with Docker, Calico or kube-proxy: a chain of theirs may accept the packets.
#[test]
fn a_chain_of_legacy_iptables_that_may_drop_is_only_a_warning_without_its_tools() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let _pod = lab.container("pod");
    let tool = healthy(&lab);
    if !lab.host().try_exec(&["iptables-legacy", "-S"]).status.success() {
        return lab::skip("iptables-legacy");
    }
    let [without_tools, _] = without_and_with_tools(&lab);
    lab.host().sh(&format!(
        "iptables-legacy -P FORWARD DROP; iptables-legacy -N THEIRS
         iptables-legacy -A THEIRS -s 10.206.2.0/24 -j ACCEPT; iptables-legacy -A FORWARD -j THEIRS; {without_tools}"
    ));
    let may_drop = "FORWARD of iptables-legacy may drop";
    let added = tool.run("add net pod --container-id web");
    assert!(added.succeeded() && added.stderr.contains(may_drop), "{added:#?}");
    let words = ["warning", "network net", may_drop, "install the package iptables", "test-connectivity"];
    finds(&tool, "firewalls.legacy", &words);
    finds_nothing(&tool, "attachments.check");
    tool.says("repair --all");
}
