//! A lease of dhcp's daemon from ADD to DEL, with changes of the interface, the daemon and the clock, for both
//! families.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use lab::dhcp::{
    Background, DhcpNetwork, RANGE, RANGE_V6, SOON, STATE, daemon_command, executable, in_background,
    leases_on_disk, started_by,
};
use lab::{Call, Container, beyond_reference, injecting, needs};
use nix::libc;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::common::ips;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    fn name(self) -> &'static str {
        match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        }
    }

    fn network(self) -> Option<DhcpNetwork> {
        match self {
            Self::V4 => DhcpNetwork::with(RANGE),
            Self::V6 => DhcpNetwork::with_v6(RANGE_V6),
        }
    }

    /// dnsmasq's log message for a renewal.
    fn renewal(self) -> &'static str {
        match self {
            Self::V4 => "DHCPACK",
            Self::V6 => "DHCPREPLY",
        }
    }
}

/// Runs a scenario for each family, with dnsmasq and the daemon.
fn with_each(scenario: impl Fn(DhcpNetwork, Family)) {
    for family in [Family::V4, Family::V6] {
        let Some(net) = family.network() else { return };
        scenario(net, family);
    }
}

fn bridge(net: &DhcpNetwork, pod: &Container, family: Family) -> Call {
    let ipam = json!({"type": "dhcp", "family": family.name()});
    net.lab.plugin("bridge").config(json!({"bridge": "br0", "ipam": ipam})).on(pod)
}

/// Only the plugin, on an existing link.
fn plugged(net: &DhcpNetwork, name: &str, family: Family) -> (Container, Call) {
    let (pod, call) = net.plugged(name);
    (pod, call.config(json!({"ipam": {"type": "dhcp", "family": family.name()}})))
}

/// The lease files.
fn files() -> Vec<PathBuf> {
    let entries = fs::read_dir(STATE).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "json")).collect()
}

/// Moves times of a container's leases into the past while no daemon runs, because dnsmasq's shortest lease is two
/// minutes.
fn make_due(container: &str, times: &[&str]) {
    for path in files() {
        let mut record: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        if record["containerId"] == container {
            times.iter().for_each(|time| record["lease"][*time] = json!(1));
            fs::write(path, record.to_string()).unwrap();
        }
    }
}

/// Waits until the daemon has seen the address on the link, and has set its lifetimes.
pub fn until_settled(net: &DhcpNetwork, pod: &Container, family: Family) {
    let of = if family == Family::V4 { "-4" } else { "-6" };
    let times = || pod.sh(&format!("ip {of} addr show dev eth0 scope global dynamic"));
    net.until("the address has its lifetimes", || times().contains("valid_lft"));
}

fn list_is(net: &DhcpNetwork, container: &str, address: &str) -> bool {
    net.list().iter().any(|one| one["containerId"] == container && one["address"] == address)
}

#[test]
fn a_lease_is_renewed_with_the_new_hardware_address_of_the_link() {
    beyond_reference!("dhcp-restart");
    with_each(|mut net, family| {
        let pod = net.pod("pod");
        let call = bridge(&net, &pod, family);
        let result = call.add().ok_result();
        let address = ips(&result)[0].to_owned();
        until_settled(&net, &pod, family);
        pod.sh("ip link set eth0 address 02:00:00:00:00:99");
        net.end_daemon(Signal::SIGTERM);
        make_due("pod", &["renew"]);
        let before = net.server_log().len();
        net.start_daemon("");
        net.until("a renewal", || {
            let log = net.server_log().split_off(before);
            log.lines().any(|line| {
                let mac = family == Family::V6 || line.contains("02:00:00:00:00:99");
                line.contains(family.renewal()) && mac
            })
        });
        net.until("the daemon knows", || net.daemon_log().contains("renewed"));
        assert!(list_is(&net, "pod", &address), "{:?}: {}", net.list(), net.daemon_log());
        assert!(pod.addresses("eth0").contains(&address));
        call.del().ok();
        net.until("the release is seen", || net.released() == 1);
    });
}

