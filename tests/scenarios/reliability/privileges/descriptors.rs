//! What a plugin's child processes inherit: delegates, and the iptables tools.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use lab::{Call, Lab, beyond_reference};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::common::dual_stack;

/// Records what it was started with in /run/lab/{fds,env,signals}.NAME, for `NAME`.
const LOOK: &str = r#"
ls -l /proc/self/fd | sed -n 's/.* \([0-9]* -> .*\)/\1/p' | grep -v '/proc/' >/run/lab/fds.$NAME
tr '\0' '\n' </proc/$$/environ | sort >/run/lab/env.$NAME
while read -r line; do case $line in SigBlk*|SigIgn*) echo "$line";; esac; done </proc/$$/status >/run/lab/signals.$NAME"#;

/// The descriptors that the suite inherited, and that all of its processes have.
fn given(more: &[&str]) -> Vec<String> {
    let list = Command::new("sh").args(["-c", "ls /proc/self/fd"]).output().unwrap();
    // Number 3 is the listed directory.
    let own = String::from_utf8(list.stdout).unwrap();
    let mut all: Vec<_> =
        own.lines().filter(|n| *n != "3").chain(more.iter().copied()).map(str::to_owned).collect();
    all.sort();
    all
}

/// The signals that are blocked or ignored in the suite's processes. A plugin ignores SIGPIPE, but its children must
/// not.
fn signals() -> Vec<String> {
    // Read by the program itself, because a shell blocks signals while it starts one.
    let status = Command::new("grep").args(["-E", "Sig(Blk|Ign)", "/proc/self/status"]).output().unwrap();
    let lines: Vec<_> = String::from_utf8(status.stdout).unwrap().lines().map(str::to_owned).collect();
    let ignored = u64::from_str_radix(lines[1].trim_start_matches("SigIgn:\t"), 16).unwrap();
    assert_eq!(ignored >> (Signal::SIGPIPE as u32 - 1) & 1, 0, "the suite's children do not ignore SIGPIPE");
    lines
}

/// Starts a plugin as a runtime that has left descriptor 7 open.
const LEAVING_7_OPEN: [&str; 3] = ["sh", "-c", "exec 7</etc/hostname; exec \"$0\""];

const ANSWER: &str =
    r#"[ $CNI_COMMAND != ADD ] || echo '{"cniVersion": "1.1.0", "ips": [{"address": "10.1.2.9/24"}]}'"#;

fn spied(lab: &Lab) -> Call {
    lab.fake_plugin("spy", &format!("NAME=$CNI_COMMAND\n{LOOK}\n{ANSWER}"));
    let conf = json!({"bridge": "br0", "ipMasq": true, "macspoofchk": true, "ipam": {"type": "spy"}});
    lab.plugin("bridge").version("1.1.0").config(conf).on(&lab.container("pod"))
}

fn noted(what: &str, name: &str) -> Vec<String> {
    let file = format!("/run/lab/{what}.{name}");
    let text = fs::read_to_string(&file).unwrap_or_else(|e| panic!("read {file}: {e}"));
    text.lines().map(str::to_owned).collect()
}

