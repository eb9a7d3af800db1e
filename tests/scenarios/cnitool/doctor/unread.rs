//! Objects that doctor cannot examine: each is a finding, so doctor does not report that nothing is wrong.

use std::fs;

use lab::{Lab, Tool, beyond_reference, injecting};
use serde_json::{Value, json};

use super::{findings, finds, finds_nothing, healthy};
use crate::common::{configure_containerd, host_local};

/// cnitool, whose system calls fail as strace(1) injects errors. Plugins are not affected.
fn failing(tool: &Tool, arguments: &[&str]) -> Tool {
    tool.clone().under(&injecting(arguments))
}

fn network(name: &str, version: &str, link: &str, subnet: &str) -> Value {
    let bridge =
        json!({"type": "bridge", "bridge": link, "isGateway": true, "ipam": host_local(&[&[subnet]])});
    json!({"cniVersion": version, "name": name, "plugins": [bridge, {"type": "firewall"}]})
}

#[test]
fn an_attachment_of_a_version_without_check_is_not_checked() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let pods = ["a", "b"].map(|id| lab.container(id));
    let tool = lab.cnitool();
    for (pod, version) in pods.iter().zip(["0.3.1", "0.2.0"]) {
        lab.configure("10-old.conflist", &network("old", version, "br0", "10.206.6.0/24"));
        tool.says(&format!("add old {0} --container-id {0}", pod.name()));
        finds_nothing(&tool, "attachments.check");
    }
    assert!(tool.says("doctor").contains("2 attachments checked: nothing is wrong"));
}

#[test]
fn an_attachment_in_another_runtimes_cache_is_checked_with_that_cache() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let tool = lab.cnitool();
    lab.configure("10-multi.conflist", &network("multi", "1.0.0", "br0", "10.206.7.0/24"));
    tool.says("add multi pod --container-id web --cache-dir /var/lib/cni/multus");
    assert!(tool.says("doctor").contains("1 attachment checked: nothing is wrong"));
    pod.sh("ip addr flush dev eth0");
    let words = ["error", "attachment multi/web/eth0", "CHECK failed", "10.206.7.2", "restart the container"];
    finds(&tool, "attachments.check", &words);
}

#[test]
fn a_cache_entry_that_check_cannot_use_is_a_finding() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let _pod = lab.container("pod");
    let tool = healthy(&lab);
    tool.says("add net pod --container-id web");
    let file = "/var/lib/cni/results/net-web-eth0";
    let entry: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut entry = entry.clone();
        change(&mut entry);
        fs::write(file, entry.to_string()).unwrap();
    };
    changed(&|entry| entry["config"] = json!("e30="));
    let words = ["warning", "attachment net/web/eth0", "CHECK was not called", "configuration", "restart"];
    finds(&tool, "attachments.check", &words);
    changed(&|entry| entry["result"] = json!({"cniVersion": "1.0.0", "ips": "none"}));
    let words = ["warning", "attachment net/web/eth0", "result cannot be read", "restart"];
    finds(&tool, "attachments.results", &words);
    changed(&|entry| {
        entry["netns"] = json!("");
        entry["result"]["interfaces"] = json!([]);
        entry["result"]["ips"] = json!([]);
    });
    let words =
        ["note", "attachment net/web/eth0", "CHECK was not called", "path of the container's namespace"];
    finds(&tool, "attachments.check", &words);
    fs::write(file, entry.to_string()).unwrap();
    finds_nothing(&tool, "attachments.check");
    finds_nothing(&tool, "attachments.results");
}

#[test]
fn a_plugin_that_is_only_in_the_runtimes_directory_is_a_warning_and_not_a_lost_attachment() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let _pod = lab.container("pod");
    let tool = lab.cnitool();
    lab.fake_plugin("theirs", r#"echo '{"cniVersion": "1.0.0"}'"#);
    let mut theirs = json!({"cniVersion": "1.0.0", "name": "theirs", "plugins": [{"type": "theirs"}]});
    lab.configure("10-theirs.conflist", &theirs);
    tool.says("add theirs pod --container-id web");
    theirs["disableCheck"] = json!(true);
    lab.configure("10-theirs.conflist", &theirs);
    tool.says("add theirs pod --container-id unchecked");
    fs::remove_file("/etc/cni/net.d/10-theirs.conflist").unwrap();
    fs::remove_file("/run/lab/plugins/theirs").unwrap();
    let words =
        ["warning", "attachment theirs/web/eth0", "CHECK was not called", "no plugin", "set CNI_PATH"];
    finds(&tool, "attachments.check", &words);
    assert_eq!(findings(&tool, "attachments.check").len(), 1);
}

#[test]
fn a_namespace_that_cannot_be_read_is_a_warning() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let tool = healthy(&lab);
    tool.says("add net pod --container-id web");
    let path = pod.path().to_str().unwrap();
    let cases = [
        ("mtu.bridge", "inject=?open,openat:error=EMFILE", "Too many open files"),
        ("attachments.check", "inject=?stat,?statx,?newfstatat,?fstatat64:error=EACCES", "Permission denied"),
    ];
    for (check, inject, cause) in cases {
        let unread = failing(&tool, &["-P", path, "-e", inject]);
        let words = ["warning", "attachment net/web/eth0", "its namespace cannot be read", cause];
        finds(&unread, check, &words);
        let shown = unread.run("doctor");
        assert!(!shown.stdout.contains("nothing is wrong"), "{shown:#?}");
        finds_nothing(&tool, check);
    }
}

