//! Connections that the kernel tracks (nfnetlink_conntrack.h), forgotten where they outlive what they led to.
//!
//! A UDP flow that goes on keeps its entry for ever: after its container was replaced it would lead into the
//! void.

use std::net::IpAddr;

use netlink::wire::{Attributes, Message, read_ip, read_u8};
use netlink::{Netlink, RequestError, Socket};
use nix::errno::Errno;

use crate::rules::{Forward, Protocol};

macro_rules! numbers {
    ($type:ty: $($name:ident = $value:expr),* $(,)?) => { $(const $name: $type = $value;)* };
}
numbers!(u16:
    NFNL_SUBSYS_CTNETLINK = 1, IPCTNL_MSG_CT_GET = 1, IPCTNL_MSG_CT_DELETE = 2,
    CTA_TUPLE_ORIG = 1, CTA_TUPLE_REPLY = 2, CTA_ID = 12, CTA_ZONE = 18, CTA_FILTER = 25,
    CTA_FILTER_ORIG_FLAGS = 1, CTA_FILTER_REPLY_FLAGS = 2,
    CTA_TUPLE_IP = 1, CTA_TUPLE_PROTO = 2, CTA_IP_V4_SRC = 1, CTA_IP_V4_DST = 2, CTA_IP_V6_SRC = 3,
    CTA_IP_V6_DST = 4, CTA_PROTO_NUM = 1, CTA_PROTO_DST_PORT = 3,
);
// What of a tuple a filter looks at: the position of its attribute in the kernel's own order
// (nf_internals.h).
numbers!(u32:
    CTA_FILTER_F_CTA_IP_SRC = 1, CTA_FILTER_F_CTA_IP_DST = 2, CTA_FILTER_F_CTA_PROTO_NUM = 1 << 3,
    CTA_FILTER_F_CTA_PROTO_DST_PORT = 1 << 5,
);

/// `struct nfgenmsg`.
const HEADER: usize = 4;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
/// The scope of addresses that hold on their link only.
const RT_SCOPE_LINK: u8 = 253;

/// The most times that the kernel is to walk through its table of connections, 0.2 ms each.
const WALKS_MAX: usize = 16;

/// What UDP flows to forget: those whose tuple in one direction has all that is said.
#[derive(Clone, Copy, Debug)]
struct Pattern {
    v4: bool,
    direction: Direction,
    from: Option<IpAddr>,
    to: Option<IpAddr>,
    /// The port that they are to.
    port: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    /// As the first packet went.
    Original,
    /// As the answers come.
    Reply,
}

/// Forgets the UDP flows to ports of this host that are newly mapped: they may lead to an older container, or
/// to the host itself. What passes through this host to the same port of others is left alone.
///
/// # Errors
/// The kernel's refusal.
pub(crate) fn forget_mapped(socket: &Socket, forwards: &[Forward]) -> Result<(), RequestError> {
    let mut own = None;
    let mut patterns = Vec::new();
    for forward in forwards.iter().filter(|f| f.protocol == Protocol::Udp) {
        let v4 = forward.to.is_ipv4();
        let port = Some(forward.host_port);
        let to = |ip| Pattern { v4, direction: Direction::Original, from: None, to: Some(ip), port };
        match forward.host_ip {
            Some(ip) => patterns.push(to(ip)),
            None => {
                let own = own.get_or_insert_with(own_addresses);
                patterns.extend(own.iter().copied().filter(|ip| ip.is_ipv4() == v4).map(to));
            }
        }
    }
    forget_all(socket, patterns)
}

/// Forgets the UDP flows that led to containers' addresses.
///
/// # Errors
/// The kernel's refusal.
pub(crate) fn forget_containers<'a>(
    socket: &Socket,
    addresses: impl IntoIterator<Item = &'a IpAddr>,
) -> Result<(), RequestError> {
    let answering = |ip: &IpAddr| Pattern {
        v4: ip.is_ipv4(),
        direction: Direction::Reply,
        from: Some(*ip),
        to: None,
        port: None,
    };
    forget_all(socket, addresses.into_iter().map(answering).collect())
}

/// The addresses of this host that hosts beyond the next router may use, and those of its loopback.
fn own_addresses() -> Vec<IpAddr> {
    let addresses = Netlink::open().and_then(|netlink| netlink.addresses(None)).unwrap_or_default();
    addresses
        .iter()
        .filter(|address| address.scope != RT_SCOPE_LINK)
        .map(|address| address.net.ip())
        .collect()
}

/// The kernel's filter cannot be asked for an address of IPv6: it takes all others for it (up to Linux 6.18 at least;
/// `ctnetlink_filter_match_tuple` in nf_conntrack_netlink.c).
fn forget_all(socket: &Socket, patterns: Vec<Pattern>) -> Result<(), RequestError> {
    let (v4, mut listed): (Vec<Pattern>, Vec<Pattern>) = patterns.into_iter().partition(|pattern| pattern.v4);
    if v4.len() > WALKS_MAX {
        listed.extend(v4);
    } else {
        v4.iter().try_for_each(|pattern| forget(socket, pattern))?;
    }
    forget_one_by_one(socket, &listed)
}

