//! Tests of an attachment, with a server that the tests play.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::UdpSocket;

use dhcp_client::{Kind, Message, options};
use lab::{Container, Lab};

use super::*;
use crate::args::Args;
use crate::parameters::{ClientConf, V4};

const ADDRESS: [u8; 4] = [10, 0, 0, 7];
const SERVER: [u8; 4] = [10, 0, 0, 1];
const NTP: [(u8, &[u8]); 1] = [(42, &SERVER)];
/// Only prevents a hanging test.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The address of an earlier ADD's lease.
pub const EARLIER: &str = "10.0.0.6/24";

pub fn lab_host() -> Host {
    Host::new(Args { socket: "/run/lab/dhcp.sock".into(), ..Args::default() })
}

/// A link between a container and a server.
pub struct Fixture {
    pub host: Host,
    pod: Container,
    server: UdpSocket,
    _lab: Lab,
}

impl Fixture {
    pub fn new() -> Self {
        let lab = Lab::new();
        let pod = lab.container("pod");
        lab.host().sh("ip link add srv type veth peer name eth0 netns pod
             ip addr add 10.0.0.1/24 dev srv; ip link set srv up");
        pod.sh("ip link set lo up; ip link set eth0 up");
        // The kernel reports a carrier slightly before the link can send. Packets are lost until then.
        lab.host().wait_until("the server's link is up", |host| {
            host.link("srv").is_some_and(|link| link["operstate"] == "UP")
        });
        let server = UdpSocket::bind("0.0.0.0:67").unwrap();
        server.set_broadcast(true).unwrap();
        server.set_read_timeout(Some(TIMEOUT)).unwrap();
        let host = lab_host();
        std::fs::create_dir(host.store.path()).unwrap();
        Self { host, pod, server, _lab: lab }
    }

    fn open_interface(&self) -> OpenInterface {
        let namespace = Namespace::open(self.pod.path()).unwrap();
        OpenInterface { link: namespace.link("eth0").unwrap(), namespace }
    }

    /// An attachment that needs time servers (option 42).
    fn acquire(&self) -> ManagedLease {
        let key = Key::parse("net", "pod", "eth0", Family::V4).unwrap();
        let found = self.open_interface();
        let asks = ClientConf {
            client_id: key.client_id(),
            broadcast: false,
            provide: Vec::new(),
            request: vec![42],
            required: vec![42],
        };
        let attachment = LeasedAttachment::new("net", "pod", "eth0", found.location().unwrap());
        let parameters =
            LeaseParameters::V4(V4 { priority: None, sets_mtu: true, asks, lease: None, replaced: None });
        ManagedLease::acquire(key, attachment, parameters, found.namespace, &self.host, (1, None))
    }

    /// The next message that the server receives.
    fn heard(&self) -> Message {
        let mut buffer = [0; 2000];
        let length = self.server.recv(&mut buffer).unwrap();
        Message::decode(&buffer[..length]).unwrap()
    }

    /// Sends the server's answer to a message.
    fn log_line(&self, request: Message, kind: Kind, extra: &[(u8, &[u8])]) {
        let mut answer = Message { is_reply: true, yiaddr: ADDRESS.into(), ..request };
        answer.options = dhcp_client::Options::default();
        answer.options.set(options::MESSAGE_TYPE, [kind as u8]);
        answer.options.set(options::SERVER_ID, SERVER);
        answer.options.set(options::SUBNET_MASK, [255, 255, 255, 0]);
        answer.options.set(options::LEASE_TIME, 3600_u32.to_be_bytes());
        extra.iter().for_each(|(number, value)| answer.options.set(*number, *value));
        self.server.send_to(&answer.encode(), "10.0.0.255:68").unwrap();
    }

    /// Sends the server's answer, and lets the attachment process it.
    fn answer(&self, one: &mut ManagedLease, request: Message, kind: Kind, extra: &[(u8, &[u8])]) -> Outcome {
        let before = one.state().name;
        self.log_line(request, kind, extra);
        for _ in 0..TIMEOUT.as_millis() {
            match one.receive(&self.host) {
                Outcome::Unchanged if one.state().name == before => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                other => return other,
            }
        }
        panic!("nothing has come of {kind:?}");
    }

    /// Offers a lease, and confirms it.
    fn lease(&self, one: &mut ManagedLease, extra: &[(u8, &[u8])]) -> Outcome {
        assert!(matches!(one.tick(&self.host), Outcome::Unchanged));
        let discover = self.heard();
        assert!(matches!(self.answer(one, discover, Kind::Offer, &NTP), Outcome::Unchanged));
        let request = self.heard();
        self.answer(one, request, Kind::Ack, extra)
    }

    /// The lease of an ADD whose plugin was killed, at the time of the check for its use. An earlier ADD's lease has an
    /// address that is on the link.
    pub fn unused_with_earlier(&self) -> ManagedLease {
        let mut first = self.acquire();
        self.lease(&mut first, &NTP);
        let mut record = self.host.store.read(&first.key).unwrap().unwrap();
        record.attachment.seen = true;
        record.attachment.on_link = Some(EARLIER.parse().unwrap());
        if let LeaseParameters::V4(V4 { lease: Some(lease), .. }) = &mut record.parameters {
            lease.address = [10, 0, 0, 6].into();
        }
        self.pod.sh(&format!("ip addr add {EARLIER} brd + dev eth0"));
        let mut one = self.acquire();
        self.lease(&mut one, &NTP);
        one.waiter = Waiter::Nobody;
        one.earlier = Some(Box::new(ManagedLease::from_record(first.key, record, &self.host)));
        one.release_unless_used_by = Some(Time::now());
        one
    }

    #[track_caller]
    pub fn hears_release(&self) {
        let message = self.heard();
        assert_eq!((message.kind(), message.ciaddr), (Some(Kind::Release), ADDRESS.into()));
    }
}

#[test]
fn an_address_whose_ack_lacks_an_offered_option_is_released() {
    let fixture = Fixture::new();
    let mut one = fixture.acquire();
    let outcome = fixture.lease(&mut one, &[]);
    assert!(matches!(&outcome, Outcome::Failed(e) if e.msg().contains("ntp-servers")), "{outcome:?}");
    fixture.hears_release();
}

#[test]
fn an_address_whose_record_cannot_be_written_is_released() {
    let fixture = Fixture::new();
    let mut one = fixture.acquire();
    std::fs::remove_dir(fixture.host.store.path()).unwrap();
    let outcome = fixture.lease(&mut one, &NTP);
    assert!(matches!(&outcome, Outcome::Failed(e) if e.code() == 5), "{outcome:?}");
    one.release(&fixture.host).unwrap();
    fixture.hears_release();
}

#[test]
fn no_request_is_sent_after_the_plugin_has_exited() {
    let fixture = Fixture::new();
    let mut one = fixture.acquire();
    one.waiter = Waiter::Cancelled;
    let outcome = one.tick(&fixture.host);
    assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
    assert!(one.client().socket().is_none());
}

#[test]
fn an_address_that_a_server_may_have_allocated_is_released_without_an_answer_or_a_waiting_plugin() {
    let mut fixture = Fixture::new();
    // With a short timeout of the client, the test need not wait long.
    fixture.host.timing.timeout = Duration::from_millis(200);
    // The plugin gives up before the client's timeout, and after it.
    for dies_late in [false, true] {
        let mut one = fixture.acquire();
        let outcome = one.tick(&fixture.host);
        assert!(matches!(outcome, Outcome::Unchanged));
        let discover = fixture.heard();
        fixture.answer(&mut one, discover, Kind::Offer, &NTP);
        assert_eq!(fixture.heard().kind(), Some(Kind::Request));
        let asks_again = |one: &mut ManagedLease| {
            std::thread::sleep(fixture.host.timing.timeout);
            let outcome = one.tick(&fixture.host);
            assert_eq!(one.state().name, "SELECTING");
            outcome
        };
        if dies_late {
            asks_again(&mut one);
            assert!(!one.cancel());
        } else {
            assert!(one.cancel());
            let outcome = asks_again(&mut one);
            assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
        }
        one.release(&fixture.host).unwrap();
        while fixture.heard().kind() != Some(Kind::Release) {}
    }
}

#[test]
fn a_host_that_sends_endlessly_does_not_block_other_leases() {
    let fixture = Fixture::new();
    let mut one = fixture.acquire();
    one.tick(&fixture.host);
    let discover = fixture.heard();
    (0..PACKETS_PER_TURN + 1).for_each(|_| fixture.log_line(discover.clone(), Kind::Inform, &[]));
    one.receive(&fixture.host);
    // Some messages are queued or still to arrive.
    let left = (0..TIMEOUT.as_millis()).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        one.client.receive(Time::now()).unwrap().is_some()
    });
    assert!(left);
}

