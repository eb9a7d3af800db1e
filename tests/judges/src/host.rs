//! A host on which containers are run, and another machine on its network.

use std::fs;

use lab::{Lab, Netns, Snapshot};

use crate::side::Side;

/// The image that all containers are started from: busybox, which says its host name to whoever connects to port 80.
pub const IMAGE: &str = "localhost/busybox:latest";
pub const SERVE: [&str; 7] = ["/bin/busybox", "nc", "-ll", "-p", "80", "-e", "/bin/hostname"];
/// Made by scripts/judges.
pub const ROOT_FILES: &str = "/mnt/image.tar";

/// Where the plugins are.
pub const PLUGINS: &str = "/opt/cni/bin";
/// As scripts/judges has installed it.
pub const CNITOOL: &str = "/mnt/ours/usr/local/bin/cnitool";

/// How the other machine reaches the host, and how the host is seen there.
pub const HOST: &str = "198.51.100.1";
pub const HOST6: &str = "2001:db8:51::1";
pub const CLIENT: &str = "198.51.100.2";
pub const CLIENT6: &str = "2001:db8:51::2";

pub struct Host {
    pub lab: Lab,
    pub client: Netns,
    /// Whose plugins are there at first.
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

    /// Puts a side's plugins in the place of whatever is there.
    pub fn installs(&self, side: Side) {
        self.lab.host().sh(&format!("rm -f {PLUGINS}/*; cp -a {}/. {PLUGINS}", side.directory()));
    }

    /// Runs a program, which must be a success. What hangs is ended.
    #[track_caller]
    pub fn run(&self, line: &str) -> String {
        self.run_words(&line.split_whitespace().collect::<Vec<_>>())
    }

    #[track_caller]
    pub fn run_words(&self, words: &[&str]) -> String {
        self.lab.host().exec(&limited(words)).trim().to_owned()
    }

    /// Whether a program ends well.
    pub fn succeeds(&self, line: &str) -> bool {
        self.try_run(line).is_ok()
    }

    /// What a program that fails says about it.
    pub fn try_run(&self, line: &str) -> Result<(), String> {
        let words: Vec<_> = line.split_whitespace().collect();
        let output = self.lab.host().try_exec(&limited(&words));
        let said = || String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(said()) }
    }

    /// Podman forgets a namespace that it was killed over, and the namespace holds the attachment's interface.
    pub fn unmounts_namespaces(&self) {
        self.lab.host().sh(
            "for file in /run/netns/netns-*; do [ ! -e \"$file\" ] || { umount --lazy \"$file\" || true; rm -f \"$file\"; }; done",
        );
    }

    /// What plugins can leave behind: links, addresses, routes, rules, settings and flows of the host, and files that belong to a container.
    pub fn snapshot(&self) -> State {
        let own_files = "find /var/lib/cni /run/cni -type f 2>/dev/null | grep -v -e /last_reserved_ip -e lock$ | sort || true";
        let files = self.lab.host().sh(own_files).lines().map(str::to_owned).collect();
        State { kernel: self.lab.snapshot().without("disk"), files }
    }

    /// The network's own things come with its first container, and stay. So: attach and detach one, look, do the same again, and look.
    #[track_caller]
    pub fn leaves_nothing(&self, mut attach_and_detach: impl FnMut()) {
        attach_and_detach();
        let before = self.snapshot();
        attach_and_detach();
        self.snapshot().assert_same(&before);
    }
}

/// Containers of a check go with it. Kernels before 5.14 have no such file: there they go with the run.
impl Drop for Host {
    fn drop(&mut self) {
        end_containers();
    }
}

/// Kills all containers and their monitors.
pub fn end_containers() {
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
