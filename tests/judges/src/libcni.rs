//! Containers that a program attaches with libcni, the library of runtimes in Go: see tests/judges/libcni/main.go.

use std::path::Path;

use lab::Netns;

use crate::host::PLUGINS;
use crate::process::Daemon;

/// scripts/judges has built it.
const PROGRAM: &str = "/mnt/libcni";

/// Why libcni cannot be tested.
pub fn lacks() -> Option<&'static str> {
    (!Path::new(PROGRAM).exists()).then_some("libcni of Debian unstable cannot be had")
}

/// A container that answers connections to its port 80 with its name.
pub struct Pod<'a> {
    machine: &'a Netns,
    network: &'a str,
    pub name: &'a str,
    host_port: usize,
    server: Option<Daemon>,
}

impl<'a> Pod<'a> {
    /// Creates a namespace, attaches it with ADD, and starts the server.
    #[track_caller]
    pub fn start(machine: &'a Netns, network: &'a str, name: &'a str, host_port: usize) -> Self {
        machine.sh(&format!("ip netns add {name}; ip -n {name} link set lo up"));
        let mut this = Self { machine, network, name, host_port, server: None };
        this.calls("add");
        let answer = ["busybox", "nc", "-ll", "-p", "80", "-e", "/bin/echo", name];
        this.server = Some(Daemon::start(&[&["ip", "netns", "exec", name][..], &answer].concat()));
        this
    }

    /// The output of a program in the container.
    #[track_caller]
    pub fn prints(&self, line: &str) -> String {
        self.machine.sh(&format!("ip netns exec {} {line}", self.name))
    }

    #[track_caller]
    pub fn is_checked(&self) {
        self.calls("check");
    }

    /// Detaches the container with DEL, and deletes its namespace.
    #[track_caller]
    pub fn stop(self) {
        self.calls("del");
        self.vanish();
    }

    /// Deletes the namespace without a DEL, as a crash does.
    #[track_caller]
    pub fn vanish(mut self) {
        drop(self.server.take());
        self.machine.sh(&format!("ip netns del {}", self.name));
    }

    /// Calls libcni with the same capability arguments for each command, as runtimes do.
    #[track_caller]
    fn calls(&self, command: &str) {
        let Self { machine, network, name, host_port, .. } = self;
        let port = format!(r#"{{"hostPort": {host_port}, "containerPort": 80, "protocol": "tcp"}}"#);
        let capabilities = format!(r#"{{"portMappings": [{port}]}}"#);
        machine.sh(&call(&capabilities, &format!("{command} {network} {name} /run/netns/{name}")));
    }
}

/// GC with a list of containers whose attachments are valid.
#[track_caller]
pub fn collects(machine: &Netns, network: &str, valid: &[&Pod<'_>]) {
    let names: Vec<_> = valid.iter().map(|pod| pod.name).collect();
    machine.sh(&call("", &format!("gc {network} {}", names.join(" "))));
}

/// A line for a shell. The program is killed after five minutes.
fn call(capabilities: &str, arguments: &str) -> String {
    format!("CNI_PATH={PLUGINS} CAP_ARGS='{capabilities}' timeout --kill-after=5 300 {PROGRAM} {arguments}")
}
