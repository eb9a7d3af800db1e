//! dhcp with its daemon and a real server: Debian's dnsmasq, on a separate link.

use std::fs;

use lab::dhcp::{DhcpNetwork, RANGE, SOON, STATE, leases_on_disk, start_running};
use lab::{Call, Container, Feature, beyond_1_1_1, beyond_reference, needs, skip_part, under_test};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::common::{cable, ips};
use crate::dhcp::daemon::in_a_pod;
use crate::dhcp::lifecycle::{Family, until_settled};

#[test]
fn an_address_is_leased_and_released_when_the_container_is_deleted() {
    let Some(net) = DhcpNetwork::with(RANGE) else { return };
    let pod = net.pod("pod");
    let call = net.bridge(&pod);
    let result = call.add().ok_result();
    assert!(ips(&result)[0].starts_with("10.9.0."), "{result}");
    assert_eq!(result["ips"][0]["gateway"], "10.9.0.1");
    assert!(pod.reaches("10.9.0.1"));
    if under_test().reference {
        return;
    }
    assert_eq!(result["dns"]["nameservers"], json!(["10.9.0.53"]));
    assert!(pod.routes().iter().any(|route| route.starts_with("default via 10.9.0.1")), "{:?}", pod.routes());
    let leased = net.list();
    assert_eq!(
        (leased.len(), &leased[0]["address"], &leased[0]["state"]),
        (1, &json!(ips(&result)[0]), &json!("BOUND"))
    );
    call.check(&result).ok();
    call.status().ok();
    call.del().ok();
    net.until("the release is seen", || net.released() == 1);
    assert!(net.list().is_empty() && leases_on_disk() == 0);
    call.del().ok();
}

#[test]
fn after_a_kill_of_the_daemon_the_next_daemon_renews_its_lease() {
    beyond_reference!("dhcp-restart");
    let Some(mut net) = DhcpNetwork::with(&format!("{RANGE} {SOON}")) else { return };
    let pod = net.pod("pod");
    let call = net.bridge(&pod);
    let result = call.add().ok_result();
    net.end_daemon(Signal::SIGKILL);
    let before = net.server_log().matches("DHCPACK").count();
    net.start_daemon("");
    assert_eq!(net.list()[0]["address"], json!(ips(&result)[0]));
    net.until("a renewal", || net.server_log().matches("DHCPACK").count() > before);
    net.until("the daemon knows", || net.daemon_log().contains("renewed"));
    call.check(&result).ok();
    // A normal exit loses nothing either.
    net.end_daemon(Signal::SIGTERM);
    assert!(!fs::exists("/run/cni/dhcp.sock").unwrap() && leases_on_disk() == 1);
    // Without a daemon, ADD fails and DEL succeeds.
    call.status().refused(50, "dhcp.sock");
    call.del().ok();
    net.until("the release is seen", || net.released() == 1);
    assert_eq!(leases_on_disk(), 0);
    net.bridge(&net.pod("other")).add().refused(11, "dhcp.sock");
}

#[test]
fn a_server_that_restarts_with_another_subnet_moves_the_container_to_it() {
    beyond_reference!("dhcp-change");
    let Some(mut net) = DhcpNetwork::with(&format!("{RANGE} {SOON}")) else { return };
    let pod = net.pod("pod");
    let call = net.bridge(&pod);
    call.add().ok_result();
    net.move_to_another_subnet();
    net.until("the new address", || pod.addresses("eth0").iter().any(|a| a.starts_with("10.10.0.")));
    net.until("the new route", || pod.routes().iter().any(|r| r.starts_with("default via 10.10.0.1")));
    net.until("the old address is deleted", || {
        !pod.addresses("eth0").iter().any(|address| address.starts_with("10.9.0."))
    });
    assert!(pod.reaches("10.10.0.1"));
    call.del().ok();
    assert_eq!(leases_on_disk(), 0);
}

