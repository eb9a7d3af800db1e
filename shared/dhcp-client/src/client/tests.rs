//! What must hold in each state. The tests provide the clock and the server's messages.

use super::*;
use crate::Options;
use crate::options::Number;

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OTHER_SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 7);
const MAC: [u8; 6] = [0x02, 0x42, 0xac, 0x11, 0, 2];
const HOUR: u32 = 3600;

fn identity() -> Identity {
    Identity {
        mac: MAC,
        client_id: b"\0pod/net/eth0".to_vec(),
        broadcast: false,
        provide: Vec::new(),
        request: vec![42],
        required: Vec::new(),
    }
}

fn at(seconds: u64) -> Time {
    Time::since_boot(Duration::from_secs(1000 + seconds))
}

fn acquire(identity: Identity) -> Client {
    Client::acquire(identity, Timing::default(), at(0), Random::seeded(1))
}

/// The sent messages, decoded.
fn sent(actions: &[Action]) -> Vec<(To, Message)> {
    let decode = |action: &Action| match action {
        Action::Send { to, message } => Some((*to, Message::decode(message).unwrap())),
        _ => None,
    };
    actions.iter().filter_map(decode).collect()
}

/// The only message that is sent.
#[track_caller]
fn only_sent(actions: &[Action]) -> (To, Message) {
    let all = sent(actions);
    assert_eq!(all.len(), 1, "{actions:?}");
    all.into_iter().next().unwrap()
}

fn answer(client: &Client, kind: Kind, extra: &[(Number, &[u8])]) -> Message {
    let mut all = Options::default();
    all.set(options::MESSAGE_TYPE, [kind as u8]);
    all.set(options::SERVER_ID, SERVER.octets());
    all.set(options::SUBNET_MASK, [255, 255, 255, 0]);
    all.set(options::LEASE_TIME, HOUR.to_be_bytes());
    for (number, value) in extra {
        all.set(*number, *value);
    }
    Message {
        is_reply: true,
        xid: client.xid,
        secs: 0,
        broadcast: false,
        ciaddr: Ipv4Addr::UNSPECIFIED,
        yiaddr: ADDRESS,
        giaddr: Ipv4Addr::UNSPECIFIED,
        mac: MAC,
        options: all,
    }
}

fn give(client: &mut Client, now: Time, kind: Kind, extra: &[(Number, &[u8])]) -> Vec<Action> {
    let message = answer(client, kind, extra).encode();
    client.receive(now, &message)
}

/// A client that got a lease immediately.
fn bound(identity: Identity, extra: &[(Number, &[u8])]) -> Client {
    let mut client = acquire(identity);
    client.tick(at(0));
    give(&mut client, at(0), Kind::Offer, extra);
    let actions = give(&mut client, at(0), Kind::Ack, extra);
    assert!(matches!(actions[..], [Action::Bound(_)]), "{actions:?}");
    client
}

/// A client with a lease of an hour, in a state.
fn in_state(state: State) -> (Client, Time) {
    let mut client = bound(identity(), &[]);
    let lease = client.lease().unwrap().clone();
    let now = match state {
        State::Renewing => lease.renew.unwrap(),
        State::Rebinding => lease.rebind.unwrap(),
        _ => at(1),
    };
    client.tick(now);
    assert_eq!(client.state(), state);
    (client, now)
}

#[test]
fn a_container_gets_the_address_that_it_was_offered() {
    let mut client = acquire(identity());
    assert_eq!(client.deadline(), Some(at(0)));
    let (to, discover) = only_sent(&client.tick(at(0)));
    assert_eq!(to, To::Broadcast { from: Ipv4Addr::UNSPECIFIED });
    assert_eq!(
        (discover.kind(), discover.mac, discover.ciaddr),
        (Some(Kind::Discover), MAC, Ipv4Addr::UNSPECIFIED)
    );
    assert!(!discover.is_reply && !discover.broadcast && client.awaits_packets(at(0)));
    assert_eq!(discover.options.get(options::CLIENT_ID), Some(&b"\0pod/net/eth0"[..]));
    assert_eq!(
        discover.options.get(options::PARAMETER_REQUEST_LIST),
        Some(&[121, 1, 3, 6, 15, 26, 33, 119, 42][..])
    );

    let (to, request) = only_sent(&give(&mut client, at(1), Kind::Offer, &[]));
    assert_eq!(to, To::Broadcast { from: Ipv4Addr::UNSPECIFIED });
    // RFC 2131, section 3.1: both have the same `secs`, so that a relay forwards them to the same servers.
    assert_eq!(
        (request.kind(), request.xid, request.secs),
        (Some(Kind::Request), discover.xid, discover.secs)
    );
    assert_eq!(request.options.address(options::REQUESTED_ADDRESS), Some(ADDRESS));
    assert_eq!(request.options.address(options::SERVER_ID), Some(SERVER));

    let actions = give(&mut client, at(2), Kind::Ack, &[]);
    let [Action::Bound(lease)] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!((lease.address, lease.prefix, lease.server, lease.since), (ADDRESS, 24, SERVER, at(1)));
    assert_eq!((lease.rebind, lease.expiry), (Some(at(1 + 3150)), Some(at(1 + 3600))));
    assert!((at(1 + 1743)..=at(1 + 1800)).contains(&lease.renew.unwrap()), "{lease:?}");
    assert_eq!(client.deadline(), lease.renew);
    assert!(!client.awaits_packets(at(2)));
}

