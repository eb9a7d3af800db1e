//! GC of the specification, which `cnitool gc --force PLUGIN` sends to plugins of other vendors.

use std::fs;

use lab::{Lab, Tool, beyond_reference};
use serde_json::{Value, json};

const LOG: &str = "/run/lab/log";

/// A plugin of another vendor, which logs each command with its container, and the valid attachments of GC.
const LOGS: &str = r#"request=$(cat)
    [ -n "$CNI_COMMAND" ] || exit 1
    echo "$CNI_COMMAND $CNI_CONTAINERID" >>/run/lab/log
    [ "$CNI_COMMAND" != GC ] || echo "$request" >/run/lab/request
    [ "$CNI_COMMAND" != ADD ] || echo '{"cniVersion": "1.1.0"}'"#;

fn log() -> String {
    fs::read_to_string(LOG).unwrap_or_default()
}

/// A network with only the plugin `logs`.
fn with_logging_plugin(lab: &Lab) -> Tool {
    lab.fake_plugin("logs", LOGS);
    let network = json!({"cniVersion": "1.1.0", "name": "net", "plugins": [{"type": "logs"}]});
    lab.configure("10-net.conflist", &network);
    lab.cnitool()
}

#[test]
fn stale_attachments_get_their_del_first_and_then_each_plugin_a_gc_with_the_valid_ones() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let [_alive, stale] = ["valid-of-two", "stale-of-two"].map(|id| lab.container(id));
    let tool = with_logging_plugin(&lab);
    for id in ["valid-of-two", "stale-of-two"] {
        tool.says(&format!("add net {id} --container-id {id}"));
    }
    stale.vanish();
    fs::remove_file(LOG).unwrap();
    let dry = tool.run("gc net --force logs --dry-run");
    assert!(dry.stderr.contains("GC would be sent to plugins of other vendors: logs"), "{dry:#?}");
    assert!(dry.stderr.contains("except 1 valid ones"), "{dry:#?}");
    let run = tool.run("gc net --force logs");
    assert!(run.succeeded() && !run.stderr.contains("--force"), "{run:#?}");
    assert_eq!(log(), "DEL stale-of-two\nGC \n");
    let request: Value = serde_json::from_slice(&fs::read("/run/lab/request").unwrap()).unwrap();
    let valid = json!([{"containerID": "valid-of-two", "ifname": "eth0"}]);
    assert_eq!((&request["cni.dev/valid-attachments"], &request["cni.dev/attachments"]), (&valid, &valid));
}

/// The list of valid attachments would lack the attachment.
#[test]
fn a_plugin_receives_no_gc_while_the_cache_file_of_a_running_container_is_damaged() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let tool = with_logging_plugin(&lab);
    for id in ["damaged", "whole"] {
        lab.container(id);
        tool.says(&format!("add net {id} --container-id {id}"));
    }
    let file = "/var/lib/cni/results/net-damaged-eth0";
    fs::write(file, "").unwrap();
    fs::remove_file(LOG).unwrap();
    for options in ["--dry-run", ""] {
        let run = tool.run(&format!("gc net --force logs {options}"));
        let error = format!("GC did not call the plugins: {file} cannot be read");
        assert!(!run.succeeded() && run.stderr.contains(&error), "{run:#?}");
        assert!(!run.stderr.contains("--force"), "{run:#?}");
        assert_eq!(log(), "");
    }
    // Without --force, no plugin needs the list.
    tool.says("gc net");
}