/// A veth's other end, and a macvlan's master, keep their MTU.
#[test]
fn a_servers_mtu_lowers_the_links_and_never_raises_it() {
    let fixture = Fixture::new();
    for (sent, expected) in [(9000_u16, 1500), (1400, 1400), (1450, 1400), (1400, 1400)] {
        let mut one = fixture.acquire();
        let outcome = fixture.lease(&mut one, &[NTP[0], (26, &sent.to_be_bytes())]);
        assert!(matches!(outcome, Outcome::First(_)), "{outcome:?}");
        assert_eq!(fixture.pod.link("eth0").unwrap()["mtu"], expected, "after {sent}");
    }
}

#[test]
fn a_lease_is_recorded() {
    let fixture = Fixture::new();
    let mut one = fixture.acquire();
    let outcome = fixture.lease(&mut one, &NTP);
    assert!(matches!(outcome, Outcome::First(_)), "{outcome:?}");
    let kept = fixture.host.store.read(&one.key).unwrap().unwrap();
    assert!(kept.attachment.on_link.is_some() && kept.attachment.on_link == one.attachment.on_link);
}

/// With both families, the plugin adds the address after it also has an IPv6 lease, up to `-resendtimeout` later.
#[test]
fn the_daemon_waits_until_t1_for_the_address_to_appear_on_the_link() {
    let fixture = Fixture::new();
    let mut one = fixture.acquire();
    fixture.lease(&mut one, &NTP);
    let renewal = one.client.deadline().unwrap();
    assert!(renewal > Time::now() + Duration::from_secs(1700));
    assert!(one.lifetimes_due_until.is_some_and(|until| until >= renewal));
}

