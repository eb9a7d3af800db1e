//! Whole chains of plugins: their requests, their order, and the cached result.
#![allow(clippy::unwrap_used, reason = "a failure is a failure of the test")]

mod fakes;

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use cni::Version;
use fakes::{Stage, attach, gives, network};
use runtime::{AttachmentParameters, Cache, Decision, Entry, Exec, Invocation, Network, Output, Valid};
use serde_json::{Value, json};

const TWO: &str = r#"{"type": "first"}, {"type": "second", "capabilities": {"portMappings": true}}"#;

fn stage() -> Stage {
    let stage = Stage::new();
    stage.plugin("first", &gives("10.0.0.2/24"));
    stage.plugin("second", &gives("10.0.0.3/24"));
    stage
}

#[test]
fn add_runs_from_first_to_last_and_each_gets_the_result_of_the_one_before() {
    let stage = stage();
    let result = stage.runtime().add(&network("1.1.0", TWO), &attach("c")).unwrap();
    assert_eq!(result.ips[0].address.to_string(), "10.0.0.3/24");
    assert_eq!(stage.calls(), ["first ADD", "second ADD"]);
    let log = stage.log();
    assert!(log[0].request.get("prevResult").is_none());
    assert_eq!(log[1].request["prevResult"]["ips"][0]["address"], "10.0.0.2/24");
    assert_eq!(log[1].request["name"], "net");
}

#[test]
fn del_runs_from_last_to_first_and_each_gets_the_last_result_and_the_arguments_of_the_add() {
    let stage = stage();
    let runtime = stage.runtime();
    let network = network("1.1.0", TWO);
    let added = attach("c").arg("K", "v").capability("portMappings", json!([{"hostPort": 80}]));
    runtime.add(&network, &added).unwrap();
    stage.forget_calls();
    runtime.del(&network, &attach("c")).unwrap();
    assert_eq!(stage.calls(), ["second DEL", "first DEL"]);
    for call in stage.log() {
        assert_eq!(call.request["prevResult"]["ips"][0]["address"], "10.0.0.3/24");
        assert_eq!(call.variables, "c /proc/self/ns/net eth0 K=v");
        let ports =
            call.request.get("runtimeConfig").map(|config| config["portMappings"][0]["hostPort"].clone());
        assert_eq!(ports, (call.plugin == "second").then_some(json!(80)));
    }
    assert!(runtime.results().list().unwrap().is_empty());
}

