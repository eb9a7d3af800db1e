//! Creating links: each in one request, in its namespace and with all attributes.

use std::fmt;
use std::os::fd::BorrowedFd;

use nix::errno::Errno;

use super::{Link, LinkKind, header, put_netns};
use crate::error::RequestError;
use crate::uapi::*;
use crate::wire::Message;
use crate::{Error, Mac, Netlink, Result};

/// A link to create.
#[derive(Clone, Debug)]
pub struct NewLink<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its kind.
    pub kind: LinkKind,
    /// Index of its parent, in the socket's namespace.
    pub parent: Option<u32>,
    /// Hardware address. `None`: the kernel chooses.
    pub mac: Option<Mac>,
    /// MTU in bytes, of both ends of a veth pair. `None`: the kernel's default, or the parent's.
    pub mtu: Option<u32>,
    /// Index of its bridge.
    pub master: Option<u32>,
    /// Number of its group. `None`: 0, the default group.
    pub group: Option<u32>,
    /// Whether it is created up.
    pub up: bool,
    /// Its namespace. `None`: the socket's.
    pub target: Option<Target<'a>>,
    /// The other end of a veth pair.
    pub peer: Option<Peer<'a>>,
}

impl<'a> NewLink<'a> {
    /// A link without other attributes.
    pub const fn new(name: &'a str, kind: LinkKind) -> Self {
        Self {
            name,
            kind,
            parent: None,
            mac: None,
            mtu: None,
            master: None,
            group: None,
            up: false,
            target: None,
            peer: None,
        }
    }

    fn message(&self) -> Message {
        // The kernel would send the echo to the link's namespace, to whichever socket has the same port number there.
        let echo = if self.target.is_none() { NLM_F_ECHO } else { 0 };
        let flags = if self.up { IFF_UP } else { 0 };
        let request = NLM_F_CREATE | NLM_F_EXCL | echo;
        let mut message = Message::new(RTM_NEWLINK, request, &header(AF_UNSPEC, 0, flags, flags));
        message.put_str(IFLA_IFNAME, self.name);
        put_mac(&mut message, self.mac);
        put_netns(&mut message, self.target.map(|target| target.netns));
        if self.peer.is_some() {
            put_queues(&mut message);
        }
        message.put_optional(IFLA_MTU, self.mtu);
        message.put_optional(IFLA_LINK, self.parent);
        message.put_optional(IFLA_MASTER, self.master);
        message.put_optional(IFLA_GROUP, self.group);
        message.nest(IFLA_LINKINFO, |m| {
            self.kind.write(m, |m| {
                if let Some(peer) = &self.peer {
                    m.nest(VETH_INFO_PEER, |m| peer.write(m, self.mtu));
                }
            });
        });
        message
    }
}

impl fmt::Display for NewLink<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.name(), self.name)?;
        match &self.peer {
            Some(peer) => write!(f, " with peer {}", peer.name),
            None => Ok(()),
        }
    }
}

/// A namespace other than the socket's.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The namespace.
    pub netns: BorrowedFd<'a>,
    /// A socket in it, to read the created link.
    pub nl: &'a Netlink,
}

/// The other end of a veth pair. The kernel always creates it down.
#[derive(Clone, Copy, Debug)]
pub struct Peer<'a> {
    /// Its name.
    pub name: &'a str,
    /// Hardware address. `None`: random.
    pub mac: Option<Mac>,
    /// Its namespace. `None`: that of the first end.
    pub netns: Option<BorrowedFd<'a>>,
}

impl Peer<'_> {
    fn write(&self, message: &mut Message, mtu: Option<u32>) {
        message.raw(&header(AF_UNSPEC, 0, 0, 0));
        message.put_str(IFLA_IFNAME, self.name);
        message.put_optional(IFLA_MTU, mtu);
        put_mac(message, self.mac);
        put_netns(message, self.netns);
        put_queues(message);
    }
}

impl Netlink {
    /// Creates a link in one request and returns it. It is created in its own namespace: moving it there later takes fifty times as long.
    ///
    /// Before Linux 6.15, creating a link in another namespace fails if the socket's namespace has a link of that name.
    ///
    /// # Errors
    /// If the name exists, or the kernel refuses.
    pub fn create_link(&self, new: &NewLink<'_>) -> Result<Link> {
        let mut echoed = None;
        let outcome = self.socket.request(new.message(), |_, payload| echoed = Link::parse(payload));
        outcome.map_err(|r| r.during("create", new))?;
        let made = match echoed {
            Some(link) => Some(link),
            // Kernels before 6.2 ignore NLM_F_ECHO for links.
            None => new.target.map_or(self, |target| target.nl).link(new.name).map_err(Error::unanswered)?,
        };
        let made = made.ok_or_else(|| RequestError::from(Errno::ENODEV).during("create", new))?;
        // The kernel sends the echo before the link becomes a port, within the same request.
        Ok(Link { master: new.master.or(made.master), ..made })
    }

    /// Whether the kernel has links of a kind. Creates none. The kernel loads the kind's module if it is installed.
    ///
    /// # Errors
    /// If the process may not create links, or the kernel refuses for another reason.
    pub fn has_link_kind(&self, kind: &str) -> Result<bool> {
        let mut message = Message::new(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &header(AF_UNSPEC, 0, 0, 0));
        // No link can have this name. The kernel examines it only after it has found the kind. The peer of a veth would exist by then, but
        // before that, the kind refuses an address of one byte.
        message.put_str(IFLA_IFNAME, "/");
        message.put(IFLA_ADDRESS, &[0]);
        message.nest(IFLA_LINKINFO, |m| m.put_str(IFLA_INFO_KIND, kind));
        match self.order(message, "look for links of kind", kind) {
            Err(e) if e.is_unsupported() => Ok(false),
            Err(e) if !e.is_invalid() => Err(e),
            _ => Ok(true),
        }
    }
}

/// Requests one queue. Otherwise, since Linux 5.13, the kernel creates a queue for each CPU, with a directory in sysfs, and removes all but
/// one. That takes a third of the time on two CPUs, and most of it on many.
fn put_queues(message: &mut Message) {
    message.put_u32(IFLA_NUM_TX_QUEUES, 1);
    message.put_u32(IFLA_NUM_RX_QUEUES, 1);
}

fn put_mac(message: &mut Message, mac: Option<Mac>) {
    if let Some(mac) = mac {
        message.put(IFLA_ADDRESS, &mac.bytes());
    }
}
