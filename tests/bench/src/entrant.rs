//! A side in the benchmark, with its share of the time.

use std::time::{Duration, Instant};

use crate::machine::Machine;
use crate::process::{How, Spent};
use crate::report::Phase;

/// A side of a scenario, and its results so far.
pub struct Entrant {
    machine: Machine,
    phases: Vec<Phase>,
    /// The time that it may take, and again that long under the tracer.
    budget: Duration,
    timed: Duration,
    traced: Duration,
}

impl Entrant {
    pub fn new(machine: Machine, phases: usize, budget: Duration) -> Self {
        let phases = vec![Phase::default(); phases];
        Self { machine, phases, budget, timed: Duration::ZERO, traced: Duration::ZERO }
    }

    /// The first round is not counted: it creates what all attachments share.
    pub fn warm_up(&mut self) {
        let (round, _) = self.round(How::Timed);
        self.keep(round, Phase::warm_up);
    }

    pub fn time(&mut self) {
        let (round, took) = self.round(How::Timed);
        self.timed += took;
        self.keep(round, Phase::time);
    }

    /// Whether its time is used up.
    pub fn is_over(&self) -> bool {
        self.timed >= self.budget
    }

    /// Runs a round under the tracer, unless the side is already slow without it.
    pub fn trace(&mut self) {
        let runs = u32::try_from(self.phases[0].runs()).unwrap_or(u32::MAX);
        if self.traced < self.budget && self.timed <= self.budget * runs {
            let (round, took) = self.round(How::Traced);
            self.traced += took;
            self.keep(round, Phase::cost);
        }
    }

    fn round(&self, how: How) -> (Vec<Spent>, Duration) {
        let start = Instant::now();
        (self.machine.round(how), start.elapsed())
    }

    fn keep(&mut self, round: Vec<Spent>, keep: fn(&mut Phase, Spent)) {
        self.phases.iter_mut().zip(round).for_each(|(phase, spent)| keep(phase, spent));
    }

    pub fn into_phases(self) -> Vec<Phase> {
        self.phases
    }
}
