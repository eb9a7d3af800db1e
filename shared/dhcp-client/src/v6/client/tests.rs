use super::super::message::*;
use super::*;
use crate::v6::{Duid, Options};

const SERVER: &[u8] = b"server";
const OTHER: &[u8] = b"other-server";
const ADDRESS: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x10);
const NEXT: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x11);

fn identity() -> Identity {
    Identity { duid: Duid::of_digest([1; 16]), iaid: 1 }
}

fn at(seconds: u64) -> Time {
    Time::since_boot(Duration::from_secs(1000 + seconds))
}

fn client() -> Client {
    Client::acquire(identity(), Duration::from_secs(208), at(0), Random::seeded(1))
}

/// The message in a list of actions.
fn sent(actions: &[Action]) -> Message {
    let message = actions.iter().find_map(|action| match action {
        Action::Send(bytes) => Message::decode(bytes),
        _ => None,
    });
    message.unwrap_or_else(|| panic!("nothing is sent: {actions:?}"))
}

/// An IA_NA with T1, T2 and addresses with their preferred and valid lifetimes.
fn ia(t1: u32, t2: u32, addresses: &[(Ipv6Addr, u32, u32)]) -> Vec<u8> {
    let mut options = Options::default();
    for (address, preferred, valid) in addresses {
        let times = [preferred.to_be_bytes(), valid.to_be_bytes()].concat();
        options = options.with(IA_ADDR, [&address.octets()[..], &times].concat());
    }
    [[1, t1, t2].map(u32::to_be_bytes).concat(), options.encode()].concat()
}

fn status(number: u16) -> Vec<u8> {
    [&number.to_be_bytes()[..], b"because"].concat()
}

fn refusal(number: u16) -> Vec<u8> {
    [ia(0, 0, &[]), Options::default().with(STATUS_CODE, status(number)).encode()].concat()
}

fn answer(kind: Kind, request: &Message, server: &[u8], more: &[(Number, Vec<u8>)]) -> Vec<u8> {
    let duid = request.options.get(CLIENT_ID).unwrap();
    let mut options = Options::default().with(CLIENT_ID, duid).with(SERVER_ID, server);
    for (number, value) in more {
        options = options.with(*number, value.clone());
    }
    Message { kind, xid: request.xid, options }.encode()
}

fn given() -> (Number, Vec<u8>) {
    (IA_NA, ia(100, 160, &[(ADDRESS, 200, 400)]))
}

/// A client that got its address immediately.
fn bound() -> Client {
    let mut client = client();
    let solicit = sent(&client.tick(at(0)));
    let actions =
        client.receive(at(0), &answer(Kind::Reply, &solicit, SERVER, &[given(), (RAPID_COMMIT, vec![])]));
    assert!(matches!(&actions[..], [Action::Bound(lease)] if lease.address == ADDRESS), "{actions:?}");
    client
}

#[test]
fn four_messages_lead_to_a_lease_from_the_preferred_server() {
    let mut client = client();
    let solicit = sent(&client.tick(at(0)));
    assert_eq!((solicit.kind, solicit.options.get(ELAPSED_TIME)), (Kind::Solicit, Some(&[0, 0][..])));
    let offer = |server, preference| {
        answer(Kind::Advertise, &solicit, server, &[given(), (PREFERENCE, vec![preference])])
    };
    assert!(client.receive(at(0), &offer(OTHER, 1)).is_empty());
    assert!(client.receive(at(0), &offer(SERVER, 2)).is_empty());
    assert_eq!(client.state(), State::Soliciting);
    let request = sent(&client.tick(at(2)));
    assert_eq!((request.kind, request.options.get(SERVER_ID)), (Kind::Request, Some(SERVER)));
    assert!(request.xid != solicit.xid);
    // An answer of another server is ignored.
    assert!(client.receive(at(2), &answer(Kind::Reply, &request, OTHER, &[given()])).is_empty());
    let more = [given(), (DNS_SERVERS, ADDRESS.octets().to_vec()), (DOMAIN_LIST, b"\x01a\x03org\0".to_vec())];
    let actions = client.receive(at(3), &answer(Kind::Reply, &request, SERVER, &more));
    let [Action::Bound(lease)] = &actions[..] else { panic!("{actions:?}") };
    // The times start with the request.
    assert_eq!((lease.renew, lease.rebind, lease.expiry), (Some(at(102)), Some(at(162)), Some(at(402))));
    assert_eq!(
        (lease.preferred, &lease.dns[..], &lease.search[..]),
        (Some(at(202)), &[ADDRESS][..], &["a.org".to_owned()][..])
    );
    assert!(!client.awaits_packets(at(3)));
}

