//! GC of the specification, which `cnitool gc --force PLUGIN` sends to plugins of other vendors.

use std::fs;

use lab::{Lab, beyond_reference};
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

#[test]
fn stale_attachments_get_their_del_first_and_then_each_plugin_a_gc_with_the_valid_ones() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let [_alive, stale] = ["valid-of-two", "stale-of-two"].map(|id| lab.container(id));
    lab.fake_plugin("logs", LOGS);
    lab.configure(
        "10-net.conflist",
        &json!({"cniVersion": "1.1.0", "name": "net", "plugins": [{"type": "logs"}]}),
    );
    let tool = lab.cnitool();
    for id in ["valid-of-two", "stale-of-two"] {
        tool.says(&format!("add net {id} --container-id {id}"));
    }
    stale.vanish();
    fs::remove_file(LOG).unwrap();
    tool.says("gc net --force logs");
    assert_eq!(log(), "DEL stale-of-two\nGC \n");
    let request: Value = serde_json::from_slice(&fs::read("/run/lab/request").unwrap()).unwrap();
    let valid = json!([{"containerID": "valid-of-two", "ifname": "eth0"}]);
    assert_eq!((&request["cni.dev/valid-attachments"], &request["cni.dev/attachments"]), (&valid, &valid));
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
