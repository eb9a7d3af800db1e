//! Descriptors, memory and readers that run out.

use serde_json::json;
use suite::{Lab, beyond_reference};

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