#[test]
fn the_kernel_deletes_the_address_of_an_expired_lease_and_the_next_daemon_requests_one_again() {
    beyond_reference!("dhcp-restart");
    with_each(|mut net, family| {
        let pod = net.pod("pod");
        let call = bridge(&net, &pod, family);
        let address = ips(&call.add().ok_result())[0].to_owned();
        until_settled(&net, &pod, family);
        let listed: Value = serde_json::from_str(&pod.sh("ip -j addr show dev eth0 scope global")).unwrap();
        let times: Vec<u64> = listed[0]["addr_info"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|one| one["valid_life_time"].as_u64())
            .collect();
        assert!(times.iter().any(|time| (1..=120).contains(time)), "{listed}");
        net.end_daemon(Signal::SIGKILL);
        // The state after two minutes without a daemon.
        make_due("pod", &["renew", "rebind", "expiry"]);
        pod.sh(&format!("ip addr change {address} dev eth0 valid_lft 1 preferred_lft 1"));
        net.until("the kernel deletes it", || !pod.addresses("eth0").contains(&address));
        net.start_daemon("");
        net.until("the address is leased again", || pod.addresses("eth0").contains(&address));
        until_settled(&net, &pod, family);
        call.del().ok();
        net.until("the release is seen", || net.released() == 1);
    });
}

#[test]
fn a_start_in_another_mount_namespace_keeps_all_leases() {
    beyond_reference!("dhcp-restart");
    with_each(|mut net, family| {
        let pods = ["unmounted1", "unmounted2"].map(|name| net.pod(name));
        let addresses = pods.each_ref().map(|pod| {
            let address = ips(&bridge(&net, pod, family).add().ok_result())[0].to_owned();
            until_settled(&net, pod, family);
            address
        });
        net.end_daemon(Signal::SIGTERM);
        make_due("unmounted1", &["renew"]);
        let mut command = Command::new("unshare");
        let script = "mount -t tmpfs none /run/netns; exec \"$0\" daemon";
        command.args(["-m", "sh", "-ec", script]).arg(executable()).stdin(Stdio::null());
        net.start_daemon_by(command);
        net.until("the daemon says so", || {
            net.daemon_log().contains("0 of 2 leases have a network namespace")
        });
        assert_eq!(leases_on_disk(), 2, "{}", net.daemon_log());
        net.end_daemon(Signal::SIGTERM);
        net.start_daemon("");
        for (pod, address) in pods.iter().zip(&addresses) {
            assert!(list_is(&net, &pod.id, address), "{:?}", net.list());
        }
        net.until("a renewal", || net.daemon_log().contains("renewed"));
        // The containers are deleted without a DEL. Their leases stay until they end.
        net.end_daemon(Signal::SIGTERM);
        pods.iter().for_each(|pod| pod.vanish());
        net.start_daemon("");
        assert_eq!(leases_on_disk(), 2, "{}", net.daemon_log());
        net.end_daemon(Signal::SIGTERM);
        ["unmounted1", "unmounted2"].iter().for_each(|name| make_due(name, &["renew", "rebind", "expiry"]));
        net.start_daemon("");
        net.until("they are dropped", || net.list().is_empty() && leases_on_disk() == 0);
    });
}

/// In a time namespace, the boot time clock is far from the host's and from the monotonic clock.
#[test]
fn the_daemons_timer_uses_the_clock_that_runs_while_the_machine_is_suspended() {
    beyond_reference!("dhcp-restart");
    let Some(mut net) = DhcpNetwork::with(&format!("{RANGE} {SOON}")) else { return };
    net.end_daemon(Signal::SIGTERM);
    let mut command = Command::new("unshare");
    command.args(["-T", "--boottime", "1000000"]).arg(executable()).arg("daemon").stdin(Stdio::null());
    net.start_daemon_by(command);
    net.until("the daemon listens", || net.is_listening());
    let pod = net.pod("pod");
    net.bridge(&pod).add().ok_result();
    let daemon = format!("/proc/{}", net.daemon().unwrap().id());
    // poll(2) has no timeout: it would use the monotonic clock, which stops in suspend.
    net.until("the daemon sleeps", || {
        let call = fs::read_to_string(format!("{daemon}/syscall")).unwrap();
        call.split(' ').nth(3) == Some("0x0")
    });
    let timers: Vec<String> = fs::read_dir(format!("{daemon}/fdinfo"))
        .unwrap()
        .filter_map(|entry| fs::read_to_string(entry.unwrap().path()).ok())
        .filter(|text| text.contains("clockid:"))
        .collect();
    assert_eq!(timers.len(), 1, "{timers:?}");
    let boottime = format!("clockid: {}", libc::CLOCK_BOOTTIME);
    // TFD_TIMER_ABSTIME
    assert!(timers[0].contains(&boottime) && timers[0].contains("settime flags: 01"), "{timers:?}");
    net.until("a renewal", || net.daemon_log().contains("renewed"));
}

