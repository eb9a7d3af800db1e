//! When `cnitool metrics` first found each stale resource: a note that lasts until the next boot ([`system::boot`]).

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use cni::NetworkName;

use crate::cleanup::Plan;

/// The name of the note.
const NOTE: &str = "stale";

/// Network → resource → the time when the resource was first found, in seconds since 1970.
type Times = BTreeMap<String, BTreeMap<String, u64>>;

/// The times of the earlier runs, and of this one.
#[derive(Debug)]
pub struct Sightings {
    now: u64,
    earlier: Times,
    current: Times,
}

impl Sightings {
    /// Reads the note. If it does not exist or is damaged, all resources are new.
    pub fn read() -> Self {
        let earlier = system::boot::noted(NOTE).and_then(|note| serde_json::from_str(&note).ok());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Self { now, earlier: earlier.unwrap_or_default(), current: Times::new() }
    }

    /// Records the stale resources of a network. Returns for how many seconds the oldest of them has been known.
    pub fn note(&mut self, network: &NetworkName, plan: &Plan) -> u64 {
        let attachments = plan.delete.iter().map(|entry| {
            let at = &entry.attach.attachment;
            format!("attachment {} {}", at.container, at.ifname)
        });
        let resources =
            plan.removed.iter().map(|one| [&*one.kind, &*one.name, &*one.container, &*one.ifname].join(" "));
        self.record(network, attachments.chain(resources).collect())
    }

    fn record(&mut self, network: &str, resources: Vec<String>) -> u64 {
        let earlier = self.earlier.remove(network).unwrap_or_default();
        let now = self.now;
        // The clock may have been set back.
        let first = |resource: &String| earlier.get(resource).map_or(now, |first| now.min(*first));
        let times: BTreeMap<_, _> = resources
            .into_iter()
            .map(|resource| {
                let first = first(&resource);
                (resource, first)
            })
            .collect();
        let oldest = times.values().min().map_or(0, |first| now - first);
        if !times.is_empty() {
            self.current.insert(network.to_owned(), times);
        }
        oldest
    }

    /// Keeps the times of a network that could not be examined.
    pub fn keep(&mut self, network: &NetworkName) {
        self.current.extend(self.earlier.remove_entry(network.as_str()));
    }

    /// Stores the times for the next run.
    pub fn write(&self) {
        if let Ok(text) = serde_json::to_string(&self.current) {
            system::boot::note(NOTE, &text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(now: u64, earlier: Times) -> Sightings {
        Sightings { now, earlier, current: Times::new() }
    }

    #[test]
    fn the_age_is_that_of_the_resource_that_has_been_known_for_longest() {
        let run = |now, earlier, resources: &[&str]| {
            let mut sightings = at(now, earlier);
            let age = sightings.record("net", resources.iter().map(|&one| one.to_owned()).collect());
            (age, sightings.current)
        };
        let (age, times) = run(1000, Times::new(), &["a"]);
        assert_eq!(age, 0);
        let (age, times) = run(1060, times, &["a", "b"]);
        assert_eq!(age, 60);
        let (age, times) = run(1100, times, &["b"]);
        assert_eq!(age, 40, "a was removed");
        let (age, times) = run(900, times, &["b"]);
        assert_eq!(age, 0, "the clock was set back");
        let (age, times) = run(1200, times, &[]);
        assert!(age == 0 && times.is_empty());
    }

    #[test]
    fn a_network_that_cannot_be_examined_keeps_its_times() {
        let times = Times::from([("net".to_owned(), BTreeMap::from([("a".to_owned(), 7)]))]);
        let mut sightings = at(1000, times.clone());
        sightings.keep(&NetworkName::parse("net").unwrap());
        assert_eq!(sightings.current, times);
    }
}
