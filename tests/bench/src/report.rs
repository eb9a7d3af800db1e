//! The results as tables, readable in a terminal and in Markdown.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use lab::Release;

use crate::process::{Cost, Spent};
use crate::side::{Backend, Rival, Side};

/// Everything between these markers in docs/benchmarks.md is replaced.
const BEGIN: &str = "<!-- begin: written by make bench -->\n";
const END: &str = "<!-- end -->";

/// All rounds of a phase.
#[derive(Clone, Debug, Default)]
pub struct Phase {
    /// None: the round failed.
    times: Vec<Option<Duration>>,
    costs: Vec<Cost>,
    /// All rounds, including the first one and those under the tracer.
    rounds: usize,
    /// The number of failed rounds, and the first failure.
    failed: usize,
    failure: Option<String>,
}

/// The unit of a result.
#[derive(Clone, Copy, Debug)]
pub enum Unit {
    Milliseconds,
    /// Throughput: this number of bytes in the measured time.
    Throughput {
        bytes: usize,
    },
}

/// A line of the table.
pub struct Row {
    pub what: String,
    pub phase: &'static str,
    pub unit: Unit,
    pub ours: Phase,
    /// The reference, or older executables.
    pub rival: Option<Phase>,
}

/// The whole report.
pub struct Report {
    pub rows: Vec<Row>,
    notes: Vec<String>,
    /// The side that Ferrule is compared with.
    rival: Rival,
}

impl Phase {
    pub fn warm_up(&mut self, spent: Spent) {
        self.count(spent.failures);
    }

    pub fn time(&mut self, spent: Spent) {
        self.times.push(spent.failures.is_empty().then_some(spent.took));
        self.count(spent.failures);
    }

    pub fn cost(&mut self, spent: Spent) {
        self.costs.push(spent.cost);
        self.count(spent.failures);
    }

    fn count(&mut self, failures: Vec<String>) {
        self.rounds += 1;
        self.failed += usize::from(!failures.is_empty());
        self.failure = self.failure.take().or_else(|| failures.into_iter().next());
    }

    /// The number of timed rounds, including failed ones.
    pub fn runs(&self) -> usize {
        self.times.len()
    }

    fn median(&self) -> Option<Duration> {
        middle(self.times.iter().flatten().copied().collect())
    }

    /// The median ratio to another phase, round by round, so that other load on the machine affects both.
    fn quotient(&self, other: &Self) -> Option<f64> {
        let rounds = self.times.iter().zip(&other.times);
        let both = rounds.filter_map(|(this, other)| Some((*this)?.as_secs_f64() / (*other)?.as_secs_f64()));
        let mut all: Vec<_> = both.collect();
        all.sort_unstable_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    }

    fn of_cost(&self, part: impl Fn(&Cost) -> u64) -> Option<u64> {
        // If nothing was counted, nothing was traced.
        middle(self.costs.iter().map(part).collect()).filter(|cost| *cost > 0)
    }
}

fn middle<T: Ord + Copy>(mut all: Vec<T>) -> Option<T> {
    all.sort_unstable();
    all.get(all.len() / 2).copied()
}

impl Unit {
    fn show(self, time: Duration) -> String {
        match self {
            Self::Milliseconds if time.as_millis() >= 100 => format!("{:.0} ms", time.as_secs_f64() * 1e3),
            Self::Milliseconds => format!("{:.2} ms", time.as_secs_f64() * 1e3),
            Self::Throughput { bytes } => {
                #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
                let bits = bytes as f64 * 8.0;
                format!("{:.1} Gbit/s", bits / time.as_secs_f64() / 1e9)
            }
        }
    }
}

impl Row {
    fn cells(&self, compare: Compare) -> [String; 9] {
        let rival = self.rival.as_ref();
        let show = |phase: &Phase| phase.median().map_or("fails".to_owned(), |time| self.unit.show(time));
        let pair = |part: fn(&Cost) -> u64, show: fn(u64) -> String| {
            let Some(ours) = self.ours.of_cost(part).map(show) else { return String::new() };
            match rival.and_then(|rival| rival.of_cost(part)).map(show) {
                Some(rival) => format!("{ours} / {rival}"),
                None => ours,
            }
        };
        [
            self.what.clone(),
            self.phase.to_owned(),
            show(&self.ours),
            rival.map(show).unwrap_or_default(),
            compare(self).unwrap_or_default(),
            [Some(&self.ours), rival]
                .into_iter()
                .flatten()
                .map(|phase| phase.runs().to_string())
                .collect::<Vec<_>>()
                .join(" / "),
            pair(|cost| cost.system_calls, |n| n.to_string()),
            pair(|cost| cost.programs, |n| n.to_string()),
            pair(|cost| cost.peak, |kib| megabytes(kib * 1024)),
        ]
    }
}

