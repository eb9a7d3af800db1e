//! Switching from the reference's daemon to Ferrule's: the real Go plugins and their daemon, of each release on this
//! machine.

use lab::dhcp::{DhcpNetwork, RANGE, SOON, daemon_command, executable, has_dnsmasq};
use lab::{Container, Release, beyond_reference, skip, under_test};
use nix::sys::signal::Signal;
use serde_json::json;

/// A network with the Go daemon, and a container with an address from the Go plugins.
fn by_go(release: Release) -> (DhcpNetwork, Container) {
    let mut net = DhcpNetwork::silent();
    net.serve(&format!("{RANGE} {SOON}"));
    let go = release.dir().unwrap();
    net.use_daemon_of(&go);
    net.start_daemon("");
    let pod = net.pod("pod");
    let plugin = json!({"type": "bridge", "bridge": "br0", "ipam": {"type": "dhcp"}});
    let list = json!({"cniVersion": "1.0.0", "name": "lan", "plugins": [plugin]});
    net.lab.configure("lan.conflist", &list);
    net.lab.cnitool().env("CNI_PATH", go.to_str().unwrap()).says("add lan pod --container-id pod");
    (net, pod)
}

/// Replaces the Go daemon by Ferrule's, and waits until the server has confirmed the address.
fn adopt(net: &mut DhcpNetwork) {
    net.end_daemon(Signal::SIGTERM);
    net.use_daemon_of(&under_test().dir);
    net.start_daemon("-adopt");
    net.until("the address is confirmed", || net.list().first().is_some_and(|one| one["state"] == "BOUND"));
}

/// While the Go daemon runs, Ferrule's does not start: two daemons would renew the same lease.
#[test]
fn addresses_of_a_running_go_daemon_are_adopted_renewed_and_released() {
    beyond_reference!("dhcp-restart");
    if !has_dnsmasq() {
        return skip("dnsmasq is missing");
    }
    for release in Release::with("dhcp") {
        let (mut net, pod) = by_go(release);
        let addresses = pod.addresses("eth0");
        assert!(addresses[0].starts_with("10.9.0."), "{addresses:?}");

        let second = daemon_command("", &executable(), "-adopt").output().unwrap();
        let said = String::from_utf8_lossy(&second.stderr).into_owned();
        assert!(!second.status.success() && said.contains("another daemon"), "{release}: {said}");

        let before = net.server_log().matches("DHCPACK").count();
        adopt(&mut net);
        assert_eq!(
            (net.list()[0]["address"].as_str(), pod.addresses("eth0")),
            (Some(&*addresses[0]), addresses.clone())
        );
        net.until("a renewal", || net.server_log().matches("DHCPACK").count() > before + 1);
        net.lab.cnitool().says("check lan pod --container-id pod");
        net.lab.cnitool().says("del lan pod --container-id pod");
        net.until("the release is seen", || net.released() == 1);
        assert!(net.list().is_empty(), "{release}");
    }
}

#[test]
fn gc_keeps_an_adopted_address_of_a_valid_attachment_and_releases_that_of_a_stale_one() {
    beyond_reference!("gc");
    if !has_dnsmasq() {
        return skip("dnsmasq is missing");
    }
    for release in Release::with("dhcp") {
        let (mut net, pod) = by_go(release);
        adopt(&mut net);
        let (leases, addresses) = (net.list(), pod.addresses("eth0"));
        let call = net.bridge(&pod).config(json!({"name": "lan"}));
        call.gc(&[("pod", "eth0")]).ok();
        assert_eq!((net.list().len(), pod.addresses("eth0")), (leases.len(), addresses), "{release}");
        net.lab.cnitool().says("check lan pod --container-id pod");
        assert_eq!(net.released(), 0, "{release}");

        call.gc(&[]).ok();
        net.until("the release is seen", || net.released() == 1);
        assert!(net.list().is_empty(), "{release}");
        assert!(pod.link("eth0").is_some(), "{release}: the reference's veth pair has no alias");
        net.lab.cnitool().says("del lan pod --container-id pod");
        assert!(pod.link("eth0").is_none(), "{release}");
    }
}
