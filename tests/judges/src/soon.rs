//! Waiting for other programs, which tell nobody when they are done.

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

use lab::Netns;

/// How long a check waits for what should come: so long only where it does not.
#[derive(Clone, Copy)]
pub enum Hope {
    Full,
    /// It is known not to come.
    Little,
}

thread_local! {
    static HOPE: Cell<Hope> = const { Cell::new(Hope::Full) };
}

impl Hope {
    /// A check is a thread.
    pub fn for_this_thread(self) {
        HOPE.set(self);
    }

    fn patience(self) -> Duration {
        Duration::from_secs(match self {
            Self::Full => 300,
            Self::Little => 20,
        })
    }
}

/// Asks again and again until there is an answer that holds.
#[track_caller]
pub fn soon<T: PartialEq + std::fmt::Debug>(what: &str, wanted: &T, ask: impl Fn() -> T) {
    let (start, patience) = (Instant::now(), HOPE.get().patience());
    loop {
        let answer = ask();
        if answer == *wanted {
            return;
        }
        assert!(
            start.elapsed() < patience,
            "{what}: {wanted:?} is wanted, and after {patience:?} it is {answer:?}"
        );
        thread::sleep(Duration::from_millis(50));
    }
}

/// A server that has just been started may not listen yet.
#[track_caller]
pub fn tcp_says_soon(from: &Netns, to: &str, answer: &str) {
    soon(&format!("TCP from {} to {to}", from.name()), &Some(answer.to_owned()), || {
        lab::tcp_says(from, to).map(|said| said.trim().to_owned())
    });
}
