//! Names that the server resolves, and for which containers.

use std::net::UdpSocket;

use lab::{Lab, beyond_reference, needs, until};
use serde_json::json;

use super::*;

#[test]
fn containers_resolve_each_others_names_aliases_and_addresses_right_after_add() {
    beyond_reference!("dnsname");
    let Some(dig) = Dig::here() else { return };
    let lab = Lab::new();
    // As `podman network create` writes it.
    let networks = Networks::new(&lab, &[network(&json!({"multiDomain": true}))]);
    let (web, own) = networks.attach(&lab, "web", &["www", "front.web"]);
    let (db, others) = networks.attach(&lab, "db", &[]);
    let [v4, v6] = [&bare(&own)[0], &bare(&own)[1]];
    for server in SERVERS {
        for name in ["web", "web.dns.test", "www", "www.dns.test", "front.web"] {
            assert_eq!(dig.ask(&db, server, &format!("{name} A")), [v4.as_str()], "{name} at {server}");
            assert_eq!(dig.ask(&db, server, &format!("{name} AAAA")), [v6.as_str()], "{name} at {server}");
        }
        for ip in bare(&own) {
            assert_eq!(dig.ask(&db, server, &format!("-x {ip}")), ["web.dns.test."], "{ip}");
        }
        assert_eq!(dig.ask(&web, server, "db A"), [bare(&others)[0].as_str()]);
    }
    assert!(dig.says(&db, SERVERS[0], "nobody.dns.test A").contains("status: NXDOMAIN"));
    assert_eq!(own["dns"]["nameservers"], json!(SERVERS), "the bridge's addresses, both families");
    assert_eq!(own["dns"]["search"], json!(["dns.test"]));
    networks.del("net", &web);
    assert!(dig.ask(&db, SERVERS[0], "web A").is_empty(), "a name is gone when DEL returns");
    networks.del("net", &db);
    assert_eq!(server_of("net"), None);
}

#[test]
fn names_with_a_dot_are_in_the_domain_too() {
    beyond_reference!("dnsname");
    let Some(dig) = Dig::here() else { return };
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let [web, db] = ["web", "db"].map(|id| lab.container(id));
    let own = bare(&networks.add("net", &web, "web.one", &["front.web", "www", "old.dns.test"]));
    networks.add("net", &db, "db", &[]);
    let names = ["web.one", "web.one.dns.test", "front.web.dns.test", "www.dns.test", "old.dns.test"];
    let ask = |name: &str| dig.ask(&db, SERVERS[0], &format!("{name} A"));
    for name in names {
        assert_eq!(ask(name), [own[0].as_str()], "{name}");
        assert_eq!(dig.ask(&db, SERVERS[0], &format!("{name} AAAA")), [own[1].as_str()], "{name}");
    }
    assert!(ask("old.dns.test.dns.test").is_empty());
    assert_eq!(dig.ask(&db, SERVERS[0], &format!("-x {}", own[0])), ["web.one."]);
    let tool = networks.tool_for("web.one", &["front.web", "www", "old.dns.test"]);
    tool.says(&format!("check net {} --container-id {}", web.id, web.id));
    networks.del("net", &web);
    for name in names {
        assert!(ask(name).is_empty(), "{name}");
    }
    networks.del("net", &db);
}

/// Lines of the original plugin and of earlier builds do not contain these names.
#[test]
fn check_and_del_succeed_without_the_names_with_a_dot_in_the_domain() {
    beyond_reference!("dnsname");
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let pod = lab.container("pod");
    networks.add("net", &pod, "web.one", &[]);
    let earlier = hosts_of("net").replace("\tweb.one.dns.test", "");
    assert_ne!(earlier, hosts_of("net"));
    fs::write(Path::new(DIRECTORIES).join("net/addnhosts"), earlier).unwrap();
    networks.tool.says("check net pod --container-id pod");
    networks.del("net", &pod);
    assert_eq!((server_of("net"), hosts_of("net").as_str()), (None, ""));
}

/// Podman sends a map. CNI's conventions define a list.
#[test]
fn aliases_are_accepted_as_podman_sends_them_and_those_of_other_networks_are_ignored() {
    beyond_reference!("dnsname");
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let pod = lab.container("pod");
    let aliases = json!({"aliases": {"net": ["mine"], "other": ["theirs", "no name at all"]}});
    let tool = networks.tool_for("pod", &[]).env("CAP_ARGS", &aliases.to_string());
    tool.says("add net pod --container-id pod");
    let hosts = hosts_of("net");
    assert!(hosts.contains("\tpod\tmine\t") && !hosts.contains("theirs"), "{hosts}");
    networks.del("net", &pod);
}