#[test]
fn nothing_keeps_the_namespace_of_a_container_that_vanishes() {
    beyond_reference!("dhcp-restart");
    let Some(net) = DhcpNetwork::with(&format!("{RANGE} {SOON}")) else { return };
    let pod = net.pod("not-kept");
    let call = net.bridge(&pod);
    call.add().ok_result();
    let links = || net.lab.host().link_names().iter().filter(|name| name.starts_with("veth")).count();
    assert_eq!(links(), 1);
    pod.vanish();
    net.until("the namespace dies", || links() == 0);
    // For the daemon, this looks like a mount namespace without the path.
    net.until("the daemon looks for it", || net.daemon_log().contains("no network namespace is at"));
    assert_eq!(leases_on_disk(), 1);
    call.without("CNI_NETNS").del().ok();
    assert_eq!(leases_on_disk(), 0);
}

/// KubeVirt's bridge binding moves the address of a pod into a virtual machine behind the pod's link, which becomes a port
/// of a bridge in the pod. If the lease was released, another container would get the address.
#[test]
fn a_lease_whose_address_was_removed_from_the_link_is_renewed_and_not_put_back() {
    beyond_reference!("dhcp-restart");
    let Some(mut net) = DhcpNetwork::with(&format!("{RANGE} {SOON}")) else { return };
    let pod = net.pod("pod");
    let call = net.bridge(&pod);
    let result = call.add().ok_result();
    // Before, the plugin may still have to add the address.
    until_settled(&net, &pod, Family::V4);
    pod.sh("ip -4 addr flush dev eth0 scope global");
    call.check(&result).refused(999, "is missing");
    pod.sh("ip link set eth0 address 02:00:00:00:00:77; ip link add vms up type bridge; ip link set eth0 master vms");
    // A dummy has it, for the pod's status. Not every kernel has dummies.
    pod.sh(&format!(
        "ip link add status type veth peer name of-status; ip addr add {} dev status",
        ips(&result)[0]
    ));
    let renewals = |log: &str| log.matches(": renewed ").count();
    let removals = || net.daemon_log().matches("another program removed").count();
    net.until("the removal is noticed", || removals() == 1);
    let before = renewals(&net.daemon_log());
    net.until("it is renewed", || renewals(&net.daemon_log()) > before + 1);
    net.end_daemon(Signal::SIGKILL);
    net.start_daemon("");
    let before = renewals(&net.daemon_log());
    net.until("the next daemon renews it", || renewals(&net.daemon_log()) > before);
    let removals = net.daemon_log().matches("another program removed").count();
    assert_eq!((pod.addresses("eth0").len(), net.released(), removals), (0, 0, 1), "{}", net.daemon_log());
    assert_eq!(net.list()[0]["address"], json!(ips(&result)[0]));
    call.del().ok();
    net.until("the release is seen", || net.released() == 1);
}

/// The virtual machine has the old address, so nothing can use a new one.
#[test]
fn a_refused_lease_whose_address_was_removed_is_dropped_and_its_link_stays_as_it_is() {
    beyond_reference!("dhcp-restart");
    let Some(mut net) = DhcpNetwork::with(&format!("{RANGE} {SOON}")) else { return };
    let pod = net.pod("pod");
    let call = net.bridge(&pod);
    call.add().ok_result();
    until_settled(&net, &pod, Family::V4);
    pod.sh("ip -4 addr flush dev eth0 scope global");
    net.until("the removal is noticed", || net.daemon_log().contains("another program removed"));
    net.move_to_another_subnet();
    net.until("it is dropped", || net.list().is_empty());
    assert!(net.daemon_log().contains(": lost "), "{}", net.daemon_log());
    assert!(pod.addresses("eth0").is_empty() && pod.sh("ip link show dev eth0").contains("UP"));
    assert_eq!(leases_on_disk(), 0);
    call.del().ok();
}

/// For example when a virtual machine has ended.
#[test]
fn a_removed_address_that_is_added_again_belongs_to_the_daemon_again() {
    beyond_reference!("dhcp-restart");
    let Some(net) = DhcpNetwork::with(&format!("{RANGE} {SOON}")) else { return };
    let pod = net.pod("pod");
    let address = ips(&net.bridge(&pod).add().ok_result())[0].to_owned();
    until_settled(&net, &pod, Family::V4);
    pod.sh("ip -4 addr flush dev eth0 scope global");
    net.until("the removal is noticed", || net.daemon_log().contains("another program removed"));
    pod.sh(&format!("ip addr add {address} dev eth0"));
    until_settled(&net, &pod, Family::V4);
    assert_eq!(net.released(), 0, "{}", net.daemon_log());
}

