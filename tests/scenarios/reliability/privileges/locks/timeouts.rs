//! How long the programs wait for a lock that is never free: the exact timeouts of docs/privileges.md and
//! docs/host-local.md.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use lab::dhcp::{STATE, daemon_command, executable};
use lab::{ours, pauses};

use super::*;
use crate::host_device::of_cable;

const LOCKS: &str = "/run/ferrule";

/// The lock file whose name begins with a word. It exists, so that it has the mode that the plugin gave it.
#[track_caller]
fn lock(name: &str) -> PathBuf {
    let files = fs::read_dir(LOCKS).unwrap().map(|entry| entry.unwrap());
    let found = files.filter(|file| {
        let file = file.file_name().into_string().unwrap();
        file.starts_with(name) && file.ends_with(".lock")
    });
    let found: Vec<_> = found.map(|file| file.path()).collect();
    assert_eq!(found.len(), 1, "{name}: {found:?}");
    found[0].clone()
}

/// Asserts that a call waits for a lock that root holds, and then fails with code 11.
#[track_caller]
fn waits(path: &Path, seconds: u64, call: &Call, run: impl Fn(&Call) -> Outcome) {
    let holder = root_holds(path);
    let (outcome, waited) = paused(call, run);
    outcome.refused(11, path.to_str().unwrap());
    assert_eq!(waited, Duration::from_secs(seconds), "{}, {}", path.display(), outcome.what);
    drop(holder);
}

/// Asserts that a call waits for a lock that an unprivileged process holds, and then continues without the lock.
#[track_caller]
fn continues(path: &Path, seconds: u64, call: &Call, run: impl Fn(&Call) -> Outcome) {
    let holder = Holder::of(path).unwrap();
    let (outcome, waited) = paused(call, run);
    assert!(outcome.succeeded(), "{outcome:#?}");
    assert_eq!(waited, Duration::from_secs(seconds), "{}, {}", path.display(), outcome.what);
    drop(holder);
}

#[test]
fn locks_of_namespaces_and_of_iptables_are_waited_for_as_long_as_the_page_says_and_no_longer() {
    beyond_reference!("nothing-left");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = bridge(&lab, "nftables").on(&pod);
    call.add().ok_result();
    // All files exist now, with their modes.
    call.del().ok();
    let prev = call.add().ok_result();
    let sbr = lab.plugin("sbr").config(json!({"prevResult": prev})).on(&pod);
    sbr.add().ok_result();
    sbr.del().ok();
    waits(&lock("netns-"), 20, &sbr, Call::add);
    waits(&lock("netns-"), 20, &sbr, Call::del);
    waits(&lock("iptables"), 60, &call, Call::del);
}

#[test]
fn locks_that_everyone_can_hold_are_waited_for_five_seconds() {
    beyond_reference!("nothing-left");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = bridge(&lab, "nftables").on(&pod);
    call.add().ok_result();
    let store = Path::new("/var/lib/cni/networks/net");
    fs::remove_file(store.join(".lock")).unwrap();
    let ipam = lab.plugin("host-local").config(dual_stack()).on(&pod).ifname("eth7");
    continues(store, 5, &ipam, Call::add);
    // The reference's lock.
    fs::set_permissions(store.join("lock"), Permissions::from_mode(0o644)).unwrap();
    continues(&store.join("lock"), 5, &ipam, Call::del);
    lab.host().sh("rm -rf /run/ferrule; touch /run/ferrule");
    continues(Path::new(NAMESPACE), 5, &call, Call::del);
}

#[test]
fn the_lock_on_gateways_of_vlans_is_waited_for_as_long_as_the_page_says() {
    beyond_reference!("nothing-left");
    let lab = Lab::new();
    let pod = lab.container("pod");
    // DEL takes the lock also if the kernel has no VLANs.
    let call = lab.plugin("bridge").config(dual_stack()).config(json!({"vlan": 5})).on(&pod);
    call.del().ok();
    waits(&lock("vlan-gateways"), 60, &call, Call::del);
}

#[test]
fn the_lock_on_route_localnet_is_waited_for_as_long_as_the_page_says() {
    beyond_reference!("nothing-left");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let prev = lab.plugin("bridge").config(dual_stack()).on(&pod).add().ok_result();
    let call = portmap(&lab, "nftables", &prev).on(&pod);
    call.add().ok_result();
    waits(&lock("localnet"), 10, &call, Call::del);
    call.add().ok_result();
    waits(&lock("localnet"), 10, &call, |call| call.gc(&[]));
    waits(&lock("localnet"), 10, &call, Call::add);
}

#[test]
fn the_lock_on_moved_devices_is_waited_for_as_long_as_the_page_says() {
    beyond_reference!("nothing-left");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = of_cable(&lab, &pod);
    call.add().ok_result();
    waits(&lock("host-device"), 60, &call, Call::del);
    waits(&lock("host-device"), 60, &call, |call| call.gc(&[]));
    call.del().ok();
    waits(&lock("host-device"), 60, &call, Call::add);
}

