//! Runs the sweeps, and prints the results as the tables of docs/reliability.md.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::env;
use std::process::ExitCode;
use std::thread::{self, available_parallelism};
use std::time::Duration;

use faults::{
    COMMANDS, Cause, CompoundSweep, DaemonSweep, EnvSweep, Family, Finish, Kind, Length, Outcomes, Plan,
    Race, Share, Target, any_seed, disks, hostile_files, limits,
};
use lab::{Sample, under_test};
use schedules::{Explored, Scenario, explore, replay};

const USAGE: &str =
    "usage: sweep [disk | links | leases | daemon | races | compound] [--every N] [--only NAME] [--replay SCHEDULE] [--seconds N] [--seed N]
  (none of these)    makes each system call of each plugin fail, and kills the plugin there
  disk               runs the plugins with full disks, unusual files and low limits
  links              like none and compound, for dummy, ipvlan, vlan, vrf, and bridge with a VLAN, which some kernels lack
  leases             runs host-local's commands concurrently, in every order of their system calls
  daemon             kills the dhcp daemon at each of its system calls, and starts another one
  races              attaches and detaches many containers on one bridge
  compound           makes a system call of an ADD fail, and one of its rollback
  --every N          a sample: one in N cases
  --only NAME        only targets whose name contains NAME; links: the plugin NAME
  --replay SCHEDULE  leases: only this schedule, as a finding has printed it
  --seconds N        races: duration (120)
  --seed N           chooses the same sample again, or the pairs of faults; default: FERRULE_SEED, or a random one that is printed";

/// The command line.
struct Options {
    what: Option<String>,
    every: usize,
    only: String,
    replay: Option<String>,
    seconds: u64,
    seed: u64,
}

impl Options {
    /// None: invalid, or help was requested.
    fn parse(mut words: impl Iterator<Item = String>) -> Option<Self> {
        let (only, seed) = (String::new(), any_seed());
        let mut options = Self { what: None, every: 1, only, replay: None, seconds: 120, seed };
        while let Some(word) = words.next() {
            match word.as_str() {
                "disk" | "leases" | "daemon" | "races" | "compound" | "links" if options.what.is_none() => {
                    options.what = Some(word)
                }
                "--every" => options.every = words.next()?.parse().ok().filter(|n| *n > 0)?,
                "--only" => options.only = words.next()?,
                "--replay" => options.replay = Some(words.next()?),
                "--seed" => options.seed = words.next()?.parse().ok()?,
                "--seconds" => options.seconds = words.next()?.parse().ok()?,
                _ => return None,
            }
        }
        Some(options)
    }

    fn sample(&self) -> Sample {
        Sample { every: self.every, seed: self.seed }
    }

    /// Prints the seed of a sample. scripts/common reads the line.
    fn print_seed(&self) {
        if self.every > 1 {
            eprintln!("the seed is {}", self.seed);
            println!("seed: {}\n", self.seed);
        }
    }
}

