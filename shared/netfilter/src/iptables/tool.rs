//! Runs the iptables tools.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use cni::{Code, Error, Result};
use system::child::{self, IoStop, Limits, Stopped};

/// Searched in addition to PATH, because a runtime's PATH may lack the system directories.
const DIRECTORIES: &str = "/usr/sbin:/sbin:/usr/local/sbin:/usr/bin:/bin";

/// Timeout of a tool, including its wait for the lock. It takes 2 ms on a small ruleset.
pub(super) const DEADLINE: Duration = Duration::from_secs(15);

/// Finds an executable in PATH and in the system directories.
pub(super) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(std::env::split_paths(DIRECTORIES));
    directories.filter(|dir| dir.is_absolute()).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// Runs a tool until it exits, or until the deadline.
pub(super) fn run(command: &mut Command, input: &str, limit: Duration) -> Result<String> {
    let name = Path::new(command.get_program()).file_name().unwrap_or_default().display().to_string();
    let limits = Limits { bytes: u64::MAX, time: Some(limit), group: false };
    let outcome = child::run(command.stderr(Stdio::piped()), input.as_bytes(), limits)
        .map_err(|stopped| unfinished(&name, limit, &stopped))?;
    if outcome.status.success() {
        return Ok(text(&outcome.out));
    }
    Err(failure(&name, outcome.status, &text(&outcome.log)))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether the error is a timeout. Trying again is useless then.
pub(super) fn is_hung(error: &Error) -> bool {
    error.code() == Code::TryAgainLater as u32
}

fn unfinished(name: &str, limit: Duration, stopped: &Stopped) -> Error {
    let error = match &stopped.why {
        IoStop::System(_, e) => Error::io(format!("run {name}"), e),
        IoStop::Late | IoStop::Endless => {
            Error::new(Code::TryAgainLater, format!("{name} did not finish within {limit:?}"))
                .detail("it was killed; `fuser -v /run/xtables.lock` shows who holds the lock of iptables")
        }
    };
    error.detail(stopped.remains.as_deref().unwrap_or_default())
}

fn failure(name: &str, status: ExitStatus, errors: &str) -> Error {
    let lines: Vec<&str> = errors.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let error = Error::new(Code::Internal, format!("{name} failed ({status})")).detail(lines.join("; "));
    if ["Permission denied", "not permitted"].iter().any(|words| errors.contains(words)) {
        return error.detail("this requires CAP_NET_ADMIN; iptables-legacy requires CAP_NET_RAW as well");
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_hangs_is_stopped_at_the_deadline() {
        let error = run(Command::new("sleep").arg("600"), "", Duration::from_millis(50)).unwrap_err();
        assert!(is_hung(&error) && error.msg().contains("sleep did not finish within 50ms"), "{error}");
    }

    #[test]
    fn a_tool_that_fails_is_quoted() {
        let error =
            run(Command::new("sort").arg("/no/such/file"), "unread", Duration::from_secs(600)).unwrap_err();
        assert!(error.msg().contains("sort failed") && error.details().contains("No such file"), "{error}");
    }
}
