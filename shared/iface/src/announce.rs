//! Telling the neighbours where an address is now.

use std::net::IpAddr;

use cni::{AddResult, Result};
use netlink::{Link, Mac};
use netns::PacketSocket;

use crate::Namespace;

const BROADCAST: [u8; 6] = [0xff; 6];
/// ff02::1, all nodes, as an Ethernet group (RFC 2464, section 7).
const ALL_NODES_MAC: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];
const ALL_NODES: [u8; 16] = [0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const ETHERTYPE_ARP: u16 = 0x0806;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ICMPV6: u8 = 58;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const TARGET_LINK_LAYER_ADDRESS: u8 = 2;

/// Announces the link's addresses in the result (`position` in its list of interfaces): a gratuitous ARP for each
/// IPv4 address (RFC 5227, section 3), an unsolicited neighbour advertisement for each IPv6 one (RFC 4861, section
/// 7.2.6). An address that another container had a moment ago would be unreachable for those who remember that one.
///
/// The link must be able to carry packets by now.
///
/// # Errors
/// If the packets cannot be sent.
pub fn addresses(sandbox: &Namespace, link: &Link, result: &AddResult, position: usize) -> Result<()> {
    let Some(mac) = link.mac else { return Ok(()) };
    let mut own = result.ips.iter().filter(|ip| ip.interface == Some(position)).peekable();
    if own.peek().is_none() {
        return Ok(());
    }
    let socket = sandbox.enter(|| PacketSocket::open(link.index))??;
    for ip in own {
        socket.send(&announcement(mac, ip.address.ip()))?;
    }
    Ok(())
}

/// The host forgets where it saw the addresses before, on the link that it sees them through.
///
/// # Errors
/// If the kernel refuses.
pub fn forget(host: &Namespace, link: &Link, result: &AddResult) -> Result<()> {
    for address in result.addresses() {
        host.nl.forget_neighbour(link, address.ip())?;
    }
    Ok(())
}

fn announcement(mac: Mac, ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => arp(mac.bytes(), ip.octets()),
        IpAddr::V6(ip) => advertisement(mac.bytes(), ip.octets()),
    }
}

fn ethernet(to: [u8; 6], from: [u8; 6], ethertype: u16) -> Vec<u8> {
    [&to[..], &from, &ethertype.to_be_bytes()].concat()
}

/// A request for one's own address (RFC 826).
fn arp(mac: [u8; 6], ip: [u8; 4]) -> Vec<u8> {
    let mut frame = ethernet(BROADCAST, mac, ETHERTYPE_ARP);
    // Ethernet and IPv4, their addresses' lengths, request.
    frame.extend([0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend([&mac[..], &ip, &[0; 6], &ip].concat());
    frame
}

/// For all nodes, with the flag that it overrides what they know.
fn advertisement(mac: [u8; 6], ip: [u8; 16]) -> Vec<u8> {
    let mut body = vec![NEIGHBOUR_ADVERTISEMENT, 0, 0, 0, 0x20, 0, 0, 0];
    body.extend(ip);
    body.extend([TARGET_LINK_LAYER_ADDRESS, 1]);
    body.extend(mac);
    let length = u16::try_from(body.len()).unwrap_or_default().to_be_bytes();
    let pseudo = [&ip[..], &ALL_NODES, &[0, 0], &length, &[0, 0, 0, ICMPV6], &body].concat();
    body[2..4].copy_from_slice(&checksum(&pseudo).to_be_bytes());

    let mut frame = ethernet(ALL_NODES_MAC, mac, ETHERTYPE_IPV6);
    // Version 6; a hop limit of 255 proves that no router forwarded it.
    frame.extend([0x60, 0, 0, 0, length[0], length[1], ICMPV6, 255]);
    frame.extend([&ip[..], &ALL_NODES, &body].concat());
    frame
}

/// The Internet checksum (RFC 1071) of an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let sum: u32 = bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = Mac::new([2, 0, 0, 0, 0, 7]);

    #[test]
    fn a_gratuitous_arp_asks_everybody_for_its_own_address() {
        let frame = announcement(MAC, "10.0.0.7".parse().unwrap());
        assert_eq!(frame.len(), 42);
        assert_eq!(frame[..6], BROADCAST);
        assert_eq!(
            (&frame[22..32], &frame[38..]),
            (&[2, 0, 0, 0, 0, 7, 10, 0, 0, 7][..], &[10, 0, 0, 7][..])
        );
    }

    #[test]
    fn an_unsolicited_advertisement_has_a_valid_checksum() {
        let frame = announcement(MAC, "fd00::7".parse().unwrap());
        assert_eq!(frame.len(), 14 + 40 + 32);
        let (addresses, body) = (&frame[22..54], &frame[54..]);
        let pseudo = [addresses, &[0, 0, 0, 32, 0, 0, 0, ICMPV6], body].concat();
        assert_eq!(checksum(&pseudo), 0);
    }
}
