//! A network with a DHCP server, and the daemon under test.

mod releases;
mod servers;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::release::target;
pub use servers::OneAddress;

use crate::{Call, Container, Lab, Netns, PATH, skip, start_by_path, under_test};

const DNSMASQ: &str = "/usr/sbin/dnsmasq";
const SOCKET: &str = "/run/cni/dhcp.sock";
/// The daemon's directory of leases.
pub const STATE: &str = "/run/cni/dhcp";

/// dnsmasq's options for leases of two minutes from a range of 10.9.0.0/24.
pub const RANGE: &str =
    "--dhcp-range=10.9.0.100,10.9.0.250,255.255.255.0,120 --dhcp-option=option:router,10.9.0.1";

/// The same for leases of a day, which no test outlives.
pub const RANGE_FOR_A_DAY: &str =
    "--dhcp-range=10.9.0.100,10.9.0.250,255.255.255.0,24h --dhcp-option=option:router,10.9.0.1";

/// dnsmasq's options for leases of two minutes, its minimum, from a range of fd00::/64.
pub const RANGE_V6: &str = "--dhcp-range=fd00::10,fd00::ff,64,2m";

/// The same for leases of a day.
pub const RANGE_V6_FOR_A_DAY: &str = "--dhcp-range=fd00::10,fd00::ff,64,24h";

/// Leases are renewed after five seconds, without being shorter. By then, the address is on the link, where the daemon
/// looks for it.
pub const SOON: &str = "--dhcp-option=option:T1,5 --dhcp-option=option:T2,10";

/// A background process that is killed when this is dropped.
#[derive(Debug)]
pub struct Background(Child);

impl Background {
    /// Its process id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Sends a signal, and waits for the exit.
    pub fn end(mut self, signal: Signal) {
        if !self.has_ended() {
            kill(Pid::from_raw(self.0.id().cast_signed()), signal).expect("send a signal");
        }
        self.0.wait().expect("wait for a process");
    }

    /// Whether it has exited by itself.
    pub fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("look for a process").is_some()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// The bridge br0 of a machine, and another machine on it, 10.9.0.1, for a server. All processes end when this is
/// dropped.
#[derive(Debug)]
pub struct DhcpSite {
    serving: Option<Background>,
    daemon: Option<Background>,
    host: Netns,
    /// The executable of dhcp.
    dhcp: PathBuf,
    /// The server's machine. Its link is eth0.
    pub server: Container,
}

/// A lab with a DHCP site.
#[derive(Debug)]
pub struct DhcpNetwork {
    site: DhcpSite,
    pub lab: Lab,
}

impl Deref for DhcpNetwork {
    type Target = DhcpSite;
    fn deref(&self) -> &DhcpSite {
        &self.site
    }
}

impl DerefMut for DhcpNetwork {
    fn deref_mut(&mut self) -> &mut DhcpSite {
        &mut self.site
    }
}

impl DhcpNetwork {
    /// Without a server and a daemon.
    pub fn silent() -> Self {
        let lab = Lab::new();
        Self { site: DhcpSite::new(&lab, &under_test().dir), lab }
    }

