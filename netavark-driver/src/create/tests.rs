use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;

/// A directory with plugins of these names. No test runs them.
fn plugins() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in
        ["bridge", "macvlan", "ptp", "host-local", "static", "portmap", "firewall", "dhcp", "vlan", "dummy"]
    {
        let file = dir.path().join(name);
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    dir
}

/// The document that Podman 5.4.2 sends for `podman network create --driver cni ...`.
fn document(options: &[(&str, &str)], more: &Value) -> Map<String, Value> {
    let options: Map<String, Value> =
        options.iter().map(|(key, text)| ((*key).to_owned(), (*text).into())).collect();
    let mut document = value!({
        "name": "pods", "id": "56743df4b981d1164e65bfa46c062b43f08c77766f42b4513ebf0606fee31441", "driver": "cni",
        "created": "0001-01-01T00:00:00Z", "ipv6_enabled": false, "internal": false, "dns_enabled": true,
        "labels": {"x": "y"}, "options": options,
    });
    for (key, member) in more.as_object().unwrap() {
        document[key] = member.clone();
    }
    document.as_object().unwrap().clone()
}

fn conflist(dir: &Path, text: &str) -> String {
    let file = dir.join("web.conflist");
    fs::write(&file, text).unwrap();
    file.display().to_string()
}

const WEB: &str = r#"{"cniVersion": "1.0.0", "name": "web", "plugins": [
    {"type": "bridge", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.5.0.0/24", "gateway": "10.5.0.254"}], [{"subnet": "fd05::/64"}]]}},
    {"type": "portmap", "capabilities": {"portMappings": true}}]}"#;

#[test]
fn podman_shows_the_subnets_and_gateways_of_a_conflist_and_allocates_no_addresses() {
    let dir = plugins();
    let file = conflist(dir.path(), WEB);
    let path = dir.path().display().to_string();
    let made = create(document(&[("conflist", &file), ("plugin-path", &path)], &value!({}))).unwrap();
    assert_eq!(
        made["subnets"],
        value!([{"subnet": "10.5.0.0/24", "gateway": "10.5.0.254"}, {"subnet": "fd05::/64", "gateway": "fd05::1"}])
    );
    assert_eq!(made["ipam_options"], value!({"driver": "none"}));
    assert_eq!((&made["dns_enabled"], &made["labels"]), (&value!(false), &value!({"x": "y"})));
    assert_eq!((&made["name"], &made["driver"]), (&value!("pods"), &value!("cni")));
}

/// Podman refuses it.
#[test]
fn a_gateway_outside_of_its_subnet_is_not_shown() {
    let dir = plugins();
    let file = conflist(
        dir.path(),
        r#"{"cniVersion": "1.0.0", "name": "web", "plugins": [{"type": "ptp", "ipam": {"type": "host-local",
            "ranges": [[{"subnet": "10.5.0.0/24", "gateway": "192.0.2.1"}]]}}]}"#,
    );
    let path = dir.path().display().to_string();
    let made = create(document(&[("conflist", &file), ("plugin-path", &path)], &value!({}))).unwrap();
    assert_eq!(made["subnets"], value!([{"subnet": "10.5.0.0/24"}]));
}

#[test]
fn the_subnet_of_a_static_address_is_shown() {
    let dir = plugins();
    let file = conflist(
        dir.path(),
        r#"{"cniVersion": "1.0.0", "name": "web", "plugins": [{"type": "bridge", "ipam": {"type": "static",
            "addresses": [{"address": "10.5.0.7/24", "gateway": "10.5.0.1"}, {"address": "10.5.0.8/24"}]}}]}"#,
    );
    let path = dir.path().display().to_string();
    let made = create(document(&[("conflist", &file), ("plugin-path", &path)], &value!({}))).unwrap();
    assert_eq!(made["subnets"], value!([{"subnet": "10.5.0.0/24", "gateway": "10.5.0.1"}]));
}

