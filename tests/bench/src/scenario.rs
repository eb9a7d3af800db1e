//! What is compared, and how.

use std::thread;
use std::time::Duration;

use lab::Feature;

use crate::blast::BYTES;
use crate::entrant::Entrant;
use crate::machine::{Machine, Prepare};
use crate::report::{Phase, Unit};
use crate::side::{Backend, Rival, Side};

/// How long a side may take, on average, for each run that is asked for. If one takes longer, all sides are run less often, so that
/// nobody waits for a table for hours.
const FOR_A_RUN: Duration = Duration::from_millis(150);

/// How often each side is run in any case, unless less is asked for.
const LEAST: u32 = 5;

/// One or some rows of the table.
pub struct Scenario {
    pub name: &'static str,
    /// The names of a round's parts.
    pub phases: &'static [&'static str],
    pub unit: Unit,
    /// What has to be installed for it.
    plugins: &'static [&'static str],
    /// What the kernel must be able to do.
    needs: &'static [Feature],
    /// Ours that take part.
    ours: Vec<Side>,
    /// Whether the reference takes part.
    reference: bool,
    /// How often it is run again under the tracer.
    traces: usize,
    prepare: Box<Prepare>,
}

/// What came of a scenario for one of ours, beside the one that it is compared with.
pub struct Measured {
    pub ours: Side,
    pub rival: Option<Side>,
    /// A round's parts.
    pub phases: Vec<(Phase, Option<Phase>)>,
}

impl Scenario {
    pub fn new(name: &'static str, plugins: &'static [&'static str], prepare: Box<Prepare>) -> Self {
        Self {
            name,
            phases: &["ADD", "DEL"],
            unit: Unit::Milliseconds,
            plugins,
            needs: &[],
            ours: vec![Side::ours(Backend::Default)],
            reference: true,
            traces: 3,
            prepare,
        }
    }

    pub fn of(self, phases: &'static [&'static str]) -> Self {
        Self { phases, ..self }
    }

    pub fn needs(self, needs: &'static [Feature]) -> Self {
        Self { needs, ..self }
    }

    pub fn by_backends(self) -> Self {
        Self { ours: vec![Side::ours(Backend::Default), Side::ours(Backend::Iptables)], ..self }
    }

    pub fn by_layouts(self) -> Self {
        Self { ours: vec![Side::ours(Backend::Default), Side::single()], ..self }
    }

    pub fn without_reference(self) -> Self {
        Self { reference: false, ..self }
    }

    pub fn untraced(self) -> Self {
        Self { traces: 0, ..self }
    }

    /// Many containers at once.
    pub fn stormy(self) -> Self {
        self.of(&["all ADD", "all DEL"]).by_backends().untraced()
    }

    /// Many containers, of which some start while others stop.
    pub fn rolling(self) -> Self {
        self.of(&["ADD and DEL of all"]).by_backends().untraced()
    }

    pub fn throughput(self) -> Self {
        Self { unit: Unit::Throughput { bytes: BYTES }, ..self }.of(&["TCP"]).untraced()
    }

    /// Each of ours, and the one that it is compared with.
    fn sides(&self, rival: Rival) -> Vec<(Side, Option<Side>)> {
        let takes_part = (self.reference || rival.is_baseline()) && self.rival_lacks(rival).is_none();
        self.ours.iter().map(|&ours| (ours, takes_part.then(|| rival.of(ours.backend)))).collect()
    }

    /// The plugin for want of which ours is compared with nothing.
    pub fn rival_lacks(&self, rival: Rival) -> Option<&'static str> {
        rival.of(Backend::Default).lacks(self.plugins)
    }

    /// Why it cannot be run, if it cannot.
    pub fn missing(&self) -> Option<String> {
        if let Some(feature) = self.needs.iter().find(|feature| !feature.is_there()) {
            return Some(format!("this kernel has no {feature}"));
        }
        self.ours.iter().find_map(|side| Some(format!("there is no {} of {side}", side.lacks(self.plugins)?)))
    }

    /// All sides in turns, so that whatever else the machine does falls on all of them.
    pub fn measure(&self, runs: u32, rival: Rival) -> Vec<Measured> {
        let pairs = self.sides(rival);
        let mut sides = Vec::new();
        for side in pairs.iter().flat_map(|(ours, rival)| [Some(*ours), *rival]).flatten() {
            if !sides.contains(&side) {
                sides.push(side);
            }
        }
        let measured = self.measure_sides(&sides, runs);
        let of = |side: Side, n: usize| {
            let place = sides.iter().position(|one| *one == side).expect("it was measured");
            measured[place][n].clone()
        };
        let compare = |(ours, rival): (Side, Option<Side>)| {
            let phases = (0..self.phases.len()).map(|n| (of(ours, n), rival.map(|rival| of(rival, n))));
            Measured { ours, rival, phases: phases.collect() }
        };
        pairs.into_iter().map(compare).collect()
    }

    fn measure_sides(&self, sides: &[Side], runs: u32) -> Vec<Vec<Phase>> {
        let budget = FOR_A_RUN * runs;
        thread::scope(|scope| {
            let entrant = |side: &Side| {
                let machine = Machine::start(scope, *side, &self.prepare);
                Entrant::new(machine, self.phases.len(), budget)
            };
            let mut entrants: Vec<_> = sides.iter().map(entrant).collect();
            turn(&mut entrants, 0, Entrant::warm_up);
            time(&mut entrants, runs);
            (0..self.traces).for_each(|round| turn(&mut entrants, round, Entrant::trace));
            entrants.into_iter().map(Entrant::into_phases).collect()
        })
    }
}

/// Until one of them has used all of its time: each is run as often as the others.
fn time(entrants: &mut [Entrant], runs: u32) {
    for round in 0..runs {
        if round >= LEAST && entrants.iter().any(Entrant::is_over) {
            break;
        }
        turn(entrants, round as usize, Entrant::time);
    }
}

/// Each is the first one in its turn.
fn turn(entrants: &mut [Entrant], round: usize, work: fn(&mut Entrant)) {
    let count = entrants.len();
    (0..count).for_each(|n| work(&mut entrants[(round + n) % count]));
}
