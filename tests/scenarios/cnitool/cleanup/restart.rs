//! A runtime starts containers again under their old ids while GC deletes their stale attachments.

use std::fs;
use std::thread;

use lab::{Container, Lab, Tool, beyond_reference, ours, quoted};
use serde_json::{Value, json};

use crate::common::{cable, ports};

/// libcni takes no lock: a cache directory with cnitool's results and another lock.
const LIBCNI: &str = "--cache-dir /run/lab/libcni";

/// A network whose last plugin waits: in DEL of a container `first-*` until the file `go` exists, and in ADD of the container `starts-late`
/// while the file `hold` exists. Otherwise the plugin is tuning.
fn configure(lab: &Lab) {
    lab.host()
        .sh("mkdir -p /run/lab/libcni /var/lib/cni/results; ln -s /var/lib/cni/results /run/lab/libcni/");
    let waits = format!(
        r#"case "$CNI_COMMAND $CNI_CONTAINERID" in
        "DEL first-"*) touch /run/lab/asked; while kill -0 $PPID && ! [ -e /run/lab/go ]; do sleep 0.01; done ;;
        "ADD starts-late") [ ! -e /run/lab/hold ] || touch /run/lab/held
            while kill -0 $PPID && [ -e /run/lab/hold ]; do sleep 0.01; done ;;
        esac
        exec {} "$@""#,
        quoted(&ours().join("tuning"))
    );
    lab.fake_plugin("waits", &waits);
    // No link of the host leads to the container, so only the cache and the running plugin show that it is alive.
    cable(lab);
    let ipam = json!({"type": "static"});
    let macvlan = json!({"type": "macvlan", "master": "cable", "ipam": ipam, "capabilities": {"ips": true}});
    let plugins = json!([macvlan, ports(), {"type": "waits"}]);
    lab.configure("10-net.conflist", &json!({"cniVersion": "1.1.0", "name": "net", "plugins": plugins}));
}

fn add(netns: &str, id: &str, host: u8) -> String {
    format!("add net {netns} --container-id {id} -p 82{host:02}:80 --ip 10.216.1.{host}/24")
}

/// Whether the container has its interface, and the host its rules.
#[track_caller]
fn has_everything(lab: &Lab, pod: &Container, id: &str, host: u8) {
    let rules = lab.host().sh("nft list ruleset");
    assert!(pod.link("eth0").is_some(), "the interface of {id} was deleted");
    assert!(rules.contains(&format!("82{host:02}")), "the host port of {id} was deleted: {rules}");
    assert!(rules.contains(&format!("net/{id}/eth0")), "a rule of {id} was deleted: {rules}");
}

#[track_caller]
fn removed_nothing_of(report: &Value, ids: &[&str]) {
    for thing in report["things"].as_array().unwrap() {
        assert!(!ids.contains(&thing["containerID"].as_str().unwrap()), "{report:#}");
    }
}

/// Waits until the DEL of the first container is running. Then only a second look protects the others.
fn gc_meanwhile(lab: &Lab, tool: &Tool, restart: impl FnOnce()) -> Value {
    thread::scope(|scope| {
        let gc = scope.spawn(|| tool.json("gc net"));
        lab.host().wait_until("the first DEL is under way", |_| fs::exists("/run/lab/asked").unwrap());
        restart();
        fs::write("/run/lab/go", "").unwrap();
        gc.join().unwrap()
    })
}

#[test]
fn containers_that_start_again_under_their_ids_keep_everything_while_gc_deletes_others() {
    beyond_reference!("gc");
    let lab = Lab::new();
    configure(&lab);
    let tool = lab.cnitool();
    for (id, host) in [("first-of-three", 2), ("restarted", 3), ("starts-late", 4)] {
        let pod = lab.container(id);
        tool.says(&add(id, id, host));
        pod.vanish();
    }
    fs::write("/run/lab/hold", "").unwrap();
    // A runtime creates a new namespace for each start.
    let [restarted, starting] = ["restarted2", "starts-late2"].map(|id| lab.container(id));
    let mut adding = None;
    let report = gc_meanwhile(&lab, &tool, || {
        tool.says(&format!("del net /run/netns/restarted --container-id restarted {LIBCNI}"));
        tool.says(&format!("{} {LIBCNI}", add("restarted2", "restarted", 3)));
        adding = Some(tool.spawn(&format!("{} {LIBCNI}", add("starts-late2", "starts-late", 4))));
        lab.host().wait_until("an ADD is under way", |_| fs::exists("/run/lab/held").unwrap());
    });
    let ids = ["restarted", "starts-late"];
    let later = tool.json("gc net");
    for (report, why) in [(report, "kept: changed during this GC"), (later, "kept: is being started")] {
        removed_nothing_of(&report, &ids);
        has_everything(&lab, &restarted, "restarted", 3);
        has_everything(&lab, &starting, "starts-late", 4);
        let kept = report["kept"].as_array().unwrap();
        assert!(
            kept.iter().any(|one| one["containerID"] == "starts-late" && one["why"] == why),
            "{report:#}"
        );
    }
    assert!(!lab.host().sh("nft list ruleset").contains("net/first-of-three/"), "GC has done its work");
    fs::remove_file("/run/lab/hold").unwrap();
    assert!(adding.unwrap().wait().unwrap().success());
    for id in ids {
        tool.says(&format!("check net {id}2 --container-id {id}"));
        tool.says(&format!("del net {id}2 --container-id {id}"));
    }
}

#[test]
fn a_container_that_starts_again_during_its_own_del_keeps_everything() {
    beyond_reference!("gc");
    let lab = Lab::new();
    configure(&lab);
    let tool = lab.cnitool();
    let pod = lab.container("first-and-only");
    tool.says(&add("first-and-only", "first-and-only", 2));
    pod.vanish();
    let again = lab.container("first-and-only2");
    let report = gc_meanwhile(&lab, &tool, || {
        tool.says(&format!("{} {LIBCNI}", add("first-and-only2", "first-and-only", 2)));
    });
    for report in [report, tool.json("gc net")] {
        removed_nothing_of(&report, &["first-and-only"]);
        has_everything(&lab, &again, "first-and-only", 2);
    }
    tool.says("check net first-and-only2 --container-id first-and-only");
    tool.says("del net first-and-only2 --container-id first-and-only");
}

/// No later plugin's DEL looks at the cache again.
#[test]
fn a_container_that_starts_again_during_the_del_of_its_only_plugin_keeps_its_file_in_the_cache() {
    beyond_reference!("gc");
    let lab = Lab::new();
    configure(&lab);
    let alone = r#"case "$CNI_COMMAND" in
        ADD) echo '{"cniVersion": "1.1.0"}' ;;
        DEL) touch /run/lab/asked; while kill -0 $PPID && ! [ -e /run/lab/go ]; do sleep 0.01; done ;;
        esac"#;
    lab.fake_plugin("alone", alone);
    lab.configure(
        "10-net.conflist",
        &json!({"cniVersion": "1.1.0", "name": "net", "plugins": [{"type": "alone"}]}),
    );
    let tool = lab.cnitool();
    let pod = lab.container("first-alone");
    tool.says("add net first-alone --container-id first-alone");
    pod.vanish();
    lab.container("first-alone2");
    let report = gc_meanwhile(&lab, &tool, || {
        tool.says(&format!("add net first-alone2 --container-id first-alone {LIBCNI}"));
    });
    removed_nothing_of(&report, &["first-alone"]);
    let cached = fs::read_to_string("/var/lib/cni/results/net-first-alone-eth0").unwrap();
    assert!(cached.contains("/run/netns/first-alone2"), "{cached}");
}
