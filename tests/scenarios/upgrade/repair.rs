//! `cnitool repair` on a host with attachments of the reference.

use lab::{Container, Lab, Tool, tcp_says};
use serde_json::json;

/// The reference attaches a container, its rules are removed, and Ferrule's repair installs the attachment's rules.
pub fn restores_rules(lab: &Lab, [theirs, ours]: [&Tool; 2], pod: &Container, loss: &str, at: &str) {
    theirs.says(&format!("add net pod --container-id {}", pod.id));
    ours.says("check net --all");
    lab.host().sh(loss);
    assert!(!ours.run("check net --all").succeeded(), "{at}");
    assert_eq!(ours.json("repair --all")["repaired"], json!(["net/pod/eth0"]), "{at}");
    ours.says("check net --all");
}

/// The same for a network that masquerades. Ferrule's DEL then leaves nothing.
pub fn restores_masquerade(lab: &Lab, [theirs, ours]: [&Tool; 2], loss: &str, at: &str) {
    let far = lab.machine("far");
    let [first, pod] = ["first", "pod"].map(|id| lab.container(id));
    // Shared objects and the tables exist before, so that only the attachment can be left.
    theirs.says(&format!("add net first --container-id {}", first.id));
    ours.says(&format!("del net first --container-id {}", first.id));
    lab.host().sh(loss);
    let before = lab.snapshot();
    restores_rules(lab, [theirs, ours], &pod, loss, at);
    let _server = far.serve_tcp("far", "198.51.100.2:7");
    assert_eq!(tcp_says(&pod, "198.51.100.2:7").as_deref(), Some("far 198.51.100.1"), "{at}");
    ours.says(&format!("del net pod --container-id {}", pod.id));
    lab.snapshot().assert_same(&before);
}
