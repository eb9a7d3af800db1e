//! When `cnitool metrics` first found each stale resource: a note that lasts until the next boot ([`system::boot`]).

use std::collections::BTreeMap;
use std::io;

use cni::NetworkName;
use rustix::time::{ClockId, clock_gettime};

use crate::cleanup::Plan;

/// The name of the note.
const NOTE: &str = "stale";

/// Network → resource → the time when the resource was first found, in seconds since the boot (`CLOCK_BOOTTIME`).
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
        let now = clock_gettime(ClockId::Boottime).tv_sec.cast_unsigned();
        Self { now, earlier: parse(system::boot::noted(NOTE)), current: Times::new() }
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
        let first = |resource: &String| earlier.get(resource).map_or(now, |first| now.min(*first));
        let times: BTreeMap<_, _> = resources
            .into_iter()
            .map(|resource| {
                let first = first(&resource);
                (resource, first)
            })
            .collect();
        let oldest = times.values().min().map_or(0, |first| now - first);
        self.current.insert(network.to_owned(), times);
        oldest
    }

    /// Stores the times for the next run.
    ///
    /// # Errors
    /// If the note cannot be written. The ages then start again at 0.
    pub fn write(&self) -> io::Result<()> {
        system::boot::update(NOTE, |note| self.merged(parse(note)).unwrap_or_default())
    }

    /// The new note. It contains the earlier times of networks that this run could not examine or did not find. If
    /// another run has found a resource earlier in the meantime, its time counts.
    fn merged(&self, mut times: Times) -> serde_json::Result<String> {
        for (network, found) in &self.current {
            let others = times.remove(network).unwrap_or_default();
            let earliest = |(resource, first): (&String, &u64)| {
                let first = others.get(resource).map_or(*first, |other| *first.min(other));
                (resource.clone(), first)
            };
            times.insert(network.clone(), found.iter().map(earliest).collect());
        }
        times.retain(|_, resources| !resources.is_empty());
        serde_json::to_string(&times)
    }
}

/// Without a valid note, no resource is known.
fn parse(note: Option<String>) -> Times {
    note.and_then(|note| serde_json::from_str(&note).ok()).unwrap_or_default()
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
        let (age, times) = run(1200, times, &[]);
        assert!(age == 0 && times["net"].is_empty());
    }

    fn note(times: &[(&str, &str, u64)]) -> Times {
        let mut all = Times::new();
        for &(network, resource, first) in times {
            all.entry(network.to_owned()).or_default().insert(resource.to_owned(), first);
        }
        all
    }

    #[test]
    fn the_note_keeps_networks_that_were_not_examined_and_the_earliest_time_of_concurrent_runs() {
        let mut sightings = at(1000, note(&[("net", "a", 7), ("failed", "c", 8), ("net", "removed", 9)]));
        sightings.record("net", ["a", "b"].map(str::to_owned).to_vec());
        sightings.record("clean", Vec::new());
        // Another run has ended meanwhile: it started earlier, and found b first.
        let other = note(&[("net", "b", 990), ("net", "removed", 9), ("failed", "c", 8), ("clean", "d", 5)]);
        let merged = parse(sightings.merged(other).ok());
        assert_eq!(merged, note(&[("net", "a", 7), ("net", "b", 990), ("failed", "c", 8)]));
    }
}
