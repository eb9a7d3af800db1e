//! The client and its sockets with a real server, dnsmasq. The tests provide the clock: a renewal is due when they say
//! so.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "tests")]

use std::fs::{self, File};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Child, Command};
use std::time::Duration;

use dhcp_client::{
    Action, Client, Identity, Kind, Lease, Link, Message, Random, State, Time, Timing, To, result,
};
use lab::{Container, Lab};
use netns::NetNs;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Only prevents a hanging test. In milliseconds.
const TIMEOUT: i32 = 600_000;
/// How long an answer is waited for before the message is sent again. It may have been lost while the link came up.
const AGAIN: u16 = 5_000;

/// dnsmasq at one end of a veth pair. The other end is in the container.
struct Server {
    process: Child,
    log: String,
}

impl Server {
    fn start(lab: &Lab, pod: &Container, options: &[&str]) -> Self {
        lab.host().sh(&format!(
            "ip link add srv type veth peer name eth0 netns {}
             ip addr add 10.0.0.1/24 dev srv; ip link set srv up",
            pod.netns.name()
        ));
        pod.sh("ip link set lo up; ip link set eth0 up");
        Self::serve(options)
    }

    fn serve(options: &[&str]) -> Self {
        let log = "/run/lab/dnsmasq.log".to_owned();
        let file = File::create(&log).unwrap();
        let process = Command::new("/usr/sbin/dnsmasq")
            .args(["--keep-in-foreground", "--port=0", "--no-ping", "--conf-file=/dev/null", "--user=root"])
            .args(["--dhcp-authoritative", "--log-dhcp", "--log-facility=-", "--pid-file="])
            .args(["--dhcp-leasefile=/run/lab/leases", "--interface=srv", "--bind-interfaces"])
            .args(options)
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .expect("dnsmasq: apt install dnsmasq-base");
        let this = Self { process, log };
        this.wait_for("DHCP, IP range");
        this
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    fn wait_for(&self, what: &str) {
        for _ in 0..TIMEOUT / 10 {
            if self.text().contains(what) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{what:?} is not in dnsmasq's log: {}", self.text());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn identity(pod: &Container) -> Identity {
    let mac = pod.link("eth0").unwrap()["address"].as_str().unwrap().parse::<netlink::Mac>().unwrap();
    Identity {
        mac: mac.bytes(),
        client_id: b"\0pod/net/eth0".to_vec(),
        broadcast: false,
        provide: vec![(12, b"pod".to_vec())],
        request: vec![42],
        required: vec![42],
    }
}

/// Sends the messages of the actions, and passes the answers to the client, until there is a result.
fn exchange(pod: &Container, client: &mut Client, now: Time, mut actions: Vec<Action>) -> Vec<Action> {
    let namespace = NetNs::open(pod.path()).unwrap();
    let mut link: Option<Link> = None;
    for _ in 0..TIMEOUT / i32::from(AGAIN) {
        for action in &actions {
            let Action::Send { to, message } = action else { return actions };
            let open = link.take().filter(|link| link.fits(*to));
            let open = open.unwrap_or_else(|| Link::open(&namespace, "eth0", *to).unwrap());
            open.send(*to, message).unwrap();
            link = Some(open);
        }
        let open = link.as_ref().expect("something was sent");
        let next = loop {
            let mut fds = [PollFd::new(open.as_fd(), PollFlags::POLLIN)];
            if poll(&mut fds, PollTimeout::from(AGAIN)).unwrap() == 0 {
                break Vec::new();
            }
            let packet = open.receive().unwrap();
            let next = packet.map_or_else(Vec::new, |packet| client.receive(now, &packet));
            if !next.is_empty() {
                break next;
            }
        };
        if !next.is_empty() {
            actions = next;
        }
    }
    panic!("no server answers");
}

#[track_caller]
fn bound(actions: Vec<Action>) -> Lease {
    match <[Action; 1]>::try_from(actions) {
        Ok([Action::Bound(lease)]) => lease,
        other => panic!("{other:?}"),
    }
}

const POOL: &str = "--dhcp-range=10.0.0.50,10.0.0.60,1h";
const NTP: &str = "--dhcp-option=42,10.0.0.9";

fn acquire(pod: &Container, identity: &Identity, now: Time) -> (Client, Lease) {
    let mut client = Client::acquire(identity.clone(), Timing::default(), now, Random::from_kernel());
    let actions = client.tick(now);
    let lease = bound(exchange(pod, &mut client, now, actions));
    pod.sh(&format!("ip addr add {}/{} dev eth0", lease.address, lease.prefix));
    (client, lease)
}

/// The client releases its address, and the server deletes the lease.
fn is_released(pod: &Container, server: &Server, client: Client, lease: &Lease) {
    let Some(Action::Send { to, message }) = client.release() else { panic!("there is a lease") };
    let namespace = NetNs::open(pod.path()).unwrap();
    Link::open(&namespace, "eth0", to).unwrap().send(to, &message).unwrap();
    server.wait_for(&format!("DHCPRELEASE(srv) {}", lease.address));
    assert!(!server.text().contains("unknown lease"), "{}", server.text());
}

#[test]
fn a_real_server_grants_extends_and_releases_a_lease() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let routes = "--dhcp-option=121,10.1.0.0/16,10.0.0.2,0.0.0.0/0,10.0.0.1";
    let search = "--dhcp-option=119,eng.example.org,example.org";
    let server = Server::start(&lab, &pod, &[POOL, NTP, routes, search, "--domain=example.org"]);
    let (mut client, lease) = acquire(&pod, &identity(&pod), Time::now());
    assert_eq!((lease.prefix, lease.server), (24, Ipv4Addr::new(10, 0, 0, 1)));
    let given = result::of_lease(&lease, None);
    let routes: Vec<_> =
        given.routes.iter().map(|route| (route.dst.to_string(), route.gw.unwrap().to_string())).collect();
    let text = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(routes, [text("10.1.0.0/16", "10.0.0.2"), text("0.0.0.0/0", "10.0.0.1")]);
    assert_eq!(given.dns.search, ["eng.example.org", "example.org"]);

    for state in [State::Renewing, State::Rebinding] {
        let lease = client.lease().unwrap().clone();
        let now = if state == State::Renewing { lease.renew } else { lease.rebind }.unwrap();
        let actions = client.tick(now);
        assert_eq!(client.state(), state);
        let extended = bound(exchange(&pod, &mut client, now, actions));
        assert_eq!((extended.address, extended.since), (lease.address, now));
    }

    is_released(&pod, &server, client, &lease);
}

#[test]
fn an_address_that_was_never_on_the_link_is_released_by_broadcast() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let server = Server::start(&lab, &pod, &[POOL, NTP]);
    let (client, lease) = acquire(&pod, &identity(&pod), Time::now());
    pod.sh("ip addr flush dev eth0");
    is_released(&pod, &server, client, &lease);
}

#[test]
fn a_server_that_now_has_another_subnet_refuses_and_grants_a_new_address() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let server = Server::start(&lab, &pod, &[POOL, NTP]);
    let (mut client, old) = acquire(&pod, &identity(&pod), Time::now());
    drop(server);
    fs::remove_file("/run/lab/leases").ok();
    // The old address stays, so that the server can still be reached.
    lab.host().sh("ip addr add 10.9.0.1/24 dev srv");
    let _server = Server::serve(&["--dhcp-range=10.9.0.50,10.9.0.60,1h", NTP]);
    let now = old.renew.unwrap();
    let actions = client.tick(now);
    let mut actions = exchange(&pod, &mut client, now, actions);
    assert!(matches!(actions.remove(0), Action::Lost(_)));
    pod.sh("ip addr flush dev eth0");
    let new = bound(exchange(&pod, &mut client, now, actions));
    assert!(new.address.to_string().starts_with("10.9.0."), "{}", new.address);
}