#[test]
fn an_offer_with_the_maximum_preference_is_accepted_immediately() {
    let mut client = client();
    let solicit = sent(&client.tick(at(0)));
    let actions = client
        .receive(at(0), &answer(Kind::Advertise, &solicit, SERVER, &[given(), (PREFERENCE, vec![255])]));
    assert_eq!(sent(&actions).kind, Kind::Request);
}

#[test]
fn invalid_messages_and_those_for_other_clients_are_ignored() {
    let mut client = client();
    let solicit = sent(&client.tick(at(0)));
    let rapid = (RAPID_COMMIT, vec![]);
    let reply = |more: &[(Number, Vec<u8>)]| answer(Kind::Reply, &solicit, SERVER, more);
    let good = reply(&[given(), rapid.clone()]);
    let mut other_xid = good.clone();
    other_xid[3] ^= 1;
    let mut other_client = good.clone();
    other_client[9] ^= 1;
    let with = |address: Ipv6Addr| reply(&[(IA_NA, ia(1, 2, &[(address, 50, 100)])), rapid.clone()]);
    let hostile = [
        other_xid,
        other_client,
        // Without rapid commit.
        reply(&[given()]),
        answer(Kind::Reply, &solicit, &[], &[given(), rapid.clone()]),
        answer(Kind::Reply, &solicit, &[1; 131], &[given(), rapid.clone()]),
        answer(Kind::Renew, &solicit, SERVER, &[given(), rapid.clone()]),
        reply(std::slice::from_ref(&rapid)),
        reply(&[(IA_NA, vec![0; 11]), rapid.clone()]),
        with("ff02::1".parse().unwrap()),
        with("::1".parse().unwrap()),
        with("::".parse().unwrap()),
        with("fe80::1".parse().unwrap()),
        with("::ffff:10.0.0.1".parse().unwrap()),
    ];
    for packet in hostile.into_iter().chain((0..good.len()).map(|end| good[..end].to_vec())) {
        assert_eq!(client.receive(at(0), &packet), [], "{packet:02x?}");
        assert_eq!(client.state(), State::Soliciting);
    }
    assert_eq!(client.receive(at(0), &good).len(), 1);
}

#[test]
fn the_servers_refusal_is_in_the_error_of_the_add() {
    for packet in [(IA_NA, refusal(2)), (STATUS_CODE, status(2))] {
        let mut client = client();
        let solicit = sent(&client.tick(at(0)));
        client.receive(at(0), &answer(Kind::Advertise, &solicit, SERVER, &[packet]));
        let actions = client.tick(at(208));
        let [Action::Failed(error)] = &actions[..] else { panic!("{actions:?}") };
        assert!(error.code() == 11 && error.msg().contains("NoAddrsAvail (\"because\")"), "{error}");
    }
    let mut silent = client();
    silent.tick(at(0));
    let actions = silent.tick(at(208));
    assert!(matches!(&actions[..], [Action::Failed(e)] if e.details().contains("SOLICITs")), "{actions:?}");
    assert_eq!((silent.deadline(), silent.tick(at(500)).len()), (None, 0));
}