#[test]
fn gc_releases_the_leases_of_invalid_attachments() {
    beyond_reference!("gc");
    let Some(net) = DhcpNetwork::with(RANGE) else { return };
    let pods = ["one", "two"].map(|id| net.pod(id));
    let results = pods.each_ref().map(|pod| net.bridge(pod).add().ok_result());
    net.lab.plugin("dhcp").config(json!({"ipam": {"type": "dhcp"}})).gc(&[("one", "eth0")]).ok();
    net.until("the release is seen", || net.released() == 1);
    assert_eq!(net.list().len(), 1);
    net.bridge(&pods[0]).check(&results[0]).ok();
    net.bridge(&pods[1]).check(&results[1]).refused(999, "is missing");
}

#[test]
fn gc_releases_a_lease_before_it_deletes_the_interface_of_a_live_container() {
    beyond_reference!("gc");
    let Some(net) = DhcpNetwork::with(RANGE) else { return };
    let pods = ["one", "two"].map(|id| net.pod(id));
    for pod in &pods {
        net.bridge(pod).add().ok_result();
    }
    net.bridge(&pods[0]).gc(&[("one", "eth0")]).ok();
    net.until("the release is seen", || net.released() == 1);
    assert_eq!(net.list().len(), 1);
    assert!(pods[0].link("eth0").is_some() && pods[1].link("eth0").is_none());
}

#[test]
fn a_hundred_concurrent_containers_get_different_addresses() {
    let Some(net) = DhcpNetwork::with(RANGE) else { return };
    let calls: Vec<_> = (0..100).map(|n| net.plugged(&format!("pod{n}")).1).collect();
    let running: Vec<_> = calls.iter().map(|call| start_running(call, "ADD")).collect();
    let mut addresses: Vec<String> = running
        .into_iter()
        .map(|child| {
            let output = child.wait_with_output().unwrap();
            let result: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(result["ips"].as_array().map(Vec::len), Some(1), "{result}");
            ips(&result)[0].to_owned()
        })
        .collect();
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), calls.len());
}

#[test]
fn an_option_that_the_server_does_not_send_fails_only_an_add_that_requires_it() {
    let Some(mut net) = DhcpNetwork::with(&format!("{RANGE} {SOON}")) else { return };
    let (pod, call) = net.plugged("pod");
    // The reference knows only few options by name.
    let [tftp, ntp] = if under_test().reference { ["66", "42"] } else { ["tftp-server-name", "ntp-servers"] };
    let request = |required: bool| {
        let options = json!([{"option": tftp}, {"option": ntp, "required": required}]);
        call.clone().config(json!({"ipam": {"type": "dhcp", "request": options}}))
    };
    let result = request(false).add().ok_result();
    if under_test().reference {
        return;
    }
    let warnings = || net.daemon_log().matches("does not send tftp-server-name, ntp-servers").count();
    assert_eq!(warnings(), 1, "{}", net.daemon_log());
    pod.sh(&format!("ip addr add {} dev eth0", ips(&result)[0]));
    net.until("a renewal", || net.daemon_log().contains("renewed"));
    assert_eq!(warnings(), 1, "{}", net.daemon_log());
    request(false).del().ok();

    net.end_daemon(Signal::SIGTERM);
    net.start_daemon("-timeout 1s");
    request(true).add().refused(999, "ntp-servers");
    assert!(net.list().is_empty());
}

/// A container of bridge, and one of macvlan if the kernel has it, each with a call that requests the server's MTU.
fn requesting_an_mtu(net: &DhcpNetwork) -> Vec<(Container, Call)> {
    cable(&net.lab);
    net.lab.host().sh("ip link set far master br0");
    let ipam = json!({"type": "dhcp", "request": [{"option": "interface-mtu"}]});
    let mut plugins = vec![("bridge", json!({"bridge": "br0"}))];
    if !skip_part("macvlan", Feature::Macvlan) {
        plugins.push(("macvlan", json!({"master": "cable"})));
    }
    let of = |(plugin, keys)| {
        let pod = net.pod(plugin);
        let call = net.lab.plugin(plugin).config(keys).config(json!({"ipam": ipam})).on(&pod);
        (pod, call)
    };
    plugins.into_iter().map(of).collect()
}

