use super::*;
use crate::document::Words;

fn network(json: &str, options: &[(&str, &str)]) -> Result<Value> {
    let mut network: Network = serde_json::from_str(json).unwrap();
    network.options =
        options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<Words>();
    let read = Options::read(&network.options)?;
    let Some(kind) = network.options.get("type").cloned() else { panic!("no type") };
    write(&network, &kind, &read)
}

const TWO_SUBNETS: &str = r#"{"name": "pods", "id": "0123456789abcdef", "subnets": [
    {"subnet": "10.1.0.0/24", "gateway": "10.1.0.1", "lease_range": {"start_ip": "10.1.0.128", "end_ip": "10.1.0.255"}},
    {"subnet": "fd00:1::/64"}], "routes": [{"destination": "10.7.0.0/16", "gateway": "10.1.0.2", "metric": 100}]}"#;

#[test]
fn a_bridge_has_what_users_of_podman_expect() {
    let list = network(TWO_SUBNETS, &[("type", "bridge"), ("dns", "9.9.9.9")]).unwrap();
    assert_eq!(
        list,
        json!({"cniVersion": "1.1.0", "name": "pods", "plugins": [
            {
                "type": "bridge", "bridge": "cni-f6dbbe5e61", "isGateway": true, "ipMasq": true, "hairpinMode": true,
                "capabilities": {"mac": true, "ips": true}, "dns": {"nameservers": ["9.9.9.9"]},
                "ipam": {
                    "type": "host-local",
                    "ranges": [
                        [{"subnet": "10.1.0.0/24", "gateway": "10.1.0.1", "rangeStart": "10.1.0.128", "rangeEnd": "10.1.0.255"}],
                        [{"subnet": "fd00:1::/64"}],
                    ],
                    "routes": [
                        {"dst": "10.7.0.0/16", "gw": "10.1.0.2", "priority": 100}, {"dst": "0.0.0.0/0"}, {"dst": "::/0"},
                    ],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
            {"type": "firewall"},
        ]})
    );
}

/// The bridge stays after `podman network rm`, and has the route to the subnet.
#[test]
fn a_network_that_is_created_again_has_the_same_bridge_unless_its_name_or_a_subnet_or_internal_differs() {
    let with = |json: &Value| {
        let list = network(&json.to_string(), &[("type", "bridge")]).unwrap();
        host_interface(&list).unwrap().to_owned()
    };
    let bridge = |name, id, subnet| with(&json!({"name": name, "id": id, "subnets": [{"subnet": subnet}]}));
    let first = bridge("pods", "04736b320301", "10.1.0.0/24");
    assert!(first.starts_with("cni-") && first.len() == 14, "{first}");
    assert_eq!(bridge("pods", "0a87a5e50d4f", "10.1.0.0/24"), first);
    assert_ne!(bridge("pods", "04736b320301", "10.2.0.0/24"), first);
    assert_ne!(bridge("other", "04736b320301", "10.1.0.0/24"), first);
    // The first bridge has the gateway's address, by which containers reach the host.
    let internal =
        json!({"name": "pods", "id": "0", "internal": true, "subnets": [{"subnet": "10.1.0.0/24"}]});
    assert_ne!(with(&internal), first);
}

#[test]
fn host_bits_of_a_subnet_are_dropped() {
    let json = r#"{"name": "n", "id": "0", "subnets": [{"subnet": "10.1.0.5/24"}]}"#;
    let list = network(json, &[("type", "bridge")]).unwrap();
    assert_eq!(list["plugins"][0]["ipam"]["ranges"], json!([[{"subnet": "10.1.0.0/24"}]]));
}

#[test]
fn options_set_keys_of_each_plugin_of_the_chain_and_add_or_remove_chained_ones() {
    let list = network(
        r#"{"name": "pods", "id": "0", "subnets": [{"subnet": "10.1.0.0/24"}]}"#,
        &[
            ("type", "bridge"),
            ("bridge", "br7"),
            ("mtu", "1400"),
            ("ipam.statusFailsWhenFull", "true"),
            ("portmap", "false"),
            ("firewall.ingressPolicy", "same-bridge"),
            ("bandwidth.ingressRate", "1000000"),
            ("bandwidth.ingressBurst", "1000000"),
            ("tuning.sysctl.net.core.somaxconn", "500"),
        ],
    )
    .unwrap();
    let plugins = list["plugins"].as_array().unwrap();
    let kinds: Vec<_> = plugins.iter().map(|plugin| plugin["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["bridge", "firewall", "tuning", "bandwidth"]);
    assert_eq!((&plugins[0]["bridge"], &plugins[0]["mtu"]), (&json!("br7"), &json!(1400)));
    assert_eq!(plugins[0]["ipam"]["statusFailsWhenFull"], true);
    assert_eq!(plugins[1]["ingressPolicy"], "same-bridge");
    assert_eq!(plugins[2]["sysctl"], json!({"net.core.somaxconn": "500"}));
    assert_eq!(plugins[3]["ingressRate"], 1_000_000);
}

#[test]
fn a_macvlan_without_subnets_is_served_by_dhcp_and_routed_by_nobody() {
    let json = r#"{"name": "lan", "id": "0", "network_interface": "eth0"}"#;
    let list = network(json, &[("type", "macvlan"), ("mode", "private")]).unwrap();
    let plugin = json!({"type": "macvlan", "master": "eth0", "mode": "private", "capabilities": {"mac": true}, "ipam": {"type": "dhcp"}});
    assert_eq!(list["plugins"], json!([plugin]));
    assert_eq!(host_interface(&list), Some("eth0"));
}

#[test]
fn an_internal_network_has_no_way_out() {
    let json = r#"{"name": "inner", "id": "0", "internal": true, "subnets": [{"subnet": "10.1.0.0/24"}]}"#;
    let list = network(json, &[("type", "bridge")]).unwrap();
    let plugin = &list["plugins"][0];
    assert_eq!((&plugin["isGateway"], &plugin["ipMasq"]), (&json!(false), &json!(false)));
    assert_eq!(plugin["ipam"]["routes"], json!([]));
    // dnsname's server needs an address that the containers reach.
    let list = network(json, &[("type", "bridge"), ("dnsname", "true")]).unwrap();
    let plugin = &list["plugins"][0];
    assert_eq!((&plugin["isGateway"], &plugin["ipMasq"]), (&json!(true), &json!(false)));
    assert_eq!(plugin["ipam"]["routes"], json!([]));
    let outer = r#"{"name": "outer", "id": "0", "subnets": [{"subnet": "10.1.0.0/24"}]}"#;
    let list = network(outer, &[("type", "bridge"), ("default-route", "false")]).unwrap();
    assert_eq!(
        (&list["plugins"][0]["ipMasq"], &list["plugins"][0]["ipam"]["routes"]),
        (&json!(true), &json!([]))
    );
}

#[test]
fn an_internal_network_of_ptp_has_no_way_out_either() {
    for (internal, routes) in [(true, json!([])), (false, json!([{"dst": "0.0.0.0/0"}]))] {
        let subnets = json!([{"subnet": "10.1.0.0/24"}]);
        let json = json!({"name": "inner", "id": "0", "internal": internal, "subnets": subnets});
        let list = network(&json.to_string(), &[("type", "ptp")]).unwrap();
        let plugin = &list["plugins"][0];
        assert_eq!((&plugin["ipMasq"], &plugin["ipam"]["routes"]), (&json!(!internal), &routes));
    }
}

#[test]
fn addresses_of_static_are_those_that_containers_ask_for() {
    let json = r#"{"name": "n", "id": "0", "subnets": [{"subnet": "10.1.0.0/24", "gateway": "10.1.0.1"}]}"#;
    let list = network(json, &[("type", "macvlan"), ("master", "eth0"), ("ipam", "static")]).unwrap();
    let plugin = &list["plugins"][0];
    assert_eq!(plugin["ipam"]["addresses"], json!([{"gateway": "10.1.0.1"}]));
    assert_eq!(plugin["capabilities"]["ips"], true);
}

/// A network, its options, and parts of the message and the remedy.
type Refused<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str, &'a str);

fn are_refused(cases: &[Refused<'_>]) {
    for (json, options, message, remedy) in cases {
        let error = network(json, options).unwrap_err();
        assert!(error.msg().contains(message), "{options:?}: {error}");
        assert!(error.details().contains(remedy), "{options:?}: {error}: {}", error.details());
    }
}

const SUBNET: &str = r#"{"name": "n", "id": "0", "subnets": [{"subnet": "10.1.0.0/24"}]}"#;

#[test]
fn a_wrong_option_is_refused_with_its_name_and_a_remedy() {
    are_refused(&[
        (SUBNET, &[("type", "bridg")], "option type: \"bridg\"", "did you mean \"bridge\"?"),
        (SUBNET, &[("type", "portmap")], "option type: \"portmap\"", "write a conflist"),
        (SUBNET, &[("type", "bridge"), ("isolate", "true")], "option isolate: ", "firewall.ingressPolicy"),
        (SUBNET, &[("type", "bridge"), ("no_default_route", "1")], "netavark's own", "default-route=false"),
        (SUBNET, &[("type", "bridge"), ("com.docker.network.driver.mtu", "1400")], "netavark's own", "mtu="),
        (SUBNET, &[("type", "bridge"), ("mode", "unmanaged")], "netavark's own", "isGateway=false"),
        (
            SUBNET,
            &[("type", "bridge"), ("metric", "7")],
            "netavark's own",
            "--route 0.0.0.0/0,GATEWAY,METRIC",
        ),
        (
            SUBNET,
            &[("type", "bridge"), ("vrf", "blue")],
            "option vrf: it is an option of netavark's",
            "leave it out",
        ),
        (SUBNET, &[("type", "macvlan"), ("bclim", "7")], "netavark's own", "bcqueuelen"),
        (
            SUBNET,
            &[("type", "bridge"), ("com.docker.network.bridge.enable_ip_masquerade", "false")],
            "netavark's own",
            "ipMasq=false",
        ),
        (SUBNET, &[("type", "macvlan"), ("parent", "eth0")], "option parent", "\"master\"?"),
        (SUBNET, &[("type", "bridge"), ("mtuu", "1")], "option mtuu: there is no", "did you mean \"mtu\"?"),
        (SUBNET, &[("type", "bridge"), ("ipam.rangez", "1")], "option ipam.rangez", "\"ranges\"?"),
        (SUBNET, &[("type", "bridge"), ("portmap.sant", "1")], "option portmap.sant", "\"snat\"?"),
        (SUBNET, &[("type", "bridge"), ("portmap", "no")], "option portmap is neither", "portmap.KEY=VALUE"),
        (
            SUBNET,
            &[("type", "bridge"), ("tuning", "false"), ("tuning.mtu", "1")],
            "exclude each other",
            "remove one",
        ),
        (
            SUBNET,
            &[("type", "bridge"), ("ipam", "hostlocal")],
            "option ipam: \"hostlocal\"",
            "\"host-local\"?",
        ),
    ]);
}

#[test]
fn addresses_that_the_network_cannot_give_are_refused_with_a_remedy() {
    let none = r#"{"name": "n", "id": "0"}"#;
    let v6 = r#"{"name": "n", "id": "0", "ipv6_enabled": true, "subnets": [{"subnet": "10.1.0.0/24"}]}"#;
    let dhcp = r#"{"name": "n", "id": "0", "ipam_options": {"driver": "dhcp"}}"#;
    let blackhole = r#"{"name": "n", "id": "0", "subnets": [{"subnet": "10.1.0.0/24"}],
        "routes": [{"destination": "10.7.0.0/16", "route_type": "blackhole"}]}"#;
    are_refused(&[
        (SUBNET, &[("type", "macvlan"), ("ipam", "dhcp")], "ipam is dhcp, but subnets", "remove --subnet"),
        (none, &[("type", "bridge")], "no subnet", "--subnet 10.1.0.0/24"),
        (none, &[("type", "dummy"), ("ipam.ranges", "[]")], "option ipam.ranges: ", "ipam=host-local"),
        (v6, &[("type", "bridge")], "there is no IPv6 subnet", "--subnet fd00:1::/64"),
        (dhcp, &[("type", "bridge"), ("ipam", "static")], "--ipam-driver dhcp contradict", "remove one"),
        (blackhole, &[("type", "bridge")], "type blackhole is not supported", "unicast"),
    ]);
}

#[test]
fn a_key_of_the_chain_is_reported_as_the_option_or_the_flag_that_sets_it() {
    let list = json!({"plugins": [{"type": "bridge"}, {"type": "portmap"}]});
    let origin = |path: &str, options: &Words| {
        origin_of(&path.split('/').map(str::to_owned).collect::<Vec<_>>(), &list, options)
    };
    for (path, expected) in [
        ("plugins/0/mtu", "option mtu"),
        ("plugins/0/ipam/dataDir", "option ipam.dataDir"),
        ("plugins/1/snat", "option portmap.snat"),
        ("plugins/1", "option type"),
        ("plugins/1/type", "option portmap"),
        ("plugins/0/ipam/ranges/0/0/subnet", "--subnet"),
        ("plugins/0/ipam/ranges/1/0/gateway", "--gateway"),
        ("plugins/0/ipam/ranges/0/0/rangeEnd", "--ip-range"),
        ("plugins/0/ipam/routes/0/gw", "--route"),
        ("plugins/0/ipam/addresses/0/gateway", "--gateway"),
    ] {
        assert_eq!(origin(path, &Words::new()).as_deref(), Some(expected), "{path}");
    }
    assert_eq!(origin("name", &Words::new()), None);
    let own = Words::from([("ipam.ranges".to_owned(), "[]".to_owned())]);
    let path = "plugins/0/ipam/ranges/0/0/subnet";
    assert_eq!(origin(path, &own).as_deref(), Some("option ipam.ranges.0.0.subnet"));
}