#[test]
fn a_lease_is_renewed_at_t1_rebound_at_t2_and_lost_at_its_end() {
    let mut client = bound();
    assert_eq!(client.deadline(), Some(at(100)));
    let renew = sent(&client.tick(at(100)));
    assert_eq!((renew.kind, renew.options.get(SERVER_ID)), (Kind::Renew, Some(SERVER)));
    // Another server cannot extend the lease now.
    assert!(client.receive(at(100), &answer(Kind::Reply, &renew, OTHER, &[given()])).is_empty());
    let actions = client.receive(at(101), &answer(Kind::Reply, &renew, SERVER, &[given()]));
    assert!(matches!(&actions[..], [Action::Bound(lease)] if lease.expiry == Some(at(500))), "{actions:?}");
    let renew = sent(&client.tick(at(200)));
    // A failure of the server does not end a lease.
    assert!(
        client.receive(at(200), &answer(Kind::Reply, &renew, SERVER, &[(STATUS_CODE, status(1))])).is_empty()
    );
    let rebind = sent(&client.tick(at(260)));
    assert_eq!((rebind.kind, rebind.options.get(SERVER_ID)), (Kind::Rebind, None));
    let actions = client.receive(at(260), &answer(Kind::Reply, &rebind, OTHER, &[given()]));
    assert!(matches!(&actions[..], [Action::Bound(lease)] if lease.server == OTHER), "{actions:?}");
    for now in [360, 420] {
        sent(&client.tick(at(now)));
    }
    let actions = client.tick(at(660));
    assert!(matches!(&actions[..], [Action::Lost(_), Action::Send(_)]), "{actions:?}");
    assert_eq!((client.state(), client.lease()), (State::Soliciting, None));
}

#[test]
fn a_lease_without_a_binding_is_requested_again_and_used_meanwhile() {
    let mut client = bound();
    let renew = sent(&client.tick(at(100)));
    let actions = client.receive(at(100), &answer(Kind::Reply, &renew, SERVER, &[(IA_NA, refusal(3))]));
    let request = sent(&actions);
    assert_eq!((request.kind, client.lease().map(|lease| lease.address)), (Kind::Request, Some(ADDRESS)));
    let other = (IA_NA, ia(100, 160, &[(NEXT, 200, 400)]));
    let actions = client.receive(at(101), &answer(Kind::Reply, &request, SERVER, &[other]));
    assert!(
        matches!(&actions[..], [Action::Lost(_), Action::Bound(lease)] if lease.address == NEXT),
        "{actions:?}"
    );
}

#[test]
fn a_server_without_a_binding_is_not_sent_requests_endlessly() {
    let mut client = bound();
    let renew = sent(&client.tick(at(100)));
    let no_binding = |request: &Message| answer(Kind::Reply, request, SERVER, &[(IA_NA, refusal(3))]);
    let request = sent(&client.receive(at(100), &no_binding(&renew)));
    let refused = answer(Kind::Reply, &request, SERVER, &[(IA_NA, refusal(2))]);
    assert!(client.receive(at(100), &refused).is_empty() && client.tick(at(109)).is_empty());
    assert_eq!(client.lease().map(|lease| lease.address), Some(ADDRESS));
    assert_eq!(sent(&client.tick(at(110))).kind, Kind::Rebind);
}

#[test]
fn an_address_that_its_server_ends_is_lost_or_replaced_by_another() {
    for (addresses, lost) in [
        (vec![(ADDRESS, 0, 0)], true),
        // A lifetime of a few seconds is treated as zero.
        (vec![(ADDRESS, 5, 9)], true),
        (vec![(ADDRESS, 0, 0), (NEXT, 200, 400)], true),
        // An answer without the address does not end its lease.
        (vec![(NEXT, 200, 400)], false),
        (vec![], false),
    ] {
        let mut client = bound();
        let renew = sent(&client.tick(at(100)));
        let reply = answer(Kind::Reply, &renew, SERVER, &[(IA_NA, ia(100, 160, &addresses))]);
        let actions = client.receive(at(100), &reply);
        assert_eq!(matches!(actions.first(), Some(Action::Lost(_))), lost, "{actions:?}");
        let now = client.lease().map(|lease| lease.address);
        assert_eq!(now, if !lost { Some(ADDRESS) } else { addresses.get(1).map(|(next, ..)| *next) });
    }
}

