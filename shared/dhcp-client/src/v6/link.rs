//! A socket in a container's namespace, for one exchange.

use std::net::{Ipv6Addr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use cni::{Result, ResultExt};
use ipnetwork::IpNetwork;
use netlink::{Address, uapi};
use netns::NetNs;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn6, bind, setsockopt, socket, sockopt};

use crate::link::receive;

/// The client's port (RFC 8415, section 7.2).
const CLIENT_PORT: u16 = 546;
/// The port of servers and relays.
const SERVER_PORT: u16 = 547;
/// All servers and relays on the link (`All_DHCP_Relay_Agents_and_Servers`).
const SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
/// Maximum length of a received message in bytes. A normal one has a few hundred.
const LONGEST: usize = 4096;

/// A UDP socket on the interface's link-local address, to send to all servers and receive their answers. It keeps the
/// container's namespace alive, so close it as soon as [`super::Client::awaits_packets`] returns false.
#[derive(Debug)]
pub struct Link {
    interface: String,
    servers: SocketAddrV6,
    socket: UdpSocket,
}

/// Whether an address can be used: duplicate address detection has passed, or the address is optimistic (RFC 4429).
pub fn is_ready(address: &Address) -> bool {
    let is_optimistic = address.flags & uapi::IFA_F_OPTIMISTIC != 0;
    !address.duplicate && (!address.tentative || is_optimistic)
}

/// The link-local address (fe80::/10) to send from. None: there is none yet.
pub fn link_local(addresses: &[Address]) -> Option<Ipv6Addr> {
    addresses.iter().filter(|address| is_ready(address)).find_map(|address| match address.net {
        IpNetwork::V6(net) if net.ip().is_unicast_link_local() => Some(net.ip()),
        _ => None,
    })
}

impl Link {
    /// Opens the socket on the interface's link-local address.
    ///
    /// # Errors
    /// If the namespace cannot be entered, the interface does not exist, or the address cannot be used.
    pub fn open(namespace: &NetNs, interface: &str, from: Ipv6Addr) -> Result<Self> {
        let opened = namespace.enter(|| {
            let index = if_nametoindex(interface)?;
            Ok::<_, std::io::Error>((udp(interface, SocketAddrV6::new(from, CLIENT_PORT, 0, index))?, index))
        })?;
        let (socket, index) = opened.context(|| format!("open a socket for DHCPv6 on {interface}"))?;
        let servers = SocketAddrV6::new(SERVERS, SERVER_PORT, 0, index);
        Ok(Self { interface: interface.to_owned(), servers, socket })
    }

    /// Sends a message to all servers on the link. Does not block.
    ///
    /// # Errors
    /// If the interface is down or was deleted.
    pub fn send(&self, message: &[u8]) -> Result<()> {
        let sent = self.socket.send_to(message, self.servers);
        sent.map(drop).context(|| format!("send a DHCPv6 message on {}", self.interface))
    }

    /// The next datagram, if any. Does not block. Call it until it returns None.
    ///
    /// # Errors
    /// If the interface is down or was deleted.
    pub fn receive(&self) -> Result<Option<Vec<u8>>> {
        let mut buffer = [0; LONGEST];
        let received = receive(&self.socket, &mut buffer).map(|payload| payload.map(<[u8]>::to_vec));
        received.context(|| format!("receive DHCPv6 messages on {}", self.interface))
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A socket bound to an address. Another client in the container may have one too.
fn udp(interface: &str, at: SocketAddrV6) -> std::io::Result<UdpSocket> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Inet6, SockType::Datagram, flags, None)?;
    setsockopt(&fd, sockopt::ReuseAddr, &true)?;
    setsockopt(&fd, sockopt::BindToDevice, &interface.into())?;
    bind(fd.as_raw_fd(), &SockaddrIn6::from(at))?;
    Ok(fd.into())
}
