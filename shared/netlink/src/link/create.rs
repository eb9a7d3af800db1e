//! Making links: each in one request, where it belongs and with all that it is to have.

use std::fmt;
use std::os::fd::BorrowedFd;

use nix::errno::Errno;

use super::{Link, LinkKind, header, put_netns};
use crate::error::RequestError;
use crate::uapi::*;
use crate::wire::Message;
use crate::{Error, Mac, Netlink, Result};

/// A link to make.
#[derive(Clone, Debug)]
pub struct NewLink<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it is.
    pub kind: LinkKind,
    /// The index, in the socket's namespace, of the link that it is stacked on.
    pub parent: Option<u32>,
    /// Its hardware address. None: the kernel chooses.
    pub mac: Option<Mac>,
    /// Bytes; for both ends of a veth pair. None: the kernel's default, or the parent's.
    pub mtu: Option<u32>,
    /// The index of the bridge that it becomes a port of.
    pub master: Option<u32>,
    /// The number of the group that it is one of. None: 0, of no group in particular.
    pub group: Option<u32>,
    /// Made up. Else it is down.
    pub up: bool,
    /// Where it is made. None: in the socket's namespace.
    pub target: Option<Target<'a>>,
    /// A veth's other end.
    pub peer: Option<Peer<'a>>,
}

impl<'a> NewLink<'a> {
    /// A link of which nothing else is asked.
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
        // The kernel sends the echo to the socket in the link's namespace that has the same number by chance.
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

/// Another namespace than the socket's.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The namespace.
    pub netns: BorrowedFd<'a>,
    /// A socket in it, to look up what was made there.
    pub nl: &'a Netlink,
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
    /// Makes a link in one request, and returns it. It is created where it belongs: moving it there later would take fifty
    /// times as long.
    ///
    /// Before Linux 6.15 a link of that name in the socket's own namespace is in the way of one in another namespace.
    ///
    /// # Errors
    /// If the name is taken, or the kernel refuses.
    pub fn create_link(&self, new: &NewLink<'_>) -> Result<Link> {
        let mut echoed = None;
        let outcome = self.socket.request(new.message(), |_, payload| echoed = Link::parse(payload));
        outcome.map_err(|r| r.during("create", new))?;
        let made = match echoed {
            Some(link) => Some(link),
            // Kernels before 6.2 do not honour NLM_F_ECHO for links.
            None => new.target.map_or(self, |target| target.nl).link(new.name).map_err(Error::unanswered)?,
        };
        let made = made.ok_or_else(|| RequestError::from(Errno::ENODEV).during("create", new))?;
        // It becomes a port after the kernel has told of its making, yet within the request.
        Ok(Link { master: new.master.or(made.master), ..made })
    }
}

/// The kernel uses one queue of a veth, but if it is not told so (since Linux 5.13) it makes one for each CPU first, with a directory
/// in sysfs, and takes the others away again: a third of the time that a pair takes with two CPUs, most of it with many.
fn put_queues(message: &mut Message) {
    message.put_u32(IFLA_NUM_TX_QUEUES, 1);
    message.put_u32(IFLA_NUM_RX_QUEUES, 1);
}

fn put_mac(message: &mut Message, mac: Option<Mac>) {
    if let Some(mac) = mac {
        message.put(IFLA_ADDRESS, &mac.bytes());
    }
}