fn main() -> ExitCode {
    let Some(options) = Options::parse(env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let cores = available_parallelism().map_or(1, usize::from);
    // The workers mostly wait for the kernel, which deletes links.
    let workers = 6 * cores;
    match options.what.as_deref() {
        Some("leases") => leases(&options, cores),
        Some("daemon") => daemon(&options, cores),
        Some("races") => races(options.seconds),
        Some("compound") => compound(&options, workers, |_| true).exit_code(),
        Some("links") => links(&options, workers).exit_code(),
        Some(_) => disk(&options, workers),
        None => hits(&options, workers, |_| true).exit_code(),
    }
}

/// The result of a sweep.
struct Swept {
    is_tried: bool,
    is_clean: bool,
}

impl Swept {
    fn exit_code(self) -> ExitCode {
        exit_code(self.is_tried, self.is_clean)
    }
}

/// Faults, kills and pairs of faults, of kinds of links that some kernels lack.
fn links(options: &Options, workers: usize) -> Swept {
    // The names of other plugins end in "vlan".
    let expected = |target: &Target| {
        target.is_of_a_rare_kind() && (options.only.is_empty() || target.plugin() == options.only)
    };
    let hits = hits(options, workers, expected);
    println!();
    let pairs = compound(options, workers, expected);
    Swept { is_tried: hits.is_tried && pairs.is_tried, is_clean: hits.is_clean && pairs.is_clean }
}

/// Faults and kills.
fn hits(options: &Options, workers: usize, expected: impl Fn(&Target) -> bool) -> Swept {
    let targets = Target::of(|target| expected(target) && target.title().contains(&options.only));
    let compares = !under_test().reference;
    let plan = Plan { targets, share: Share::Each(options.every), seed: options.seed, workers, compares };
    options.print_seed();
    let outcomes = plan.run(|finding| eprintln!("{finding}\n"));
    faults(&plan, &outcomes);
    kills(&plan, &outcomes);
    if outcomes.unreached() > 0 {
        eprintln!("{} cases were not reached", outcomes.unreached());
    }
    let is_clean = outcomes.findings.is_empty() || under_test().reference;
    Swept { is_tried: outcomes.tried() > 0, is_clean }
}

/// No case was tried. scripts/sweep knows this code.
const NOTHING_TRIED: u8 = 3;

/// A sweep that has tried nothing is a failure, too.
fn exit_code(is_tried: bool, is_clean: bool) -> ExitCode {
    if !is_tried {
        eprintln!("no case was tried");
        return ExitCode::from(NOTHING_TRIED);
    }
    ExitCode::from(u8::from(!is_clean))
}

/// Two faults in one ADD. scripts/common reads the lines before the table.
fn compound(options: &Options, workers: usize, expected: impl Fn(&Target) -> bool) -> Swept {
    let targets = Target::of(|target| {
        CompoundSweep::fits(target) && expected(target) && target.title().contains(&options.only)
    });
    // A whole sweep tests a hundred pairs of each target.
    let pairs = (100 / u64::try_from(options.every).unwrap_or(u64::MAX)).max(1);
    let sweep = CompoundSweep { targets, pairs, seed: options.seed, workers };
    eprintln!("the seed is {}", options.seed);
    let outcomes = sweep.run(|finding| eprintln!("{finding}\n"));
    println!("sample: {pairs} pair{}\nseed: {}\n", if pairs == 1 { "" } else { "s" }, options.seed);
    println!(
        "| plugin | pairs of faults | not reached | promise kept | clean after DEL or GC |\n|---|--:|--:|--:|--:|"
    );
    for (target, count) in &outcomes.counts {
        let (tried, unreached) = (count.tried, count.unreached);
        let (kept, after) = (count.clean_after_run, count.clean_after);
        println!("| {} | {tried} | {unreached} | {kept} | {after} |", sweep.targets[*target].title());
    }
    Swept { is_tried: outcomes.tried() > 0, is_clean: outcomes.findings.is_empty() }
}

/// Disks, files, limits.
fn disk(options: &Options, workers: usize) -> ExitCode {
    let trials = [disks(), hostile_files(), limits()].into_iter().flatten();
    let trials = trials.filter(|trial| trial.target.title().contains(&options.only)).collect();
    let sweep = EnvSweep { trials, sample: options.sample(), workers };
    options.print_seed();
    let outcomes = sweep.run(|finding| eprintln!("{finding}\n"));
    println!(
        "| plugin | what is wrong | tried | succeeded | promise kept | clean after DEL |\n|---|---|--:|--:|--:|--:|"
    );
    for ((trial, label), count) in &outcomes.counts {
        let name = sweep.trials[*trial].target.title();
        let (tried, succeeded) = (count.tried, count.succeeded);
        let (kept, after) = (count.clean_after_run, count.clean_after);
        println!("| {name} | {label} | {tried} | {succeeded} | {kept} | {after} |");
    }
    exit_code(outcomes.tried() > 0, outcomes.findings.is_empty() || under_test().reference)
}

/// Every interleaving of commands on one data directory.
fn leases(options: &Options, workers: usize) -> ExitCode {
    let scenarios = Scenario::all().into_iter();
    let scenarios = scenarios.filter(|scenario| scenario.to_string().contains(&options.only));
    if let Some(schedule) = &options.replay {
        match schedule.parse() {
            Ok(schedule) => scenarios.for_each(|scenario| println!("{}", replay(&scenario, &schedule))),
            Err(fault) => eprintln!("{fault}"),
        }
        return ExitCode::SUCCESS;
    }
    options.print_seed();
    println!(
        "| commands | preemptions and kills | schedules | with a kill | findings |\n|---|--:|--:|--:|--:|"
    );
    let (mut is_tried, mut clean) = (false, true);
    for scenario in scenarios {
        let Explored { schedules, kills, findings } = explore(&scenario, options.sample(), workers);
        findings.iter().for_each(|finding| eprintln!("{scenario}: {finding}\n"));
        println!("| {scenario} | {} | {schedules} | {kills} | {} |", scenario.bound, findings.len());
        is_tried |= schedules > 0;
        clean &= findings.is_empty();
    }
    exit_code(is_tried, clean)
}

/// Kills of dhcp's daemon.
fn daemon(options: &Options, workers: usize) -> ExitCode {
    options.print_seed();
    println!(
        "| family | kills | ADD had succeeded | DEL had succeeded | no lease lost, nothing left |\n|---|--:|--:|--:|--:|"
    );
    let (mut is_tried, mut clean) = (false, true);
    for family in Family::ALL.into_iter().filter(|family| family.to_string().contains(&options.only)) {
        let sweep = DaemonSweep { family, sample: options.sample(), workers };
        let Some(outcomes) = sweep.run(|finding| eprintln!("{finding}\n")) else { continue };
        let right = outcomes.tried - outcomes.findings.len();
        println!("| {family} | {} | {} | {} | {right} |", outcomes.tried, outcomes.added, outcomes.deleted);
        is_tried |= outcomes.tried > 0;
        clean &= outcomes.tried > 0 && outcomes.findings.is_empty();
    }
    exit_code(is_tried, clean)
}

fn faults(plan: &Plan, outcomes: &Outcomes) {
    println!(
        "| plugin | command | faults | succeeded | promise kept | clean after DEL |\n|---|---|--:|--:|--:|--:|"
    );
    for ((_, target, command), count) in outcomes.counts.iter().filter(|((kind, ..), _)| *kind == Kind::Fault)
    {
        let name = plan.targets[*target].title();
        let (tried, succeeded) = (count.tried, count.succeeded);
        let (kept, after) = (count.clean_after_run, count.clean_after);
        println!("| {name} | {} | {tried} | {succeeded} | {kept} | {after} |", COMMANDS[*command]);
    }
}

fn kills(plan: &Plan, outcomes: &Outcomes) {
    println!("\n| plugin | command | kills | no torn lease | clean after DEL or GC |\n|---|---|--:|--:|--:|");
    for ((_, target, command), count) in outcomes.counts.iter().filter(|((kind, ..), _)| *kind == Kind::Kill)
    {
        let name = plan.targets[*target].title();
        let (tried, whole, after) = (count.tried, count.clean_after_run, count.clean_after);
        println!("| {name} | {} | {tried} | {whole} | {after} |", COMMANDS[*command]);
    }
}

/// A hundred concurrent attachments with disturbances, also with fewer addresses.
fn races(seconds: u64) -> ExitCode {
    println!("| workers | addresses | seconds | attached | refused | findings |\n|--:|--:|--:|--:|---|--:|");
    let mut clean = true;
    for (addresses, seconds) in [(1000, seconds), (80, seconds / 4)] {
        let race = Race { workers: 100, length: Length::Time(Duration::from_secs(seconds)), addresses };
        // A lab belongs to its thread.
        let finish = thread::scope(|scope| scope.spawn(|| race.run()).join());
        let Ok(Finish { attached, refused, findings }) = finish else { return ExitCode::FAILURE };
        findings.iter().for_each(|finding| eprintln!("race: {finding}\n"));
        let is_exhausted = race.has_enough_addresses() && refused.contains_key(&Cause::Exhausted);
        let refused: Vec<_> = refused.iter().map(|(cause, count)| format!("{count}: {cause}")).collect();
        let (refused, found) = (refused.join("; "), findings.len());
        println!("| {} | {addresses} | {seconds} | {attached} | {refused} | {found} |", race.workers);
        clean &= attached > 0 && findings.is_empty() && !is_exhausted;
    }
    ExitCode::from(u8::from(!clean && !under_test().reference))
}
