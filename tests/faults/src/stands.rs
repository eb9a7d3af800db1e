//! What happens to which plugin.

use std::fs;

use serde_json::json;

use super::harm::Stand;
use super::manager;
use super::place::{self, hostile};
use super::subject::Subject;
use super::{disk, limit};
use lab::{Feature, Lab, under_test};

/// host-local by itself.
fn host_local() -> Subject {
    let host_local = json!({"type": "host-local", "ipam": {
        "type": "host-local", "resolvConf": "/etc/cni/resolv.conf", "resetOnReboot": true,
        "ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "fd00:1:2::/64"}]],
    }});
    Subject { name: "host-local", plugins: vec![host_local], ..Subject::bridge() }
}

fn ready(lab: &Lab) {
    limit::ready(lab);
    fs::write("/etc/cni/resolv.conf", "nameserver 9.9.9.9\n").expect("write a resolv.conf");
    fs::create_dir_all("/etc/cni/tuning").expect("create a folder");
    fs::write("/etc/cni/tuning/allowlist.conf", "^net\\.\n").expect("write an allowlist");
    manager::install(lab, &Subject::bridge().plugins);
}

fn on_tmpfs(lab: &Lab) {
    disk::tmpfs(lab);
    ready(lab);
}

fn on_ext4(lab: &Lab) {
    disk::ext4(lab);
    ready(lab);
}

/// With the iptables tools of before nf_tables, which take a lock on a file.
fn with_legacy_tools(lab: &Lab) {
    lab.host().sh("mount --bind /usr/sbin/xtables-legacy-multi /usr/sbin/xtables-nft-multi");
    on_tmpfs(lab);
}

/// Those who keep something on a disk, and the folder of it.
fn keepers() -> Vec<(Subject, &'static str)> {
    let all = vec![
        (host_local(), "/var/lib/cni/networks"),
        (Subject::bridge(), "/var/lib/cni/networks"),
        (Subject::tuning(), "/run/cni/tuning"),
        (Subject::managed(), "/var/lib/cni"),
    ];
    // cnitool is ours, whoever is under test.
    all.into_iter().filter(|(subject, _)| !under_test().reference || !subject.is_managed()).collect()
}

/// Full and read-only disks.
pub fn disks() -> Vec<Stand> {
    let of = |ready, file_system: &'static str| {
        keepers().into_iter().map(move |(subject, folder)| {
            let mut harms = disk::full(file_system, folder);
            harms.push(disk::read_only(folder));
            Stand { subject, ready, harms }
        })
    };
    let mut all: Vec<_> = of(on_tmpfs as fn(&Lab), "tmpfs").collect();
    if Feature::Ext4.is_there() {
        all.extend(of(on_ext4, "ext4"));
    }
    all
}

/// Something else where a file should be.
pub fn places() -> Vec<Stand> {
    let stand = |(subject, _): (Subject, _)| {
        let places = match subject.name {
            "tuning" => &place::TUNING[..],
            "cnitool" => &place::CNITOOL,
            // The rest is host-local's own.
            "bridge" => &place::HOST_LOCAL[..3],
            _ => &place::HOST_LOCAL,
        };
        Stand { subject, ready: on_tmpfs, harms: hostile(places) }
    };
    let mut all: Vec<_> = keepers().into_iter().map(stand).collect();
    let legacy = Subject { name: "bridge, ipMasq, iptables-legacy", ..Subject::guarded("iptables") };
    all.push(Stand { subject: legacy, ready: with_legacy_tools, harms: hostile(&place::XTABLES) });
    all
}

/// Limits of a process, and a kernel that lets nothing be set.
pub fn limits() -> Vec<Stand> {
    let own =
        keepers().into_iter().map(|(subject, _)| subject).filter(|subject| subject.name == "host-local");
    let all = own.chain(
        Subject::all().into_iter().filter(|subject| subject.delegate.is_none() && subject.tools.is_empty()),
    );
    let stand = |subject: Subject| {
        let kernel = ["/proc", "/sys"].map(disk::read_only_kernel);
        let plugin = !subject.is_managed();
        let harms = [limit::memory(plugin), limit::descriptors(), limit::file_size(), kernel.into()];
        Stand { subject, ready: on_tmpfs, harms: harms.into_iter().flatten().collect() }
    };
    all.map(stand).collect()
}
