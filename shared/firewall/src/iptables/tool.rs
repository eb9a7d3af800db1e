//! The iptables tools, as processes.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cni::talk::{Stop, Talk};
use cni::{Code, Error, Result};

/// Where the tools are, besides PATH: a runtime's may be short of the system directories.
const DIRECTORIES: &str = "/usr/sbin:/sbin:/usr/local/sbin:/usr/bin:/bin";

/// How long a tool may take, waiting for its lock included. It takes 2 ms on a small ruleset.
const DEADLINE: Duration = Duration::from_secs(15);

/// How long a tool that was killed may take to end.
const STOPPED: Duration = Duration::from_secs(1);

/// How long a tool waits for the lock that other writers hold, in seconds.
const LOCK_WAIT: &str = "5";

/// Finds an executable in PATH and in the system directories.
pub(super) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(std::env::split_paths(DIRECTORIES));
    directories.filter(|dir| dir.is_absolute()).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// Changes rules by iptables-restore: all that the script says, or nothing of a table.
///
/// # Errors
/// What the tool says.
pub(super) fn restore(tool: &Path, script: &str) -> Result<()> {
    run(Command::new(tool).args(["--noflush", "-w", LOCK_WAIT]), script, DEADLINE).map(drop)
}

/// Lists the rules of a table by iptables-save.
///
/// # Errors
/// What the tool says.
pub(super) fn save(tool: &Path, table: &str) -> Result<String> {
    run(Command::new(tool).args(["-t", table]), "", DEADLINE)
}

/// Runs a tool to its end, or to the deadline.
fn run(command: &mut Command, input: &str, limit: Duration) -> Result<String> {
    let name = Path::new(command.get_program()).file_name().unwrap_or_default().display().to_string();
    let fail = |e| Error::io(format!("run {name}"), &e);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = cni::exec::spawn(command).map_err(fail)?;
    let heard = Talk::with(&mut child, input.as_bytes(), u64::MAX)
        .map_err(Stop::System)
        .and_then(|mut talk| talk.until(Some(Instant::now() + limit)).map(|()| talk));
    let talk = match heard {
        Ok(talk) => talk,
        Err(Stop::System(e)) => return Err(end(child, fail(e))),
        Err(Stop::Late | Stop::Endless) => return Err(end(child, hung(&name, limit))),
    };
    let status = child.wait().map_err(fail)?;
    if status.success() { Ok(text(&talk.out)) } else { Err(failure(&name, status, &text(&talk.log))) }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether an error is that a tool did not end: there is no use in trying again then.
pub(super) fn is_hung(error: &Error) -> bool {
    error.code() == Code::TryAgainLater as u32
}

fn hung(name: &str, limit: Duration) -> Error {
    Error::new(Code::TryAgainLater, format!("{name} did not end within {limit:?}"))
        .detail("it was stopped; another process may hold the lock of the iptables tools")
}

/// Stops a tool that nobody listens to any more. One that the kernel, a debugger or a freezer does not let go is left behind.
fn end(mut child: Child, error: Error) -> Error {
    if let Err(e) = child.kill() {
        return error.detail(format!("it could not be stopped: {e}"));
    }
    let deadline = Instant::now() + STOPPED;
    loop {
        match child.try_wait() {
            Ok(Some(_)) => return error,
            Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(1)),
            Ok(None) => {
                return error.detail(format!("process {} does not end though it was killed", child.id()));
            }
            Err(e) => return error.detail(format!("it could not be waited for: {e}")),
        }
    }
}

fn failure(name: &str, status: ExitStatus, errors: &str) -> Error {
    let lines: Vec<&str> = errors.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let error = Error::new(Code::Internal, format!("{name} failed ({status})")).detail(lines.join("; "));
    if ["Permission denied", "not permitted"].iter().any(|words| errors.contains(words)) {
        return error.detail("it takes CAP_NET_ADMIN; iptables-legacy takes CAP_NET_RAW, too");
    }
    error
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{BufRead, BufReader};

    use super::*;

    #[test]
    fn a_tool_that_hangs_is_stopped_at_the_deadline() {
        let error = run(Command::new("sleep").arg("600"), "", Duration::from_millis(50)).unwrap_err();
        assert!(is_hung(&error) && error.msg().contains("sleep did not end within 50ms"), "{error}");
    }

    /// A debugger that looks at it and stands still keeps even a killed one.
    #[test]
    fn a_tool_that_cannot_be_stopped_is_left_behind() {
        let script = "strace -qq -o /dev/null -p $$ & tracer=$!
                      until grep -q \"TracerPid:.$tracer\" /proc/$$/status; do :; done
                      echo $tracer; exec sleep 600";
        let mut child = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut tracer = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut tracer).unwrap();
        let signal =
            |name| assert!(Command::new("kill").args([name, tracer.trim()]).status().unwrap().success());
        signal("-STOP");
        let stopped = || fs::read_to_string(format!("/proc/{}/status", tracer.trim())).unwrap();
        while !stopped().contains("T (stopped)") {}
        let error = end(child, Error::config("hung"));
        signal("-KILL");
        assert!(error.details().contains("does not end though it was killed"), "{error}");
    }

    /// Neither waits for the other with full pipes.
    #[test]
    fn a_tool_is_read_while_it_is_fed() {
        let input = "-A POSTROUTING\n".repeat(100_000);
        assert_eq!(run(&mut Command::new("cat"), &input, DEADLINE).unwrap(), input);
    }

    #[test]
    fn a_tool_that_fails_is_quoted() {
        let error = run(Command::new("sort").arg("/no/such/file"), "unread", DEADLINE).unwrap_err();
        assert!(error.msg().contains("sort failed") && error.details().contains("No such file"), "{error}");
    }
}
