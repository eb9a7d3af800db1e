//! One plugin process, from its start to its end.

use std::io::{Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use lab::Call;

use crate::trace;

/// What a process, or several, took.
#[derive(Clone, Debug, Default)]
pub struct Spent {
    pub took: Duration,
    /// What only a tracer sees, and slows down so much that it is no time then.
    pub cost: Cost,
    /// What the failed ones printed.
    pub failures: Vec<String>,
}

/// What a process and all that it starts cost the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    pub system_calls: u64,
    /// Programs that were executed, the plugin itself included.
    pub programs: u64,
    /// The resident set's peak, of the largest of the processes, in KiB.
    pub peak: u64,
}

impl Spent {
    /// One after the other.
    pub fn then(&mut self, next: Self) {
        self.took += next.took;
        self.cost.system_calls += next.cost.system_calls;
        self.cost.programs += next.cost.programs;
        self.cost.peak = self.cost.peak.max(next.cost.peak);
        self.failures.extend(next.failures);
    }
}

/// How a process is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Timed,
    Traced,
}

/// Runs a call's process; its stdout comes second.
pub fn run(call: &Call, command: &str, how: How) -> (Spent, String) {
    let call = call.clone().env("CNI_COMMAND", command);
    match how {
        How::Timed => timed(&call),
        How::Traced => trace::traced(&call),
    }
}

fn timed(call: &Call) -> (Spent, String) {
    let input = call.input();
    let mut process = call.process();
    process.stderr(Stdio::null());
    let start = Instant::now();
    let mut child = process.spawn().expect("start a plugin");
    // A plugin that does not read its input is no failure.
    child.stdin.take().expect("a pipe").write_all(&input).ok();
    let mut output = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut output).expect("read a plugin's output");
    let status = child.wait().expect("wait for a plugin");
    let took = start.elapsed();
    let failures = if status.success() { vec![] } else { vec![output.clone()] };
    (Spent { took, failures, ..Spent::default() }, output)
}
