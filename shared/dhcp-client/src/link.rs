//! A socket in a container's namespace, for one exchange.

use std::io::IoSlice;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use cni::{Result, ResultExt};
use netlink::{Netlink, PacketSocket};
use netns::NetNs;
use nix::errno::Errno;
use nix::libc;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, SockaddrIn, bind, sendmsg, setsockopt,
    socket, sockopt,
};

use crate::To;
use crate::datagram::{self, CLIENT_PORT, SERVER_PORT};

/// Maximum length of a received packet in bytes. Answers are shorter, because the client sends its limit.
const LONGEST: usize = 4096;

/// How many addresses of a container are read at most. Its owner may add any number, and a daemon has other containers to serve.
pub const MOST_ADDRESSES: usize = 4096;

/// A socket to send messages and receive their answers. It keeps the container's namespace alive, so close it as soon
/// as [`crate::Client::awaits_packets`] returns false. Closing a packet socket waits for an RCU grace period of about
/// 15 ms. A loop that serves others should drop it in another thread.
#[derive(Debug)]
pub struct Link {
    interface: String,
    index: u32,
    way: Way,
}

#[derive(Debug)]
enum Way {
    /// Broadcast on the link, from any source address.
    Broadcast(PacketSocket),
    /// The same, for a message that has no answer.
    Silent(PacketSocket),
    /// Unicast by the container's routes, from an address that the container has.
    Routed(UdpSocket),
}

impl Link {
    /// Opens the socket that a message needs: a packet socket (packet(7)) for broadcasts, otherwise a UDP socket. A
    /// message to one server is also broadcast if the container does not have the source address, or if a program in
    /// the container has bound port 68.
    ///
    /// # Errors
    /// If the namespace cannot be entered, the interface does not exist, or the kernel cannot create the socket.
    pub fn open(namespace: &NetNs, interface: &str, to: To) -> Result<Self> {
        Self::open_by(namespace, interface, to, |index| {
            PacketSocket::open(index, &datagram::nothing()).map(Way::Broadcast)
        })
    }

    /// Like [`Link::open`], for an interface that may be a port of a bridge, which hides answers from other packet
    /// sockets.
    ///
    /// # Errors
    /// As for [`Link::open`].
    pub fn open_on_port(namespace: &NetNs, interface: &str, to: To) -> Result<Self> {
        let open = |index| PacketSocket::open_on_port(index, &datagram::nothing()).map(Way::Broadcast);
        Self::open_by(namespace, interface, to, open)
    }

    /// Like [`Link::open`], for a message that has no answer.
    ///
    /// # Errors
    /// As for [`Link::open`].
    pub fn open_to_send(namespace: &NetNs, interface: &str, to: To) -> Result<Self> {
        Self::open_by(namespace, interface, to, |index| PacketSocket::open_to_send(index).map(Way::Silent))
    }

    fn open_by(
        namespace: &NetNs,
        interface: &str,
        to: To,
        broadcast: fn(u32) -> std::io::Result<Way>,
    ) -> Result<Self> {
        let opened = namespace.enter(|| {
            let index = if_nametoindex(interface)?;
            let way = match to {
                To::Server { from, .. } if has_address(index, from) => udp_if_free(interface)?,
                _ => None,
            };
            let way = match way {
                Some(socket) => Way::Routed(socket),
                None => broadcast(index)?,
            };
            Ok::<_, std::io::Error>((index, way))
        })?;
        let (index, way) = opened.context(|| format!("open a socket for DHCP on {interface}"))?;
        Ok(Self { interface: interface.to_owned(), index, way })
    }

    /// Whether this socket can send to the destination. Otherwise open another one.
    pub fn fits(&self, to: To) -> bool {
        match self.way {
            Way::Broadcast(_) | Way::Silent(_) => matches!(to, To::Broadcast { .. }),
            Way::Routed(_) => matches!(to, To::Server { .. }),
        }
    }

    /// Sends a message without blocking. From then on, the socket receives only answers to its transaction.
    ///
    /// # Errors
    /// If the interface is down or was deleted, or there is no route.
    pub fn send(&self, to: To, message: &[u8]) -> Result<()> {
        let broadcast = |socket: &PacketSocket| {
            let (To::Broadcast { from } | To::Server { from, .. }) = to;
            socket.broadcast(&datagram::wrap(from, Ipv4Addr::BROADCAST, message))
        };
        let sent = match (&self.way, to) {
            (Way::Broadcast(socket), _) => {
                socket.set_filter(&datagram::answers_to(message)).and_then(|()| broadcast(socket))
            }
            (Way::Silent(socket), _) => broadcast(socket),
            (Way::Routed(socket), To::Server { server, from }) => self.route(socket, from, server, message),
            (Way::Routed(socket), To::Broadcast { from }) => {
                self.route(socket, from, Ipv4Addr::BROADCAST, message)
            }
        };
        sent.context(|| format!("send a DHCP message on {}", self.interface))
    }