#[test]
fn a_second_add_that_fails_keeps_the_first_ones_lease() {
    beyond_reference!("dhcp-restart");
    with_each(|mut net, family| {
        net.end_daemon(Signal::SIGTERM);
        net.start_daemon("-resendtimeout 3s");
        let (pod, call) = plugged(&net, "pod", family);
        let result = call.add().ok_result();
        let address = ips(&result)[0].to_owned();
        pod.sh(&format!("ip addr add {address} dev eth0"));
        until_settled(&net, &pod, family);
        net.stop_server();
        call.add().refused(11, "");
        assert!(list_is(&net, "pod", &address), "{:?}", net.list());
        assert_eq!(leases_on_disk(), 1);
        call.check(&result).ok();
        // The next daemon has it too, and so has a second ADD that succeeds.
        net.end_daemon(Signal::SIGKILL);
        net.start_daemon("");
        assert!(list_is(&net, "pod", &address), "{:?}", net.list());
        net.serve(if family == Family::V4 { RANGE } else { RANGE_V6 });
        assert_eq!(ips(&call.add().ok_result()), [&*address]);
        call.del().ok();
        net.until("the release is seen", || net.released() == 1);
        assert!(net.list().is_empty() && leases_on_disk() == 0);
    });
}

/// The daemon works while its log is a file that `sh` opens.
fn serves_with_log(net: &mut DhcpNetwork, log: &str) {
    net.end_daemon(Signal::SIGTERM);
    let mut command = Command::new("sh");
    command.args(["-c", &format!("exec \"$0\" daemon 2>{log}")]).arg(executable()).stdin(Stdio::null());
    net.start_daemon_by(command);
    net.until("the daemon listens", || net.is_listening());
    let (_pod, call) = net.plugged("pod");
    let adding = lab::dhcp::start_running(&call, "ADD").wait_with_output().unwrap();
    assert!(adding.status.success(), "{log}");
    assert_eq!(net.list().len(), 1, "{log}");
    call.del().ok();
    assert!(net.list().is_empty(), "{log}");
    net.lab.host().sh("ip link del pod");
}

#[test]
fn a_log_that_cannot_be_written_stops_nothing() {
    beyond_reference!("dhcp-restart");
    for log in ["/dev/full", "/run/lab/full", "/run/lab/closed"] {
        let Some(mut net) = DhcpNetwork::with(RANGE) else { return };
        let reader = |path: &str| {
            net.lab.host().sh(&format!("mkfifo {path}"));
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path).unwrap()
        };
        let mut full: File = reader("/run/lab/full");
        while full.write(&[b'x'; 4096]).is_ok() {}
        let closed = reader("/run/lab/closed");
        if log != "/run/lab/closed" {
            serves_with_log(&mut net, log);
            continue;
        }
        // After the daemon has opened it, the reader is closed.
        let mut closed = Some(closed);
        net.end_daemon(Signal::SIGTERM);
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec \"$0\" daemon 2>{log}")]).arg(executable()).stdin(Stdio::null());
        net.start_daemon_by(command);
        net.until("the daemon listens", || net.is_listening());
        drop(closed.take());
        let (_pod, call) = net.plugged("pod");
        call.add().ok_result();
        assert_eq!(net.list().len(), 1);
        call.del().ok();
    }
}

