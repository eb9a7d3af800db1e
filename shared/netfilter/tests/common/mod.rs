//! A separate namespace for each test, and other tools to read its firewall.
#![allow(dead_code, clippy::expect_used, clippy::unwrap_used)]

use std::fs;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::num::NonZeroU16;
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use cni::{Attachment, ContainerId, IfName, NetworkName, Undo};
use netfilter::{Conditions, Firewall, HostPort, HostPorts, Mark, Masquerade, Owner, Rules, SourceNat};
use netns::NetNs;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// Moves the test's thread into a new network namespace, with a separate `/run` for locks.
pub fn lab() {
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).expect("tests run as root");
    const NONE: Option<&str> = None;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE).expect("make mounts private");
    mount(NONE, "/run", Some("tmpfs"), MsFlags::empty(), Some("mode=755")).expect("mount a tmpfs");
    run("ip link set lo up");
}

/// Runs a command line, split at spaces.
pub fn output(line: &str) -> Output {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap());
    command.args(words).stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{line}: {e}"))
}

/// Runs a command line that must succeed, and returns its output.
pub fn run(line: &str) -> String {
    let output = output(line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Compares with the file in tests/golden. With BLESS=1, writes the file.
pub fn golden(name: &str, found: &str) {
    let file = format!("{}/tests/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("BLESS").is_some() {
        fs::write(&file, found).unwrap();
    }
    assert_eq!(found, fs::read_to_string(&file).unwrap(), "{file}");
}

/// The path of rules of the reference. The scenario `recorded_rules_are_those_of_the_reference` has recorded them, and compares them with
/// the present ones.
pub fn recorded(tool: &str) -> String {
    format!("{}/tests/reference/{tool}.txt", env!("CARGO_MANIFEST_DIR"))
}

/// A ruleset with the elements of each set in alphabetical order, because the kernel's order varies.
pub fn in_order(ruleset: &str) -> String {
    let mut parts = ruleset.split("elements = {");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (elements, rest) = part.split_once('}').unwrap();
        let mut elements: Vec<&str> = elements.split(',').map(str::trim).collect();
        elements.sort_unstable();
        text += &format!("elements = {{ {} }}{rest}", elements.join(",\n\t\t\t     "));
    }
    text
}

/// The ruleset as nft lists it.
pub fn ruleset() -> String {
    run("nft list ruleset")
}

pub fn owner(network: &str, container: &str) -> Owner {
    let at = attachment(container);
    Owner::new(&NetworkName::parse(network).unwrap(), &at)
}

pub fn attachment(container: &str) -> Attachment {
    Attachment { container: ContainerId::parse(container).unwrap(), ifname: IfName::parse("eth0").unwrap() }
}

pub fn install(firewall: &Firewall, owner: &Owner, rules: &dyn Rules) {
    let mut undo = Undo::new();
    firewall.install(owner, rules, &mut undo).unwrap();
    undo.commit();
}

pub fn masquerade(addresses: &[&str]) -> Masquerade {
    Masquerade { addresses: addresses.iter().map(|a| a.parse().unwrap()).collect() }
}

/// Mappings such as `tcp 8080 80` or `udp 192.0.2.1 53 53`.
pub fn host_ports(addresses: &[&str], mappings: &[&str]) -> HostPorts {
    HostPorts {
        addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
        mappings: mappings.iter().map(|m| mapping(m)).collect(),
        source_nat: SourceNat::Hairpin,
        mark: Mark::default(),
        conditions: Conditions::default(),
    }
}

fn mapping(text: &str) -> HostPort {
    let words: Vec<&str> = text.split(' ').collect();
    let port = |text: &str| text.parse::<NonZeroU16>().unwrap();
    let host_ip = (words.len() == 4).then(|| words[1].parse::<IpAddr>().unwrap());
    HostPort {
        protocol: words[0].parse().unwrap(),
        host_ip,
        host_port: port(words[words.len() - 2]),
        container_port: port(words[words.len() - 1]),
    }
}

/// Another namespace.
pub struct Machine {
    namespace: NetNs,
    path: String,
}

impl Machine {
    pub fn new() -> Self {
        let namespace = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            NetNs::current().unwrap()
        });
        let namespace = namespace.join().unwrap();
        let path = format!("/proc/{}/fd/{}", std::process::id(), namespace.as_fd().as_raw_fd());
        let this = Self { namespace, path };
        this.run("ip link set lo up");
        this
    }

    /// Runs a command line in the namespace.
    pub fn run(&self, line: &str) -> String {
        run(&format!("nsenter --net={} {line}", self.path))
    }

    /// Opens a socket in the namespace.
    pub fn open<T>(&self, socket: impl FnOnce() -> std::io::Result<T>) -> std::io::Result<T> {
        self.namespace.enter(socket).unwrap()
    }
}

