//! dhcp's daemon as a service: its socket, its flags, its permissions, and overload.

use std::ffi::OsStr;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use lab::dhcp::{DhcpNetwork, RANGE, daemon_command, executable, leases_on_disk, start_running};
use lab::{Lab, beyond_reference, repository, skip};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, setfsuid};
use serde_json::json;

const SOCKET: &str = "/run/cni/dhcp.sock";

/// A network without a server, with a daemon.
fn silent() -> DhcpNetwork {
    let mut net = DhcpNetwork::silent();
    net.start_daemon("");
    net
}

#[test]
fn systemds_socket_outlives_daemons_and_calls_wait_for_the_next_one() {
    beyond_reference!("dhcp-restart");
    let Some(mut net) = DhcpNetwork::with(RANGE) else { return };
    net.end_daemon(Signal::SIGTERM);
    let listener = UnixListener::bind(SOCKET).unwrap();
    let passed = || OwnedFd::from(listener.try_clone().unwrap());
    let (_pod, call) = net.plugged("pod");
    let adding = start_running(&call, "ADD");
    net.start_daemon_on(passed());
    assert!(adding.wait_with_output().unwrap().status.success());
    net.end_daemon(Signal::SIGTERM);
    // The socket belongs to systemd, so it stays.
    assert!(net.is_listening() && leases_on_disk() == 1);
    let deleting = start_running(&call, "DEL");
    net.start_daemon_on(passed());
    assert!(deleting.wait_with_output().unwrap().status.success());
    assert_eq!(leases_on_disk(), 0);
    net.until("the release is seen", || net.released() == 1);
}

/// The reference's daemon deletes the file of systemd's socket when it exits, and systemd passes the same socket to the next
/// daemon.
#[test]
fn a_daemon_whose_passed_socket_has_lost_its_file_creates_it_again() {
    beyond_reference!("dhcp-restart");
    let Some(mut net) = DhcpNetwork::with(RANGE) else { return };
    net.end_daemon(Signal::SIGTERM);
    let listener = UnixListener::bind(SOCKET).unwrap();
    let passed = || OwnedFd::from(listener.try_clone().unwrap());
    fs::remove_file(SOCKET).unwrap();
    for container in ["one", "two"] {
        net.start_daemon_on(passed());
        net.until("the daemon has started", || {
            net.daemon_log().contains("systemctl restart cni-dhcp.socket")
        });
        net.until("the socket has its file", || UnixStream::connect(SOCKET).is_ok());
        let (_pod, call) = net.plugged(container);
        call.add().ok_result();
        call.del().ok();
        net.end_daemon(Signal::SIGTERM);
    }
}

/// As the reference accepts it. The daemon's working directory differs from the plugin's.
#[test]
fn a_relative_path_of_a_namespace_is_one_in_the_plugins_working_directory() {
    let Some(net) = DhcpNetwork::with(RANGE) else { return };
    let (pod, call) = net.plugged("pod");
    let directory = pod.path().parent().unwrap().to_str().unwrap().to_owned();
    let script = format!("cd {directory}; exec \"$0\"");
    let call = call.under(&["sh".into(), "-c".into(), script]).env("CNI_NETNS", "pod");
    call.add().ok_result();
    call.del().ok();
}

/// A daemon in a mount namespace of its own, in which a script changes the mounts before.
fn with_other_mounts(script: &str) -> Command {
    let script = format!("{script}; exec \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-ec", &script, "sh"]).arg(executable()).arg("daemon").stdin(Stdio::null());
    command
}

/// A daemon with a flag in a mount namespace in which the default paths differ from the host's.
pub fn in_a_pod(flag: &str) -> Command {
    let mut command = with_other_mounts("mount --rbind / /mnt; mount -t tmpfs none /run");
    command.args(["-hostprefix", "/mnt", flag]);
    command
}