#[test]
fn the_mtu_of_a_dhcp_server_is_on_the_link_and_in_the_result() {
    beyond_reference!("dhcp-change");
    let Some(net) = DhcpNetwork::with(&format!("{RANGE} --dhcp-option=option:mtu,1400")) else { return };
    for (pod, call) in requesting_an_mtu(&net) {
        let call = call.version("1.1.0");
        let result = call.add().ok_result();
        let interfaces = result["interfaces"].as_array().unwrap();
        let made = interfaces.iter().find(|interface| interface["name"] == "eth0").unwrap();
        assert_eq!(
            (&made["mtu"], &pod.link("eth0").unwrap()["mtu"]),
            (&json!(1400), &json!(1400)),
            "{result}"
        );
        call.check(&result).ok();
        call.del().ok();
    }
}

/// The veth's end on the host keeps its MTU and would drop larger packets silently. The kernel refuses to raise a macvlan's
/// MTU above its master's.
#[test]
fn a_larger_mtu_of_a_dhcp_server_is_ignored() {
    beyond_reference!("dhcp-mtu");
    let Some(net) = DhcpNetwork::with(&format!("{RANGE} --dhcp-option=option:mtu,9000")) else { return };
    for (pod, call) in requesting_an_mtu(&net) {
        let result = call.add().ok_result();
        assert_eq!(pod.link("eth0").unwrap()["mtu"], 1500, "{result}");
        call.check(&result).ok();
        call.del().ok();
    }
    let log = net.daemon_log();
    assert!(log.contains("option 26 (interface-mtu): MTU 9000 for eth0"), "{log}");
}

#[test]
fn the_server_gets_the_configured_options_and_routes_get_the_configured_priority() {
    let Some(net) = DhcpNetwork::with(RANGE) else { return };
    let pod = net.pod("pod");
    let provide = json!([{"option": "12", "fromArg": "HOST"}, {"option": "60", "value": "phones"}]);
    let ipam = json!({"type": "dhcp", "provide": provide, "priority": 77});
    let call = net.bridge(&pod).config(json!({"ipam": ipam})).args("IgnoreUnknown=1;HOST=web");
    let result = call.add().ok_result();
    let log = net.server_log();
    for line in ["client provides name: web", "vendor class: phones"] {
        assert!(log.contains(line), "{line}: {log}");
    }
    beyond_1_1_1!("newer-keys");
    assert_eq!(result["routes"], json!([{"dst": "0.0.0.0/0", "gw": "10.9.0.1", "priority": 77}]));
    assert!(pod.sh("ip route show default").contains("via 10.9.0.1 dev eth0 metric 77"));
    call.check(&result).ok();
}

#[test]
fn macvlan_gets_its_address_from_the_same_server() {
    needs!(Macvlan);
    on_a_cable("macvlan");
}

/// All interfaces of a master have its hardware address. The server must distinguish them nevertheless.
#[test]
fn ipvlan_gets_its_address_from_the_same_server() {
    needs!(Ipvlan);
    beyond_reference!("dhcp-change");
    on_a_cable("ipvlan");
}

/// The frames on the cable have the VLAN's tag. The server's network is behind a port that removes it.
#[test]
fn vlan_gets_its_address_from_a_server_of_its_vlan() {
    needs!(Vlan);
    let Some(net) = DhcpNetwork::with(RANGE) else { return };
    cable(&net.lab);
    net.lab.host().sh("ip link add link far name port up master br0 type vlan id 5");
    let call_of = |vlan: u16| {
        let keys = json!({"master": "cable", "vlanId": vlan, "ipam": {"type": "dhcp"}});
        let pod = net.pod(&format!("pod{vlan}"));
        let call = net.lab.plugin("vlan").config(keys).on(&pod);
        (pod, call)
    };
    let (pod, call) = call_of(5);
    let address = ips(&call.add().ok_result())[0].to_owned();
    assert!(pod.reaches("10.9.0.1"), "{address}");
    let (_other, elsewhere) = call_of(6);
    assert!(!elsewhere.add().succeeded(), "the server is not in this VLAN");
    call.del().ok();
    if !under_test().reference {
        net.until("the release is seen", || net.released() == 1);
    }
}