/// The cache contains no plugins of the network's directory.
#[test]
fn del_and_gc_call_the_plugins_in_the_networks_directory_after_its_file_was_deleted() {
    beyond_reference!("gc");
    let lab = Lab::new();
    lab.fake_plugin("logs", LOGS);
    lab.fake_plugin("first", LOGS);
    let [file, dir, away] = ["10-net.conflist", "net", "away"].map(|name| format!("/etc/cni/net.d/{name}"));
    let tool = lab.cnitool();
    fs::create_dir_all(&dir).unwrap();
    fs::write(format!("{dir}/1.conf"), r#"{"type": "logs"}"#).unwrap();
    for (plugins, calls) in [(None, 1), (Some(json!([{"type": "first"}])), 2)] {
        for command in ["del net of-directory --container-id of-directory", "gc net", "gc --all"] {
            let pod = lab.container("of-directory");
            let mut network = json!({"cniVersion": "1.1.0", "name": "net"});
            if let Some(plugins) = &plugins {
                network["plugins"] = plugins.clone();
            }
            lab.configure("10-net.conflist", &network);
            tool.says("add net of-directory --container-id of-directory");
            fs::remove_file(&file).unwrap();
            fs::remove_file(LOG).unwrap();
            if command.starts_with("del") && plugins.is_none() {
                fs::rename(&dir, &away).unwrap();
                let del = tool.run("del net of-directory --container-id of-directory");
                assert!(!del.succeeded() && del.stderr.contains("network net has no plugins"), "{del:#?}");
                assert_eq!(tool.json("list attachments").as_array().unwrap().len(), 1);
                fs::rename(&away, &dir).unwrap();
            }
            // DEL works without the namespace, too.
            pod.vanish();
            tool.says(command);
            assert_eq!(log(), "DEL of-directory\n".repeat(calls), "{command}");
            assert_eq!(tool.json("list attachments"), json!([]));
        }
    }
}

/// A DEL of the other plugins would delete the record.
#[test]
fn gc_skips_a_deleted_network_with_an_invalid_file_in_its_directory_and_fails() {
    beyond_reference!("gc");
    let lab = Lab::new();
    lab.fake_plugin("logs", LOGS);
    let dir = "/etc/cni/net.d/net";
    fs::create_dir_all(dir).unwrap();
    fs::write(format!("{dir}/1.conf"), r#"{"type": "logs"}"#).unwrap();
    lab.configure(
        "10-net.conflist",
        &json!({"cniVersion": "1.1.0", "name": "net", "plugins": [{"type": "logs"}]}),
    );
    let (tool, pod) = (lab.cnitool(), lab.container("of-invalid-plugin"));
    tool.says("add net of-invalid-plugin --container-id of-invalid-plugin");
    fs::remove_file("/etc/cni/net.d/10-net.conflist").unwrap();
    fs::write(format!("{dir}/1.conf"), "{").unwrap();
    fs::remove_file(LOG).unwrap();
    pod.vanish();
    for gc in ["gc --all", "gc --dry-run", "gc net"] {
        let failed = tool.run(gc);
        assert!(!failed.succeeded() && failed.stderr.contains("net.d/net/1.conf"), "{gc}: {failed:#?}");
    }
    assert_eq!(log(), "");
    assert_eq!(tool.json("list attachments").as_array().unwrap().len(), 1);
    fs::write(format!("{dir}/1.conf"), r#"{"type": "logs"}"#).unwrap();
    tool.says("gc --all");
    assert_eq!(log(), "DEL of-invalid-plugin\n".repeat(2));
}

/// The option is a path of the directory of libcni.
#[test]
fn detach_running_works_with_another_path_of_the_default_cache() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let tool = with_logging_plugin(&lab);
    lab.container("pod");
    std::os::unix::fs::symlink("/var/lib/cni", "/run/lab/link").unwrap();
    tool.says("add net pod --container-id c");
    tool.says("gc net --detach-running --cache-dir /run/lab/link");
    assert_eq!(tool.json("list attachments"), json!([]));
}

#[test]
fn with_disable_gc_nothing_is_removed_no_plugin_is_called_and_the_json_has_the_usual_form() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let pod = lab.container("of-disabled-gc");
    lab.fake_plugin("logs", LOGS);
    let network =
        json!({"cniVersion": "1.1.0", "name": "net", "disableGC": true, "plugins": [{"type": "logs"}]});
    lab.configure("10-net.conflist", &network);
    let tool = lab.cnitool();
    tool.says("add net of-disabled-gc --container-id of-disabled-gc");
    pod.vanish();
    fs::remove_file(LOG).unwrap();
    let run = tool.run("gc net --force logs --output json");
    assert!(run.succeeded() && run.stderr.contains("has disableGC: GC removes nothing"), "{run:#?}");
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report, json!({"network": "net", "removed": 0, "things": [], "kept": []}));
    let preview = tool.json("gc net --dry-run");
    assert_eq!(preview, json!({"network": "net", "wouldRemove": [], "kept": []}));
    tool.says("gc --all");
    assert_eq!(log(), "");
    assert_eq!(tool.json("list attachments").as_array().unwrap().len(), 1);
}
