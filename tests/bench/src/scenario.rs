//! What is compared, and how.

use std::path::Path;
use std::thread;

use lab::Feature;

use crate::blast::BYTES;
use crate::machine::{Machine, Prepare};
use crate::process::{How, Spent};
use crate::report::{Phase, Unit};
use crate::side::{Backend, Side};

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
    /// It is run a share-th of the times asked for: slow ones need not be run often.
    share: u32,
    /// But so often at least, if so many are asked for.
    least: u32,
    /// How often it is run again under the tracer.
    traces: u32,
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
            share: 1,
            least: 3,
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

    pub fn rarely(self, share: u32) -> Self {
        Self { share, ..self }
    }

    pub fn untraced(self) -> Self {
        Self { traces: 0, ..self }
    }

    /// Many containers at once. The reference takes a minute for them.
    pub fn stormy(self) -> Self {
        Self { least: 1, ..self }.of(&["all ADD", "all DEL"]).by_backends().untraced().rarely(20)
    }

    pub fn throughput(self) -> Self {
        Self { unit: Unit::Throughput { bytes: BYTES }, ..self }.of(&["TCP"]).untraced().rarely(10)
    }

    /// Each of ours, and the one that it is compared with.
    fn sides(&self, baseline: Option<&'static Path>) -> Vec<(Side, Option<Side>)> {
        let reference = || self.reference.then(Side::reference);
        let rival =
            |ours: Side| baseline.map(|directory| Side::baseline(directory, ours.backend)).or_else(reference);
        self.ours.iter().map(|&ours| (ours, rival(ours))).collect()
    }

    /// Why it cannot be run, if it cannot.
    pub fn missing(&self, baseline: Option<&'static Path>) -> Option<String> {
        if let Some(feature) = self.needs.iter().find(|feature| !feature.is_there()) {
            return Some(format!("this kernel has no {feature}"));
        }
        let sides = self.sides(baseline).into_iter().flat_map(|(ours, rival)| [Some(ours), rival]).flatten();
        let missing = |side: Side| self.plugins.iter().find(move |plugin| side.size(plugin).is_none());
        sides.into_iter().find_map(|side| Some(format!("there is no {} of {side}", missing(side)?)))
    }

    /// All sides in turns, each first in its turn, so that whatever else the machine does falls on all of them. The first
    /// round is for free: it makes what all attachments share.
    pub fn measure(&self, runs: u32, baseline: Option<&'static Path>) -> Vec<Measured> {
        let pairs = self.sides(baseline);
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
        thread::scope(|scope| {
            let machines: Vec<_> =
                sides.iter().map(|side| Machine::start(scope, *side, &self.prepare)).collect();
            let mut measured = vec![vec![Phase::default(); self.phases.len()]; sides.len()];
            let mut first = 0;
            let mut turn = |how, keep: fn(&mut Phase, Spent)| {
                for place in (first..sides.len()).chain(0..first) {
                    let round = machines[place].round(how);
                    measured[place].iter_mut().zip(round).for_each(|(phase, spent)| keep(phase, spent));
                }
                first = (first + 1) % sides.len();
            };
            turn(How::Timed, Phase::warm_up);
            (0..(runs / self.share).max(runs.min(self.least))).for_each(|_| turn(How::Timed, Phase::time));
            (0..self.traces).for_each(|_| turn(How::Traced, Phase::cost));
            measured
        })
    }
}
