//! The closer: the process that closes plugins' netlink sockets later (`system::close_later`).

use std::fs;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;

use lab::{Call, Lab, beyond_reference, together, until};
use rustix::net::sockopt::{socket_domain, socket_protocol};
use rustix::net::{AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, netlink, recvmsg};
use serde_json::{Value, json};

const SOCKET: &str = "/run/ferrule/close-later.sock";
const PID_FILE: &str = "/run/ferrule/close-later.pid";

/// bridge with masquerade, followed by portmap.
fn chain(lab: &Lab) -> (Call, Call) {
    let pod = lab.container("pod");
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}]]});
    let bridge = lab
        .plugin("bridge")
        .config(json!({"isGateway": true, "ipMasq": true, "ipMasqBackend": "nftables", "ipam": ipam}));
    let ports = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    let portmap = lab
        .plugin("portmap")
        .config(json!({"backend": "nftables", "runtimeConfig": {"portMappings": ports}}));
    (bridge.on(&pod), portmap.on(&pod))
}

fn behind(portmap: &Call, prev: &Value) -> Call {
    portmap.clone().config(json!({"prevResult": prev}))
}

/// The number of nfnetlink sockets that the closer has received since the last call.
fn received(closer: &UnixListener) -> usize {
    closer.set_nonblocking(true).unwrap();
    let connections = std::iter::from_fn(|| closer.accept().ok());
    connections.map(|(connection, _)| sockets_in(&connection)).sum()
}

fn sockets_in(connection: &UnixStream) -> usize {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
    let (mut byte, mut message) = ([0], RecvAncillaryBuffer::new(&mut space));
    recvmsg(connection, &mut [IoSliceMut::new(&mut byte)], &mut message, RecvFlags::CMSG_CLOEXEC).unwrap();
    let sockets: Vec<_> = message
        .drain()
        .flat_map(|part| match part {
            RecvAncillaryMessage::ScmRights(sockets) => sockets.collect(),
            _ => Vec::new(),
        })
        .collect();
    for socket in &sockets {
        assert_eq!(socket_domain(socket).unwrap(), AddressFamily::NETLINK);
        assert_eq!(socket_protocol(socket).unwrap(), Some(netlink::NETFILTER));
    }
    sockets.len()
}

#[test]
fn every_plugin_with_rules_passes_its_sockets_to_the_running_closer() {
    beyond_reference!("closer");
    let lab = Lab::new();
    let (bridge, portmap) = chain(&lab);
    // The directory of locks, with the mode that plugins give it.
    bridge.add().ok_result();
    bridge.del().ok();
    fs::create_dir_all("/run/ferrule").unwrap();
    Command::new("chmod").args(["700", "/run/ferrule"]).status().unwrap();
    fs::remove_file(SOCKET).ok();
    let closer = UnixListener::bind(SOCKET).unwrap();

    let prev = bridge.add().ok_result();
    assert!(received(&closer) > 0, "ADD of bridge");
    let portmap = behind(&portmap, &prev);
    portmap.add().ok_result();
    assert!(received(&closer) > 0, "ADD of portmap");
    portmap.check(&prev).ok();
    assert!(received(&closer) > 0, "CHECK of portmap");
    portmap.del().ok();
    assert!(received(&closer) > 0, "DEL of portmap");
    bridge.del().ok();
    assert!(received(&closer) > 0, "DEL of bridge");
    assert!(fs::metadata(PID_FILE).is_err(), "no plugin has started a closer of its own");
}

#[test]
fn a_del_starts_a_closer_and_an_add_does_not() {
    beyond_reference!("closer");
    let lab = Lab::new();
    let (bridge, portmap) = chain(&lab);
    let portmap = behind(&portmap, &bridge.add().ok_result());
    portmap.add().ok_result();
    assert!(fs::metadata(SOCKET).is_err());
    portmap.del().ok();
    let pid = || fs::read_to_string(PID_FILE).unwrap_or_default();
    until("the closer notes its process identifier", || !pid().is_empty());
    until("the closer exits", || !is_running(&pid()));
}

fn is_running(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z"))
}

#[test]
fn a_closer_that_has_no_free_descriptor_exits() {
    let lab = Lab::new();
    let place = lab.dir().join("close-later.sock");
    let listener = UnixListener::bind(&place).unwrap();
    let _waiting = UnixStream::connect(&place).unwrap();
    let mut closer = Command::new("timeout");
    closer.args(["600", "prlimit", "--nofile=3:3"]).arg(together().join("portmap")).arg("close-later");
    assert!(closer.stdin(OwnedFd::from(listener)).status().unwrap().success(), "it has not ended");
}

/// As in a container whose first process is an application.
#[test]
fn where_process_1_reaps_no_orphans_at_most_one_zombie_remains() {
    let lab = Lab::new();
    let (bridge, portmap) = chain(&lab);
    let portmap = behind(&portmap, &bridge.add().ok_result());
    let config = lab.dir().join("config.json");
    fs::write(&config, portmap.input()).unwrap();
    let plugin = together().join("portmap");
    let script = r#"
import glob, os, subprocess, sys, time
plugin, config = sys.argv[1:]
def states():
    for stat in glob.glob("/proc/[0-9]*/stat"):
        try:
            text = open(stat).read()
        except OSError:
            continue
        # The name of a program that was started as /proc/self/exe.
        if "(exe)" in text:
            yield text.rpartition(") ")[2][0]
for _ in range(5):
    for command in "ADD", "DEL":
        with open(config) as stdin:
            subprocess.run([plugin], stdin=stdin, stdout=subprocess.DEVNULL, env=dict(os.environ, CNI_COMMAND=command), check=True)
    while any(state != "Z" for state in states()):
        time.sleep(0.05)
print(len(list(states())))
"#;
    let mut outer = Command::new("unshare");
    outer.args(["--pid", "--fork", "--mount-proc", "python3", "-c", script]).arg(plugin).arg(&config);
    let call = portmap.process();
    outer.envs(call.get_envs().filter_map(|(key, value)| Some((key, value?))));
    let output = outer.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "1");
}
