use super::*;

/// A call as sent by netavark 1.14.0.
fn call(options: &Value, more: &Value) -> Call {
    let mut call = value!({
        "container_id": "c1", "container_name": "web", "port_mappings": null,
        "network": {
            "dns_enabled": false, "driver": "cni", "id": "0", "internal": false, "ipv6_enabled": false, "name": "pods",
            "subnets": [{"gateway": "10.1.0.1", "lease_range": null, "subnet": "10.1.0.0/24"}, {"subnet": "fd01::/64"}],
        },
        "network_options": {"aliases": null, "interface_name": "eth0", "options": null, "static_ips": null, "static_mac": null},
    });
    for (key, member) in options.as_object().unwrap() {
        call["network_options"][key] = member.clone();
    }
    for (key, member) in more.as_object().unwrap() {
        call[key] = member.clone();
    }
    json::decode(&call).unwrap()
}

fn chain(plugins: &Value) -> Chain {
    let list = value!({"cniVersion": "1.0.0", "name": "n", "plugins": plugins});
    Chain::from_bytes(list.to_string().as_bytes()).unwrap()
}

fn attach(options: &Value, plugins: &Value) -> Result<AttachmentParameters> {
    with_container_options(Path::new("/run/netns/x"), &call(options, &value!({})), &chain(plugins), false)
}

#[test]
fn addresses_and_mac_are_requested_as_the_chain_declares() {
    let options = value!({"static_ips": ["10.1.0.7", "fd01::7"], "static_mac": "02:00:00:00:00:07"});
    let declared = value!([{"type": "bridge", "capabilities": {"ips": true, "mac": true}, "ipam": {"type": "host-local"}}]);
    let request = attach(&options, &declared).unwrap();
    assert_eq!(request.capability_args["ips"], value!(["10.1.0.7", "fd01::7"]));
    assert_eq!(request.capability_args["mac"], "02:00:00:00:00:07");

    let of_podman_4 = value!([{"type": "bridge", "ipam": {"type": "host-local"}}]);
    let one = value!({"static_ips": ["10.1.0.7"], "static_mac": "02:00:00:00:00:07"});
    let request = attach(&one, &of_podman_4).unwrap();
    assert_eq!(
        (request.args.get("IP"), request.args.get("MAC")),
        (Some("10.1.0.7"), Some("02:00:00:00:00:07"))
    );
    assert_eq!(
        (request.args.get("K8S_POD_NAME"), request.args.get("IgnoreUnknown")),
        (Some("web"), Some("1"))
    );
    let of_others = value!([{"type": "bridge", "ipam": {"type": "whereabouts"}}]);
    let error = attach(&value!({"static_ips": ["10.1.0.7", "fd01::7"]}), &of_others).unwrap_err();
    assert!(error.msg().contains("accepts only one address"), "{error}");
    assert!(error.details().contains("\"ips\": true"), "{error}");
}

#[test]
fn networks_of_podman_4_get_several_addresses_too() {
    let options = value!({"static_ips": ["10.1.0.7", "fd01::7", "10.1.0.7", "fd01::7"]});
    let call = call(&options, &value!({}));
    let plugins = value!([{"type": "bridge", "ipam": {"type": "host-local"}}, {"type": "portmap"}]);
    let declaring = declaring_ips(chain(&plugins), &call.network_options).unwrap();
    let request = with_container_options(Path::new("/run/netns/x"), &call, &declaring, false).unwrap();
    // `podman network reload` sends each address twice.
    assert_eq!(request.capability_args["ips"], value!(["10.1.0.7", "fd01::7"]));
    assert_eq!(declaring.plugins.len(), 2);
}

#[test]
fn a_reload_asks_another_makers_ipam_plugin_for_no_address() {
    let of_others =
        value!([{"type": "bridge", "capabilities": {"ips": true}, "ipam": {"type": "whereabouts"}}]);
    let options = value!({"static_ips": ["10.1.0.7", "fd01::7"], "static_mac": "02:00:00:00:00:07"});
    let call = call(&options, &value!({}));
    let request = |plugins: &Value, is_reload| {
        with_container_options(Path::new("/run/netns/x"), &call, &chain(plugins), is_reload).unwrap()
    };
    assert!(!request(&of_others, true).capability_args.contains_key("ips"));
    assert!(request(&of_others, true).args.get("IP").is_none());
    assert_eq!(request(&of_others, false).capability_args["ips"], value!(["10.1.0.7", "fd01::7"]));
    let ours = value!([{"type": "bridge", "capabilities": {"ips": true}, "ipam": {"type": "host-local"}}]);
    assert_eq!(request(&ours, true).capability_args["ips"], value!(["10.1.0.7", "fd01::7"]));
}