#[test]
fn an_address_of_a_lease_that_is_not_known_is_confirmed_by_init_reboot() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let _server = Server::start(&lab, &pod, &[POOL, NTP]);
    let now = Time::now();
    let (_, lease) = acquire(&pod, &identity(&pod), now);
    let mut client =
        Client::reboot(identity(&pod), Timing::default(), lease.address, now, Random::from_kernel());
    let actions = client.tick(now);
    assert_eq!(client.state(), State::Rebooting);
    assert_eq!(bound(exchange(&pod, &mut client, now, actions)).address, lease.address);
}

#[test]
fn other_packets_than_answers_of_the_transaction_are_filtered() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.host().sh(&format!(
        "ip link add srv type veth peer name eth0 netns {}
         ip addr add 10.0.0.1/24 dev srv; ip link set srv up",
        pod.netns.name()
    ));
    pod.sh("ip link set eth0 up; ip addr add 10.0.0.7/24 dev eth0");
    let mut client = Client::acquire(identity(&pod), Timing::default(), Time::now(), Random::from_kernel());
    let actions = client.tick(Time::now());
    let [Action::Send { to, message }] = &actions[..] else { panic!("{actions:?}") };
    let link = Link::open(&NetNs::open(pod.path()).unwrap(), "eth0", *to).unwrap();
    link.send(*to, message).unwrap();

    let request = Message::decode(message).unwrap();
    let mut offer = Message { is_reply: true, ..request };
    offer.options.set(53, [Kind::Offer as u8]);
    let other = Message { xid: offer.xid ^ 1, ..offer.clone() };
    let socket = UdpSocket::bind("10.0.0.1:67").unwrap();
    for (payload, port) in
        [(b"noise".to_vec(), 68), (offer.encode(), 69), (other.encode(), 68), (offer.encode(), 68)]
    {
        socket.send_to(&payload, ("10.0.0.7", port)).unwrap();
    }
    let mut fds = [PollFd::new(link.as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut fds, PollTimeout::try_from(TIMEOUT).unwrap()).unwrap(), 1);
    // Only the newest message has arrived.
    assert_eq!(link.receive().unwrap(), Some(offer.encode()));
    assert_eq!(link.receive().unwrap(), None);

    pod.sh("ip link set eth0 down");
    assert!(link.send(*to, message).unwrap_err().msg().contains("eth0"));
    let nowhere =
        Link::open(&NetNs::open(pod.path()).unwrap(), "eth9", To::Broadcast { from: Ipv4Addr::UNSPECIFIED });
    assert!(nowhere.unwrap_err().msg().contains("eth9"));
}

