//! IPv4 and UDP headers of a message on a packet socket (RFC 791, RFC 768), and the socket's filter.

use std::net::Ipv4Addr;

use netlink::packet::Instruction;

pub(crate) const SERVER_PORT: u16 = 67;
pub(crate) const CLIENT_PORT: u16 = 68;

const IP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
const UDP: u8 = 17;
const TTL: u8 = 64;
/// Fragment offset, in units of eight bytes, and the flag "more fragments".
const FRAGMENT: u16 = 0x3fff;

/// A packet from the client's port to the server's port.
pub(crate) fn wrap(from: Ipv4Addr, to: Ipv4Addr, message: &[u8]) -> Vec<u8> {
    let length = |headers: usize| u16::try_from(headers + message.len()).unwrap_or(u16::MAX);
    let mut packet = vec![0; IP_HEADER + UDP_HEADER];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&length(IP_HEADER + UDP_HEADER).to_be_bytes());
    packet[8..10].copy_from_slice(&[TTL, UDP]);
    packet[12..16].copy_from_slice(&from.octets());
    packet[16..20].copy_from_slice(&to.octets());
    let checksum = !sum(&packet[..IP_HEADER], 0);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    let udp = &mut packet[IP_HEADER..];
    udp[..2].copy_from_slice(&CLIENT_PORT.to_be_bytes());
    udp[2..4].copy_from_slice(&SERVER_PORT.to_be_bytes());
    udp[4..6].copy_from_slice(&length(UDP_HEADER).to_be_bytes());
    packet.extend_from_slice(message);
    let checksum = match !sum(&packet[IP_HEADER..], pseudo_header(&packet)) {
        // Zero means that there is no checksum.
        0 => u16::MAX,
        other => other,
    };
    packet[IP_HEADER + 6..][..2].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// The payload of a packet to the client's port. None: it is another packet, a fragment, or damaged.
pub(crate) fn unwrap(packet: &[u8]) -> Option<&[u8]> {
    let header = usize::from(packet.first()? & 0xf) * 4;
    if packet[0] >> 4 != 4 || header < IP_HEADER {
        return None;
    }
    let length = usize::from(u16_at(packet, 2)?);
    // The rest is padding of a short frame.
    let packet = packet.get(..length)?;
    let is_fragment = u16_at(packet, 6)? & FRAGMENT != 0;
    if packet.len() < header + UDP_HEADER
        || packet[9] != UDP
        || is_fragment
        || sum(&packet[..header], 0) != u16::MAX
    {
        return None;
    }
    let udp = packet.get(header..)?;
    let udp = udp.get(..usize::from(u16_at(udp, 4)?)).filter(|udp| udp.len() >= UDP_HEADER)?;
    if u16_at(udp, 2)? != CLIENT_PORT || !is_whole(packet, udp) {
        return None;
    }
    udp.get(UDP_HEADER..)
}

/// Whether a datagram's checksum is correct, absent, or partial. Between the ends of a veth pair it contains only the
/// sum of the pseudo-header, because hardware would add the rest (Documentation/networking/checksum-offloads.rst).
fn is_whole(packet: &[u8], udp: &[u8]) -> bool {
    let pseudo = pseudo_header(&[&packet[..IP_HEADER], udp].concat());
    let checksum = u16_at(udp, 6).unwrap_or(0);
    checksum == 0 || sum(udp, pseudo) == u16::MAX || checksum == sum(&[], pseudo)
}

/// The sum of the pseudo-header, of a packet without IP options.
fn pseudo_header(packet: &[u8]) -> u32 {
    let addresses = u32::from(sum(&packet[12..20], 0));
    let length = u32::try_from(packet.len() - IP_HEADER).unwrap_or(0);
    addresses + u32::from(UDP) + length
}