#[test]
fn a_daemon_in_its_own_mount_namespace_finds_everything_below_its_prefix() {
    let Some(mut net) = DhcpNetwork::with(RANGE) else { return };
    net.end_daemon(Signal::SIGTERM);
    let (_pod, call) = net.plugged("pod");
    net.start_daemon_by(in_a_pod("-pidfile=/mnt/run/lab/pid"));
    net.until("the daemon listens", || fs::exists("/run/lab/pid").unwrap());
    let result = call.add().ok_result();
    assert!(leases_on_disk() == 1 || lab::under_test().reference, "{result}");
    let pid = fs::read_to_string("/run/lab/pid").unwrap();
    assert_eq!(pid.trim().parse(), Ok(net.daemon().unwrap().id()));
    call.del().ok();
    assert_eq!(leases_on_disk(), 0);
    net.end_daemon(Signal::SIGTERM);
    assert!(!fs::exists("/run/lab/pid").unwrap() || lab::under_test().reference);
}

/// containerd's paths begin with /var/run, which is a link to /run on most hosts.
#[test]
fn a_daemon_in_its_own_mount_namespace_follows_the_hosts_links() {
    beyond_reference!("dhcp-prefix");
    let Some(mut net) = DhcpNetwork::with(RANGE) else { return };
    net.end_daemon(Signal::SIGTERM);
    let (pod, call) = net.plugged("pod");
    symlink("/run/netns", "/run/lab/link").unwrap();
    symlink("/run/lab", "/run/lab/socket").unwrap();
    let mut command = in_a_pod("-pidfile=/mnt/run/lab/pid");
    command.args(["-socketpath", "/run/lab/socket/dhcp.sock"]);
    net.start_daemon_by(command);
    net.until("the daemon listens", || fs::exists("/run/lab/pid").unwrap());
    let ipam = json!({"type": "dhcp", "daemonSocketPath": "/run/lab/socket/dhcp.sock"});
    let call = call.config(json!({"ipam": ipam})).env("CNI_NETNS", &format!("/run/lab/link/{}", pod.id));
    call.add().ok_result();
    call.del().ok();
    net.until("the release is seen", || net.released() == 1);
}

/// The daemon opens the path at each renewal. In its own mounts, the path may not exist, or lead to another container.
#[test]
fn an_add_is_refused_if_the_daemon_does_not_see_the_containers_namespace_at_its_path() {
    beyond_reference!("dhcp-restart");
    for script in ["mount -t tmpfs none /run/netns", "mount --bind /run/netns/server /run/netns/pod"] {
        let mut net = DhcpNetwork::silent();
        let (_pod, call) = net.plugged("pod");
        net.start_daemon_by(with_other_mounts(script));
        net.until("the daemon listens", || net.is_listening());
        call.add().refused(4, "cannot open the container's network namespace at /run/netns/pod");
        assert!(net.list().is_empty() && leases_on_disk() == 0, "{script}");
    }
}

#[test]
fn a_daemon_that_cannot_be_one_says_why() {
    beyond_reference!("dhcp-restart");
    let net = silent();
    fs::write("/run/lab/file", "text").unwrap();
    for (flags, culprit) in [
        ("", "another DHCP daemon"),
        ("-pidfile pid", "not an absolute path"),
        ("-socketpath /run/lab/other/x.sock -pidfile /run/lab/nowhere/pid", "/run/lab/nowhere/pid"),
        ("-timeout 10", "not a time"),
        ("-fast", "-help"),
        ("-socketpath /run/lab/file -pidfile /run/lab/nowhere/pid", "not a socket"),
    ] {
        let output = daemon_command("", &executable(), flags).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(culprit), "{flags}: {said}");
    }
    assert!(!Path::new("/run/lab/other/x.sock").exists());
    assert_eq!(fs::read_to_string("/run/lab/file").unwrap(), "text");
    assert!(net.list().is_empty());
}