/// Compares the two sides of a row.
type Compare = fn(&Row) -> Option<String>;

fn faster(row: &Row) -> Option<String> {
    let (ours, rival) = (row.ours.median()?, row.rival.as_ref()?.median()?);
    Some(format!("{:.1}×", rival.as_secs_f64() / ours.as_secs_f64()))
}

fn change(row: &Row) -> Option<String> {
    let quotient = row.ours.quotient(row.rival.as_ref()?)?;
    Some(format!("{:+.1} %", (quotient - 1.0) * 100.0))
}

fn megabytes(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
    let bytes = bytes as f64;
    format!("{:.1} MB", bytes / 1e6)
}

impl Report {
    pub fn new(rival: Rival) -> Self {
        Self { rows: Vec::new(), notes: Vec::new(), rival }
    }

    pub fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    pub fn note_failures(&mut self, what: &str, phase: &Phase) {
        if let Some(first) = &phase.failure {
            let (failed, rounds) = (phase.failed, phase.rounds);
            let text = first.split_whitespace().collect::<Vec<_>>().join(" ");
            let note = format!("{what}: {failed} of {rounds} runs failed, the first one with `{text}`.");
            // The reference is compared with each backend.
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", machine())?;
        let rival = self.rival.of(Backend::Default);
        let (compared, compare): (_, Compare) = if self.rival.is_baseline() {
            ("time", change)
        } else {
            writeln!(f, "{}\n", reference(rival.backend, &rival.further()))?;
            ("faster", faster)
        };
        let rival_name = &rival.to_string();
        let head =
            ["", "", "ours", rival_name, compared, "runs", "system calls", "programs started", "peak memory"];
        let rows: Vec<_> = self.rows.iter().map(|row| row.cells(compare)).collect();
        write_table(f, &head.map(str::to_owned), &rows)?;
        for note in &self.notes {
            write!(f, "\n{note}\n")?;
        }
        writeln!(f)?;
        write_table(f, &["executable", "ours", rival_name].map(str::to_owned), &sizes(rival))
    }
}

/// Only the machine's type: its name does not matter.
fn machine() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim().splitn(3, ['.', '-']).take(2).collect::<Vec<_>>().join(".");
    let cores = thread::available_parallelism().map_or(1, usize::from);
    format!("Linux {release}, {} cores, {}.", cores, std::env::consts::ARCH)
}

/// The side that Ferrule is compared with.
fn reference(backend: Backend, further: &[String]) -> String {
    let further = if further.is_empty() {
        String::new()
    } else {
        format!("; from elsewhere, as the package lacks it: {}", further.join(", "))
    };
    let backend = match backend.key() {
        Some(backend) => format!(", host ports with {backend}"),
        None => String::new(),
    };
    format!("The reference: Debian's containernetworking-plugins {}{backend}{further}.", Release::latest())
}

/// Sizes of the separate executables, and of the one with all plugins.
fn sizes(rival: Side) -> Vec<[String; 3]> {
    let [single, together] = [Side::single(), Side::ours(Backend::Default)];
    let size = |side: Side, plugin: &str| side.size(plugin).map(megabytes).unwrap_or_default();
    let row = |ours: Side, plugin: String| [plugin.clone(), size(ours, &plugin), size(rival, &plugin)];
    let all = together.plugins().into_iter().filter(|name| name == "ferrule");
    let all =
        all.map(|name| row(together, name)).chain(single.plugins().into_iter().map(|name| row(single, name)));
    all.collect()
}

fn write_table<const N: usize>(
    f: &mut fmt::Formatter<'_>,
    head: &[String; N],
    rows: &[[String; N]],
) -> fmt::Result {
    let width = |n: usize| rows.iter().chain([head]).map(|row| row[n].chars().count()).max().unwrap_or(0);
    let line = |row: &[String; N]| {
        let cells = row.iter().enumerate().map(|(n, cell)| format!("| {cell:<width$} ", width = width(n)));
        cells.collect::<String>() + "|"
    };
    writeln!(f, "{}", line(head))?;
    writeln!(f, "{}|", (0..N).map(|n| format!("|{}", "-".repeat(width(n) + 2))).collect::<String>())?;
    rows.iter().try_for_each(|row| writeln!(f, "{}", line(row)))
}

/// Writes the text into the page.
///
/// # Errors
/// If the page does not exist, or has no markers.
pub fn insert(page: &Path, text: &str) -> io::Result<()> {
    let old = fs::read_to_string(page)?;
    let no_place = || io::Error::other("the page has no place for the table");
    let (before, rest) = old.split_once(BEGIN).ok_or_else(no_place)?;
    let (_, after) = rest.split_once(END).ok_or_else(no_place)?;
    fs::write(page, format!("{before}{BEGIN}\n{text}\n{END}{after}"))
}
