//! Waiting for losses of rules, or for the signal that ends it.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use cni::Error;
use netfilter::Losses;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use runtime::Result;

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    Loss,
    Signal,
    Timeout,
}

/// SIGTERM and SIGINT as a descriptor, and the events of the ruleset.
#[derive(Debug)]
pub struct Watch {
    signals: SignalFd,
    /// None: the kernel has no nf_tables.
    losses: Option<Losses>,
}

impl Watch {
    /// # Errors
    /// Without CAP_NET_ADMIN.
    pub fn start() -> Result<Self> {
        ending().thread_block().map_err(Error::from)?;
        let signals = SignalFd::with_flags(&ending(), SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK);
        Ok(Self { signals: signals.map_err(Error::from)?, losses: Losses::watch()? })
    }

    /// Waits for a loss, or for some time at most. Without `losses` for a signal only.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn wait(&self, losses: bool, patience: Option<Duration>) -> Result<Woken> {
        let deadline = patience.map(|patience| Instant::now() + patience);
        let losses = self.losses.as_ref().filter(|_| losses);
        loop {
            let mut ready = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
            ready.extend(losses.map(|losses| PollFd::new(losses.as_fd(), PollFlags::POLLIN)));
            match poll(&mut ready, timeout(deadline)) {
                Ok(0) => return Ok(Woken::Timeout),
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(Error::from(e).context("wait for events").into()),
            }
            if ready[0].any().unwrap_or_default() {
                return Ok(Woken::Signal);
            }
            if losses.map_or(Ok(false), Losses::take)? {
                return Ok(Woken::Loss);
            }
        }
    }

    /// Starts something that is not to inherit the blocked signals.
    pub fn without_block<T>(start: impl FnOnce() -> T) -> T {
        ending().thread_unblock().ok();
        let started = start();
        ending().thread_block().ok();
        started
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
