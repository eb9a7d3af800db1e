//! What happens to which plugin.

use std::fs;

use serde_json::json;

use super::harm::{Stand, TOOL};
use super::place::{self, hostile};
use super::subject::Subject;
use super::{disk, limit};
use crate::under_test::ours;
use crate::{Feature, Lab, under_test};

/// host-local by itself.
fn host_local() -> Subject {
    let host_local = json!({"type": "host-local", "ipam": {
        "type": "host-local", "resolvConf": "/etc/cni/resolv.conf", "resetOnReboot": true,
        "ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "fd00:1:2::/64"}]],
    }});
    Subject { name: "host-local", plugins: vec![host_local], ..Subject::bridge() }
}

/// cnitool, which keeps results.
fn cnitool() -> Subject {
    Subject { name: "cnitool", plugins: vec![json!({"type": TOOL})], ..Subject::bridge() }
}

/// Calls cnitool as a plugin is called, and answers as one.
const AS_A_PLUGIN: &str = r#"
verb=$(printf %s "$CNI_COMMAND" | tr A-Z a-z)
[ "$verb" != version ] || exec $UNDER "$CNITOOL" version
attachment="$CNI_NETNS --container-id $CNI_CONTAINERID"
[ "$verb" != status ] || attachment=
if [ "$verb" = add ]; then exec 3>&1; else exec 3>/dev/null; fi
errors=$($UNDER "$CNITOOL" "$verb" --output json net $attachment 2>&1 >&3 3>&-)
status=$?
[ $status = 0 ] && exit
printf %s "$errors" | sed '1s/^{/{"cniVersion": "1.1.0",/'
[ $status -gt 51 ] && exit $status || exit 1"#;

fn ready(lab: &Lab) {
    limit::ready(lab);
    fs::write("/etc/cni/resolv.conf", "nameserver 9.9.9.9\n").expect("write a resolv.conf");
    fs::create_dir_all("/etc/cni/tuning").expect("create a folder");
    fs::write("/etc/cni/tuning/allowlist.conf", "^net\\.\n").expect("write an allowlist");
    let conflist = json!({"cniVersion": "1.1.0", "name": "net", "plugins": Subject::bridge().plugins});
    lab.configure("net.conflist", &conflist);
    let cnitool = ours().join("cnitool");
    lab.fake_plugin(TOOL, &format!("CNITOOL={}\n{AS_A_PLUGIN}", cnitool.display()));
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
        (cnitool(), "/var/lib/cni"),
    ];
    // cnitool is ours, whoever is under test.
    all.into_iter()
        .filter(|(subject, _)| !under_test().reference || subject.target()["type"] != TOOL)
        .collect()
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
    let own = keepers()
        .into_iter()
        .map(|(subject, _)| subject)
        .filter(|s| ["host-local", "cnitool"].contains(&s.name));
    let all = own.chain(Subject::all().into_iter().filter(|subject| subject.delegate.is_none()));
    let stand = |subject: Subject| {
        let kernel = ["/proc", "/sys"].map(disk::read_only_kernel);
        let plugin = subject.target()["type"] != TOOL;
        let harms = [limit::memory(plugin), limit::descriptors(), limit::file_size(), kernel.into()];
        Stand { subject, ready: on_tmpfs, harms: harms.into_iter().flatten().collect() }
    };
    all.map(stand).collect()
}