    /// Sets the source in the message, not in the socket: a socket bound to an address receives no broadcasts, and a
    /// NAK is broadcast.
    fn route(&self, socket: &UdpSocket, from: Ipv4Addr, to: Ipv4Addr, message: &[u8]) -> std::io::Result<()> {
        let source = libc::in_pktinfo {
            ipi_ifindex: self.index as libc::c_int,
            ipi_spec_dst: libc::in_addr { s_addr: u32::from(from).to_be() },
            ipi_addr: libc::in_addr { s_addr: 0 },
        };
        let (payload, control) = ([IoSlice::new(message)], [ControlMessage::Ipv4PacketInfo(&source)]);
        let to = SockaddrIn::from(SocketAddrV4::new(to, SERVER_PORT));
        sendmsg(socket.as_raw_fd(), &payload, &control, MsgFlags::MSG_DONTWAIT, Some(&to))?;
        Ok(())
    }

    /// The payload of the next datagram to port 68, if one has arrived. It is empty if the packet is malformed. Any
    /// host on the link can send such packets endlessly, so the caller has to count them. Does not block.
    ///
    /// # Errors
    /// If the interface is down or was deleted.
    pub fn receive(&self) -> Result<Option<Vec<u8>>> {
        let mut buffer = [0; LONGEST];
        let received = match &self.way {
            Way::Broadcast(socket) | Way::Silent(socket) => socket
                .receive(&mut buffer)
                .map(|packet| packet.map(|packet| datagram::unwrap(packet).unwrap_or_default())),
            Way::Routed(socket) => receive(socket, &mut buffer),
        };
        let received = received.context(|| format!("receive DHCP messages on {}", self.interface))?;
        Ok(received.map(<[u8]>::to_vec))
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.way {
            Way::Broadcast(socket) | Way::Silent(socket) => socket.as_fd(),
            Way::Routed(socket) => socket.as_fd(),
        }
    }
}

/// Whether the interface has the address. With the address on another interface, answers to this one's neighbour discovery may not arrive: with
/// KubeVirt, this one is a port of a bridge, and a dummy has the address. bind(2) would not tell: in a namespace that never had an address, it
/// accepts any. If the list is too long or cannot be read, the message is broadcast.
fn has_address(index: u32, address: Ipv4Addr) -> bool {
    let listed = Netlink::open().and_then(|nl| {
        nl.limit_dumps(MOST_ADDRESSES, 1);
        nl.addresses(Some(&netlink::Link { index, ..netlink::Link::default() }))
    });
    listed.is_ok_and(|all| all.iter().any(|one| one.net.ip() == address))
}

/// None: a program in the container has bound the client's port.
fn udp_if_free(interface: &str) -> std::io::Result<Option<UdpSocket>> {
    match udp(interface) {
        Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => Ok(None),
        socket => socket.map(Some),
    }
}

/// A UDP socket for the interface's port 68. Another client in the container may have one too.
fn udp(interface: &str) -> std::io::Result<UdpSocket> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Inet, SockType::Datagram, flags, None)?;
    setsockopt(&fd, sockopt::ReuseAddr, &true)?;
    setsockopt(&fd, sockopt::Broadcast, &true)?;
    setsockopt(&fd, sockopt::BindToDevice, &interface.into())?;
    bind(fd.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, CLIENT_PORT)))?;
    Ok(fd.into())
}

/// The next datagram of a non-blocking socket, if any.
pub(crate) fn receive<'a>(socket: &UdpSocket, buffer: &'a mut [u8]) -> std::io::Result<Option<&'a [u8]>> {
    match socket.recv(buffer) {
        Ok(length) => Ok(buffer.get(..length)),
        // An ICMP error means that the server is down. It is treated as no answer.
        Err(e)
            if matches!(
                Errno::from_raw(e.raw_os_error().unwrap_or(0)),
                Errno::EAGAIN | Errno::ECONNREFUSED
            ) =>
        {
            Ok(None)
        }
        Err(e) => Err(e),
    }
}
