//! Short versions of the sweeps of docs/reliability.md: `make sweep` tries every case.

use serde_json::json;
use suite::sweep::{Plan, Subject};
use suite::{Lab, beyond_reference};

use crate::common::dual_stack;

/// Of some thousand cases a number that takes seconds. Prime: no two cases of a call's errors are always left out together.
fn sweep(subjects: Vec<Subject>, every: usize) {
    let outcomes = Plan { subjects, every, workers: 2 }.run(|_| {});
    let tried: u32 = outcomes.counts.values().map(|count| count.tried).sum();
    assert!(tried >= 20, "only {tried} cases were reached");
    assert!(outcomes.findings.is_empty(), "of {tried} cases:\n{}", outcomes.findings.join("\n"));
}

#[test]
fn bridge_and_its_address_plugin_leave_nothing_after_faults_and_kills() {
    beyond_reference!("nothing-left");
    sweep(vec![Subject::bridge(), Subject::delegated()], 61);
}

#[test]
fn firewall_rules_leave_nothing_after_faults_and_kills() {
    beyond_reference!("nothing-left");
    sweep(vec![Subject::guarded("nftables"), Subject::portmap("nftables")], 101);
}

#[test]
fn rules_by_iptables_leave_nothing_after_faults_and_kills() {
    beyond_reference!("nothing-left");
    sweep(vec![Subject::guarded("iptables"), Subject::portmap("iptables")], 151);
}

#[test]
fn tuning_and_loopback_leave_nothing_after_faults_and_kills() {
    beyond_reference!("nothing-left");
    sweep(vec![Subject::tuning(), Subject::loopback()], 29);
}

#[test]
fn an_add_with_few_descriptors_works_or_leaves_nothing() {
    beyond_reference!("nothing-left");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = lab.plugin("bridge").config(dual_stack()).config(json!({"ipMasq": true})).on(&pod);
    call.add().ok_result();
    call.del().ok();
    let before = lab.snapshot();
    let limited = |limit: &str| call.clone().under(&["prlimit".into(), limit.into()]);
    let mut outcomes = Vec::new();
    for limit in 3..16 {
        let run = limited(&format!("--nofile={limit}")).add();
        outcomes.push(run.succeeded());
        if run.succeeded() {
            call.del().ok();
        } else {
            run.error();
        }
        lab.snapshot().assert_same(&before);
    }
    assert!(!outcomes[0] && outcomes[12], "{outcomes:?}");
}

#[test]
fn sixteen_megabytes_are_enough() {
    beyond_reference!("nothing-left");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = lab.plugin("bridge").config(dual_stack()).config(json!({"ipMasq": true})).on(&pod);
    let call = call.under(&["prlimit".into(), "--as=16777216".into()]);
    let result = call.add().ok_result();
    call.check(&result).ok();
    call.del().ok();
}
