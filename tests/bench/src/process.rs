//! One plugin process, from start to exit.

use std::io::{Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use lab::Call;

use crate::trace;

/// Time and cost of one or several processes.
#[derive(Clone, Debug, Default)]
pub struct Spent {
    pub took: Duration,
    /// Values that only a tracer can see. It slows processes down, so their time is not counted.
    pub cost: Cost,
    /// The output of failed processes.
    pub failures: Vec<String>,
}

/// Resource usage of a process and its descendants.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    pub system_calls: u64,
    /// The number of executed programs, including the plugin.
    pub programs: u64,
    /// Peak resident set of the largest process in KiB.
    pub peak: u64,
}

impl Spent {
    /// Adds the next process.
    pub fn then(&mut self, next: Self) {
        self.took += next.took;
        self.cost.system_calls += next.cost.system_calls;
        self.cost.programs += next.cost.programs;
        self.cost.peak = self.cost.peak.max(next.cost.peak);
        self.failures.extend(next.failures);
    }
}

/// How a process is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Timed,
    Traced,
}

/// Runs a call's process. The second value is its stdout.
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
    // A plugin need not read its input.
    child.stdin.take().expect("a pipe").write_all(&input).ok();
    let mut output = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut output).expect("read a plugin's output");
    let status = child.wait().expect("wait for a plugin");
    let took = start.elapsed();
    let failures = if status.success() { vec![] } else { vec![output.clone()] };
    (Spent { took, failures, ..Spent::default() }, output)
}