fn on_a_cable(plugin: &str) {
    let Some(net) = DhcpNetwork::with(RANGE) else { return };
    cable(&net.lab);
    net.lab.host().sh("ip link set far master br0");
    let pods = ["one", "two"].map(|name| net.pod(name));
    let keys = json!({"master": "cable", "ipam": {"type": "dhcp"}});
    let calls = pods.each_ref().map(|pod| net.lab.plugin(plugin).config(keys.clone()).on(pod));
    let addresses = calls.each_ref().map(|call| ips(&call.add().ok_result())[0].to_owned());
    assert_ne!(addresses[0], addresses[1]);
    for pod in &pods {
        assert!(pod.reaches("10.9.0.1"), "{} {addresses:?}", pod.id);
    }
    for (n, call) in calls.iter().enumerate() {
        call.del().ok();
        if !under_test().reference {
            net.until("the release is seen", || net.released() == n + 1);
        }
    }
}

#[test]
fn the_addresses_of_a_daemon_that_lost_them_are_adopted() {
    beyond_reference!("dhcp-restart");
    let Some(mut net) = DhcpNetwork::with(RANGE) else { return };
    let pod = net.pod("pod");
    let plugin = json!({"type": "bridge", "bridge": "br0", "ipam": {"type": "dhcp"}});
    net.lab.configure("lan.conflist", &json!({"cniVersion": "1.0.0", "name": "lan", "plugins": [plugin]}));
    net.lab.cnitool().says("add lan pod");
    let address = pod.addresses("eth0")[0].clone();
    let adopters: [fn(&mut DhcpNetwork); 2] =
        [|net| net.start_daemon("-adopt"), |net| net.start_daemon_by(in_a_pod("-adopt"))];
    for (nth, start) in adopters.into_iter().enumerate() {
        net.end_daemon(Signal::SIGKILL);
        fs::remove_dir_all(STATE).unwrap();
        start(&mut net);
        net.until("it listens", || net.daemon_log().matches("dhcp daemon: 1 leases").count() == nth + 1);
        net.until("the address is confirmed", || {
            net.list().first().is_some_and(|one| one["state"] == "BOUND")
        });
        assert_eq!(
            (net.list()[0]["address"].as_str(), pod.addresses("eth0")),
            (Some(&*address), vec![address.clone()])
        );
    }
    net.lab.cnitool().says("del lan pod");
    net.until("the release is seen", || net.released() == 1);
}

/// libcni's cache contains it until the DEL has succeeded.
#[test]
fn an_attachment_whose_lease_was_being_released_is_not_adopted() {
    beyond_reference!("dhcp-restart");
    let Some(mut net) = DhcpNetwork::with(RANGE) else { return };
    let _pod = net.pod("pod");
    let plugin = json!({"type": "bridge", "bridge": "br0", "ipam": {"type": "dhcp"}});
    net.lab.configure("lan.conflist", &json!({"cniVersion": "1.0.0", "name": "lan", "plugins": [plugin]}));
    net.lab.cnitool().says("add lan pod");
    net.end_daemon(Signal::SIGKILL);
    for entry in fs::read_dir(STATE).unwrap().flatten() {
        let Ok(mut record) = serde_json::from_str::<Value>(&fs::read_to_string(entry.path()).unwrap()) else {
            continue;
        };
        record["releasing"] = json!(true);
        fs::write(entry.path(), record.to_string()).unwrap();
    }
    net.start_daemon("-adopt");
    net.until("the release is seen", || net.released() == 1);
    net.until("it is forgotten", || net.list().is_empty());
    assert!(!net.daemon_log().contains(": adopted"), "{}", net.daemon_log());
}

#[test]
fn status_reports_if_no_server_extends_leases() {
    beyond_reference!("dhcp-change");
    let Some(mut net) = DhcpNetwork::with(&format!("{RANGE} {SOON}")) else { return };
    let pods = ["one", "two"].map(|name| net.pod(name));
    let calls = pods.each_ref().map(|pod| net.bridge(pod));
    let results = calls.each_ref().map(|call| call.add().ok_result());
    net.stop_server();
    net.until("all servers get requests", || net.list().iter().all(|one| one["state"] == "REBINDING"));
    net.lab.plugin("dhcp").config(json!({"ipam": {"type": "dhcp"}})).status().refused(51, "one/net/eth0");
    // Containers keep their addresses until the end of the lease.
    for (call, result) in calls.iter().zip(&results) {
        call.check(result).ok();
        call.del().ok();
    }
}
