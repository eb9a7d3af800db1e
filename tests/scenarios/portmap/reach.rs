//! From where, and at which of the host's addresses, a host port can be reached.

use lab::{Lab, beyond_reference, tcp_is_cut_off, tcp_says, udp_says};
use serde_json::json;

use super::*;

#[test]
fn a_second_machine_reaches_the_container_by_tcp_and_udp_with_its_own_address() {
    with_each_backend(|lab, keys| {
        let (pod, far) = (lab.container("pod"), lab.machine("far"));
        network(lab, keys, json!([port("tcp", 8080, 80), port("udp", 5353, 53)]))
            .add(&pod, "eth0")
            .ok_result();
        let _tcp = serve_tcp(&pod, 80);
        let _udp = POD.map(|ip| pod.serve_udp("pod", &at(ip, 53)));
        for (host, client) in HOST.into_iter().zip(FAR) {
            assert_eq!(tcp_says(&far, &at(host, 8080)), pod_sees(client));
            assert_eq!(udp_says(&far, &at(host, 5353)), pod_sees(client));
            assert!(tcp_is_cut_off(&far, &at(host, 80)), "the container's port is not the host's");
        }
    });
}

#[test]
fn the_host_the_other_container_and_the_container_itself_reach_it_too() {
    with_each_backend(|lab, keys| {
        let [pod, other] = ["pod", "other"].map(|id| lab.container(id));
        lab.machine("far");
        network(lab, keys, web()).add(&pod, "eth0").ok_result();
        network(lab, keys, json!([])).add(&other, "eth0").ok_result();
        let _servers = serve_tcp(&pod, 80);
        for (gateway, host) in GATEWAY.into_iter().zip(HOST) {
            assert!(tcp_says(lab.host(), &at(host, 8080)).is_some(), "the host, at {host}");
            for from in [&pod, &other] {
                assert_eq!(tcp_says(from, &at(gateway, 8080)), pod_sees(gateway), "{}", from.name());
                assert_eq!(tcp_says(from, &at(host, 8080)), pod_sees(gateway), "{}", from.name());
            }
        }
    });
}

/// The masquerade of the other network ends the chain in which the mark is cleared.
#[test]
fn the_mark_is_cleared_from_connections_of_a_masqueraded_container_on_another_network() {
    beyond_reference!("newest-wins");
    let lab = Lab::new();
    let _far = lab.machine("far");
    let [pod, other] = ["pod", "other"].map(|id| lab.container(id));
    let masqueraded = |name: &str, bridge: &str, subnet: &str, mappings: Value| {
        let ipam = host_local(&[&[subnet]]);
        let bridge = json!({
            "type": "bridge", "bridge": bridge, "isDefaultGateway": true, "ipMasq": true, "ipMasqBackend": "nftables",
            "ipam": ipam,
        });
        let portmap =
            json!({"type": "portmap", "backend": "nftables", "runtimeConfig": {"portMappings": mappings}});
        lab.chain(json!({"cniVersion": "1.0.0", "name": name, "plugins": [bridge, portmap]}))
    };
    masqueraded("one", "br0", "10.1.2.0/24", web()).add(&pod, "eth0").ok_result();
    masqueraded("two", "br1", "10.9.0.0/24", json!([])).add(&other, "eth0").ok_result();
    let _server = pod.serve_tcp("pod", "10.1.2.2:80");
    assert!(tcp_says(&other, &at(HOST[0], 8080)).is_some());
    let connections = lab.host().sh("cat /proc/net/nf_conntrack");
    let of_port: Vec<&str> = connections.lines().filter(|line| line.contains("dport=8080 ")).collect();
    assert!(!of_port.is_empty() && of_port.iter().all(|line| line.contains("mark=0 ")), "{connections}");
}