#[test]
fn a_discover_is_sent_again_after_two_seconds_four_times_and_then_ever_later() {
    let timing = Timing { resend_timeout: Duration::from_secs(1000), ..Timing::default() };
    let mut client = Client::acquire(identity(), timing, at(0), Random::seeded(7));
    let mut times = Vec::new();
    let mut now = at(0);
    while client.state() != State::Failed {
        if !sent(&client.tick(now)).is_empty() {
            times.push(now);
        }
        now = client.deadline().unwrap_or(now);
    }
    let gaps: Vec<u64> = times.windows(2).map(|pair| pair[1].since(pair[0]).as_millis() as u64).collect();
    for (n, expected) in [2, 2, 2, 2, 4, 8, 16, 32, 62, 62].into_iter().enumerate() {
        assert!(gaps[n].abs_diff(expected * 1000) <= 1000, "{n}: {gaps:?}");
    }
}

#[test]
fn an_acquisition_without_an_answer_fails_with_a_transient_error() {
    let mut client = acquire(identity());
    let mut actions = client.tick(at(0));
    while let Some(deadline) = client.deadline() {
        assert!(deadline <= at(208));
        actions = client.tick(deadline);
    }
    let [Action::Failed(error)] = &actions[..] else { panic!("{actions:?}") };
    assert!(error.code() == 11 && error.details().contains("208 s"), "{error:?}");
    assert_eq!((client.state(), client.tick(at(900))), (State::Failed, Vec::new()));
    assert!(client.release().is_none());
}

#[test]
fn a_request_without_an_answer_is_repeated_and_then_a_discover_follows() {
    let mut client = acquire(identity());
    client.tick(at(0));
    give(&mut client, at(0), Kind::Offer, &[]);
    let mut kinds = Vec::new();
    while client.deadline().unwrap() <= at(10) {
        let now = client.deadline().unwrap();
        kinds.extend(sent(&client.tick(now)).into_iter().filter_map(|(_, message)| message.kind()));
    }
    assert!((4..=10).contains(&kinds.len()), "{kinds:?}");
    assert!(kinds.ends_with(&[Kind::Discover]) && kinds.starts_with(&[Kind::Request; 3]), "{kinds:?}");
}

#[test]
fn at_t1_the_server_gets_a_request_at_t2_all_servers_and_at_the_end_the_lease_is_lost() {
    let (mut client, t1) = in_state(State::Renewing);
    let lease = client.lease().unwrap().clone();
    let mut seen = Vec::new();
    let (mut now, mut lost) = (t1, false);
    while !lost {
        now = client.deadline().unwrap();
        let actions = client.tick(now);
        lost = actions.contains(&Action::Lost(Reason::Expired));
        seen.extend(sent(&actions).into_iter().map(|(to, message)| (now, to, message)));
        assert!(client.lease().is_none_or(|lease| now < lease.expiry.unwrap()));
    }
    assert_eq!((now, client.state()), (lease.expiry.unwrap(), State::Selecting));
    let (_, _, last) = seen.pop().unwrap();
    assert_eq!(last.kind(), Some(Kind::Discover));
    assert_eq!(last.options.address(options::REQUESTED_ADDRESS), Some(ADDRESS));
    for pair in seen.windows(2) {
        let (gap, end) = (
            pair[1].0.since(pair[0].0),
            if pair[1].0 < lease.rebind.unwrap() { lease.rebind } else { lease.expiry },
        );
        assert!(gap >= Duration::from_secs(60) || Some(pair[1].0) == lease.rebind, "{gap:?} before {end:?}");
    }
    for (now, to, message) in seen {
        let expected = match now < lease.rebind.unwrap() {
            true => To::Server { server: SERVER, from: ADDRESS },
            false => To::Broadcast { from: ADDRESS },
        };
        assert_eq!((to, message.kind(), message.ciaddr), (expected, Some(Kind::Request), ADDRESS));
        // RFC 2131, table 5.
        assert_eq!(message.options.get(options::REQUESTED_ADDRESS), None);
        assert_eq!(message.options.get(options::SERVER_ID), None);
    }
}

