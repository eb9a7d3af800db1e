//! Disks, and unusual files in place of plugins' files.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use faults::{EnvSweep, Trial, disks, hostile_files};
use lab::{Lab, beyond_reference};
use serde_json::json;

use super::sample;
use crate::common::{STORE, dual_stack, host_local};

/// Runs one in `every` of some hundred cases, which takes seconds.
fn sweep(trials: Vec<Trial>, every: usize) {
    EnvSweep { trials, sample: sample(every), workers: 2 }.run(|_| {}).assert_clean(15);
}

#[test]
fn a_full_or_read_only_disk_neither_loses_nor_keeps_a_lease() {
    beyond_reference!("nothing-left");
    sweep(disks(), 37);
}

#[test]
fn other_files_than_plugins_are_reported_and_kept() {
    beyond_reference!("files-with-care");
    sweep(hostile_files(), 29);
}

/// Neither directory nor lock nor index exists yet.
#[test]
fn on_a_nearly_full_disk_the_first_add_of_a_network_succeeds_or_leaves_nothing() {
    beyond_reference!("torn-lease");
    let lab = Lab::new();
    let call = lab.plugin("host-local").config(json!({"ipam": host_local(&[&["10.1.2.0/24"]])}));
    let call = call.on(&lab.container("pod"));
    let mut succeeded = Vec::new();
    for inodes in 1..12 {
        let room = format!("mount -t tmpfs -o nr_inodes={inodes} disk /var/lib/cni");
        lab.host().sh(&room);
        let run = call.add();
        succeeded.push(run.succeeded());
        if run.succeeded() {
            call.del().ok();
        } else {
            run.refused(5, STORE);
        }
        assert!(!Path::new(STORE).join("10.1.2.2").exists(), "{inodes} inodes");
        lab.host().sh("umount /var/lib/cni");
    }
    assert!(!succeeded[0] && succeeded[10], "{succeeded:?}");
}

#[test]
fn a_data_directory_of_another_user_serves_root_and_is_refused_to_others() {
    let lab = Lab::new();
    let call = lab.plugin("host-local").config(json!({"ipam": host_local(&[&["10.1.2.0/24"]])}));
    let call = call.on(&lab.container("pod"));
    let data_dir = Path::new(STORE).parent().unwrap();
    fs::create_dir_all(data_dir).unwrap();
    fs::set_permissions(data_dir, PermissionsExt::from_mode(0o700)).unwrap();
    chown(data_dir, Some(1000), Some(1000)).unwrap();
    call.add().ok_result();
    call.del().ok();

    // Copied to where any user may start it.
    let script = "mkdir -p /run/lab/plugins/copy; cp \"$0\" /run/lab/plugins/copy
        exec setpriv --reuid=$USER --clear-groups /run/lab/plugins/copy/host-local";
    let by = |user: &str| call.clone().env("USER", user).under(&["sh".into(), "-c".into(), script.into()]);
    by("1001").add().refused(5, STORE);
    by("1001").del().refused(5, STORE);
    fs::remove_dir_all(STORE).unwrap();
    by("1000").add().ok_result();
    by("1000").del().ok();
}

/// Runs a plugin, stops it after a system call, removes a directory, and lets it continue.
const REMOVE_MEANWHILE: &str = r#"
exec 4<&0
mkfifo /run/lab/plugins/calls
strace -q -o /run/lab/plugins/calls -e "inject=$CALL:signal=SIGSTOP:when=$NTH" "$0" "$@" <&4 &
strace=$!
while read -r line; do
    case $line in *"stopped by SIGSTOP"*)
        rm -r "$FOLDER"
        kill -CONT $(cat /proc/$strace/task/$strace/children) ;;
    esac
done </run/lab/plugins/calls
rm /run/lab/plugins/calls
wait $strace"#;

/// The command that runs a plugin and removes `directory` after the `nth` system call of a name.
fn losing(directory: &str, name: &str, nth: u32) -> Vec<String> {
    let argv = ["env", &format!("FOLDER={directory}"), &format!("CALL={name}"), &format!("NTH={nth}")];
    [&argv[..], &["sh", "-c", REMOVE_MEANWHILE]].concat().into_iter().map(str::to_owned).collect()
}

#[test]
fn tuning_works_even_if_its_directory_is_deleted_at_any_time() {
    beyond_reference!("nothing-left");
    let lab = Lab::new();
    let (pod, directory) = (lab.container("pod"), "/run/cni/tuning");
    let prev = lab.plugin("bridge").config(dual_stack()).on(&pod).add().ok_result();
    let call = lab.plugin("tuning").config(json!({"mtu": 1400, "prevResult": prev})).on(&pod);
    call.add().ok_result();
    call.del().ok();
    let before = lab.snapshot();
    let mut failed = 0;
    for (name, nth) in file_calls() {
        let losing = call.clone().under(&losing(directory, name, nth));
        let run = losing.add();
        if run.succeeded() {
            call.check(&run.ok_result()).ok();
            call.del().ok();
            pod.sh("ip link set eth0 mtu 1500");
        } else {
            run.refused(5, directory);
            failed += 1;
        }
        lab.snapshot().assert_same(&before);
        fs::create_dir_all(directory).unwrap();
        call.add().ok_result();
        losing.del().ok();
        pod.sh("ip link set eth0 mtu 1500");
        lab.snapshot().assert_same(&before);
        fs::create_dir_all(directory).unwrap();
    }
    assert!(failed > 0, "no moment between two calls was met");
}

#[test]
fn cnitool_works_even_if_its_results_are_deleted_at_any_time() {
    let lab = Lab::new();
    let (pod, directory) = (lab.container("pod"), "/var/lib/cni/results");
    let mut bridge = dual_stack();
    bridge["type"] = "bridge".into();
    lab.configure("net.conflist", &json!({"cniVersion": "1.0.0", "name": "net", "plugins": [bridge]}));
    let cnitool = lab.cnitool();
    cnitool.says("add net pod");
    cnitool.says("del net pod");
    let (before, mut failed) = (lab.snapshot(), 0);
    for (name, nth) in file_calls() {
        let losing = cnitool.clone().under(&losing(directory, name, nth));
        let add = losing.run("add net pod");
        if !add.succeeded() {
            assert!(add.stderr.contains(directory), "{add:?}");
            failed += 1;
        } else {
            losing.run("del net pod");
            cnitool.says("del net pod");
        }
        lab.snapshot().assert_same(&before);
        fs::create_dir_all(directory).unwrap();
    }
    assert!(failed > 0, "no moment between two calls was met");
    drop(pod);
}

/// Whichever of them a program uses.
fn file_calls() -> impl Iterator<Item = (&'static str, u32)> {
    let names = ["open", "write", "rename", "unlink", "mkdir", "close"];
    names.into_iter().flat_map(|name| (1..5).map(move |nth| (name, nth)))
}
