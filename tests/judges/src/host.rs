//! A host that runs containers, and another machine on its network.

use std::fs;

use lab::{Lab, Netns, Snapshot};

use crate::side::Side;

/// The image of all containers: busybox, which answers connections to port 80 with its host name.
pub const IMAGE: &str = "localhost/busybox:latest";
pub const SERVE: [&str; 7] = ["/bin/busybox", "nc", "-ll", "-p", "80", "-e", "/bin/hostname"];
/// Made by scripts/judges.
pub const ROOT_FILES: &str = "/mnt/image.tar";

/// Where the plugins are.
pub const PLUGINS: &str = "/opt/cni/bin";
/// scripts/judges has installed it.
pub const CNITOOL: &str = "/mnt/ours/usr/local/bin/cnitool";

/// Addresses of the host and of the other machine.
pub const HOST: &str = "198.51.100.1";
pub const HOST6: &str = "2001:db8:51::1";
pub const CLIENT: &str = "198.51.100.2";
pub const CLIENT6: &str = "2001:db8:51::2";

pub struct Host {
    pub lab: Lab,
    pub client: Netns,
    /// The plugins that are installed at first.
    pub side: Side,
}

impl Host {
    pub fn new(side: Side) -> Self {
        let lab = Lab::new();
        lab.host().sh(&format!(
            "mount -t cgroup2 lab /sys/fs/cgroup
             mount -t tmpfs lab {PLUGINS}"
        ));
        let client = lab.machine("client");
        let this = Self { lab, client, side };
        this.installs(side);
        this
    }

    /// Replaces the installed plugins with those of `side`.
    pub fn installs(&self, side: Side) {
        self.lab.host().sh(&format!("rm -f {PLUGINS}/*; cp -a {}/. {PLUGINS}", side.directory()));
    }

    /// Runs a program, which must succeed. It is killed after five minutes.
    #[track_caller]
    pub fn run(&self, line: &str) -> String {
        self.run_words(&line.split_whitespace().collect::<Vec<_>>())
    }

    #[track_caller]
    pub fn run_words(&self, words: &[&str]) -> String {
        self.lab.host().exec(&limited(words)).trim().to_owned()
    }

    /// Whether a program succeeds.
    pub fn succeeds(&self, line: &str) -> bool {
        self.try_run(line).is_ok()
    }

    /// Runs a program. The error is its stderr.
    pub fn try_run(&self, line: &str) -> Result<(), String> {
        let words: Vec<_> = line.split_whitespace().collect();
        let output = self.lab.host().try_exec(&limited(&words));
        let said = || String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(said()) }
    }

    /// Deletes namespaces that a killed Podman has left. They contain interfaces of attachments.
    pub fn unmounts_namespaces(&self) {
        self.lab.host().sh(
            "for file in /run/netns/netns-*; do [ ! -e \"$file\" ] || { umount --lazy \"$file\" || true; rm -f \"$file\"; }; done",
        );
    }

    /// Everything that plugins can leave: links, addresses, routes, rules, settings and flows of the host, and files of containers.
    pub fn snapshot(&self) -> State {
        let own_files = "find /var/lib/cni /run/cni -type f 2>/dev/null | grep -v -e /last_reserved_ip -e lock$ | sort || true";
        let files = self.lab.host().sh(own_files).lines().map(str::to_owned).collect();
        State { kernel: self.lab.snapshot().without("disk"), files }
    }

    /// Fails if a container leaves anything. The first container of a network creates objects that stay, such as the bridge, so this compares
    /// the state after the first container with the state after the second.
    #[track_caller]
    pub fn leaves_nothing(&self, mut attach_and_detach: impl FnMut()) {
        attach_and_detach();
        let before = self.snapshot();
        attach_and_detach();
        self.snapshot().assert_same(&before);
    }
}

/// Kills the containers of a check. Kernels before 5.14 lack `cgroup.kill`: there, the containers end with the whole run.
impl Drop for Host {
    fn drop(&mut self) {
        end_containers();
    }
}

fn end_containers() {
    for entry in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
        if entry.file_name() != "run" {
            fs::write(entry.path().join("cgroup.kill"), "1").ok();
        }
    }
}

fn limited<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [&["timeout", "--kill-after=5", "300"], words].concat()
}

pub struct State {
    kernel: Snapshot,
    files: Vec<String>,
}

impl State {
    #[track_caller]
    pub fn assert_same(&self, before: &Self) {
        self.kernel.assert_same(&before.kernel);
        assert_eq!(self.files, before.files, "files of the plugins");
    }
}