/// Units written for the reference's daemon may have them.
#[test]
fn a_daemon_runs_with_arguments_that_the_reference_ignores() {
    beyond_reference!("dhcp-usage");
    let mut net = silent();
    for (flags, warning) in [
        ("-broadcast false -pidfile pid", r#"["false", "-pidfile", "pid"]"#),
        ("-timeout -1s", "-1s is negative"),
    ] {
        net.end_daemon(Signal::SIGTERM);
        net.start_daemon(flags);
        assert!(net.daemon_log().contains(warning), "{flags}: {}", net.daemon_log());
    }
}

/// For example `dhcp deamon` in a unit.
#[test]
fn a_misspelled_command_is_an_error_with_the_usage() {
    beyond_reference!("dhcp-restart");
    let run = |arguments: &[&str]| {
        let output = Command::new(executable()).args(arguments).output().unwrap();
        let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.code(), out, err)
    };
    let (exit, usage, _) = run(&["--help"]);
    assert!(exit == Some(0) && usage.contains("dhcp daemon") && usage.contains("dhcp list"), "{usage}");
    let (exit, out, said) = run(&["deamon"]);
    assert_eq!((exit, out), (Some(2), String::new()));
    assert!(said.contains("\"deamon\"") && said.ends_with(&usage), "{said}");
    for (arguments, words) in [
        (&["list", "-o", "yaml"][..], "accepts only json, not \"yaml\""),
        (&["list", "-socketpath", "/nope"], "if its socket has another path, correct -socketpath"),
    ] {
        let (exit, _, said) = run(arguments);
        assert!(exit != Some(0) && said.contains(words), "{said}");
    }
    // Runtimes parse the release in this line.
    for arguments in [&[][..], &["--version"], &["-v"]] {
        let (exit, _, said) = run(arguments);
        assert!(exit == Some(0) && said.starts_with("CNI dhcp plugin v"), "{said}");
    }
}

#[test]
fn a_plugin_that_hangs_up_leaves_no_lease() {
    beyond_reference!("dhcp-restart");
    let net = silent();
    let mut adding = start_running(&net.plugged("pod").1, "ADD");
    net.until("the daemon asks", || net.list().len() == 1);
    adding.kill().unwrap();
    adding.wait().unwrap();
    net.until("the daemon gives up", || net.list().is_empty());
    assert_eq!(leases_on_disk(), 0);
}

#[test]
fn a_del_cancels_a_running_add() {
    beyond_reference!("dhcp-restart");
    let net = silent();
    let (_pod, call) = net.plugged("pod");
    let adding = start_running(&call, "ADD");
    net.until("the daemon asks", || net.list().len() == 1);
    call.del().ok();
    let output = adding.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success() && said.contains("another request"), "{said}");
    assert!(net.list().is_empty() && leases_on_disk() == 0);
}

/// Otherwise a pod with this network could not be deleted.
#[test]
fn del_and_gc_succeed_with_a_socket_path_that_add_refuses() {
    beyond_reference!("dhcp-restart");
    let lab = Lab::new();
    let pod = lab.container("pod");
    for path in [format!("/run/{}.sock", "x".repeat(200)), "/run/a\0b.sock".to_owned()] {
        let ipam = json!({"type": "dhcp", "daemonSocketPath": path});
        let call = lab.plugin("dhcp").config(json!({"ipam": ipam})).on(&pod);
        call.add().refused(7, "daemonSocketPath");
        call.del().ok();
        call.gc(&[]).ok();
    }
}

#[test]
fn users_other_than_root_are_refused_even_if_they_can_reach_the_socket() {
    beyond_reference!("dhcp-restart");
    let net = silent();
    // A directory and a socket that everyone may access.
    for path in ["/run/cni", SOCKET] {
        fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
    }
    let script = "mkdir -p /run/lab/plugins/copy; cp \"$0\" /run/lab/plugins/copy/dhcp
        exec setpriv --reuid=1000 --clear-groups /run/lab/plugins/copy/dhcp";
    let call = net.lab.plugin("dhcp").config(json!({"ipam": {"type": "dhcp"}}));
    call.clone()
        .under(&["sh".into(), "-c".into(), script.into()])
        .status()
        .refused(50, "closed the connection");
    net.until("the refusal is logged", || net.daemon_log().contains("of user 1000: only root is allowed"));
    call.status().ok();
}

/// Sends a text to the daemon, and returns its answer.
pub fn ask(text: &str) -> String {
    let mut stream = UnixStream::connect(SOCKET).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map(|_| answer).unwrap_or_default()
}

