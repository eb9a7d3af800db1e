//! A side's own machine: a thread in a lab, so that the sides can take turns.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use lab::Lab;

use crate::process::{How, Spent};
use crate::side::Side;

/// One round: the time of each phase.
pub type Round = Box<dyn FnMut(How) -> Vec<Spent>>;

/// Prepares a side's machine, and returns the round to run on it.
pub type Prepare = dyn Fn(&Lab, Side) -> Round + Send + Sync;

/// A machine that waits for its turn.
pub struct Machine {
    turns: Sender<How>,
    outcomes: Receiver<Vec<Spent>>,
}

impl Machine {
    pub fn start<'scope>(
        scope: &'scope thread::Scope<'scope, '_>,
        side: Side,
        prepare: &'scope Prepare,
    ) -> Self {
        let (turns, turn) = channel();
        let (outcome, outcomes) = channel();
        scope.spawn(move || {
            let lab = Lab::new();
            // As on any host with containers, forwarding is on before the plugins run.
            lab.host().sh(
                "for key in ipv4/ip_forward ipv6/conf/all/forwarding; do echo 1 >/proc/sys/net/$key; done",
            );
            let mut round = prepare(&lab, side);
            for how in turn {
                // Fails only if the benchmark has ended.
                outcome.send(round(how)).ok();
            }
        });
        Self { turns, outcomes }
    }

    pub fn round(&self, how: How) -> Vec<Spent> {
        self.turns.send(how).expect("the machine runs");
        self.outcomes.recv().expect("the machine runs")
    }
}