    /// The same, and the server's machine also has fd00::1.
    pub fn silent_v6() -> Self {
        let this = Self::silent();
        this.server
            .sh("ip link set eth0 down; echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad; ip link set eth0 up
             ip addr add fd00::1/64 dev eth0 nodad");
        this
    }

    /// With dnsmasq with these options, and the daemon. None: dnsmasq is missing, and the test counts as skipped.
    pub fn with(options: &str) -> Option<Self> {
        Self::served(Self::silent, options)
    }

    /// Like [`DhcpNetwork::with`], for IPv6.
    pub fn with_v6(options: &str) -> Option<Self> {
        Self::served(Self::silent_v6, options)
    }

    fn served(silent: fn() -> Self, options: &str) -> Option<Self> {
        if !has_dnsmasq() {
            skip("dnsmasq is missing");
            return None;
        }
        let mut this = silent();
        this.serve(options);
        this.start_daemon("");
        Some(this)
    }

    /// A container.
    pub fn pod(&self, name: &str) -> Container {
        self.lab.container(name)
    }

    /// A call of bridge with an address from DHCP.
    pub fn bridge(&self, pod: &Container) -> Call {
        self.lab.plugin("bridge").config(json!({"bridge": "br0", "ipam": {"type": "dhcp"}})).on(pod)
    }

    /// A container with a link on br0 without an address, and a call of only dhcp.
    pub fn plugged(&self, name: &str) -> (Container, Call) {
        let pod = self.pod(name);
        self.plug(name);
        let call = self.lab.plugin("dhcp").config(json!({"ipam": {"type": "dhcp"}})).on(&pod);
        (pod, call)
    }
}

/// Whether Debian's dnsmasq is installed.
pub fn has_dnsmasq() -> bool {
    Path::new(DNSMASQ).exists()
}

impl DhcpSite {
    /// On the lab's host, with executables of a directory. Without a server and a daemon.
    pub fn new(lab: &Lab, directory: &Path) -> Self {
        let server = lab.container("server");
        lab.host().sh(
            "ip link add br0 type bridge; ip link set br0 up
             ip link add srv type veth peer name eth0 netns server; ip link set srv master br0; ip link set srv up",
        );
        server.sh("ip link set lo up; ip link set eth0 up; ip addr add 10.9.0.1/24 dev eth0");
        let (host, dhcp) = (lab.host().clone(), directory.join("dhcp"));
        Self { serving: None, daemon: None, host, dhcp, server }
    }

    /// Uses the executable of this directory for the next daemon.
    pub fn use_daemon_of(&mut self, directory: &Path) {
        self.dhcp = directory.join("dhcp");
    }

    /// Gives a container a link on br0.
    pub fn plug(&self, name: &str) {
        self.host.sh(&format!(
            "ip link add {name} type veth peer name eth0 netns {name}; ip link set {name} master br0 up"
        ));
    }

    /// Starts dnsmasq with additional options on the server's machine. It replaces a running server.
    pub fn serve(&mut self, options: &str) {
        let arguments = format!(
            "--keep-in-foreground --port=0 --user=root --conf-file=/dev/null --pid-file= --interface=eth0
             --bind-interfaces --no-ping --dhcp-authoritative --log-dhcp --log-facility=/run/lab/server.log
             --dhcp-leasefile=/run/lab/server.leases --dhcp-option=option:dns-server,10.9.0.53 --domain=example.org {options}"
        );
        let server = self.server.netns.clone();
        self.serve_by(&server, started_by(DNSMASQ, &arguments), &self.server_log_path(), || {
            !server.exec(&["ss", "-Hlun", "sport = 67 or sport = 547"]).is_empty()
        });
    }

    /// Starts ISC's server for a family (`-4` or `-6`) on a machine and its links. False: it is missing, and the test
    /// counts as skipped.
    #[must_use]
    pub fn serve_isc(&mut self, family: &str, machine: &Netns, links: &str, configuration: &str) -> bool {
        let Some(program) = isc("dhcpd") else { return false };
        // The ping before each offer would take a second.
        let text = format!("ping-check false; authoritative; {configuration}");
        fs::write("/run/lab/dhcpd.conf", text).expect("configure dhcpd");
        let leases = File::options().create(true).append(true).open("/run/lab/dhcpd.leases");
        leases.expect("create dhcpd's file of leases");
        let arguments =
            format!("{family} -f -d -cf /run/lab/dhcpd.conf -lf /run/lab/dhcpd.leases --no-pid {links}");
        let log = self.server_log_path();
        let started =
            || fs::read_to_string(&log).unwrap_or_default().matches("Server starting service").count();
        let before = started();
        self.serve_by(machine, started_by(program, &arguments), &log, || started() > before);
        true
    }

    fn serve_by(&mut self, machine: &Netns, server: Command, log: &Path, is_ready: impl Fn() -> bool) {
        self.stop_server();
        self.serving = Some(in_background(machine, server, log));
        self.until("the server listens", is_ready);
    }

