//! A plugin run on a machine that something is wrong with.

use std::fmt;

use super::judge::{self, Verdict};
use super::manager;
use super::pool::{self, Job, Outcomes, verbs};
use super::scene::Scene;
use super::subject::Subject;
use lab::{Call, Lab, under_test};

/// Something wrong with the machine, for the time of one run.
pub struct Harm {
    /// The line of the figures that it counts in.
    pub label: String,
    pub what: String,
    /// Brings it about, in the lab that the thread is in.
    pub inflict: Box<dyn Fn() -> Lift + Send + Sync>,
    /// How the plugin is started.
    pub vary: Box<dyn Fn(Call) -> Call + Send + Sync>,
    /// What an error has to tell.
    pub culprit: Option<String>,
    /// The verbs that must succeed all the same.
    pub spares: &'static [&'static str],
    /// What there is to remove cannot be seen: a DEL or GC that succeeds has the right to leave it.
    pub hides: bool,
}

/// Ends a harm, and says what was touched that is none of a plugin's business.
pub type Lift = Box<dyn FnOnce() -> Option<String>>;

impl Harm {
    /// One that does nothing yet.
    pub(super) fn new(label: &str, what: String) -> Self {
        Self {
            label: label.to_owned(),
            what,
            inflict: Box::new(|| Box::new(|| None)),
            vary: Box::new(|call| call),
            culprit: None,
            spares: &[],
            hides: false,
        }
    }
}

impl fmt::Debug for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.label, self.what)
    }
}

/// A plugin, the machine that it is on, and what happens to that.
#[derive(Debug)]
pub struct Stand {
    pub subject: Subject,
    /// Makes the machine ready.
    pub ready: fn(&Lab),
    pub harms: Vec<Harm>,
}

/// All harms for all verbs.
#[derive(Debug)]
pub struct Harms {
    pub stands: Vec<Stand>,
    /// Only each `every`-th case.
    pub every: usize,
    pub workers: usize,
}

/// A stand, by its place among the harms, and the label of the harm.
pub type HarmRow = (usize, String);

struct Harmed<'a> {
    place: usize,
    stand: &'a Stand,
    verb: &'static str,
    harm: &'a Harm,
}

impl Harms {
    /// Runs all cases. `report` is told of each finding as it comes.
    pub fn run(&self, report: impl Fn(&str) + Sync) -> Outcomes<HarmRow> {
        let stands = self.stands.iter().enumerate();
        let all =
            stands.flat_map(|(place, stand)| {
                let cases = verbs().iter().flat_map(|verb| stand.harms.iter().map(move |harm| (*verb, harm)));
                cases
                    .filter(|(verb, _)| manager::speaks(&stand.subject, verb))
                    .map(move |(verb, harm)| Harmed { place, stand, verb, harm })
            });
        let jobs: Vec<_> = all.step_by(self.every).collect();
        pool::run(self.workers, &jobs, report)
    }
}

impl Job for Harmed<'_> {
    type Row = HarmRow;

    fn row(&self) -> HarmRow {
        (self.place, self.harm.label.clone())
    }

    fn place(&self) -> usize {
        self.place
    }

    fn scene(&self) -> Scene {
        Scene::on(&self.stand.subject, self.stand.ready)
    }

    fn judge(&self, scene: &Scene) -> Option<Verdict> {
        Some(judge::harmed(scene, self.verb, self.harm))
    }

    fn title(&self) -> String {
        let whose = if under_test().reference { "the reference's " } else { "" };
        format!("{whose}{} {}: {:?}", self.stand.subject.name, self.verb, self.harm)
    }
}
