//! Trying again when other writers come between.

use std::fmt::Display;
use std::time::{Duration, Instant};

use cni::{Error, Result};
use netlink::Refusal;
use nix::errno::Errno;

/// How long to try again because other writers change the ruleset.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often to try again because something was not found, or was found, against expectation.
const TRIES: u32 = 32;

/// What one try of a transaction comes to: what was refused, and why.
pub(super) type Attempt<T = ()> = Result<T, (String, Refusal)>;

/// Tries until no other writer comes between. The closure is told whether a key that it needs was found
/// taken.
pub(super) fn retry(
    subject: impl Display,
    verb: &str,
    mut attempt: impl FnMut(bool) -> Attempt,
) -> Result<()> {
    let (deadline, mut replace) = (Instant::now() + PATIENCE, false);
    for tries in 1.. {
        let (step, refusal) = match attempt(replace) {
            Ok(()) => return Ok(()),
            Err(refused) => refused,
        };
        match refusal.errno() {
            // A key is taken, with the same value or with another.
            Some(Errno::EEXIST | Errno::EBUSY) if !replace => replace = true,
            // Another writer came between: the generation is not the one that was read.
            Some(Errno::ERESTART | Errno::EAGAIN) if Instant::now() < deadline => {}
            // The same, or the kernel lacks an expression: it says ENOENT to that as well.
            Some(Errno::ENOENT | Errno::EEXIST | Errno::EBUSY) if tries < TRIES => {}
            _ => {
                return Err(failure(verb, subject, &step, refusal));
            }
        }
    }
    Ok(())
}

/// A refusal outside of a batch.
pub(super) fn plain(refusal: Refusal) -> (String, Refusal) {
    ("read the ruleset".into(), refusal)
}

pub(super) fn failure(verb: &str, subject: impl Display, step: &str, refusal: Refusal) -> Error {
    let lacking = matches!(refusal.errno(), Some(Errno::ENOENT | Errno::EOPNOTSUPP | Errno::EAFNOSUPPORT));
    let error =
        Error::from(refusal.during("nf_tables:", step)).context(format!("{verb} the rules of {subject}"));
    if lacking {
        error.detail("the kernel may lack a module, such as nft_fib, nft_nat or nft_masq")
    } else {
        error
    }
}