#[test]
fn the_daemon_survives_any_input_and_its_memory_does_not_grow() {
    beyond_reference!("dhcp-restart");
    let mut net = silent();
    let pid = net.daemon().unwrap().id();
    assert!(ask("CONNECT /_goRPC_ HTTP/1.0\n\n").starts_with("HTTP/1.0 426 Ferrule daemon"));
    for request in ["garbage\n", "{}\n", "{\"v\":1,\"op\":\"acquire\"}\n", "{\"v\":2,\"op\":\"list\"}\n"] {
        assert!(ask(request).contains("error"), "{request}");
    }
    let _halves = halves(200);
    // Heap size in bytes, according to the kernel.
    let size = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmData:")).unwrap().to_owned();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    let many = || {
        for n in 0..5000 {
            assert!(ask("{\"v\":1,\"op\":\"list\"}\n").contains("result"));
            assert!(ask(&format!("{{\"v\":1,\"op\":\"status\",\"network\":\"n{n}\"}}\n")).contains("result"));
        }
    };
    many();
    let before = size();
    many();
    // Connections that are open at the same time need a few pages more or less. Four bytes for each request would be more.
    assert!(size() <= before + 32, "{before} kB, and then {} kB", size());
}

/// Connections, each with half a request.
fn halves(count: usize) -> Vec<UnixStream> {
    let half = || {
        let mut stream = UnixStream::connect(SOCKET).unwrap();
        stream.write_all(b"{").unwrap();
        stream
    };
    (0..count).map(|_| half()).collect()
}

#[test]
fn connections_above_the_daemons_limit_wait() {
    beyond_reference!("dhcp-restart");
    let mut net = silent();
    may_have(4000);
    let descriptors = format!("/proc/{}/fd", net.daemon().unwrap().id());
    let descriptors = || fs::read_dir(&descriptors).unwrap().count();
    let before = descriptors();
    // The daemon has at most 1024 connections. The others wait in the socket's queue, in this order.
    let idle = halves(1024 + 50);
    let call = net.lab.plugin("dhcp").config(json!({"ipam": {"type": "dhcp"}})).version("1.1.0");
    let mut asking = start_running(&call, "STATUS");
    while asking.try_wait().unwrap().is_none() {
        let open = descriptors().saturating_sub(before);
        assert!(open <= 1024, "{open} connections");
        thread::sleep(Duration::from_millis(2));
    }
    // The daemon has closed idle connections before it accepted the last one. It closes them after a second while others wait, and otherwise
    // after ten.
    let is_closed = |mut connection: &UnixStream| {
        connection.set_nonblocking(true).unwrap();
        !connection.read(&mut [0]).is_err_and(|e| e.kind() == ErrorKind::WouldBlock)
    };
    let closed = idle.iter().filter(|connection| is_closed(connection)).count();
    assert!(closed > 50, "STATUS was answered after the end of {closed} connections");
    assert!(asking.wait_with_output().unwrap().status.success());
    assert!(net.list().is_empty());
}

/// Far more than the daemon's limit and the socket's queue together.
const CROWD: usize = 10_000;

/// Sets the limit of open files to this number. Not more, because some programs close all possible descriptors when
/// they start.
fn may_have(descriptors: u64) {
    let (now, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, now.max(descriptors), most.max(descriptors)).unwrap();
}

