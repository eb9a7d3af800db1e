//! Modes of files on disk.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use lab::{Call, Lab, beyond_reference, ours, quoted, under_test};
use serde_json::json;

use crate::common::dual_stack;

/// All files of plugins and cnitool, as `MODE PATH`.
fn modes() -> Vec<String> {
    let mut all = Vec::new();
    ["/var/lib/cni", "/run/cni"].iter().for_each(|root| walk(Path::new(root), &mut all));
    all.sort_by(|a, b| a[4..].cmp(&b[4..]));
    all
}

fn walk(path: &Path, all: &mut Vec<String>) {
    let Ok(meta) = fs::symlink_metadata(path) else { return };
    if meta.is_symlink() {
        return;
    }
    all.push(format!("{:o} {}", meta.permissions().mode() & 0o7777, path.display()));
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        walk(&entry.path(), all);
    }
}

fn under_umask(call: &Call, umask: &str) -> Call {
    call.clone().under(&["sh".into(), "-c".into(), format!("umask {umask}; exec \"$0\"")])
}

/// The directories of leases are the reference's, which everyone may list: addresses are not secret. Everything else is
/// private.
#[test]
fn files_are_readable_and_writable_only_by_their_owner_whatever_the_umask_is() {
    beyond_reference!("nothing-left");
    for (umask, directory) in [("0", "755"), ("077", "700")] {
        let lab = Lab::new();
        let pod = lab.container("pod");
        let prev = under_umask(&lab.plugin("bridge").config(dual_stack()).on(&pod), umask).add().ok_result();
        let tuning = lab.plugin("tuning").config(json!({"mtu": 1400, "prevResult": prev})).on(&pod);
        under_umask(&tuning, umask).add().ok_result();
        let expected = [
            "700 /run/cni",
            "700 /run/cni/tuning",
            "600 /run/cni/tuning/pod_eth0.json",
            "755 /var/lib/cni",
            &format!("{directory} /var/lib/cni/networks"),
            &format!("{directory} /var/lib/cni/networks/net"),
            "600 /var/lib/cni/networks/net/.index",
            "600 /var/lib/cni/networks/net/.lock",
            "600 /var/lib/cni/networks/net/10.1.2.2",
            "600 /var/lib/cni/networks/net/fd00:1:2::2",
            "600 /var/lib/cni/networks/net/last_reserved_ip.0",
            "600 /var/lib/cni/networks/net/last_reserved_ip.1",
            "600 /var/lib/cni/networks/net/lock",
        ];
        assert_eq!(modes(), expected, "umask {umask}");
    }
}

/// The server's user must get to the hosts file, and to nothing else.
#[test]
fn only_root_can_read_dnsnames_files_except_the_hosts_file_that_the_server_reads() {
    beyond_reference!("dnsname");
    for umask in ["0", "077"] {
        let lab = Lab::new();
        let [pod, other] = ["pod", "other"].map(|id| {
            let pod = lab.container(id);
            let prev = lab.plugin("bridge").config(dual_stack()).on(&pod).add().ok_result();
            let dnsname = lab.plugin("dnsname").config(json!({"prevResult": prev})).on(&pod);
            under_umask(&dnsname, umask)
        });
        pod.add().ok_result();
        other.add().ok_result();
        other.del().ok();
        let mut modes = Vec::new();
        ["/run/containers", "/run/ferrule-dnsname"].iter().for_each(|root| walk(Path::new(root), &mut modes));
        modes.sort_by(|a, b| a[4..].cmp(&b[4..]));
        let expected = [
            "700 /run/containers",
            "700 /run/containers/cni",
            "700 /run/containers/cni/dnsname",
            "755 /run/ferrule-dnsname",
            "711 /run/ferrule-dnsname/net",
            "644 /run/ferrule-dnsname/net/addnhosts",
            "600 /run/ferrule-dnsname/net/deleted",
            "600 /run/ferrule-dnsname/net/dnsmasq.conf",
            "600 /run/ferrule-dnsname/net/lock",
            "644 /run/ferrule-dnsname/net/pidfile",
        ];
        assert_eq!(modes, expected, "umask {umask}");
        pod.del().ok();
    }
}

/// A kill shows files that exist only for a moment.
#[test]
fn only_the_owner_can_read_files_that_are_being_written() {
    beyond_reference!("nothing-left");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let prev = lab.plugin("bridge").config(dual_stack()).on(&pod).add().ok_result();
    let killed = |call: &Call| {
        let script = "umask 0; exec strace -qo /dev/null -e inject=rename,renameat,renameat2:signal=KILL:when=1 \"$0\"";
        let run = call.clone().under(&["sh", "-c", script].map(str::to_owned)).add();
        assert_ne!(run.exit, Some(0), "{run:?}");
    };
    killed(&lab.plugin("tuning").config(json!({"mtu": 1400, "prevResult": prev})).on(&pod));
    killed(&lab.plugin("host-local").config(dual_stack()).on(&lab.container("other")));
    let modes = modes();
    let new: Vec<_> = modes.iter().filter(|line| line.contains("/.new")).collect();
    assert!(new.len() == 2 && new.iter().all(|line| line.starts_with("600 ")), "{modes:#?}");
}

#[test]
fn only_the_owner_can_read_cnitools_cache() {
    let lab = Lab::new();
    lab.container("pod");
    let plugin = json!({"type": "loopback"});
    lab.configure("10-net.conflist", &json!({"cniVersion": "1.0.0", "name": "net", "plugins": [plugin]}));
    let (dir, tool) = (quoted(&under_test().dir), quoted(&ours().join("cnitool")));
    // An existing directory keeps its mode, so let it be created again.
    let add = "add net pod --container-id c --cache-dir /var/lib/cni/of-cnitool >/dev/null";
    lab.host().sh(&format!("umask 0; CNI_PATH={dir} {tool} {add}"));
    let expected = [
        "755 /var/lib/cni",
        "755 /var/lib/cni/of-cnitool",
        "700 /var/lib/cni/of-cnitool/results",
        "600 /var/lib/cni/of-cnitool/results.containers.lock",
        "600 /var/lib/cni/of-cnitool/results.lock",
        "600 /var/lib/cni/of-cnitool/results/net-c-eth0",
    ];
    assert_eq!(modes(), expected);
}
