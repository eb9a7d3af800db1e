//! An unprivileged process holds all locks that it can take, indefinitely.

mod timeouts;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use lab::{Call, Feature, Lab, Outcome, beyond_reference, paused};
use serde_json::{Value, json};

use crate::common::dual_stack;

/// The namespace of the lab's host, and files of plugins in directories that everyone can enter.
const NAMESPACE: &str = "/proc/self/ns/net";
const PLACES: [&str; 5] =
    ["/run/containers", "/run/ferrule", "/run/ferrule-dnsname", "/run/xtables.lock", "/var/lib/cni"];

/// A process of user nobody that holds a lock.
struct Holder(Child);

impl Holder {
    /// None: user nobody cannot open the file.
    fn of(path: &Path) -> Option<Self> {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all"]);
        command.args(["flock", "--exclusive", "--no-fork"]).arg(path);
        Self::start(command.args(["sh", "-c", "echo held; exec sleep infinity"]))
    }

    fn start(command: &mut Command) -> Option<Self> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let this = Self(child);
        (line == "held\n").then_some(this)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Holds everything that can be held.
fn hold_all() -> Vec<Holder> {
    let mut paths = vec![PathBuf::from(NAMESPACE)];
    PLACES.iter().for_each(|place| collect(Path::new(place), &mut paths));
    let holders: Vec<_> = paths.iter().filter_map(|path| Holder::of(path)).collect();
    assert!(!holders.is_empty(), "everybody can open {NAMESPACE}");
    holders
}

fn collect(path: &Path, found: &mut Vec<PathBuf>) {
    let Ok(what) = fs::symlink_metadata(path) else { return };
    found.push(path.to_owned());
    if what.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            collect(&entry.unwrap().path(), found);
        }
    }
}

/// With rules by a backend, and with a VLAN's gateway if the kernel has VLANs.
fn bridge(lab: &Lab, backend: &str) -> Call {
    lab.plugin("bridge").config(dual_stack()).config(json!({
        "ipMasq": true, "ipMasqBackend": backend, "vlan": Feature::BridgeVlanFiltering.is_there().then_some(5),
    }))
}

fn portmap(lab: &Lab, backend: &str, prev: &Value) -> Call {
    let ports = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    let keys = json!({"backend": backend, "prevResult": prev, "runtimeConfig": {"portMappings": ports}});
    lab.plugin("portmap").config(keys)
}

#[test]
fn an_unprivileged_process_that_holds_every_lock_it_can_does_not_block_plugins() {
    beyond_reference!("nothing-left");
    for backend in ["nftables", "iptables"] {
        let lab = Lab::new();
        let pod = lab.container("pod");
        // All files exist now.
        let call = bridge(&lab, backend).on(&pod);
        let prev = call.add().ok_result();
        let ports = portmap(&lab, backend, &prev).on(&pod);
        ports.add().ok_result();
        let [names, others] = ["pod", "other"].map(|id| {
            lab.plugin("dnsname").config(json!({"prevResult": prev})).on(&pod).env("CNI_CONTAINERID", id)
        });
        [&names, &others].into_iter().for_each(|names| drop(names.add().ok_result()));
        let holders = hold_all();

        names.del().ok();
        names.gc(&[("other", "eth0")]).ok();
        names.add().ok_result();
        names.check(&prev).ok();
        others.del().ok();
        names.del().ok();

        ports.del().ok();
        ports.gc(&[]).ok();
        ports.add().ok_result();
        ports.gc(&[]).ok();
        call.del().ok();
        let result = call.add().ok_result();
        call.check(&result).ok();
        call.gc(&[]).ok();
        drop(holders);
        call.del().ok();
    }
}

/// Asserts that a command removes interface, leases and rules of the only attachment while another process holds the
/// lock for iptables, and reports the lock.
fn removes_everything_but_reports_the_lock(command: impl Fn(&Call) -> Outcome) {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = bridge(&lab, "nftables").on(&pod);
    call.add().ok_result();
    call.del().ok();
    let before = lab.snapshot();
    call.add().ok_result();
    let holder = root_holds(Path::new("/run/ferrule/iptables.lock"));
    let (outcome, _) = paused(&call, &command);
    outcome.refused(11, "/run/ferrule/iptables.lock");
    lab.snapshot().assert_same(&before);
    drop(holder);
    command(&call).ok();
}

/// As with an iptables tool that hangs after its plugin was killed.
#[test]
fn a_lock_that_is_never_free_ends_in_code_11_after_everything_else_was_removed() {
    beyond_reference!("nothing-left");
    removes_everything_but_reports_the_lock(Call::del);
}

#[test]
fn gc_ends_in_code_11_after_it_has_removed_everything_else_if_a_lock_is_never_free() {
    beyond_reference!("nothing-left");
    removes_everything_but_reports_the_lock(|call| call.gc(&[]));
}

fn root_holds(path: &Path) -> Holder {
    let mut command = Command::new("flock");
    Holder::start(command.arg("--no-fork").arg(path).args(["sh", "-c", "echo held; exec sleep infinity"]))
        .unwrap()
}

#[test]
fn a_failed_add_is_rolled_back_while_another_process_holds_a_lock() {
    beyond_reference!("nothing-left");
    for backend in ["nftables", "iptables"] {
        let lab = Lab::new();
        let pod = lab.container("pod");
        let call = bridge(&lab, backend).on(&pod);
        call.add().ok_result();
        call.del().ok();
        let before = lab.snapshot();
        let holders = hold_all();
        // The result is not read.
        let deaf = call.clone().under(&["sh".into(), "-c".into(), "exec >/dev/full; exec \"$0\"".into()]);
        assert_eq!(deaf.add().exit, Some(1), "{backend}");
        lab.snapshot().assert_same(&before);
        drop(holders);
    }
}

/// Without a private directory of root, the namespace is locked. Everyone can hold that lock, but not for long.
#[test]
fn without_a_directory_for_locks_no_command_waits_forever() {
    beyond_reference!("nothing-left");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = bridge(&lab, "nftables").on(&pod);
    lab.host().sh("rm -rf /run/ferrule; touch /run/ferrule");
    let holders = hold_all();
    call.add().ok_result();
    call.del().ok();
    drop(holders);
    // Another user may have created it and own it.
    lab.host().sh("rm /run/ferrule; install -d -o 65534 -m 777 /run/ferrule");
    call.add().ok_result();
    call.del().ok();
    assert_eq!(fs::read_dir("/run/ferrule").unwrap().count(), 0);
}

#[test]
fn only_root_can_open_lock_files() {
    beyond_reference!("nothing-left");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call =
        bridge(&lab, "iptables").on(&pod).under(&["sh".into(), "-c".into(), "umask 0; exec \"$0\"".into()]);
    call.add().ok_result();
    call.del().ok();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!(mode(Path::new("/run/ferrule")), 0o700);
    let files: Vec<_> = fs::read_dir("/run/ferrule").unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!files.is_empty() && files.iter().all(|file| mode(file) == 0o600), "{files:?}");
}