#[test]
fn after_a_restart_the_client_confirms_its_address_with_the_servers() {
    let lease = bound().lease().cloned().unwrap();
    let resume = |now| Client::resume(identity(), lease.clone(), now, Random::seeded(2));
    let mut client = resume(at(10));
    // The clients of a daemon do not send at the same time after its start.
    assert!(client.deadline().is_some_and(|due| at(10) <= due && due < at(11)));
    let confirm = sent(&client.tick(at(11)));
    assert_eq!((confirm.kind, confirm.options.get(SERVER_ID)), (Kind::Confirm, None));
    client.receive(at(11), &answer(Kind::Reply, &confirm, OTHER, &[(STATUS_CODE, status(0))]));
    assert_eq!((client.state(), client.deadline()), (State::Bound, Some(at(100))));
    let mut moved = resume(at(10));
    let confirm = sent(&moved.tick(at(11)));
    let actions = moved.receive(at(11), &answer(Kind::Reply, &confirm, OTHER, &[(STATUS_CODE, status(4))]));
    assert!(matches!(&actions[..], [Action::Lost(_), Action::Send(_)]), "{actions:?}");
    // Without an answer, the lease continues.
    let mut alone = resume(at(10));
    alone.tick(at(11));
    assert!(alone.tick(at(21)).is_empty());
    assert_eq!((alone.state(), alone.awaits_packets(at(21))), (State::Bound, false));
    // Due actions are performed immediately.
    assert_eq!(sent(&resume(at(120)).tick(at(120))).kind, Kind::Renew);
    assert_eq!(sent(&resume(at(170)).tick(at(170))).kind, Kind::Rebind);
    assert!(matches!(resume(at(400)).tick(at(400))[0], Action::Lost(_)));
}

#[test]
fn a_release_is_addressed_to_its_server_until_that_answers() {
    for decline in [false, true] {
        let mut client = bound();
        assert!(if decline { client.decline(false, at(5)) } else { client.release(at(5)) });
        let release = sent(&client.tick(at(5)));
        assert_eq!(release.kind, if decline { Kind::Decline } else { Kind::Release });
        assert_eq!(release.options.get(SERVER_ID), Some(SERVER));
        assert!(client.receive(at(5), &answer(Kind::Reply, &release, OTHER, &[])).is_empty());
        assert_eq!(client.receive(at(5), &answer(Kind::Reply, &release, SERVER, &[])), [Action::Released]);
        assert!(!client.release(at(6)));
    }
    // An address that may have been allocated is released. Without a request, nothing is sent.
    let mut asks = client();
    let solicit = sent(&asks.tick(at(0)));
    asks.receive(at(0), &answer(Kind::Advertise, &solicit, SERVER, &[given(), (PREFERENCE, vec![255])]));
    assert!(asks.release(at(1)) && !client().release(at(0)));
    // A container that stays gets another address.
    let mut stays = bound();
    assert!(stays.decline(true, at(5)));
    let decline = sent(&stays.tick(at(5)));
    let actions = stays.receive(at(5), &answer(Kind::Reply, &decline, SERVER, &[]));
    assert_eq!(sent(&actions).kind, Kind::Solicit);
}

/// A client that has requested [`ADDRESS`] from a server, and its message.
fn requesting() -> (Client, Message) {
    let mut client = client();
    let solicit = sent(&client.tick(at(0)));
    let offer = answer(Kind::Advertise, &solicit, SERVER, &[given(), (PREFERENCE, vec![255])]);
    let request = sent(&client.receive(at(0), &offer));
    (client, request)
}

/// The address that a message is about.
fn named(message: &Message) -> Option<Ipv6Addr> {
    let options = Options::decode(message.options.get(IA_NA)?.get(12..)?)?;
    let octets: [u8; 16] = options.get(IA_ADDR)?.get(..16)?.try_into().ok()?;
    Some(octets.into())
}