#[test]
fn the_plugin_static_gets_the_prefix_length_of_the_networks_subnet() {
    let plugins = value!([{"type": "macvlan", "capabilities": {"ips": true}, "ipam": {"type": "static"}}]);
    let request = attach(&value!({"static_ips": ["10.1.0.7", "192.0.2.7"]}), &plugins).unwrap();
    assert_eq!(request.capability_args["ips"], value!(["10.1.0.7/24", "192.0.2.7"]));
}

#[test]
fn the_subnet_of_a_changed_file_takes_precedence_over_the_one_that_podman_knows() {
    let plugins = value!([{"type": "macvlan", "capabilities": {"ips": true},
        "ipam": {"type": "static", "addresses": [{"address": "10.1.0.1/16"}]}}]);
    let request = attach(&value!({"static_ips": ["10.1.0.7"]}), &plugins).unwrap();
    assert_eq!(request.capability_args["ips"], value!(["10.1.0.7/16"]));
}

#[test]
fn aliases_are_a_list_and_for_dnsname_a_list_of_the_network() {
    let options = value!({"aliases": ["db", "c1"]});
    let any = value!([{"type": "t", "capabilities": {"aliases": true}}]);
    assert_eq!(attach(&options, &any).unwrap().capability_args["aliases"], value!(["db", "c1"]));
    let dnsname = value!([{"type": "bridge"}, {"type": "dnsname", "capabilities": {"aliases": true}}]);
    assert_eq!(attach(&options, &dnsname).unwrap().capability_args["aliases"], value!({"n": ["db", "c1"]}));
}

/// Podman allows these names: letters, digits, `_`, `.` and `-`, the first of which is a letter or a digit.
#[test]
fn names_that_are_not_valid_in_dns_are_left_out_on_a_network_with_dnsname_only() {
    let long = "x".repeat(64);
    let dnsname = value!([{"type": "bridge"}, {"type": "dnsname", "capabilities": {"aliases": true}}]);
    let without = value!([{"type": "t", "capabilities": {"aliases": true}}]);
    for name in ["web_", "web-", "a..b", "10.0.0.7", &long] {
        let call = call(&value!({"aliases": ["db", name]}), &value!({"container_name": name}));
        let request = |plugins: &Value| {
            with_container_options(Path::new("/run/netns/x"), &call, &chain(plugins), false).unwrap()
        };
        let of_dnsname = request(&dnsname);
        assert_eq!(of_dnsname.capability_args["aliases"], value!({"n": ["db"]}), "{name}");
        assert_eq!(of_dnsname.args.get("K8S_POD_NAME"), None, "{name}");
        assert_eq!(request(&without).capability_args["aliases"], value!(["db", name]));
        assert_eq!(request(&without).args.get("K8S_POD_NAME"), Some(name));
    }
}

#[test]
fn ranges_and_protocols_of_ports_become_single_mappings() {
    let published = |mappings: Value| {
        let call = call(&value!({}), &value!({"port_mappings": mappings}));
        let chain =
            chain(&value!([{"type": "bridge"}, {"type": "portmap", "capabilities": {"portMappings": true}}]));
        with_container_options(Path::new("/run/netns/x"), &call, &chain, false)
    };
    let request = published(value!([
        {"container_port": 80, "host_ip": "", "host_port": 8080, "protocol": "tcp", "range": 2},
        {"container_port": 53, "host_ip": "::1", "host_port": 53, "protocol": "tcp,udp", "range": 1},
        {"container_port": 9, "host_ip": "", "host_port": 9, "protocol": "", "range": 0},
    ]));
    assert_eq!(
        request.unwrap().capability_args["portMappings"],
        value!([
            {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
            {"hostPort": 8081, "containerPort": 81, "protocol": "tcp"},
            {"hostPort": 53, "containerPort": 53, "protocol": "tcp", "hostIP": "::1"},
            {"hostPort": 53, "containerPort": 53, "protocol": "udp", "hostIP": "::1"},
            {"hostPort": 9, "containerPort": 9, "protocol": "tcp"},
        ])
    );
    let beyond =
        value!([{"container_port": 80, "host_port": 65535, "host_ip": "", "protocol": "tcp", "range": 2}]);
    assert!(published(beyond).unwrap_err().msg().contains("exceeds port 65535"));
    let many =
        value!([{"container_port": 1, "host_port": 1, "host_ip": "", "protocol": "tcp", "range": 20000}]);
    assert!(published(many).unwrap_err().msg().contains("more than 10000 ports"));
}

#[test]
fn names_that_no_attachment_can_have_and_unknown_options_are_refused() {
    let plugins = value!([{"type": "bridge"}]);
    assert!(attach(&value!({"interface_name": "a/b"}), &plugins).is_err());
    assert!(attach(&value!({"options": {"mode": "x"}}), &plugins).unwrap_err().msg().contains("\"mode\""));
    let outside = call(&value!({}), &value!({"container_id": "../c"}));
    assert!(attachment(Path::new("/run/netns/x"), &outside).is_err());
}