/// Without a daemon. GC takes the lock as soon as there is a record.
#[test]
fn the_lock_on_firewallds_zones_is_waited_for_as_long_as_the_page_says() {
    beyond_reference!("nothing-left");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = lab.plugin("firewall").config(json!({"backend": "firewalld"})).on(&pod);
    lab.host().sh("install -d -m 700 /run/cni /run/cni/firewalld; touch /run/cni/firewalld/pod~eth0.json");
    call.gc(&[]).ok();
    waits(&lock("firewalld"), 60, &call, |call| call.gc(&[]));
}

#[test]
fn the_locks_on_names_are_waited_for_as_long_as_the_page_says() {
    beyond_reference!("nothing-left");
    let lab = Lab::new();
    let [web, db, mail] = ["web", "db", "mail"].map(|name| {
        let pod = lab.container(name);
        let prev = lab.plugin("bridge").config(dual_stack()).on(&pod).add().ok_result();
        let call = lab.plugin("dnsname").config(json!({"prevResult": prev})).on(&pod);
        call.args(&format!("K8S_POD_NAME={name}"))
    });
    // Each name after the first makes the server read its file again, under the other lock.
    [&web, &db].into_iter().for_each(|call| drop(call.add().ok_result()));
    waits(&lock("dnsname-"), 30, &mail, Call::add);
    let directory = Path::new("/run/containers/cni/dnsname/net/lock");
    waits(directory, 60, &db, Call::add);
    waits(directory, 60, &web, Call::del);
    waits(directory, 60, &web, |call| call.gc(&[]));
    [&web, &db].into_iter().for_each(|call| call.del().ok());
}

#[test]
fn without_a_daemon_dhcp_waits_for_the_lock_on_leases_as_long_as_the_page_says_and_the_daemon_for_less() {
    beyond_reference!("nothing-left");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = lab.plugin("dhcp").config(json!({"ipam": {"type": "dhcp"}})).on(&pod);
    lab.host().sh(&format!("install -d -m 700 /run/cni {STATE}"));
    call.del().ok();
    let lock = Path::new(STATE).join("lock");
    let holder = root_holds(&lock);
    let runs: [fn(&Call) -> Outcome; 2] = [Call::del, |call| call.gc(&[])];
    for run in runs {
        let (outcome, waited) = paused(&call, run);
        outcome.refused(11, "the leases are locked");
        assert_eq!(waited, Duration::from_secs(30), "{}", outcome.what);
    }
    let (daemon, waited) =
        pauses(|strace| daemon_command(&strace.join(" "), &executable(), "").output().unwrap());
    let said = String::from_utf8_lossy(&daemon.stderr);
    assert!(daemon.status.code() == Some(1) && said.contains(lock.to_str().unwrap()), "{daemon:?}");
    assert_eq!(waited, Duration::from_secs(5), "the daemon");
    drop(holder);
}

#[test]
fn a_repair_waits_five_seconds_for_the_lock_on_the_number_of_repairs_and_then_does_not_count() {
    beyond_reference!("repair");
    let lab = Lab::new();
    let _pod = lab.container("pod");
    let mut bridge = dual_stack();
    [("type", json!("bridge")), ("ipMasq", json!(true))]
        .into_iter()
        .for_each(|(key, value)| bridge[key] = value);
    lab.configure("10-net.conflist", &json!({"cniVersion": "1.0.0", "name": "net", "plugins": [bridge]}));
    let tool = lab.cnitool();
    tool.says("add net pod");
    let is_counted = || tool.says("metrics").contains("\ncni_repairs_total 1\n");
    lab.host().sh("nft flush ruleset");
    tool.says("repair net");
    assert!(is_counted());
    lab.host().sh("nft flush ruleset");
    let holder = root_holds(&lock("repairs"));
    let ((), waited) = pauses(|strace| drop(lab.cnitool().under(strace).says("repair net")));
    assert_eq!(waited, Duration::from_secs(5));
    tool.says("check net pod");
    assert!(is_counted());
    drop(holder);
}

#[test]
fn an_installation_waits_20_seconds_for_the_lock_on_the_list_of_directories() {
    let lab = Lab::new();
    let dir = lab.dir().join("bin");
    lab.private_dir("/var/lib/ferrule");
    let install = |strace: &[String]| {
        let mut command = Command::new(&strace[0]);
        command.args(&strace[1..]).arg(ours().join("ferrule-install")).args(["--only", "loopback"]);
        command.arg("--dir").arg(&dir).output().unwrap()
    };
    let said = |output: &std::process::Output| String::from_utf8(output.stderr.clone()).unwrap();
    let (first, unheld) = pauses(install);
    assert!(first.status.success() && said(&first).is_empty(), "{first:?}");
    let holder = root_holds(&lock("ferrule-install"));
    let (second, waited) = pauses(install);
    assert!(second.status.success() && said(&second).contains("ferrule-install.lock"), "{second:?}");
    assert_eq!((unheld, waited), (Duration::ZERO, Duration::from_secs(20)));
    drop(holder);
}