/// Opens connections in 20 threads until there are enough, and keeps them open. Calls `while_open` as soon as the
/// daemon and the queue are full.
fn while_connections_are_open(while_open: impl FnOnce()) {
    may_have(2 * CROWD as u64);
    let opened = AtomicUsize::new(0);
    let open = || {
        let mut held = Vec::new();
        while opened.fetch_add(1, Ordering::Relaxed) < CROWD {
            held.push(UnixStream::connect(SOCKET).unwrap());
        }
        held
    };
    // Threads started in the lab are in its namespaces.
    let crowd = thread::scope(|scope| {
        let openers: Vec<_> = (0..20).map(|_| scope.spawn(open)).collect();
        while opened.load(Ordering::Relaxed) < 2000 {
            thread::yield_now();
        }
        while_open();
        openers.into_iter().flat_map(|opener| opener.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(crowd.len(), CROWD);
}

#[test]
fn an_address_is_leased_while_ten_thousand_silent_connections_are_open() {
    beyond_reference!("dhcp-restart");
    let Some(mut net) = DhcpNetwork::with(RANGE) else { return };
    let pid = net.daemon().unwrap().id();
    let (_pod, call) = net.plugged("pod");
    while_connections_are_open(|| {
        // If a plugin's request does not arrive within a second, its connection is closed like the others, and it
        // connects again.
        for _ in 0..10 {
            call.add().ok_result();
            call.del().ok();
        }
        call.add().ok_result();
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        assert!(descriptors < 1024 + 20, "{descriptors}");
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(peak < 16 << 10, "{peak} kB");
    });
    call.del().ok();
    assert!(net.list().is_empty());
}

#[test]
fn a_thousand_leases_need_little_memory_and_no_system_call_until_one_is_due() {
    beyond_reference!("dhcp-restart");
    let Some(mut net) = DhcpNetwork::with(RANGE) else { return };
    let (pod, call) = net.plugged("pod");
    let address = call.add().ok_result()["ips"][0]["address"].as_str().unwrap().to_owned();
    pod.sh(&format!("ip addr add {address} dev eth0"));
    net.end_daemon(Signal::SIGTERM);
    net.multiply_lease(1000);
    let trace = "/run/lab/trace";
    let strace = format!("strace -f -q -o {trace} -e trace=all");
    net.start_daemon_by(daemon_command(&strace, &executable(), ""));
    net.until("the daemon listens", || net.daemon_log().contains("1000 leases"));
    assert_eq!(net.list().len(), 1000);
    let strace = net.daemon().unwrap().id();
    let children = fs::read_to_string(format!("/proc/{strace}/task/{strace}/children")).unwrap();
    let daemon = children.trim().to_owned();
    let status = fs::read_to_string(format!("/proc/{daemon}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 16 << 10, "{peak} kB");
    // The daemon sleeps in poll(2). If anything wakes it, the trace gets another line.
    let calls = || fs::read_to_string(trace).unwrap();
    net.until("the daemon sleeps", || {
        let before = calls();
        thread::sleep(Duration::from_millis(200));
        before == calls()
    });
    let before = calls();
    thread::sleep(Duration::from_secs(3));
    assert_eq!(calls().strip_prefix(&*before), Some(""));
    kill(Pid::from_raw(daemon.parse().unwrap()), Signal::SIGKILL).unwrap();
}

#[test]
fn only_root_may_connect() {
    beyond_reference!("dhcp-restart");
    let net = silent();
    // Access to the directory is not enough.
    fs::set_permissions("/run/cni", PermissionsExt::from_mode(0o755)).unwrap();
    let call = net.lab.plugin("dhcp").config(json!({"ipam": {"type": "dhcp"}}));
    let as_somebody = || {
        // Changes only this thread, and drops CAP_DAC_OVERRIDE with it.
        setfsuid(Uid::from_raw(1000));
        (0..CROWD).all(|_| UnixStream::connect(SOCKET).unwrap_err().kind() == ErrorKind::PermissionDenied)
    };
    assert!(thread::scope(|scope| scope.spawn(as_somebody).join()).unwrap());
    call.status().ok();
    assert!(net.list().is_empty());
}

#[test]
fn systemd_accepts_the_units() {
    if !fs::exists("/usr/bin/systemd-analyze").unwrap() {
        return skip("systemd-analyze is missing");
    }
    let lab = Lab::new();
    let script = r#"mount -t tmpfs none /opt; mkdir -p /opt/cni/bin; cp "$1" /opt/cni/bin/dhcp; cd "$2"
        exec systemd-analyze --man=no verify ./cni-dhcp.service ./cni-dhcp.socket 2>&1"#;
    let (plugin, units) = (executable(), repository().join("packaging/systemd"));
    let arguments = ["unshare", "-m", "sh", "-ec", script, "sh"].map(OsStr::new);
    let said = lab.host().exec(&[&arguments[..], &[plugin.as_os_str(), units.as_os_str()]].concat());
    let about_ours: Vec<_> = said.lines().filter(|line| line.contains("cni-dhcp")).collect();
    assert!(about_ours.is_empty(), "{said}");
}
