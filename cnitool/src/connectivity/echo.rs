//! ICMP and ICMPv6 echo (RFC 792, RFC 4443) through raw sockets. Echo through datagram sockets needs a group in
//! `ping_group_range`, which is empty in new namespaces.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use netns::NetNs;
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};

use super::Test;

/// Timeout for an answer, and the interval after which the request is sent again.
const TIMEOUT: Duration = Duration::from_secs(4);
const AGAIN: Duration = Duration::from_millis(400);

const REQUEST: [u8; 2] = [8, 128];
const ANSWER: [u8; 2] = [0, 129];
/// Lengths of the headers of IPv4, of IPv6 and of an echo.
const IP_HEADER: [usize; 2] = [20, 40];
const HEADER: usize = 8;

/// Sends echo requests from a namespace until one is answered, or a signal ends the test. `size` is the length of the whole IP packet, which is
/// not fragmented. None: the smallest packet.
///
/// # Errors
/// The reason why there was no answer.
pub fn echo(test: &Test<'_>, from: &NetNs, to: IpAddr, size: Option<u32>) -> io::Result<()> {
    let version = usize::from(to.is_ipv6());
    let least = IP_HEADER[version] + HEADER;
    let payload = size.map_or(0, |size| (size as usize).saturating_sub(least));
    let socket = from.enter(|| open(to)).map_err(io::Error::other)??;
    let id = std::process::id() as u16;
    let request = request(version, id, payload);
    let start = Instant::now();
    let mut buffer = vec![0; 1 << 16];
    while start.elapsed() < TIMEOUT && !test.is_stopped() {
        match socket.send(&request) {
            // The kernel may still be resolving the neighbour, or a router may have reported an error.
            Err(e) if e.raw_os_error() == Some(nix::errno::Errno::EMSGSIZE as i32) => return Err(e),
            _ => {}
        }
        let sent = Instant::now();
        while sent.elapsed() < AGAIN {
            match socket.recv(&mut buffer) {
                Ok(length) if is_answer(&buffer[..length], version, id) => return Ok(()),
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(_) => std::thread::sleep(AGAIN / 8),
            }
        }
    }
    Err(io::Error::new(ErrorKind::TimedOut, "no answer to echo requests"))
}

fn open(to: IpAddr) -> io::Result<UdpSocket> {
    let (family, protocol) = match to {
        IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
        IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
    };
    let socket = socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, Some(protocol))?;
    // Set the bit "don't fragment", whatever path MTU the kernel has learned.
    match to {
        IpAddr::V4(_) => set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::PROBE)?,
        IpAddr::V6(_) => set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::PROBE)?,
    }
    // connect, send and receive work the same for all socket types.
    let socket = UdpSocket::from(socket);
    socket.connect(SocketAddr::new(to, 0))?;
    socket.set_read_timeout(Some(AGAIN))?;
    Ok(socket)
}

/// The kernel computes only the checksum of ICMPv6.
fn request(version: usize, id: u16, payload: usize) -> Vec<u8> {
    let mut packet = vec![REQUEST[version], 0, 0, 0];
    packet.extend(id.to_be_bytes());
    packet.extend([0, 1]);
    packet.resize(HEADER + payload, 0x46);
    if version == 0 {
        let sum = checksum(&packet);
        packet[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}

fn is_answer(packet: &[u8], version: usize, id: u16) -> bool {
    // A raw socket for IPv4 also receives the IP header.
    let header = if version == 0 { packet.first().map_or(0, |first| usize::from(first & 15) * 4) } else { 0 };
    let message = packet.get(header..).unwrap_or_default();
    message.first() == Some(&ANSWER[version]) && message.get(4..6) == Some(&id.to_be_bytes()[..])
}

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
    let sum: u32 = words.sum();
    let folded = (sum >> 16) + (sum & 0xffff);
    !((folded + (folded >> 16)) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_with_its_checksum_adds_up_to_zero() {
        for payload in [0, 1, 56, 1472] {
            assert_eq!(checksum(&request(0, 0x1234, payload)), 0, "{payload}");
        }
    }

    #[test]
    fn only_an_answer_to_our_own_request_counts() {
        let v4 = |kind, id: u8| [vec![0x45; 20], vec![kind, 0, 0, 0, 0, id, 0, 1]].concat();
        assert!(is_answer(&v4(0, 7), 0, 7));
        assert!(!is_answer(&v4(8, 7), 0, 7) && !is_answer(&v4(0, 8), 0, 7) && !is_answer(&[], 0, 7));
        assert!(is_answer(&[129, 0, 0, 0, 0, 7, 0, 1], 1, 7));
    }
}
