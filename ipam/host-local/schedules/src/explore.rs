//! All schedules of a scenario, up to its bound.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread;

use crate::run::{Run, Taken};
use crate::scenario::{Fixture, Scenario};
use crate::schedule::{Schedule, Turn};
use crate::verdict::verify;

/// What came of the exploration of a scenario.
#[derive(Debug, Default)]
pub struct Explored {
    pub schedules: usize,
    /// Of these, with one process killed.
    pub kills: usize,
    pub findings: Vec<String>,
}

/// What is to be done yet: schedules, with the number of preemptions and kills in each.
#[derive(Debug)]
struct Work {
    open: Vec<(Schedule, usize)>,
    busy: usize,
    explored: Explored,
}

/// No need to see more of one bug.
const ENOUGH: usize = 5;

/// Runs each schedule once, or of those that differ in one place from a schedule that was run each `every`-th only.
/// Each worker has a lab of its own.
pub fn explore(scenario: &Scenario, every: usize, workers: usize) -> Explored {
    let open = vec![(Schedule::default(), 0)];
    let work = Mutex::new(Work { open, busy: 0, explored: Explored::default() });
    let change = Condvar::new();
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| explore_some(scenario, every, &work, &change));
        }
    });
    work.into_inner().expect("no worker panics").explored
}

fn explore_some(scenario: &Scenario, every: usize, work: &Mutex<Work>, change: &Condvar) {
    let fixture = Fixture::new(scenario);
    while let Some((schedule, cost)) = next(work.lock().expect("no worker panics"), change) {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(&fixture, &schedule)));
        let mut work = work.lock().expect("no worker panics");
        work.busy -= 1;
        work.explored.schedules += 1;
        work.explored.kills += usize::from(schedule.kills());
        match outcome {
            Ok((run, Ok(()))) => {
                work.open.extend(children(scenario, &schedule, cost, &run).into_iter().step_by(every));
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

/// None: all is done.
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
    // Every place of a kill comes with both, as what is before it changes.
    let verdict = verify(fixture, &run, schedule.end().is_multiple_of(2));
    (run, verdict)
}

/// The schedules that differ from one in one more place behind all others.
fn children(scenario: &Scenario, schedule: &Schedule, cost: usize, run: &Run) -> Vec<(Schedule, usize)> {
    let mut children = Vec::new();
    for (at, Taken { others, in_vain, went_on, .. }) in run.steps.iter().enumerate().skip(schedule.end()) {
        for &other in others {
            // Whoever tries in vain may do it again and again: each time counts.
            let of_another = cost + usize::from(*went_on || in_vain.contains(&other));
            if of_another <= scenario.bound {
                children.push((schedule.then(at, Turn::To(other)), of_another));
            }
        }
        if cost < scenario.bound && !schedule.kills() {
            children.push((schedule.then(at, Turn::Kill), cost + 1));
        }
    }
    children
}

/// Runs one schedule again.
pub fn replay(scenario: &Scenario, schedule: &Schedule) -> String {
    let fixture = Fixture::new(scenario);
    let (run, verdict) = run(&fixture, schedule);
    format!("{run}{}", verdict.map_or_else(|fault| fault, |()| "all is well".to_owned()))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default()
}