/// The plugin was killed after it had got the lease.
#[test]
fn a_lease_that_no_plugin_uses_is_renewed_until_the_longest_add_would_have_ended() {
    let fixture = Fixture::new();
    let mut one = fixture.acquire();
    fixture.lease(&mut one, &[NTP[0], (options::RENEWAL_TIME, &1_u32.to_be_bytes())]);
    one.waiter = Waiter::Nobody;
    one.earlier = Some(Box::new(fixture.acquire()));
    let since = one.client.since().unwrap();
    let end = one.release_unless_used_by.unwrap();
    assert!(end.since(since) >= fixture.host.timing.resend_timeout + ASSIGNMENT_TIMEOUT);
    std::thread::sleep(Duration::from_secs(1));
    assert!(matches!(one.tick(&fixture.host), Outcome::Unchanged));
    let renewal = fixture.heard();
    assert!(matches!(fixture.answer(&mut one, renewal, Kind::Ack, &NTP), Outcome::Unchanged));
    assert_eq!(one.release_unless_used_by, Some(end));
    // The interface may still use it.
    assert!(one.earlier.is_some());
    one.release_unless_used_by = Some(Time::now());
    let outcome = one.tick(&fixture.host);
    assert!(matches!(&outcome, Outcome::Failed(e) if e.msg() == UNUSED), "{outcome:?}");
}

/// The daemon does not renew the earlier lease meanwhile.
#[test]
fn an_unused_lease_is_released_before_the_earlier_one_ends_unless_the_add_waits_for_the_other_family() {
    let fixture = Fixture::new();
    let short = [(options::LEASE_TIME, &120_u32.to_be_bytes()[..]), NTP[0]];
    let now = Time::now();
    for (extra, needs_other_family, expected) in [
        (&short[..], false, 60..90),
        (&short, true, 268..300),
        // The plugin is putting the address on the link.
        (&[NTP[0], (options::RENEWAL_TIME, &1_u32.to_be_bytes())], false, 60..90),
        (&NTP, false, 268..300),
    ] {
        let mut earlier = fixture.acquire();
        fixture.lease(&mut earlier, extra);
        (earlier.next_check, earlier.release_unless_used_by) = (None, None);
        let mut one = fixture.acquire();
        (one.earlier, one.needs_other_family) = (Some(Box::new(earlier)), needs_other_family);
        fixture.lease(&mut one, &NTP);
        let wait = one.release_unless_used_by.unwrap().since(now).as_secs();
        assert!(expected.contains(&wait), "{wait} s instead of {expected:?}");
    }
}

#[test]
fn a_lease_whose_use_could_not_be_checked_is_checked_again() {
    let fixture = Fixture::new();
    let mut one = fixture.acquire();
    fixture.lease(&mut one, &NTP);
    one.waiter = Waiter::Nobody;
    let check = |one: &mut ManagedLease| {
        (one.next_check, one.release_unless_used_by) = (None, Some(Time::now()));
        assert!(matches!(one.tick(&fixture.host), Outcome::Unchanged));
        assert!(one.release_unless_used_by.is_some_and(|again| again > Time::now()));
    };
    let path = break_path(&mut one);
    check(&mut one);
    // The link can be opened again, but a renewal that could not be applied is still pending.
    (one.attachment.location.netns, one.link_task) = (path, Some(LinkTask::Update));
    check(&mut one);
}

