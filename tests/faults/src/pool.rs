//! Runs many cases concurrently, each worker in a separate lab.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::fixture::Fixture;
use crate::hits::Row;
use crate::verify::Verdict;

/// Counts of a row, by result.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    pub tried: u32,
    pub succeeded: u32,
    /// No finding right after the run.
    pub clean_after_run: u32,
    /// No finding after the cleanup.
    pub clean_after: u32,
}

/// The results of a plan.
#[derive(Debug)]
pub struct Outcomes<R = Row> {
    pub counts: BTreeMap<R, Count>,
    pub findings: Vec<String>,
}

impl<R> Outcomes<R> {
    /// Asserts that enough cases ran, without a finding. Some planned cases may not run: a process may make a call
    /// fewer times than in the traced run.
    #[track_caller]
    pub fn assert_clean(&self) {
        let tried: u32 = self.counts.values().map(|count| count.tried).sum();
        assert!(tried >= 15, "only {tried} cases were tried");
        assert!(self.findings.is_empty(), "of {tried} cases:\n{}", self.findings.join("\n"));
    }
}

/// One case, for any worker.
pub(crate) trait Job: Sync {
    /// The row of the figures that counts it.
    type Row: Ord + Send;
    fn row(&self) -> Self::Row;
    /// Jobs with the same number share a fixture.
    fn fixture_index(&self) -> usize;
    fn fixture(&self) -> Fixture;
    /// None: its call was not reached.
    fn verify(&self, fixture: &Fixture) -> Option<Verdict>;
    /// Describes the case in a finding.
    fn title(&self) -> String;
}

/// Runs all jobs with workers.
pub(crate) fn run<J: Job>(workers: usize, jobs: &[J], report: impl Fn(&str) + Sync) -> Outcomes<J::Row> {
    let outcomes = Mutex::new(Outcomes { counts: BTreeMap::new(), findings: Vec::new() });
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| work(jobs, &next, &outcomes, &report));
        }
    });
    outcomes.into_inner().expect("no worker panics")
}

/// The tracked connections of a lab become more with each case, and each case reads them all.
const CASES_PER_FIXTURE: usize = 200;

fn work<J: Job>(
    jobs: &[J],
    next: &AtomicUsize,
    outcomes: &Mutex<Outcomes<J::Row>>,
    report: &(impl Fn(&str) + Sync),
) {
    let mut fixture: Option<(usize, Fixture)> = None;
    let mut cases = 0;
    while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
        cases += 1;
        let is_worn = cases % CASES_PER_FIXTURE == 0;
        if is_worn || fixture.as_ref().is_none_or(|(of, _)| *of != job.fixture_index()) {
            // Leave the old lab before entering a new one.
            drop(fixture.take());
            fixture = Some((job.fixture_index(), job.fixture()));
        }
        let Some((_, lab)) = &fixture else { continue };
        let verdict = catch_unwind(AssertUnwindSafe(|| job.verify(lab))).unwrap_or_else(|panic| {
            let text = lab::message_of_panic(&*panic).to_owned();
            Some(Verdict { after_run: Some(text.clone()), after_cleanup: Some(text), ..Verdict::default() })
        });
        let Some(verdict) = verdict else {
            // Not reached, but it ran.
            if lab.is_dirty() {
                drop(fixture.take());
            }
            continue;
        };
        if let Some(fault) = verdict.fault() {
            let line = format!("{}: {fault}", job.title());
            report(&line);
            // The next case must not find stale objects of this one.
            drop(fixture.take());
            outcomes.lock().expect("no worker panics").findings.push(line);
        }
        if verdict.dirty {
            drop(fixture.take());
        }
        outcomes.lock().expect("no worker panics").counts.entry(job.row()).or_default().note(&verdict);
    }
}

impl Count {
    fn note(&mut self, verdict: &Verdict) {
        self.tried += 1;
        self.succeeded += u32::from(verdict.succeeded);
        self.clean_after_run += u32::from(verdict.after_run.is_none());
        self.clean_after += u32::from(verdict.after_cleanup.is_none());
    }
}
