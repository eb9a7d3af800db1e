//! A scenario of the benchmark: the calls to compare, and how to measure them.

use std::thread;
use std::time::Duration;

use lab::Feature;

use crate::blast::BYTES;
use crate::entrant::Entrant;
use crate::machine::{Machine, Prepare};
use crate::report::{Phase, Unit};
use crate::side::{Backend, Rival, Side};

/// The average time that a side may take for each requested run. If a side takes longer, all sides run less often, so
/// that the benchmark does not take hours.
const FOR_A_RUN: Duration = Duration::from_millis(150);

/// Minimum number of runs of each side, unless fewer are requested.
const LEAST: u32 = 5;

/// One or several rows of the table.
pub struct Scenario {
    pub name: &'static str,
    /// The names of a round's phases.
    pub phases: &'static [&'static str],
    pub unit: Unit,
    /// The plugins that it needs.
    plugins: &'static [&'static str],
    /// The kernel features that it needs.
    needs: &'static [Feature],
    /// The sides of Ferrule in it.
    ours: Vec<Side>,
    /// Whether the reference takes part.
    reference: bool,
    /// The number of runs under the tracer.
    traces: usize,
    prepare: Box<Prepare>,
}

/// The result of one of Ferrule's sides, with the compared side's.
pub struct Measured {
    pub ours: Side,
    pub rival: Option<Side>,
    /// The phases of a round.
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

    /// Many concurrent containers.
    pub fn stormy(self) -> Self {
        self.of(&["all ADD", "all DEL"]).by_backends().untraced()
    }

    /// Many containers, some of which start while others stop.
    pub fn rolling(self) -> Self {
        self.of(&["ADD and DEL of all"]).by_backends().untraced()
    }

    pub fn throughput(self) -> Self {
        Self { unit: Unit::Throughput { bytes: BYTES }, ..self }.of(&["TCP"]).untraced()
    }

    /// Each of Ferrule's sides, with the side that it is compared with.
    fn sides(&self, rival: Rival) -> Vec<(Side, Option<Side>)> {
        let takes_part = (self.reference || rival.is_baseline()) && self.rival_lacks(rival).is_none();
        self.ours.iter().map(|&ours| (ours, takes_part.then(|| rival.of(ours.backend)))).collect()
    }

    /// The plugin that the compared side lacks, if any.
    pub fn rival_lacks(&self, rival: Rival) -> Option<&'static str> {
        rival.of(Backend::Default).lacks(self.plugins)
    }

    /// Why it cannot run, if it cannot.
    pub fn missing(&self) -> Option<String> {
        if let Some(feature) = self.needs.iter().find(|feature| !feature.is_there()) {
            return Some(format!("this kernel has no {feature}"));
        }
        self.ours.iter().find_map(|side| Some(format!("there is no {} of {side}", side.lacks(self.plugins)?)))
    }

    /// Runs all sides in turns, so that other load on the machine affects all of them.
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

/// Runs until a side has used up its time. All sides run equally often.
fn time(entrants: &mut [Entrant], runs: u32) {
    for round in 0..runs {
        if round >= LEAST && entrants.iter().any(Entrant::is_over) {
            break;
        }
        turn(entrants, round as usize, Entrant::time);
    }
}

/// Each side is the first in one of the turns.
fn turn(entrants: &mut [Entrant], round: usize, work: fn(&mut Entrant)) {
    let count = entrants.len();
    (0..count).for_each(|n| work(&mut entrants[(round + n) % count]));
}
