//! SIGTERM and SIGINT as a descriptor, for commands that stay.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use cni::{Error, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// The signals, which do not end this process any more.
#[derive(Debug)]
pub struct Signals(SignalFd);

impl Signals {
    /// # Errors
    /// If descriptors run out.
    pub fn block() -> Result<Self> {
        ending().thread_block()?;
        Ok(Self(SignalFd::with_flags(&ending(), SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?))
    }

    /// Lets the signals end this process again, which has them blocked if one that stays has started it: to start it without them, that
    /// one would be without the block itself for a moment.
    pub fn unblock() {
        ending().thread_unblock().ok();
    }

    /// Waits for one of them, for some time at most. Whether there was one.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn wait(&self, at_most: Duration) -> Result<bool> {
        let end = Instant::now() + at_most;
        loop {
            let mut ready = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
            match poll(&mut ready, timeout(end)) {
                Ok(0) if Instant::now() >= end => return Ok(false),
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

/// What is left until a deadline, rounded up: less than a millisecond is not no time at all.
pub fn timeout(deadline: Instant) -> PollTimeout {
    let left = deadline.saturating_duration_since(Instant::now()) + Duration::from_micros(999);
    PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
}

fn ending() -> SigSet {
    [Signal::SIGTERM, Signal::SIGINT].into_iter().collect()
}
