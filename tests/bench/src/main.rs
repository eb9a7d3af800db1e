//! `make bench`: what a runtime waits for, ours and the reference's interleaved in one run.
//!
//! Each side has a machine of its own ([`lab::Lab`]); what is measured are whole processes, from their start to
//! their end. It asserts nothing: a slow plugin makes a bad table, not a failure.
#![allow(clippy::expect_used, reason = "a laboratory that breaks ends the benchmark")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark speaks to whoever runs it")]

mod blast;
mod collection;
mod floor;
mod machine;
mod networks;
mod process;
mod repairs;
mod report;
mod rounds;
mod scenarios;
mod side;
mod trace;
mod unrest;

use std::env;
use std::process::ExitCode;

use report::{Report, Row};
use scenarios::Scenario;

const USAGE: &str = "usage: scripts/bench [--runs N] [--filter TEXT]
  --runs N       how often the quick ones are run on each side (100); slow ones less often
  --filter TEXT  only what has TEXT in its name; the table goes to the terminal only";

/// What the user asks for.
struct Options {
    runs: u32,
    filter: Option<String>,
}

impl Options {
    /// None: they make no sense, or help is wanted.
    fn parse(mut words: impl Iterator<Item = String>) -> Option<Self> {
        let mut options = Self { runs: 100, filter: None };
        while let Some(word) = words.next() {
            match word.as_str() {
                "--runs" => options.runs = words.next()?.parse().ok().filter(|runs| *runs > 0)?,
                "--filter" => options.filter = Some(words.next()?.to_lowercase()),
                _ => return None,
            }
        }
        Some(options)
    }

    fn want(&self, name: &str) -> bool {
        self.filter.as_ref().is_none_or(|text| name.to_lowercase().contains(text))
    }
}

fn main() -> ExitCode {
    let Some(options) = Options::parse(env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::FAILURE;
    };
    let mut report = Report::default();
    for scenario in scenarios::all().into_iter().filter(|scenario| options.want(scenario.name)) {
        measure(&scenario, options.runs, &mut report);
    }
    let text = report.to_string();
    println!("\n{text}");
    if options.filter.is_none() {
        let page = lab::repository().join("docs/benchmarks.md");
        report::insert(&page, &text).expect("write docs/benchmarks.md");
    }
    ExitCode::SUCCESS
}

fn measure(scenario: &Scenario, runs: u32, report: &mut Report) {
    if let Some(missing) = scenario.missing() {
        report.leave_out(scenario.name, &missing);
        return;
    }
    eprintln!("measuring {}", scenario.name);
    let measured = scenario.measure(runs);
    for (side, phases) in &measured {
        for (phase, name) in phases.iter().zip(scenario.phases) {
            report.note_failures(&format!("{}, {name}, {side}", scenario.name), phase);
        }
    }
    let (others, ours): (Vec<_>, Vec<_>) = measured.into_iter().partition(|(side, _)| side.is_reference());
    let reference = others.into_iter().next().map(|(_, phases)| phases);
    for (side, phases) in ours {
        for (n, (phase, name)) in phases.into_iter().zip(scenario.phases).enumerate() {
            report.rows.push(Row {
                what: format!("{}{}", scenario.name, side.remark()),
                phase: name,
                unit: scenario.unit,
                ours: phase,
                reference: reference.as_ref().map(|phases| phases[n].clone()),
            });
        }
    }
}
