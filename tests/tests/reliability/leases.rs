//! Commands that meet on host-local's data directory, in every order of their system calls that few preemptions make.

use suite::beyond_reference;
use suite::interleave::{Scenario, explore};

/// One schedule in a few, which takes seconds; `make sweep` goes one preemption further. Prime, as in faults.rs.
const EVERY: usize = 11;

fn interleave(chosen: impl Fn(&Scenario) -> bool) {
    for scenario in Scenario::all().into_iter().filter(chosen) {
        let explored = explore(&Scenario { bound: 1, ..scenario.clone() }, EVERY, 2);
        assert!(explored.kills > 1 && explored.schedules > explored.kills, "{scenario}: {explored:?}");
        assert!(explored.findings.is_empty(), "{scenario}:\n{}", explored.findings.join("\n"));
    }
}

#[test]
fn commands_at_once_come_out_as_one_after_the_other() {
    beyond_reference!("nothing-left");
    interleave(|scenario| !scenario.removes_folder());
}

#[test]
fn an_address_is_given_once_though_the_folder_is_removed_meanwhile() {
    beyond_reference!("nothing-left");
    interleave(Scenario::removes_folder);
}