#[test]
fn a_renewed_lease_starts_when_the_renewal_was_sent() {
    for state in [State::Renewing, State::Rebinding] {
        let (mut client, sent_at) = in_state(state);
        let actions = give(&mut client, sent_at + Duration::from_secs(3), Kind::Ack, &[]);
        let [Action::Bound(lease)] = &actions[..] else { panic!("{actions:?}") };
        assert_eq!((lease.since, lease.expiry), (sent_at, Some(sent_at + Duration::from_secs(3600))));
        assert_eq!((client.state(), client.awaits_packets(sent_at)), (State::Bound, false));
    }
}

#[test]
fn an_ack_may_shorten_the_lease() {
    for state in [State::Renewing, State::Rebinding] {
        let (mut client, sent_at) = in_state(state);
        let later = sent_at + Duration::from_secs(3);
        let actions = give(&mut client, later, Kind::Ack, &[(options::LEASE_TIME, &10_u32.to_be_bytes())]);
        let [Action::Bound(lease)] = &actions[..] else { panic!("{actions:?}") };
        assert_eq!(lease.expiry, Some(sent_at + Duration::from_secs(10)));
        // Leases so short that they are over when the ACK arrives, or before the address can be used.
        for length in [0_u32, 1, 3] {
            let (mut client, sent_at) = in_state(state);
            let later = sent_at + Duration::from_secs(3);
            let actions =
                give(&mut client, later, Kind::Ack, &[(options::LEASE_TIME, &length.to_be_bytes())]);
            assert_eq!(actions[0], Action::Lost(Reason::Ended { server: SERVER }), "{length} s");
            assert_eq!(only_sent(&actions[1..]).1.kind(), Some(Kind::Discover));
            assert!(client.lease().is_none());
        }
    }
}

#[test]
fn a_lease_of_minutes_survives_the_loss_of_two_requests() {
    for minutes in [1, 2, 5, 10] {
        let length = u32::to_be_bytes(minutes * 60);
        let mut client = bound(identity(), &[(options::LEASE_TIME, &length)]);
        let mut states = Vec::new();
        while client.lease().is_some() {
            let actions = client.tick(client.deadline().unwrap());
            states.extend((!sent(&actions).is_empty()).then(|| client.state()));
        }
        let count = |state| states.iter().filter(|one| **one == state).count();
        let (renewing, rebinding) = (count(State::Renewing), count(State::Rebinding));
        assert!((3..=5).contains(&renewing) && (3..=5).contains(&rebinding), "{minutes} min: {states:?}");
    }
}

#[test]
fn an_answer_to_another_client_with_the_same_hardware_address_is_ignored() {
    let mut client = acquire(identity());
    client.tick(at(0));
    assert!(give(&mut client, at(0), Kind::Offer, &[(options::CLIENT_ID, b"\0other/net/eth0")]).is_empty());
    assert_eq!(client.state(), State::Selecting);
    // RFC 6842: a server may omit or repeat it.
    give(&mut client, at(0), Kind::Offer, &[(options::CLIENT_ID, b"\0pod/net/eth0")]);
    assert_eq!(client.state(), State::Requesting);
    assert!(matches!(give(&mut client, at(0), Kind::Ack, &[])[..], [Action::Bound(_)]));
}

#[test]
fn a_client_of_a_container_that_had_an_address_never_fails() {
    let required = vec![options::DOMAIN_NAME];
    let (identity, timing) = (Identity { required, ..identity() }, Timing::default());
    let mut client = Client::reacquire(identity, timing, at(0), Random::seeded(1));
    let mut now = at(0);
    while now < at(86_400) {
        assert!(sent(&client.tick(now)).len() <= 1 && client.state() == State::Selecting);
        now = client.deadline().unwrap();
    }
    client.tick(now);
    // An address without the requested option is better than none.
    give(&mut client, now, Kind::Offer, &[]);
    assert!(matches!(give(&mut client, now, Kind::Ack, &[])[..], [Action::Bound(_)]));
}

#[test]
fn a_socket_is_needed_only_for_a_while_after_each_message() {
    let (mut client, sent_at) = in_state(State::Renewing);
    let end = sent_at + Duration::from_secs(10);
    assert!(client.awaits_packets(sent_at));
    assert_eq!(client.deadline(), Some(end));
    assert!(client.tick(end).is_empty() && !client.awaits_packets(end));
    assert!(give(&mut client, end, Kind::Ack, &[]).is_empty());
    assert!(client.deadline().unwrap() > end);
}