/// The sum of RFC 1071, starting with a value.
fn sum(bytes: &[u8], begin: u32) -> u16 {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let mut sum = pairs.iter().fold(begin, |sum, pair| sum + u32::from(u16::from_be_bytes(*pair)));
    if let [last] = *rest {
        sum += u32::from(last) << 8;
    }
    while sum > u32::from(u16::MAX) {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).and_then(|bytes| bytes.try_into().ok()).map(u16::from_be_bytes)
}

// The BPF instructions used here, from linux/bpf_common.h.
const LOAD_BYTE: u16 = 0x30;
const LOAD_HALF: u16 = 0x28;
/// Loads the length of the IPv4 header into X: four times the low half of a byte.
const LOAD_HEADER_LENGTH: u16 = 0xb1;
const LOAD_BYTE_BEHIND_X: u16 = 0x50;
const LOAD_HALF_BEHIND_X: u16 = 0x48;
const LOAD_WORD_BEHIND_X: u16 = 0x40;
const IF_EQUAL: u16 = 0x15;
const IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

/// A filter that drops everything.
pub(crate) fn nothing() -> Vec<Instruction> {
    vec![Instruction { code: RETURN, if_true: 0, if_false: 0, operand: 0 }]
}

/// A filter that accepts only possible answers to a message: from a server, to port 68, with the message's transaction
/// id and hardware address. Other traffic does not wake the daemon.
pub(crate) fn answers_to(message: &[u8]) -> Vec<Instruction> {
    let word =
        |at: usize| message.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_be_bytes);
    let (xid, mac, mac_end) = (word(4), word(28), word(32) >> 16);
    let udp = UDP_HEADER as u32;
    // Each test is an instruction that loads a value, and the expected value.
    let tests = [
        (LOAD_BYTE, 9, UDP.into()),
        (LOAD_HALF_BEHIND_X, 2, CLIENT_PORT.into()),
        (LOAD_BYTE_BEHIND_X, udp, 2),
        (LOAD_WORD_BEHIND_X, udp + 4, xid),
        (LOAD_WORD_BEHIND_X, udp + 28, mac),
        (LOAD_HALF_BEHIND_X, udp + 32, mac_end),
    ];
    let load = |code, operand| Instruction { code, if_true: 0, if_false: 0, operand };
    let mut program = vec![load(LOAD_HEADER_LENGTH, 0), load(LOAD_HALF, 6)];
    // The instruction that drops is the last one. Each test contains the distance to it.
    let rest = 2 * tests.len() as u8;
    program.push(Instruction { code: IF_ANY_BIT, if_true: rest + 1, if_false: 0, operand: FRAGMENT.into() });
    for (passed, (code, operand, expected)) in (1..).zip(tests) {
        program.push(load(code, operand));
        program.push(Instruction {
            code: IF_EQUAL,
            if_true: 0,
            if_false: rest - 2 * passed + 1,
            operand: expected,
        });
    }
    program.push(load(RETURN, u32::MAX));
    program.push(load(RETURN, 0));
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

    /// A server's packet: the ports are swapped.
    fn answer(payload: &[u8]) -> Vec<u8> {
        let mut packet = wrap(FROM, Ipv4Addr::BROADCAST, payload);
        packet[20..24].copy_from_slice(&[0, 67, 0, 68]);
        packet
    }

    #[test]
    fn a_wrapped_message_is_unwrapped_with_and_without_padding() {
        for payload in [&b"odd"[..], b"even", b""] {
            let mut packet = answer(payload);
            assert_eq!(unwrap(&packet), Some(payload));
            packet.extend([0; 46]);
            assert_eq!(unwrap(&packet), Some(payload));
        }
    }

    #[test]
    fn a_packet_has_the_header_and_the_checksum_of_the_rfc() {
        // The words of the header: 4500 + 001f + 4011 + 0a00 + 0001 = 8f31.
        let packet = wrap(FROM, Ipv4Addr::BROADCAST, b"abc");
        assert_eq!(packet[..12], [0x45, 0, 0, 31, 0, 0, 0, 0, 64, 17, 0x70, 0xce]);
        assert_eq!(packet[20..26], [0, 68, 0, 67, 0, 11]);
        assert_eq!(sum(&packet[..20], 0), u16::MAX);
    }

    #[test]
    fn a_partial_checksum_is_good_and_so_is_none_but_a_wrong_one_is_not() {
        let mut packet = answer(b"payload");
        let partial = sum(&[], pseudo_header(&packet));
        for (checksum, is_good) in [(partial, true), (0, true), (partial ^ 1, false), (0xbeef, false)] {
            packet[26..28].copy_from_slice(&checksum.to_be_bytes());
            assert_eq!(unwrap(&packet).is_some(), is_good, "{checksum:#x}");
        }
    }

    #[test]
    fn damaged_truncated_and_foreign_packets_are_ignored() {
        let whole = answer(b"payload");
        for length in 0..whole.len() {
            assert_eq!(unwrap(&whole[..length]), None, "cut to {length}");
        }
        // Version, length of the header, fragment, protocol, address, port, length, payload.
        for at in [0, 6, 7, 9, 13, 23, 25, 30] {
            let mut packet = whole.clone();
            packet[at] ^= 0x20;
            assert_eq!(unwrap(&packet), None, "byte {at}");
        }
        let mut with_options = whole.clone();
        with_options[0] = 0x4f;
        assert_eq!(unwrap(&with_options), None);
    }

    /// Runs a filter as the kernel does.
    fn run(program: &[Instruction], packet: &[u8]) -> u32 {
        let (mut at, mut a, mut x) = (0, 0_u32, 0);
        loop {
            let Instruction { code, if_true, if_false, operand } = program[at];
            let byte = |offset: u32| packet.get(offset as usize).copied().map(u32::from);
            let half = |offset: u32| Some(byte(offset)? << 8 | byte(offset + 1)?);
            let word = |offset: u32| Some(half(offset)? << 16 | half(offset + 2)?);
            let loaded = match code {
                LOAD_BYTE => byte(operand),
                LOAD_HALF => half(operand),
                LOAD_BYTE_BEHIND_X => byte(x + operand),
                LOAD_HALF_BEHIND_X => half(x + operand),
                LOAD_WORD_BEHIND_X => word(x + operand),
                _ => Some(a),
            };
            // A load beyond the end of the packet drops it.
            let Some(loaded) = loaded else { return 0 };
            a = loaded;
            at += 1 + match code {
                RETURN => return operand,
                IF_EQUAL => usize::from(if a == operand { if_true } else { if_false }),
                IF_ANY_BIT => usize::from(if a & operand != 0 { if_true } else { if_false }),
                _ => 0,
            };
            if code == LOAD_HEADER_LENGTH {
                x = (packet[operand as usize] as u32 & 0xf) * 4;
            }
        }
    }

    #[test]
    fn the_filter_passes_only_answers_of_the_transaction() {
        let mut request = vec![0; 240];
        request[4..8].copy_from_slice(&[1, 2, 3, 4]);
        request[28..34].copy_from_slice(&[0x02, 0x42, 0xac, 0x11, 0, 2]);
        let program = answers_to(&request);
        let mut reply = request.clone();
        reply[0] = 2;
        let good = answer(&reply);
        assert_ne!(run(&program, &good), 0);
        assert_eq!(run(&nothing(), &good), 0);
        // Fragment, protocol, port, kind, xid, hardware address.
        for at in [7, 9, 23, 28, 32, 35, 56, 61] {
            let mut other = good.clone();
            other[at] ^= 1;
            assert_eq!(run(&program, &other), 0, "byte {at}");
        }
        assert_eq!(run(&program, &good[..60]), 0);
        // A header with options.
        let mut longer = [&good[..20], &[1; 4], &good[20..]].concat();
        longer[0] = 0x46;
        assert_ne!(run(&program, &longer), 0);
    }
}
