//! A plugin with a fault or a kill at each of its system calls.

use std::panic::resume_unwind;
use std::thread;

use lab::{Sample, skip, under_test};

use crate::case::{Case, faults, kills};
use crate::compound::mix;
use crate::fixture::Fixture;
use crate::pool::{self, Job, Outcomes};
use crate::target::{COMMANDS, Hit, Target};
use crate::verify::{self, Cleanup, Verdict};

/// The kind of a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Fault,
    Kill,
}

/// A row of the figures: target and command, by their index in the plan.
pub type Row = (Kind, usize, usize);

/// The sample of a target's cases.
#[derive(Clone, Copy, Debug)]
pub enum Share {
    /// One in this number.
    Each(usize),
    /// At least this number, if there are enough, evenly over all commands. Less than twice as many.
    AtLeast(usize),
}

impl Share {
    fn step(self, cases: usize) -> usize {
        match self {
            Self::Each(step) => step,
            Self::AtLeast(number) => (cases / number).max(1),
        }
    }
}

/// The plan of a sweep.
#[derive(Clone, Debug)]
pub struct Plan {
    pub targets: Vec<Target>,
    pub share: Share,
    /// Selects the cases of a sample.
    pub seed: u64,
    pub workers: usize,
    /// Whether an ADD that succeeds in spite of a fault is compared with ADDs without one. This takes each worker some seconds for each target.
    pub compares: bool,
}

/// One case of one command of a target.
#[derive(Clone, Debug)]
struct Attempt<'a> {
    row: Row,
    target: &'a Target,
    case: Case,
    cleanup: Cleanup,
    compares: bool,
}

impl Plan {
    /// Runs all cases. Calls `report` with each finding.
    pub fn run(&self, report: impl Fn(&str) + Sync) -> Outcomes {
        let all = self.targets.iter().enumerate().flat_map(|(index, target)| {
            // A lab belongs to its thread.
            let attempts = thread::scope(|scope| scope.spawn(|| self.attempts(index, target)).join());
            let attempts = attempts.unwrap_or_else(|panic| {
                if !under_test().reference {
                    resume_unwind(panic);
                }
                // DELs of bandwidth and sbr leave objects to the plugin that deletes the link, so the next ADD fails.
                skip(&format!("{} cannot attach repeatedly", target.title()));
                Vec::new()
            });
            let every = self.share.step(attempts.len());
            Sample { every, seed: self.seed }.of(attempts)
        });
        pool::run(self.workers, &all.collect::<Vec<_>>(), report)
    }

    fn attempts<'a>(&self, index: usize, target: &'a Target) -> Vec<Attempt<'a>> {
        let compares = self.compares;
        let fixture = Fixture::new(target);
        let cleanups: Vec<_> = target.commands().filter_map(Cleanup::by).collect();
        let mut all = Vec::new();
        for command in target.commands() {
            let calls = fixture.calls_of(command);
            let is_traced = !calls.is_empty() || target.is_started_by_a_plugin();
            assert!(is_traced, "{} {command}: no system call was traced", target.title());
            let command_index = COMMANDS.iter().position(|one| *one == command).expect("a command");
            let attempt = |kind, cleanup| {
                move |case| Attempt { row: (kind, index, command_index), target, case, cleanup, compares }
            };
            if matches!(target.hit, Hit::Tools(_)) {
                // A killed tool is a fault for the plugin that started it.
                let cases = faults(&calls).into_iter().chain(kills(&calls)).collect();
                all.extend(self.sample_of_tools().of(cases).map(attempt(Kind::Fault, Cleanup::Del)));
                continue;
            }
            all.extend(faults(&calls).into_iter().map(attempt(Kind::Fault, Cleanup::Del)));
            if ["ADD", "DEL", "GC"].contains(&command) {
                for cleanup in &cleanups {
                    all.extend(kills(&calls).into_iter().map(attempt(Kind::Kill, *cleanup)));
                }
            }
        }
        assert!(!all.is_empty(), "{}: there is no case", target.title());
        all
    }

    /// The calls of a tool include its start, so one case in seven is enough. A whole sweep always tests the same ones.
    fn sample_of_tools(&self) -> Sample {
        let is_whole = matches!(self.share, Share::Each(1));
        // The seed itself selects one in `share` of these cases.
        Sample { every: 7, seed: if is_whole { 0 } else { mix(self.seed) } }
    }
}

impl Job for Attempt<'_> {
    type Row = Row;

    fn row(&self) -> Row {
        self.row
    }

    fn fixture_index(&self) -> usize {
        self.row.1
    }

    fn fixture(&self) -> Fixture {
        let mut fixture = Fixture::new(self.target);
        if self.compares {
            fixture.compare_adds();
        }
        fixture
    }

    fn verify(&self, fixture: &Fixture) -> Option<Verdict> {
        let (kind, _, command) = self.row;
        match kind {
            Kind::Fault => verify::fault(fixture, COMMANDS[command], &self.case),
            Kind::Kill => verify::kill(fixture, COMMANDS[command], &self.case, self.cleanup),
        }
    }

    fn del_restores_all(&self) -> bool {
        COMMANDS[self.row.2] != "GC"
    }

    fn title(&self) -> String {
        format!("{} {}: {}, then {:?}", self.target.title(), COMMANDS[self.row.2], self.case, self.cleanup)
    }
}