/// With ciaddr, the server would send its answer to that address, and nobody would answer the server's ARP request.
#[test]
fn a_lease_that_is_not_on_the_interface_is_extended_by_broadcast_without_ciaddr() {
    for state in [State::Renewing, State::Rebinding] {
        let mut client = bound(identity(), &[]);
        client.set_assigned(false);
        let lease = client.lease().unwrap().clone();
        let now = if state == State::Renewing { lease.renew } else { lease.rebind }.unwrap();
        let (to, request) = only_sent(&client.tick(now));
        assert_eq!(client.state(), state);
        assert_eq!(to, To::Broadcast { from: Ipv4Addr::UNSPECIFIED });
        assert_eq!((request.kind(), request.ciaddr), (Some(Kind::Request), Ipv4Addr::UNSPECIFIED));
        assert_eq!(request.options.address(options::REQUESTED_ADDRESS), Some(ADDRESS));
        assert_eq!(request.options.get(options::SERVER_ID), None);
        let actions = give(&mut client, now, Kind::Ack, &[]);
        assert!(matches!(&actions[..], [Action::Bound(extended)] if extended.since == now), "{actions:?}");
    }
}

/// The request to that address's server was not sent, and the next one would be due minutes later.
#[test]
fn a_request_without_ciaddr_is_due_when_the_address_turns_out_to_be_off_the_interface() {
    for state in [State::Renewing, State::Rebinding] {
        let (mut client, now) = in_state(state);
        client.set_assigned(true);
        assert!(client.tick(now).is_empty());
        client.set_assigned(false);
        assert!(client.deadline().is_some_and(|due| due <= now));
        let (to, request) = only_sent(&client.tick(now));
        assert_eq!(to, To::Broadcast { from: Ipv4Addr::UNSPECIFIED });
        assert_eq!((client.state(), request.ciaddr), (state, Ipv4Addr::UNSPECIFIED));
        client.set_assigned(false);
        assert!(client.tick(now).is_empty());
    }
}

#[test]
fn renewing_accepts_only_the_leases_server_and_rebinding_any() {
    let other = [(options::SERVER_ID, &OTHER_SERVER.octets()[..])];
    for kind in [Kind::Ack, Kind::Nak] {
        let (mut client, now) = in_state(State::Renewing);
        assert!(give(&mut client, now, kind, &other).is_empty());
        let (mut client, now) = in_state(State::Rebinding);
        assert!(!give(&mut client, now, kind, &other).is_empty());
    }
}

#[test]
fn another_address_at_a_renewal_is_the_new_lease() {
    let (mut client, now) = in_state(State::Renewing);
    let mut message = answer(&client, Kind::Ack, &[]);
    message.yiaddr = Ipv4Addr::new(10, 0, 0, 8);
    let actions = client.receive(now, &message.encode());
    assert!(matches!(&actions[..], [Action::Bound(lease)] if lease.address == message.yiaddr), "{actions:?}");
}

#[test]
fn a_nak_ends_the_lease_and_any_address_is_requested_immediately() {
    for state in [State::Renewing, State::Rebinding] {
        let (mut client, now) = in_state(state);
        let actions = give(&mut client, now, Kind::Nak, &[(options::MESSAGE, b"wrong network")]);
        let reason = Reason::Refused { server: Some(SERVER), message: "wrong network".to_owned() };
        assert_eq!(actions[0], Action::Lost(reason));
        let (_, discover) = only_sent(&actions[1..]);
        assert_eq!(discover.kind(), Some(Kind::Discover));
        assert_eq!(discover.options.get(options::REQUESTED_ADDRESS), None);
        assert!(client.lease().is_none() && client.awaits_packets(now));
    }
}

#[test]
fn a_server_that_always_offers_and_refuses_is_not_flooded() {
    let mut client = acquire(identity());
    let (mut now, mut discovers) = (at(0), 0);
    while client.state() != State::Failed {
        let mut actions = client.tick(now);
        while let Some((_, message)) = sent(&actions).pop() {
            discovers += u32::from(message.kind() == Some(Kind::Discover));
            let kind = if message.kind() == Some(Kind::Discover) { Kind::Offer } else { Kind::Nak };
            actions = give(&mut client, now, kind, &[]);
            assert!(!actions.iter().any(|action| matches!(action, Action::Lost(_))));
        }
        now = client.deadline().unwrap_or(now);
    }
    assert!(discovers <= 12, "{discovers}");
}

