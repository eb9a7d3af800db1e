//! dhcp with ISC's server, also through ISC's relay.

use std::fs;

use lab::beyond_reference;
use lab::dhcp::{DhcpNetwork, in_background, isc, leases_on_disk, started_by};
use serde_json::json;

use crate::common::ips;

/// A subnet with a range of addresses, and further ISC configuration.
fn subnet(n: u8, more: &str) -> String {
    format!(
        "subnet 10.{n}.0.0 netmask 255.255.255.0 {{
            range 10.{n}.0.100 10.{n}.0.250; option routers 10.{n}.0.1; {more}
        }}"
    )
}

/// A lease is renewed after five seconds, when the address is on the link, but lasts longer. The server sends these
/// options only on request.
const SOON: &str = "default-lease-time 600; option dhcp-renewal-time 5; option dhcp-rebinding-time 6;";

fn network(configuration: &str) -> Option<DhcpNetwork> {
    let mut net = DhcpNetwork::silent();
    let server = net.server.netns.clone();
    if !net.serve_isc("-4", &server, "eth0", configuration) {
        return None;
    }
    net.start_daemon("");
    Some(net)
}

/// Requests the options 58 and 59.
fn soon() -> serde_json::Value {
    json!({"type": "dhcp", "request": [{"option": "58"}, {"option": "59"}]})
}

#[test]
fn iscs_server_leases_renews_and_releases() {
    beyond_reference!("dhcp-change");
    let Some(net) = network(&subnet(9, SOON)) else { return };
    let pod = net.pod("pod");
    let call = net.bridge(&pod).config(json!({"ipam": soon()}));
    let result = call.add().ok_result();
    assert!(ips(&result)[0].starts_with("10.9.0."), "{result}");
    assert!(pod.reaches("10.9.0.1"));
    let discovers = net.server_log().matches("DHCPDISCOVER").count();
    net.until("a renewal", || net.daemon_log().contains("renewed"));
    assert_eq!(net.server_log().matches("DHCPDISCOVER").count(), discovers, "{}", net.server_log());

    call.del().ok();
    net.until("the release is seen", || net.released() == 1);
    assert_eq!(leases_on_disk(), 0);
}

#[test]
fn a_lease_whose_server_does_not_answer_is_extended_by_asking_all() {
    beyond_reference!("dhcp-change");
    // The server identifier is an address without a host.
    let Some(net) = network(&subnet(9, &format!("{SOON} server-identifier 10.9.0.77;"))) else { return };
    let pod = net.pod("pod");
    let call = net.bridge(&pod).config(json!({"ipam": soon()}));
    let result = call.add().ok_result();
    net.until("the lease is extended", || net.daemon_log().contains("renewed"));
    assert!(!net.daemon_log().contains("lost"), "{}", net.daemon_log());
    call.check(&result).ok();
}

#[test]
fn a_server_that_was_down_until_the_leases_end_grants_the_same_address_again() {
    beyond_reference!("dhcp-change");
    // It is renewed after half of that, when the address is on the link.
    let short = "default-lease-time 10; min-lease-time 10; max-lease-time 10;";
    let Some(mut net) = network(&subnet(9, short)) else { return };
    let pod = net.pod("pod");
    let call = net.bridge(&pod);
    let result = call.add().ok_result();
    let address = ips(&result)[0].to_owned();
    net.stop_server();
    net.until("the address goes with its lease", || pod.addresses("eth0").is_empty());
    let server = net.server.netns.clone();
    assert!(net.serve_isc("-4", &server, "eth0", &subnet(9, "default-lease-time 600;")));
    net.until("the address is back", || pod.addresses("eth0") == [&*address]);
    net.until("it can be used", || pod.reaches("10.9.0.1"));
    net.until("its routes are back", || call.check(&result).succeeded());
    call.del().ok();
    net.until("the release is seen", || net.released() == 1);
}

/// The server is one hop away, behind a relay on the containers' network.
#[test]
fn a_server_behind_a_relay_leases_renews_and_releases() {
    beyond_reference!("dhcp-change");
    let Some(relay) = isc("dhcrelay") else { return };
    let mut net = DhcpNetwork::silent();
    let far = net.pod("far");
    net.server.sh("ip link add up0 type veth peer name eth0 netns far; ip link set up0 up
         ip addr add 10.8.0.2/24 dev up0; sysctl -qw net.ipv4.ip_forward=1");
    far.sh("ip link set lo up; ip link set eth0 up; ip addr add 10.8.0.1/24 dev eth0
         ip route add 10.9.0.0/24 via 10.8.0.2");
    let configuration = format!("subnet 10.8.0.0 netmask 255.255.255.0 {{}} {}", subnet(9, SOON));
    assert!(net.serve_isc("-4", &far, "eth0", &configuration));
    let log = net.lab.dir().join("relay.log");
    let relay = started_by(relay, "-4 -d --no-pid -id eth0 -iu up0 10.8.0.1");
    let _relaying = in_background(&net.server, relay, &log);
    let text = || fs::read_to_string(&log).unwrap_or_default();
    net.until("the relay listens", || text().contains("Sending on   Socket"));
    net.start_daemon("");

    let pod = net.pod("pod");
    let call = net.bridge(&pod).config(json!({"ipam": soon()}));
    let result = call.add().ok_result();
    assert!(ips(&result)[0].starts_with("10.9.0."), "{result}");
    assert!(net.server_log().contains("via 10.9.0.1"), "{}", net.server_log());
    assert_eq!(net.list()[0]["server"], "10.8.0.1");
    net.until("a renewal", || net.daemon_log().contains("renewed"));
    call.del().ok();
    // The relay forwards the release, too: the server can log it twice.
    net.until("the release is seen", || net.released() > 0);
    assert_eq!(leases_on_disk(), 0);
}