#[test]
fn a_lease_whose_file_can_be_neither_written_nor_removed_is_kept_as_it_was() {
    let fixture = Fixture::new();
    let mut one = fixture.acquire();
    fixture.lease(&mut one, &NTP);
    let file = fixture.host.store.path().join(one.key.file());
    std::fs::remove_file(&file).unwrap();
    // rename(2) cannot replace a directory by a file, and unlink(2) cannot remove one.
    std::fs::create_dir(&file).unwrap();
    let (kept, error) = one.release(&fixture.host).unwrap_err();
    assert!(error.code() == 5 && !kept.attachment.releasing, "{error}");
}

/// A lease that is on the link, and its renewal that the server has received.
fn renewing(fixture: &Fixture) -> (ManagedLease, Message) {
    renewing_after(fixture, &NTP, "ip addr add 10.0.0.7/24 brd + dev eth0")
}

/// The same for a lease with other options, which a script puts on the link.
fn renewing_after(fixture: &Fixture, options: &[(u8, &[u8])], script: &str) -> (ManagedLease, Message) {
    let mut one = fixture.acquire();
    fixture.lease(&mut one, options);
    fixture.pod.sh(script);
    let mut record = fixture.host.store.read(&one.key).unwrap().unwrap();
    record.attachment.seen = true;
    if let LeaseParameters::V4(V4 { lease: Some(lease), .. }) = &mut record.parameters {
        lease.renew = Some(Time::now());
    }
    let mut one = ManagedLease::from_record(one.key, record, &fixture.host);
    assert!(matches!(one.tick(&fixture.host), Outcome::Unchanged));
    (one, fixture.heard())
}

/// The result of a renewal with these options.
fn renew(fixture: &Fixture, extra: &[(u8, &[u8])]) -> LeasedAttachment {
    let (mut one, renewal) = renewing(fixture);
    assert!(matches!(fixture.answer(&mut one, renewal, Kind::Ack, extra), Outcome::Unchanged));
    one.attachment
}

#[test]
fn an_mtu_that_changes_is_put_on_the_link_though_nothing_else_does() {
    let fixture = Fixture::new();
    renew(&fixture, &[(options::INTERFACE_MTU, &1400_u16.to_be_bytes())]);
    assert_eq!(fixture.pod.link("eth0").unwrap()["mtu"], 1400);
}

const ROUTER: (u8, &[u8]) = (options::ROUTERS, &SERVER);
/// What another program, such as sbr, has made of the lease's default route.
const MOVED: &str = "ip addr add 10.0.0.7/24 brd + dev eth0; ip route add default via 10.0.0.9
     ip route add default via 10.0.0.1 table 100";

/// The container's default routes in the main table.
fn default_routes(fixture: &Fixture) -> Vec<String> {
    let routes = fixture.pod.routes().into_iter().filter(|route| route.starts_with("default"));
    routes.map(|route| route.split(" dev").next().unwrap_or_default().to_owned()).collect()
}

/// For example by sbr, by Multus' `default-route`, or by an administrator.
#[test]
fn a_renewal_does_not_restore_unchanged_routes_that_were_moved_or_replaced() {
    let route = [24, 10, 9, 0, 10, 0, 0, 1];
    let both = [&route[..], &[0, 10, 0, 0, 1]].concat();
    let unchanged = [(15, &b"example.org"[..]), (6, &SERVER), (options::INTERFACE_MTU, &[5, 120])];
    for (changed, has_new_route) in [
        (unchanged[0], false),
        (unchanged[1], false),
        (unchanged[2], false),
        // The default route is the same, and there is another one.
        ((options::CLASSLESS_ROUTES, &both[..]), true),
    ] {
        let fixture = Fixture::new();
        let (mut one, renewal) = renewing_after(&fixture, &[NTP[0], ROUTER], MOVED);
        let outcome = fixture.answer(&mut one, renewal, Kind::Ack, &[NTP[0], ROUTER, changed]);
        assert!(matches!(outcome, Outcome::Unchanged), "{outcome:?}");
        assert_eq!(default_routes(&fixture), ["default via 10.0.0.9"], "option {}", changed.0);
        let is_new = |route: &String| route.starts_with("10.9.0.0/24 via 10.0.0.1");
        assert_eq!(fixture.pod.routes().iter().any(is_new), has_new_route);
        let mtu = if changed.0 == options::INTERFACE_MTU { 1400 } else { 1500 };
        assert_eq!(fixture.pod.link("eth0").unwrap()["mtu"], mtu);
    }
}

