//! Lack of descriptors and memory, and results that are not read.

use faults::{Count, EnvSweep, Fixture, ROLLBACK_FAILED, StayingPorts, Target, limits};
use lab::{Lab, Sample, beyond_reference};
use serde_json::json;

use super::sample;
use crate::common::dual_stack;

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

/// A runtime that has exited does not know about the attachment.
#[test]
fn an_add_whose_result_is_not_read_is_undone() {
    beyond_reference!("nothing-left");
    let pipe = "mkfifo /run/lab/plugins/pipe; exec 3<>/run/lab/plugins/pipe >/run/lab/plugins/pipe 3<&-";
    for target in Target::plugins() {
        let fixture = Fixture::new(&target);
        for stdout in [pipe, "exec >/dev/full"] {
            let script = format!("{stdout}; exec \"$0\"");
            let call = fixture.call("ADD", None).under(&["sh".into(), "-c".into(), script]);
            assert_eq!(call.add().exit, Some(1), "{}: {stdout}", target.name);
            assert_eq!(fixture.changes(), "", "{}: {stdout}", target.name);
        }
    }
}

/// Memory, descriptors, file size, and a read-only /proc or /sys, for every plugin.
#[test]
fn limits_of_a_process_end_in_success_or_leave_nothing() {
    beyond_reference!("nothing-left");
    EnvSweep { trials: limits(), sample: sample(61), workers: 2 }.run(|_| {}).assert_clean(15);
}

/// With both firewall backends. The iptables tools, which need more, have separate limits.
#[test]
fn sixteen_megabytes_are_enough_for_every_plugin_and_verb() {
    beyond_reference!("nothing-left");
    let [tried, succeeded] = every_plugin_with("as=16777216");
    assert!(tried == succeeded && tried >= 40, "{succeeded} of {tried} succeeded");
}

#[test]
fn one_more_descriptor_is_enough_for_the_rollback() {
    beyond_reference!("nothing-left");
    let [tried, succeeded] = every_plugin_with("nofile=4");
    assert!(succeeded < tried, "{succeeded} of {tried} succeeded");
}

/// flannel rolls back its ADD by another plugin's DEL, which needs as many descriptors as the ADD. It keeps the data
/// for its own DEL.
#[test]
fn a_rollback_that_fails_for_lack_of_descriptors_is_reported_and_del_and_gc_remove_the_rest() {
    beyond_reference!("nothing-left");
    let target = Target::of(|target| target.name == "flannel").swap_remove(0);
    let fixture = Fixture::new(&target);
    for cleanup in [Fixture::del, Fixture::gc] {
        let mut reported = 0;
        for limit in 5..10 {
            let call = fixture.call("ADD", None).under(&["prlimit".into(), format!("--nofile={limit}:")]);
            let run = call.add();
            run.error();
            let is_reported = run.stdout.contains(ROLLBACK_FAILED);
            assert!(
                is_reported || fixture.changes().is_empty(),
                "{limit}: {}{}",
                fixture.changes(),
                run.stdout
            );
            reported += u32::from(is_reported);
            cleanup(&fixture).ok();
            assert_eq!(fixture.changes(), "", "{limit}: {}", run.stdout);
        }
        assert!(reported > 0);
    }
}

#[test]
fn with_a_read_only_proc_the_error_of_add_names_the_sysctl_and_del_succeeds() {
    beyond_reference!("nothing-left");
    let [tried, succeeded] = every_plugin_with("/proc");
    assert!(succeeded < tried, "{succeeded} of {tried} succeeded");
}

#[test]
fn a_write_past_the_limit_of_a_file_is_a_failure_as_any_other() {
    beyond_reference!("nothing-left");
    let [tried, succeeded] = every_plugin_with("fsize=100");
    assert!(succeeded < tried, "{succeeded} of {tried} succeeded");
}

/// The numbers of tested cases of one fault, and of successes. Nothing was left in any case.
fn every_plugin_with(what: &str) -> [u32; 2] {
    let mut trials = limits();
    trials.retain(|trial| trial.target.staying_ports == StayingPorts::Others);
    trials.iter_mut().for_each(|trial| trial.faults.retain(|fault| fault.what == what));
    let outcomes = EnvSweep { trials, sample: Sample::WHOLE, workers: 2 }.run(|_| {});
    assert!(outcomes.findings.is_empty(), "{}", outcomes.findings.join("\n"));
    let sum = |of: fn(&Count) -> u32| outcomes.counts.values().map(of).sum();
    [sum(|count| count.tried), sum(|count| count.succeeded)]
}