#[test]
fn an_unusable_address_is_released_before_another_one_is_requested() {
    for (given, back) in [
        // Times out of order, and too short.
        (ia(160, 100, &[(NEXT, 200, 400)]), NEXT),
        (ia(100, 160, &[(NEXT, 400, 200)]), NEXT),
        (ia(1, 2, &[(NEXT, 9, 9)]), NEXT),
        // The answer's address is invalid. The server may have allocated the requested one.
        (ia(100, 160, &[(Ipv6Addr::LOCALHOST, 200, 400)]), ADDRESS),
        (ia(100, 160, &[]), ADDRESS),
    ] {
        let (mut client, request) = requesting();
        let release = sent(&client.receive(at(0), &answer(Kind::Reply, &request, SERVER, &[(IA_NA, given)])));
        assert_eq!((release.kind, release.options.get(SERVER_ID)), (Kind::Release, Some(SERVER)));
        assert_eq!(named(&release), Some(back));
        // The message is not repeated endlessly, whatever the answer is.
        assert!(client.receive(at(0), &answer(Kind::Reply, &release, SERVER, &[])).is_empty());
        let solicit = sent(&client.tick(at(2)));
        assert_eq!(solicit.kind, Kind::Solicit);
        let actions = client
            .receive(at(2), &answer(Kind::Reply, &solicit, OTHER, &[self::given(), (RAPID_COMMIT, vec![])]));
        assert!(matches!(&actions[..], [Action::Bound(_)]), "{actions:?}");
    }
    // If the server grants nothing, there is nothing to release.
    let (mut client, request) = requesting();
    assert!(client.receive(at(0), &answer(Kind::Reply, &request, SERVER, &[(IA_NA, refusal(2))])).is_empty());
    assert_eq!(client.state(), State::Soliciting);
}

#[test]
fn an_unusable_address_from_rapid_commit_is_released_too() {
    for unusable in [
        ia(160, 100, &[(NEXT, 200, 400)]),
        ia(100, 160, &[(NEXT, 400, 200)]),
        ia(1, 2, &[(NEXT, 0, 0)]),
        ia(1, 2, &[(NEXT, 9, 9)]),
    ] {
        let mut client = client();
        let solicit = sent(&client.tick(at(0)));
        let rapid = |ia| [(IA_NA, ia), (RAPID_COMMIT, vec![])];
        let actions = client.receive(at(0), &answer(Kind::Reply, &solicit, SERVER, &rapid(unusable)));
        let release = sent(&actions);
        assert_eq!((release.kind, release.options.get(SERVER_ID)), (Kind::Release, Some(SERVER)));
        assert_eq!(named(&release), Some(NEXT));
        // The client sends to all servers again at the next interval. Another one may grant a lease.
        assert!(client.receive(at(0), &answer(Kind::Reply, &release, SERVER, &[])).is_empty());
        let solicit = sent(&client.tick(at(2)));
        let good = rapid(ia(100, 160, &[(ADDRESS, 200, 400)]));
        let actions = client.receive(at(2), &answer(Kind::Reply, &solicit, OTHER, &good));
        assert!(matches!(&actions[..], [Action::Bound(_)]), "{actions:?}");
    }
}

#[test]
fn an_unanswered_request_is_released_even_after_a_new_discover() {
    let unanswered = || {
        let (mut client, _) = requesting();
        while client.state() == State::Requesting {
            client.tick(client.deadline().unwrap());
        }
        assert_eq!(client.state(), State::Soliciting);
        client
    };
    let mut client = unanswered();
    assert!(matches!(&client.tick(at(208))[..], [Action::Failed(_)]));
    let release = sent(&client.tick(at(208)));
    assert_eq!((release.kind, release.options.get(SERVER_ID)), (Kind::Release, Some(SERVER)));
    assert_eq!(named(&release), Some(ADDRESS));
    assert_eq!(client.receive(at(208), &answer(Kind::Reply, &release, SERVER, &[])), [Action::Released]);
    assert_eq!(client.held(), None);
    // An address that the server refuses is not allocated.
    let mut client = unanswered();
    let now = at(200);
    let solicit = sent(&client.tick(now));
    let offer = answer(Kind::Advertise, &solicit, SERVER, &[given(), (PREFERENCE, vec![255])]);
    let request = sent(&client.receive(now, &offer));
    client.receive(now, &answer(Kind::Reply, &request, SERVER, &[(IA_NA, refusal(2))]));
    assert_eq!((client.state(), client.held()), (State::Soliciting, None));
}

