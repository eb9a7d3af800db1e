//! Many cases at once, each worker in a lab of its own.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::case::{Case, faults, kills};
use super::judge::{self, Remedy, Verdict};
use super::manager;
use super::scene::Scene;
use super::subject::Subject;
use lab::under_test;

/// What is done to a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Fault,
    Kill,
}

/// One line of the figures: subject and verb, by their place in the plan.
pub type Row = (Kind, usize, usize);

/// How many of a row came out how.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    pub tried: u32,
    pub succeeded: u32,
    /// Nothing was wrong right after the run.
    pub clean_at_once: u32,
    /// Nothing was wrong after the remedy.
    pub clean_after: u32,
}

/// What is to be swept.
#[derive(Clone, Debug)]
pub struct Plan {
    pub subjects: Vec<Subject>,
    /// Only each `every`-th case.
    pub every: usize,
    pub workers: usize,
}

/// What came of a plan.
#[derive(Debug)]
pub struct Outcomes<R = Row> {
    pub counts: BTreeMap<R, Count>,
    pub findings: Vec<String>,
}

impl<R> Outcomes<R> {
    /// Enough was tried, and nothing found.
    #[track_caller]
    pub fn assert_clean(&self) {
        let tried: u32 = self.counts.values().map(|count| count.tried).sum();
        assert!(tried >= 20, "only {tried} cases were tried");
        assert!(self.findings.is_empty(), "of {tried} cases:\n{}", self.findings.join("\n"));
    }
}

/// One case, for any worker.
pub(super) trait Job: Sync {
    /// The line of the figures that it counts in.
    type Row: Ord + Send;
    fn row(&self) -> Self::Row;
    /// Jobs with the same number share a scene.
    fn place(&self) -> usize;
    fn scene(&self) -> Scene;
    /// None: its place was not reached.
    fn judge(&self, scene: &Scene) -> Option<Verdict>;
    /// To whom what is done, for a finding.
    fn title(&self) -> String;
}

#[derive(Clone, Debug)]
struct Hit<'a> {
    row: Row,
    subject: &'a Subject,
    case: Case,
    remedy: Remedy,
}

/// The verbs of the protocol that change or look at something.
pub const VERBS: [&str; 5] = ["ADD", "DEL", "CHECK", "GC", "STATUS"];

/// The reference has no GC and no STATUS (docs/reference-quirks.md#gc, #status).
pub(super) fn verbs() -> &'static [&'static str] {
    if under_test().reference { &VERBS[..3] } else { &VERBS }
}

impl Plan {
    /// Runs all cases. `report` is told of each finding as it comes.
    pub fn run(&self, report: impl Fn(&str) + Sync) -> Outcomes {
        let all = self.subjects.iter().enumerate().flat_map(|(index, subject)| {
            // A lab belongs to its thread.
            let jobs = thread::scope(|scope| scope.spawn(|| jobs_of(index, subject)).join());
            jobs.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        let jobs: Vec<Hit<'_>> = all.step_by(self.every).collect();
        run(self.workers, &jobs, report)
    }
}

/// Has workers do all jobs.
pub(super) fn run<J: Job>(workers: usize, jobs: &[J], report: impl Fn(&str) + Sync) -> Outcomes<J::Row> {
    let outcomes = Mutex::new(Outcomes { counts: BTreeMap::new(), findings: Vec::new() });
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| work(jobs, &next, &outcomes, &report));
        }
    });
    outcomes.into_inner().expect("no worker panics")
}

fn work<J: Job>(
    jobs: &[J],
    next: &AtomicUsize,
    outcomes: &Mutex<Outcomes<J::Row>>,
    report: &(impl Fn(&str) + Sync),
) {
    let mut scene: Option<(usize, Scene)> = None;
    while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
        if scene.as_ref().is_none_or(|(of, _)| *of != job.place()) {
            // The old lab is left before a new one is entered.
            drop(scene.take());
            scene = Some((job.place(), job.scene()));
        }
        let Some((_, lab)) = &scene else { continue };
        let verdict = catch_unwind(AssertUnwindSafe(|| job.judge(lab))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map_or("panic", String::as_str).to_owned();
            Some(Verdict { at_once: Some(text.clone()), after_remedy: Some(text), ..Verdict::default() })
        });
        let Some(verdict) = verdict else {
            // Not reached, but run.
            if lab.is_worn() {
                drop(scene.take());
            }
            continue;
        };
        if let Some(fault) = verdict.fault() {
            let line = format!("{}: {fault}", job.title());
            report(&line);
            // What is left must not be found again.
            drop(scene.take());
            outcomes.lock().expect("no worker panics").findings.push(line);
        }
        if verdict.worn {
            drop(scene.take());
        }
        outcomes.lock().expect("no worker panics").counts.entry(job.row()).or_default().note(&verdict);
    }
}

fn jobs_of(index: usize, subject: &Subject) -> Vec<Hit<'_>> {
    let scene = Scene::new(subject);
    let mut jobs = Vec::new();
    for (place, verb) in verbs().iter().enumerate().filter(|(_, verb)| manager::speaks(subject, verb)) {
        let calls = scene.calls_of(verb);
        let job = |kind, remedy| move |case| Hit { row: (kind, index, place), subject, case, remedy };
        if !subject.tools.is_empty() {
            // A tool that is killed is a fault of the plugin that started it. Its own start is among its calls: each seventh will do.
            let hits = faults(&calls).into_iter().chain(kills(&calls)).step_by(7);
            jobs.extend(hits.map(job(Kind::Fault, Remedy::Del)));
            continue;
        }
        jobs.extend(faults(&calls).into_iter().map(job(Kind::Fault, Remedy::Del)));
        if ["ADD", "DEL", "GC"].contains(verb) {
            let has_gc = !under_test().reference && manager::speaks(subject, "GC");
            let remedies = if has_gc { &[Remedy::Del, Remedy::Gc][..] } else { &[Remedy::Del] };
            for remedy in remedies {
                jobs.extend(kills(&calls).into_iter().map(job(Kind::Kill, *remedy)));
            }
        }
    }
    jobs
}

impl Job for Hit<'_> {
    type Row = Row;

    fn row(&self) -> Row {
        self.row
    }

    fn place(&self) -> usize {
        self.row.1
    }

    fn scene(&self) -> Scene {
        Scene::new(self.subject)
    }

    fn judge(&self, scene: &Scene) -> Option<Verdict> {
        let (kind, _, verb) = self.row;
        match kind {
            Kind::Fault => judge::fault(scene, VERBS[verb], &self.case),
            Kind::Kill => judge::kill(scene, VERBS[verb], &self.case, self.remedy),
        }
    }

    fn title(&self) -> String {
        format!("{} {}: {}, then {:?}", self.subject.name, VERBS[self.row.2], self.case, self.remedy)
    }
}

impl Count {
    fn note(&mut self, verdict: &Verdict) {
        self.tried += 1;
        self.succeeded += u32::from(verdict.succeeded);
        self.clean_at_once += u32::from(verdict.at_once.is_none());
        self.clean_after += u32::from(verdict.after_remedy.is_none());
    }
}
