//! File size limit (`RLIMIT_FSIZE`), which the kernel enforces with SIGXFSZ.

use std::io;

use nix::sys::signal::{self, SigSet, Signal};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Blocks SIGXFSZ, so that a write past the limit returns an error. Otherwise the kernel kills the process, and nothing is rolled back.
pub fn block_sigxfsz() {
    // Fails only for an invalid set.
    of_size_limit().thread_block().ok();
}

/// Raises the soft limit to the hard one, for what must not fail for lack of it.
///
/// # Errors
/// The kernel's.
pub fn raise() -> io::Result<()> {
    let limit = getrlimit(Resource::Fsize);
    Ok(setrlimit(Resource::Fsize, Rlimit { current: limit.maximum, ..limit })?)
}

/// Runs `start` with SIGXFSZ unblocked, for a program that inherits the signal mask.
pub(crate) fn with_signal<T>(start: impl FnOnce() -> T) -> T {
    let blocked = SigSet::thread_get_mask().is_ok_and(|mask| mask.contains(Signal::SIGXFSZ));
    if !blocked {
        return start();
    }
    // A pending SIGXFSZ of a failed write would kill this process now. Send one more, because two pending signals are one, and take it. If
    // that fails, the program starts with the signal blocked.
    if signal::raise(Signal::SIGXFSZ).is_err() || of_size_limit().wait().is_err() {
        return start();
    }
    of_size_limit().thread_unblock().ok();
    let started = start();
    block_sigxfsz();
    started
}

fn of_size_limit() -> SigSet {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGXFSZ);
    signals
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first program after a failed write is started by the rollback.
    #[test]
    fn a_pending_signal_of_a_failed_write_does_not_kill_the_process_when_a_program_is_started() {
        block_sigxfsz();
        signal::raise(Signal::SIGXFSZ).unwrap();
        assert_eq!(with_signal(|| 1), 1);
        assert!(SigSet::thread_get_mask().unwrap().contains(Signal::SIGXFSZ));
    }
}
