//! Waits for other programs, which do not report when they are done.

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

use lab::Netns;

/// How long a check waits for an event. Only a failing check waits so long.
#[derive(Clone, Copy)]
pub enum Timeout {
    Normal,
    /// For a check that is known to fail.
    Short,
}

thread_local! {
    static TIMEOUT: Cell<Timeout> = const { Cell::new(Timeout::Normal) };
}

impl Timeout {
    /// Each check runs in a separate thread.
    pub fn set_for_this_thread(self) {
        TIMEOUT.set(self);
    }

    fn duration(self) -> Duration {
        Duration::from_secs(match self {
            Self::Normal => 300,
            Self::Short => 20,
        })
    }
}

/// Calls `ask` until it returns `wanted`. Panics after the timeout.
#[track_caller]
pub fn soon<T: PartialEq + std::fmt::Debug>(what: &str, wanted: &T, ask: impl Fn() -> T) {
    let (start, timeout) = (Instant::now(), TIMEOUT.get().duration());
    loop {
        let answer = ask();
        if answer == *wanted {
            return;
        }
        assert!(
            start.elapsed() < timeout,
            "{what}: {wanted:?} is wanted, and after {timeout:?} it is {answer:?}"
        );
        thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until a server answers, because a new server may not listen yet.
#[track_caller]
pub fn tcp_says_soon(from: &Netns, to: &str, answer: &str) {
    soon(&format!("TCP from {} to {to}", from.name()), &Some(answer.to_owned()), || {
        lab::tcp_says(from, to).map(|said| said.trim().to_owned())
    });
}
