//! Runs many cases concurrently, each worker in a separate lab.

use std::collections::{BTreeMap, BTreeSet};
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
    /// Planned cases that did not run: a process may make a call fewer times than in the traced run.
    pub unreached: u32,
}

/// The results of a plan.
#[derive(Debug)]
pub struct Outcomes<R = Row> {
    pub counts: BTreeMap<R, Count>,
    pub findings: Vec<String>,
    /// The fixtures on which a case was tried.
    fixtures: BTreeSet<usize>,
}

impl<R> Outcomes<R> {
    /// The number of cases that ran.
    pub fn tried(&self) -> u32 {
        self.counts.values().map(|count| count.tried).sum()
    }

    fn empty() -> Self {
        Self { counts: BTreeMap::new(), findings: Vec::new(), fixtures: BTreeSet::new() }
    }

    /// The number of cases that did not run.
    pub fn unreached(&self) -> u32 {
        self.counts.values().map(|count| count.unreached).sum()
    }

    /// Asserts that at least this number of cases ran, without a finding. Some planned cases may not run.
    #[track_caller]
    pub fn assert_clean(&self, least: u32) {
        let tried = self.tried();
        assert!(tried >= least, "only {tried} cases were tried");
        assert!(self.findings.is_empty(), "of {tried} cases:\n{}", self.findings.join("\n"));
    }
}

impl<R: Ord> Outcomes<R> {
    /// Counts a case. Without a verdict, it was not reached.
    fn note(&mut self, row: R, fixture: usize, verdict: Option<&Verdict>) {
        let count = self.counts.entry(row).or_default();
        match verdict {
            Some(verdict) => {
                count.note(verdict);
                self.fixtures.insert(fixture);
            }
            None => count.unreached += 1,
        }
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
    /// None: its call was not reached, and the fixture was cleaned up.
    fn verify(&self, fixture: &Fixture) -> Option<Verdict>;
    /// Whether DEL restores the container after the command. GC removes the record of what it was.
    fn del_restores_all(&self) -> bool {
        true
    }
    /// Describes the case in a finding.
    fn title(&self) -> String;
}

/// Runs all jobs with workers.
pub(crate) fn run<J: Job>(workers: usize, jobs: &[J], report: impl Fn(&str) + Sync) -> Outcomes<J::Row> {
    let outcomes = Mutex::new(Outcomes::empty());
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| work(jobs, &next, &outcomes, &report));
        }
    });
    let mut outcomes = outcomes.into_inner().expect("no worker panics");
    for line in untried(jobs, &outcomes.fixtures) {
        report(&line);
        outcomes.findings.push(line);
    }
    outcomes
}

/// A finding for each fixture on which no case was tried. Otherwise, nobody would notice that a target is not tested.
fn untried<J: Job>(jobs: &[J], tried: &BTreeSet<usize>) -> Vec<String> {
    let planned: BTreeMap<_, _> = jobs.iter().map(|job| (job.fixture_index(), job)).collect();
    let untried = planned.into_iter().filter(|(index, _)| !tried.contains(index));
    untried
        .map(|(_, job)| format!("{}: not reached, nor any other case of this target", job.title()))
        .collect()
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
        let (fault, is_dirty) = match &verdict {
            Some(verdict) => (verdict.fault().map(str::to_owned), verdict.dirty),
            None => unreached(job, lab),
        };
        if fault.is_some() || is_dirty {
            // The next case must not find stale objects of this one.
            drop(fixture.take());
        }
        let mut outcomes = outcomes.lock().expect("no worker panics");
        if let Some(fault) = fault {
            let line = format!("{}: {fault}", job.title());
            report(&line);
            outcomes.findings.push(line);
        }
        outcomes.note(job.row(), job.fixture_index(), verdict.as_ref());
    }
}

/// The finding after a case that was not reached, and whether the fixture is dirty. The command has run without a fault, and
/// then DEL.
fn unreached<J: Job>(job: &J, fixture: &Fixture) -> (Option<String>, bool) {
    let changes = fixture.changes();
    let is_dirty = !changes.is_empty();
    let fault = (is_dirty && job.del_restores_all()).then(|| format!("not reached, and left:\n{changes}"));
    (fault, is_dirty)
}

impl Count {
    fn note(&mut self, verdict: &Verdict) {
        self.tried += 1;
        self.succeeded += u32::from(verdict.succeeded);
        self.clean_after_run += u32::from(verdict.after_run.is_none());
        self.clean_after += u32::from(verdict.after_cleanup.is_none());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Planned(usize);

    impl Job for Planned {
        type Row = usize;
        fn row(&self) -> usize {
            self.0
        }
        fn fixture_index(&self) -> usize {
            self.0 / 10
        }
        fn fixture(&self) -> Fixture {
            unreachable!("no case runs")
        }
        fn verify(&self, _: &Fixture) -> Option<Verdict> {
            None
        }
        fn title(&self) -> String {
            format!("case {}", self.0)
        }
    }

    #[test]
    fn a_case_that_was_not_reached_is_counted_as_such_and_its_fixture_as_untried() {
        let mut outcomes = Outcomes::empty();
        outcomes.note("row", 0, None);
        outcomes.note("row", 1, Some(&Verdict::default()));
        assert_eq!((outcomes.tried(), outcomes.unreached()), (1, 1));
        assert_eq!(outcomes.fixtures, BTreeSet::from([1]));
    }

    #[test]
    fn a_target_none_of_whose_cases_was_tried_is_a_finding() {
        let jobs = [10, 11, 20, 21].map(Planned);
        let findings = untried(&jobs, &BTreeSet::from([1]));
        assert!(findings.len() == 1 && findings[0].starts_with("case 2"), "{findings:?}");
    }
}
