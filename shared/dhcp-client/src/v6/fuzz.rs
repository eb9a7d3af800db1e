//! Fuzzing: conditions for the IPv6 client that hold for any input.

#![allow(clippy::unwrap_used, reason = "a fuzz target ends with a panic")]

use std::time::Duration;

use super::message::CLIENT_ID;
use super::{Action, Client, Duid, Identity, Message, Options, State, is_usable, of_lease};
use crate::options::is_of_a_name;
use crate::{Random, Time};

/// Maximum number of events for a client.
const MOST: usize = 64;

/// Each line of the input is the elapsed seconds (two bytes), which fields not to correct (a byte: 1 the transaction
/// id, 2 the client identifier), and a message's type and options. Decoding and encoding are inverse. A lease must have
/// an address that a host can have, and its times in order. It must not be used after its end, and the client must not
/// send endlessly.
pub fn client(input: &[u8]) {
    let identity = Identity { duid: Duid::of_digest([1; 16]), iaid: 1 };
    let mut now = Time::since_boot(Duration::from_secs(1));
    let timeout = Duration::from_secs(208);
    let mut client = Client::acquire(identity.clone(), timeout, now, Random::seeded(1));
    let mut request = sent(&client.tick(now));
    for step in input.split(|byte| *byte == b'\n').take(MOST) {
        let [high, low, unfit, kind, options @ ..] = step else { continue };
        now += Duration::from_secs(u16::from_be_bytes([*high, *low]).into());
        let actions = client.tick(now);
        holds(&client, now, &actions);
        request = sent(&actions).or(request);
        let xid = request.as_ref().filter(|_| unfit & 1 == 0).map_or(0, |request| request.xid);
        let [_, a, b, c] = xid.to_be_bytes();
        let known = Options::default().with(CLIENT_ID, identity.duid.bytes()).encode();
        let known = if unfit & 2 == 0 { known } else { Vec::new() };
        let packet = [&[*kind, a, b, c][..], &known, options].concat();
        if let Some(message) = Message::decode(&packet) {
            assert_eq!(message.encode(), packet);
        }
        let actions = client.receive(now, &packet);
        holds(&client, now, &actions);
        request = sent(&actions).or(request);
    }
}

fn sent(actions: &[Action]) -> Option<Message> {
    actions.iter().rev().find_map(|action| match action {
        Action::Send(message) => Some(Message::decode(message).unwrap()),
        _ => None,
    })
}

fn holds(client: &Client, now: Time, actions: &[Action]) {
    assert!(actions.iter().filter(|action| matches!(action, Action::Send(_))).count() <= 1);
    assert!(!client.awaits_packets(now) || !matches!(client.state(), State::Bound | State::Ended));
    let Some(lease) = client.lease() else { return };
    assert!(is_usable(lease.address) && (3..=130).contains(&lease.server.len()));
    assert!(lease.expiry.is_none_or(|end| lease.preferred.is_some_and(|preferred| preferred <= end)));
    assert!(lease.rebind.is_none_or(|rebind| lease.renew.is_some_and(|renew| renew <= rebind)));
    assert!(lease.expiry.is_none_or(|end| lease.rebind.is_some_and(|rebind| rebind <= end) && now < end));
    let given = of_lease(lease);
    assert_eq!((given.ips.len(), given.routes.len()), (1, 0));
    assert!(given.dns.search.iter().flat_map(|word| word.bytes()).all(is_of_a_name));
}

#[test]
fn every_seed_passes() {
    seeds::replay("dhcp6_client", client);
}
