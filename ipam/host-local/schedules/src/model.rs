//! The expected result of concurrent commands: that of some sequential order which keeps the order of commands that did
//! not overlap (linearizability). A killed command may have happened, not happened, or partly happened.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::run::Run;
use crate::scenario::{Act, Leases, Scenario, Start};

/// A change that happens at one point between two steps.
#[derive(Debug)]
struct Event {
    deed: Deed,
    span: (usize, usize),
}

#[derive(Debug)]
enum Deed {
    Add(&'static str, End),
    Del(&'static str, End),
    Gc(&'static [&'static str], End),
    /// Whether the search deleted a lease file.
    ReleaseStale(End, bool),
    /// An administrator removes the file of an address.
    Remove(String),
}

/// The end of a command.
#[derive(Debug)]
enum End {
    /// The output: the address for an ADD, otherwise nothing.
    Success(String),
    RequestError(String),
    Killed,
}

/// Address → container.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    leases: BTreeMap<String, &'static str>,
    old_boot: bool,
}

/// Checks that the model can reach these leases.
///
/// # Errors
/// The events, if it cannot.
pub fn explain(scenario: &Scenario, run: &Run, found: &Leases) -> Result<(), String> {
    let events = events(scenario, run)?;
    let leases = [("10.1.0.2", "stays"), ("10.1.0.3", "goes")].map(|(ip, owner)| (ip.to_owned(), owner));
    let start = State {
        leases: if scenario.start == Start::Fresh { BTreeMap::new() } else { leases.into() },
        old_boot: scenario.start == Start::OldBoot,
    };
    let mut left: Vec<&Event> = events.iter().collect();
    if reaches(scenario, &mut left, &start, found) {
        return Ok(());
    }
    let deeds: Vec<_> = events.iter().map(|event| &event.deed).collect();
    Err(format!("no order of {deeds:?} leads to {found:?}"))
}

fn events(scenario: &Scenario, run: &Run) -> Result<Vec<Event>, String> {
    let mut events = Vec::new();
    for (process, act) in scenario.acts.iter().enumerate() {
        let span = run.span(process).unwrap_or_default();
        let deed = match *act {
            Act::Add(container) => Deed::Add(container, end(run, process)?),
            Act::Del(container) => Deed::Del(container, end(run, process)?),
            Act::Gc(valid) => Deed::Gc(valid, end(run, process)?),
            Act::ReleaseStale => {
                Deed::ReleaseStale(end(run, process)?, removed_leases(run, process).next().is_some())
            }
            Act::RemoveLocks | Act::Hold(_) => continue,
            Act::RemoveDirectory => {
                events.extend(removals(run, process));
                continue;
            }
        };
        events.push(Event { deed, span });
    }
    Ok(events)
}

/// Each removal of a file by `rm` is a separate event.
fn removals(run: &Run, process: usize) -> impl Iterator<Item = Event> {
    removed_leases(run, process)
        .map(|(at, name)| Event { deed: Deed::Remove(name.to_owned()), span: (at, at) })
}

/// The lease files that a process deleted, each with its step.
fn removed_leases(run: &Run, process: usize) -> impl Iterator<Item = (usize, &str)> {
    let steps =
        run.steps.iter().enumerate().filter(move |(_, taken)| taken.process == process && !taken.killed);
    let named = steps.filter_map(|(at, taken)| Some((at, taken.step.removes()?)));
    named.filter(|(_, name)| name.starts_with("10.1.0."))
}

fn end(run: &Run, process: usize) -> Result<End, String> {
    let Some((code, stdout)) = &run.endings[process] else { return Ok(End::Killed) };
    let document: Value = serde_json::from_str(stdout).unwrap_or_default();
    match code {
        0 => Ok(End::Success(document["ips"][0]["address"].as_str().unwrap_or_default().replace("/24", ""))),
        1 if document["msg"].is_string() => Ok(End::RequestError(stdout.clone())),
        _ => Err(format!("process {process} ended with {code} and {stdout:?}")),
    }
}