#[test]
fn the_names_of_one_network_are_not_visible_in_another() {
    beyond_reference!("dnsname");
    let Some(dig) = Dig::here() else { return };
    let lab = Lab::new();
    let other = named("other", "br1", &[&["10.1.3.0/24"]], &json!({}));
    let networks = Networks::new(&lab, &[network(&json!({})), other]);
    let (web, _) = networks.attach(&lab, "web", &[]);
    let stranger = lab.container("stranger");
    networks.add("other", &stranger, "stranger", &[]);
    assert!(dig.says(&stranger, "10.1.3.1", "web.dns.test A").contains("status: NXDOMAIN"));
    assert!(dig.says(&web, SERVERS[0], "stranger.dns.test A").contains("status: NXDOMAIN"));
    // The other network's server does not answer containers of this network at all.
    let answers = |pod: &Container, server: &str| {
        pod.run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.set_read_timeout(Some(std::time::Duration::from_secs(3))).unwrap();
            let question = b"\x07\x07\x01\0\0\x01\0\0\0\0\0\0\x03web\x03dns\x04test\0\0\x01\0\x01";
            socket.send_to(question, (server, 53)).unwrap();
            socket.recv(&mut [0; 512]).is_ok()
        })
    };
    until("the server answers the container of its network", || answers(&web, SERVERS[0]));
    assert!(!answers(&stranger, SERVERS[0]));
    networks.del("net", &web);
    networks.del("other", &stranger);
}

#[test]
fn two_containers_of_one_name_keep_each_others_entries() {
    beyond_reference!("dnsname");
    let Some(dig) = Dig::here() else { return };
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let [one, two] = ["one", "two"].map(|id| lab.container(id));
    let [first, second] = [&one, &two].map(|pod| bare(&networks.add("net", pod, "web", &["www"]))[0].clone());
    let mut both = vec![first, second.clone()];
    both.sort();
    assert_eq!(dig.ask(&two, SERVERS[0], "web A"), both);
    networks.del("net", &one);
    for name in ["web", "www.dns.test"] {
        assert_eq!(dig.ask(&two, SERVERS[0], &format!("{name} A")), [second.as_str()]);
    }
    networks.del("net", &two);
}

#[test]
fn a_container_without_a_name_has_its_aliases_and_resolves_the_others() {
    beyond_reference!("dnsname");
    let Some(dig) = Dig::here() else { return };
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let [named, aliased, silent] = ["named", "aliased", "silent"].map(|id| lab.container(id));
    let by_cni = networks.tool.clone().env("CNI_ARGS", "IgnoreUnknown=1;CNI_POD_NAME=other-name");
    by_cni.says("add net named --container-id named");
    let ip = bare(&networks.add("net", &aliased, "", &["only-alias"]))[0].clone();
    networks.add("net", &silent, "", &[]);
    assert_eq!(dig.ask(&silent, SERVERS[0], "only-alias A"), [ip]);
    assert_eq!(dig.ask(&silent, SERVERS[0], "other-name A").len(), 1);
    networks.del_all(&[&named, &aliased]);
    assert!(server_of("net").is_some(), "a container without names is served as well");
    networks.del("net", &silent);
    assert_eq!(server_of("net"), None);
}

#[test]
fn an_ipv6_only_network_resolves_its_names() {
    beyond_reference!("dnsname");
    let Some(dig) = Dig::here() else { return };
    let lab = Lab::new();
    let network = named("net", "br0", &[&["fd00:1:2::/64"]], &json!({}));
    let networks = Networks::new(&lab, &[network]);
    let (web, own) = networks.attach(&lab, "web", &[]);
    let (db, result) = networks.attach(&lab, "db", &[]);
    assert_eq!(result["dns"]["nameservers"], json!([SERVERS[1]]));
    assert_eq!(dig.ask(&db, SERVERS[1], "web AAAA"), bare(&own));
    assert!(dig.ask(&db, SERVERS[1], "web A").is_empty());
    networks.del_all(&[&web, &db]);
}

#[test]
fn containers_of_ptp_resolve_each_other_through_the_address_that_all_host_ends_share() {
    beyond_reference!("dnsname");
    let Some(dig) = Dig::here() else { return };
    let lab = Lab::new();
    let ipam = json!({
        "type": "host-local", "routes": [{"dst": "0.0.0.0/0"}], "ranges": [[{"subnet": "10.1.2.0/24"}]],
    });
    let networks = Networks::new(&lab, &[chained("net", &json!({"type": "ptp", "ipam": ipam}), &json!({}))]);
    let (web, own) = networks.attach(&lab, "web", &[]);
    let (db, others) = networks.attach(&lab, "db", &[]);
    for (pod, name, ip) in [(&db, "web", &bare(&own)[0]), (&web, "db", &bare(&others)[0])] {
        assert_eq!(dig.ask(pod, SERVERS[0], &format!("{name} A")), [ip.as_str()]);
    }
    // The first container's veth is deleted. The server continues for the second container.
    networks.del("net", &web);
    assert_eq!(dig.ask(&db, SERVERS[0], "db A"), bare(&others));
    networks.del("net", &db);
    assert_eq!(server_of("net"), None);
}

