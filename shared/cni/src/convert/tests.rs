//! Converts a result between every pair of versions: fields of the older one survive, others are dropped.

use crate::{AddResult, Dns, Interface, IpConfig, Route, Version};
use serde_json::{Value, json};

/// A result with all fields of all versions.
fn full() -> AddResult {
    let everything = Route {
        gw: Some("10.0.0.1".parse().unwrap()),
        mtu: Some(1400),
        advmss: Some(1360),
        priority: Some(7),
        table: Some(42),
        scope: Some(253),
        ..Route::to("10.9.0.0/16".parse().unwrap())
    };
    AddResult {
        interfaces: vec![
            Interface {
                name: "cni0".into(),
                mac: Some("02:00:00:00:00:01".into()),
                mtu: Some(1500),
                ..Interface::default()
            },
            Interface {
                name: "eth0".into(),
                mac: Some("02:00:00:00:00:02".into()),
                mtu: Some(1400),
                sandbox: Some("/run/netns/a".into()),
                socket_path: Some("/run/vhost.sock".into()),
                pci_id: Some("0000:00:1f.6".into()),
            },
        ],
        ips: ["10.0.0.2/24", "10.0.1.2/24", "fd00::2/64"].map(|a| ip(a, Some(1))).into(),
        routes: vec![everything, Route::to("::/0".parse().unwrap())],
        dns: Dns {
            nameservers: vec!["10.0.0.53".into()],
            domain: "x.test".into(),
            search: vec!["y.test".into()],
            options: vec!["ndots:2".into()],
        },
    }
}

fn ip(address: &str, interface: Option<usize>) -> IpConfig {
    let gateway = address.starts_with("10.0.0.").then(|| "10.0.0.1".parse().unwrap());
    IpConfig { address: address.parse().unwrap(), gateway, interface }
}

fn through(result: &AddResult, version: Version) -> AddResult {
    let json: Value = serde_json::from_str(&result.to_json(version).unwrap()).unwrap();
    assert_eq!(json["cniVersion"], version.as_str());
    AddResult::from_json(&json, version).unwrap()
}

/// The fields of [`full`] that a version has.
fn expected(version: Version) -> AddResult {
    let mut result = full();
    if version < Version::V1_1_0 {
        result.interfaces.iter_mut().for_each(|interface| interface.mtu = None);
    }
    if version < Version::V0_3_0 {
        for route in &mut result.routes {
            *route = Route { gw: route.gw, ..Route::to(route.dst) };
        }
    }
    if version < Version::V1_0_0 {
        let interfaces = result.interfaces.iter_mut();
        interfaces.for_each(|interface| (interface.socket_path, interface.pci_id) = (None, None));
    }
    if version < Version::V0_3_0 {
        result.interfaces.clear();
        result.ips = vec![ip("10.0.0.2/24", None), ip("fd00::2/64", None)];
    }
    result
}

#[test]
fn each_version_keeps_all_that_it_can_say() {
    for version in Version::ALL {
        assert_eq!(through(&full(), version), expected(version), "{version}");
    }
}

#[test]
fn converting_between_versions_loses_only_what_the_older_version_lacks() {
    for from in Version::ALL {
        for to in Version::ALL {
            let got = through(&through(&full(), from), to);
            assert_eq!(got, expected(from.min(to)), "{from} to {to}");
        }
    }
}

#[test]
fn an_empty_result_is_written_and_read_by_every_version() {
    for version in Version::ALL {
        assert_eq!(through(&AddResult::default(), version), AddResult::default(), "{version}");
    }
}

#[test]
fn the_address_family_is_written_before_1_0_0_only() {
    for (version, family) in
        [(Version::V0_3_1, json!("6")), (Version::V0_4_0, json!("6")), (Version::V1_0_0, Value::Null)]
    {
        let json: Value = serde_json::from_str(&full().to_json(version).unwrap()).unwrap();
        assert_eq!(json["ips"][2]["version"], family, "{version}");
    }
}

#[test]
fn a_result_written_by_a_go_program_is_parsed() {
    let json = json!({
        "CNIVersion": "0.4.0",
        "interfaces": [
            { "name": "eth0", "mac": "", "sandbox": "/run/netns/a", "mtu": 0 },
            { "name": "cali1", "sandbox": "", "socketPath": "", "pciID": "" },
        ],
        "ips": [{ "version": "4", "interface": 0, "address": "10.0.0.2/24", "gateway": "" }, { "address": "::ffff:10.0.0.3/120", "interface": -1 }],
        "routes": [{ "dst": "10.9.0.0/16", "gw": "", "mtu": 0, "advmss": 0 }],
        "dns": { "nameservers": [""], "domain": "", "search": null },
    });
    let result = AddResult::from_json(&json, Version::V0_3_1).unwrap();
    assert_eq!(result.ips[0].gateway, None);
    let named = |name: &str, sandbox: Option<&str>| Interface {
        name: name.to_owned(),
        sandbox: sandbox.map(str::to_owned),
        ..Interface::default()
    };
    assert_eq!(result.interfaces, [named("eth0", Some("/run/netns/a")), named("cali1", None)]);
    assert_eq!(result.routes, [Route::to("10.9.0.0/16".parse().unwrap())]);
    assert!(result.dns.is_empty());
    assert_eq!((result.ips[1].address.to_string().as_str(), result.ips[1].interface), ("10.0.0.3/24", None));
}

#[test]
fn an_address_without_an_interface_that_is_listed_is_the_containers() {
    let json = json!({
        "interfaces": [
            { "name": "cali1", "sandbox": "" }, { "name": "eth0", "sandbox": "/n" }, { "name": "eth1", "sandbox": "/n" }
        ],
        "ips": [
            { "address": "10.0.0.1/24", "interface": 0 },
            { "address": "10.0.0.2/24", "interface": 1 },
            { "address": "10.0.0.3/24", "interface": 2 },
            { "address": "10.0.0.4/24", "interface": 3 },
            { "address": "10.0.0.5/24", "interface": -1 },
            { "address": "10.0.0.6/24" },
        ],
    });
    let result = AddResult::from_json(&json, Version::V1_0_0).unwrap();
    let of = |name| result.ips_of(name).map(|ip| ip.address.to_string()).collect::<Vec<_>>();
    assert_eq!(of("eth0"), ["10.0.0.2/24", "10.0.0.4/24", "10.0.0.5/24", "10.0.0.6/24"]);
    assert_eq!(of("cali1"), ["10.0.0.4/24", "10.0.0.5/24", "10.0.0.6/24"]);
    assert_eq!(result.host_interfaces().map(|i| i.name.as_str()).collect::<Vec<_>>(), ["cali1"]);
    let written = result.to_json(Version::V1_0_0).unwrap();
    assert_eq!(
        AddResult::from_json(&serde_json::from_str(&written).unwrap(), Version::V1_0_0).unwrap(),
        result
    );
}

#[test]
fn a_result_of_another_form_or_with_a_wrong_address_is_refused() {
    let error = AddResult::from_json(&json!({ "cniVersion": "1.0.0" }), Version::V0_4_0).unwrap_err();
    assert_eq!(error.code(), 7);
    assert!(error.msg().contains("1.0.0") && error.msg().contains("0.4.0"), "{error}");
    let wrong = json!({ "ips": [{ "address": "10.0.0.2" }] });
    let error = AddResult::from_json(&wrong, Version::V1_0_0).unwrap_err();
    assert_eq!(error.code(), 6);
    assert!(error.msg().starts_with("ips[0].address: \"10.0.0.2\" has no prefix length"), "{error}");
}
