//! Trying again when other writers come between.

use std::fmt::Display;
use std::process;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use cni::{Code, Error, Result};
use netlink::RequestError;
use nix::errno::Errno;

use super::connection::Connection;

/// How long to try again because other writers change the ruleset. In a test, the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 600 } else { 20 });

/// The longest pause before another try. Others need less for a change.
const LONGEST_PAUSE: Duration = Duration::from_millis(32);

/// How often to try again because something was not found, or was found, against expectation.
const SURPRISES_MAX: u32 = 31;

/// What one try of a transaction comes to: what was refused, and why.
pub(super) type Attempt<T = ()> = Result<T, (String, RequestError)>;

/// After how many refused attempts the events of nf_tables are received: most second attempts succeed without.
const REFUSED_WITHOUT_EVENTS: u32 = 2;

/// Tries until no other writer comes between. The closure is told whether a key that it needs was found
/// taken.
pub(super) fn retry(
    connection: &Connection,
    subject: impl Display,
    verb: &str,
    attempt: impl FnMut(bool) -> Attempt,
) -> Result<()> {
    let outcome = attempts(connection, attempt);
    connection.end();
    outcome.map_err(|(step, refusal)| failure(verb, subject, &step, refusal))
}

fn attempts(connection: &Connection, mut attempt: impl FnMut(bool) -> Attempt) -> Attempt {
    let (deadline, mut replace, mut voided, mut surprises) = (Instant::now() + PATIENCE, false, 0, 0);
    loop {
        let (step, refusal) = match attempt(replace) {
            Ok(()) => return Ok(()),
            Err(refused) => refused,
        };
        match refusal.errno() {
            // A key is taken, with the same value or with another; so many are that the kernel's answers did not find room.
            Some(Errno::EEXIST | Errno::EBUSY | Errno::ENOBUFS) if !replace => replace = true,
            // Another writer came between: the generation is not the one that was read.
            _ if is_void(&refusal) && Instant::now() < deadline => {
                thread::sleep(pause(voided));
                voided += 1;
                if voided == REFUSED_WITHOUT_EVENTS {
                    connection.receive_events();
                }
            }
            // The same, or the kernel lacks an expression: it says ENOENT to that as well.
            Some(Errno::ENOENT | Errno::EEXIST | Errno::EBUSY) if surprises < SURPRISES_MAX => surprises += 1,
            _ => return Err((step, refusal)),
        }
    }
}

/// Whether other writers came between: before the change, or within a list that was read.
fn is_void(refusal: &RequestError) -> bool {
    refusal.errno() == Some(Errno::ERESTART) || refusal.is_temporary()
}

/// How long to leave the ruleset to others after so many voided tries: up to twice as long each time, and a part of that
/// by chance, so that those who were voided by each other do not meet again.
fn pause(voided: u32) -> Duration {
    let longest = Duration::from_micros(500 << voided.min(8)).min(LONGEST_PAUSE);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let chance = now.subsec_nanos().wrapping_mul(process::id()) >> 16 & 0xff;
    if voided == 0 { Duration::ZERO } else { longest * chance / 0xff }
}

/// A refusal outside of a batch.
pub(super) fn plain(refusal: RequestError) -> (String, RequestError) {
    ("read the ruleset".into(), refusal)
}

pub(super) fn failure(verb: &str, subject: impl Display, step: &str, refusal: RequestError) -> Error {
    if is_void(&refusal) {
        let text =
            format!("{verb} the rules of {subject}: other programs changed the ruleset during each attempt");
        return Error::new(Code::TryAgainLater, text).detail(format!(
            "`nft monitor` shows which programs; the plugin tried for {} seconds",
            PATIENCE.as_secs()
        ));
    }
    let lacking = matches!(refusal.errno(), Some(Errno::ENOENT | Errno::EOPNOTSUPP | Errno::EAFNOSUPPORT));
    let error =
        Error::from(refusal.during("nf_tables:", step)).context(format!("{verb} the rules of {subject}"));
    if lacking {
        error.detail("a kernel module may be missing, such as nft_fib, nft_nat or nft_masq")
    } else {
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a storm, the table goes with its last attachment while an ADD counts on it.
    #[test]
    fn voided_tries_do_not_use_up_those_for_what_is_gone_meanwhile() {
        let mut tries = 0;
        let connection = Connection::open().unwrap();
        let outcome = retry(&connection, "it", "install", |_| {
            tries += 1;
            match tries {
                1..=40 => Err(("begin".into(), Errno::ERESTART.into())),
                41 => Err(("add an element".into(), Errno::ENOENT.into())),
                _ => Ok(()),
            }
        });
        outcome.unwrap();
    }

    /// The runtime calls the plugin again then.
    #[test]
    fn a_ruleset_that_others_change_all_the_time_is_an_error_with_code_11() {
        let error = failure("install", "it", "begin", Errno::ERESTART.into());
        assert_eq!(error.code(), Code::TryAgainLater as u32);
        let error = failure("install", "it", "begin", Errno::EPERM.into());
        assert_eq!(error.code(), Code::Internal as u32);
    }

    #[test]
    fn what_is_never_found_is_an_error() {
        let mut tries = 0;
        let connection = Connection::open().unwrap();
        let error = retry(&connection, "it", "install", |_| {
            tries += 1;
            Err(("add an element".into(), Errno::ENOENT.into()))
        });
        assert!(error.unwrap_err().msg().contains("install the rules of it"));
        assert_eq!(tries, SURPRISES_MAX + 1);
    }
}