#[test]
fn a_failed_acquisition_releases_an_address_that_a_server_may_have_allocated() {
    let (mut client, _) = requesting();
    let actions = client.tick(at(208));
    assert!(matches!(&actions[..], [Action::Failed(_)]), "{actions:?}");
    assert_eq!((client.state(), client.held()), (State::Releasing, Some(ADDRESS)));
    let release = sent(&client.tick(at(208)));
    assert_eq!((release.kind, named(&release)), (Kind::Release, Some(ADDRESS)));
    assert_eq!(client.receive(at(208), &answer(Kind::Reply, &release, SERVER, &[])), [Action::Released]);
    // Also while the release is about to be sent.
    let (mut client, request) = requesting();
    let unusable = (IA_NA, ia(160, 100, &[(ADDRESS, 200, 400)]));
    let release = sent(&client.receive(at(0), &answer(Kind::Reply, &request, SERVER, &[unusable])));
    assert!(client.release(at(0)));
    assert_eq!(client.receive(at(0), &answer(Kind::Reply, &release, SERVER, &[])), [Action::Released]);
}

/// All messages of an exchange have one transaction id. The answer may be to the first one, and the server counts from
/// there.
#[test]
fn a_lease_begins_when_the_first_message_was_sent_that_an_answer_may_belong_to() {
    let mut client = client();
    let solicit = sent(&client.tick(at(0)));
    let again = client.deadline().unwrap();
    assert_eq!(sent(&client.tick(again)).xid, solicit.xid);
    let more = [given(), (RAPID_COMMIT, vec![])];
    let actions = client.receive(again, &answer(Kind::Reply, &solicit, SERVER, &more));
    let expected = Some(at(400));
    assert!(matches!(&actions[..], [Action::Bound(lease)] if lease.expiry == expected), "{actions:?}");
}

#[test]
fn a_server_that_was_down_for_longer_than_its_leases_still_grants_an_address() {
    let mut client = Client::reacquire(identity(), None, at(0), Random::seeded(1));
    let mut now = at(0);
    let solicit = loop {
        let actions = client.tick(now);
        if now >= at(2000) && !actions.is_empty() {
            break sent(&actions);
        }
        now = client.deadline().unwrap();
    };
    let more = [given(), (RAPID_COMMIT, vec![])];
    let actions = client.receive(now, &answer(Kind::Reply, &solicit, SERVER, &more));
    let expected = Some(now + Duration::from_secs(400));
    assert!(matches!(&actions[..], [Action::Bound(lease)] if lease.expiry == expected), "{actions:?}");
}

#[test]
fn times_that_a_server_omits_are_fractions_of_the_preferred_lifetime() {
    for (t1, t2, preferred, valid, expected) in [
        (0, 0, 200, 400, (100, 160)),
        (0, 0, 0, 400, (200, 320)),
        (50, 0, 200, 400, (50, 160)),
        (0, 60, 200, 400, (60, 60)),
        (500, 600, 200, 400, (160, 160)),
        // With these times, a client would send renewals permanently.
        (1, 1, 200, 400, (10, 10)),
        (1, 60, 1, 400, (10, 60)),
        (0, 0, 1, 400, (10, 10)),
        (1, 2, 3, 12, (6, 6)),
    ] {
        let mut client = client();
        let solicit = sent(&client.tick(at(0)));
        let ia = (IA_NA, ia(t1, t2, &[(ADDRESS, preferred, valid)]));
        client.receive(at(0), &answer(Kind::Reply, &solicit, SERVER, &[ia, (RAPID_COMMIT, vec![])]));
        let lease = client.lease().unwrap();
        assert_eq!((lease.renew, lease.rebind), (Some(at(expected.0)), Some(at(expected.1))), "{t1} {t2}");
    }
    let mut client = client();
    let solicit = sent(&client.tick(at(0)));
    let never = (IA_NA, ia(u32::MAX, u32::MAX, &[(ADDRESS, u32::MAX, u32::MAX)]));
    client.receive(at(0), &answer(Kind::Reply, &solicit, SERVER, &[never, (RAPID_COMMIT, vec![])]));
    assert_eq!((client.lease().unwrap().expiry, client.deadline()), (None, None));
}
