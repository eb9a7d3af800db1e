//! Pods with several networks.
#![allow(clippy::unwrap_used, reason = "a failure is a failure of the test")]

mod fakes;

use std::fs;
use std::thread;
use std::time::Duration;

use cni::{ContainerId, IfName};
use fakes::{Stage, gives};
use runtime::{ConfDir, Network, NetworkRequest, Pod, Pods};

fn network(name: &str, plugin: &str) -> Network {
    let text = format!(r#"{{"cniVersion": "1.1.0", "name": "{name}", "plugins": [{{"type": "{plugin}"}}]}}"#);
    Network::from_bytes(text.as_bytes()).unwrap()
}

fn stage() -> Stage {
    let stage = Stage::new();
    stage.plugin("good", &gives("10.0.0.2/24"));
    stage
}

fn pod(id: &str) -> Pod {
    Pod::new(id, "/proc/self/ns/net").unwrap()
}

/// `PLUGIN COMMAND INTERFACE`
fn calls(stage: &Stage) -> Vec<String> {
    let interface = |variables: &str| variables.split(' ').nth(2).unwrap_or_default().to_owned();
    stage.log().iter().map(|c| format!("{} {} {}", c.plugin, c.command, interface(&c.variables))).collect()
}

#[test]
fn interfaces_get_the_first_free_names_in_the_order_of_the_networks() {
    let stage = stage();
    let second = NetworkRequest {
        ifname: Some(IfName::parse("eth0").unwrap()),
        ..NetworkRequest::from(network("b", "good"))
    };
    let pod = pod("p").join(network("a", "good")).join(second).join(network("c", "good"));
    let attached = Pods::new(stage.runtime()).set_up(&pod).unwrap();
    let names: Vec<String> = attached.iter().map(|p| format!("{} {}", p.network, p.ifname)).collect();
    assert_eq!(names, ["a eth1", "b eth0", "c eth2"]);

    let same = NetworkRequest {
        ifname: Some(IfName::parse("x").unwrap()),
        ..NetworkRequest::from(network("b", "good"))
    };
    let error = Pods::new(stage.runtime()).set_up(&self::pod("q").join(same.clone()).join(same)).unwrap_err();
    assert!(error.to_string().contains("two networks have the interface name x"), "{error}");
}

#[test]
fn if_one_network_fails_the_whole_pod_is_detached_in_reverse_order() {
    let stage = stage();
    stage.plugin("bad", r#"[ $CNI_COMMAND = DEL ] || { echo '{"code": 999, "msg": "no"}'; exit 1; }"#);
    let pods = Pods::new(stage.runtime());
    let pod = pod("p").join(network("a", "good")).join(network("b", "bad")).join(network("c", "good"));
    let error = pods.set_up(&pod).unwrap_err();
    assert!(error.to_string().contains("network b: no"), "{error}");
    assert_eq!(calls(&stage), ["good ADD eth0", "bad ADD eth1", "bad DEL eth1", "good DEL eth0"]);
    assert!(stage.runtime().results().list().unwrap().is_empty());
}

#[test]
fn a_failed_set_up_keeps_the_attachments_of_an_earlier_one() {
    let stage = stage();
    let on = |ifname: &str, network: Network| NetworkRequest {
        ifname: Some(IfName::parse(ifname).unwrap()),
        ..NetworkRequest::from(network)
    };
    let pods = Pods::new(stage.runtime());
    let pod = pod("p").join(on("lo", network("a", "good")));
    pods.set_up(&pod).unwrap();
    stage.forget_calls();
    stage.plugin("bad", r#"[ $CNI_COMMAND = DEL ] || { echo '{"code": 999, "msg": "no"}'; exit 1; }"#);
    let pod = pod.join(on("none0", network("b", "good"))).join(on("none1", network("c", "bad")));
    pods.set_up(&pod).unwrap_err();
    let expected = ["good ADD lo", "good ADD none0", "bad ADD none1", "bad DEL none1", "good DEL none0"];
    assert_eq!(calls(&stage), expected);

    stage.forget_calls();
    stage.plugin("good", r#"echo '{"code": 999, "msg": "lo exists"}'; exit 1"#);
    let error = pods.set_up(&pod).unwrap_err();
    assert_eq!(calls(&stage), ["good ADD lo"]);
    assert!(error.to_string().contains("not rolled back"), "{error}");
}

#[test]
fn tear_down_continues_after_failures_and_finds_networks_that_are_only_in_the_cache() {
    let stage = stage();
    let pods = Pods::new(stage.runtime());
    pods.set_up(&pod("p").join(network("a", "good")).join(network("b", "good"))).unwrap();
    pods.check(&pod("p").join(network("a", "good"))).unwrap();
    stage.forget_calls();
    pods.tear_down(&pod("p").join(network("a", "good"))).unwrap();
    assert_eq!(calls(&stage), ["good DEL eth1", "good DEL eth0"]);

    pods.set_up(&pod("p").join(network("a", "good")).join(network("b", "good"))).unwrap();
    fs::remove_file(stage.path().join("bin/good")).unwrap();
    let error = pods.tear_down(&pod("p").join(network("a", "good")).join(network("b", "good"))).unwrap_err();
    assert_eq!(error.failures().count(), 2);
}

#[test]
fn tear_down_detaches_no_other_pod() {
    let stage = stage();
    let pods = Pods::new(stage.runtime());
    let [p, q] = ["p", "q"].map(|id| pod(id).join(network("a", "good")));
    pods.set_up(&p).unwrap();
    pods.set_up(&q).unwrap();
    stage.forget_calls();
    pods.tear_down(&p).unwrap();
    assert_eq!(calls(&stage), ["good DEL eth0"]);
    let left = stage.runtime().results().list().unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].attach.attachment.container.as_str(), "q");
}

/// No cache contains these plugins.
#[test]
fn tear_down_calls_the_plugins_in_the_directory_of_a_network_that_the_pod_no_longer_lists() {
    let stage = stage();
    stage.plugin("further", &gives("10.0.0.2/24"));
    let networks = stage.path().join("net.d");
    fs::create_dir_all(networks.join("a")).unwrap();
    fs::write(networks.join("10-a.conflist"), network("a", "good").bytes()).unwrap();
    fs::write(networks.join("a/10.conf"), r#"{"type": "further"}"#).unwrap();
    let networks = ConfDir::new(networks);
    let pods = Pods::new(stage.runtime()).networks(networks.clone());
    pods.set_up(&pod("p").join(networks.find("a").unwrap())).unwrap();
    stage.forget_calls();
    pods.tear_down(&pod("p")).unwrap();
    assert_eq!(calls(&stage), ["further DEL eth0", "good DEL eth0"]);
}

/// The runtime's own lock excludes ADDs and DELs of a container from each other, but not CHECK.
#[test]
fn operations_on_one_pod_wait_for_each_other() {
    let stage = Stage::new();
    stage.plugin("slow", &format!("sleep 0.01; {}", gives("10.0.0.2/24")));
    let pods = Pods::new(stage.runtime());
    let pod = pod("p").join(network("a", "slow")).join(network("b", "slow"));
    pods.set_up(&pod).unwrap();
    thread::scope(|scope| {
        for _ in 0..3 {
            // After a DEL, CHECK fails and calls no plugin.
            scope.spawn(|| pods.check(&pod).ok());
            scope.spawn(|| pods.set_up(&pod).unwrap());
            scope.spawn(|| pods.tear_down(&pod).unwrap());
        }
    });
    let complete = [
        ["slow ADD eth0", "slow ADD eth1"],
        ["slow CHECK eth0", "slow CHECK eth1"],
        ["slow DEL eth1", "slow DEL eth0"],
    ];
    let calls = calls(&stage);
    for operation in calls.chunks(2) {
        assert!(complete.iter().any(|complete| operation == complete), "{calls:?}");
    }
}

#[test]
fn gc_keeps_resources_of_live_pods() {
    let stage = stage();
    let pods = Pods::new(stage.runtime());
    let a = network("a", "good");
    for id in ["alive", "gone"] {
        pods.set_up(&pod(id).join(a.clone())).unwrap();
    }
    pods.gc([&a], &[ContainerId::parse("alive").unwrap()]).unwrap();
    let left = stage.runtime().results().list().unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].attach.attachment.container.as_str(), "alive");
}

#[test]
fn gc_keeps_a_live_pod_whose_set_up_ends_while_gc_waits() {
    let stage = Stage::new();
    let [came, go] = ["came", "go"].map(|name| stage.path().join(name));
    let wait = format!("touch {}; while ! [ -e {} ]; do sleep 0.01; done", came.display(), go.display());
    stage.plugin("slow", &format!("[ $CNI_COMMAND != ADD ] || {{ {wait}; }}; {}", gives("10.0.0.2/24")));
    let pods = Pods::new(stage.runtime());
    let net = network("net", "slow");
    thread::scope(|scope| {
        scope.spawn(|| pods.set_up(&pod("new").join(net.clone())).unwrap());
        while !came.exists() {
            thread::sleep(Duration::from_millis(5));
        }
        let gc = scope.spawn(|| pods.gc([&net], &[ContainerId::parse("new").unwrap()]).unwrap());
        // GC reads the cache, if it does so before it waits.
        thread::sleep(Duration::from_millis(200));
        fs::write(&go, "").unwrap();
        gc.join().unwrap();
    });
    assert_eq!(calls(&stage), ["slow ADD eth0", "slow GC "]);
    assert_eq!(stage.log()[1].request["cni.dev/valid-attachments"][0]["containerID"], "new");
}

/// A truncated file, and one in libcni's earliest format. Interface names may contain hyphens.
#[test]
fn gc_keeps_live_pods_whose_files_in_the_cache_do_not_name_them() {
    for text in ["torn", r#"{"cniVersion": "0.2.0", "ip4": {"ip": "10.0.0.2/24"}}"#] {
        let stage = stage();
        let pods = Pods::new(stage.runtime());
        let net = network("net", "good");
        let request = NetworkRequest {
            ifname: Some(IfName::parse("my-if").unwrap()),
            ..NetworkRequest::from(net.clone())
        };
        for id in ["alive", "gone"] {
            pods.set_up(&pod(id).join(request.clone())).unwrap();
            fs::write(stage.path().join(format!("cache/results/net-{id}-my-if")), text).unwrap();
        }
        stage.forget_calls();
        pods.gc([&net], &[ContainerId::parse("alive").unwrap()]).unwrap();
        let log = stage.log();
        assert!(log.iter().all(|call| !call.variables.contains("alive")), "{:?}", calls(&stage));
        let valid = &log.last().unwrap().request["cni.dev/valid-attachments"];
        assert_eq!(*valid, serde_json::json!([{"containerID": "alive", "ifname": "my-if"}]));
    }
}
