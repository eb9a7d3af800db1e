//! Waiting for losses of rules and of limits, or for the signal that ends it.

mod limits;

use std::cell::Cell;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use cni::Error;
use netfilter::Losses;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use runtime::Result;

use limits::Limits;

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Something was removed. [`Watch::has_lost`] tells whether it is missed.
    Removal,
    Signal,
    Timeout,
}

/// SIGTERM and SIGINT as a descriptor, and the events of the ruleset, of links and of traffic control.
#[derive(Debug)]
pub struct Watch {
    signals: SignalFd,
    /// None: the kernel has no nf_tables.
    rules: Option<Losses>,
    /// Rules were lost since the last look.
    without_rules: Cell<bool>,
    limits: Limits,
}

impl Watch {
    /// # Errors
    /// Without CAP_NET_ADMIN.
    pub fn start() -> Result<Self> {
        ending().thread_block().map_err(Error::from)?;
        let signals = SignalFd::with_flags(&ending(), SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK);
        Ok(Self {
            signals: signals.map_err(Error::from)?,
            rules: Losses::watch()?,
            without_rules: Cell::new(false),
            limits: Limits::watch()?,
        })
    }

    /// Waits for a removal, or for some time at most. Without `removals` for a signal only.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn wait(&self, removals: bool, patience: Option<Duration>) -> Result<Woken> {
        let deadline = patience.map(|patience| Instant::now() + patience);
        loop {
            let mut ready = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
            if removals {
                let sockets = self.rules.as_ref().map(Losses::as_fd).into_iter().chain([self.limits.as_fd()]);
                ready.extend(sockets.map(|socket| PollFd::new(socket, PollFlags::POLLIN)));
            }
            match poll(&mut ready, timeout(deadline)) {
                Ok(0) => return Ok(Woken::Timeout),
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(Error::from(e).context("wait for events").into()),
            }
            if ready[0].any().unwrap_or_default() {
                return Ok(Woken::Signal);
            }
            if removals && self.take()? {
                return Ok(Woken::Removal);
            }
        }
    }

    /// Takes the events that are there. Whether any of them tells of a removal.
    fn take(&self) -> Result<bool> {
        let rules = self.rules.as_ref().map_or(Ok(false), Losses::take)?;
        self.without_rules.set(self.without_rules.get() || rules);
        Ok(self.limits.take()? || rules)
    }

    /// Whether something is missed that was removed since the last look.
    ///
    /// # Errors
    /// If the kernel refuses to tell.
    pub fn has_lost(&self) -> Result<bool> {
        let limits = self.limits.are_lost()?;
        Ok(self.without_rules.take() || limits)
    }

    /// Lets the signals end this process again, which has them blocked if one that watches has started it: to start it without them, that
    /// one would be without the block itself for a moment.
    pub fn unblock_signals() {
        ending().thread_unblock().ok();
    }
}

fn timeout(deadline: Option<Instant>) -> PollTimeout {
    // Rounded up: less than a millisecond is not no time at all.
    let left = |end: Instant| end.saturating_duration_since(Instant::now()) + Duration::from_micros(999);
    deadline.map_or(PollTimeout::NONE, |end| PollTimeout::try_from(left(end)).unwrap_or(PollTimeout::MAX))
}

fn ending() -> SigSet {
    [Signal::SIGTERM, Signal::SIGINT].into_iter().collect()
}