/// Any host on the link can send such packets endlessly.
#[test]
fn a_packet_with_a_wrong_checksum_counts_as_received() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.host().sh("ip link add srv type veth peer name eth0 netns pod; ip link set srv up");
    pod.sh("ip link set eth0 up");
    // Until the kernel has seen the carrier, it drops what is sent.
    lab.host().wait_until("the pair carries packets", |host| host.link("srv").unwrap()["operstate"] == "UP");
    let mut client = Client::acquire(identity(&pod), Timing::default(), Time::now(), Random::from_kernel());
    let actions = client.tick(Time::now());
    let [Action::Send { to, message }] = &actions[..] else { panic!("{actions:?}") };
    let link = Link::open(&NetNs::open(pod.path()).unwrap(), "eth0", *to).unwrap();
    link.send(*to, message).unwrap();
    let request = Message::decode(message).unwrap();
    let packet = with_wrong_checksum(&Message { is_reply: true, ..request }.encode());
    let index = nix::net::if_::if_nametoindex("srv").unwrap();
    let nothing = netlink::packet::Instruction { code: 6, if_true: 0, if_false: 0, operand: 0 };
    let sender = netlink::PacketSocket::open(index, &[nothing]).unwrap();
    for _ in 0..3 {
        sender.broadcast(&packet).unwrap();
    }
    for _ in 0..3 {
        let mut fds = [PollFd::new(link.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut fds, PollTimeout::try_from(TIMEOUT).unwrap()).unwrap(), 1);
        assert_eq!(link.receive().unwrap(), Some(Vec::new()));
    }
    assert_eq!(link.receive().unwrap(), None);
}

/// A server's datagram with IPv4 and UDP headers.
fn with_wrong_checksum(payload: &[u8]) -> Vec<u8> {
    let length = |headers: usize| u16::try_from(headers + payload.len()).unwrap().to_be_bytes();
    let ([a, b], [c, d]) = (length(28), length(8));
    let ip = [0x45, 0, a, b, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 255, 255, 255, 255];
    [&ip[..], &[0, 67, 0, 68, c, d, 0xbe, 0xef], payload].concat()
}

/// A program that has bound the port receives the server's answer instead of the client. The release does not use the
/// port.
#[test]
fn an_address_is_released_even_while_a_program_in_the_container_has_the_port() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let server = Server::start(&lab, &pod, &[POOL, NTP]);
    let (client, lease) = acquire(&pod, &identity(&pod), Time::now());
    let _bound = pod.netns.run(|| UdpSocket::bind("0.0.0.0:68").unwrap());
    is_released(&pod, &server, client, &lease);
}
