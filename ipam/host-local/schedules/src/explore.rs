//! Explores all schedules of a scenario, up to its bound.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread;

use lab::Sample;

use crate::run::{Run, Taken};
use crate::scenario::{Fixture, Scenario};
use crate::schedule::{Schedule, Turn};
use crate::verdict::verify;

/// The result of exploring a scenario.
#[derive(Debug, Default)]
pub struct Explored {
    pub schedules: usize,
    /// How many of them killed a process.
    pub kills: usize,
    pub findings: Vec<String>,
}

/// Schedules to run, each with its number of preemptions and kills.
#[derive(Debug)]
struct Work {
    open: Vec<(Schedule, usize)>,
    busy: usize,
    explored: Explored,
}

/// Maximum number of findings: more of the same bug do not help.
const ENOUGH: usize = 5;

/// Runs each schedule once, or a sample: of the schedules that differ in one step from a schedule that was run. Each worker
/// has its own lab.
pub fn explore(scenario: &Scenario, sample: Sample, workers: usize) -> Explored {
    let open = vec![(Schedule::default(), 0)];
    let work = Mutex::new(Work { open, busy: 0, explored: Explored::default() });
    let change = Condvar::new();
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| explore_some(scenario, sample, &work, &change));
        }
    });
    work.into_inner().expect("no worker panics").explored
}

fn explore_some(scenario: &Scenario, sample: Sample, work: &Mutex<Work>, change: &Condvar) {
    let fixture = Fixture::new(scenario);
    while let Some((schedule, cost)) = next(work.lock().expect("no worker panics"), change) {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(&fixture, &schedule)));
        let mut work = work.lock().expect("no worker panics");
        work.busy -= 1;
        work.explored.schedules += 1;
        work.explored.kills += usize::from(schedule.kills());
        match outcome {
            Ok((run, Ok(()))) => {
                work.open.extend(sample.of(children(scenario, &schedule, cost, &run)));
            }
            Ok((run, Err(fault))) => {
                work.explored.findings.push(format!("{fault}\nschedule \"{schedule}\":\n{run}"));
            }
            Err(panic) => {
                work.explored.findings.push(format!("{}\nschedule \"{schedule}\"", message(&*panic)));
            }
        }
        change.notify_all();
    }
}

/// The next schedule. None: all were run.
fn next(mut work: MutexGuard<'_, Work>, change: &Condvar) -> Option<(Schedule, usize)> {
    loop {
        if work.explored.findings.len() >= ENOUGH {
            return None;
        }
        if let Some(next) = work.open.pop() {
            work.busy += 1;
            return Some(next);
        }
        if work.busy == 0 {
            return None;
        }
        work = change.wait(work).expect("no worker panics");
    }
}

fn run(fixture: &Fixture, schedule: &Schedule) -> (Run, Result<(), String>) {
    let run = Run::of(fixture.begin(), schedule);
    // Alternates between DEL and GC as the cleanup. For each step before a kill, both occur.
    let verdict = verify(fixture, &run, schedule.end().is_multiple_of(2));
    (run, verdict)
}

/// The schedules that have one more step at the end than this one.
fn children(scenario: &Scenario, schedule: &Schedule, cost: usize, run: &Run) -> Vec<(Schedule, usize)> {
    let mut children = Vec::new();
    for (at, Taken { others, in_vain, went_on, .. }) in run.steps.iter().enumerate().skip(schedule.end()) {
        for &other in others {
            // Each attempt to take a lock that is held counts as a preemption, because it could be repeated endlessly.
            let of_another = cost + usize::from(*went_on || in_vain.contains(&other));
            if of_another <= scenario.bound {
                children.push((schedule.then(at, Turn::To(other)), of_another));
            }
        }
        if cost < scenario.bound && !schedule.kills() {
            let ends = [Turn::Kill, Turn::Reboot, Turn::PowerLoss];
            children.extend(ends.map(|end| (schedule.then(at, end), cost + 1)));
        }
    }
    children
}

/// Repeats one schedule.
pub fn replay(scenario: &Scenario, schedule: &Schedule) -> String {
    let fixture = Fixture::new(scenario);
    let (run, verdict) = run(&fixture, schedule);
    format!("{run}{}", verdict.map_or_else(|fault| fault, |()| "all is well".to_owned()))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default()
}