#[test]
fn the_host_reaches_it_at_127_0_0_1() {
    with_each_backend(|lab, keys| {
        let pod = lab.container("pod");
        network(lab, keys, web()).add(&pod, "eth0").ok_result();
        let _servers = serve_tcp(&pod, 80);
        assert_eq!(tcp_says(lab.host(), "127.0.0.1:8080"), pod_sees(GATEWAY[0]));
    });
}

#[test]
fn the_host_reaches_it_at_the_loopback_address_of_ipv6() {
    beyond_reference!("loopback-v6");
    with_each_backend(|lab, keys| {
        // If bridged packets pass the IP firewall first, the kernel drops the answers as martians.
        lab.host().sh("f=/proc/sys/net/bridge/bridge-nf-call-ip6tables; if [ -e $f ]; then echo 0 >$f; fi");
        for mappings in [web(), port_of("::1")] {
            let pod = lab.container("at-loopback-v6");
            let network = network(lab, keys, mappings);
            let result = network.add(&pod, "eth0").ok_result();
            {
                let address = result["ips"][1]["address"].as_str().unwrap().split('/').next().unwrap();
                let _server = pod.serve_tcp("pod", &at(address, 80));
                assert_eq!(tcp_says(lab.host(), "[::1]:8080"), pod_sees(GATEWAY[1]));
            }
            network.del(&pod, "eth0", &result).iter().for_each(lab::Outcome::ok);
            pod.vanish();
        }
    });
}

#[test]
fn a_host_address_limits_the_port_to_itself() {
    with_each_backend(|lab, keys| {
        let (pod, far) = (lab.container("pod"), lab.machine("far"));
        let network = network(lab, keys, port_of(HOST[0]));
        network.add(&pod, "eth0").ok_result();
        let _servers = serve_tcp(&pod, 80);
        assert_eq!(tcp_says(&far, &at(HOST[0], 8080)), pod_sees(FAR[0]));
        assert!(tcp_is_cut_off(lab.host(), "127.0.0.1:8080"));
        assert!(tcp_is_cut_off(&far, &at(HOST[1], 8080)));
    });
}

#[test]
fn a_port_of_127_0_0_1_is_the_hosts_own() {
    with_each_backend(|lab, keys| {
        let (pod, far) = (lab.container("pod"), lab.machine("far"));
        network(lab, keys, port_of("127.0.0.1")).add(&pod, "eth0").ok_result();
        let _servers = serve_tcp(&pod, 80);
        assert_eq!(tcp_says(lab.host(), "127.0.0.1:8080"), pod_sees(GATEWAY[0]));
        assert!(tcp_is_cut_off(&far, &at(HOST[0], 8080)));
        assert!(tcp_is_cut_off(lab.host(), &at(HOST[0], 8080)));
    });
}

#[test]
fn an_unspecified_host_address_means_all_of_its_family() {
    with_each_backend(|lab, keys| {
        let far = lab.machine("far");
        for (host_ip, [open, shut]) in [("0.0.0.0", [0, 1]), ("::", [1, 0])] {
            let pod = lab.container("at-unspecified");
            let network = network(lab, keys, port_of(host_ip));
            let result = network.add(&pod, "eth0").ok_result();
            {
                let address = result["ips"][open]["address"].as_str().unwrap().split('/').next().unwrap();
                let _server = pod.serve_tcp("pod", &at(address, 80));
                assert_eq!(tcp_says(&far, &at(HOST[open], 8080)), pod_sees(FAR[open]), "{host_ip}");
                assert!(tcp_is_cut_off(&far, &at(HOST[shut], 8080)), "{host_ip}");
            }
            network.del(&pod, "eth0", &result).iter().for_each(lab::Outcome::ok);
            pod.vanish();
        }
    });
}

