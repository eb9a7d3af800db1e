//! SIGTERM and SIGINT as a descriptor, for commands that keep running.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use cni::{Error, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// SIGTERM and SIGINT. They are blocked, so they do not end this process.
#[derive(Debug)]
pub struct Signals(SignalFd);

impl Signals {
    /// Blocks the signals.
    ///
    /// # Errors
    /// If no descriptor is free.
    pub fn block() -> Result<Self> {
        ending().thread_block()?;
        Ok(Self(SignalFd::with_flags(&ending(), SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?))
    }

    /// Unblocks the signals in a child of a command that keeps running. The child inherits the blocked signals: if
    /// the parent unblocked them to start it, a signal could kill the parent at that moment.
    pub fn unblock() {
        ending().thread_unblock().ok();
    }

    /// Waits for a signal until a timeout. Returns whether one has arrived.
    ///
    /// # Errors
    /// If waiting fails.
    pub fn wait(&self, at_most: Duration) -> Result<bool> {
        // A pause that ends after all times of the clock does not end.
        let end = Instant::now().checked_add(at_most);
        loop {
            let mut ready = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
            match poll(&mut ready, end.map_or(PollTimeout::NONE, timeout)) {
                Ok(0) if end.is_some_and(|end| Instant::now() >= end) => return Ok(false),
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return Ok(true),
                Err(e) => return Err(Error::from(e).context("wait for a signal")),
            }
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The time until a deadline, rounded up to milliseconds: less than a millisecond must not become 0.
pub fn timeout(deadline: Instant) -> PollTimeout {
    let left = deadline.saturating_duration_since(Instant::now()) + Duration::from_micros(999);
    PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
}

fn ending() -> SigSet {
    [Signal::SIGTERM, Signal::SIGINT].into_iter().collect()
}