    fn server_log_path(&self) -> PathBuf {
        "/run/lab/server.log".into()
    }

    /// Ends the server. Its leases stay on disk.
    pub fn stop_server(&mut self) {
        self.serving.take().into_iter().for_each(|server| server.end(Signal::SIGTERM));
    }

    /// Restarts the server with another subnet, 10.10.0.0/24, and without leases. The daemon is stopped meanwhile, so
    /// that it sends nothing while there is no server.
    pub fn move_to_another_subnet(&mut self) {
        self.end_daemon(Signal::SIGTERM);
        self.stop_server();
        fs::remove_file("/run/lab/server.leases").expect("remove the server's leases");
        self.server.sh("ip addr flush dev eth0; ip addr add 10.10.0.1/24 dev eth0");
        self.serve(
            "--dhcp-range=10.10.0.100,10.10.0.250,255.255.255.0,120 --dhcp-option=option:router,10.10.0.1",
        );
        self.start_daemon("");
    }

    /// The server's log.
    pub fn server_log(&self) -> String {
        fs::read_to_string(self.server_log_path()).unwrap_or_default()
    }

    /// How many releases have ended a lease at the server. A repeated message counts once.
    pub fn released(&self) -> usize {
        releases::effective(&self.server_log()).len()
    }

    /// Starts the daemon under test, and waits until it answers.
    pub fn start_daemon(&mut self, flags: &str) {
        self.start_daemon_by(daemon_command("", &self.dhcp, flags));
        self.until("the daemon listens", || self.is_listening());
    }

    /// Starts a daemon by a command, without waiting.
    pub fn start_daemon_by(&mut self, mut command: Command) {
        let log = File::options().create(true).append(true).open("/run/lab/daemon.log");
        command.stdout(Stdio::null()).stderr(log.expect("open the daemon's log")).env("PATH", PATH);
        self.daemon = Some(Background(command.spawn().expect("start the daemon")));
    }

    /// Starts a daemon with a listening socket, as systemd does.
    pub fn start_daemon_on(&mut self, socket: OwnedFd) {
        let mut command = start_by_path("sh");
        let script = "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" daemon 3<&0 </dev/null";
        command.args(["-c", script]).arg(&self.dhcp).stdin(socket);
        self.start_daemon_by(command);
    }

    /// Whether a process listens on the daemon's socket.
    pub fn is_listening(&self) -> bool {
        let script = format!("ss -Hlx src {SOCKET} | grep -q .");
        self.host.try_exec(&["sh", "-c", &script]).status.success()
    }

    /// Ends the daemon.
    pub fn end_daemon(&mut self, signal: Signal) {
        self.daemon.take().into_iter().for_each(|daemon| daemon.end(signal));
    }

    /// The daemon's process.
    pub fn daemon(&mut self) -> Option<&mut Background> {
        self.daemon.as_mut()
    }

    /// The number of the daemon's system calls in a time.
    pub fn system_calls(&mut self, span: Duration) -> usize {
        let pid = self.daemon.as_ref().expect("a daemon runs").id().to_string();
        let mut strace = Command::new("strace")
            .args(["-f", "-qq", "-o", "/run/lab/calls.strace", "-p", &pid])
            .spawn()
            .expect("start strace");
        thread::sleep(span);
        kill(Pid::from_raw(strace.id().cast_signed()), Signal::SIGINT).expect("end strace");
        strace.wait().expect("wait for strace");
        fs::read_to_string("/run/lab/calls.strace").expect("read strace's output").lines().count()
    }

    /// The daemons' log.
    pub fn daemon_log(&self) -> String {
        fs::read_to_string("/run/lab/daemon.log").unwrap_or_default()
    }

    /// The daemon's leases.
    pub fn list(&self) -> Vec<Value> {
        let dhcp = &self.dhcp;
        let text = self.host.exec(&[dhcp.as_os_str(), "list".as_ref(), "-o".as_ref(), "json".as_ref()]);
        serde_json::from_str(&text).expect("a list in JSON")
    }