#[test]
fn a_del_without_a_daemon_finds_the_leases_next_to_systemds_socket() {
    beyond_reference!("dhcp-restart");
    with_each(|mut net, family| {
        net.end_daemon(Signal::SIGTERM);
        let listener = UnixListener::bind("/run/lab/other.sock").unwrap();
        net.start_daemon_on(OwnedFd::from(listener.try_clone().unwrap()));
        let (_pod, call) = plugged(&net, "pod", family);
        let ipam =
            json!({"type": "dhcp", "family": family.name(), "daemonSocketPath": "/run/lab/other.sock"});
        let call = call.config(json!({"ipam": ipam}));
        call.add().ok_result();
        net.end_daemon(Signal::SIGTERM);
        drop(listener);
        // A process that another test starts may have a copy until its execve(2).
        net.until("the socket is closed", || UnixStream::connect("/run/lab/other.sock").is_err());
        call.del().ok();
        net.until("the release is seen", || net.released() == 1);
    });
}

#[test]
fn a_lease_that_cannot_be_read_is_kept_for_the_next_del_or_gc() {
    beyond_reference!("dhcp-restart");
    for is_gc in [false, true] {
        with_each(|mut net, family| {
            let (_pod, call) = plugged(&net, "pod", family);
            call.add().ok_result();
            net.end_daemon(Signal::SIGTERM);
            let path = files()[0].display().to_string();
            let unread = injecting(&["-P", &path, "-e", "inject=?open,openat:error=EMFILE"]);
            let run = |call: Call| if is_gc { call.gc(&[]) } else { call.del() };
            run(call.clone().under(&unread)).refused(5, &path);
            assert_eq!(files().len(), 1);
            run(call).ok();
            net.until("the release is seen", || net.released() == 1);
            assert!(files().is_empty());
        });
    }
}

/// Makes the daemon's switches between network namespaces fail, as without free descriptors, until the process ends.
fn without_descriptors(net: &mut DhcpNetwork) -> Background {
    let daemon = net.daemon().unwrap().id();
    let arguments = format!("-qf -o /dev/null -e inject=setns:error=ENFILE -p {daemon}");
    let strace = in_background(net.lab.host(), started_by("strace", &arguments), "/run/lab/strace".as_ref());
    net.until("strace traces the daemon", || {
        !fs::read_to_string(format!("/proc/{daemon}/status")).unwrap().contains("TracerPid:\t0\n")
    });
    strace
}

/// Sends a signal to dnsmasq.
fn signal_server(net: &DhcpNetwork, signal: &str) {
    net.server.sh(&format!(
        "kill -{signal} $(ss -Hlunp 'sport = 67 or sport = 547' | sed -n 's/.*pid=\\([0-9]*\\).*/\\1/p' | head -n 1)"
    ));
}

#[test]
fn a_renewal_that_the_daemon_cannot_apply_for_lack_of_descriptors_is_applied_later() {
    beyond_reference!("dhcp-restart");
    with_each(|mut net, family| {
        let pod = net.pod("pod");
        let call = bridge(&net, &pod, family);
        let address = ips(&call.add().ok_result())[0].to_owned();
        until_settled(&net, &pod, family);
        net.end_daemon(Signal::SIGTERM);
        make_due("pod", &["renew"]);
        signal_server(&net, "STOP");
        net.start_daemon("");
        net.until("the daemon waits for the server", || {
            net.list().iter().any(|one| one["state"] == "RENEWING")
        });
        let strace = without_descriptors(&mut net);
        signal_server(&net, "CONT");
        net.until("the lease is renewed", || net.daemon_log().contains("renewed"));
        // As the kernel does at the end of the old lease.
        pod.sh(&format!("ip addr del {address} dev eth0"));
        strace.end(Signal::SIGTERM);
        net.until("the address is on the link again", || pod.addresses("eth0").contains(&address));
        until_settled(&net, &pod, family);
        assert_eq!(net.released(), 0, "{}", net.daemon_log());
        call.del().ok();
    });
}

