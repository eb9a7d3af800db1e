//! GC after a reboot: no container has survived the reboot, whatever the caches contain and however young they are.

use std::fs;
use std::path::PathBuf;
use std::{process, thread};

use lab::{Lab, Tool, beyond_reference, ours, quoted};
use serde_json::{Value, json};

use crate::common::{self, host_local, leases, sleeper, started_earlier};

/// Each test has different addresses, because GC looks for them on the whole machine.
fn network(net: u8) -> Value {
    let plugin =
        json!({"type": "bridge", "bridge": "br0", "ipam": host_local(&[&[&format!("10.212.{net}.0/24")]])});
    json!({"cniVersion": "1.1.0", "name": "net", "plugins": [plugin]})
}

fn configured(net: u8) -> Option<(Lab, Tool)> {
    let lab = Lab::new();
    if !fs::exists("/proc/self/ns/time").unwrap() {
        lab::skip("the kernel has no time namespaces");
        return None;
    }
    lab.configure("10-net.conflist", &network(net));
    // The machine may have started a minute ago.
    let tool = lab.cnitool().under(&started_earlier(3600));
    Some((lab, tool))
}

fn after_a_reboot(tool: &Tool) -> Tool {
    tool.clone().under(&common::after_a_reboot())
}

fn cached(id: &str) -> PathBuf {
    format!("/var/lib/cni/results/net-{id}-eth0").into()
}

/// Sets the time of the ADD to ten minutes ago: younger than an hour, and before the reboot.
fn ages(lab: &Lab, id: &str) {
    lab.host().sh(&format!("touch -d '10 minutes ago' {}", cached(id).display()));
}

fn gone(lab: &Lab, pods: &[&lab::Container]) {
    pods.iter().for_each(|pod| pod.vanish());
    lab.host().wait_until("the pairs are gone", |host| host.ip("link show master br0").is_empty());
}

#[test]
fn older_than_does_not_keep_attachments_from_before_a_reboot() {
    beyond_reference!("gc");
    let Some((lab, tool)) = configured(21) else { return };
    let pods = ["before-reboot", "after-reboot"].map(|id| lab.container(id));
    ["before-reboot", "after-reboot"]
        .iter()
        .for_each(|id| drop(tool.says(&format!("add net {id} --container-id {id}"))));
    gone(&lab, &[&pods[0], &pods[1]]);
    ages(&lab, "before-reboot");
    tool.says("gc net --older-than 1h");
    assert_eq!(leases(), ["10.212.21.2", "10.212.21.3"]);
    after_a_reboot(&tool).says("gc net --older-than 1h");
    assert_eq!(leases(), ["10.212.21.3"], "its file is from after the reboot");
}

/// A loss of power leaves the files that libcni was writing empty.
#[test]
fn a_torn_result_from_before_a_reboot_keeps_nothing() {
    beyond_reference!("gc");
    let Some((lab, tool)) = configured(22) else { return };
    let pod = lab.container("torn-by-reboot");
    tool.says("add net torn-by-reboot --container-id torn-by-reboot");
    gone(&lab, &[&pod]);
    fs::write(cached("torn-by-reboot"), "").unwrap();
    ages(&lab, "torn-by-reboot");
    tool.says("gc net");
    // A file of another program contains no attachment either, but it is not truncated JSON.
    fs::write(cached("foreign"), "a note of the administrator").unwrap();
    ages(&lab, "foreign");
    tool.says("gc net");
    assert!(leases() == ["10.212.22.2"] && cached("torn-by-reboot").exists(), "the container may be alive");
    let listed = after_a_reboot(&tool).says("gc net --dry-run");
    assert!(listed.contains("truncated result") && cached("torn-by-reboot").exists(), "{listed}");
    after_a_reboot(&tool).says("gc net");
    assert!(leases().is_empty(), "{:?}", leases());
    assert!(!cached("torn-by-reboot").exists() && cached("foreign").exists());
}

/// libcni before 1.2.0 writes no path, and the plugins of some vendors return none.
#[test]
fn a_result_without_the_path_of_a_namespace_keeps_nothing_after_a_reboot() {
    beyond_reference!("gc");
    let Some((lab, tool)) = configured(25) else { return };
    let [dead, alive] = ["dead-without-path", "alive-without-path"].map(|id| lab.container(id));
    for id in ["dead-without-path", "alive-without-path"] {
        tool.says(&format!("add net {id} --container-id {id}"));
        let mut cache: Value = serde_json::from_slice(&fs::read(cached(id)).unwrap()).unwrap();
        cache.as_object_mut().unwrap().remove("netns");
        cache["result"]["interfaces"].as_array_mut().unwrap().clear();
        cache["result"]["ips"][0].as_object_mut().unwrap().remove("interface");
        fs::write(cached(id), cache.to_string()).unwrap();
        ages(&lab, id);
    }
    dead.vanish();
    lab.host().wait_until("the pair is gone", |host| host.ip("link show master br0").len() == 1);
    tool.says("gc net");
    assert_eq!(leases(), ["10.212.25.2", "10.212.25.3"], "without a reboot, the container may run");
    // Other tests create and delete namespaces. If this happens while GC inspects the machine, it treats nothing as stale.
    for _ in 0..30 {
        after_a_reboot(&tool).says("gc net");
        if leases().len() < 2 {
            break;
        }
    }
    assert_eq!(leases(), ["10.212.25.3"]);
    assert!(alive.link("eth0").is_some() && cached("alive-without-path").exists());
}

