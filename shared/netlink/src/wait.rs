//! Waiting for events of the kernel, without polling.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::error::RequestError;
use crate::link::{Link, OperState};
use crate::uapi::*;
use crate::{Netlink, Result};

impl Netlink {
    /// Waits until a link has a state.
    ///
    /// # Errors
    /// After `timeout`, naming the current state; ENODEV if the link is deleted.
    pub fn wait_for_state(&self, link: &Link, expected: OperState, timeout: Duration) -> Result<()> {
        let ready = |seen: &mut String| match self.link_by_index(link.index)? {
            Some(now) if now.state == expected => Ok(true),
            Some(now) => {
                *seen = format!("its operstate is {}", now.state.name());
                Ok(false)
            }
            None => Err(RequestError::from(Errno::ENODEV).during("wait for link", &link.name)),
        };
        self.wait(RTNLGRP_LINK, timeout, ("wait for link", &link.name), ready)
    }

    /// Waits for duplicate address detection on a link.
    ///
    /// # Errors
    /// If an address is a duplicate, or after `timeout`.
    pub fn wait_for_addresses(&self, link: &Link, timeout: Duration) -> Result<()> {
        let what = "wait for duplicate address detection on link";
        let ready = |seen: &mut String| {
            let addresses = self.addresses(Some(link))?;
            if let Some(duplicate) = addresses.iter().find(|a| a.duplicate) {
                let text = format!("{} is in use by a neighbour", duplicate.net.ip());
                return Err(RequestError::own(ErrorKind::AddrInUse, text).during(what, &link.name));
            }
            let tentative = addresses.iter().find(|a| a.tentative);
            *seen = tentative.map(|a| format!("{} is still tentative", a.net)).unwrap_or_default();
            Ok(tentative.is_none())
        };
        self.wait(RTNLGRP_IPV6_IFADDR, timeout, (what, &link.name), ready)
    }

    /// Calls `ready` after each event of a group until it returns true. Subscribes before the first relevant call, so no change is missed.
    fn wait(
        &self,
        group: u32,
        timeout: Duration,
        (operation, subject): (&'static str, &str),
        mut ready: impl FnMut(&mut String) -> Result<bool>,
    ) -> Result<()> {
        let mut seen = String::new();
        // Usually ready without waiting.
        if ready(&mut seen)? {
            return Ok(());
        }
        let deadline = Instant::now() + timeout;
        self.socket.subscribe(group).map_err(|r| r.during(operation, subject))?;
        let outcome = loop {
            match ready(&mut seen) {
                Ok(true) => break Ok(()),
                Ok(false) => {}
                // The answer was lost with the events that did not fit.
                Err(e) if e.errno() == Some(Errno::ENOBUFS) && Instant::now() < deadline => continue,
                Err(e) => break Err(e),
            }
            match self.socket.next_event(deadline, |_, _| {}) {
                // Lost events do not matter: `ready` reads the state itself.
                Err(r) if r.errno() == Some(Errno::ENOBUFS) => {}
                Err(r) if r.errno() == Some(Errno::ETIMEDOUT) => {
                    let text = format!("not within {timeout:?}: {seen}");
                    break Err(RequestError::own(ErrorKind::TimedOut, text).during(operation, subject));
                }
                Err(r) => break Err(r.during(operation, subject)),
                Ok(()) => {}
            }
        };
        self.socket.unsubscribe(group).map_err(|r| r.during(operation, subject))?;
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::thread;

    use nix::sched::{CloneFlags, unshare};
    use nix::sys::socket::{setsockopt, sockopt};

    use super::*;
    use crate::{LinkChange, LinkKind, Mac, NewLink, Peer};

    fn in_new_namespace(test: impl FnOnce(&Netlink, &Link) + Send + 'static) {
        let thread = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("the tests need root");
            let nl = Netlink::open().unwrap();
            let peer = Peer { name: "b", mac: None, netns: None };
            let new = NewLink { up: true, peer: Some(peer), ..NewLink::new("a", LinkKind::Veth) };
            let veth = nl.create_link(&new).unwrap();
            test(&nl, &veth);
        });
        thread.join().unwrap();
    }

    #[test]
    fn a_change_during_a_flood_of_events_is_seen() {
        in_new_namespace(|nl, veth| {
            let (others, looks) = (Netlink::open().unwrap(), Cell::new(0));
            // The default may have room for all events.
            setsockopt(&nl.socket, sockopt::RcvBuf, &(32 << 10)).unwrap();
            let ready = |_: &mut String| {
                looks.set(looks.get() + 1);
                if looks.get() == 2 {
                    // Sends far more events than the queue can hold.
                    for tail in 0..=u8::MAX {
                        let change =
                            LinkChange { mac: Some(Mac::local([0, 0, 0, 0, tail])), ..LinkChange::default() };
                        others.change_link(veth, &change).unwrap();
                    }
                }
                let mac = nl.link_by_index(veth.index)?.unwrap().mac;
                Ok(mac == Some(Mac::local([0, 0, 0, 0, u8::MAX])))
            };
            nl.wait(RTNLGRP_LINK, Duration::from_secs(600), ("wait for", "flood"), ready).unwrap();
            assert!(looks.get() > 2, "the flood was no flood");
        });
    }

    #[test]
    fn a_timed_out_wait_names_the_link_and_its_state() {
        in_new_namespace(|nl, veth| {
            let error = nl.wait_for_state(veth, OperState::Up, Duration::from_millis(1)).unwrap_err();
            // The state depends on the kernel's timing, but is not up.
            let states = ["unknown", "down", "lowerlayerdown"];
            let is_named = |state| {
                error.to_string() == format!("wait for link a: not within 1ms: its operstate is {state}")
            };
            assert!(states.into_iter().any(is_named), "{error}");
        });
    }

    #[test]
    fn a_deleted_link_ends_the_wait() {
        in_new_namespace(|nl, veth| {
            Netlink::open().unwrap().delete_link(veth).unwrap();
            let error = nl.wait_for_state(veth, OperState::Up, Duration::from_secs(600)).unwrap_err();
            assert!(error.is_missing(), "{error}");
        });
    }
}
