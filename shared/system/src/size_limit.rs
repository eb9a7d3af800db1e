//! The limit of a file's size (`RLIMIT_FSIZE`), which the kernel enforces with a signal.

use nix::sys::signal::{SigSet, Signal, raise};

/// Makes a write past the limit fail as any other: unless its signal is blocked, the
/// kernel ends the process, and nothing is rolled back.
pub fn block_signal() {
    // It fails for no valid set.
    of_size_limit().thread_block().ok();
}

/// Starts a program, which inherits what is blocked: for it the signal is to be as usual.
pub(crate) fn with_signal<T>(start: impl FnOnce() -> T) -> T {
    let blocked = SigSet::thread_get_mask().is_ok_and(|mask| mask.contains(Signal::SIGXFSZ));
    if !blocked {
        return start();
    }
    // One of a write that has failed would strike now. There may be none, so it is sent once more: two are one. While it is
    // not taken, the program had better start with it blocked.
    if raise(Signal::SIGXFSZ).is_err() || of_size_limit().wait().is_err() {
        return start();
    }
    of_size_limit().thread_unblock().ok();
    let started = start();
    block_signal();
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

    /// The first program that is started after a write past the limit is the roll-back's.
    #[test]
    fn a_signal_of_a_write_that_failed_does_not_strike_when_a_program_is_started() {
        block_signal();
        raise(Signal::SIGXFSZ).unwrap();
        assert_eq!(with_signal(|| 1), 1);
        assert!(SigSet::thread_get_mask().unwrap().contains(Signal::SIGXFSZ));
    }
}