/// The details of the error of an ADD whose server answers each DISCOVER with an offer, and each REQUEST with a message, if any.
fn failed_by(offered: &[(Number, &[u8])], answer: Option<Kind>, extra: &[(Number, &[u8])]) -> String {
    let mut client = acquire(identity());
    let mut now = at(0);
    loop {
        let mut actions = client.tick(now);
        while let Some((_, message)) = sent(&actions).pop() {
            actions = match (message.kind(), answer) {
                (Some(Kind::Discover), _) => give(&mut client, now, Kind::Offer, offered),
                (Some(Kind::Request), Some(kind)) => give(&mut client, now, kind, extra),
                _ => break,
            };
        }
        if let Some(Action::Failed(error)) = actions.last() {
            assert_eq!((error.code(), error.msg()), (11, NO_MORE_TRIES));
            return error.details().to_owned();
        }
        now = client.deadline().unwrap();
    }
}

#[test]
fn the_error_of_an_add_names_the_server_and_why_its_offer_led_to_no_lease() {
    let server = "DHCP server 10.0.0.1";
    let nak = failed_by(&[], Some(Kind::Nak), &[(options::MESSAGE, b"no \"more\"\n")]);
    assert_eq!(nak, "10.0.0.7 was offered, but server 10.0.0.1 refused it: \"no \\\"more\\\"\u{fffd}\"");
    let short = failed_by(&[], Some(Kind::Ack), &[(options::LEASE_TIME, &[0, 0, 0, 1])]);
    assert!(short.starts_with(&format!("{server} leased 10.0.0.7 for 1 s (option 51)")), "{short}");
    let silent = failed_by(&[], None, &[]);
    assert_eq!(silent, format!("{server} offered 10.0.0.7, but did not answer the REQUEST"));
    let nameless = failed_by(&[(options::SERVER_ID, &[])], None, &[]);
    assert_eq!(nameless, "a DHCP server offered 10.0.0.7 without a valid server identifier (option 54)");
}

/// As with the reference.
#[test]
fn a_lease_without_a_time_is_one_of_an_hour() {
    for time in [&[][..], &[1, 2, 3]] {
        let client = bound(identity(), &[(options::LEASE_TIME, time)]);
        assert_eq!(client.lease().unwrap().expiry, Some(at(3600)));
    }
}

#[test]
fn an_adopted_address_is_requested_by_init_reboot_and_then_any_address() {
    let mut client = Client::reboot(identity(), Timing::default(), ADDRESS, at(0), Random::seeded(3));
    let (to, request) = only_sent(&client.tick(at(0)));
    assert_eq!((to, request.kind()), (To::Broadcast { from: Ipv4Addr::UNSPECIFIED }, Some(Kind::Request)));
    assert_eq!(request.options.address(options::REQUESTED_ADDRESS), Some(ADDRESS));
    assert_eq!((request.options.get(options::SERVER_ID), request.ciaddr), (None, Ipv4Addr::UNSPECIFIED));
    let mut last = Vec::new();
    while client.state() == State::Rebooting {
        last = client.tick(client.deadline().unwrap());
    }
    let (_, discover) = only_sent(&last);
    assert_eq!(discover.options.address(options::REQUESTED_ADDRESS), Some(ADDRESS));
    assert!(!last.iter().any(|action| matches!(action, Action::Lost(_))));

    for kind in [Kind::Ack, Kind::Nak] {
        let mut client = Client::reboot(identity(), Timing::default(), ADDRESS, at(0), Random::seeded(3));
        client.tick(at(0));
        let actions = give(&mut client, at(1), kind, &[]);
        match kind {
            Kind::Ack => assert!(matches!(&actions[..], [Action::Bound(lease)] if lease.since == at(0))),
            _ => assert!(matches!(&actions[..], [Action::Lost(_), Action::Send { .. }])),
        }
    }
}

#[test]
fn a_lease_from_disk_continues_in_the_state_that_its_times_determine() {
    let lease = bound(identity(), &[]).lease().unwrap().clone();
    let text = serde_json::to_string(&lease).unwrap();
    assert_eq!(serde_json::from_str::<Lease>(&text).unwrap(), lease);
    for (seconds, state) in
        [(1, State::Bound), (1900, State::Renewing), (3200, State::Rebinding), (3601, State::Selecting)]
    {
        let mut client =
            Client::resume(identity(), Timing::default(), lease.clone(), at(seconds), Random::seeded(5));
        let actions = client.tick(at(seconds));
        assert_eq!(client.state(), state);
        assert_eq!(actions.contains(&Action::Lost(Reason::Expired)), state == State::Selecting);
        assert_eq!(sent(&actions).len(), usize::from(state != State::Bound));
    }
}

#[test]
fn an_unlimited_lease_is_never_renewed() {
    let client = bound(identity(), &[(options::LEASE_TIME, &[0xff; 4])]);
    let lease = client.lease().unwrap();
    assert_eq!((lease.renew, lease.rebind, lease.expiry, client.deadline()), (None, None, None, None));
}

