//! Plugins that are broken, old, of another suite, or not in the runtime's directory.

use std::fs;
use std::path::Path;

use lab::{Container, Lab, Release, Tool, beyond_reference, ours};
use serde_json::json;

use super::{bridge, finds, finds_nothing, healthy, network};

/// A directory with copies of plugins, the only one that cnitool searches.
fn installed(lab: &Lab, plugins: &[&str]) -> Tool {
    fs::create_dir_all("/run/lab/bin").unwrap();
    for plugin in plugins {
        lab.host().exec(&["cp", ours().join(plugin).to_str().unwrap(), "/run/lab/bin"]);
    }
    lab.cnitool().env("CNI_PATH", "/run/lab/bin")
}

#[test]
fn a_plugin_that_does_not_answer_is_an_error() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let tool = healthy(&lab);
    lab.configure(
        "20-other.conflist",
        &json!({"cniVersion": "1.1.0", "name": "other", "plugins": [{"type": "other"}]}),
    );
    lab.fake_plugin("other", "exit 3");
    finds(
        &tool,
        "plugins.answer",
        &["error", "/run/lab/plugins/other", "does not answer VERSION", "ferrule-install"],
    );
    lab.fake_plugin("other", r#"echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}'"#);
    finds_nothing(&tool, "plugins.answer");
}

#[test]
fn plugins_of_another_suite_among_ours_are_a_warning() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let Some(reference) = Release::V1_9_1.dir() else { return lab::skip("the reference's plugins") };
    let tool = installed(&lab, &["bridge", "host-local", "firewall"]);
    lab.configure("10-net.conflist", &network(&json!([bridge("10.206.2.0/24"), {"type": "firewall"}])));
    finds_nothing(&tool, "plugins.suite");
    let other = reference.join("host-local");
    lab.host().exec(&["cp", other.to_str().unwrap(), "/run/lab/bin"]);
    let words = [
        "warning",
        "directory /run/lab/bin",
        "2 of 3 plugins are Ferrule's",
        "host-local",
        "ferrule-install --dir /run/lab/bin",
    ];
    finds(&tool, "plugins.suite", &words);
    installed(&lab, &["host-local"]);
    finds_nothing(&tool, "plugins.suite");
}

#[test]
fn our_plugins_of_another_version_than_cnitool_are_a_warning() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let tool = installed(&lab, &["bridge", "host-local", "firewall"]);
    lab.configure("10-net.conflist", &network(&json!([bridge("10.206.2.0/24"), {"type": "firewall"}])));
    finds_nothing(&tool, "plugins.version");
    // There is no older release, so this script prints its version line.
    let old = "#!/bin/sh\necho 'CNI firewall plugin v1.8.0+ferrule.0.1.0' >&2\n";
    lab::write_program(Path::new("/run/lab/bin/firewall"), old);
    finds(
        &tool,
        "plugins.version",
        &[
            "warning",
            "directory /run/lab/bin",
            "firewall has version v1.8.0+ferrule.0.1.0",
            "run its `ferrule-install`, and copy its `cnitool`",
        ],
    );
    installed(&lab, &["firewall"]);
    finds_nothing(&tool, "plugins.version");
}

#[test]
fn a_runtime_that_looks_for_plugins_elsewhere_is_an_error_and_an_unreadable_configuration_a_warning() {
    beyond_reference!("gc");
    let lab = Lab::new();
    lab.private_dir("/etc/containerd");
    let tool = healthy(&lab);
    let config = |dir: &str| {
        let text = format!("version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = \"{dir}\"\n");
        fs::write("/etc/containerd/config.toml", text).unwrap();
    };
    config("/run/lab/empty");
    finds(
        &tool,
        "plugins.path",
        &[
            "error",
            "runtime containerd",
            "searches for plugins in /run/lab/empty",
            "config.toml",
            "Plugins of network net are missing there: bridge, firewall, host-local",
            "run `ferrule-install`,",
        ],
    );
    config(ours().to_str().unwrap());
    finds_nothing(&tool, "plugins.path");
    installed(&lab, &["bridge", "firewall", "host-local"]);
    lab.host().exec(&["chmod", "-x", "/run/lab/bin/bridge"]);
    config("/run/lab/bin");
    finds(
        &tool,
        "plugins.path",
        &["error", "missing there: bridge (/run/lab/bin/bridge: not executable (chmod +x))"],
    );
    fs::write("/etc/containerd/config.toml", "version = \n").unwrap();
    finds(&tool, "plugins.path", &["warning", "config.toml is not used", "correct the file"]);
}

/// A container with bridge and firewall, whose plugins are copies.
fn attached(lab: &Lab) -> (Container, Tool) {
    let pod = lab.container("pod");
    let tool = installed(lab, &["bridge", "host-local", "firewall"]);
    lab.configure("10-net.conflist", &network(&json!([bridge("10.206.2.0/24"), {"type": "firewall"}])));
    tool.says("add net pod --container-id web");
    finds_nothing(&tool, "attachments.check");
    (pod, tool)
}

/// A restart of the container would call the broken plugin's ADD, too.
#[test]
fn an_attachment_with_a_broken_plugin_needs_the_plugin_and_not_a_restart() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let (_pod, tool) = attached(&lab);
    for broken in ["firewall", "host-local"] {
        fs::write(format!("/run/lab/bin/{broken}"), "garbage").unwrap();
        let words = [
            "error",
            "attachment net/web/eth0",
            "CHECK failed",
            &format!("install the plugin {broken} again"),
        ];
        finds(&tool, "attachments.check", &words);
        installed(&lab, &[broken]);
        finds_nothing(&tool, "attachments.check");
    }
}

/// Code 11 says nothing about the attachment: its container needs no restart.
#[test]
fn an_attachment_whose_plugin_cannot_check_it_now_is_to_be_checked_again() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let (_pod, tool) = attached(&lab);
    let error = json!({"cniVersion": "1.1.0", "code": 11, "msg": "the lock is held"});
    let versions = json!({"cniVersion": "1.1.0", "supportedVersions": ["1.0.0", "1.1.0"]});
    let busy = format!(
        "#!/bin/sh\ncase $CNI_COMMAND in VERSION) echo '{versions}';; *) echo '{error}'; exit 1;; esac\n"
    );
    fs::write("/run/lab/bin/firewall", busy).unwrap();
    let words = ["error", "attachment net/web/eth0", "the lock is held", "run `cnitool doctor` again later"];
    finds(&tool, "attachments.check", &words);
}