#[test]
fn a_network_that_the_driver_describes_keeps_its_choices_as_options() {
    let dir = plugins();
    let path = dir.path().display().to_string();
    let options = [("type", "bridge"), ("plugin-path", &*path), ("dns", "8.8.8.8")];
    let more = value!({"subnets": [{"subnet": "10.1.0.5/24"}], "network_dns_servers": ["9.9.9.9"]});
    let made = create(document(&options, &more)).unwrap();
    assert_eq!(made["network_interface"], "cni-2b3eceb825");
    assert_eq!(made["options"]["ipam"], "host-local");
    assert_eq!(made["subnets"], value!([{"subnet": "10.1.0.0/24"}]));
    // Podman refuses servers for a network that has no DNS server of its own.
    assert_eq!(made["options"]["dns"], "8.8.8.8,9.9.9.9");
    assert!(!made.contains_key("network_dns_servers"));
    // Podman passes the answer to setup, so it must describe the same chain.
    let network: Network = json::decode(&Value::Object(made)).unwrap();
    let options = Options::read(&network.options).unwrap();
    let chain = crate::source::chain(&network, &options).unwrap();
    assert_eq!(address::subnets(&chain).len(), 1);
    assert_eq!(
        chain.plugins.iter().map(|plugin| plugin.kind.as_str()).collect::<Vec<_>>(),
        ["bridge", "portmap", "firewall"]
    );
}

#[test]
fn every_mistake_in_a_conflist_is_reported_with_its_path_and_remedy() {
    let dir = plugins();
    let file = conflist(
        dir.path(),
        "{\"cniVersion\": \"1.0.0\", \"name\": \"web\", \"plugins\": [\n  {\"type\": \"bridge\", \"mtu\": \"1500\"},\n  {\"type\": \"portmapp\"}]}",
    );
    let path = dir.path().display().to_string();
    let error = create(document(&[("conflist", &file), ("plugin-path", &path)], &value!({}))).unwrap_err();
    let expected = format!(
        "{file}:2:29: mtu: expected a number from 0 to 65535, found a string (remove the quotes); {file}:3:12: no plugin \"portmapp\" in {path} (did you mean \"portmap\"?)"
    );
    assert_eq!(error.msg(), expected);
    let error = create(document(&[("conflist", "/nonexistent/web.conflist")], &value!({}))).unwrap_err();
    assert!(error.msg().starts_with("option conflist: read /nonexistent/web.conflist"), "{error}");
}

#[test]
fn the_remedy_of_a_missing_plugin_or_key_is_an_option_of_podman() {
    let more = value!({"subnets": [{"subnet": "10.1.0.0/24"}]});
    let error = create(document(&[("type", "bridge"), ("plugin-path", "/nope")], &more)).unwrap_err();
    for plugin in ["type: no plugin \"bridge\"", "ipam: no plugin \"host-local\""] {
        let expected = format!(
            "option {plugin} in /nope (run `ferrule-install`, or name the directory by --opt plugin-path=DIR)"
        );
        assert!(error.msg().contains(&expected), "{error}");
    }
    let dir = plugins();
    let path = dir.path().display().to_string();
    let error =
        create(document(&[("type", "vlan"), ("master", "lo"), ("plugin-path", &path)], &more)).unwrap_err();
    assert!(
        error
            .msg()
            .contains("option type: vlanId is missing (add --opt vlanId=VALUE; set vlanId to a number"),
        "{error}"
    );
}

#[test]
fn a_mistake_in_an_option_is_reported_with_the_options_name() {
    let dir = plugins();
    let path = dir.path().display().to_string();
    let more = value!({"subnets": [{"subnet": "10.1.0.0/24"}]});
    for (key, text, expected) in [
        ("vlan", "many", "option vlan: expected a number from 0 to 4094, found a string"),
        ("portmap.backend", "pf", "option portmap.backend: \"pf\" is none of nftables, iptables"),
    ] {
        let options = [("type", "bridge"), ("plugin-path", &*path), (key, text)];
        let error = create(document(&options, &more)).unwrap_err();
        assert!(error.msg().starts_with(expected), "{error}");
    }
}

#[test]
fn a_mistake_in_a_flag_is_told_with_the_flags_name() {
    let dir = plugins();
    let path = dir.path().display().to_string();
    let options = [("type", "bridge"), ("plugin-path", &*path)];
    for (subnet, expected) in [
        (
            value!({"subnet": "10.1.0.0/24", "gateway": "10.9.0.1"}),
            "--gateway: gateway 10.9.0.1 is not in subnet",
        ),
        (
            value!({"subnet": "10.1.0.0/24", "lease_range": {"start_ip": "10.2.0.1", "end_ip": "10.2.0.9"}}),
            "--ip-range: ",
        ),
        (value!({"subnet": "10.1.0.0/32"}), "--subnet: "),
    ] {
        let error = create(document(&options, &value!({"subnets": [subnet]}))).unwrap_err();
        assert!(error.msg().starts_with(expected), "{error}");
    }
}

