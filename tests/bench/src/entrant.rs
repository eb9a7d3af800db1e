//! A side that takes its turns, and how much of its time it has used.

use std::time::{Duration, Instant};

use crate::machine::Machine;
use crate::process::{How, Spent};
use crate::report::Phase;

/// A side of a scenario, and what it has shown so far.
pub struct Entrant {
    machine: Machine,
    phases: Vec<Phase>,
    /// How long it may run, and as long again under the tracer.
    budget: Duration,
    timed: Duration,
    traced: Duration,
}

impl Entrant {
    pub fn new(machine: Machine, phases: usize, budget: Duration) -> Self {
        let phases = vec![Phase::default(); phases];
        Self { machine, phases, budget, timed: Duration::ZERO, traced: Duration::ZERO }
    }

    /// The first round does not count: it makes what all attachments share.
    pub fn warm_up(&mut self) {
        let (round, _) = self.round(How::Timed);
        self.keep(round, Phase::warm_up);
    }

    pub fn time(&mut self) {
        let (round, took) = self.round(How::Timed);
        self.timed += took;
        self.keep(round, Phase::time);
    }

    /// Whether its time is over.
    pub fn is_over(&self) -> bool {
        self.timed >= self.budget
    }

    /// Not if it takes too long without a tracer: with one it takes many times longer.
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
