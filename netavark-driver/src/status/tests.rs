use cni::Version;
use serde_json::{Value, json};

use super::*;

fn block_of(result: &Value, version: &str, servers: &[&str], has_dnsname: bool) -> Value {
    let result = AddResult::from_json(result, Version::parse(version).unwrap()).unwrap();
    let servers: Vec<IpAddr> = servers.iter().map(|text| text.parse().unwrap()).collect();
    serde_json::to_value(block(&result, "eth0", Path::new("/nonexistent"), &servers, has_dnsname)).unwrap()
}

#[test]
fn the_containers_interfaces_have_their_own_addresses_and_gateways() {
    let result = json!({
        "cniVersion": "1.0.0",
        "interfaces": [
            {"name": "cni0", "mac": "02:00:00:00:00:01"},
            {"name": "eth0", "mac": "02:00:00:00:00:02", "sandbox": "/run/netns/x"},
            {"name": "extra", "mac": "02:00:00:00:00:03", "sandbox": "/run/netns/x"},
        ],
        "ips": [
            {"address": "10.1.0.7/24", "gateway": "10.1.0.1", "interface": 1},
            {"address": "fd01::7/64"},
            {"address": "10.9.0.7/24", "interface": 2},
        ],
        "dns": {"nameservers": ["10.1.0.1", "9.9.9.9"], "domain": "pods", "search": ["pods", "example.org"]},
    });
    assert_eq!(
        block_of(&result, "1.0.0", &["9.9.9.9"], false),
        json!({
            "dns_search_domains": ["pods", "example.org"],
            "dns_server_ips": ["9.9.9.9", "10.1.0.1"],
            "interfaces": {
                "eth0": {"mac_address": "02:00:00:00:00:02", "subnets": [
                    {"gateway": "10.1.0.1", "ipnet": "10.1.0.7/24"}, {"ipnet": "fd01::7/64"}]},
                "extra": {"mac_address": "02:00:00:00:00:03", "subnets": [{"ipnet": "10.9.0.7/24"}]},
            },
        })
    );
}

#[test]
fn addresses_of_a_result_without_interfaces_belong_to_the_requested_interface() {
    let result = json!({"cniVersion": "0.2.0", "ip4": {"ip": "10.1.0.7/24", "gateway": "10.1.0.1"}});
    let expected =
        json!({"eth0": {"mac_address": "", "subnets": [{"gateway": "10.1.0.1", "ipnet": "10.1.0.7/24"}]}});
    assert_eq!(block_of(&result, "0.2.0", &[], false)["interfaces"], expected);
}

/// A resolver asks the second server only if the first one does not answer.
#[test]
fn the_server_of_dnsname_comes_before_those_of_the_networks_options() {
    let result = json!({"cniVersion": "1.0.0", "dns": {"nameservers": ["10.1.0.1", "9.9.9.9"]}});
    let servers = |has_dnsname| {
        block_of(&result, "1.0.0", &["8.8.8.8", "9.9.9.9"], has_dnsname)["dns_server_ips"].clone()
    };
    assert_eq!(servers(true), json!(["10.1.0.1", "9.9.9.9", "8.8.8.8"]));
    assert_eq!(servers(false), json!(["8.8.8.8", "9.9.9.9", "10.1.0.1"]));
}
