//! Addresses that a DHCP server leases, and how long the server itself takes for one.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use lab::Netns;
use lab::dhcp::{DhcpSite, RANGE};

use crate::machine::Prepare;
use crate::networks::{dynamic, nothing};
use crate::process::Spent;
use crate::rounds::chain;

/// ADD and DEL with dnsmasq; then the same four messages by a client that does nothing else.
pub fn leased() -> Box<Prepare> {
    let whole = chain(dynamic, nothing, None);
    Box::new(move |lab, side| {
        let mut site = DhcpSite::new(lab, side.directory("dhcp"));
        site.serve(RANGE);
        site.start_daemon("");
        let mut whole = whole(lab, side);
        site.plug("pod");
        let bare = lab.container("bare");
        site.plug(&bare.id);
        bare.sh(
            "ip addr add 10.9.0.2/24 dev eth0; ip link set eth0 up; ip route add 255.255.255.255 dev eth0",
        );
        Box::new(move |how| {
            // It runs as long as there are rounds.
            let _running = &site;
            let mut phases = whole(how);
            phases.push(exchange(&bare));
            phases
        })
    })
}

const DISCOVER: u8 = 1;
const REQUEST: u8 = 3;

/// DISCOVER, OFFER, REQUEST, ACK.
fn exchange(netns: &Netns) -> Spent {
    let took = netns.run(|| {
        let socket = UdpSocket::bind("0.0.0.0:68")?;
        socket.set_broadcast(true)?;
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        let start = Instant::now();
        let mut answer = [0; 1500];
        socket.send_to(&message(DISCOVER, &[]), "255.255.255.255:67")?;
        socket.recv(&mut answer)?;
        // The address that is offered, and the server, which sent it from its own.
        let offered = [[50, 4].as_slice(), &answer[16..20], &[54, 4, 10, 9, 0, 1]].concat();
        socket.send_to(&message(REQUEST, &offered), "255.255.255.255:67")?;
        socket.recv(&mut answer)?;
        std::io::Result::Ok(start.elapsed())
    });
    let failures = took.as_ref().err().map(ToString::to_string).into_iter().collect();
    Spent { took: took.unwrap_or_default(), failures, ..Spent::default() }
}

/// A message of a client (RFC 2131, figure 1), with the broadcast flag.
fn message(kind: u8, options: &[u8]) -> Vec<u8> {
    let mut message = vec![0; 236];
    message[..12].copy_from_slice(&[1, 1, 6, 0, 1, 2, 3, 4, 0, 0, 0x80, 0]);
    message[28..34].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
    // The magic cookie, and the kind.
    message.extend([99, 130, 83, 99, 53, 1, kind]);
    message.extend_from_slice(options);
    message.push(255);
    message.resize(300, 0);
    message
}