#[test]
fn a_lease_that_cannot_be_released_for_lack_of_descriptors_or_memory_is_kept_for_the_next_del_or_gc() {
    beyond_reference!("dhcp-restart");
    for (is_gc, fault) in [(false, "inject=setns:error=ENFILE"), (true, "inject=bind:error=ENOMEM")] {
        with_each(|mut net, family| {
            let (pod, call) = plugged(&net, "pod", family);
            let address = ips(&call.add().ok_result())[0].to_owned();
            pod.sh(&format!("ip addr add {address} dev eth0"));
            net.end_daemon(Signal::SIGTERM);
            let full = injecting(&["-e", fault]);
            let run = |call: Call| if is_gc { call.gc(&[]) } else { call.del() };
            run(call.clone().under(&full)).refused(11, "release the lease");
            assert_eq!((files().len(), net.released()), (1, 0));
            run(call).ok();
            net.until("the release is seen", || net.released() == 1);
            assert!(files().is_empty());
        });
    }
}

#[test]
fn a_lease_that_the_daemon_cannot_release_for_lack_of_descriptors_is_released_later() {
    beyond_reference!("dhcp-restart");
    for has_second_del in [true, false] {
        with_each(|mut net, family| {
            let (_pod, call) = plugged(&net, "pod", family);
            call.add().ok_result();
            let strace = without_descriptors(&mut net);
            call.del().refused(11, "release the lease");
            assert_eq!((files().len(), net.released()), (1, 0));
            strace.end(Signal::SIGTERM);
            if has_second_del {
                call.del().ok();
                assert!(files().is_empty());
            }
            net.until("the release is seen", || net.released() == 1);
            net.until("it is dropped", || net.list().is_empty() && files().is_empty());
        });
    }
}

#[test]
fn gc_releases_more_leases_than_the_daemon_may_have_descriptors() {
    beyond_reference!("gc");
    const LEASES: usize = 250;
    let Some(mut net) = DhcpNetwork::with(RANGE) else { return };
    let (pod, call) = plugged(&net, "pod", Family::V4);
    let address = ips(&call.add().ok_result())[0].to_owned();
    pod.sh(&format!("ip addr add {address} dev eth0"));
    net.end_daemon(Signal::SIGTERM);
    net.multiply_lease(LEASES);
    // All have the same address, and the first releases remove it. Later ones need packet sockets, which are closed slowly.
    net.start_daemon_by(daemon_command("prlimit --nofile=240", &executable(), ""));
    net.until("the daemon listens", || net.is_listening());
    call.gc(&[]).ok();
    assert!(net.list().is_empty() && files().is_empty());
    let log = net.daemon_log();
    let released = log.lines().filter(|line| line.contains(": released ")).count();
    assert_eq!(released, LEASES, "{log}");
}

#[test]
fn a_lease_that_the_daemon_could_not_read_at_its_start_is_released_by_del() {
    beyond_reference!("dhcp-restart");
    with_each(|mut net, family| {
        let (_pod, call) = plugged(&net, "pod", family);
        call.add().ok_result();
        net.end_daemon(Signal::SIGTERM);
        let (path, away) = (files()[0].clone(), PathBuf::from("/run/lab/away"));
        fs::rename(&path, &away).unwrap();
        net.start_daemon("");
        fs::rename(&away, &path).unwrap();
        call.del().ok();
        net.until("the release is seen", || net.released() == 1);
        assert!(files().is_empty());
    });
}

fn status(net: &DhcpNetwork) -> lab::Outcome {
    net.lab.plugin("dhcp").config(json!({"ipam": {"type": "dhcp"}})).version("1.1.0").status()
}