#[test]
fn links_and_settings_of_the_host_that_cannot_be_read_are_warnings() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let _pod = lab.container("pod");
    let tool = healthy(&lab);
    tool.says("add net pod --container-id web");
    // The first socket is the one that lists the host's links.
    let unread = failing(&tool, &["-e", "inject=socket:error=EMFILE:when=1"]);
    for check in ["mtu.bridge", "mtu.uplink"] {
        finds(&unread, check, &["warning", "the check failed", "Too many open files", "as root"]);
    }
    let path = "/proc/sys/net/ipv4/ip_forward";
    let unread = failing(&tool, &["-P", path, "-e", "inject=?open,openat:error=EMFILE"]);
    finds(&unread, "forwarding", &["warning", "the check failed", path]);
    assert!(tool.says("doctor").contains("nothing is wrong"));
}

#[test]
fn a_plugin_that_cannot_list_its_resources_is_a_warning() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let tool = lab.cnitool();
    // Only the command COLLECT has an argument.
    let plugin = |message: &str| {
        let script = "[ \"$CNI_COMMAND\" = VERSION ] && exec echo '{\"cniVersion\":\"1.1.0\",\"supportedVersions\":[\"1.1.0\"]}'
            [ $# = 0 ] || { echo '{\"cniVersion\":\"1.1.0\",\"MESSAGE}'; exit 1; }";
        lab.fake_plugin("other", &script.replace("MESSAGE", message));
    };
    plugin("ferrule\":\"0.2.0\",\"code\":999,\"msg\":\"the disk fails\"");
    let other =
        json!({"cniVersion": "1.1.0", "name": "other", "plugins": [{"type": "other"}, {"type": "firewall"}]});
    lab.configure("10-other.conflist", &other);
    let words =
        ["warning", "network other", "stale resources cannot be listed", "the disk fails", "again as root"];
    finds(&tool, "stale", &words);
    // Another vendor's plugin refuses the command: its error lacks the mark of Ferrule's plugins.
    plugin("code\":4,\"msg\":\"no CNI_COMMAND\"");
    finds_nothing(&tool, "stale");
}

#[test]
fn a_runtimes_directory_of_networks_that_cannot_be_read_is_a_warning() {
    beyond_reference!("gc");
    let lab = Lab::new();
    lab.private_dir("/etc/containerd");
    let tool = healthy(&lab);
    let dir = "/run/lab/other";
    fs::create_dir(dir).unwrap();
    configure_containerd(dir);
    finds_nothing(&tool, "plugins.path");
    let unread = failing(&tool, &["-P", dir, "-e", "inject=?open,openat:error=EACCES"]);
    finds(&unread, "plugins.path", &["warning", dir, "is not used", "Permission denied", "correct the file"]);
}

#[test]
fn a_cache_that_cannot_be_read_is_a_warning_and_the_other_checks_run() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let tool = healthy(&lab);
    finds_nothing(&tool, "attachments.results");
    let wrong = json!({"cniVersion": "1.1.0", "name": "odd", "plugins": [{"type": "bridge", "mtu": "1500"}]});
    lab.configure("20-odd.conflist", &wrong);
    lab.host().sh("mkdir -p /var/lib/cni; rm -rf /var/lib/cni/results; echo >/var/lib/cni/results");
    let words = ["warning", "cache", "cannot be listed", "/var/lib/cni/results", "Not a directory"];
    finds(&tool, "attachments.results", &words);
    finds(&tool, "configurations.valid", &["error", "20-odd.conflist", "expected a number"]);
    lab.host().sh("rm /var/lib/cni/results");
    finds_nothing(&tool, "attachments.results");
    let unread = failing(&tool, &["-P", "/etc/cni/net.d", "-e", "inject=?open,openat:error=EACCES"]);
    finds(&unread, "plugins.path", &["warning", "/etc/cni/net.d", "Permission denied"]);
}

#[test]
fn without_root_what_needs_it_is_a_warning() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let _pod = lab.container("pod");
    let tool = healthy(&lab);
    tool.says("add net pod --container-id web");
    lab.host().sh("chmod 700 /var/lib/cni/results; chmod 755 /run/lab");
    let user = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--bounding-set=-all",
        "--inh-caps=-all",
    ];
    let nobody = tool.clone().under(&user.map(str::to_owned));
    if !nobody.run("--version").succeeded() {
        return lab::skip("a directory of executables that every user can read");
    }
    finds(&nobody, "networks.status", &["warning", "STATUS was not called", "as root"]);
    finds(&nobody, "attachments.results", &["warning", "/var/lib/cni/results", "Permission denied"]);
    assert_eq!(nobody.run("doctor").exit, Some(4));
    let status = nobody.run("status net");
    assert!(status.exit == Some(1) && status.stdout.is_empty(), "{status:#?}");
    assert!(status.stderr.contains("STATUS was not called: plugins need root"), "{status:#?}");
    for command in ["list", "show", "gc net", "gc --all", "repair --all"] {
        let refused = nobody.run(command);
        let words = ["/var/lib/cni/results", "Permission denied", "run it as root"];
        let has_words = words.iter().all(|word| refused.stderr.contains(word));
        assert!(!refused.succeeded() && has_words, "{command}: {refused:#?}");
    }
    finds_nothing(&tool, "networks.status");
}
