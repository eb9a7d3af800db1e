//! Concurrent commands on host-local's data directory, in every order of their system calls with few preemptions.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Mutex;
use std::{fs, thread};

use lab::{Call, Lab, Outcome, beyond_reference};
use schedules::{Scenario, explore};
use serde_json::{Value, json};

use super::sample;

/// Runs a sample of the schedules, which takes seconds. `make sweep` runs one more preemption. Prime, as in faults.rs.
const EVERY: usize = 11;

fn interleave(chosen: impl Fn(&Scenario) -> bool) {
    let sample = sample(EVERY);
    for scenario in Scenario::all().into_iter().filter(chosen) {
        let explored = explore(&Scenario { bound: 1, ..scenario.clone() }, sample, 2);
        assert!(explored.kills > 1 && explored.schedules > explored.kills, "{scenario}: {explored:?}");
        assert!(explored.findings.is_empty(), "{scenario}:\n{}", explored.findings.join("\n"));
    }
}

#[test]
fn concurrent_commands_have_the_result_of_a_sequential_order() {
    beyond_reference!("nothing-left");
    interleave(|scenario| !scenario.removes_directory());
}

#[test]
fn an_address_is_allocated_once_even_if_the_directory_is_removed_meanwhile() {
    beyond_reference!("nothing-left");
    interleave(Scenario::removes_directory);
}

/// The result of an ADD. After a timeout for the reference's lock, the plugin may have looked at an address just before
/// it was released.
fn attach(call: &Call) -> Value {
    let missed = |run: &Outcome| run.stdout.contains("no IP addresses available");
    (0..100).map(|_| call.add()).find(|run| !missed(run)).expect("an address is free").ok_result()
}

/// As on a host whose plugins are replaced while containers start and stop. There are exactly enough addresses.
#[test]
fn ours_and_the_reference_allocate_no_address_twice_concurrently() {
    const CONCURRENT: usize = 12;
    beyond_reference!("nothing-left");
    let lab = Lab::new();
    let range = json!({"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.2", "rangeEnd": "10.1.0.13"});
    let ipam = json!({"type": "host-local", "dataDir": "/run/lab/data", "ranges": [[range]]});
    let leases = Path::new("/run/lab/data/net");
    let call = lab.plugin("host-local").config(json!({"ipam": ipam})).env("CNI_NETNS", "/run/netns/none");
    let alive = Mutex::new(HashSet::new());
    let come_and_go = |number: usize| {
        let ours = call.clone().env("CNI_CONTAINERID", &format!("c{number}"));
        let theirs = ours.clone().by_the_reference();
        let of = |ours_or_theirs: usize| -> &Call {
            if ours_or_theirs.is_multiple_of(2) { &ours } else { &theirs }
        };
        for round in 0..8 {
            let result = attach(of(number + round));
            let address = result["ips"][0]["address"].as_str().unwrap().trim_end_matches("/24");
            assert!(alive.lock().unwrap().insert(address.to_owned()), "{address} is alive twice");
            // The others allocate meanwhile.
            thread::yield_now();
            let lease = fs::read_to_string(leases.join(address)).unwrap();
            assert_eq!(lease, format!("c{number}\r\neth0"), "the lease of {address}");
            alive.lock().unwrap().remove(address);
            of(number + round / 2).del().ok();
        }
    };
    thread::scope(|scope| {
        for number in 0..CONCURRENT {
            let come_and_go = &come_and_go;
            scope.spawn(move || come_and_go(number));
        }
    });
    let names = fs::read_dir(leases).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with("10.")).collect();
    assert!(left.is_empty(), "{left:?}");
}