#[test]
fn status_fails_only_when_no_container_of_the_network_is_answered() {
    beyond_reference!("dhcp-change");
    with_each(|mut net, family| {
        let pods = ["one", "two"].map(|name| plugged(&net, name, family));
        for (pod, call) in &pods {
            let address = ips(&call.add().ok_result())[0].to_owned();
            pod.sh(&format!("ip addr add {address} dev eth0"));
            until_settled(&net, pod, family);
        }
        net.end_daemon(Signal::SIGTERM);
        make_due("one", &["renew", "rebind"]);
        // Packets on its own link are lost.
        net.lab.host().sh("ip link set one nomaster");
        net.start_daemon("");
        let is_rebinding = |name: &str| {
            net.list().iter().any(|one| one["containerId"] == name && one["state"] == "REBINDING")
        };
        net.until("one asks all servers", || is_rebinding("one"));
        status(&net).ok();
        net.stop_server();
        net.end_daemon(Signal::SIGTERM);
        make_due("two", &["renew", "rebind"]);
        net.start_daemon("");
        let both = || net.list().iter().filter(|one| one["state"] == "REBINDING").count() == 2;
        net.until("both ask all servers", both);
        status(&net).refused(51, "one/net/eth0");
        // A single container may have dropped its own packets, so it proves nothing about the servers.
        pods[1].1.del().ok();
        status(&net).ok();
    });
}

/// The containers were deleted without a DEL. No message could be sent for them, so they prove nothing about servers.
#[test]
fn status_ignores_leases_whose_namespace_cannot_be_opened() {
    beyond_reference!("dhcp-change");
    with_each(|mut net, family| {
        let pods = ["gone1", "gone2"].map(|name| plugged(&net, name, family));
        for (pod, call) in &pods {
            let address = ips(&call.add().ok_result())[0].to_owned();
            pod.sh(&format!("ip addr add {address} dev eth0"));
            until_settled(&net, pod, family);
        }
        net.end_daemon(Signal::SIGTERM);
        ["gone1", "gone2"].iter().for_each(|name| make_due(name, &["renew", "rebind"]));
        pods.iter().for_each(|(pod, _)| pod.vanish());
        net.start_daemon("");
        let both = || net.list().iter().filter(|one| one["state"] == "REBINDING").count() == 2;
        net.until("both leases are past T2", both);
        status(&net).ok();
    });
}

#[test]
fn attachments_in_multus_cache_are_adopted_however_their_socket_is_spelled() {
    beyond_reference!("dhcp-restart");
    let Some(mut net) = DhcpNetwork::with(RANGE) else { return };
    let pods = ["pod", "other"].map(|name| net.pod(name));
    net.lab.host().sh("ln -s /run/cni /run/lab/cni");
    let ipam = json!({"type": "dhcp", "daemonSocketPath": "/run/lab/cni/dhcp.sock"});
    let plugin = json!({"type": "bridge", "bridge": "br0", "ipam": ipam});
    net.lab.configure("lan.conflist", &json!({"cniVersion": "1.0.0", "name": "lan", "plugins": [plugin]}));
    net.lab.cnitool().says("add lan pod");
    net.lab.cnitool().says("add lan other");
    let address = pods[0].addresses("eth0")[0].clone();
    pods[1].sh("ip -4 addr flush dev eth0");
    net.lab.host().sh("mkdir -p /var/lib/cni/multus; mv /var/lib/cni/results /var/lib/cni/multus/");
    net.end_daemon(Signal::SIGKILL);
    fs::remove_dir_all(STATE).unwrap();
    net.start_daemon("-adopt");
    net.until("the address is confirmed", || net.list().first().is_some_and(|one| one["state"] == "BOUND"));
    let listed = net.list();
    assert!(listed.len() == 1 && listed[0]["address"] == *address, "{listed:?}");
    // The log contains each attachment that was not adopted, with the reason.
    let log = net.daemon_log();
    assert!(log.lines().any(|line| line.contains("/lan/eth0: not adopted: link eth0")), "{log}");
}

/// A daemon that has no leases of these containers, attached to the network lan, adopts their addresses.
fn adopt(net: &mut DhcpNetwork, containers: &[&str], before: impl FnOnce(&mut DhcpNetwork)) {
    let plugin = json!({"type": "bridge", "bridge": "br0", "ipam": {"type": "dhcp"}});
    net.lab.configure("lan.conflist", &json!({"cniVersion": "1.0.0", "name": "lan", "plugins": [plugin]}));
    containers.iter().for_each(|container| drop(net.lab.cnitool().says(&format!("add lan {container}"))));
    net.end_daemon(Signal::SIGKILL);
    fs::remove_dir_all(STATE).unwrap();
    before(net);
    net.start_daemon("-adopt");
}