    /// Replaces the only lease of a stopped daemon by many of the same link, which end in an hour and belong to
    /// different containers.
    pub fn multiply_lease(&self, count: usize) {
        let files = fs::read_dir(STATE).expect("list the leases").flatten().map(|entry| entry.path());
        let mut leases = files.filter(|path| path.extension().is_some_and(|end| end == "json"));
        let lease = leases.next().expect("a lease");
        let text = fs::read(&lease).expect("read the lease");
        fs::remove_file(&lease).expect("remove the lease");
        let mut record: Value = serde_json::from_slice(&text).expect("a lease in JSON");
        let now = record["lease"]["since"].as_u64().expect("a lease has a start");
        for (time, minutes) in [("renew", 30), ("rebind", 50), ("expiry", 60)] {
            record["lease"][time] = json!(now + minutes * 60_000);
        }
        record["seen"] = json!(true);
        let names = format!(
            "mkdir /run/lab/keys; cd /run/lab/keys; seq {count} | while read n; do printf pod$n/net/eth0 >pod$n; done; sha256sum *"
        );
        // The files' names are the first half of a digest.
        for line in self.host.sh(&names).lines() {
            let (digest, container) = line.split_once("  ").expect("a line of sha256sum");
            record["containerId"] = json!(container);
            let file = lease.with_file_name(format!("{}.json", &digest[..32]));
            fs::write(file, record.to_string()).expect("write a lease");
        }
    }

    /// Polls a condition without an event: a program's log, a file.
    #[track_caller]
    pub fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let start = Instant::now();
        while !condition() {
            let late = start.elapsed() > Duration::from_secs(600);
            assert!(!late, "still not after ten minutes: {what}; the daemon says {}", self.daemon_log());
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The number of the daemon's lease files.
pub fn leases_on_disk() -> usize {
    let entries = fs::read_dir(STATE).into_iter().flatten().flatten();
    entries.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "json")).count()
}

/// A command: a program, whose path may contain spaces, with arguments that do not.
pub fn started_by(program: impl AsRef<OsStr>, arguments: &str) -> Command {
    let mut command = start_by_path(program);
    command.args(arguments.split_whitespace());
    command
}

/// Starts a program on a machine, with its output in a file.
pub fn in_background(machine: &Netns, mut command: Command, log: &Path) -> Background {
    let open = || File::options().create(true).append(true).open(log).expect("open a log");
    command.env("PATH", PATH).stdin(Stdio::null()).stdout(open()).stderr(open());
    let child = machine.run(|| command.spawn());
    Background(child.unwrap_or_else(|e| panic!("start {command:?}: {e}")))
}

/// A program of ISC that scripts/test unpacks. None: it is missing, and the test counts as skipped.
pub fn isc(program: &str) -> Option<PathBuf> {
    let path = target().join("isc-dhcp/usr/sbin").join(program);
    if !path.exists() {
        skip(&format!("ISC's {program} is missing"));
        return None;
    }
    Some(path)
}

/// The command of a daemon with flags, optionally started by another command.
pub fn daemon_command(under: &str, dhcp: &Path, flags: &str) -> Command {
    let words = under.split_whitespace();
    let mut argv = words.map(OsStr::new).chain([dhcp.as_os_str()]);
    let mut command = start_by_path(argv.next().expect("a program"));
    command.args(argv).arg("daemon").args(flags.split_whitespace()).stdin(Stdio::null());
    command
}

/// The plugin's executable, which is also the daemon's.
pub fn executable() -> PathBuf {
    under_test().dir.join("dhcp")
}

/// Starts a command of a plugin, without waiting for it.
pub fn start_running(call: &Call, command: &str) -> Child {
    let mut process = call.process();
    process.env("CNI_COMMAND", command).stderr(Stdio::null());
    let mut child = process.spawn().expect("start a plugin");
    child.stdin.take().expect("a piped stdin").write_all(&call.input()).expect("write a configuration");
    child
}
