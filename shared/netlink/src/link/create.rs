//! Making links: each in one request, with all that it is to have.

use std::os::fd::{AsRawFd, BorrowedFd};

use super::{Link, header, put_optional};
use crate::uapi::{
    AF_UNSPEC, IFF_UP, IFLA_ADDRESS, IFLA_BR_VLAN_FILTERING, IFLA_GROUP, IFLA_IFNAME, IFLA_INFO_DATA,
    IFLA_INFO_KIND, IFLA_LINKINFO, IFLA_MASTER, IFLA_MTU, IFLA_NET_NS_FD, NLM_F_CREATE, NLM_F_ECHO,
    NLM_F_EXCL, RTM_NEWLINK, VETH_INFO_PEER,
};
use crate::wire::Message;
use crate::{Mac, Netlink, Result, error};

/// A veth pair to make: this end in the socket's namespace, the peer where it says.
#[derive(Clone, Copy, Debug)]
pub struct Veth<'a> {
    /// This end's name.
    pub name: &'a str,
    /// For both ends, in bytes. None: 1500.
    pub mtu: Option<u32>,
    /// The index of the bridge that this end becomes a port of.
    pub master: Option<u32>,
    /// The number of the group that this end is one of. None: 0, of no group in particular.
    pub group: Option<u32>,
    /// The other end.
    pub peer: Peer<'a>,
}

/// The other end of a veth pair. It is made down: the kernel cannot make it up.
#[derive(Clone, Copy, Debug)]
pub struct Peer<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its hardware address. None: a random one.
    pub mac: Option<Mac>,
    /// Where it is made. None: beside this end.
    pub netns: Option<BorrowedFd<'a>>,
}

/// A bridge to make.
#[derive(Clone, Copy, Debug)]
pub struct Bridge<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its hardware address. A bridge without one takes the lowest of its ports', and changes with them.
    pub mac: Mac,
    /// Bytes. None: 1500, and later the lowest of its ports'.
    pub mtu: Option<u32>,
    /// Whether it looks at VLAN tags.
    pub vlan_filtering: bool,
}

impl Netlink {
    /// Makes a veth pair in one request, this end up, and returns this end. The peer is born where it belongs:
    /// to move it there later would take fifty times as long.
    ///
    /// # Errors
    /// If either name is taken, or the kernel refuses.
    pub fn create_veth(&self, veth: &Veth<'_>) -> Result<Link> {
        let mut message = creation(veth.name, IFF_UP, veth.mtu);
        if let Some(master) = veth.master {
            message.put_u32(IFLA_MASTER, master);
        }
        put_optional(&mut message, IFLA_GROUP, veth.group);
        let Peer { name, mac, netns } = veth.peer;
        message.nest(IFLA_LINKINFO, |m| {
            m.put_str(IFLA_INFO_KIND, "veth");
            m.nest(IFLA_INFO_DATA, |m| {
                m.nest(VETH_INFO_PEER, |m| {
                    m.raw(&header(AF_UNSPEC, 0, 0, 0));
                    m.put_str(IFLA_IFNAME, name);
                    put_optional(m, IFLA_MTU, veth.mtu);
                    if let Some(mac) = mac {
                        m.put(IFLA_ADDRESS, &mac.bytes());
                    }
                    if let Some(fd) = netns {
                        m.put_u32(IFLA_NET_NS_FD, fd.as_raw_fd().cast_unsigned());
                    }
                });
            });
        });
        let made =
            self.create(message, "create veth", veth.name, &format!("{} with peer {name}", veth.name))?;
        // It becomes a port after the kernel has told of its making, yet within the request.
        Ok(Link { master: veth.master, group: veth.group.unwrap_or_default(), ..made })
    }

    /// Makes a bridge, up, and returns it.
    ///
    /// # Errors
    /// If the name is taken, or the kernel refuses.
    pub fn create_bridge(&self, bridge: &Bridge<'_>) -> Result<Link> {
        let mut message = creation(bridge.name, IFF_UP, bridge.mtu);
        message.put(IFLA_ADDRESS, &bridge.mac.bytes());
        message.nest(IFLA_LINKINFO, |m| {
            m.put_str(IFLA_INFO_KIND, "bridge");
            if bridge.vlan_filtering {
                m.nest(IFLA_INFO_DATA, |m| m.put_u8(IFLA_BR_VLAN_FILTERING, 1));
            }
        });
        self.create(message, "create bridge", bridge.name, bridge.name)
    }

    fn create(&self, message: Message, operation: &'static str, name: &str, subject: &str) -> Result<Link> {
        let mut link = None;
        let outcome = self.socket.request(message, |_, payload| link = Link::parse(payload));
        outcome.map_err(|r| r.during(operation, subject))?;
        // Kernels before 6.2 do not honour NLM_F_ECHO for links.
        let link = link.map_or_else(|| self.link(name), |link| Ok(Some(link)));
        link.map_err(error::Error::unanswered)?
            .ok_or_else(|| error::RequestError::from(nix::errno::Errno::ENODEV).during(operation, subject))
    }
}

fn creation(name: &str, flags: u32, mtu: Option<u32>) -> Message {
    let create = NLM_F_CREATE | NLM_F_EXCL | NLM_F_ECHO;
    let mut message = Message::new(RTM_NEWLINK, create, &header(AF_UNSPEC, 0, flags, flags));
    message.put_str(IFLA_IFNAME, name);
    put_optional(&mut message, IFLA_MTU, mtu);
    message
}
