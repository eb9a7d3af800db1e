//! Hits the plugins at every system call, and prints what came of it as the tables of docs/reliability.md.
//!
//!     sweep [--every N] [--only NAME]
//!     sweep disk [--every N] [--only NAME]
//!     sweep leases [--every N] [--only NAME] [--replay SCHEDULE]
//!     sweep races [--seconds N]
//!
//! With `disk`, nothing is hit, but the plugins run on machines that something is wrong with. With `leases`, host-local
//! meets itself on its data directory, in every order; a schedule that an error has named can be replayed. With `races`, many attachments come and go on one bridge.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::env;
use std::process::ExitCode;
use std::thread::{self, available_parallelism};
use std::time::Duration;

use suite::interleave::{Explored, Scenario, explore, replay};
use suite::sweep::{Finish, Harms, Kind, Outcomes, Plan, Race, Subject, VERBS, disks, limits, places};
use suite::under_test;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let option = |name| arguments.iter().skip_while(|argument| *argument != name).nth(1);
    let only = option("--only").map_or("", String::as_str);
    let every = option("--every").and_then(|n| n.parse().ok()).unwrap_or(1);
    let workers = available_parallelism().map_or(1, usize::from);
    match arguments.first().map(String::as_str) {
        // They wait for the kernel most of the time.
        Some("disk") => return disk(only, every, 2 * workers),
        Some("leases") => return leases(only, every, option("--replay"), workers),
        Some("races") => return races(option("--seconds").and_then(|n| n.parse().ok()).unwrap_or(120)),
        _ => {}
    }
    let subjects =
        Subject::all().into_iter().filter(|subject| subject.name.contains(only) && subject.is_there());
    let plan = Plan { subjects: subjects.collect(), every, workers };
    let outcomes = plan.run(|finding| eprintln!("{finding}\n"));
    faults(&plan, &outcomes);
    kills(&plan, &outcomes);
    ExitCode::from(u8::from(!outcomes.findings.is_empty() && !under_test().reference))
}

/// Disks, files, limits.
fn disk(only: &str, every: usize, workers: usize) -> ExitCode {
    let stands = [disks(), places(), limits()].into_iter().flatten();
    let stands = stands.filter(|stand| stand.subject.name.contains(only) && stand.subject.is_there());
    let harms = Harms { stands: stands.collect(), every, workers };
    let outcomes = harms.run(|finding| eprintln!("{finding}\n"));
    println!(
        "| plugin | harm | tried | succeeded | promise kept | clean after DEL |\n|---|---|--:|--:|--:|--:|"
    );
    for ((stand, label), count) in &outcomes.counts {
        let name = harms.stands[*stand].subject.name;
        let (tried, succeeded) = (count.tried, count.succeeded);
        let (kept, after) = (count.clean_at_once, count.clean_after);
        println!("| {name} | {label} | {tried} | {succeeded} | {kept} | {after} |");
    }
    ExitCode::from(u8::from(!outcomes.findings.is_empty() && !under_test().reference))
}

/// Every interleaving of commands on one data directory.
fn leases(only: &str, every: usize, schedule: Option<&String>, workers: usize) -> ExitCode {
    let scenarios = Scenario::all().into_iter().filter(|scenario| scenario.to_string().contains(only));
    if let Some(schedule) = schedule {
        match schedule.parse() {
            Ok(schedule) => scenarios.for_each(|scenario| println!("{}", replay(&scenario, &schedule))),
            Err(fault) => eprintln!("{fault}"),
        }
        return ExitCode::SUCCESS;
    }
    println!(
        "| at once | preemptions and kills | schedules | with a kill | findings |\n|---|--:|--:|--:|--:|"
    );
    let mut clean = true;
    for scenario in scenarios {
        let Explored { schedules, kills, findings } = explore(&scenario, every, workers);
        findings.iter().for_each(|finding| eprintln!("{scenario}: {finding}\n"));
        println!("| {scenario} | {} | {schedules} | {kills} | {} |", scenario.bound, findings.len());
        clean &= findings.is_empty();
    }
    ExitCode::from(u8::from(!clean))
}

fn faults(plan: &Plan, outcomes: &Outcomes) {
    println!(
        "| plugin | verb | faults | succeeded | promise kept | clean after DEL |\n|---|---|--:|--:|--:|--:|"
    );
    for ((_, subject, verb), count) in outcomes.counts.iter().filter(|((kind, ..), _)| *kind == Kind::Fault) {
        let name = plan.subjects[*subject].name;
        let (tried, succeeded) = (count.tried, count.succeeded);
        let (kept, after) = (count.clean_at_once, count.clean_after);
        println!("| {name} | {} | {tried} | {succeeded} | {kept} | {after} |", VERBS[*verb]);
    }
}

fn kills(plan: &Plan, outcomes: &Outcomes) {
    println!("\n| plugin | verb | kills | no torn lease | clean after DEL or GC |\n|---|---|--:|--:|--:|");
    for ((_, subject, verb), count) in outcomes.counts.iter().filter(|((kind, ..), _)| *kind == Kind::Kill) {
        let name = plan.subjects[*subject].name;
        let (tried, whole, after) = (count.tried, count.clean_at_once, count.clean_after);
        println!("| {name} | {} | {tried} | {whole} | {after} |", VERBS[*verb]);
    }
}

/// A hundred attachments that come and go at once, disturbed; also where there are fewer addresses.
fn races(seconds: u64) -> ExitCode {
    println!("| at once | addresses | seconds | attached | refused | findings |\n|--:|--:|--:|--:|---|--:|");
    let mut clean = true;
    for (addresses, seconds) in [(1000, seconds), (80, seconds / 4)] {
        let race = Race { workers: 100, time: Duration::from_secs(seconds), addresses };
        // A lab belongs to its thread.
        let finish = thread::scope(|scope| scope.spawn(|| race.run()).join());
        let Ok(Finish { attached, refused, findings }) = finish else { return ExitCode::FAILURE };
        findings.iter().for_each(|finding| eprintln!("race: {finding}\n"));
        let refused: Vec<_> = refused.iter().map(|(cause, count)| format!("{count}: {cause}")).collect();
        let (refused, found) = (refused.join("; "), findings.len());
        println!("| {} | {addresses} | {seconds} | {attached} | {refused} | {found} |", race.workers);
        clean &= findings.is_empty();
    }
    ExitCode::from(u8::from(!clean && !under_test().reference))
}
