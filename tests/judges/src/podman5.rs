//! Podman 5 with netavark, as Debian 13 and Debian unstable package them: its networks are those of our driver `cni`, or netavark's own.

use std::fs;
use std::path::Path;

use lab::PATH;

use crate::host::{Host, PLUGINS};
use crate::podman::Podman;
use crate::soon::soon;

/// /usr of Debian 13, laid over the machine's: scripts/judges makes it. Programs in it have libraries newer than the machine's.
const USR: &str = "/mnt/podman5";
/// The same of Debian unstable.
const USR_OF_UNSTABLE: &str = "/mnt/podman-unstable";
const DRIVERS: &str = "/usr/local/libexec/netavark";
const INSTALL: &str = "mkdir -p /usr/local/libexec/netavark; rm -f /usr/local/libexec/netavark/cni
    cp -L /mnt/ours/opt/cni/bin/ferrule /usr/local/libexec/netavark/cni";
/// What the packages contain: scripts/judges lays it out.
const PACKAGE: &str = "/mnt/package";

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

/// Why the one of Debian unstable cannot be asked.
pub fn unstable_lacks() -> Option<&'static str> {
    (!Path::new(USR_OF_UNSTABLE).join("bin/podman").exists())
        .then_some("Podman of Debian unstable cannot be had")
}

/// Podman 5 on a host, with the driver that `make install` installs.
pub fn new(host: &Host) -> Podman<'_> {
    with_driver(host, USR, INSTALL)
}

/// The same with Debian unstable's Podman.
pub fn of_unstable(host: &Host) -> Podman<'_> {
    with_driver(host, USR_OF_UNSTABLE, INSTALL)
}

/// Podman 5 on a host with the files of our deb and rpm: the driver, and plugins that `ferrule-install` has not placed.
pub fn of_package(host: &Host) -> Podman<'_> {
    with_driver(
        host,
        USR,
        &format!(
            "rm -f {PLUGINS}/*; mkdir -p {DRIVERS} /usr/libexec/netavark /usr/lib/ferrule
             mount -t tmpfs lab {DRIVERS}
             mount --bind {PACKAGE}/usr/libexec/netavark /usr/libexec/netavark
             mount --bind {PACKAGE}/usr/lib/ferrule /usr/lib/ferrule"
        ),
    )
}

fn with_driver<'a>(host: &'a Host, usr: &str, install: &str) -> Podman<'a> {
    host.lab.host().sh(&format!(
        "mount --bind {usr} /usr
         mkdir -p /etc/containers/networks; mount -t tmpfs lab /etc/containers/networks
         {install}"
    ));
    let file = "/run/lab/containers.conf";
    fs::write(file, CONTAINERS).expect("configure Podman 5");
    host.run(&format!("mount --bind {file} /etc/containers/containers.conf"));
    Podman::new(host)
}

/// Leaves the host as a loss of power and a start do: without the containers' processes, cgroups and namespaces, without links and rules of
/// plugins, with an empty /run, and with another boot id. The disk keeps Podman's containers and networks, and the plugins' files in /var/lib/cni.
pub fn reboots(host: &Host) {
    let sh = |script: &str| host.lab.host().sh(script);
    // The monitors first: they would detach the containers.
    sh("podman ps --quiet | xargs podman inspect --format '{{.State.ConmonPid}} {{.State.Pid}}' | xargs kill -9
        find -L /run/containers/cni/dnsname/ -name pidfile -exec cat {} + | xargs --no-run-if-empty kill -9");
    soon("the cgroups are empty", &String::new(), || {
        sh(
            "find /sys/fs/cgroup -mindepth 1 -depth -type d ! -path '/sys/fs/cgroup/run*' -exec rmdir {} + 2>&1 || true",
        )
    });
    host.unmounts_namespaces();
    sh("findmnt --noheadings --list --output TARGET | grep ^/run/lab/runtime/ | xargs --no-run-if-empty umount --lazy
        rm -rf /run/lab/runtime/containers
        find /run -mindepth 1 -maxdepth 1 ! -name lab ! -name netns ! -exec mountpoint --quiet {} \\; -exec rm -rf --one-file-system {} +
        for link in $(ls /sys/class/net); do case $link in lo | uplink) ;; *) ip link delete $link 2>/dev/null || true ;; esac; done
        nft flush ruleset
        cat /proc/sys/kernel/random/uuid >/run/lab/boot_id
        mount --bind /run/lab/boot_id /proc/sys/kernel/random/boot_id");
}

/// What podman-restart.service runs when the host has started.
pub fn restart_command() -> String {
    let unit = fs::read_to_string("/usr/lib/systemd/system/podman-restart.service").expect("read the unit");
    let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a command");
    command.replace("$LOGGING", "--log-level=info")
}

/// A user without root, with a range of user ids, as `useradd` makes one.
pub struct User<'a>(&'a Host);

impl<'a> User<'a> {
    pub fn new(host: &'a Host) -> Self {
        host.lab.host().sh(&format!(
            "for file in passwd group subuid subgid; do cp /etc/$file /run/lab/$file; mount --bind /run/lab/$file /etc/$file; done
             echo judge:x:{ID}:{ID}::{HOME}:/bin/sh >>/etc/passwd
             echo judge:x:{ID}: >>/etc/group
             echo judge:700000:65536 | tee -a /etc/subuid >>/etc/subgid
             mkdir -p {HOME}/run; chmod 700 {HOME}/run; chown -R {ID}:{ID} {HOME}; chmod 755 /run/lab"
        ));
        Self(host)
    }

    /// What a command line of Podman prints, and whether it is a success.
    pub fn podman(&self, line: &str) -> (bool, String) {
        let command = format!(
            "timeout --kill-after=5 300 setpriv --reuid {ID} --regid {ID} --clear-groups env -i -C {HOME} HOME={HOME} \
             XDG_RUNTIME_DIR={HOME}/run PATH={PATH} podman {line} 2>&1"
        );
        let output = self.0.lab.host().try_exec(&["sh", "-c", &command]);
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

const ID: u32 = 4321;
const HOME: &str = "/run/lab/judge";