#[test]
fn all_routes_of_an_address_that_had_to_be_added_are_added() {
    let fixture = Fixture::new();
    let (mut one, renewal) = renewing_after(&fixture, &[NTP[0], ROUTER], MOVED);
    let path = break_path(&mut one);
    fixture.answer(&mut one, renewal, Kind::Ack, &[NTP[0], ROUTER]);
    // As the kernel does at the end of the old lease, which could not be extended on the link.
    fixture.pod.sh("ip addr flush dev eth0");
    one.attachment.location.netns = path;
    tick_until(&fixture, &mut one, "the route is added", |fixture| !default_routes(fixture).is_empty());
    assert_eq!(fixture.pod.addresses("eth0"), ["10.0.0.7/24"]);
    assert_eq!(default_routes(&fixture), ["default via 10.0.0.1"]);
}

/// The daemon is killed before it changes the link, or between two changes.
#[test]
fn a_change_of_routes_that_a_killed_daemon_has_not_finished_is_finished_by_the_next_one() {
    for script in ["true", "ip route del default"] {
        let fixture = Fixture::new();
        let put = "ip addr add 10.0.0.7/24 brd + dev eth0; ip route add default via 10.0.0.1";
        let (mut one, renewal) = renewing_after(&fixture, &[NTP[0], ROUTER], put);
        let path = break_path(&mut one);
        let new_router = (options::ROUTERS, &[10, 0, 0, 9][..]);
        fixture.answer(&mut one, renewal, Kind::Ack, &[NTP[0], new_router]);
        let read = || fixture.host.store.read(&one.key).unwrap().unwrap();
        let (mut record, key) = (read(), one.key.clone());
        record.attachment.location.netns = path;
        fixture.pod.sh(script);
        let mut next = ManagedLease::from_record(key, record, &fixture.host);
        next.compare_with_link(&fixture.host).unwrap();
        assert_eq!(default_routes(&fixture), ["default via 10.0.0.9"], "after {script}");
        // The change is finished, so a later daemon leaves the routes alone.
        fixture.pod.sh("ip route del default");
        let mut later = ManagedLease::from_record(one.key.clone(), read(), &fixture.host);
        later.compare_with_link(&fixture.host).unwrap();
        assert_eq!(default_routes(&fixture), [""; 0], "after {script}");
    }
}

/// `-adopt` finds only the address. What the server's first answer contains is on the link already.
#[test]
fn routes_that_change_after_an_adoption_are_put_on_the_link() {
    let fixture = Fixture::new();
    let put = "ip addr add 10.0.0.7/24 brd + dev eth0; ip route add default via 10.0.0.1";
    let (leased, _) = renewing_after(&fixture, &[NTP[0], ROUTER], put);
    let mut record = fixture.host.store.read(&leased.key).unwrap().unwrap();
    record.attachment.seen = true;
    let LeaseParameters::V4(V4 { lease, .. }) = &mut record.parameters else { panic!("another family") };
    *lease = None;
    let mut adopted = ManagedLease::from_record(leased.key, record, &fixture.host);
    adopted.tick(&fixture.host);
    let request = fixture.heard();
    let soon = (options::RENEWAL_TIME, &1_u32.to_be_bytes()[..]);
    fixture.answer(&mut adopted, request, Kind::Ack, &[NTP[0], ROUTER, soon]);
    assert_eq!(default_routes(&fixture), ["default via 10.0.0.1"]);
    while adopted.state().name != "RENEWING" {
        assert!(matches!(adopted.tick(&fixture.host), Outcome::Unchanged));
        std::thread::sleep(Duration::from_millis(1));
    }
    let new_router = (options::ROUTERS, &[10, 0, 0, 9][..]);
    let renewal = fixture.heard();
    fixture.answer(&mut adopted, renewal, Kind::Ack, &[NTP[0], new_router]);
    assert_eq!(default_routes(&fixture), ["default via 10.0.0.9"]);
}

#[test]
fn a_renewal_without_a_change_of_the_link_is_recorded_once() {
    let fixture = Fixture::new();
    let (mut one, renewal) = renewing_after(&fixture, &[NTP[0], ROUTER], MOVED);
    let path = break_path(&mut one);
    fixture.answer(&mut one, renewal, Kind::Ack, &[NTP[0], ROUTER, (15, b"example.org")]);
    let file = fixture.host.store.path().join(one.key.file());
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(!written.contains("replaced"), "{written}");
    // A second record would replace this file.
    std::fs::write(&file, "the first record").unwrap();
    one.attachment.location.netns = path;
    tick_until(&fixture, &mut one, "the address has a lifetime", |fixture| lifetime(fixture).is_some());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "the first record");
}

