//! Runs plugins as processes, with a timeout and limited output.

use std::process::{Command as Process, Stdio};
use std::time::Duration;

use cni::exec::{failure, unfinished};
use cni::{Command, json};
use system::child::{self, IoStop, Limits};

use crate::{Exec, Invocation, Output};

/// Default timeout of a plugin. Longer than the slowest ADD that still ends by itself: without a DHCP server, dhcp's ADD fails after 208 s
/// (`-resendtimeout` of its daemon), and its error names the cause.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(240);

/// Destination of a plugin's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stderr {
    /// This process's stderr.
    #[default]
    Inherit,
    /// [`Output::stderr`], or the details of the error: the first 64 KiB.
    Capture,
}

/// Runs plugins as child processes, each in its own process group. After a timeout, kills the plugin with its children.
#[derive(Clone, Debug)]
pub struct Processes {
    /// Timeout of a plugin. Default: [`DEFAULT_TIMEOUT`].
    pub timeout: Duration,
    /// Destination of the plugin's log.
    pub stderr: Stderr,
    /// What the user can do about a plugin that was killed after the timeout, for the details of the error. Default: empty.
    pub late_advice: &'static str,
}

impl Default for Processes {
    fn default() -> Self {
        Self { timeout: DEFAULT_TIMEOUT, stderr: Stderr::default(), late_advice: "" }
    }
}

impl Exec for Processes {
    fn run(&self, invocation: &Invocation<'_>) -> cni::Result<Output> {
        let time = invocation.timeout.unwrap_or(self.timeout);
        // A DEL of a rollback must not be interrupted.
        let interruptible = invocation.command == Command::Add;
        let limits = Limits { bytes: json::MAX_BYTES, time: Some(time), group: true, interruptible };
        let outcome =
            child::run(&mut self.command(invocation), invocation.stdin, limits).map_err(|stopped| {
                let advice = if matches!(stopped.why, IoStop::Late) { self.late_advice } else { "" };
                unfinished(&stopped, invocation.command, limits).detail(advice).detail(quote(&stopped.log))
            })?;
        if outcome.status.success() {
            return Ok(Output { stdout: outcome.out, stderr: outcome.log });
        }
        Err(failure(invocation.command, outcome.status, &outcome.out).detail(quote(&outcome.log)))
    }
}

impl Processes {
    fn command(&self, invocation: &Invocation<'_>) -> Process {
        let mut process = Process::new(invocation.program);
        process.args(invocation.args);
        process.envs(invocation.env.iter().map(|(key, value)| (key, value)));
        process.stderr(if self.stderr == Stderr::Capture { Stdio::piped() } else { Stdio::inherit() });
        process
    }
}

fn quote(log: &[u8]) -> String {
    match log.trim_ascii() {
        [] => String::new(),
        log => format!("its log: {}", String::from_utf8_lossy(log)),
    }
}