/// libcni stops at the first plugin that fails, and what the others made is left (containerd/containerd#12130).
#[test]
fn del_continues_after_a_failing_plugin_reports_all_failures_and_can_be_repeated() {
    let stage = stage();
    let runtime = stage.runtime();
    let three = network("1.1.0", r#"{"type": "first"}, {"type": "missing"}, {"type": "second"}"#);
    stage.plugin("missing", &gives("10.0.0.4/24"));
    runtime.add(&three, &attach("c")).unwrap();
    fs::remove_file(stage.path().join("bin/missing")).unwrap();
    stage.plugin("second", r#"echo '{"code": 11, "msg": "not now"}'; exit 1"#);
    stage.forget_calls();

    let error = runtime.del(&three, &attach("c")).unwrap_err();
    assert_eq!(stage.calls(), ["second DEL", "first DEL"]);
    assert_eq!(error.code(), 11);
    let culprits: Vec<_> = error.failures().map(|f| f.plugin.as_ref().unwrap().0.to_string()).collect();
    assert_eq!(culprits, ["second", "missing"]);
    assert_eq!(runtime.results().list().unwrap().len(), 1, "the result stays for the next try");

    stage.plugin("second", "");
    stage.plugin("missing", "");
    runtime.del(&three, &attach("c")).unwrap();
    assert!(runtime.results().list().unwrap().is_empty());
}

#[test]
fn a_collection_that_stops_a_del_early_reports_the_plugin_that_had_failed_before() {
    let stage = stage();
    let runtime = stage.runtime();
    let network = network("1.1.0", TWO);
    runtime.add(&network, &attach("c")).unwrap();
    stage.plugin("second", r#"echo '{"code": 11, "msg": "not now"}'; exit 1"#);
    stage.forget_calls();

    let entry = runtime.results().load(&network.name, &attach("c").attachment).unwrap().unwrap();
    let mut decision = Decision::default();
    decision.delete.push(entry);
    // The container is started again after the first DEL.
    let mut looks = 0;
    let is_still_stale = |_: &Entry| {
        looks += 1;
        looks == 1
    };
    let collected = runtime.collect(
        &network,
        || Ok(decision),
        is_still_stale,
        |_| Ok([].into_iter().collect()),
        |_, _, _| (),
    );
    let error = collected.unwrap().outcome.unwrap_err();
    let calls = stage.calls();
    let deleted: Vec<&str> = calls.iter().map(String::as_str).filter(|call| call.ends_with(" DEL")).collect();
    assert_eq!((error.code(), deleted), (11, vec!["second DEL"]));
}

#[test]
fn a_collection_calls_gc_of_other_vendors_unless_gc_is_disabled_or_a_file_cannot_be_read() {
    for (disable_gc, unreadable) in [(false, false), (true, false), (false, true)] {
        let stage = stage();
        let text = format!(
            r#"{{"cniVersion": "1.1.0", "name": "net", "disableGC": {disable_gc}, "plugins": [{{"type": "first"}}]}}"#
        );
        let network = Network::from_bytes(text.as_bytes()).unwrap();
        let mut decision = Decision::default();
        decision.foreign.insert(network.plugins[0].kind.clone());
        decision.unreadable = unreadable.then(|| "torn".into());
        let decide = || Ok(decision);
        let collected =
            stage.runtime().collect(&network, decide, |_| true, |at| Ok(at.clone()), |_, _, _| ());
        assert_eq!(collected.unwrap().outcome.is_err(), unreadable);
        let has_gc = stage.calls().contains(&"first GC".to_owned());
        assert_eq!(has_gc, !disable_gc && !unreadable, "{disable_gc} {unreadable}");
    }
}

#[test]
fn an_add_that_was_interrupted_while_it_waited_runs_no_plugin() {
    let stage = stage();
    let runtime = stage.runtime().interrupted_by(Arc::new(AtomicBool::new(true)));
    let error = runtime.add(&network("1.1.0", TWO), &attach("c")).unwrap_err();
    assert!(error.to_string().contains("interrupted before plugin first"), "{error}");
    assert_eq!(stage.calls(), [""; 0]);
}

#[test]
fn del_succeeds_with_a_torn_or_empty_result_and_deletes_it() {
    for torn in ["", "{\"kind\": \"cniCac", "{\"kind\": \"other\"}", "[]"] {
        let stage = stage();
        let runtime = stage.runtime();
        let network = network("1.1.0", TWO);
        runtime.add(&network, &attach("c")).unwrap();
        let file = runtime.results().path(&network.name, &attach("c").attachment);
        fs::write(&file, torn).unwrap();
        runtime.del(&network, &attach("c")).unwrap();
        assert!(!file.exists(), "{torn:?}");
        assert_eq!(stage.calls().len(), 4);
    }
}

#[test]
fn del_receives_the_previous_result_only_since_0_4_0() {
    for (version, has) in [("0.3.1", false), ("0.4.0", true)] {
        let stage = stage();
        let runtime = stage.runtime();
        let network = network(version, r#"{"type": "first"}"#);
        runtime.add(&network, &attach("c")).unwrap();
        runtime.del(&network, &attach("c")).unwrap();
        assert_eq!(stage.log()[1].request.get("prevResult").is_some(), has, "{version}");
    }
}

#[test]
fn del_uses_the_configuration_of_the_add_until_its_record_is_deleted() {
    let stage = stage();
    let runtime = stage.runtime();
    runtime
        .add(&network("1.0.0", r#"{"type": "first", "key": 1}, {"type": "second"}"#), &attach("c"))
        .unwrap();
    let today = network("1.1.0", r#"{"type": "first", "key": 2}"#);
    stage.forget_calls();
    stage.plugin("second", r#"echo '{"code": 11, "msg": "not now"}'; exit 1"#);
    let error = runtime.del(&today, &attach("c")).unwrap_err();
    assert_eq!(stage.calls(), ["second DEL", "first DEL"]);
    assert_eq!(
        (&stage.log()[1].request["key"], &stage.log()[1].request["cniVersion"]),
        (&json!(1), &json!("1.0.0"))
    );
    // The new configuration may have been written because the old one cannot be deleted.
    let record = runtime.results().path(&today.name, &attach("c").attachment);
    assert!(error.to_string().contains(&format!("delete {}", record.display())), "{error}");

    fs::remove_file(record).unwrap();
    stage.forget_calls();
    runtime.del(&today, &attach("c")).unwrap();
    assert_eq!(stage.calls(), ["first DEL"]);
    assert_eq!(stage.log()[0].request["key"], 2);
}

/// No cache contains the plugins of the network's directory.
#[test]
fn a_del_without_plugins_fails_and_keeps_the_record() {
    let stage = stage();
    let file = stage.path().join("net.conflist");
    fs::write(&file, r#"{"cniVersion": "1.1.0", "name": "net"}"#).unwrap();
    fs::create_dir(stage.path().join("net")).unwrap();
    fs::write(stage.path().join("net/1.conf"), r#"{"type": "first"}"#).unwrap();
    let (runtime, network) = (stage.runtime(), Network::from_file(&file).unwrap());
    runtime.add(&network, &attach("c")).unwrap();
    let cached = runtime.results().list().unwrap().remove(0).network().unwrap();
    let error = runtime.del(&cached, &attach("c")).unwrap_err();
    assert_eq!(error.code(), cni::Code::InvalidConfig as u32, "{error}");
    assert_eq!(error.failures().count(), 1);
    let record = runtime.results().path(&cached.name, &attach("c").attachment);
    let remedy = format!(
        "restore the plugins in the directory /etc/cni/net.d/net, or delete {} if nothing is left of the attachment",
        record.display()
    );
    assert!(error.to_string().contains(&remedy), "{error}");
    assert_eq!(runtime.add_or_roll_back(&cached, &attach("d")).unwrap_err().failures().count(), 1);
    let gc = runtime.gc(&cached, Valid::Only(&[])).unwrap_err();
    assert_eq!(gc.code(), cni::Code::InvalidConfig as u32, "{gc}");
    assert!(gc.to_string().contains(&remedy), "{gc}");
    assert_eq!(runtime.results().list().unwrap().len(), 1);
    stage.forget_calls();
    runtime.del(&network, &attach("c")).unwrap();
    assert_eq!(stage.calls(), ["first DEL"]);
    assert!(runtime.results().list().unwrap().is_empty());
}

#[test]
fn an_add_stops_at_the_first_failing_plugin_and_one_call_rolls_it_back() {
    let stage = stage();
    stage.plugin("second", r#"[ $CNI_COMMAND = DEL ] || { echo '{"code": 7, "msg": "no"}'; exit 1; }"#);
    let three = network("1.1.0", r#"{"type": "first"}, {"type": "second"}, {"type": "third"}"#);
    stage.plugin("third", "");
    let error = stage.runtime().add_or_roll_back(&three, &attach("c")).unwrap_err();
    assert_eq!((error.code(), error.to_string()), (7, "plugin second (ADD): no".to_owned()));
    assert_eq!(stage.calls(), ["first ADD", "second ADD", "third DEL", "second DEL", "first DEL"]);
}

const FAILS: &str = r#"[ $CNI_COMMAND != ADD ] || { echo '{"code": 999, "msg": "no"}'; exit 1; }"#;

fn attach_as(ifname: &str) -> AttachmentParameters {
    AttachmentParameters::new("c", ifname).unwrap().netns("/proc/self/ns/net")
}

#[test]
fn a_failed_second_add_keeps_the_first_attachment_and_says_so() {
    let stage = stage();
    let runtime = stage.runtime();
    let network = network("1.1.0", TWO);
    runtime.add(&network, &attach_as("lo")).unwrap();
    let record = runtime.results().path(&network.name, &attach_as("lo").attachment);
    for torn in [false, true] {
        if torn {
            fs::write(&record, "torn").unwrap();
        }
        stage.plugin("first", FAILS);
        stage.forget_calls();
        let error = runtime.add_or_roll_back(&network, &attach_as("lo")).unwrap_err();
        assert_eq!(stage.calls(), ["first ADD"]);
        assert!(error.to_string().contains("this ADD was not rolled back"), "{error}");
        assert!(error.to_string().contains(record.to_str().unwrap()), "{error}");
    }
}

/// The DEL of the other network's plugins could delete the interface of the first one.
#[test]
fn a_failed_add_keeps_the_interface_of_an_attachment_to_another_network_and_says_so() {
    let stage = stage();
    let runtime = stage.runtime();
    let first = br#"{"cniVersion": "1.1.0", "name": "pods-a", "plugins": [{"type": "first"}]}"#;
    let first = Network::from_bytes(first).unwrap();
    runtime.add(&first, &attach_as("lo")).unwrap();
    stage.plugin("second", FAILS);
    stage.forget_calls();
    let second = network("1.1.0", r#"{"type": "second"}"#);
    let error = runtime.add_or_roll_back(&second, &attach_as("lo")).unwrap_err();
    assert_eq!(stage.calls(), ["second ADD"]);
    let file = runtime.results().path(&first.name, &attach_as("lo").attachment);
    assert!(error.to_string().contains(file.to_str().unwrap()), "{error}");
    // An attachment of another interface, or one that no longer exists, does not count.
    runtime.add(&first, &attach_as("none0")).unwrap();
    stage.forget_calls();
    for ifname in ["none0", "none1"] {
        runtime.add_or_roll_back(&second, &attach_as(ifname)).unwrap_err();
    }
    assert_eq!(stage.calls(), ["second ADD", "second DEL", "second ADD", "second DEL"]);
}

/// After a reboot, or after the namespace was deleted without a DEL.
#[test]
fn a_failed_add_is_rolled_back_although_the_cache_has_an_attachment_that_no_longer_exists() {
    for (torn, gone) in [(false, false), (true, false), (false, true)] {
        let stage = stage();
        let runtime = stage.runtime();
        let network = network("1.1.0", TWO);
        let file = stage.path().join("namespace");
        fs::write(&file, "").unwrap();
        let ifname = if gone { "lo" } else { "none0" };
        let earlier = if gone { attach_as(ifname).netns(&file) } else { attach_as(ifname) };
        runtime.add(&network, &earlier).unwrap();
        let record = runtime.results().path(&network.name, &earlier.attachment);
        if torn {
            fs::write(&record, "torn").unwrap();
        }
        stage.plugin("second", FAILS);
        stage.forget_calls();
        runtime.add_or_roll_back(&network, &attach_as(ifname)).unwrap_err();
        assert_eq!(stage.calls(), ["first ADD", "second ADD", "second DEL", "first DEL"]);
        assert!(!record.exists());
    }
}

#[test]
fn a_rollback_uses_the_configuration_of_the_failed_add_and_then_that_of_the_stale_attachment() {
    let stage = stage();
    let runtime = stage.runtime();
    runtime.add(&network("1.1.0", r#"{"type": "first"}"#), &attach_as("none0")).unwrap();
    stage.plugin("second", FAILS);
    stage.forget_calls();
    runtime.add_or_roll_back(&network("1.1.0", r#"{"type": "second"}"#), &attach_as("none0")).unwrap_err();
    assert_eq!(stage.calls(), ["second ADD", "second DEL", "first DEL"]);
    assert!(runtime.results().list().unwrap().is_empty());
}

#[test]
fn a_failed_add_keeps_an_attachment_that_another_runtime_has_cached_meanwhile() {
    let stage = stage();
    let runtime = stage.runtime();
    let network = network("1.1.0", TWO);
    runtime.add(&network, &attach_as("none0")).unwrap();
    let record = runtime.results().path(&network.name, &attach_as("none0").attachment);
    stage.plugin("second", &format!("touch -d '1 hour ago' {}; {FAILS}", record.display()));
    stage.forget_calls();
    runtime.add_or_roll_back(&network, &attach_as("none0")).unwrap_err();
    assert_eq!(stage.calls(), ["first ADD", "second ADD"]);
}

#[test]
fn an_attachment_with_a_too_long_name_for_the_cache_is_refused_before_any_plugin_runs() {
    let stage = stage();
    let runtime = stage.runtime();
    let network = network("1.1.0", TWO);
    let length = |longest: usize| longest - "net--eth0".len();
    let fits = attach(&"c".repeat(length(255)));
    runtime.add_or_roll_back(&network, &fits).unwrap();
    runtime.del(&network, &fits).unwrap();
    stage.forget_calls();
    let too_long = attach(&"c".repeat(length(256)));
    let rolled_back = runtime.add_or_roll_back(&network, &too_long).map(|added| added.result);
    for add in [runtime.add(&network, &too_long), rolled_back] {
        let error = add.unwrap_err();
        assert!(error.code() == 4 && error.to_string().contains("256 bytes"), "{error}");
    }
    assert!(stage.log().is_empty());
    runtime.del(&network, &too_long).unwrap();
}

#[test]
fn check_calls_all_plugins_with_the_last_result() {
    let stage = stage();
    let runtime = stage.runtime();
    let network = network("0.4.0", TWO);
    assert_eq!(runtime.check(&network, &attach("c")).unwrap_err().code(), 3);
    runtime.add(&network, &attach("c")).unwrap();
    stage.forget_calls();
    runtime.check(&network, &attach("c")).unwrap();
    assert_eq!(stage.calls(), ["first CHECK", "second CHECK"]);
    let prev = &stage.log()[0].request["prevResult"];
    assert_eq!((&prev["cniVersion"], &prev["ips"][0]["version"]), (&json!("0.4.0"), &json!("4")));
}

#[test]
fn check_needs_0_4_0_and_can_be_disabled() {
    let stage = stage();
    let old = stage.runtime().check(&network("0.3.1", TWO), &attach("c")).unwrap_err();
    assert_eq!(old.code(), 1);
    let text =
        r#"{"cniVersion": "1.0.0", "name": "n", "disableCheck": "true", "plugins": [{"type": "first"}]}"#;
    let disabled = Network::from_bytes(text.as_bytes()).unwrap();
    assert!(!stage.runtime().check(&disabled, &attach("c")).unwrap());
    assert!(stage.calls().is_empty());

    // The key in the configuration of the ADD, and no longer in today's.
    stage.runtime().add(&disabled, &attach("c")).unwrap();
    stage.forget_calls();
    let today = Network::from_bytes(text.replace("true", "false").as_bytes()).unwrap();
    assert!(!stage.runtime().check(&today, &attach("c")).unwrap());
    assert!(stage.log().is_empty());
}

#[test]
fn check_uses_the_configuration_of_the_add_and_says_so_if_it_fails() {
    let stage = stage();
    let runtime = stage.runtime();
    let added = network("1.0.0", r#"{"type": "first", "key": 1}, {"type": "second"}"#);
    runtime.add(&added, &attach("c").arg("K", "v")).unwrap();
    // A plugin that ADD did not call would fail, and one that was removed would not be checked.
    let today = network("0.3.1", r#"{"type": "first", "key": 2}, {"type": "third"}"#);
    stage.forget_calls();
    assert!(runtime.check(&today, &attach("c")).unwrap());
    assert_eq!(stage.calls(), ["first CHECK", "second CHECK"]);
    let call = &stage.log()[0];
    assert_eq!((&call.request["key"], &call.request["cniVersion"]), (&json!(1), &json!("1.0.0")));
    assert_eq!(call.variables, "c /proc/self/ns/net eth0 K=v");

    stage.plugin("second", r#"echo '{"code": 11, "msg": "not now"}'; exit 1"#);
    let used = |network: &Network| {
        let failed = runtime.check(network, &attach("c")).unwrap_err();
        failed.to_string().contains("CHECK used the configuration of the ADD")
    };
    assert!(used(&today) && !used(&added));
}

#[test]
fn a_result_of_any_version_or_without_a_version_is_accepted() {
    for (said, network_version) in [("0.2.0", "0.2.0"), ("1.0.0", "1.1.0"), ("0.3.1", "1.0.0"), ("", "0.4.0")]
    {
        let stage = Stage::new();
        let body = match said {
            "0.2.0" => r#""ip4": {"ip": "10.0.0.2/24"}"#,
            _ => r#""ips": [{"address": "10.0.0.2/24"}]"#,
        };
        let version = if said.is_empty() { String::new() } else { format!(r#""cniVersion": "{said}", "#) };
        stage.plugin("first", &format!("echo '{{{version}{body}}}'"));
        let network = network(network_version, r#"{"type": "first"}"#);
        let result = stage.runtime().add(&network, &attach("c")).unwrap();
        assert_eq!(result.ips[0].address.to_string(), "10.0.0.2/24", "{said} for {network_version}");
        let kept = stage.runtime().results().list().unwrap();
        assert_eq!(kept[0].result["cniVersion"], network_version);
    }
}

#[test]
fn del_and_check_receive_unknown_members_of_the_plugins_result() {
    let stage = Stage::new();
    let interface =
        r#""interfaces": [{"name": "veth1", "mac": "", "pciID": "101", "socketPath": "3", "own": 1}]"#;
    let says = format!("[ $CNI_COMMAND != ADD ] || echo '{{\"cniVersion\": \"1.1.0\", {interface}}}'");
    stage.plugin("first", &says);
    let runtime = stage.runtime();
    let network = network("1.0.0", r#"{"type": "first"}"#);
    let result = runtime.add(&network, &attach("c")).unwrap();
    assert_eq!(result.interfaces[0].pci_id.as_deref(), Some("101"));
    runtime.check(&network, &attach("c")).unwrap();
    runtime.del(&network, &attach("c")).unwrap();
    for call in &stage.log()[1..] {
        let expected: Value =
            serde_json::from_str(&format!(r#"{{"cniVersion": "1.0.0", {interface}}}"#)).unwrap();
        assert_eq!(call.request["prevResult"], expected, "{}", call.command);
    }
}

#[test]
fn a_result_of_another_format_is_converted() {
    let stage = stage();
    stage.runtime().add(&network("0.4.0", TWO), &attach("c")).unwrap();
    let expected = json!({"cniVersion": "0.4.0", "ips": [{"address": "10.0.0.2/24", "version": "4"}]});
    assert_eq!(stage.log()[1].request["prevResult"], expected);
}

#[test]
fn gc_removes_stale_attachments_of_its_network_and_sends_the_plugins_the_valid_ones() {
    let stage = stage();
    let runtime = stage.runtime();
    let network = network("1.1.0", r#"{"type": "first"}"#);
    runtime.add(&network, &attach("alive")).unwrap();
    let gone = stage.path().join("gone");
    fs::write(&gone, "").unwrap();
    runtime.add(&network, &attach("stale").netns(&gone).arg("K", "v")).unwrap();
    let text = r#"{"cniVersion": "1.1.0", "name": "other", "plugins": [{"type": "second"}]}"#;
    runtime.add(&Network::from_bytes(text.as_bytes()).unwrap(), &attach("stale").netns(&gone)).unwrap();
    stage.forget_calls();

    let mut expected = Vec::new();
    runtime
        .gc_with_progress(&network, Valid::Alive(&[]), |done, of, at| {
            expected.push(format!("{done}/{of} {}", at.container))
        })
        .unwrap();
    assert_eq!(expected, ["0/1 stale"]);
    let log = stage.log();
    assert_eq!(stage.calls(), ["first DEL", "first GC"]);
    assert_eq!(log[0].variables, format!("stale {} eth0 K=v", gone.display()));
    assert_eq!(log[1].variables, "   ");
    let valid = json!([{"containerID": "alive", "ifname": "eth0"}]);
    assert_eq!(log[1].request["cni.dev/valid-attachments"], valid);
    assert_eq!(log[1].request["cni.dev/attachments"], valid);
    assert!(log[1].request.get("runtimeConfig").is_none());
}

/// The file of container b-c on network net is also that of container c on network net-b, and may be that of interface c-eth0 of container b.
#[test]
fn gc_detaches_no_attachment_in_libcnis_earliest_format_whose_network_is_uncertain() {
    let stage = stage();
    let runtime = stage.runtime();
    let cases = [
        // A result of version 0.2.0 does not name the interface.
        (json!({"cniVersion": "0.2.0"}), vec![("b-c", "eth0"), ("b", "c-eth0")], vec![("c", "eth0")]),
        (json!({"interfaces": [{"name": "eth0"}]}), vec![("b-c", "eth0")], vec![("c", "eth0")]),
        (json!({"interfaces": [{"name": "eth0", "sandbox": "/no/such/namespace"}]}), vec![], vec![]),
    ];
    let results = stage.path().join("cache/results");
    fs::create_dir_all(&results).unwrap();
    for (result, of_net, of_net_b) in cases {
        fs::write(results.join("net-b-c-eth0"), result.to_string()).unwrap();
        for (name, valid) in [("net", of_net), ("net-b", of_net_b)] {
            let text =
                format!(r#"{{"cniVersion": "1.1.0", "name": "{name}", "plugins": [{{"type": "first"}}]}}"#);
            let network = Network::from_bytes(text.as_bytes()).unwrap();
            for valid in [Valid::Only(&[]), Valid::Containers(&[]), Valid::Alive(&[])] {
                assert!(
                    runtime.plan_gc(&network, valid).unwrap().stale.is_empty(),
                    "{name} {valid:?} {result}"
                );
            }
            let of_cache = runtime.plan_gc(&network, Valid::Alive(&[])).unwrap().valid;
            let of_other = stage.runtime().cache(Cache::new(stage.path().join("empty")));
            let of_other = of_other.plan_gc(&network, Valid::Alive(&[runtime.results().clone()])).unwrap();
            assert!(of_other.stale_elsewhere.is_empty());
            for found in [of_cache, of_other.valid] {
                assert_eq!(found.iter().count(), valid.len(), "{name} {result} {found:?}");
                assert!(
                    valid.iter().all(|(container, ifname)| found.includes(container, ifname)),
                    "{found:?}"
                );
            }
        }
    }
    // The name of this file has no other reading.
    fs::write(results.join("net-c-eth0"), r#"{"cniVersion": "0.2.0"}"#).unwrap();
    let plan = runtime.plan_gc(&network("1.1.0", TWO), Valid::Only(&[])).unwrap();
    let stale: Vec<&str> =
        plan.stale.iter().map(|entry| entry.attach.attachment.container.as_str()).collect();
    assert_eq!(stale, ["c"]);
}

/// libcni takes no lock, so it may start a container again under its id while GC deletes others.
#[test]
fn gc_keeps_an_attachment_that_is_created_again_while_it_runs() {
    let stage = stage();
    let runtime = stage.runtime();
    let network = network("1.1.0", r#"{"type": "first"}"#);
    let gone = stage.path().join("gone");
    fs::write(&gone, "").unwrap();
    for id in ["a", "again", "deleted"] {
        runtime.add(&network, &attach(id).netns(&gone)).unwrap();
    }
    let file = |id: &str| runtime.results().path(&network.name, &attach(id).attachment).display().to_string();
    let script = format!(
        "[ $CNI_COMMAND$CNI_CONTAINERID != DELa ] || {{ touch -d '1 hour ago' {}; rm {}; }}",
        file("again"),
        file("deleted")
    );
    stage.plugin("first", &script);
    stage.forget_calls();
    runtime.gc(&network, Valid::Alive(&[])).unwrap();
    assert_eq!(stage.calls(), ["first DEL", "first GC"]);
    let of = |id: &str| json!({"containerID": id, "ifname": "eth0"});
    let valid = &stage.log()[1].request["cni.dev/valid-attachments"];
    assert_eq!(*valid, json!([of("again"), of("deleted")]));
    assert!(runtime.results().load(&network.name, &attach("again").attachment).unwrap().is_some());
}

#[test]
fn gc_and_a_failed_second_add_keep_an_attachment_whose_namespace_cannot_be_examined() {
    let stage = stage();
    let runtime = stage.runtime();
    let network = network("1.1.0", r#"{"type": "first"}"#);
    // Resolving the link fails (ELOOP), also for root.
    let link = stage.path().join("link");
    std::os::unix::fs::symlink(&link, &link).unwrap();
    let attach = attach("c").netns(&link);
    runtime.add(&network, &attach).unwrap();
    stage.forget_calls();
    runtime.gc(&network, Valid::Alive(&[])).unwrap();
    assert_eq!(stage.calls(), ["first GC"]);
    let valid = &stage.log()[0].request["cni.dev/valid-attachments"];
    assert_eq!(*valid, json!([{"containerID": "c", "ifname": "eth0"}]));

    stage.plugin("first", FAILS);
    stage.forget_calls();
    let error = runtime.add_or_roll_back(&network, &attach).unwrap_err();
    assert_eq!(stage.calls(), ["first ADD"]);
    assert!(error.to_string().contains("this ADD was not rolled back"), "{error}");
}

/// Plugins would free the address of a container that is alive.
#[test]
fn gc_calls_no_plugin_while_a_result_is_unreadable() {
    let stage = stage();
    let runtime = stage.runtime();
    let network = network("1.1.0", TWO);
    runtime.add(&network, &attach("alive")).unwrap();
    let file = runtime.results().path(&network.name, &attach("alive").attachment);
    fs::write(&file, "torn").unwrap();
    stage.forget_calls();
    let error = runtime.gc(&network, Valid::Alive(&[])).unwrap_err();
    assert!(error.code() == 5 && error.to_string().contains("net-alive-eth0"), "{error}");
    assert!(stage.calls().is_empty());
    runtime.gc(&network, Valid::Only(&[])).unwrap();
    assert_eq!(stage.calls(), ["first GC", "second GC"]);
}

#[test]
fn an_add_is_rolled_back_although_a_directory_is_in_place_of_the_result() {
    let stage = stage();
    let runtime = stage.runtime();
    let network = network("1.1.0", TWO);
    fs::create_dir_all(runtime.results().path(&network.name, &attach("c").attachment).join("directory"))
        .unwrap();
    runtime.add_or_roll_back(&network, &attach("c")).unwrap_err();
    assert_eq!(stage.calls(), ["first ADD", "second ADD", "second DEL", "first DEL"]);
}

#[test]
fn gc_with_an_empty_list_removes_all_continues_after_failures_and_can_be_disabled() {
    let stage = stage();
    let runtime = stage.runtime();
    let two = network("1.1.0", TWO);
    runtime.add(&two, &attach("c")).unwrap();
    stage.plugin("first", r#"echo '{"code": 999, "msg": "oh"}'; exit 1"#);
    stage.forget_calls();
    let error = runtime.gc(&two, Valid::Only(&[])).unwrap_err();
    assert_eq!(stage.calls(), ["second DEL", "first DEL", "first GC", "second GC"]);
    assert_eq!(error.failures().count(), 2, "{error}");

    stage.forget_calls();
    stage.plugin("first", "");
    runtime.gc(&network("1.0.0", r#"{"type": "second"}"#), Valid::Only(&[])).unwrap();
    assert_eq!(stage.calls(), ["second DEL", "first DEL"], "GC itself is of 1.1.0");

    let text =
        r#"{"cniVersion": "1.1.0", "name": "net", "disableGC": true, "plugins": [{"type": "second"}]}"#;
    stage.forget_calls();
    runtime.gc(&Network::from_bytes(text.as_bytes()).unwrap(), Valid::Only(&[])).unwrap();
    assert!(stage.calls().is_empty());
}

#[test]
fn gc_deletes_an_attachment_with_the_configuration_of_its_add() {
    let stage = stage();
    let runtime = stage.runtime();
    runtime
        .add(&network("1.0.0", r#"{"type": "first", "key": 1}, {"type": "second"}"#), &attach("c"))
        .unwrap();
    stage.forget_calls();
    runtime.gc(&network("1.1.0", r#"{"type": "first", "key": 2}"#), Valid::Only(&[])).unwrap();
    assert_eq!(stage.calls(), ["second DEL", "first DEL", "first GC"]);
    let log = stage.log();
    assert_eq!((&log[1].request["key"], &log[2].request["key"]), (&json!(1), &json!(2)));
    assert_eq!(
        (&log[1].request["cniVersion"], &log[2].request["cniVersion"]),
        (&json!("1.0.0"), &json!("1.1.0"))
    );
}

/// No cache has the plugins of the directory next to the file.
#[test]
fn gc_also_calls_del_of_the_plugins_in_todays_directory() {
    let stage = stage();
    let runtime = stage.runtime();
    let file = stage.path().join("net.conflist");
    let list = |keys: &str| {
        let text =
            format!(r#"{{"cniVersion": "1.0.0", "name": "net", {keys} "plugins": [{{"type": "first"}}]}}"#);
        fs::write(&file, text).unwrap();
        Network::from_file(&file).unwrap()
    };
    fs::create_dir(stage.path().join("net")).unwrap();
    fs::write(stage.path().join("net/10-second.conf"), r#"{"type": "second"}"#).unwrap();
    runtime.add(&list(""), &attach("c")).unwrap();
    stage.forget_calls();
    runtime.gc(&list(r#""disableCheck": true,"#), Valid::Only(&[])).unwrap();
    assert_eq!(stage.calls(), ["second DEL", "first DEL"]);

    runtime.add(&list(r#""loadOnlyInlinedPlugins": true,"#), &attach("c")).unwrap();
    stage.forget_calls();
    runtime.gc(&list(""), Valid::Only(&[])).unwrap();
    assert_eq!(stage.calls(), ["first DEL"], "the directory was not part of the ADD's configuration");
}

/// The cached configuration may be of another program, or damaged.
#[test]
fn gc_uses_todays_configuration_if_that_of_the_add_is_unusable() {
    let stage = stage();
    let runtime = stage.runtime();
    let file = runtime.results().path(&network("1.0.0", TWO).name, &attach("c").attachment);
    for config in ["", "e30=", "eyJuYW1lIjogIm90aGVyIiwgInR5cGUiOiAic2Vjb25kIn0="] {
        runtime.add(&network("1.0.0", TWO), &attach("c")).unwrap();
        let mut cached: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        cached["config"] = config.into();
        fs::write(&file, cached.to_string()).unwrap();
        stage.forget_calls();
        runtime.gc(&network("1.0.0", r#"{"type": "first"}"#), Valid::Only(&[])).unwrap();
        assert_eq!(stage.calls(), ["first DEL"], "{config}");
    }
}

#[test]
fn status_returns_the_code_of_the_first_failing_plugin_and_needs_1_1_0() {
    let stage = stage();
    stage.plugin("first", r#"echo '{"code": 50, "msg": "pool exhausted"}'; exit 1"#);
    let error = stage.runtime().status(&network("1.1.0", TWO)).unwrap_err();
    assert_eq!((error.code(), stage.calls()), (50, vec!["first STATUS".to_owned()]));
    stage.runtime().status(&network("1.0.0", TWO)).unwrap();
}

#[test]
fn validation_names_every_plugin_that_is_missing_or_does_not_support_the_version() {
    let stage = Stage::new();
    let speaks =
        |versions: &str| format!(r#"echo '{{"cniVersion": "1.1.0", "supportedVersions": {versions}}}'"#);
    stage.plugin("first", &speaks(r#"["0.4.0", "1.0.0"]"#));
    stage.plugin("second", &speaks(r#"["0.4.0", "1.0.0", "1.1.0"]"#));
    stage.plugin("old", r#"echo '{"code": 4, "msg": "unknown CNI_COMMAND: VERSION"}'; exit 1"#);
    let runtime = stage.runtime();
    let error = runtime.validate(&network("1.1.0", &format!(r#"{TWO}, {{"type": "nosuch"}}"#))).unwrap_err();
    let codes: Vec<_> = error.failures().map(|failure| failure.error.code()).collect();
    assert_eq!(codes, [1, 7]);
    assert!(error.to_string().contains(stage.path().join("bin").to_str().unwrap()), "{error}");

    let fitting = network("1.0.0", TWO);
    assert_eq!(runtime.validate(&fitting).unwrap().into_iter().collect::<Vec<_>>(), ["portMappings"]);
    assert_eq!(runtime.versions(&cni::PluginType::parse("old").unwrap()).unwrap(), ["0.1.0"]);
    let request: Value = stage.log()[0].request.clone();
    assert_eq!(request, json!({"cniVersion": "1.1.0"}));
}

#[test]
fn the_highest_version_that_all_plugins_support_is_negotiated() {
    let stage = Stage::new();
    stage.plugin("first", r#"echo '{"supportedVersions": ["0.4.0", "1.0.0"]}'"#);
    let text = r#"{"cniVersion": "0.4.0", "cniVersions": ["1.1.0", "1.0.0"], "name": "n", "plugins": [{"type": "first"}]}"#;
    let network = Network::from_bytes(text.as_bytes()).unwrap();
    assert_eq!(stage.runtime().negotiate(&network).unwrap(), Version::V1_0_0);
}

#[test]
fn check_and_del_use_the_version_that_was_negotiated_for_the_add() {
    let stage = Stage::new();
    let versions = r#"[ $CNI_COMMAND != VERSION ] || echo '{"supportedVersions": ["0.4.0", "1.0.0"]}'"#;
    stage.plugin("first", &format!("{versions}\n{}", gives("10.0.0.2/24")));
    let text = r#"{"cniVersions": ["1.0.0", "1.1.0"], "name": "net", "plugins": [{"type": "first"}]}"#;
    let (runtime, today) = (stage.runtime(), Network::from_bytes(text.as_bytes()).unwrap());
    let mut negotiated = today.clone();
    negotiated.version = runtime.negotiate(&today).unwrap();
    stage.forget_calls();
    runtime.add(&negotiated, &attach("c")).unwrap();
    runtime.check(&today, &attach("c")).unwrap();
    let entry = runtime.results().list().unwrap().remove(0);
    runtime.check_entry(&entry).unwrap();
    assert!(runtime.repair(&[entry]).attachments[0].is_ok());
    runtime.del(&today, &attach("c")).unwrap();
    let (versioned, repair): (Vec<_>, Vec<_>) =
        stage.log().into_iter().partition(|call| call.request.is_object());
    assert_eq!((versioned.len(), repair.len()), (4, 1));
    for call in versioned {
        assert_eq!(call.request["cniVersion"], "1.0.0", "{call:?}");
    }
    assert!(repair[0].variables.contains(r#""cniVersion":"1.0.0""#), "{repair:?}");

    // Only the version differs, so the error must not send the reader to the configuration.
    runtime.add(&negotiated, &attach("c")).unwrap();
    stage.plugin("first", r#"echo '{"code": 11, "msg": "not now"}'; exit 1"#);
    for failed in [runtime.check(&today, &attach("c")).map(drop), runtime.del(&today, &attach("c"))] {
        let failed = failed.unwrap_err();
        assert!(!failed.to_string().contains("today's configuration"), "{failed}");
    }
}

/// A plugin that restores host port 80. For each request, it records the claimed ports and the number of
/// attachments.
#[derive(Clone, Debug, Default)]
struct Restoring(Arc<Mutex<Vec<(Value, usize)>>>);

impl Exec for Restoring {
    fn find(&self, kind: &cni::PluginType, _: &[PathBuf]) -> cni::Result<PathBuf> {
        Ok(kind.as_str().into())
    }

    fn run(&self, invocation: &Invocation<'_>) -> cni::Result<Output> {
        let request: Value = serde_json::from_slice(invocation.stdin).unwrap();
        let attachments = request["attachments"].as_array().unwrap();
        self.0.lock().unwrap().push((request["claimed"].clone(), attachments.len()));
        let reply = |attachment: &Value| json!({"repaired": attachment["claims"] == json!(["tcp 80"])});
        let repairs: Vec<Value> = attachments.iter().map(reply).collect();
        Ok(Output { stdout: json!({"repairs": repairs}).to_string().into(), ..Output::default() })
    }
}

/// Plugins accept documents of 4 MiB.
#[test]
fn a_request_of_a_repair_has_at_most_2000_attachments_and_lists_the_host_ports_restored_before() {
    let stage = stage();
    let network = network("1.1.0", r#"{"type": "first"}"#);
    for (container, port) in [("c", 80), ("d", 81)] {
        let ports = json!([{"hostPort": port, "protocol": "tcp"}]);
        stage.runtime().add(&network, &attach(container).capability("portMappings", ports)).unwrap();
    }
    let mut entries = stage.runtime().results().list().unwrap();
    entries.resize(2_001, entries[1].clone());
    let plugin = Restoring::default();
    let repaired = stage.runtime().exec(plugin.clone()).repair(&entries);
    assert!(repaired.attachments.iter().all(Result::is_ok), "{:?}", repaired.attachments[0]);
    let requests = plugin.0.lock().unwrap();
    assert_eq!(*requests, [(json!([]), 2_000), (json!(["tcp 80"]), 1)]);
}

#[test]
fn plugins_run_in_the_runtimes_own_namespaces() {
    let stage = Stage::new();
    stage.plugin("first", r#"echo "{\"dns\": {\"domain\": \"$(readlink /proc/self/ns/net)\"}}""#);
    let result = stage.runtime().add(&network("1.1.0", r#"{"type": "first"}"#), &attach("c")).unwrap();
    assert_eq!(Some(result.dns.domain.as_str()), fs::read_link("/proc/thread-self/ns/net").unwrap().to_str());
}

#[test]
fn gc_waits_for_a_running_add_and_blocks_new_ones() {
    let stage = Stage::new();
    // A GC that meets an ADD at work leaves a mark.
    let dir = stage.path().display().to_string();
    let met = format!("[ $CNI_COMMAND != GC ] || ! ls -d {dir}/ADD-* >/dev/null 2>&1 || touch {dir}/met");
    let work = format!("mkdir {dir}/$CNI_COMMAND-$$; {met}; sleep 0.05; {met}; rmdir {dir}/$CNI_COMMAND-$$");
    stage.plugin("first", &format!("{work}; {}", gives("10.0.0.2/24")));
    let (runtime, network) = (stage.runtime(), network("1.1.0", r#"{"type": "first"}"#));
    std::thread::scope(|scope| {
        for i in 0..8 {
            let (runtime, network) = (&runtime, &network);
            scope.spawn(move || runtime.add(network, &attach(&format!("c{i}"))).unwrap());
            scope.spawn(move || runtime.gc(network, Valid::Alive(&[])).unwrap());
        }
    });
    assert_eq!(stage.calls().iter().filter(|call| *call == "first GC").count(), 8);
    assert!(!stage.path().join("met").exists());
}

#[test]
fn adds_and_dels_of_one_container_wait_for_each_other() {
    let stage = Stage::new();
    // A plugin that runs while another one does leaves a mark.
    let dir = stage.path().display().to_string();
    let work = format!("mkdir {dir}/alone || touch {dir}/met; sleep 0.05; rmdir {dir}/alone");
    stage.plugin("first", &format!("{work}; {}", gives("10.0.0.2/24")));
    let (runtime, one) = (stage.runtime(), network("1.1.0", r#"{"type": "first"}"#));
    let other = br#"{"cniVersion": "1.1.0", "name": "other", "plugins": [{"type": "first"}]}"#;
    let other = Network::from_bytes(other).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| runtime.add(&one, &attach("c")).unwrap());
            scope.spawn(|| runtime.add_or_roll_back(&other, &attach_as("eth1")).unwrap());
            scope.spawn(|| runtime.del(&one, &attach("c")).unwrap());
        }
    });
    assert_eq!(stage.calls().len(), 12);
    assert!(!stage.path().join("met").exists());
}

#[test]
fn an_add_that_has_waited_for_another_one_says_that_the_container_was_attached() {
    let stage = Stage::new();
    let [came, go] = ["came", "go"].map(|name| stage.path().join(name));
    let wait = format!("touch {}; while ! [ -e {} ]; do sleep 0.01; done", came.display(), go.display());
    stage.plugin("first", &format!("{wait}; {}", gives("10.0.0.2/24")));
    let (runtime, network) = (stage.runtime(), network("1.1.0", r#"{"type": "first"}"#));
    let add = || runtime.add_or_roll_back(&network, &attach_as("lo")).unwrap().earlier;
    std::thread::scope(|scope| {
        let first = scope.spawn(add);
        while !came.exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let second = scope.spawn(add);
        fs::write(&go, "").unwrap();
        assert_eq!(first.join().unwrap(), None);
        let file = runtime.results().path(&network.name, &attach_as("lo").attachment);
        assert_eq!(second.join().unwrap(), Some(file));
    });
}

#[test]
fn a_del_that_is_interrupted_while_it_waits_for_an_add_runs_no_plugin() {
    let stage = Stage::new();
    let [came, go] = ["came", "go"].map(|name| stage.path().join(name));
    let wait = format!("touch {}; while ! [ -e {} ]; do sleep 0.01; done", came.display(), go.display());
    stage.plugin("first", &format!("[ $CNI_COMMAND != ADD ] || {{ {wait}; }}; {}", gives("10.0.0.2/24")));
    let (runtime, network) = (stage.runtime(), network("1.1.0", r#"{"type": "first"}"#));
    let interrupted = runtime.clone().interrupted_by(Arc::new(AtomicBool::new(true)));
    std::thread::scope(|scope| {
        let add = scope.spawn(|| runtime.add(&network, &attach("c")));
        while !came.exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let error = interrupted.del(&network, &attach("c")).unwrap_err();
        assert_eq!(error.code(), cni::Code::Internal as u32, "{error}");
        // Those of another container do not wait.
        runtime.del(&network, &attach("d")).unwrap();
        fs::write(&go, "").unwrap();
        add.join().unwrap().unwrap();
    });
    assert_eq!(stage.calls(), ["first ADD", "first DEL"]);
    // The flag does not stop a DEL that need not wait, such as the one after a failed ADD. A process that another test forks at this moment has
    // the lock until it starts its program.
    while interrupted.del(&network, &attach("c")).is_err() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(stage.calls(), ["first ADD", "first DEL", "first DEL"]);
}

#[test]
fn two_hundred_attachments_by_sixteen_workers_leave_two_hundred_results() {
    let stage = stage();
    let runtime = stage.runtime();
    let network = network("1.1.0", r#"{"type": "first"}"#);
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                while let i @ 0..200 = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
                    runtime.add(&network, &attach(&format!("c{i}"))).unwrap();
                }
            });
        }
    });
    assert_eq!(runtime.results().list().unwrap().len(), 200);
    runtime.gc(&network, Valid::Only(&[])).unwrap();
    assert!(runtime.results().list().unwrap().is_empty());
}
