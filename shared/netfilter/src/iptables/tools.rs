//! The iptables tools of a family, and the lock for using them.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use cni::{Code, Error, Result, ResultExt};
use netlink::Family;
use system::child::{self, IoStop, Limits, Stopped};
use system::lock::Lock;

/// Searched in addition to PATH, because a runtime's PATH may lack the system directories.
const DIRECTORIES: &str = "/usr/sbin:/sbin:/usr/local/sbin:/usr/bin:/bin";

/// Timeout of a tool, including its wait for the lock. It takes 2 ms on a small ruleset.
const DEADLINE: Duration = Duration::from_secs(30);

/// How long a tool waits for the xtables lock, in seconds. Less than [`DEADLINE`], so that the tool reports it.
const LOCK_WAIT: &str = "25";

/// The exit status of a tool that did not get the xtables lock (`RESOURCE_PROBLEM` of xtables.h), or for which the
/// kernel had no memory.
const RESOURCE_PROBLEM: i32 = 4;

const LOCK_HOLDER: &str = "`fuser -v /run/xtables.lock` shows who holds the lock of iptables";

/// Maximum number of attempts if another program makes a change between listing and changing.
const TRIES: usize = 4;

/// Name of the lock for changes by iptables.
const LOCK: &str = "iptables";

/// Timeout for the lock. A hundred concurrent containers on a slow machine need half a minute.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// The tools of a family.
#[derive(Clone, Debug)]
pub(super) struct Tools {
    restore: PathBuf,
    save: PathBuf,
}

impl Tools {
    /// `variant` is empty for the host's default, or `-legacy`.
    pub(super) fn find(family: Family, variant: &str) -> Result<Self> {
        let prefix = family.choose("iptables", "ip6tables");
        let find = |verb: &str| {
            let name = format!("{prefix}{variant}-{verb}");
            executable(&name).ok_or_else(|| {
                Error::new(Code::Io, format!("{name} is not installed"))
                    .detail("install the package iptables, or set the backend to nftables")
            })
        };
        Ok(Self { restore: find("restore")?, save: find("save")? })
    }

    /// The legacy variant's tools. They have no separate name if the host's default is the legacy variant.
    pub(super) fn find_legacy(family: Family) -> Result<Self> {
        Self::find(family, "-legacy")
            .or_else(|missing| Self::find(family, "").ok().filter(Self::are_legacy).ok_or(missing))
    }

    /// Whether these change the legacy tables. Only versions since 1.8 report their variant. Older ones are legacy.
    fn are_legacy(&self) -> bool {
        let version = run(Command::new(&self.restore).arg("--version"), "", DEADLINE);
        version.is_ok_and(|version| !version.contains("nf_tables"))
    }

    /// Changes rules: for each table, the whole script or nothing.
    pub(super) fn restore(&self, script: &str) -> Result<()> {
        let restore = &mut Command::new(&self.restore);
        run(restore.args(["--noflush", "-w", LOCK_WAIT]), script, DEADLINE).map(drop)
    }

    /// Lists the rules of tables.
    pub(super) fn save(&self, tables: &[&str]) -> Result<String> {
        tables.iter().map(|table| run(Command::new(&self.save).args(["-t", table]), "", DEADLINE)).collect()
    }
}

/// Repeats an attempt if another program made a change in between. Not after a timeout of a tool.
pub(super) fn retry(attempt: impl Fn() -> Result<()>) -> Result<()> {
    let mut outcome = attempt();
    for _ in 1..TRIES {
        if !matches!(&outcome, Err(e) if !is_hung(e)) {
            break;
        }
        outcome = attempt();
    }
    outcome
}

/// Prevents other plugins from changing rules by iptables. A tool inherits the lock and holds it until it exits, also
/// if its plugin is killed. None: the host has no place for locks.
pub(super) fn lock() -> Result<Option<Lock>> {
    let lock = Lock::acquire(LOCK, LOCK_TIMEOUT)?;
    if let Some(lock) = &lock {
        lock.pass_on().context(|| "pass a lock on to child processes")?;
    }
    Ok(lock)
}

/// Waits for tools that still run, because their plugin may have been killed.
///
/// # Errors
/// Code 11 if they do not exit in time.
pub(crate) fn settle() -> Result<()> {
    Ok(Lock::acquire(LOCK, LOCK_TIMEOUT).map(drop)?)
}

/// Finds an executable in PATH and in the system directories.
fn executable(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(std::env::split_paths(DIRECTORIES));
    directories.filter(|dir| dir.is_absolute()).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// Runs a tool until it exits, or until the deadline.
fn run(command: &mut Command, input: &str, limit: Duration) -> Result<String> {
    let name = Path::new(command.get_program()).file_name().unwrap_or_default().display().to_string();
    let limits = Limits { time: Some(limit), ..Limits::NONE };
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

/// Whether the error is a timeout, of the tool or of its wait for the lock. Trying again is useless then.
pub(super) fn is_hung(error: &Error) -> bool {
    error.code() == Code::TryAgainLater as u32
}

fn unfinished(name: &str, limit: Duration, stopped: &Stopped) -> Error {
    let error = match &stopped.why {
        IoStop::System(_, e) => Error::io(format!("run {name}"), e),
        IoStop::Late | IoStop::Endless => {
            Error::new(Code::TryAgainLater, format!("{name} did not finish within {limit:?}"))
                .detail(format!("it was killed; {LOCK_HOLDER}"))
        }
    };
    error.detail(stopped.remains.as_deref().unwrap_or_default())
}

fn failure(name: &str, status: ExitStatus, errors: &str) -> Error {
    let lines: Vec<&str> = errors.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    // A tool of nf_tables exits with this status for other reasons, and has no lock.
    if status.code() == Some(RESOURCE_PROBLEM) && errors.contains("xtables lock") {
        let error =
            Error::new(Code::TryAgainLater, format!("{name} waited {LOCK_WAIT} s for the xtables lock"));
        return error.detail(LOCK_HOLDER);
    }
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