/// The reference sets a link down when its lease ends, and keeps the address. The server may have leased it to another host.
#[test]
fn the_address_of_a_link_that_is_down_is_adopted_only_after_a_server_confirms_it() {
    beyond_reference!("dhcp-restart");
    for is_confirmed in [true, false] {
        let Some(mut net) = DhcpNetwork::with(RANGE) else { return };
        let (pod, mut before) = (net.pod("pod"), Vec::new());
        adopt(&mut net, &["pod"], |net| {
            before = pod.addresses("eth0");
            net.stop_server();
            pod.sh("ip link set eth0 down");
        });
        net.until("the link is up", || pod.sh("ip link show dev eth0").contains("LOWER_UP"));
        assert_eq!(pod.addresses("eth0"), [""; 0], "{}", net.daemon_log());
        if is_confirmed {
            net.serve(RANGE);
        } else {
            fs::remove_file("/run/lab/server.leases").unwrap();
            net.serve("--dhcp-range=10.9.0.50,10.9.0.60,255.255.255.0,120");
        }
        net.until("an address is leased", || net.list()[0]["state"] == "BOUND");
        net.until("an address is on the link", || !pod.addresses("eth0").is_empty());
        let after = pod.addresses("eth0");
        assert_eq!(after, [net.list()[0]["address"].as_str().unwrap()], "{}", net.daemon_log());
        assert_eq!(after == before, is_confirmed, "{}", net.daemon_log());
    }
}

/// KubeVirt's bridge binding has put the address of the pod on a dummy, and a virtual machine behind the renamed interface uses it.
#[test]
fn an_address_on_a_dummy_is_not_adopted() {
    beyond_reference!("dhcp-restart");
    needs!(Dummy);
    let Some(mut net) = DhcpNetwork::with(RANGE) else { return };
    let pod = net.pod("pod");
    adopt(&mut net, &["pod"], |_| {
        let address = pod.addresses("eth0")[0].clone();
        pod.sh(&format!(
            "ip link set eth0 down; ip link set eth0 name vm; ip addr flush dev vm
             ip link add eth0 type dummy; ip addr add {address} dev eth0; ip link set vm up"
        ));
    });
    let expected = "/lan/eth0: not adopted: link eth0 is a dummy";
    net.until("the container is seen", || net.daemon_log().contains(expected));
    assert!(net.list().is_empty());
}

#[test]
fn a_del_of_an_adopted_address_that_no_server_has_confirmed_is_logged() {
    beyond_reference!("dhcp-restart");
    let Some(mut net) = DhcpNetwork::with(RANGE) else { return };
    let pod = net.pod("pod");
    let mut address = String::new();
    adopt(&mut net, &["pod"], |net| {
        address = pod.addresses("eth0")[0].clone();
        net.stop_server();
    });
    net.lab.cnitool().says("del lan pod");
    let expected = format!("cannot release {address}: no server has confirmed it");
    assert!(net.daemon_log().contains(&expected), "{}", net.daemon_log());
    assert!(net.list().is_empty() && leases_on_disk() == 0);
}

#[test]
fn status_succeeds_while_servers_confirm_adopted_addresses() {
    beyond_reference!("dhcp-restart");
    let Some(mut net) = DhcpNetwork::with(RANGE) else { return };
    let _pods = ["one", "two"].map(|name| net.pod(name));
    adopt(&mut net, &["one", "two"], |net| net.stop_server());
    let states = || net.list().iter().map(|one| one["state"].clone()).collect::<Vec<_>>();
    assert_eq!(states(), ["REBOOTING", "REBOOTING"]);
    let lan =
        net.lab.plugin("dhcp").config(json!({"name": "lan", "ipam": {"type": "dhcp"}})).version("1.1.0");
    lan.status().ok();
    net.until("no server has confirmed them", || states() == ["SELECTING", "SELECTING"]);
    lan.status().refused(51, "lan/eth0");
}