/// Lets the kernel look for them and forget them (Linux 6.8); before, they are listed and forgotten one by
/// one, which takes much longer: the kernel locks each of its thousands of buckets then, empty as most of
/// them are.
fn forget(socket: &Socket, pattern: &Pattern) -> Result<(), RequestError> {
    let mut delete = message(IPCTNL_MSG_CT_DELETE, pattern.v4);
    pattern.write(&mut delete);
    match socket.request(delete, |_, _| {}) {
        // An older kernel takes the pattern for one connection, and asks for the rest of its tuple.
        Err(refusal) if refusal.errno() == Some(Errno::EINVAL) => {
            forget_one_by_one(socket, std::slice::from_ref(pattern))
        }
        other => other,
    }
}

fn forget_one_by_one(socket: &Socket, patterns: &[Pattern]) -> Result<(), RequestError> {
    for v4 in [true, false] {
        let of_family: Vec<&Pattern> = patterns.iter().filter(|pattern| pattern.v4 == v4).collect();
        let mut get = message(IPCTNL_MSG_CT_GET, v4);
        match &of_family[..] {
            [] => continue,
            [pattern] => pattern.write(&mut get),
            // One walk for all of them: each would be one otherwise.
            [first, ..] => Pattern { from: None, to: None, port: None, ..**first }.write(&mut get),
        }
        let found = socket.dump(get, |_, payload| {
            let connection = Attributes::after(HEADER, payload);
            of_family.iter().any(|pattern| pattern.fits(connection)).then(|| identity(connection))
        });
        let found = match found {
            // There is no conntrack to talk to.
            Err(refusal) if refusal.errno() == Some(Errno::EINVAL) => return Ok(()),
            other => other?,
        };
        for identity in found {
            let mut delete = message(IPCTNL_MSG_CT_DELETE, v4);
            identity.iter().for_each(|(kind, value)| delete.put(*kind, value));
            match socket.request(delete, |_, _| {}) {
                Err(refusal) if refusal.errno() != Some(Errno::ENOENT) => return Err(refusal),
                _ => {}
            }
        }
    }
    Ok(())
}

/// The attributes that name a connection: its original tuple, its zone and its id.
fn identity(connection: Attributes<'_>) -> Vec<(u16, Vec<u8>)> {
    let named = [CTA_TUPLE_ORIG, CTA_ZONE, CTA_ID].into_iter();
    named.filter_map(|kind| Some((kind, connection.get(kind)?.to_vec()))).collect()
}

impl Pattern {
    /// Asks the kernel for such connections, as far as its filter can be asked.
    fn write(&self, message: &mut Message) {
        let (tuple, direction) = match self.direction {
            Direction::Original => (CTA_TUPLE_ORIG, CTA_FILTER_ORIG_FLAGS),
            Direction::Reply => (CTA_TUPLE_REPLY, CTA_FILTER_REPLY_FLAGS),
        };
        let addresses = [
            (CTA_IP_V4_SRC, CTA_FILTER_F_CTA_IP_SRC, self.from),
            (CTA_IP_V4_DST, CTA_FILTER_F_CTA_IP_DST, self.to),
        ];
        let mut flags = 0;
        message.nest(tuple, |tuple| {
            tuple.nest(CTA_TUPLE_IP, |ip| {
                for (kind, flag, value) in addresses {
                    let Some(value) = value.filter(IpAddr::is_ipv4) else { continue };
                    ip.put_ip(kind, value);
                    flags |= flag;
                }
            });
            tuple.nest(CTA_TUPLE_PROTO, |nest| {
                nest.put_u8(CTA_PROTO_NUM, Protocol::Udp.number());
                flags |= CTA_FILTER_F_CTA_PROTO_NUM;
                if let Some(port) = self.port {
                    nest.put_be16(CTA_PROTO_DST_PORT, port);
                    flags |= CTA_FILTER_F_CTA_PROTO_DST_PORT;
                }
            });
        });
        message.nest(CTA_FILTER, |filter| {
            for kind in [CTA_FILTER_ORIG_FLAGS, CTA_FILTER_REPLY_FLAGS] {
                filter.put_u32(kind, if kind == direction { flags } else { 0 });
            }
        });
    }

    /// Whether a listed connection is meant: kernels before 5.8 list all.
    fn fits(&self, connection: Attributes<'_>) -> bool {
        let tuple = match self.direction {
            Direction::Original => connection.get(CTA_TUPLE_ORIG),
            Direction::Reply => connection.get(CTA_TUPLE_REPLY),
        };
        let tuple = Attributes::of(tuple.unwrap_or_default());
        let ip = Attributes::of(tuple.get(CTA_TUPLE_IP).unwrap_or_default());
        let proto = Attributes::of(tuple.get(CTA_TUPLE_PROTO).unwrap_or_default());
        let address = |v4, v6| ip.get(if self.v4 { v4 } else { v6 }).and_then(read_ip);
        let port = proto.get(CTA_PROTO_DST_PORT).and_then(|value| value.first_chunk().copied());
        let is_udp = proto.get(CTA_PROTO_NUM).and_then(read_u8) == Some(Protocol::Udp.number());
        is_udp
            && self.from.is_none_or(|from| address(CTA_IP_V4_SRC, CTA_IP_V6_SRC) == Some(from))
            && self.to.is_none_or(|to| address(CTA_IP_V4_DST, CTA_IP_V6_DST) == Some(to))
            && self.port.is_none_or(|number| port.map(u16::from_be_bytes) == Some(number))
    }
}

