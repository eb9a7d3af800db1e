//! Debian's own firewalld, in a lab of its own and on a D-Bus of its own.

use std::env::consts::ARCH;
use std::fs;
use std::process::{Child, Command, Stdio};

use lab::{Lab, skip};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::until;

/// Where scripts/test unpacks it.
const TREE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/../firewalld");
const CONFIGURATION: &str = "/run/lab/firewalld";

/// The bus that it is on, as `DBUS_SYSTEM_BUS_ADDRESS` tells it.
pub const BUS: &str = "unix:path=/run/lab/bus";

/// The daemon and its bus, until they are dropped.
pub struct Firewalld {
    bus: Child,
    daemon: Child,
}

impl Firewalld {
    /// With a backend, and all interfaces in a zone.
    pub fn start(lab: &Lab, backend: &str, zone: &str) -> Self {
        lab.host().sh(&format!(
            "cp -r {TREE}/etc/firewalld {CONFIGURATION}
             sed -i 's/^DefaultZone=.*/DefaultZone={zone}/; s/^FirewallBackend=.*/FirewallBackend={backend}/' \
                {CONFIGURATION}/firewalld.conf"
        ));
        let anybody =
            r#"<allow user="*"/><allow own="*"/><allow send_destination="*"/><allow receive_sender="*"/>"#;
        let bus = format!(
            r#"<busconfig><listen>{BUS}</listen><policy context="default">{anybody}</policy></busconfig>"#
        );
        fs::write("/run/lab/bus.conf", bus).unwrap();
        let bus = spawn("dbus-daemon", &["--config-file=/run/lab/bus.conf", "--nofork", "--nopidfile"]);
        let started = Self { bus, daemon: daemon() };
        until("firewalld runs", || ask("--state"));
        started
    }

    /// Ends it as systemd does: it takes its rules with it. Its bus stays.
    pub fn stop(&mut self) {
        kill(Pid::from_raw(self.daemon.id().cast_signed()), Signal::SIGTERM).unwrap();
        self.daemon.wait().unwrap();
    }

    /// Ends it, and starts it again on the same bus.
    pub fn restart(&mut self) {
        self.stop();
        self.daemon = daemon();
        until("firewalld runs", || ask("--state"));
    }
}

impl Drop for Firewalld {
    fn drop(&mut self) {
        [&mut self.daemon, &mut self.bus].into_iter().for_each(end);
    }
}

fn daemon() -> Child {
    let stock = format!("{TREE}/usr/lib/firewalld");
    let log = "--log-file=/run/lab/firewalld.log";
    let directories = ["--default-config", &stock, "--system-config", CONFIGURATION];
    spawn("firewalld", &[&["--nofork", "--nopid", log], &directories[..]].concat())
}

fn end(process: &mut Child) {
    process.kill().ok();
    process.wait().ok();
}

/// A program of the tree, or of the machine where that has it already.
fn program(name: &str) -> Command {
    let libraries = format!("{TREE}/usr/lib/{ARCH}-linux-gnu");
    let mut command = Command::new(name);
    command
        .env("PATH", format!("{TREE}/usr/sbin:{TREE}/usr/bin:/usr/sbin:/usr/bin:/sbin:/bin"))
        .env("PYTHONPATH", format!("{TREE}/usr/lib/python3/dist-packages"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("GI_TYPELIB_PATH", format!("{libraries}/girepository-1.0"))
        .env("LD_LIBRARY_PATH", libraries)
        .env("DBUS_SYSTEM_BUS_ADDRESS", BUS)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

fn spawn(name: &str, arguments: &[&str]) -> Child {
    program(name).args(arguments).spawn().unwrap_or_else(|e| panic!("start {name}: {e}"))
}

/// Whether it does what it is asked for by its own command line, in words without blanks.
pub fn ask(what: &str) -> bool {
    program("firewall-cmd").args(what.split(' ')).status().unwrap().success()
}

/// Whether there is one to try.
pub fn is_here() -> bool {
    let here = fs::exists(TREE).unwrap();
    if !here {
        skip("there is no firewalld to try: scripts/test unpacks Debian's where there is apt-get");
    }
    here
}