#[test]
fn a_lease_whose_address_was_never_on_the_link_is_released_by_the_next_daemon() {
    beyond_reference!("dhcp-restart");
    with_each(|mut net, family| {
        let (_pod, call) = plugged(&net, "pod", family);
        call.add().ok_result();
        net.end_daemon(Signal::SIGKILL);
        make_due("pod", &["since"]);
        net.start_daemon("");
        net.until("it is released", || net.released() == 1);
        net.until("it is dropped", || net.list().is_empty() && leases_on_disk() == 0);
    });
}

#[test]
fn an_add_of_another_container_on_a_link_drops_the_earlier_containers_leases() {
    beyond_reference!("dhcp-restart");
    with_each(|net, family| {
        let (_pod, call) = plugged(&net, "pod", family);
        call.add().ok_result();
        call.clone().env("CNI_CONTAINERID", "later").add().ok_result();
        let containers: Vec<_> = net.list().iter().map(|one| one["containerId"].clone()).collect();
        assert_eq!((containers, leases_on_disk()), (vec![json!("later")], 1), "{}", net.daemon_log());
        call.del().ok();
        assert_eq!(net.list().len(), 1);
    });
}

/// The kernel reuses the inode numbers of namespaces, and the first link of each namespace has the same index.
#[test]
fn a_lease_is_not_put_on_a_link_of_a_later_namespace_with_the_same_inode_number() {
    beyond_reference!("dhcp-restart");
    with_each(|mut net, family| {
        let pod = net.pod("same-inode");
        let address = ips(&bridge(&net, &pod, family).add().ok_result())[0].to_owned();
        until_settled(&net, &pod, family);
        net.end_daemon(Signal::SIGTERM);
        pod.vanish();
        let later = net.pod("same-inode");
        net.plug("same-inode");
        later.sh("ip link set eth0 up");
        let mut record: Value = serde_json::from_slice(&fs::read(&files()[0]).unwrap()).unwrap();
        record["place"]["netnsId"][1] = json!(fs::metadata(later.path()).unwrap().ino());
        record["place"]["index"] = later.link("eth0").unwrap()["ifindex"].clone();
        fs::write(&files()[0], record.to_string()).unwrap();
        net.start_daemon("");
        net.until("the lease is dropped", || {
            net.list().is_empty() || later.addresses("eth0").contains(&address)
        });
        assert!(!later.addresses("eth0").contains(&address), "{}", net.daemon_log());
        assert_eq!((leases_on_disk(), net.released()), (0, 0), "{}", net.daemon_log());
    });
}

#[test]
fn an_ipv4_address_is_released_although_its_link_is_down_or_has_no_routes() {
    beyond_reference!("dhcp-restart");
    for change in ["ip link set eth0 down", "ip route flush table main"] {
        for has_daemon in [true, false] {
            let Some(mut net) = DhcpNetwork::with(RANGE) else { return };
            let pod = net.pod("pod");
            let call = bridge(&net, &pod, Family::V4);
            call.add().ok_result();
            until_settled(&net, &pod, Family::V4);
            if !has_daemon {
                net.end_daemon(Signal::SIGTERM);
            }
            pod.sh(change);
            call.del().ok();
            net.until("the release is seen", || net.released() == 1);
        }
    }
}

/// The server may allocate it to another container.
#[test]
fn a_released_address_is_removed_from_its_link() {
    beyond_reference!("dhcp-restart");
    for has_daemon in [true, false] {
        with_each(|mut net, family| {
            let pod = net.pod("pod");
            let address = ips(&bridge(&net, &pod, family).add().ok_result())[0].to_owned();
            until_settled(&net, &pod, family);
            if !has_daemon {
                net.end_daemon(Signal::SIGTERM);
            }
            let dhcp =
                net.lab.plugin("dhcp").config(json!({"ipam": {"type": "dhcp", "family": family.name()}}));
            dhcp.gc(&[]).ok();
            assert!(!pod.addresses("eth0").contains(&address), "{}", net.daemon_log());
            net.until("the release is seen", || net.released() == 1);
        });
    }
}
