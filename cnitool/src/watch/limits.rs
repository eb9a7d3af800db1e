//! Events of links and of traffic control, which report removed bandwidth limits.

use std::cell::{Cell, RefCell};
use std::mem::take;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use cni::Result;
use netlink::tc::{Filter, Qdisc};
use netlink::uapi::{RTM_DELLINK, RTM_DELQDISC, RTM_DELTFILTER, RTNLGRP_LINK, RTNLGRP_TC};
use netlink::{Link, Netlink, Protocol, Socket};
use nix::errno::Errno;

/// A removed object.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Removed {
    /// A queueing discipline or a filter of the link with this index.
    Of(u32),
    /// A link of kind ifb with this alias, which names its owner.
    Ifb(String),
}

/// A subscription to the events.
#[derive(Debug)]
pub struct Limits {
    socket: Socket,
    nl: Netlink,
    /// The objects removed since the last call of [`Limits::are_lost`].
    removed: RefCell<Vec<Removed>>,
    /// Whether the kernel dropped events because the buffer was full.
    overflowed: Cell<bool>,
}

impl Limits {
    /// Subscribes to the events.
    ///
    /// # Errors
    /// If the subscription fails.
    pub fn watch() -> Result<Self> {
        let socket = Socket::open(Protocol::Route).and_then(|socket| {
            socket.make_room_for_events();
            socket.subscribe(RTNLGRP_TC)?;
            socket.subscribe(RTNLGRP_LINK)?;
            Ok(socket)
        });
        let socket = socket.map_err(|r| r.during("subscribe to", "the events of links"))?;
        let (removed, overflowed) = (RefCell::default(), Cell::new(false));
        Ok(Self { socket, nl: Netlink::open()?, removed, overflowed })
    }

    /// Reads pending events without waiting. Returns whether any of them may be a loss: call [`Limits::are_lost`]
    /// then.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn take(&self) -> Result<bool> {
        let mut found = Vec::new();
        let outcome =
            self.socket.next_event(Instant::now(), |kind, payload| found.extend(removed(kind, payload)));
        match outcome {
            Err(r) if r.errno() == Some(Errno::ENOBUFS) => self.overflowed.set(true),
            Err(r) if r.errno() == Some(Errno::ETIMEDOUT) => {}
            outcome => outcome.map_err(|r| r.during("receive", "the events of links"))?,
        }
        let any = !found.is_empty() || self.overflowed.get();
        self.removed.borrow_mut().append(&mut found);
        Ok(any)
    }

    /// Whether an attached container lacks one of the removed objects. A DEL removes the same objects, but also the
    /// interface.
    ///
    /// # Errors
    /// If the kernel does not list the links.
    pub fn are_lost(&self) -> Result<bool> {
        let removed = take(&mut *self.removed.borrow_mut());
        if self.overflowed.take() {
            return Ok(true);
        }
        Ok(!removed.is_empty() && self.nl.links()?.iter().any(|link| is_missed(&removed, link)))
    }
}

impl AsFd for Limits {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The object that an event reports as removed, if bandwidth creates objects of that kind.
fn removed(kind: u16, payload: &[u8]) -> Option<Removed> {
    match kind {
        RTM_DELQDISC => {
            let qdisc = Qdisc::parse(payload)?;
            ["tbf", "clsact", "ingress"].contains(&&*qdisc.kind).then_some(Removed::Of(qdisc.link))
        }
        RTM_DELTFILTER => {
            let filter = Filter::parse(payload)?;
            (filter.kind == "u32").then_some(Removed::Of(filter.link))
        }
        RTM_DELLINK => {
            let link = Link::parse(payload)?;
            (link.is("ifb") && !link.alias.is_empty()).then_some(Removed::Ifb(link.alias))
        }
        _ => None,
    }
}

/// Whether the object was removed from this link, or was an ifb of the same owner. On other kinds of links, other
/// programs add and remove queueing disciplines.
fn is_missed(removed: &[Removed], link: &Link) -> bool {
    // bandwidth appends a word to the owner.
    let has_owner = |alias: &str| {
        let rest = alias.strip_prefix(&*link.alias).filter(|_| !link.alias.is_empty());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    let missed = |removed: &Removed| match removed {
        Removed::Of(index) => *index == link.index,
        Removed::Ifb(alias) => has_owner(alias),
    };
    (link.is("veth") || link.is("ifb")) && removed.iter().any(missed)
}

#[cfg(test)]
mod tests {
    use netlink::LinkKind;

    use super::*;

    fn veth(index: u32, alias: &str) -> Link {
        Link { index, alias: alias.into(), kind: Some(LinkKind::Veth), ..Link::default() }
    }

    #[test]
    fn only_removed_limits_of_attached_containers_are_noticed() {
        let removed = [Removed::Of(7), Removed::Ifb("cni net pod eth0 clsact".into())];
        for (link, is) in [
            (veth(7, ""), true),
            (veth(8, ""), false),
            (veth(8, "cni net pod eth0"), true),
            (veth(8, "cni net pod eth"), false),
            (veth(8, "cni net other eth0"), false),
            (Link { kind: None, ..veth(7, "") }, false),
        ] {
            assert_eq!(is_missed(&removed, &link), is, "{link:?}");
        }
    }
}
