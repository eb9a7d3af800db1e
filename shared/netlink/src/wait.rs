//! Waiting for the kernel: for its events, never by sleeping.

use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::error::Refusal;
use crate::link::{Link, OperState};
use crate::uapi::{RTNLGRP_IPV6_IFADDR, RTNLGRP_LINK};
use crate::{Error, Netlink, Result};

impl Netlink {
    /// Waits until a link is in a state.
    ///
    /// # Errors
    /// ETIMEDOUT, with the state it is in; ENODEV if it is gone.
    pub fn wait_for_state(&self, link: &Link, wanted: OperState, patience: Duration) -> Result<()> {
        let ready = |seen: &mut String| match self.link_by_index(link.index)? {
            Some(now) if now.state == wanted => Ok(true),
            Some(now) => {
                *seen = format!("it is {:?}", now.state);
                Ok(false)
            }
            None => Err(Refusal::from(Errno::ENODEV).during("wait for link", &link.name)),
        };
        self.wait(RTNLGRP_LINK, patience, ("wait for link", &link.name), ready)
    }

    /// Waits until no IPv6 address of a link is being tested for duplicates any more.
    ///
    /// # Errors
    /// EADDRINUSE if one is a duplicate; ETIMEDOUT.
    pub fn wait_for_addresses(&self, link: &Link, patience: Duration) -> Result<()> {
        let what = "wait for duplicate address detection on link";
        let ready = |seen: &mut String| {
            let addresses = self.addresses(Some(link))?;
            if let Some(duplicate) = addresses.iter().find(|a| a.duplicate) {
                let text = format!("{} is in use by a neighbour", duplicate.net.ip());
                return Err(Refusal::new(Errno::EADDRINUSE.into(), Some(text)).during(what, &link.name));
            }
            let tentative = addresses.iter().find(|a| a.tentative);
            *seen = tentative.map(|a| format!("{} is still tentative", a.net)).unwrap_or_default();
            Ok(tentative.is_none())
        };
        self.wait(RTNLGRP_IPV6_IFADDR, patience, (what, &link.name), ready)
    }

    /// Looks after each event of a group, until what is looked for is there. Subscribed before the first look,
    /// so that no change falls between the two.
    fn wait(
        &self,
        group: u32,
        patience: Duration,
        (operation, subject): (&'static str, &str),
        mut ready: impl FnMut(&mut String) -> Result<bool>,
    ) -> Result<()> {
        let mut seen = String::new();
        // Mostly it is there already.
        if ready(&mut seen)? {
            return Ok(());
        }
        let deadline = Instant::now() + patience;
        self.socket.subscribe(group).map_err(|r| r.during(operation, subject))?;
        let outcome = loop {
            match ready(&mut seen) {
                Ok(true) => break Ok(()),
                Err(e) => break Err(e),
                Ok(false) => {}
            }
            match self.socket.next_event(deadline, |_, _| {}) {
                // Lost events do not matter: the next look is at the state itself.
                Err(r) if r.errno() == Some(Errno::ENOBUFS) => {}
                Err(r) if r.errno() == Some(Errno::ETIMEDOUT) => {
                    break Err(timed_out(operation, subject, seen));
                }
                other => {
                    if let Err(r) = other {
                        break Err(r.during(operation, subject));
                    }
                }
            }
        };
        self.socket.unsubscribe(group).map_err(|r| r.during(operation, subject))?;
        outcome
    }
}

fn timed_out(operation: &'static str, subject: &str, seen: String) -> Error {
    Refusal::new(Errno::ETIMEDOUT.into(), Some(seen)).during(operation, subject)
}
