//! `--verbose`: prints each run of a plugin and its duration.

use std::io::Write;
use std::time::Instant;

use runtime::{Exec, Invocation, Output, Processes};

/// Runs plugins as processes, and reports each run on stderr.
#[derive(Debug)]
pub struct Traced(pub Processes);

impl Exec for Traced {
    fn run(&self, invocation: &Invocation<'_>) -> cni::Result<Output> {
        let start = Instant::now();
        let outcome = self.0.run(invocation);
        let took = start.elapsed().as_secs_f64() * 1e3;
        let end =
            outcome.as_ref().map_or_else(|e| format!("failed with code {}", e.code()), |_| "ok".to_owned());
        let Invocation { command, program, .. } = invocation;
        // A failure to write the trace must not fail the command.
        writeln!(std::io::stderr(), "{command} {} {took:.1} ms: {end}", program.display()).ok();
        outcome
    }
}
