//! The table's rows.

use std::thread;

use crate::blast::{BYTES, blast};
use crate::collection::collection;
use crate::floor::with_deletion;
use crate::machine::{Machine, Prepare};
use crate::networks::{
    bridged, dual_stack, kubernetes, loopback, nothing, ports, stocked, store, with_hundreds_of_mappings,
};
use crate::process::{How, Spent};
use crate::repairs::repairs;
use crate::report::{Phase, Unit};
use crate::rounds::{chain, crowd, crowd_in_unrest, version};
use crate::side::Side::{self, Ours, OursIptables, Reference};

/// What is compared, and how.
pub struct Scenario {
    pub name: &'static str,
    /// The names of a round's parts.
    pub phases: &'static [&'static str],
    pub unit: Unit,
    /// What has to be installed for it.
    plugins: &'static [&'static str],
    sides: &'static [Side],
    /// It is run a share-th of the times asked for: slow ones need not be run often.
    share: u32,
    /// But so often at least, if so many are asked for.
    least: u32,
    /// How often it is run again under the tracer.
    traces: u32,
    prepare: Box<Prepare>,
}

const LOOPBACK: &[&str] = &["loopback"];
const STORE: &[&str] = &["host-local"];
const BRIDGE: &[&str] = &["bridge", "host-local"];
const PORTMAP: &[&str] = &["bridge", "host-local", "portmap"];
const KUBERNETES: &[&str] = &["bridge", "host-local", "tuning", "portmap"];

/// All of them, in the table's order. The reference would need minutes to install 5 000 mappings, so it is left out
/// where these are there.
pub fn all() -> Vec<Scenario> {
    [single(), storms(), host_ports()].into_iter().flatten().collect()
}

fn single() -> Vec<Scenario> {
    vec![
        Scenario::new("start of a plugin", BRIDGE, version("bridge")).of(&["VERSION"]),
        Scenario::new("loopback", LOOPBACK, chain(loopback, nothing, None)),
        Scenario::new("bridge + host-local", BRIDGE, with_deletion(bridged)).of(&[
            "ADD",
            "DEL",
            "the kernel's part of DEL",
        ]),
        Scenario::new("host-local, empty store", STORE, chain(store, nothing, None)),
        Scenario::new("host-local, 10 leases", STORE, chain(store, stocked::<10>, None)),
        Scenario::new("host-local, 1 000 leases", STORE, chain(store, stocked::<1_000>, None)),
        Scenario::new("host-local, 10 000 leases", STORE, chain(store, stocked::<10_000>, None)).rarely(4),
        Scenario::new("host-local, 50 000 leases", STORE, chain(store, stocked::<50_000>, None)).rarely(10),
        Scenario::new("bridge + host-local, 100 containers by 16 workers", BRIDGE, crowd(bridged, 100, 16))
            .of(&["all ADD", "all DEL"])
            .untraced()
            .rarely(20),
        Scenario::new("Kubernetes chain", KUBERNETES, chain(kubernetes, nothing, None))
            .by_backends()
            .rarely(4),
        Scenario::new("Kubernetes chain, dual stack", KUBERNETES, with_deletion(dual_stack))
            .of(&["ADD", "DEL", "the kernel's part of DEL"])
            .by_backends()
            .rarely(4),
        Scenario::new(
            "Kubernetes chain, 100 containers by 16 workers",
            KUBERNETES,
            crowd(kubernetes, 100, 16),
        )
        .stormy(),
    ]
}

/// Many containers at once.
fn storms() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "Kubernetes chain, 100 containers by 100 workers",
            KUBERNETES,
            crowd(kubernetes, 100, 100),
        )
        .stormy(),
        Scenario::new(
            "Kubernetes chain, dual stack, 100 containers by 100 workers",
            KUBERNETES,
            crowd(dual_stack, 100, 100),
        )
        .stormy(),
        Scenario::new(
            "Kubernetes chain, dual stack, 100 containers by 100 workers, in unrest",
            KUBERNETES,
            crowd_in_unrest(dual_stack, 100, 100),
        )
        .stormy(),
    ]
}