/// The numbers of the descriptors.
fn numbers(name: &str) -> Vec<String> {
    noted("fds", name).iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

fn all_verbs(call: &Call) {
    let prev = call.add().ok_result();
    call.check(&prev).ok();
    call.gc(&[("pod", "eth0")]).ok();
    call.status().ok();
    call.del().ok();
}

#[test]
fn a_delegate_gets_three_descriptors_the_plugins_environment_and_no_blocked_signal() {
    beyond_reference!("nothing-left");
    let lab = Lab::new();
    let call = spied(&lab).env("TRACEPARENT", "00-1-2-3").args("IgnoreUnknown=1;K=v");
    all_verbs(&call);
    for command in ["ADD", "CHECK", "GC", "STATUS", "DEL"] {
        assert_eq!(numbers(command), given(&[]), "{command}");
        assert_eq!(noted("signals", command), signals(), "{command}");
        let own: Vec<_> = noted("env", command).into_iter().filter(|v| !v.starts_with("CNI_PATH=")).collect();
        let expected = [
            "CNI_ARGS=IgnoreUnknown=1;K=v",
            &format!("CNI_COMMAND={command}"),
            "CNI_CONTAINERID=pod",
            "CNI_IFNAME=eth0",
            "CNI_NETNS=/run/netns/pod",
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "TRACEPARENT=00-1-2-3",
        ];
        assert_eq!(own, expected, "{command}");
    }
}

/// As with any program: an inheritable descriptor is meant to be inherited.
#[test]
fn the_delegate_inherits_descriptors_that_the_runtime_left_open() {
    beyond_reference!("nothing-left");
    let lab = Lab::new();
    all_verbs(&spied(&lab).under(&LEAVING_7_OPEN.map(str::to_owned)));
    for command in ["ADD", "CHECK", "GC", "STATUS", "DEL"] {
        assert_eq!(numbers(command), given(&["7"]), "{command}");
    }
}

/// A file that a plugin opens never gets the number of stdout or stderr.
#[test]
fn descriptors_that_the_runtime_closed_are_dev_null_in_plugin_and_delegate() {
    beyond_reference!("nothing-left");
    let lab = Lab::new();
    let call = spied(&lab);
    let without =
        |closed: &str| call.clone().under(&["sh".into(), "-c".into(), format!("exec {closed}; exec \"$0\"")]);
    let silent = without("2>&-");
    all_verbs(&silent);
    for command in ["ADD", "CHECK", "GC", "STATUS", "DEL"] {
        assert!(noted("fds", command).contains(&"2 -> /dev/null".to_owned()), "{command}");
    }
    let mute = without(">&-").add();
    assert!(mute.succeeded() && mute.stdout.is_empty(), "{mute:?}");
    call.del().ok();
    without("<&-").add().refused(6, "");
}

/// The tools hold the lock, so that it is released only when they exit, and nothing else.
#[test]
fn an_iptables_tool_gets_three_descriptors_and_the_lock() {
    beyond_reference!("nothing-left");
    let lab = Lab::new();
    for tool in ["iptables-restore", "ip6tables-restore"] {
        lab.fake_plugin(tool, &format!("NAME={tool}\n{LOOK}\nexec /usr/sbin/{tool} \"$@\""));
    }
    let call = lab.plugin("bridge").config(dual_stack()).on(&lab.container("pod"));
    let call = call.config(json!({"ipMasq": true, "ipMasqBackend": "iptables"}));
    let call = call.env("PATH", "/run/lab/plugins:/usr/sbin:/usr/bin:/sbin:/bin");
    let prev = call.add().ok_result();
    for tool in ["iptables-restore", "ip6tables-restore"] {
        let (lock, others): (Vec<_>, Vec<_>) =
            noted("fds", tool).into_iter().partition(|fd| fd.ends_with("-> /run/ferrule/iptables.lock"));
        assert!(lock.len() == 1 && others.len() == given(&[]).len(), "{lock:?} {others:?}");
        assert_eq!(noted("signals", tool), signals());
    }
    call.check(&prev).ok();
    assert_eq!(numbers("iptables-restore"), given(&[]));
    call.del().ok();
}

/// A process's descriptors, environment, and working directory, which is read first. None: it has exited.
fn belongings(process: &Path) -> Option<(Vec<String>, Vec<u8>, PathBuf)> {
    let directory = fs::read_link(process.join("cwd")).ok()?;
    let mut descriptors = Vec::new();
    for entry in fs::read_dir(process.join("fd")).ok()? {
        let entry = entry.ok()?;
        let what = fs::read_link(entry.path()).ok()?.display().to_string();
        let what = if what.starts_with("socket:") { "socket" } else { &what };
        descriptors.push(format!("{} {what}", entry.file_name().display()));
    }
    descriptors.sort();
    let environment = fs::read(process.join("environ")).ok()?;
    Some((descriptors, environment, directory))
}

/// The closers of this lab.
fn closers() -> Vec<PathBuf> {
    let namespace = |process: &Path| fs::read_link(process.join("ns/net")).ok();
    let own = namespace(Path::new("/proc/thread-self"));
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let holds = |process: &PathBuf| {
        fs::read(process.join("cmdline")).is_ok_and(|line| line.ends_with(b"/portmap\0close-later\0"))
    };
    processes.filter(holds).filter(|process| namespace(process) == own).collect()
}

/// Properties of the processes that hold the sockets of a DEL, after an ADD.
fn seen_after_del(call: &Call) -> Vec<(Vec<String>, Vec<u8>, PathBuf)> {
    call.add().ok_result();
    let slowly = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "inject=poll,ppoll:delay_enter=2000000"];
    let under: Vec<_> = [&slowly[..], &LEAVING_7_OPEN].concat().into_iter().map(str::to_owned).collect();
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let deleted = call.clone().under(&under).del();
            ended.store(true, Ordering::Relaxed);
            deleted.ok();
        });
        let mut seen = Vec::new();
        while seen.is_empty() && !ended.load(Ordering::Relaxed) {
            // When a new program has changed its directory, its descriptors are final.
            let all = closers().into_iter().filter_map(|process| belongings(&process));
            seen = all.filter(|(_, _, directory)| directory == Path::new("/")).collect();
        }
        seen
    })
}

#[test]
fn the_closer_inherits_nothing_from_the_runtime() {
    beyond_reference!("rollback");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let ips = json!([{"address": "10.1.2.2/24", "interface": 0}]);
    let prev =
        json!({"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": pod.path()}], "ips": ips});
    let mappings = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    let call = lab.plugin("portmap").config(json!({"backend": "nftables", "prevResult": prev}));
    let call = call.config(json!({"runtimeConfig": {"portMappings": mappings}})).on(&pod);
    // The process is looked at while it sleeps, which is longer than usual. On a busy machine, the test may still be
    // too late.
    let seen = (0..20).map(|_| seen_after_del(&call)).find(|seen| !seen.is_empty());
    let seen = seen.expect("a process holds the sockets");
    for (descriptors, environment, _) in seen {
        assert_eq!(descriptors[..3], ["0 socket", "1 /dev/null", "2 /dev/null"]);
        // The connection, and the sockets received on it.
        assert!(descriptors[3..].iter().all(|one| one.ends_with(" socket")), "{descriptors:?}");
        assert!(environment.is_empty(), "{}", String::from_utf8_lossy(&environment));
    }
}