/// The DEL of another container waits until the ADD has written the file.
#[test]
fn a_torn_result_that_an_add_writes_again_during_gc_stays() {
    const AGAIN: &str = "torn-and-added-again";
    beyond_reference!("gc");
    let Some((lab, tool)) = configured(24) else { return };
    let waits = format!(
        "[ \"$CNI_COMMAND $CNI_CONTAINERID\" != 'DEL deleted-meanwhile' ] || {{
            touch /run/lab/asked; while kill -0 $PPID && ! [ -e /run/lab/go ]; do sleep 0.01; done
        }}
        exec {} \"$@\"",
        quoted(&ours().join("tuning"))
    );
    lab.fake_plugin("waits", &waits);
    let mut network = network(24);
    network["plugins"].as_array_mut().unwrap().push(json!({"type": "waits"}));
    lab.configure("10-net.conflist", &network);
    let [dead, alive] = ["deleted-meanwhile", AGAIN].map(|id| lab.container(id));
    for id in ["deleted-meanwhile", AGAIN] {
        tool.says(&format!("add net {id} --container-id {id}"));
    }
    dead.vanish();
    lab.host().wait_until("the pair is gone", |host| host.ip("link show master br0").len() == 1);
    let entry = fs::read(cached(AGAIN)).unwrap();
    fs::write(cached(AGAIN), "").unwrap();
    ages(&lab, AGAIN);
    let listed = after_a_reboot(&tool).says("gc net --dry-run");
    assert!(listed.contains("truncated result"), "{listed}");
    let collected = thread::scope(|scope| {
        let gc = scope.spawn(|| after_a_reboot(&tool).says("gc net"));
        lab.host().wait_until("the DEL is running", |_| fs::exists("/run/lab/asked").unwrap());
        fs::write(cached(AGAIN), &entry).unwrap();
        fs::write("/run/lab/go", "").unwrap();
        gc.join().unwrap()
    });
    assert!(cached(AGAIN).exists(), "the result of a running container was deleted: {collected}");
    assert_eq!(leases(), ["10.212.24.3"], "GC has done its work");
    assert!(alive.link("eth0").is_some());
}

/// Changes the cached namespace to that of another process, as if this process had got the same id.
fn is_reused(id: &str, by: u32) {
    let file = cached(id);
    let mut cache: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    cache["netns"] = format!("/proc/{by}/ns/net").into();
    fs::write(file, cache.to_string()).unwrap();
}

#[test]
fn after_a_reboot_a_reused_process_id_keeps_no_stale_attachment_and_its_process_keeps_its_network() {
    beyond_reference!("gc");
    let Some((lab, tool)) = configured(23) else { return };
    let [dead, later, other, hidden] =
        ["of-reused-pid", "of-sleepers-pid", "other", "hidden"].map(|id| lab.container(id));
    let of_other = sleeper(&lab, "other");
    for id in ["of-reused-pid", "of-sleepers-pid", "other"] {
        tool.says(&format!("add net {id} --container-id {id}"));
    }
    tool.says("add net hidden --container-id x7f8");
    // No link of the host leads to `hidden`, and the namespace does not have the container's name.
    hidden.sh(
        "ip link del eth0; ip link add eth0 type veth peer name far; ip addr add 10.212.23.5/24 dev eth0",
    );
    dead.vanish();
    later.vanish();
    lab.host().wait_until("the pairs are gone", |host| host.ip("link show master br0").len() == 1);
    for (id, by) in
        [("of-reused-pid", process::id()), ("of-sleepers-pid", of_other.id()), ("x7f8", process::id())]
    {
        is_reused(id, by);
        ages(&lab, id);
    }
    let all = ["10.212.23.2", "10.212.23.3", "10.212.23.4", "10.212.23.5"];
    tool.says("gc net");
    assert_eq!(leases(), all, "without a reboot, the process may be the container's");
    // Other tests create and delete namespaces. If this happens while GC inspects the machine, it treats nothing as stale.
    for _ in 0..30 {
        after_a_reboot(&tool).says("gc net");
        if leases().len() <= 2 {
            break;
        }
    }
    // GC finds the address of `hidden`, and keeps the attachment although the cache is older than the reboot.
    assert_eq!(leases(), all[2..]);
    assert!(other.link("eth0").is_some() && hidden.link("eth0").is_some());
    assert!(!cached("of-reused-pid").exists() && !cached("of-sleepers-pid").exists());
}
