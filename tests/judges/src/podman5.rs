//! Podman 5 with netavark, as Debian 13 packages them: its networks are those of our driver `cni`, or netavark's own.

use std::fs;
use std::path::Path;

use crate::host::Host;
use crate::podman::Podman;

/// /usr of Debian 13, laid over the machine's: scripts/judges makes it. Programs in it have libraries newer than the machine's.
const USR: &str = "/mnt/podman5";
const DRIVERS: &str = "/usr/local/libexec/netavark";

const CONTAINERS: &str = r#"
[containers]
pids_limit = 0
[engine]
runtime = "crun"
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
image_copy_tmp_dir = "/run"
"#;

/// Why it cannot be asked.
pub fn lacks() -> Option<&'static str> {
    (!Path::new(USR).join("bin/podman").exists()).then_some("Podman 5 of Debian 13 cannot be had")
}

/// Podman 5 on a host, with the driver that `make install` installs.
pub fn new(host: &Host) -> Podman<'_> {
    host.lab.host().sh(&format!(
        "mount --bind {USR} /usr
         mkdir -p /etc/containers/networks; mount -t tmpfs lab /etc/containers/networks
         mkdir -p {DRIVERS}; rm -f {DRIVERS}/cni; cp -L /mnt/ours/opt/cni/bin/ferrule {DRIVERS}/cni"
    ));
    let file = "/run/lab/containers.conf";
    fs::write(file, CONTAINERS).expect("configure Podman 5");
    host.run(&format!("mount --bind {file} /etc/containers/containers.conf"));
    Podman::new(host)
}
