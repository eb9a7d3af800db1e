//! Netlink sockets: which messages are answers, and whether a list is consistent.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "tests")]

mod common;

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};

use common::{lab, pair};
use netlink::uapi::{
    AF_INET, AF_UNSPEC, IFA_LOCAL, IFLA_IFALIAS, RTM_DELADDR, RTM_GETADDR, RTM_GETLINK, RTM_NEWADDR,
    RTM_NEWLINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_LINK,
};
use netlink::wire::Message;
use netlink::{Address, Link, Protocol, Socket};

fn link_message(kind: u16, index: u32) -> Message {
    let mut header = [0; 16];
    header[0] = AF_UNSPEC;
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    Message::new(kind, 0, &header)
}

fn set_alias(socket: &Socket, index: u32) {
    let mut message = link_message(RTM_NEWLINK, index);
    message.put(IFLA_IFALIAS, b"seen");
    socket.request(message, |_, _| {}).unwrap();
}

/// `struct ifaddrmsg` of IPv4.
fn address_message(kind: u16, prefix: u8, index: u32) -> Message {
    let [a, b, c, d] = index.to_ne_bytes();
    Message::new(kind, 0, &[AF_INET, prefix, 0, 0, a, b, c, d])
}

#[test]
fn an_event_with_the_sequence_number_of_a_request_is_no_answer_to_it() {
    lab(|lab| {
        let lo = lab.host.link("lo").unwrap().unwrap().index;
        let (ours, theirs) = (Socket::open(Protocol::Route).unwrap(), Socket::open(Protocol::Route).unwrap());
        ours.subscribe(RTNLGRP_IPV4_IFADDR).unwrap();
        // Both sockets use the same sequence numbers, and an event has that of the request that caused it.
        let mut message = address_message(RTM_NEWADDR, 8, lo);
        message.put_ip(IFA_LOCAL, [127, 0, 0, 2].into());
        theirs.request(message, |_, _| {}).unwrap();
        let listed =
            ours.dump(address_message(RTM_GETADDR, 0, 0), |_, payload| Address::parse(payload)).unwrap();
        assert_eq!(listed.len(), 1, "{listed:?}");
    });
}

#[test]
fn events_that_others_caused_arrive_and_end_with_the_subscription() {
    lab(|lab| {
        let (veth, _) = pair(&lab.host, "a", "b");
        let (ours, theirs) = (Socket::open(Protocol::Route).unwrap(), Socket::open(Protocol::Route).unwrap());
        ours.subscribe(RTNLGRP_LINK).unwrap();
        set_alias(&theirs, veth.index);
        let mut seen = Vec::new();
        let late = std::time::Instant::now() + std::time::Duration::from_secs(600);
        // The kernel may also send an event about the new link's state.
        while !seen.contains(&(RTM_NEWLINK, "seen".to_owned())) {
            ours.next_event(late, |kind, payload| seen.push((kind, Link::parse(payload).unwrap().alias)))
                .unwrap();
        }

        ours.unsubscribe(RTNLGRP_LINK).unwrap();
        set_alias(&theirs, veth.index);
        let now = std::time::Instant::now();
        let error = ours.next_event(now, |_, _| panic!("no event")).unwrap_err();
        assert_eq!(error.errno(), Some(nix::errno::Errno::ETIMEDOUT));
    });
}

/// The kernel continues at a position of its list. After a deletion, it skips an address, and the answer
/// contains the deleted one.
#[test]
fn a_dump_is_repeated_if_an_address_is_deleted_meanwhile() {
    lab(|lab| {
        let lo = lab.host.link("lo").unwrap().unwrap().index;
        let (ours, theirs) = (Socket::open(Protocol::Route).unwrap(), Socket::open(Protocol::Route).unwrap());
        let change = |kind: u16, ip: IpAddr| {
            let mut message = address_message(kind, 32, lo);
            message.put_ip(IFA_LOCAL, ip);
            theirs.request(message, |_, _| {}).unwrap();
        };
        // The answer has about 150 KiB. The kernel prepares at most one datagram of 32 KiB ahead.
        (1..=2000_u32).for_each(|n| change(RTM_NEWADDR, Ipv4Addr::from(0x0a00_0000 + n).into()));
        let deleted = Cell::new(None);
        let parse = |_: u16, payload: &[u8]| {
            let ip = Address::parse(payload)?.net.ip();
            if deleted.get().is_none() {
                change(RTM_DELADDR, ip);
                deleted.set(Some(ip));
            }
            Some(ip)
        };
        let listed = ours.dump(address_message(RTM_GETADDR, 0, 0), parse).unwrap();
        assert!(!listed.contains(&deleted.get().unwrap()));
        assert_eq!(listed.len(), 1999);
    });
}

#[test]
fn a_refused_dump_has_the_kernels_text() {
    lab(|_| {
        let socket = Socket::open(Protocol::Route).unwrap();
        // A filter must not have a prefix length.
        let error = socket
            .dump(address_message(RTM_GETADDR, 24, 0), |_, _| Some(()))
            .unwrap_err()
            .during("list", "addresses");
        let text = error.kernel_text().unwrap();
        assert_eq!(error.to_string(), format!("list addresses: Invalid argument ({text})"));
    });
}

#[test]
fn a_message_too_long_for_its_length_fields_is_not_sent() {
    lab(|_| {
        let socket = Socket::open(Protocol::Route).unwrap();
        let mut message = link_message(RTM_NEWLINK, 1);
        message.nest(18, |m| (0..20_000).for_each(|_| m.put_u8(1, 0)));
        let error = socket.request(message, |_, _| {}).unwrap_err();
        assert_eq!(error.errno(), Some(nix::errno::Errno::EMSGSIZE));
    });
}

#[test]
fn a_malformed_answer_is_not_treated_as_no_answer() {
    lab(|_| {
        let socket = Socket::open(Protocol::Route).unwrap();
        let error = socket.query(link_message(RTM_GETLINK, 1), |_| None::<()>).unwrap_err();
        assert_eq!(error.during("look up", "lo").to_string(), "look up lo: the kernel's reply is malformed");
    });
}
