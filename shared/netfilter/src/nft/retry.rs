//! Retries of transactions that the kernel refuses because another program changed the ruleset first.

use std::fmt::Display;
use std::process;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use cni::{Code, Error, Result};
use netlink::RequestError;
use nix::errno::Errno;

use super::connection::Connection;

/// Time limit for retries because of other programs' changes. Longer in tests: the machine may be busy.
const TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 600 } else { 20 });

/// The longest pause before another attempt. Other programs need less time for a change.
const LONGEST_PAUSE: Duration = Duration::from_millis(32);

/// How often to retry because an object unexpectedly exists, or does not exist.
const UNEXPECTED_MAX: u32 = 31;

/// The outcome of one attempt. An error has the step that was refused, and why.
pub(super) type Attempt<T = ()> = Result<T, (String, RequestError)>;

/// After how many refused attempts the events of nf_tables are received. Most second attempts succeed without them.
const REFUSED_WITHOUT_EVENTS: u32 = 2;

/// Repeats an attempt until no other writer interferes. The closure's argument says whether the last attempt found a key that it needs
/// in use.
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
    let (deadline, mut replace, mut conflicts, mut unexpected) = (Instant::now() + TIMEOUT, false, 0, 0);
    loop {
        let (step, refusal) = match attempt(replace) {
            Ok(()) => return Ok(()),
            Err(refused) => refused,
        };
        match refusal.errno() {
            // A key is in use, with the same value or another one. ENOBUFS: for so many keys that the answers did not
            // fit.
            Some(Errno::EEXIST | Errno::EBUSY | Errno::ENOBUFS) if !replace => replace = true,
            // Another program was faster: the generation has changed.
            _ if is_conflict(&refusal) && Instant::now() < deadline => {
                thread::sleep(pause(conflicts));
                conflicts += 1;
                if conflicts == REFUSED_WITHOUT_EVENTS {
                    connection.receive_events();
                }
            }
            // As above, or the kernel lacks an expression, for which it also returns ENOENT.
            Some(Errno::ENOENT | Errno::EEXIST | Errno::EBUSY) if unexpected < UNEXPECTED_MAX => {
                unexpected += 1
            }
            _ => return Err((step, refusal)),
        }
    }
}

/// Whether another program was faster: before the change, or while a list was read.
fn is_conflict(refusal: &RequestError) -> bool {
    refusal.errno() == Some(Errno::ERESTART) || refusal.is_temporary()
}

/// The pause after a number of conflicts. Its upper limit doubles each time. The pause is a random part of it, so that
/// two plugins in conflict do not retry at the same time.
fn pause(conflicts: u32) -> Duration {
    let longest = Duration::from_micros(500 << conflicts.min(8)).min(LONGEST_PAUSE);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let chance = now.subsec_nanos().wrapping_mul(process::id()) >> 16 & 0xff;
    if conflicts == 0 { Duration::ZERO } else { longest * chance / 0xff }
}

/// An error outside of a batch.
pub(super) fn plain(refusal: RequestError) -> (String, RequestError) {
    ("read the ruleset".into(), refusal)
}

pub(super) fn failure(verb: &str, subject: impl Display, step: &str, refusal: RequestError) -> Error {
    if is_conflict(&refusal) {
        let text =
            format!("{verb} the rules of {subject}: other programs changed the ruleset during each attempt");
        return Error::new(Code::TryAgainLater, text).detail(format!(
            "`nft monitor` shows which programs; the plugin tried for {} seconds",
            TIMEOUT.as_secs()
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

    /// With many concurrent attachments, the last DEL may delete the table while an ADD uses it.
    #[test]
    fn conflicts_do_not_use_up_the_retries_for_missing_objects() {
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

    /// The runtime then repeats the call.
    #[test]
    fn a_ruleset_that_others_change_all_the_time_is_an_error_with_code_11() {
        let error = failure("install", "it", "begin", Errno::ERESTART.into());
        assert_eq!(error.code(), Code::TryAgainLater as u32);
        let error = failure("install", "it", "begin", Errno::EPERM.into());
        assert_eq!(error.code(), Code::Internal as u32);
    }

    #[test]
    fn a_device_that_is_never_found_is_an_error() {
        let mut tries = 0;
        let connection = Connection::open().unwrap();
        let error = retry(&connection, "it", "install", |_| {
            tries += 1;
            Err(("add an element".into(), Errno::ENOENT.into()))
        });
        assert!(error.unwrap_err().msg().contains("install the rules of it"));
        assert_eq!(tries, UNEXPECTED_MAX + 1);
    }
}
