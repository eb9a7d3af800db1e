//! containerd with its CRI service, and its client ctr.

use std::fs;
use std::path::Path;

use crate::host::{Host, IMAGE, SERVE};
use crate::podman::Podman;
use crate::process::Daemon;
use crate::soon::soon;

pub const SOCKET: &str = "/run/lab/containerd.sock";
const FILE: &str = "/run/lab/containerd.toml";
const ARCHIVE: &str = "/run/lab/image.oci";

/// An overlay of /usr with containerd 2 of Debian unstable, which scripts/judges mounts.
const USR_OF_2: &str = "/mnt/containerd2";

/// Configuration of containerd 1. It uses no cgroup controllers, which the machine may lack, and no snapshotters that need special file systems.
const VERSION_2: &str = r#"
version = 2
root = "/run/lab/runtime/containerd/root"
state = "/run/lab/runtime/containerd/state"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
address = "/run/lab/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
path = "/run/lab/runtime/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "localhost/busybox:latest"
disable_cgroup = true
disable_apparmor = true
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/opt/cni/bin"
conf_dir = "/etc/cni/net.d"
"#;

/// Configuration of containerd 2, with the same settings.
const VERSION_3: &str = r#"
version = 3
root = "/run/lab/runtime/containerd/root"
state = "/run/lab/runtime/containerd/state"
disabled_plugins = ["io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.erofs", "io.containerd.snapshotter.v1.zfs"]
[grpc]
address = "/run/lab/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
path = "/run/lab/runtime/containerd/opt"
[plugins."io.containerd.cri.v1.images"]
snapshotter = "native"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "localhost/busybox:latest"
[plugins."io.containerd.cri.v1.runtime"]
disable_cgroup = true
disable_apparmor = true
restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "/run/lab/runc"
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["/opt/cni/bin"]
conf_dir = "/etc/cni/net.d"
"#;

/// Starts runc without resource limits. containerd 2 sets limits even if `disable_cgroup` is set.
const WITHOUT_LIMITS: &str = r#"#!/usr/bin/python3
import json, os, sys
if "--bundle" in sys.argv:
    file = sys.argv[sys.argv.index("--bundle") + 1] + "/config.json"
    with open(file) as opened:
        spec = json.load(opened)
    spec["linux"].pop("resources", None)
    with open(file, "w") as opened:
        json.dump(spec, opened)
os.execv("/usr/sbin/runc", sys.argv)
"#;

/// A network as in kubeadm's documentation, with both families.
pub const NETWORK: &str = r#"{"cniVersion": "1.0.0", "name": "pods", "plugins": [
    {"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "ipMasq": true, "hairpinMode": true,
     "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.90.0.0/24"}], [{"subnet": "fd00:90::/64"}]]}},
    {"type": "portmap", "capabilities": {"portMappings": true}},
    {"type": "firewall"}]}"#;

/// Why containerd 2 cannot be tested.
pub fn lacks_2() -> Option<&'static str> {
    (!Path::new(USR_OF_2).join("bin/containerd").exists())
        .then_some("containerd 2 of Debian unstable cannot be had")
}

/// Replaces containerd of Debian 12 with containerd 2.
pub fn install_2(host: &Host) {
    fs::write("/run/lab/runc", WITHOUT_LIMITS).expect("write a program that starts runc");
    host.lab.host().sh(&format!("mount --bind {USR_OF_2} /usr; chmod +x /run/lab/runc"));
}

pub struct Containerd<'a> {
    pub host: &'a Host,
    daemon: Daemon,
}

impl<'a> Containerd<'a> {
    /// Starts containerd, and gives it the image and a network.
    pub fn start(host: &'a Host) -> Self {
        Self::with_network(host, NETWORK)
    }

    /// Like [`Self::start`], with another network.
    pub fn with_network(host: &'a Host, network: &str) -> Self {
        let is_2 = host
            .run("containerd --version")
            .split(' ')
            .any(|word| word.trim_start_matches('v').starts_with("2."));
        fs::write(FILE, if is_2 { VERSION_3 } else { VERSION_2 }).expect("configure containerd");
        fs::create_dir_all("/etc/cni/net.d").expect("create the directory of networks");
        fs::write("/etc/cni/net.d/10-pods.conflist", network).expect("configure a network");
        Podman::new(host).does(&format!("save --quiet --format oci-archive --output {ARCHIVE} {IMAGE}"));
        let this = Self { host, daemon: daemon(host) };
        // Without --local, the daemon of containerd 2 would unpack the image with its default snapshotter.
        let local = if is_2 { "--local " } else { "" };
        for namespace in ["default", "k8s.io"] {
            this.ctr(&format!("--namespace {namespace} image import {local}--snapshotter native {ARCHIVE}"));
        }
        this
    }

    /// Sends SIGKILL to containerd. Running containers and plugins continue.
    pub fn is_killed(&mut self) {
        self.daemon.kill();
    }

    pub fn is_started_again(&mut self) {
        self.daemon = daemon(self.host);
    }

    #[track_caller]
    pub fn ctr(&self, line: &str) -> String {
        self.host.run(&ctr(line))
    }

    /// Starts a container in the background that serves the image's port.
    #[track_caller]
    pub fn runs(&self, name: &str) {
        self.ctr(&format!("{} {}", run("--detach", name), SERVE.join(" ")));
    }

    /// Runs a busybox command in a container, which is then removed, and returns its output.
    #[track_caller]
    pub fn prints(&self, name: &str, line: &str) -> String {
        self.ctr(&format!("{} /bin/busybox {line}", run("--rm", name)))
    }

    /// Process id of a task.
    #[track_caller]
    pub fn pid(&self, namespace: &str, task: &str) -> String {
        let tasks = self.ctr(&format!("--namespace {namespace} task list"));
        let words = tasks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let found =
            words.filter(|words| words.first() == Some(&task)).map(|words| words[1].to_owned()).next();
        found.unwrap_or_else(|| panic!("no task {task} among\n{tasks}"))
    }
}

/// With `--cpu-shares 0`, the client does not set its default of 1024 shares, which needs a cgroup controller.
fn run(option: &str, name: &str) -> String {
    format!("run --cni --snapshotter native --cpu-shares 0 {option} {IMAGE} {name}")
}

pub fn ctr(line: &str) -> String {
    format!("ctr --address {SOCKET} {line}")
}

fn daemon(host: &Host) -> Daemon {
    let daemon = Daemon::start(&["containerd", "--config", FILE]);
    // CRI is ready only after it has read the directory of networks, for which the checks wait.
    soon("containerd answers", &true, || host.succeeds(&ctr("version")));
    daemon
}
