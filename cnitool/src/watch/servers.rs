//! DNS servers of the plugin dnsname. They send no event when they exit or hang, so they are checked at intervals.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use cni::{Attachment, NetworkName};
use dnsname::inspect::{self, Failed};
use runtime::Cache;

/// The interval of checks.
const INTERVAL: Duration = Duration::from_secs(2);

/// The longest pause between repairs of a server that they cannot mend, in checks: about a minute.
const PAUSE_MAX: u32 = 32;

/// The servers that the last check found without an answer.
#[derive(Debug)]
pub struct Servers {
    /// The cache of this process.
    own: Cache,
    /// The number of checks since the last answer.
    failures: RefCell<BTreeMap<NetworkName, u32>>,
    next: Cell<Instant>,
    /// Whether a server must be repaired since the last call of [`Servers::are_lost`].
    lost: Cell<bool>,
}

impl Servers {
    /// `own` is the cache of this process.
    pub fn watch(own: &Cache) -> Self {
        let next = Cell::new(Instant::now() + INTERVAL);
        Self { own: own.clone(), failures: RefCell::default(), next, lost: Cell::new(false) }
    }

    /// The time of the next check. None: there is no server.
    pub fn next(&self) -> Option<Instant> {
        inspect::any_network().then(|| self.next.get())
    }

    /// Checks the servers, if it is time. Returns whether a repair is due.
    pub fn take(&self) -> bool {
        if Instant::now() < self.next.get() || !inspect::any_network() {
            return false;
        }
        // A runtime may have created its cache since the last check.
        let caches = self.own.with_others_of_host();
        let failed = inspect::failed(|network, owners| {
            caches.as_ref().map_or(true, |caches| has_live_container(caches, network, owners))
        });
        let is_due = note(&mut self.failures.borrow_mut(), &failed);
        self.lost.set(self.lost.get() || is_due);
        self.next.set(Instant::now() + INTERVAL);
        is_due
    }

    /// Whether a server must be repaired since the last call.
    pub fn are_lost(&self) -> bool {
        self.lost.take()
    }
}

/// Whether a container of the network exists, or may exist. A repair does not start a server for containers that have
/// ended without a DEL.
fn has_live_container(caches: &[Cache], network: &NetworkName, owners: &[Option<Attachment>]) -> bool {
    owners.iter().any(|owner| {
        let Some(at) = owner else { return true };
        let mut found = caches.iter().map(|cache| cache.load(network, at));
        found.any(|found| found.map_or(true, |entry| entry.is_some_and(|entry| entry.is_alive())))
    })
}

/// Counts the failed checks of each server. Returns whether a repair is due: after the first check of a server that
/// has exited, after the second one of a server that does not answer, and then after longer and longer pauses.
fn note(failures: &mut BTreeMap<NetworkName, u32>, failed: &[Failed]) -> bool {
    failures.retain(|network, _| failed.iter().any(|failed| failed.network == *network));
    let mut is_due = false;
    for Failed { network, runs } in failed {
        let count = failures.entry(network.clone()).or_default();
        *count = count.saturating_add(1);
        let is_slow = *runs && *count == 1;
        is_due |= !is_slow && (count.is_power_of_two() || count.is_multiple_of(PAUSE_MAX));
    }
    is_due
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(name: &str, runs: bool) -> Failed {
        Failed { network: NetworkName::parse(name).unwrap(), runs }
    }

    #[test]
    fn a_server_that_no_repair_mends_is_repaired_less_and_less_often() {
        let due = |runs| {
            let mut failures = BTreeMap::new();
            (1..=130).filter(|_| note(&mut failures, &[failed("a", runs)])).count()
        };
        // Checks 1, 2, 4, 8, 16, 32, 64, 96 and 128.
        assert_eq!((due(false), due(true)), (9, 8));
    }

    #[test]
    fn a_slow_answer_is_no_loss_and_an_exit_of_another_server_is_one() {
        let mut failures = BTreeMap::new();
        assert!(!note(&mut failures, &[failed("a", true)]));
        assert!(!note(&mut failures, &[]));
        assert!(!note(&mut failures, &[failed("a", true)]), "it has answered meanwhile");
        assert!(note(&mut failures, &[failed("a", true)]));
        assert!(!note(&mut failures, &[failed("a", true)]));
        assert!(note(&mut failures, &[failed("a", true), failed("b", false)]));
    }
}
