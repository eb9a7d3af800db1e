//! Fuzzing: conditions that hold for any input.

#![allow(clippy::unwrap_used, reason = "a fuzz target ends with a panic")]

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::options::{self, is_unicast};
use crate::{Action, Client, Identity, Message, Random, State, Time, Timing, datagram, result};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Maximum number of events for a client.
const MOST: usize = 64;

/// A packet. Decoding and encoding are inverse, and each option can be displayed on one line.
pub fn packet(input: &[u8]) {
    if let Some(payload) = datagram::unwrap(input) {
        assert!(payload.len() + 28 <= input.len());
    }
    let Some(mut message) = Message::decode(input) else { return };
    // The overloaded fields are in the options now.
    message.options.set(options::OVERLOAD, [0]);
    assert_eq!(Message::decode(&message.encode()), Some(message.clone()));
    for (number, value) in message.options.iter() {
        assert!(!options::display(number, value).chars().any(char::is_control));
    }
}

/// The state machine. Each line of the input is the elapsed seconds (two bytes), which fields to correct (a byte), and
/// a server's message. A lease must have an address that a host can have, and its times in order. It must not be used
/// after its end, and the client must not send endlessly.
pub fn client(input: &[u8]) {
    let identity = Identity {
        mac: MAC,
        client_id: vec![0, 1, 2],
        broadcast: false,
        provide: Vec::new(),
        request: Vec::new(),
        required: Vec::new(),
    };
    let mut now = Time::since_boot(Duration::from_secs(1));
    let mut client = Client::acquire(identity, Timing::default(), now, Random::seeded(1));
    let mut request = sent(&client.tick(now));
    for step in input.split(|byte| *byte == b'\n').take(MOST) {
        let [high, low, fit, packet @ ..] = step else { continue };
        now += Duration::from_secs(u16::from_be_bytes([*high, *low]).into());
        let actions = client.tick(now);
        holds(&client, now, &actions);
        request = sent(&actions).or(request);
        let mut packet = packet.to_vec();
        fit_to(&mut packet, *fit, request.as_ref());
        let actions = client.receive(now, &packet);
        holds(&client, now, &actions);
        request = sent(&actions).or(request);
    }
}

/// Corrects the fields that an answer repeats, as selected by the bits of `fit`. Otherwise nearly every answer would be
/// ignored.
fn fit_to(packet: &mut [u8], fit: u8, request: Option<&Message>) {
    let Some((request, header)) = request.zip(packet.get_mut(..240)) else { return };
    let fields: [(std::ops::Range<usize>, Vec<u8>); 4] = [
        (0..4, vec![2, 1, 6, 0]),
        (4..8, request.xid.to_be_bytes().to_vec()),
        (28..34, MAC.to_vec()),
        (236..240, vec![99, 130, 83, 99]),
    ];
    for (bit, (at, value)) in fields.into_iter().enumerate() {
        if fit & (1 << bit) == 0 {
            header[at].copy_from_slice(&value);
        }
    }
}

fn sent(actions: &[Action]) -> Option<Message> {
    actions.iter().rev().find_map(|action| match action {
        Action::Send { message, .. } => Some(Message::decode(message).unwrap()),
        _ => None,
    })
}

fn holds(client: &Client, now: Time, actions: &[Action]) {
    assert!(actions.len() <= 2);
    assert!(!client.awaits_packets(now) || client.state() != State::Bound);
    let Some(lease) = client.lease() else { return };
    assert!(is_unicast(lease.address) && is_unicast(lease.server) && lease.address != lease.server);
    let broadcast = u32::from(lease.address) | u32::MAX.checked_shr(lease.prefix.into()).unwrap_or(0);
    assert!(lease.prefix >= 31 || lease.address != Ipv4Addr::from(broadcast));
    assert!(lease.expiry.is_none_or(|expiry| lease.renew < lease.rebind && lease.rebind < Some(expiry)));
    assert!(actions.is_empty() || lease.expiry.is_none_or(|expiry| now < expiry));
    let given = result::of_lease(lease, None);
    assert_eq!(given.ips.len(), 1);
    let words = given.dns.search.iter().chain([&given.dns.domain]);
    assert!(words.flat_map(|word| word.bytes()).all(options::is_of_a_name));
    for route in &given.routes {
        assert!(route.gw.is_none_or(|gw| !gw.is_unspecified() && !gw.is_multicast() && !gw.is_loopback()));
        assert_eq!(route.dst.network(), route.dst.ip());
    }
}

#[test]
fn every_seed_passes() {
    seeds::replay("dhcp_packet", packet);
    seeds::replay("dhcp_client", client);
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use proptest::prelude::*;

    use super::*;

    fn seeds_of(target: &str) -> Vec<Vec<u8>> {
        let seeds = RefCell::<Vec<_>>::default();
        seeds::replay(target, |seed| seeds.borrow_mut().push(seed.to_vec()));
        seeds.into_inner()
    }

    proptest! {
        #[test]
        fn changed_bytes_in_seeds_cause_no_panic(
            which in any::<prop::sample::Index>(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        ) {
            for (target, function) in [("dhcp_packet", packet as fn(&[u8])), ("dhcp_client", client)] {
                let seeds = seeds_of(target);
                let mut seed = seeds[which.index(seeds.len())].clone();
                for (at, value) in &changes {
                    let at = at.index(seed.len().max(1));
                    seed.get_mut(at).into_iter().for_each(|byte| *byte = *value);
                }
                function(&seed);
            }
        }
    }
}
