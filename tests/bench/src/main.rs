//! `make bench`: the time that a runtime waits for a plugin. Ferrule and the reference take turns in one run.
//!
//! Each side has its own machine ([`lab::Lab`]). Whole processes are measured, from start to exit. Nothing is asserted:
//! a slow plugin is no failure.
#![allow(clippy::expect_used, reason = "a laboratory that breaks ends the benchmark")]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the output is for the person who runs the benchmark"
)]

mod blast;
mod collection;
mod dynamic;
mod entrant;
mod floor;
mod machine;
mod many_ports;
mod networks;
mod process;
mod rates;
mod repairs;
mod report;
mod rounds;
mod scenario;
mod scenarios;
mod side;
mod status;
mod trace;
mod unrest;

use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, fs};

use report::{Report, Row};
use scenario::{Measured, Scenario};
use side::Rival;

const USAGE: &str =
    "usage: scripts/bench [--runs N] [--filter TEXT] [--reference DIRECTORY | --baseline DIRECTORY]
       scripts/bench --rates
  --runs N              runs of each side (100); after 5 runs, a row ends when one side has used N times 150 ms
  --filter TEXT         only rows whose name contains TEXT; if TEXT is a whole name, only this row
  --reference DIRECTORY the directory of the original dnsname and flannel; without this option, they are from other packages of
                        Debian
  --baseline DIRECTORY  compare with the executables of an earlier build in DIRECTORY, instead of the reference
  --rates               only the rate of a TCP flow that bandwidth limits
With --filter or --baseline, the table is printed, and not written to the page.";

/// The command line.
struct Options {
    runs: u32,
    filter: Option<String>,
    rival: Rival,
}

impl Options {
    /// None: invalid, or help was requested.
    fn parse(mut words: impl Iterator<Item = String>) -> Option<Self> {
        let mut options =
            Self { runs: 100, filter: None, rival: Rival::Reference { further: other_packages() } };
        while let Some(word) = words.next() {
            match word.as_str() {
                "--runs" => options.runs = words.next()?.parse().ok().filter(|runs| *runs > 0)?,
                "--filter" => options.filter = Some(words.next()?.to_lowercase()),
                "--reference" => {
                    options.rival = Rival::Reference { further: vec![directory(&words.next()?)?].leak() }
                }
                "--baseline" => options.rival = Rival::Baseline(directory(&words.next()?)?.leak()),
                _ => return None,
            }
        }
        Some(options)
    }

    /// The selected scenarios. A filter that equals a scenario's name selects only that one.
    fn choose(&self, mut all: Vec<Scenario>) -> Vec<Scenario> {
        let Some(text) = &self.filter else { return all };
        let is_whole = |one: &Scenario| one.name.to_lowercase() == *text;
        let alone = all.iter().any(is_whole);
        all.retain(|one| if alone { is_whole(one) } else { one.name.to_lowercase().contains(text) });
        all
    }
}

/// The directories of the original plugins that the reference's package lacks, unpacked from other packages of Debian.
fn other_packages() -> &'static [PathBuf] {
    let trees = ["dnsname", "flannel"].into_iter().filter_map(lab::unpacked);
    trees.map(|tree| tree.join("usr/lib/cni")).collect::<Vec<_>>().leak()
}

/// The path of an existing directory, without links.
fn directory(path: &str) -> Option<PathBuf> {
    fs::canonicalize(path).inspect_err(|e| eprintln!("{path}: {e}")).ok()
}

fn main() -> ExitCode {
    if env::args().skip(1).eq(["--rates"]) {
        rates::table();
        return ExitCode::SUCCESS;
    }
    let Some(options) = Options::parse(env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::FAILURE;
    };
    let mut report = Report::new(options.rival);
    for scenario in options.choose(scenarios::all()) {
        measure(&scenario, &options, &mut report);
    }
    let text = report.to_string();
    println!("\n{text}");
    if options.filter.is_none() && !options.rival.is_baseline() {
        let page = lab::repository().join("docs/benchmarks.md");
        report::insert(&page, &text).expect("write docs/benchmarks.md");
    }
    ExitCode::SUCCESS
}

fn measure(scenario: &Scenario, options: &Options, report: &mut Report) {
    if let Some(missing) = scenario.missing() {
        report.note(format!("Left out: {} ({missing}).", scenario.name));
        return;
    }
    if let Some(plugin) = scenario.rival_lacks(options.rival) {
        report.note(format!("Ours alone: {} (there is no {plugin} to compare with).", scenario.name));
    }
    eprintln!("measuring {}", scenario.name);
    for Measured { ours: side, rival: other, phases } in scenario.measure(options.runs, options.rival) {
        for ((ours, rival), phase) in phases.into_iter().zip(scenario.phases) {
            report.note_failures(&format!("{}, {phase}, {side}", scenario.name), &ours);
            if let (Some(rival), Some(other)) = (&rival, other) {
                report.note_failures(&format!("{}, {phase}, {other}", scenario.name), rival);
            }
            let what = format!("{}{}", scenario.name, side.remark);
            report.rows.push(Row { what, phase, unit: scenario.unit, ours, rival });
        }
    }
}