#[test]
fn invalid_times_are_corrected() {
    let be = |seconds: u32| seconds.to_be_bytes();
    for (length, t1, t2, expected) in [
        (3600, None, None, (1800, 3150)),
        (3600, Some(600), Some(1200), (600, 1200)),
        (3600, Some(0), Some(0), (1800, 3150)),
        (3600, Some(3700), Some(3600), (1800, 3150)),
        (3600, Some(u32::MAX), Some(u32::MAX), (1800, 3150)),
        (3600, Some(2000), Some(1000), (500, 1000)),
        (3600, None, Some(1000), (500, 1000)),
        (u32::MAX - 1, None, None, (2_147_483_647, 3_758_096_382_u32)),
    ] {
        let mut extra = vec![(options::LEASE_TIME, be(length))];
        extra.extend(t1.map(|t1| (options::RENEWAL_TIME, be(t1))));
        extra.extend(t2.map(|t2| (options::REBINDING_TIME, be(t2))));
        let extra: Vec<(Number, &[u8])> = extra.iter().map(|(n, value)| (*n, &value[..])).collect();
        let lease = bound(identity(), &extra).lease().unwrap().clone();
        let since = |time: Option<Time>| time.unwrap().since(lease.since).as_secs_f64();
        let (renew, rebind) = (since(lease.renew), since(lease.rebind));
        let (wanted_renew, wanted_rebind) = (f64::from(expected.0), f64::from(expected.1));
        assert!(
            renew <= wanted_renew + 1.0 && renew >= wanted_renew * 0.96,
            "{length} {t1:?} {t2:?}: {renew}"
        );
        assert!((rebind - wanted_rebind).abs() <= 1.0, "{length} {t1:?} {t2:?}: {rebind}");
    }
}

#[test]
fn release_has_the_required_options_and_no_others() {
    let provide = vec![(options::CLIENT_ID, b"own".to_vec()), (options::HOST_NAME, b"pod".to_vec())];
    let client = bound(Identity { provide, ..identity() }, &[]);
    let (to, release) = only_sent(&[client.release().unwrap()]);
    assert_eq!(to, To::Server { server: SERVER, from: ADDRESS });
    assert_eq!((release.kind(), release.ciaddr, release.mac), (Some(Kind::Release), ADDRESS, MAC));
    let numbers: Vec<Number> = release.options.iter().map(|(number, _)| number).collect();
    assert_eq!(numbers, [options::MESSAGE_TYPE, options::SERVER_ID, options::CLIENT_ID]);
    assert_eq!(release.options.get(options::CLIENT_ID), Some(&b"own"[..]));
}

#[test]
fn a_requested_address_is_released_even_if_the_answer_was_lost() {
    let mut client = acquire(identity());
    assert!(acquire(identity()).release().is_none());
    client.tick(at(0));
    give(&mut client, at(0), Kind::Offer, &[]);
    let (to, release) = only_sent(&[client.clone().release().unwrap()]);
    assert_eq!((to, release.ciaddr), (To::Server { server: SERVER, from: ADDRESS }, ADDRESS));
    // Also if the acquisition fails meanwhile.
    let actions = client.tick(at(208));
    let [Action::Send { .. }, Action::Failed(_)] = &actions[..] else { panic!("{actions:?}") };
    let (to, release) = only_sent(&actions[..1]);
    assert_eq!((to, release.kind()), (To::Server { server: SERVER, from: ADDRESS }, Some(Kind::Release)));
    assert!(client.release().is_none());
}

/// A client whose REQUEST was not answered in time, so that it sends DISCOVER again.
fn unanswered() -> (Client, Time) {
    let mut client = acquire(identity());
    client.tick(at(0));
    give(&mut client, at(0), Kind::Offer, &[]);
    while client.state() == State::Requesting {
        client.tick(client.deadline().unwrap());
    }
    (client, at(10))
}

#[test]
fn an_unanswered_request_is_released_even_after_a_new_discover() {
    let (client, _) = unanswered();
    let (to, release) = only_sent(&[client.release().unwrap()]);
    assert_eq!((to, release.kind()), (To::Server { server: SERVER, from: ADDRESS }, Some(Kind::Release)));
    // The acquisition fails.
    let (mut client, _) = unanswered();
    let actions = client.tick(at(208));
    assert!(matches!(&actions[..], [Action::Send { .. }, Action::Failed(_)]), "{actions:?}");
    assert_eq!(only_sent(&actions).1.kind(), Some(Kind::Release));
    // Another server grants a lease. The REQUEST informs the other servers that they were not chosen (RFC 2131, section
    // 3.1).
    let (mut client, now) = unanswered();
    let other = [(options::SERVER_ID, &OTHER_SERVER.octets()[..])];
    give(&mut client, now, Kind::Offer, &other);
    give(&mut client, now, Kind::Ack, &other);
    let (to, _) = only_sent(&[client.clone().release().unwrap()]);
    assert_eq!(to, To::Server { server: OTHER_SERVER, from: ADDRESS });
    let end = client.lease().and_then(|lease| lease.expiry).unwrap();
    client.tick(end);
    assert!(client.release().is_none());
    // An address that the server refuses is not allocated.
    let (mut client, now) = unanswered();
    give(&mut client, now, Kind::Offer, &[]);
    give(&mut client, now, Kind::Nak, &[]);
    assert!(client.release().is_none());
}

