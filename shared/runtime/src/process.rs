//! Plugins as processes: with a deadline, and with bounds to what they may print.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command as Process, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use cni::exec::failure;
use cni::talk::{Stop, Talk};
use cni::{Code, Error, json};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::{Exec, Invocation, Output};

/// What a plugin's log goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stderr {
    /// This process's own stderr.
    #[default]
    Inherit,
    /// [`Output::stderr`], or the details of the error; the first 64 KiB of it.
    Capture,
}

/// Runs plugins as child processes, each in a process group of its own: one that hangs is killed with its children.
#[derive(Clone, Debug)]
pub struct Processes {
    /// How long a plugin may take. Default: 2 minutes, as a kubelet waits for its runtime.
    pub deadline: Duration,
    /// What the plugin's log goes to.
    pub stderr: Stderr,
}

impl Default for Processes {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(120), stderr: Stderr::default() }
    }
}

impl Exec for Processes {
    fn run(&self, invocation: &Invocation<'_>) -> cni::Result<Output> {
        let limit = invocation.deadline.unwrap_or(self.deadline);
        let deadline = Instant::now() + limit;
        let mut child = self.start(invocation).map_err(|e| Error::io("start it", &e))?;
        let mut talk = match Talk::with(&mut child, invocation.stdin, json::MAX_BYTES) {
            Ok(talk) => talk,
            Err(e) => return Err(end(&mut child, Error::io("watch over it", &e))),
        };
        if let Err(why) = talk.until(Some(deadline)) {
            return Err(end(&mut child, explain(why, invocation, limit)).detail(quote(&talk.log)));
        }
        let status = child.wait().map_err(|e| Error::io("wait for its end", &e))?;
        outcome(talk, invocation, status)
    }
}

impl Processes {
    fn start(&self, invocation: &Invocation<'_>) -> io::Result<Child> {
        let mut process = Process::new(invocation.program);
        process.args(invocation.args);
        process.envs(invocation.env.iter().map(|(key, value)| (key, value)));
        process.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        process.stderr(if self.stderr == Stderr::Capture { Stdio::piped() } else { Stdio::inherit() });
        cni::exec::spawn(&mut process)
    }
}

/// Kills the plugin and all of its children that have not left its process group.
fn end(child: &mut Child, error: Error) -> Error {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        kill_process_group(group, Signal::KILL).ok();
    }
    child.wait().ok();
    error
}

fn explain(why: Stop, invocation: &Invocation<'_>, limit: Duration) -> Error {
    let command = invocation.command;
    match why {
        Stop::Late => {
            Error::new(Code::Internal, format!("{command} did not finish within {limit:?} and was killed"))
        }
        Stop::Endless => {
            Error::new(Code::Decoding, format!("{command} printed more than {} bytes", json::MAX_BYTES))
        }
        Stop::System(e) => Error::io("read its output", &e),
    }
}

fn outcome(talk: Talk<'_>, invocation: &Invocation<'_>, status: ExitStatus) -> cni::Result<Output> {
    if status.success() {
        return Ok(Output { stdout: talk.out, stderr: talk.log });
    }
    Err(failure(invocation.command, status, &talk.out).detail(quote(&talk.log)))
}

fn quote(log: &[u8]) -> String {
    match log.trim_ascii() {
        [] => String::new(),
        log => format!("its log: {}", String::from_utf8_lossy(log)),
    }
}
