//! Debian's firewalld in a lab, on a separate D-Bus.

use std::env::consts::ARCH;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::release::target;
use crate::{Lab, quoted, skip, until};

/// The files of firewalld and its bus. Snapshots leave them out.
pub(crate) const DIRECTORY: &str = "/run/lab/firewalld";

/// The address of its bus, for `DBUS_SYSTEM_BUS_ADDRESS`.
pub const BUS: &str = "unix:path=/run/lab/firewalld/bus";

/// The daemon and its bus, which end when this is dropped.
#[derive(Debug)]
pub struct Firewalld {
    bus: Child,
    daemon: Child,
}

impl Firewalld {
    /// Starts it with a backend, and all interfaces in a zone.
    pub fn start(lab: &Lab, backend: &str, zone: &str) -> Self {
        lab.host().sh(&format!(
            "mkdir {DIRECTORY}; cp -r {}/etc/firewalld {DIRECTORY}/etc
             sed -i 's/^DefaultZone=.*/DefaultZone={zone}/; s/^FirewallBackend=.*/FirewallBackend={backend}/' \
                {DIRECTORY}/etc/firewalld.conf",
            quoted(&tree())
        ));
        let anybody =
            r#"<allow user="*"/><allow own="*"/><allow send_destination="*"/><allow receive_sender="*"/>"#;
        let bus = format!(
            r#"<busconfig><listen>{BUS}</listen><policy context="default">{anybody}</policy></busconfig>"#
        );
        let file = format!("{DIRECTORY}/bus.conf");
        fs::write(&file, bus).unwrap();
        let bus = spawn("dbus-daemon", &[&format!("--config-file={file}"), "--nofork", "--nopidfile"]);
        // firewalld exits if it finds no bus.
        until("firewalld's bus runs", || UnixStream::connect(format!("{DIRECTORY}/bus")).is_ok());
        let started = Self { bus, daemon: daemon() };
        wait();
        started
    }

    /// Ends it as systemd does, so that it removes its rules. The bus continues.
    pub fn stop(&mut self) {
        self.signal(Signal::SIGTERM);
        self.daemon.wait().unwrap();
    }

    /// Suspends it: it stays on the bus, and answers nothing.
    pub fn suspend(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Ends [`Firewalld::suspend`].
    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.daemon.id().cast_signed()), signal).unwrap();
    }

    /// Restarts it on the same bus.
    pub fn restart(&mut self) {
        self.stop();
        self.daemon = daemon();
        wait();
    }
}

impl Drop for Firewalld {
    fn drop(&mut self) {
        [&mut self.daemon, &mut self.bus].into_iter().for_each(end);
    }
}

fn daemon() -> Child {
    let (stock, own) = (format!("{}/usr/lib/firewalld", tree().display()), format!("{DIRECTORY}/etc"));
    let log = format!("--log-file={DIRECTORY}/log");
    let directories = ["--default-config", &stock, "--system-config", &own];
    spawn("firewalld", &[&["--nofork", "--nopid", &log], &directories[..]].concat())
}

fn wait() {
    until(&format!("firewalld runs; {DIRECTORY}/log says more"), || ask("--state"));
}

/// Reloads it. If firewall-cmd gets no answer in time, it is called again.
pub fn reload() {
    until(&format!("firewalld has reloaded; {DIRECTORY}/log says more"), || ask("--reload"));
}

fn end(process: &mut Child) {
    process.kill().ok();
    process.wait().ok();
}

/// The directory into which scripts/test unpacks it.
fn tree() -> PathBuf {
    target().join("firewalld")
}

/// A program of that directory, or the machine's own if it is installed.
fn program(name: &str) -> Command {
    let tree = tree().display().to_string();
    let libraries = format!("{tree}/usr/lib/{ARCH}-linux-gnu");
    let mut command = Command::new(name);
    command
        .env("PATH", format!("{tree}/usr/sbin:{tree}/usr/bin:/usr/sbin:/usr/bin:/sbin:/bin"))
        .env("PYTHONPATH", format!("{tree}/usr/lib/python3/dist-packages"))
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

/// Whether firewall-cmd succeeds with these arguments, which contain no spaces.
pub fn ask(what: &str) -> bool {
    program("firewall-cmd").args(what.split(' ')).status().unwrap().success()
}

/// Whether firewalld can be tested here. If not, the test counts as skipped.
pub fn is_here() -> bool {
    lacks().inspect(|why| skip(why)).is_none()
}

/// Why firewalld cannot be tested here, if so.
pub fn lacks() -> Option<&'static str> {
    let missing = "there is no firewalld to try: scripts/test unpacks Debian's where there is apt-get";
    (!tree().exists()).then_some(missing)
}
