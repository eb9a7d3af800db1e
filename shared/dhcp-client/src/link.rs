//! A socket in a container's namespace, for one exchange.

use std::io::IoSlice;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use cni::{Result, ResultExt};
use netlink::PacketSocket;
use netns::NetNs;
use nix::errno::Errno;
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::libc;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, SockaddrIn, bind, sendmsg, setsockopt,
    socket, sockopt,
};

use crate::To;
use crate::datagram::{self, CLIENT_PORT, SERVER_PORT};

/// The longest packet that is read, in bytes: larger ones are no answers to a client that says how long they may be.
const LONGEST: usize = 4096;

/// A socket to send messages by and to receive their answers. It keeps the container's namespace alive, so it is closed when
/// [`crate::Client::awaits_packets`] says so. To close one for broadcasts takes a grace period of the kernel, some 15 ms: a loop that
/// serves others should have another thread drop it.
#[derive(Debug)]
pub struct Link {
    interface: String,
    index: u32,
    way: Way,
}

#[derive(Debug)]
enum Way {
    /// To all on the link, whatever addresses it has.
    Broadcast(PacketSocket),
    /// By the container's routes, from an address that it has.
    Routed(UdpSocket),
}

impl Link {
    /// Opens the socket that a message needs: a packet socket (packet(7)) for broadcasts, else a UDP socket. A message to one server is
    /// broadcast, too, if the container does not have the source address, or if a program in the container has bound port 68.
    ///
    /// # Errors
    /// If the namespace cannot be entered, has no such interface, or has no room for a socket.
    pub fn open(namespace: &NetNs, interface: &str, to: To) -> Result<Self> {
        let opened = namespace.enter(|| {
            let index = if_nametoindex(interface)?;
            let way = match to {
                To::Server { from, .. } if has_address(from) => udp_if_free(interface)?,
                _ => None,
            };
            let way = match way {
                Some(socket) => Way::Routed(socket),
                None => Way::Broadcast(PacketSocket::open(index, &datagram::nothing())?),
            };
            Ok::<_, std::io::Error>((index, way))
        })?;
        let (index, way) = opened.context(|| format!("open a socket for DHCP on {interface}"))?;
        Ok(Self { interface: interface.to_owned(), index, way })
    }

    /// Whether a message of that way can be sent by this socket. If not, another one has to be opened.
    pub fn fits(&self, to: To) -> bool {
        match self.way {
            Way::Broadcast(_) => matches!(to, To::Broadcast { .. }),
            Way::Routed(_) => matches!(to, To::Server { .. }),
        }
    }

    /// Sends a message. Does not block. From then on what arrives is for its transaction.
    ///
    /// # Errors
    /// If the kernel refuses: the interface is down or has gone, or there is no route.
    pub fn send(&self, to: To, message: &[u8]) -> Result<()> {
        let sent = match (&self.way, to) {
            (Way::Broadcast(socket), To::Broadcast { from } | To::Server { from, .. }) => {
                let packet = datagram::wrap(from, Ipv4Addr::BROADCAST, message);
                socket.set_filter(&datagram::answers_to(message)).and_then(|()| socket.broadcast(&packet))
            }
            (Way::Routed(socket), To::Server { server, from }) => self.route(socket, from, server, message),
            (Way::Routed(socket), To::Broadcast { from }) => {
                self.route(socket, from, Ipv4Addr::BROADCAST, message)
            }
        };
        sent.context(|| format!("send a DHCP message on {}", self.interface))
    }

    /// The source is chosen by the message, not by the socket: one that is bound to an address gets no broadcasts, and refusals are broadcast.
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

    /// The payload of the next datagram to port 68, if one has arrived. It is empty if the packet is malformed: any host on the link
    /// can send such packets without end, so the caller has to count them. Does not block.
    ///
    /// # Errors
    /// If the interface is down, or has gone.
    pub fn receive(&self) -> Result<Option<Vec<u8>>> {
        let mut buffer = [0; LONGEST];
        let received = match &self.way {
            Way::Broadcast(socket) => socket
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
            Way::Broadcast(socket) => socket.as_fd(),
            Way::Routed(socket) => socket.as_fd(),
        }
    }
}

/// Whether the namespace has the address. To bind a socket to it does not tell: in a namespace that never had an address the kernel binds to any.
fn has_address(address: Ipv4Addr) -> bool {
    let is_it = |one: &InterfaceAddress| {
        one.address.as_ref().and_then(|given| given.as_sockaddr_in()).map(SockaddrIn::ip) == Some(address)
    };
    getifaddrs().is_ok_and(|mut all| all.any(|one| is_it(&one)))
}

/// None: a program in the container has bound the client's port.
fn udp_if_free(interface: &str) -> std::io::Result<Option<UdpSocket>> {
    match udp(interface) {
        Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => Ok(None),
        socket => socket.map(Some),
    }
}

/// A socket that hears what arrives on the interface for a client. Another client in the container may have one of its own.
fn udp(interface: &str) -> std::io::Result<UdpSocket> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Inet, SockType::Datagram, flags, None)?;
    setsockopt(&fd, sockopt::ReuseAddr, &true)?;
    setsockopt(&fd, sockopt::Broadcast, &true)?;
    setsockopt(&fd, sockopt::BindToDevice, &interface.into())?;
    bind(fd.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, CLIENT_PORT)))?;
    Ok(fd.into())
}

/// What has arrived at a socket that does not block, if anything.
pub(crate) fn receive<'a>(socket: &UdpSocket, buffer: &'a mut [u8]) -> std::io::Result<Option<&'a [u8]>> {
    match socket.recv(buffer) {
        Ok(length) => Ok(buffer.get(..length)),
        // A server that has gone is said so by ICMP: as if it were silent.
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