#[test]
fn a_changed_address_is_recorded_even_if_its_route_is_refused() {
    let fixture = Fixture::new();
    let routes = [24, 10, 8, 0, 192, 168, 9, 9, 24, 10, 9, 0, 10, 0, 0, 1];
    let extra = [(options::SUBNET_MASK, &[255, 255, 0, 0][..]), (options::CLASSLESS_ROUTES, &routes)];
    let attachment = renew(&fixture, &extra);
    assert_eq!(fixture.pod.addresses("eth0"), ["10.0.0.7/16"]);
    assert_eq!(attachment.on_link.unwrap().to_string(), "10.0.0.7/16");
    assert!(fixture.pod.routes().iter().any(|route| route.starts_with("10.9.0.0/24 via 10.0.0.1")));
}

/// An MTU of 9000.
const LARGE_MTU: (u8, &[u8]) = (options::INTERFACE_MTU, &[35, 40]);

/// Makes eth0 a macvlan, and returns it as it was before another program lowered its MTU and that of its master to 1500. The kernel
/// refuses an MTU above that of the master.
fn found_before_its_mtu_was_lowered(fixture: &Fixture) -> OpenInterface {
    fixture.pod.sh("ip link set eth0 down; ip link set eth0 name lower; ip link set lower up
         ip link add link lower name eth0 type macvlan mode bridge; ip link set eth0 up");
    fixture.pod.wait_until("the macvlan is up", |pod| {
        pod.link("eth0").is_some_and(|link| link["operstate"] == "UP")
    });
    let mut found = fixture.open_interface();
    found.link.mtu = 9216;
    found
}

#[test]
fn a_refused_mtu_does_not_fail_an_add() {
    let fixture = Fixture::new();
    let found = found_before_its_mtu_was_lowered(&fixture);
    let change = LinkChange { mtu: Some(9000), ..LinkChange::default() };
    assert!(found.namespace.nl.change_link(&found.link, &change).is_err());
    let mut one = fixture.acquire();
    fixture.lease(&mut one, &[NTP[0], LARGE_MTU]);
    assert_eq!(one.client.take_first(&one.attachment, &found).unwrap(), None);
}

#[test]
fn a_refused_mtu_blocks_neither_the_address_nor_the_routes() {
    let fixture = Fixture::new();
    let found = found_before_its_mtu_was_lowered(&fixture);
    let (mut one, renewal) = renewing(&fixture);
    let routes = [24, 10, 9, 0, 10, 0, 0, 1];
    let extra = [LARGE_MTU, (options::SUBNET_MASK, &[255, 255, 0, 0]), (options::CLASSLESS_ROUTES, &routes)];
    fixture.log_line(renewal, Kind::Ack, &extra);
    // The client has the new lease, and nothing has put it on the link yet.
    let is_renewed = (0..TIMEOUT.as_millis()).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        one.client.receive(Time::now()).unwrap().is_some_and(|actions| !actions.is_empty())
    });
    assert!(is_renewed);
    let refused = one.client.put_on_link(one.attachment.on_link, &found).unwrap_err();
    assert!(refused.to_string().contains("MTU 9000 for eth0"), "{refused}");
    assert_eq!(fixture.pod.addresses("eth0"), ["10.0.0.7/16"]);
    assert!(fixture.pod.routes().iter().any(|route| route.starts_with("10.9.0.0/24 via 10.0.0.1")));
}

/// The lifetime in seconds that the link's address 10.0.0.7 has. None: it is unlimited, or the address is missing.
fn lifetime(fixture: &Fixture) -> Option<u64> {
    let listed = fixture.pod.sh("ip -4 -o addr show dev eth0");
    listed.split_once("valid_lft ")?.1.split_once("sec")?.0.parse().ok()
}

/// Makes the namespace's path fail without ENOENT until the path is restored. Returns the path.
fn break_path(one: &mut ManagedLease) -> std::path::PathBuf {
    let endless = "/run/lab/endless";
    std::os::unix::fs::symlink(endless, endless).unwrap();
    std::mem::replace(&mut one.attachment.location.netns, endless.into())
}

