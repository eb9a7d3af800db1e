//! Traffic between the lab's namespaces.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::time::{TimeVal, TimeValLike};

use crate::Netns;

/// Timeout for expected packets.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout for an echo request and its answer, including repetitions.
const ECHO: Duration = Duration::from_secs(300);
/// How many times a datagram is sent, because it may be lost, and how long each waits for its answer.
const TRIES: u32 = 6;

impl Netns {
    /// Whether an echo request from this namespace gets an answer. It is repeated: ping also exits if the kernel could
    /// not resolve the neighbour, because the program that answers has not run yet.
    pub fn reaches(&self, address: &str) -> bool {
        let (start, timeout) = (Instant::now(), TIMEOUT.as_secs().to_string());
        let ping = ["ping", "-n", "-q", "-c", "1", "-i", "0.2", "-w", &timeout, address];
        loop {
            if self.try_exec(&ping).status.success() {
                return true;
            }
            if start.elapsed() > ECHO {
                return false;
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Whether the kernel cannot resolve a neighbour. Only a neighbour is resolved, so nobody is cut off from an address behind a gateway.
    pub fn is_cut_off_from(&self, address: &str) -> bool {
        let route = self.exec(&["ip", "route", "get", address]);
        assert!(!route.contains(" via "), "{address} is no neighbour: {route}");
        let ip: IpAddr = address.parse().expect("an address");
        self.exec(&["ip", "neigh", "flush", "to", address]);
        self.run(|| UdpSocket::bind(unspecified(ip))?.send_to(b"who is there?", (ip, 9)))
            .expect("send a datagram");
        let state = |netns: &Self| {
            let known = netns.ip(&format!("neigh show {address}"));
            known.first().and_then(|neighbour| neighbour["state"][0].as_str().map(str::to_owned))
        };
        // The kernel may have deleted a failed entry.
        let is_given_up = |netns: &Self| state(netns).is_none_or(|state| state == "FAILED");
        self.wait_until("the neighbour answers or is given up", |netns| {
            is_given_up(netns) || state(netns).as_deref() == Some("REACHABLE")
        });
        is_given_up(self)
    }

    /// A TCP server that answers each connection with `name`, a space, and the client's address as the server sees it.
    pub fn serve_tcp(&self, name: &str, at: &str) -> Echo {
        let listener = self.run(|| TcpListener::bind(at)).unwrap_or_else(|e| panic!("listen on {at}: {e}"));
        let name = name.to_owned();
        Echo::start(&listener.try_clone().expect("a second handle"), move || {
            let (mut stream, peer) = listener.accept()?;
            write!(stream, "{name} {}", peer.ip())
        })
    }

    /// The same over UDP, for each datagram.
    pub fn serve_udp(&self, name: &str, at: &str) -> Echo {
        let socket = self.run(|| UdpSocket::bind(at)).unwrap_or_else(|e| panic!("bind {at}: {e}"));
        let name = name.to_owned();
        Echo::start(&socket.try_clone().expect("a second handle"), move || {
            let (_, peer) = socket.recv_from(&mut [0; 64])?;
            socket.send_to(format!("{name} {}", peer.ip()).as_bytes(), peer).map(drop)
        })
    }
}

/// A server in a namespace, until it is dropped.
#[derive(Debug)]
pub struct Echo {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Echo {
    /// Serves until it is stopped. It checks for that ten times a second.
    fn start(socket: &impl AsFd, serve: impl Fn() -> io::Result<()> + Send + 'static) -> Self {
        setsockopt(socket, ReceiveTimeout, &TimeVal::milliseconds(100)).expect("set a receive timeout");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                // A client that closes its connection is no failure of the server.
                let _ = serve();
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(thread::JoinHandle::join);
    }
}

/// Any address of a family, with any port.
fn unspecified(family: IpAddr) -> &'static str {
    if family.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }
}

/// A server's answer to a client in `from`. None: there is no connection.
pub fn tcp_says(from: &Netns, to: &str) -> Option<String> {
    let address: SocketAddr = to.parse().expect("ADDRESS:PORT");
    from.run(|| {
        let connection = TcpStream::connect_timeout(&address, TIMEOUT);
        let mut stream = connection.inspect_err(|e| eprintln!("connect to {to}: {e}")).ok()?;
        stream.set_read_timeout(Some(TIMEOUT)).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    })
}

/// The same over UDP. The request is repeated, because a datagram may be lost while a neighbour is resolved.
pub fn udp_says(from: &Netns, to: &str) -> Option<String> {
    let address: SocketAddr = to.parse().expect("ADDRESS:PORT");
    from.run(|| {
        let socket = UdpSocket::bind(unspecified(address.ip())).ok()?;
        socket.connect(address).ok()?;
        socket.set_read_timeout(Some(TIMEOUT / TRIES)).ok()?;
        let mut answer = [0; 64];
        let length = (0..TRIES).find_map(|_| {
            socket.send(b"who is there?").ok()?;
            socket.recv(&mut answer).ok()
        })?;
        Some(String::from_utf8_lossy(&answer[..length]).into_owned())
    })
}

/// Whether an ICMP error reports that no program receives datagrams there.
pub fn udp_is_refused(from: &Netns, to: &str) -> bool {
    let address: SocketAddr = to.parse().expect("ADDRESS:PORT");
    from.run(|| {
        let socket = UdpSocket::bind(unspecified(address.ip())).expect("a socket");
        socket.connect(address).expect("a route");
        socket.set_read_timeout(Some(TIMEOUT / TRIES)).expect("set a timeout");
        let answer = || socket.send(b"who is there?").and_then(|_| socket.recv(&mut [0; 64]));
        (0..TRIES).any(|_| answer().is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused))
    })
}

/// Whether a TCP connection fails: it is refused, or the kernel gives up after a second SYN.
pub fn tcp_is_cut_off(from: &Netns, to: &str) -> bool {
    tcp_failure(from, to).is_some()
}

/// Whether a host refuses a TCP connection, because no program listens and no rule forwards the port. A stale rule would
/// forward it to an address that cannot be reached any more.
pub fn tcp_is_refused(from: &Netns, to: &str) -> bool {
    tcp_failure(from, to) == Some(io::ErrorKind::ConnectionRefused)
}

/// How a TCP connection fails.
fn tcp_failure(from: &Netns, to: &str) -> Option<io::ErrorKind> {
    let address: SocketAddr = to.parse().expect("ADDRESS:PORT");
    from.run(|| {
        let retries = "/proc/sys/net/ipv4/tcp_syn_retries";
        let usual = fs::read(retries).expect("read how often the kernel asks");
        fs::write(retries, "1").expect("set how often the kernel asks");
        let connection = TcpStream::connect(address);
        fs::write(retries, usual).expect("set how often the kernel asks");
        connection.err().map(|e| e.kind())
    })
}
