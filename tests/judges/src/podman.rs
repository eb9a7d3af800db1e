//! Podman with CNI, as root. What it keeps is the lab's own; its configuration is written once.

use std::fs;

use lab::{tcp_is_refused, tcp_says};

use crate::host::{Host, IMAGE, ROOT_FILES};
use crate::soon::soon;

/// runc, since crun wants to raise limits that a small machine does not let it. vfs, since not each file system carries an overlay.
const CONTAINERS: &str = r#"
[containers]
pids_limit = 0
[network]
network_backend = "cni"
cni_plugin_dirs = ["/opt/cni/bin", "/usr/lib/cni"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
image_copy_tmp_dir = "/run"
infra_image = "localhost/busybox:latest"
"#;
const STORAGE: &str = r#"
[storage]
driver = "vfs"
graphroot = "/run/lab/runtime/storage"
runroot = "/run/lab/runtime/containers"
"#;

/// To be called in a view of /etc that is not the machine's. buildah reads the same files.
pub fn configure() {
    fs::write("/etc/containers/containers.conf", CONTAINERS).expect("configure Podman");
    fs::write("/etc/containers/storage.conf", STORAGE).expect("configure Podman's storage");
}

pub struct Podman<'a>(pub &'a Host);

impl<'a> Podman<'a> {
    pub fn new(host: &'a Host) -> Self {
        let command = crate::host::SERVE.map(|word| format!("{word:?}")).join(",");
        host.run_words(&[
            "podman",
            "import",
            "--quiet",
            "--change",
            &format!("CMD [{command}]"),
            ROOT_FILES,
            IMAGE,
        ]);
        Self(host)
    }

    /// A command line, which must be a success.
    #[track_caller]
    pub fn does(&self, line: &str) -> String {
        self.0.run(&format!("podman {line}"))
    }

    /// Makes networks as they are without options.
    #[track_caller]
    pub fn networks(&self, names: &[&str]) {
        names.iter().for_each(|name| drop(self.does(&format!("network create {name}"))));
    }

    /// Starts a container that serves, with options.
    #[track_caller]
    pub fn starts(&self, name: &str, options: &str) {
        self.does(&format!("run --detach --name {name} --hostname {name} {options} {IMAGE}"));
    }

    /// Its address in a network, as Podman tells it.
    #[track_caller]
    pub fn address(&self, name: &str, network: &str) -> String {
        let format = format!("{{{{(index .NetworkSettings.Networks \"{network}\").IPAddress}}}}");
        self.0.run_words(&["podman", "inspect", "--format", &format, name])
    }

    /// A command line of busybox in a container.
    #[track_caller]
    pub fn inside(&self, name: &str, line: &str) -> String {
        self.does(&format!("exec {name} /bin/busybox {line}"))
    }

    /// A container asks a server until that answers.
    #[track_caller]
    pub fn hears(&self, name: &str, server: &str, port: u16, answer: &str) {
        let ask = format!("podman exec {name} /bin/busybox nc -w 60 {server} {port}");
        let words: Vec<_> = ask.split(' ').collect();
        soon(&format!("{name} to {server} port {port}"), &answer.to_owned(), || {
            let output = self.0.lab.host().try_exec(&words);
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        });
    }

    /// Whether a container's request gets no answer. The caller checks that the server answers others.
    pub fn is_cut_off(&self, name: &str, server: &str, port: u16) -> bool {
        self.inside(name, "true");
        !self.0.succeeds(&format!("podman exec {name} /bin/busybox nc -w 3 {server} {port}"))
    }

    /// The other machine reaches a host port.
    #[track_caller]
    pub fn is_reached(&self, address: &str, answer: &str) {
        crate::soon::tcp_says_soon(&self.0.client, address, answer);
    }

    /// A host port is closed: the host refuses connections. The container's monitor has reserved the port, and exits a moment
    /// after the container.
    #[track_caller]
    pub fn closes(&self, address: &str, what: &str) {
        soon(&format!("{address} is closed: {what}"), &true, || tcp_is_refused(&self.0.client, address));
    }

    /// Whether no container answers at a host port. The monitor of a running container, which reserves the port, accepts
    /// connections.
    pub fn is_silent(&self, address: &str) -> bool {
        tcp_says(&self.0.client, address).is_none()
    }

    #[track_caller]
    pub fn removes(&self, name: &str) {
        self.does(&format!("rm --force --time 0 {name}"));
    }
}