#[test]
fn a_late_answer_does_not_extend_the_lease_of_a_later_request() {
    let mut client = acquire(identity());
    client.tick(at(0));
    give(&mut client, at(0), Kind::Offer, &[]);
    let late = answer(&client, Kind::Ack, &[]).encode();
    while client.state() == State::Requesting {
        client.tick(client.deadline().unwrap());
    }
    give(&mut client, at(10), Kind::Offer, &[]);
    assert_eq!(client.state(), State::Requesting);
    // For the server, the hour starts with the first REQUEST.
    assert!(client.receive(at(11), &late).is_empty());
    assert!(matches!(&give(&mut client, at(12), Kind::Ack, &[])[..], [Action::Bound(_)]));
}

#[test]
fn provided_options_replace_the_clients_own_in_each_request() {
    let provide = vec![
        (options::CLIENT_ID, b"own".to_vec()),
        (options::HOST_NAME, b"pod".to_vec()),
        (options::MESSAGE_TYPE, vec![7]),
        (options::SERVER_ID, vec![9; 4]),
        (options::PARAMETER_REQUEST_LIST, vec![1, 3]),
    ];
    let mut client = acquire(Identity { provide, broadcast: true, ..identity() });
    let (_, discover) = only_sent(&client.tick(at(0)));
    let (_, request) = only_sent(&give(&mut client, at(0), Kind::Offer, &[]));
    give(&mut client, at(0), Kind::Ack, &[]);
    let (_, renewal) = only_sent(&client.tick(client.deadline().unwrap()));
    for (message, kind) in [(&discover, Kind::Discover), (&request, Kind::Request), (&renewal, Kind::Request)]
    {
        assert_eq!(message.kind(), Some(kind));
        assert_eq!(message.options.get(options::CLIENT_ID), Some(&b"own"[..]));
        assert_eq!(message.options.get(options::HOST_NAME), Some(&b"pod"[..]));
        assert_eq!(message.options.get(options::PARAMETER_REQUEST_LIST), Some(&[1, 3][..]));
    }
    assert_eq!(request.options.address(options::SERVER_ID), Some(SERVER));
    // A client with an address can receive unicast answers.
    assert_eq!([discover.broadcast, request.broadcast, renewal.broadcast], [true, true, false]);
}

#[test]
fn an_offer_without_a_required_option_fails_soon_and_the_error_names_server_and_option() {
    let mut client = acquire(Identity { required: vec![42], ..identity() });
    client.tick(at(0));
    assert!(give(&mut client, at(1), Kind::Offer, &[]).is_empty());
    let mut actions = Vec::new();
    while let Some(deadline) = client.deadline() {
        assert!(deadline <= at(11));
        actions = client.tick(deadline);
    }
    let [Action::Failed(error)] = &actions[..] else { panic!("{actions:?}") };
    let expected =
        "DHCP server 10.0.0.1 offered 10.0.0.7 without the required options of ipam.request: ntp-servers";
    assert_eq!(error.msg(), expected);

    // A better offer is accepted in time. If an ACK lacks the option, its address is released.
    let mut client = acquire(Identity { required: vec![42], ..identity() });
    client.tick(at(0));
    give(&mut client, at(1), Kind::Offer, &[]);
    only_sent(&give(&mut client, at(2), Kind::Offer, &[(42, &[10, 0, 0, 1])]));
    let actions = give(&mut client, at(3), Kind::Ack, &[]);
    assert_eq!(sent(&actions)[0].1.kind(), Some(Kind::Release));
    assert!(matches!(actions[..], [_, Action::Failed(_)]), "{actions:?}");
}

#[test]
fn a_running_container_keeps_its_address_though_an_option_no_longer_comes() {
    let mut client = bound(Identity { required: vec![42], ..identity() }, &[(42, &[10, 0, 0, 1])]);
    let now = client.deadline().unwrap();
    client.tick(now);
    assert!(matches!(give(&mut client, now, Kind::Ack, &[])[..], [Action::Bound(_)]));
}