#[test]
fn outside_names_are_resolved_by_the_hosts_resolvers_unless_the_network_is_internal() {
    beyond_reference!("dnsname");
    let Some(dig) = Dig::here() else { return };
    // The stub of systemd-resolved, and a resolver to which it would forward queries.
    for resolver in ["127.0.0.53", "198.51.100.1"] {
        for (keys, ipam_routes, resolves) in [
            (json!({}), true, true),
            (json!({"internal": true}), true, false),
            (json!({}), false, false),
            (json!({"internal": false}), false, true),
        ] {
            let lab = Lab::new();
            lab.machine("far");
            lab.host().sh(&format!(
                "echo nameserver {resolver} >/run/lab/resolv.conf; mount --bind /run/lab/resolv.conf /etc/resolv.conf"
            ));
            let _upstream = upstream(&lab, resolver);
            let mut network = network(&keys);
            network["plugins"][0]["isDefaultGateway"] = json!(ipam_routes);
            network["plugins"][0]["isGateway"] = json!(true);
            let networks = Networks::new(&lab, &[network]);
            let (pod, _) = networks.attach(&lab, "pod", &[]);
            let answer = dig.says(&pod, SERVERS[0], "www.example.test A");
            assert_eq!(answer.contains("192.0.2.7"), resolves, "{resolver} {keys} {ipam_routes}: {answer}");
            assert_eq!(dig.ask(&pod, SERVERS[0], "pod A").len(), 1);
            networks.del("net", &pod);
        }
    }
}

/// The host's interface in the VLAN has the gateway, and the result of bridge does not list it.
#[test]
fn containers_in_a_vlan_of_a_bridge_resolve_each_other_at_their_gateway() {
    beyond_reference!("dnsname");
    needs!(BridgeVlanFiltering);
    let Some(dig) = Dig::here() else { return };
    let lab = Lab::new();
    let mut network = network(&json!({}));
    network["plugins"][0]["vlan"] = json!(10);
    let networks = Networks::new(&lab, &[network]);
    let (web, own) = networks.attach(&lab, "web", &["www"]);
    let (db, result) = networks.attach(&lab, "db", &[]);
    assert_eq!(result["dns"]["nameservers"], json!(SERVERS));
    for server in SERVERS {
        for way in ["+notcp", "+tcp"] {
            assert_eq!(
                dig.ask(&db, server, &format!("{way} www A")),
                [bare(&own)[0].as_str()],
                "{server} {way}"
            );
        }
    }
    networks.del("net", &web);
    assert!(dig.ask(&db, SERVERS[0], "web A").is_empty());
    networks.del("net", &db);
    assert_eq!(server_of("net"), None);
}

/// A port as bridge creates it for a VLAN, on kernels without VLANs on bridges, too. The bridge must not answer ARP for
/// the port's address: in a VLAN, it does not get the request.
#[test]
fn the_hosts_port_of_a_bridge_with_the_gateways_address_is_where_the_server_listens() {
    beyond_reference!("dnsname");
    let Some(dig) = Dig::here() else { return };
    let lab = Lab::new();
    let bridge = json!({"type": "bridge", "bridge": "br0", "ipam": host_local(&[&["10.1.2.0/24"]])});
    let networks = Networks::new(&lab, &[chained("net", &bridge, &json!({}))]);
    lab.host().sh(
        "ip link add br0 type bridge; ip link add port type veth peer name end; ip link set end master br0
         for link in br0 port end; do ip link set $link up; done; ip addr add 10.1.2.1/24 dev port
         echo 1 >/proc/sys/net/ipv4/conf/br0/arp_ignore",
    );
    let (web, own) = networks.attach(&lab, "web", &[]);
    let (db, result) = networks.attach(&lab, "db", &[]);
    assert_eq!(result["dns"]["nameservers"], json!([SERVERS[0]]));
    assert_eq!(dig.ask(&db, SERVERS[0], "web A"), bare(&own));
    networks.del_all(&[&web, &db]);
    assert_eq!(server_of("net"), None);
}

#[test]
fn other_resolvers_of_the_network_follow_the_server_and_its_domain_is_the_last_one() {
    beyond_reference!("dnsname");
    let lab = Lab::new();
    let mut network = network(&json!({}));
    network["plugins"][0]["dns"] = json!({
        "nameservers": ["192.0.2.53", SERVERS[0]], "search": ["example.test"], "options": ["ndots:2"],
    });
    let networks = Networks::new(&lab, &[network.clone()]);
    let (web, result) = networks.attach(&lab, "web", &[]);
    let expected = json!({
        "nameservers": [SERVERS[0], SERVERS[1], "192.0.2.53"], "search": ["example.test", "dns.test"], "options": ["ndots:2"],
    });
    assert_eq!(result["dns"], expected);
    networks.del("net", &web);

    network["plugins"][0]["dns"]["search"] = json!(["dns.test", "example.test"]);
    let networks = Networks::new(&lab, &[network]);
    let (db, result) = networks.attach(&lab, "db", &[]);
    assert_eq!(result["dns"]["search"], json!(["dns.test", "example.test"]), "no domain is listed twice");
    networks.del("net", &db);
}