/// Runs the timers that are due, until a condition is true.
fn tick_until(fixture: &Fixture, one: &mut ManagedLease, what: &str, condition: impl Fn(&Fixture) -> bool) {
    let end = Time::now() + TIMEOUT;
    while !condition(fixture) {
        assert!(Time::now() < end, "still not: {what}");
        let outcome = one.tick(&fixture.host);
        assert!(matches!(outcome, Outcome::Unchanged), "{outcome:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_renewal_that_could_not_be_applied_to_the_link_is_applied_later() {
    for is_changed in [false, true] {
        let fixture = Fixture::new();
        let (mut one, renewal) = renewing(&fixture);
        let path = break_path(&mut one);
        let mask = (options::SUBNET_MASK, &[255, 255, 0, 0][..]);
        let extra = if is_changed { &[mask][..] } else { &[] };
        let outcome = fixture.answer(&mut one, renewal, Kind::Ack, extra);
        assert!(matches!(outcome, Outcome::Unchanged), "{outcome:?}");
        assert_eq!(lifetime(&fixture), None);
        for _ in 0..60 {
            one.tick(&fixture.host);
            std::thread::sleep(Duration::from_millis(1));
        }
        // The kernel has deleted the address at the end of the old lease. The lease is in use nevertheless.
        fixture.pod.sh("ip addr flush dev eth0");
        one.attachment.location.netns = path;
        tick_until(&fixture, &mut one, "the address has a lifetime", |fixture| lifetime(fixture).is_some());
        let prefix = if is_changed { "10.0.0.7/16" } else { "10.0.0.7/24" };
        assert_eq!(fixture.pod.addresses("eth0"), [prefix]);
        assert!(one.link_task.is_none());
    }
}

#[test]
fn an_address_missing_because_the_link_could_not_be_updated_does_not_end_its_lease() {
    let fixture = Fixture::new();
    let (mut one, renewal) = renewing(&fixture);
    let path = break_path(&mut one);
    fixture.answer(&mut one, renewal, Kind::Ack, &[]);
    fixture.pod.sh("ip addr flush dev eth0");
    one.attachment.location.netns = path;
    // The next retry is later than T1.
    one.next_check = None;
    let unused = InterfaceError::Unused("address 10.0.0.7/24 is not on eth0".to_owned());
    let outcome = one.outcome_of(unused);
    assert!(matches!(outcome, Outcome::Unchanged), "{outcome:?}");
}

#[test]
fn a_refused_address_that_could_not_be_removed_is_removed_later() {
    let fixture = Fixture::new();
    let (mut one, renewal) = renewing(&fixture);
    let path = break_path(&mut one);
    let outcome = fixture.answer(&mut one, renewal, Kind::Nak, &[]);
    assert!(matches!(outcome, Outcome::Unchanged), "{outcome:?}");
    assert_eq!(fixture.pod.addresses("eth0"), ["10.0.0.7/24"]);
    one.attachment.location.netns = path;
    tick_until(&fixture, &mut one, "the address is removed", |fixture| {
        fixture.pod.addresses("eth0").is_empty()
    });
    let kept = fixture.host.store.read(&one.key).unwrap().unwrap();
    assert!(kept.attachment.on_link.is_none() && one.link_task.is_none());
    // The link comes up again for the next request.
    tick_until(&fixture, &mut one, "a request is sent", |fixture| {
        fixture.pod.link("eth0").is_some_and(|link| link["operstate"] != "DOWN")
    });
}

#[test]
fn a_record_that_could_not_be_compared_with_the_link_is_compared_later() {
    for has_address in [false, true] {
        let fixture = Fixture::new();
        let mut one = fixture.acquire();
        fixture.lease(&mut one, &NTP);
        let mut record = fixture.host.store.read(&one.key).unwrap().unwrap();
        record.attachment.seen = true;
        let mut one = ManagedLease::from_record(one.key, record, &fixture.host);
        let path = break_path(&mut one);
        let failed = one.compare_with_link(&fixture.host);
        assert!(matches!(failed, Err(InterfaceError::Failed(_))), "{failed:?}");
        one.attachment.location.netns = path;
        if has_address {
            fixture.pod.sh("ip addr add 10.0.0.7/24 brd + dev eth0");
            tick_until(&fixture, &mut one, "it has a lifetime", |fixture| lifetime(fixture).is_some());
            continue;
        }
        // A machine behind the link may use the address, so its lease is kept.
        while !one.attachment.removed {
            assert!(matches!(one.tick(&fixture.host), Outcome::Unchanged));
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(fixture.pod.addresses("eth0").is_empty() && one.link_task.is_none());
    }
}

/// The kernel would not delete it again: the daemon adds an address without an end, and sets its lifetimes later.
#[test]
fn an_expired_lease_is_not_put_on_the_link() {
    let fixture = Fixture::new();
    let mut one = fixture.acquire();
    fixture.lease(&mut one, &NTP);
    let key = one.key;
    let mut v4 = fixture.host.store.read(&key).unwrap().unwrap();
    let (location, on_link) = (v4.attachment.location.clone(), v4.attachment.on_link);
    let LeaseParameters::V4(V4 { lease: Some(lease), .. }) = &mut v4.parameters else { panic!("no lease") };
    (lease.since, lease.expiry) = (Time::default(), Some(Time::now()));
    // An earlier daemon was about to replace another address.
    v4.attachment.on_link = Some("10.0.0.6/24".parse().unwrap());
    let mut v6 = Record::read(include_bytes!("../record/v6.json")).unwrap();
    v6.attachment.location = location;
    let LeaseParameters::V6(crate::parameters::V6 { lease: Some(lease), .. }) = &mut v6.parameters else {
        panic!("no lease")
    };
    (lease.since, lease.expiry) = (Time::default(), Some(Time::now()));
    for mut record in [v4, v6] {
        record.attachment.seen = true;
        let mut one = ManagedLease::from_record(record.key().unwrap(), record.clone(), &fixture.host);
        one.compare_with_link(&fixture.host).unwrap();
        let there = fixture.pod.sh("ip -o addr show dev eth0 scope global");
        assert_eq!(there, "");
    }
    // The earlier daemon had put the address there, but could not record that. It is removed.
    fixture.pod.sh("ip addr add 10.0.0.7/24 dev eth0");
    let mut record = fixture.host.store.read(&key).unwrap().unwrap();
    let LeaseParameters::V4(V4 { lease: Some(lease), .. }) = &mut record.parameters else {
        panic!("no lease")
    };
    (lease.since, lease.expiry) = (Time::default(), Some(Time::now()));
    (record.attachment.seen, record.attachment.on_link) = (true, None);
    let mut one = ManagedLease::from_record(key, record, &fixture.host);
    one.compare_with_link(&fixture.host).unwrap();
    assert_eq!(one.attachment.on_link, on_link);
}

/// The container's owner can configure such a queue.
#[test]
fn a_release_that_the_links_queue_drops_does_not_make_del_fail() {
    let fixture = Fixture::new();
    let mut one = fixture.acquire();
    fixture.lease(&mut one, &NTP);
    fixture.pod.sh("tc qdisc add dev eth0 root tbf rate 8kbit burst 100 limit 1000");
    one.release(&fixture.host).unwrap();
    assert!(fixture.host.store.all().unwrap().0.is_empty());
}

/// The container's owner can forbid socket filters, and move the address away, as KubeVirt does.
#[test]
fn a_container_that_allows_no_memory_for_socket_options_is_released() {
    let fixture = Fixture::new();
    let mut one = fixture.acquire();
    fixture.lease(&mut one, &NTP);
    // Before Linux 6.8, all namespaces share the limit.
    fixture.pod.sh("[ ! -e /proc/sys/net/core/optmem_max ] || echo 0 >/proc/sys/net/core/optmem_max");
    one.release(&fixture.host).unwrap();
    fixture.hears_release();
}

/// Each look at the link would read them all, while other containers wait.
#[test]
fn of_a_container_with_thousands_of_addresses_the_daemon_reads_only_some() {
    let fixture = Fixture::new();
    let mut one = fixture.acquire();
    fixture.lease(&mut one, &NTP);
    one.waiter = Waiter::Nobody;
    let add_many = "for i in $(seq 5000); do echo addr add 10.$((1 + i / 250)).$((i % 250)).1/32 dev eth0; done | ip -batch -";
    fixture.pod.sh("ip addr add 10.0.0.7/24 brd + dev eth0");
    fixture.pod.sh(add_many);
    let later = Time::now() + CHECK_INTERVAL;
    let failed = one.set_pending_lifetimes(&fixture.host, later).unwrap_err().to_string();
    assert!(failed.contains("addresses of eth0") && failed.contains("more than 4096"), "{failed}");
    // Only this lease has a problem, and only while it has the addresses.
    assert!(matches!(one.tick(&fixture.host), Outcome::Unchanged));
    fixture
        .pod
        .sh("ip addr flush dev eth0 to 10.0.0.0/8 scope global; ip addr add 10.0.0.7/24 brd + dev eth0");
    one.set_pending_lifetimes(&fixture.host, later).unwrap();
    assert!(lifetime(&fixture).is_some() && one.lifetimes_due_until.is_none());
    // A release needs no list, not even if the link is down and has lost the address.
    fixture.pod.sh("ip addr del 10.0.0.7/24 dev eth0; ip link set eth0 down");
    fixture.pod.sh(add_many);
    one.release(&fixture.host).unwrap();
    fixture.hears_release();
}

/// The server may allocate the address again as soon as it has received the message.
#[test]
fn an_address_on_a_link_that_is_down_is_removed_before_the_link_is_set_up_to_release_it() {
    let fixture = Fixture::new();
    let mut one = fixture.acquire();
    fixture.lease(&mut one, &NTP);
    fixture.pod.sh("ip addr add 10.0.0.7/24 brd + dev eth0; ip link set eth0 down");
    let pending = one.release(&fixture.host).unwrap();
    assert!(pending.is_some());
    assert_eq!(fixture.pod.addresses("eth0"), [""; 0]);
}
