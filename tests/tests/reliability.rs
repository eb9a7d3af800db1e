//! Short versions of the sweeps of docs/reliability.md: `make sweep` tries every case.

use serde_json::json;
use suite::sweep::{Plan, Race, Subject};
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

/// The capabilities that docs/reliability.md#privileges names are enough, and without one the error says what misses.
#[test]
fn bridge_needs_two_capabilities_and_says_so() {
    beyond_reference!("nothing-left");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = lab.plugin("bridge").config(dual_stack()).config(json!({"ipMasq": true})).on(&pod);
    let with = |capabilities: &str| {
        let bounding = format!("--bounding-set=-all{capabilities}");
        call.clone().under(&["setpriv".into(), bounding, "--inh-caps=-all".into()])
    };
    let enough = with(",+net_admin,+sys_admin");
    let result = enough.add().ok_result();
    enough.check(&result).ok();
    enough.del().ok();
    let before = lab.snapshot();
    for (capabilities, word) in
        [("", "CAP_SYS_ADMIN"), (",+net_admin", "CAP_SYS_ADMIN"), (",+sys_admin", "ermitted")]
    {
        let error = with(capabilities).add().error();
        assert!(format!("{error:?}").contains(word), "{capabilities}: {error:?}");
        lab.snapshot().assert_same(&before);
        with(capabilities).del().error();
    }
}

/// A runtime that is gone does not know of the attachment.
#[test]
fn a_result_that_nobody_reads_is_undone() {
    beyond_reference!("nothing-left");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = lab.plugin("bridge").config(dual_stack()).config(json!({"ipMasq": true})).on(&pod);
    call.add().ok_result();
    call.del().ok();
    let before = lab.snapshot();
    let pipe = "mkfifo /run/lab/plugins/pipe; exec 3<>/run/lab/plugins/pipe >/run/lab/plugins/pipe 3<&-";
    for stdout in [pipe, "exec >/dev/full"] {
        let script = format!("{stdout}; exec \"$0\"");
        let run = call.clone().under(&["sh".into(), "-c".into(), script]).add();
        assert_eq!(run.exit, Some(1), "{stdout}");
        lab.snapshot().assert_same(&before);
    }
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

#[test]
fn attachments_that_race_never_share_an_address_and_leave_nothing() {
    beyond_reference!("nothing-left");
    let finish = Race { workers: 20, rounds: 3 }.run();
    assert!(finish.findings.is_empty(), "{}", finish.findings.join("\n"));
    assert!(finish.attached > finish.refused, "{finish:?}");
}