#[test]
fn a_name_with_which_no_container_could_be_attached_is_refused() {
    let dir = plugins();
    let path = dir.path().display().to_string();
    let named = |length: usize| {
        let more = value!({"name": "x".repeat(length), "subnets": [{"subnet": "10.1.0.0/24"}]});
        create(document(&[("type", "bridge"), ("plugin-path", &path)], &more))
    };
    named(174).unwrap();
    let error = named(175).unwrap_err();
    assert!(error.msg().contains("175 bytes") && error.details().contains("shorter"), "{error}");
    let file = conflist(dir.path(), &WEB.replace("\"web\"", &format!("{:?}", "x".repeat(175))));
    let of_file = create(document(&[("conflist", &file), ("plugin-path", &path)], &value!({})));
    assert!(of_file.unwrap_err().msg().contains("175 bytes"));
}

#[test]
fn flags_of_podman_that_a_file_would_contradict_are_refused() {
    for (key, given, flag) in [
        ("subnets", value!([{"subnet": "10.1.0.0/24"}]), "--subnet"),
        ("routes", value!([{"destination": "10.7.0.0/16", "gateway": "10.1.0.1"}]), "--route"),
        ("internal", value!(true), "--internal"),
        ("ipv6_enabled", value!(true), "--ipv6"),
        ("network_interface", value!("eth0"), "--interface-name"),
        ("ipam_options", value!({"driver": "dhcp"}), "--ipam-driver"),
    ] {
        let mut more = value!({});
        more[key] = given;
        let error = create(document(&[("conflist", "/a.conflist")], &more)).unwrap_err();
        assert!(
            error.msg().starts_with(flag) && error.details().contains("write it into the file"),
            "{error}"
        );
    }
}

/// Options, other members of the document, and the start of the message.
type Ignored<'a> = (&'a [(&'a str, &'a str)], Value, &'a str);

#[test]
fn flags_and_options_that_the_chain_would_ignore_are_refused() {
    let dir = plugins();
    let path = dir.path().display().to_string();
    let subnet = || value!({"subnets": [{"subnet": "10.1.0.0/24"}]});
    let with = |mut more: Value, key: &str, given: Value| {
        more[key] = given;
        more
    };
    let macvlan = [("type", "macvlan"), ("master", "eth8")];
    let ranged =
        value!({"subnet": "10.1.0.0/24", "lease_range": {"start_ip": "10.1.0.8", "end_ip": "10.1.0.9"}});
    let cases: [Ignored<'_>; 12] = [
        (
            &[("type", "macvlan"), ("master", "eth8"), ("ipam", "static")],
            value!({"subnets": [ranged]}),
            "--ip-range has no effect with ipam static",
        ),
        (&[("type", "dummy")], value!({"ipv6_enabled": true}), "--ipv6 has no effect with ipam none"),
        (&[("type", "dummy")], value!({"internal": true}), "--internal has no effect with ipam none"),
        (
            &[("type", "dummy"), ("default-route", "false")],
            value!({}),
            "option default-route=false has no effect with ipam none",
        ),
        (
            &[("type", "bridge"), ("ipam", "host-local")],
            with(subnet(), "ipam_options", value!({"driver": "none"})),
            "option ipam=host-local and --ipam-driver none contradict",
        ),
        (&macvlan, value!({"internal": true}), "--internal has no effect with ipam dhcp"),
        (&macvlan, value!({"ipv6_enabled": true}), "--ipv6 has no effect with ipam dhcp"),
        (&macvlan, value!({"network_interface": "eth7"}), "--interface-name eth7 contradicts"),
        (
            &[("type", "macvlan"), ("master", "eth8"), ("default-route", "false")],
            value!({}),
            "option default-route=false has no effect with ipam dhcp",
        ),
        (
            &[("type", "bridge"), ("isDefaultGateway", "true")],
            with(subnet(), "internal", true.into()),
            "--internal and option isDefaultGateway=true contradict",
        ),
        (
            &[("type", "bridge"), ("isDefaultGateway", "true"), ("default-route", "false")],
            subnet(),
            "option default-route=false and option isDefaultGateway=true contradict",
        ),
        (
            &[("type", "ptp")],
            with(subnet(), "network_interface", "eth7".into()),
            "--interface-name has no effect with this type",
        ),
    ];
    for (options, more, expected) in cases {
        let options = [options, &[("plugin-path", &*path)]].concat();
        let error = create(document(&options, &more)).unwrap_err();
        assert!(error.msg().starts_with(expected) && !error.details().is_empty(), "{expected}: {error}");
    }
}