/// Whether some order of the events leads from the state to the leases.
fn reaches(scenario: &Scenario, events: &mut Vec<&Event>, state: &State, found: &Leases) -> bool {
    if events.is_empty() {
        let content = |owner: &&str| format!("{owner}\r\neth0");
        return state.leases.iter().map(|(ip, owner)| (ip.clone(), content(owner))).eq(found.clone());
    }
    (0..events.len()).any(|first| {
        let event = events.remove(first);
        // An event that ended before this one began cannot come after it.
        let in_order = events.iter().all(|other| other.span.1 >= event.span.0);
        let reached = in_order
            && state.after(&event.deed, scenario).iter().any(|next| reaches(scenario, events, next, found));
        events.insert(first, event);
        reached
    })
}

impl State {
    /// The possible states after an event. Empty: it cannot have ended like this.
    fn after(&self, deed: &Deed, scenario: &Scenario) -> Vec<Self> {
        match deed {
            Deed::Add(container, end) => self.after_add(container, end, scenario),
            Deed::Del(container, end) => self.after_removing(end, |owner| owner == *container),
            Deed::Gc(valid, end) => self.after_removing(end, |owner| !valid.contains(&owner)),
            Deed::ReleaseStale(end, removed) => self.after_search(end, *removed, scenario),
            Deed::Remove(ip) => vec![self.without(|other, _| other == ip)],
        }
    }

    fn after_add(&self, container: &'static str, end: &End, scenario: &Scenario) -> Vec<Self> {
        let dropped = if self.old_boot { self.without(|_, _| true) } else { self.clone() };
        let with = |ip: &str| {
            let mut next = dropped.clone();
            next.old_boot = false;
            next.leases.insert(ip.to_owned(), container).is_none().then_some(next)
        };
        let holds = dropped.leases.values().any(|owner| *owner == container);
        match end {
            End::Success(_) if holds => vec![],
            End::Success(ip) => with(ip).into_iter().collect(),
            End::RequestError(error) => {
                let full = dropped.leases.len() == scenario.room();
                let right = (holds && error.contains("duplicate allocation is not allowed"))
                    || (full && error.contains("no IP addresses available"))
                    || (scenario.removes_directory() && error.contains("No such file"));
                if right { vec![Self { old_boot: false, ..dropped }] } else { vec![] }
            }
            End::Killed => {
                let mut states: Vec<_> = (2..7).filter_map(|host| with(&format!("10.1.0.{host}"))).collect();
                states.push(dropped.clone());
                if self.old_boot {
                    states.extend(self.in_part(|_, _| true));
                }
                states
            }
        }
    }

    /// The search may release fewer leases than it could. If the container's file in the cache is truncated, the container may be alive.
    fn after_search(&self, end: &End, removed: bool, scenario: &Scenario) -> Vec<Self> {
        let is_stale = scenario.start == Start::Stale;
        let without = || self.without(|_, owner| is_stale && owner == "goes");
        match end {
            // The administrator's `rm` may have deleted the file immediately before.
            End::Success(_) if removed => {
                let may_be_late = scenario.removes_directory();
                vec![without()].into_iter().filter(|next| may_be_late || next != self).collect()
            }
            End::Success(_) => vec![self.clone()],
            End::RequestError(_) => vec![],
            End::Killed => vec![self.clone(), without()],
        }
    }

    fn after_removing(&self, end: &End, gone: impl Fn(&str) -> bool) -> Vec<Self> {
        match end {
            End::Success(_) => vec![self.without(|_, owner| gone(owner))],
            End::RequestError(_) => vec![],
            End::Killed => self.in_part(|_, owner| gone(owner)),
        }
    }

    fn without(&self, gone: impl Fn(&str, &str) -> bool) -> Self {
        let mut next = self.clone();
        next.leases.retain(|ip, owner| !gone(ip, owner));
        next
    }

    /// The states in which none, one or all of those leases are released. There are two at most.
    fn in_part(&self, gone: impl Fn(&str, &str) -> bool) -> Vec<Self> {
        let one = |ip: &String| self.without(|other, owner| other == ip && gone(other, owner));
        let ones = self.leases.keys().map(one);
        ones.chain([self.clone(), self.without(&gone)]).collect()
    }
}