#[test]
fn packets_forwarded_for_others_are_not_redirected() {
    // https://github.com/containernetworking/plugins/security/advisories/GHSA-jv3w-x3r3-g6rm
    with_each_backend(|lab, keys| {
        let ([pod, other], far) = (["pod", "other"].map(|id| lab.container(id)), lab.machine("far"));
        network(lab, keys, web()).add(&pod, "eth0").ok_result();
        network(lab, keys, json!([])).add(&other, "eth0").ok_result();
        let _servers = serve_tcp(&pod, 80);
        let _far = FAR.map(|ip| far.serve_tcp("far", &at(ip, 8080)));
        assert_eq!(tcp_says(&other, &at(FAR[0], 8080)).as_deref(), Some("far 10.1.2.3"));
        assert_eq!(tcp_says(&other, &at(FAR[1], 8080)).as_deref(), Some("far fd00:1:2::3"));
        assert!(tcp_says(lab.host(), &at(FAR[0], 8080)).is_some_and(|answer| answer.starts_with("far")));
    });
}

#[test]
fn the_hosts_loopback_stays_protected() {
    // https://github.com/kubernetes/kubernetes/issues/90259
    beyond_reference!("martians");
    with_each_backend(|lab, keys| {
        let [pod, prying] = ["pod", "prying"].map(|id| lab.container(id));
        network(lab, keys, web()).add(&pod, "eth0").ok_result();
        network(lab, keys, json!([])).add(&prying, "eth0").ok_result();
        assert_eq!(lab.host().sysctl("ipv4/conf/br0/route_localnet"), "1", "or this shows nothing");
        let _private = lab.host().serve_tcp("private", "127.0.0.1:7000");
        prying.sh("ip rule del pref 0; ip rule add pref 5 table local
             ip route add 127.0.0.0/8 via 10.1.2.1 table 9; ip rule add pref 1 to 127.0.0.0/8 table 9
             echo 1 >/proc/sys/net/ipv4/conf/all/route_localnet");
        let route = prying.exec(&["ip", "route", "get", "127.0.0.1"]);
        assert!(route.contains("via 10.1.2.1 dev eth0"), "{route}");
        assert!(tcp_is_cut_off(&prying, "127.0.0.1:7000"));
    });
}

#[test]
fn sctp_is_mapped() {
    with_each_backend(|lab, keys| {
        let pod = lab.container("pod");
        let mappings = mapped(json!([port("sctp", 3868, 3868)]));
        portmap(lab, &pod, 2).config(keys.clone()).config(mappings).add().ok_result();
        let ruleset = lab.host().ruleset();
        assert!(ruleset.contains("sctp") && ruleset.contains("3868"), "{ruleset}");
    });
}

#[test]
fn entries_may_be_written_as_containerd_does() {
    with_each_backend(|lab, keys| {
        let (pod, far) = (lab.container("pod"), lab.machine("far"));
        let entry = json!({"HostPort": 8080, "ContainerPort": 80, "Protocol": "tcp", "HostIP": ""});
        network(lab, keys, json!([entry])).add(&pod, "eth0").ok_result();
        let _servers = serve_tcp(&pod, 80);
        assert_eq!(tcp_says(&far, &at(HOST[0], 8080)), pod_sees(FAR[0]));
    });
}

#[test]
fn loopback_addresses_do_not_count_as_the_containers() {
    with_each_backend(|lab, keys| {
        let (pod, far) = (lab.container("pod"), lab.machine("far"));
        let mut conflist = json!({"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "loopback"}]});
        let mut portmap = keys.clone();
        portmap["type"] = json!("portmap");
        portmap["runtimeConfig"] = json!({"portMappings": web()});
        let mut bridge = dual_stack();
        bridge["type"] = json!("bridge");
        conflist["plugins"].as_array_mut().unwrap().extend([bridge, portmap]);
        let result = lab.chain(conflist).add(&pod, "eth0").ok_result();
        let _servers = serve_tcp(&pod, 80);
        assert_eq!(tcp_says(&far, &at(HOST[0], 8080)), pod_sees(FAR[0]), "{result:#}");
    });
}