#[test]
fn an_address_that_no_host_can_have_is_never_accepted() {
    let usable = |address: [u8; 4], mask: [u8; 4]| {
        let mut taken = Vec::new();
        for kind in [Kind::Offer, Kind::Ack] {
            let mut client = acquire(identity());
            client.tick(at(0));
            if kind == Kind::Ack {
                give(&mut client, at(0), Kind::Offer, &[]);
            }
            let mut message = answer(&client, kind, &[(options::SUBNET_MASK, &mask)]);
            message.yiaddr = address.into();
            taken.push(!client.receive(at(0), &message.encode()).is_empty());
        }
        assert_eq!(taken[0], taken[1]);
        taken[0]
    };
    let of_24 = [255, 255, 255, 0];
    for wrong in [
        [0, 0, 0, 0],
        [0, 0, 0, 7],
        [127, 0, 0, 1],
        [224, 0, 0, 1],
        [240, 0, 0, 1],
        [255, 255, 255, 255],
        [10, 0, 0, 0],
        [10, 0, 0, 255],
        SERVER.octets(),
    ] {
        assert!(!usable(wrong, of_24), "{wrong:?}");
    }
    // A missing or non-contiguous mask is replaced by the class's.
    assert!(!usable([10, 255, 255, 255], [255, 0, 255, 0]) && !usable([10, 0, 0, 0], [0; 4]));
    for (right, mask) in [
        ([10, 0, 1, 0], [255, 255, 0, 0]),
        ([10, 0, 0, 254], [255; 4]),
        ([10, 0, 0, 0], [255, 255, 255, 254]),
    ] {
        assert!(usable(right, mask), "{right:?}");
    }
}

#[test]
fn incomplete_messages_and_those_for_other_clients_change_nothing() {
    type Spoil = fn(&mut Message);
    let spoils: [(&str, Spoil); 9] = [
        ("xid", |m| m.xid ^= 1),
        ("hardware address", |m| m.mac[5] ^= 1),
        ("not a reply", |m| m.is_reply = false),
        ("no server", |m| m.options.set(options::SERVER_ID, [])),
        ("server 0.0.0.0", |m| m.options.set(options::SERVER_ID, [0; 4])),
        ("a server's group", |m| m.options.set(options::SERVER_ID, [224, 0, 0, 1])),
        ("no kind", |m| m.options.set(options::MESSAGE_TYPE, [])),
        ("an unknown kind", |m| m.options.set(options::MESSAGE_TYPE, [99])),
        ("DISCOVER", |m| m.options.set(options::MESSAGE_TYPE, [1])),
    ];
    let of_ack: [(&str, Spoil); 3] = [
        ("another server", |m| m.options.set(options::SERVER_ID, OTHER_SERVER.octets())),
        ("no length", |m| m.options.set(options::LEASE_TIME, [0; 4])),
        ("one second", |m| m.options.set(options::LEASE_TIME, [0, 0, 0, 1])),
    ];
    for (what, spoil) in spoils.iter().chain(&of_ack) {
        let mut client = acquire(identity());
        client.tick(at(0));
        if spoils.iter().any(|(other, _)| other == what) {
            let mut offer = answer(&client, Kind::Offer, &[]);
            spoil(&mut offer);
            assert!(client.receive(at(0), &offer.encode()).is_empty(), "OFFER: {what}");
        }
        give(&mut client, at(0), Kind::Offer, &[]);
        let mut ack = answer(&client, Kind::Ack, &[]);
        spoil(&mut ack);
        assert!(client.receive(at(0), &ack.encode()).is_empty(), "ACK: {what}");
        assert_eq!(client.state(), State::Requesting);
        let whole = answer(&client, Kind::Ack, &[]).encode();
        for length in 0..whole.len().min(250) {
            client.receive(at(0), &whole[..length]);
            assert_eq!(client.state(), State::Requesting, "cut to {length}");
        }
        assert!(matches!(client.receive(at(0), &whole)[..], [Action::Bound(_)]), "{what}");
    }
}

#[test]
fn unexpected_messages_change_nothing_in_any_state() {
    let kinds = [
        Kind::Discover,
        Kind::Offer,
        Kind::Request,
        Kind::Decline,
        Kind::Ack,
        Kind::Nak,
        Kind::Release,
        Kind::Inform,
    ];
    for kind in kinds {
        let (mut client, now) = in_state(State::Bound);
        assert!(give(&mut client, now, kind, &[]).is_empty());
        let mut client = acquire(identity());
        client.tick(at(0));
        let actions = give(&mut client, at(0), kind, &[]);
        assert_eq!(actions.is_empty(), kind != Kind::Offer, "{kind:?}");
    }
}