/// A host (the test's namespace) with a bridge, two containers on it, and a client behind another interface.
///
/// ```text
/// pod  10.1.0.5 fd00:1::5 -- cni0 10.1.0.1 fd00:1::1  [host]  up0 192.0.2.1 fd00:2::1 -- 192.0.2.9 fd00:2::9
/// client pod2 10.1.0.6 fd00:1::6 --/
/// ```
pub struct Lab {
    pub pod: Machine,
    pub pod2: Machine,
    pub client: Machine,
}

impl Lab {
    pub fn new() -> Self {
        lab();
        let this = Self { pod: Machine::new(), pod2: Machine::new(), client: Machine::new() };
        run("ip link add cni0 type bridge");
        address("cni0", "10.1.0.1/24", "fd00:1::1/64");
        this.container(&this.pod, "pod", "02:00:00:00:00:05", 5);
        this.container(&this.pod2, "pod2", "02:00:00:00:00:06", 6);
        run(&format!("ip link add up0 type veth peer name eth0 netns {}", this.client.path));
        address("up0", "192.0.2.1/24", "fd00:2::1/64");
        for line in [
            "ip addr add 192.0.2.9/24 dev eth0",
            "ip addr add fd00:2::9/64 dev eth0 nodad",
            "ip link set eth0 up",
            "ip route add default via 192.0.2.1",
            "ip route add default via fd00:2::1",
        ] {
            this.client.run(line);
        }
        for key in ["ipv4.ip_forward", "ipv6.conf.all.forwarding", "ipv4.conf.cni0.route_localnet"] {
            run(&format!("sysctl -qw net.{key}=1"));
        }
        this
    }

    fn container(&self, machine: &Machine, port: &str, mac: &str, number: u8) {
        run(&format!(
            "ip link add {port} master cni0 type veth peer name eth0 address {mac} netns {}",
            machine.path
        ));
        run(&format!("ip link set {port} up type bridge_slave hairpin on"));
        for line in [
            format!("ip addr add 10.1.0.{number}/24 dev eth0"),
            format!("ip addr add fd00:1::{number}/64 dev eth0 nodad"),
            "ip link set eth0 up".into(),
            "ip route add default via 10.1.0.1".into(),
            "ip route add default via fd00:1::1".into(),
        ] {
            machine.run(&line);
        }
    }
}

fn address(link: &str, v4: &str, v6: &str) {
    run(&format!("ip addr add {v4} dev {link}"));
    run(&format!("ip addr add {v6} dev {link} nodad"));
    run(&format!("ip link set {link} up"));
}

/// How long to wait for a packet that must arrive: so long only where it does not.
pub const TIMEOUT: Duration = Duration::from_secs(600);

/// Connects by TCP, and returns the source address that the server sees.
pub fn seen_source(server: &TcpListener, connect: impl FnOnce() -> std::io::Result<TcpStream>) -> IpAddr {
    let _client = connect().expect("the connection is made");
    server.accept().unwrap().1.ip()
}

pub fn connect(to: &str) -> std::io::Result<TcpStream> {
    TcpStream::connect_timeout(&to.parse().unwrap(), TIMEOUT)
}

/// Connects to an address that may not answer. The kernel gives up after the second SYN.
pub fn is_unreachable(to: &str) -> bool {
    let retries = "/proc/sys/net/ipv4/tcp_syn_retries";
    let usual = fs::read(retries).unwrap();
    fs::write(retries, "1").unwrap();
    let connection = TcpStream::connect(to);
    fs::write(retries, usual).unwrap();
    connection.is_err()
}