fn host_ports() -> Vec<Scenario> {
    vec![
        Scenario::new("portmap, two ports", PORTMAP, chain(ports, nothing, Some("portmap")))
            .by_backends()
            .rarely(4),
        Scenario::new(
            "portmap, two ports beside 5 000 mappings",
            PORTMAP,
            chain(ports, with_hundreds_of_mappings::<50>, Some("portmap")),
        )
        .by(&[Ours, OursIptables])
        .rarely(4),
        Scenario::new("portmap, 1 000 stale attachments", PORTMAP, collection(1_000))
            .of(&["GC"])
            .by(&[Ours])
            .untraced()
            .rarely(20),
        Scenario::new("cnitool repair, 1 000 attachments, dual stack", PORTMAP, repairs(1_000))
            .of(&["after a flush", "nothing is missing"])
            .by(&[Ours])
            .untraced()
            .rarely(20),
        Scenario::new("a mapped port", PORTMAP, blast(ports, nothing)).throughput().by_backends(),
        Scenario::new(
            "a mapped port beside 5 000 others",
            PORTMAP,
            blast(ports, with_hundreds_of_mappings::<50>),
        )
        .throughput()
        .by(&[Ours, OursIptables]),
    ]
}

impl Scenario {
    fn new(name: &'static str, plugins: &'static [&'static str], prepare: Box<Prepare>) -> Self {
        Self {
            name,
            phases: &["ADD", "DEL"],
            unit: Unit::Milliseconds,
            plugins,
            sides: &[Ours, Reference],
            share: 1,
            least: 3,
            traces: 3,
            prepare,
        }
    }

    fn of(self, phases: &'static [&'static str]) -> Self {
        Self { phases, ..self }
    }

    fn by(self, sides: &'static [Side]) -> Self {
        Self { sides, ..self }
    }

    fn by_backends(self) -> Self {
        self.by(&[Ours, OursIptables, Reference])
    }

    fn rarely(self, share: u32) -> Self {
        Self { share, ..self }
    }

    fn untraced(self) -> Self {
        Self { traces: 0, ..self }
    }

    /// Many containers at once. The reference takes a minute for them.
    fn stormy(self) -> Self {
        Self { least: 1, ..self }.of(&["all ADD", "all DEL"]).by_backends().untraced().rarely(20)
    }

    fn throughput(self) -> Self {
        Self { unit: Unit::Throughput { bytes: BYTES }, ..self }.of(&["TCP"]).untraced().rarely(10)
    }

    /// Why it cannot be run, if it cannot.
    pub fn missing(&self) -> Option<String> {
        let missing = |side: Side| self.plugins.iter().find(move |plugin| side.size(plugin).is_none());
        self.sides.iter().find_map(|side| {
            let plugin = missing(*side)?;
            Some(format!("there is no {plugin} of {side} yet"))
        })
    }

    /// All sides in turns, so that whatever else the machine does falls on all of them. The first round is for free:
    /// it makes what all attachments share.
    pub fn measure(&self, runs: u32) -> Vec<(Side, Vec<Phase>)> {
        thread::scope(|scope| {
            let machines: Vec<_> =
                self.sides.iter().map(|side| Machine::start(scope, *side, &self.prepare)).collect();
            let mut measured: Vec<_> =
                self.sides.iter().map(|side| (*side, vec![Phase::default(); self.phases.len()])).collect();
            let mut turn = |how, keep: fn(&mut Phase, Spent)| {
                for (machine, (_, phases)) in machines.iter().zip(&mut measured) {
                    let round = machine.round(how).into_iter();
                    phases.iter_mut().zip(round).for_each(|(phase, spent)| keep(phase, spent));
                }
            };
            turn(How::Timed, Phase::warm_up);
            (0..(runs / self.share).max(runs.min(self.least))).for_each(|_| turn(How::Timed, Phase::time));
            (0..self.traces).for_each(|_| turn(How::Traced, Phase::cost));
            measured
        })
    }
}