fn message(kind: u16, v4: bool) -> Message {
    let family = if v4 { AF_INET } else { AF_INET6 };
    Message::new(NFNL_SUBSYS_CTNETLINK << 8 | kind, 0, &[family, 0, 0, 0])
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use nix::sched::{CloneFlags, unshare};

    use super::*;

    /// The host's own namespace is never touched. Other addresses than loopback's stand for somebody else.
    fn tracked_flows(to: &[&str]) -> Socket {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let run = |words: &[&str]| {
            assert!(std::process::Command::new(words[0]).args(&words[1..]).status().unwrap().success());
        };
        run(&["ip", "link", "set", "lo", "up"]);
        run(&["ip", "route", "add", "local", "fd00::/64", "dev", "lo"]);
        let rules = "table inet t { chain c { type filter hook output priority 0; ct state new counter; }; }";
        run(&["nft", rules]);
        for to in to {
            let from = if to.starts_with('[') { "[::1]:0" } else { "127.0.0.1:0" };
            UdpSocket::bind(from).unwrap().send_to(b"?", to).unwrap();
        }
        Socket::open(netlink::Protocol::Netfilter).unwrap()
    }

    fn left(socket: &Socket) -> usize {
        socket.dump(message(IPCTNL_MSG_CT_GET, true), |_, _| Some(())).unwrap().len()
    }

    /// The addresses that connections of IPv6 are to.
    fn left_to(socket: &Socket) -> Vec<IpAddr> {
        let to = |payload: &[u8]| {
            let tuple = Attributes::of(Attributes::after(HEADER, payload).get(CTA_TUPLE_ORIG)?);
            Attributes::of(tuple.get(CTA_TUPLE_IP)?).get(CTA_IP_V6_DST).and_then(read_ip)
        };
        let mut left = socket.dump(message(IPCTNL_MSG_CT_GET, false), |_, payload| to(payload)).unwrap();
        left.sort();
        left
    }

    /// The kernel's own filter takes every IPv6 address but the one that is asked for.
    #[test]
    fn connections_of_another_container_are_left_alone_over_ipv6_too() {
        let servers = ["[fd00::1]:53", "[fd00::2]:53", "[fd00::3]:53", "[fd00::4]:53", "[::1]:53"];
        let socket = tracked_flows(&servers);
        let ips = |texts: &[&str]| texts.iter().map(|ip| ip.parse().unwrap()).collect::<Vec<IpAddr>>();
        forget_containers(&socket, &ips(&["fd00::2", "fd00::3"])).unwrap();
        forget_containers(&socket, &ips(&["fd00::4"])).unwrap();
        assert_eq!(left_to(&socket), ips(&["::1", "fd00::1"]));
        forget_mapped(&socket, &["udp 53 to [fd00::5]:53".parse().unwrap()]).unwrap();
        assert_eq!(left_to(&socket), ips(&["fd00::1"]));
    }

    fn mapped(from: &str) -> Forward {
        format!("udp {from} to 10.1.0.5:53").parse().unwrap()
    }

    #[test]
    fn only_flows_to_the_mapped_port_of_this_host_are_forgotten() {
        let socket = tracked_flows(&["127.0.0.1:53", "127.0.0.1:54", "127.0.0.2:53"]);
        assert_eq!(left(&socket), 3);
        forget_mapped(&socket, &[mapped("53")]).unwrap();
        assert_eq!(left(&socket), 2, "127.0.0.2 stands for somebody else: it is no address of the host");
        forget_mapped(&socket, &[mapped("127.0.0.2:53")]).unwrap();
        assert_eq!(left(&socket), 1);
    }

    #[test]
    fn an_older_kernels_connections_are_forgotten_one_by_one() {
        let socket = tracked_flows(&["127.0.0.1:53", "127.0.0.1:54", "127.0.0.2:53"]);
        let pattern = |to: &str, port| Pattern {
            v4: true,
            direction: Direction::Original,
            from: None,
            to: to.parse().ok(),
            port: Some(port),
        };
        forget_one_by_one(&socket, &[pattern("127.0.0.1", 53)]).unwrap();
        assert_eq!(left(&socket), 2);
        forget_one_by_one(&socket, &[pattern("127.0.0.1", 54), pattern("127.0.0.2", 53)]).unwrap();
        assert_eq!(left(&socket), 0);
    }

    #[test]
    fn all_of_a_containers_flows_are_forgotten() {
        let socket = tracked_flows(&["127.0.0.1:53", "127.0.0.3:53", "127.0.0.3:54"]);
        forget_containers(&socket, &["127.0.0.3".parse().unwrap()]).unwrap();
        assert_eq!(left(&socket), 1);
    }
}
