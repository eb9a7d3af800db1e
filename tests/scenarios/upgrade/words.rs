//! Ferrule refuses configurations that the reference's 1.9.1 refuses. For messages that scripts match, it uses the
//! reference's words. The tables are not complete: see there.

mod tables;

use std::path::Path;

use lab::dhcp::DhcpNetwork;
use lab::{Call, Lab, Outcome, Release, beyond_reference, needs, quirk, skip, under_test};
use serde_json::{Value, json};

use crate::vrf::manually_in;
use tables::{
    ACCEPTED, ACCEPTED_OF_KINDS, OF_KINDS, OTHER_WORDS, Refusal, Row, SAME_WORDS, accepted, refusals, rows,
};

/// Runs ADD on a separate host: stale interfaces of the reference would make Ferrule's ADD fail.
fn add(row: &Row, by: impl FnOnce(Call) -> Call) -> Outcome {
    let lab = Lab::new();
    let pod = lab.container("pod");
    crate::common::cable(&lab);
    if row.has_interface {
        lab.host().sh("ip link add eth0 netns pod type veth peer name veth0; ip link set veth0 up");
        pod.sh("ip link set eth0 up; ip addr add 10.1.2.2/24 dev eth0");
    }
    by(lab.plugin(row.plugin).on(&pod).stdin(row.document())).add()
}

fn by_1_9_1(call: Call) -> Call {
    call.by_release(Release::V1_9_1)
}

/// The message of the reference's error.
fn words_of(theirs: &Outcome) -> String {
    let document: Value = serde_json::from_str(&theirs.stdout).unwrap();
    let words = document["msg"].as_str();
    words.unwrap_or_else(|| panic!("1.9.1 accepts it: {theirs:?}")).to_owned()
}

fn words_of_the_reference(row: &Row) -> String {
    words_of(&add(row, by_1_9_1))
}

/// Whether the kernel lacks the plugin's kind of link. Then the row counts as skipped.
fn is_skipped(row: &Row) -> bool {
    let lacking = row.lacks();
    if let Some(feature) = lacking {
        skip(&format!("{}: this kernel has no {feature}", row.plugin));
    }
    lacking.is_some()
}

#[test]
fn messages_of_refusals_begin_with_the_words_of_the_reference() {
    if !Release::V1_9_1.is_here() {
        return;
    }
    for row in rows(SAME_WORDS) {
        let words = words_of_the_reference(&row);
        let ours = add(&row, |call| call).error();
        assert!(ours.msg.starts_with(&words), "{}: {words:?}, and ours {ours:?}", row.document());
    }
}

#[test]
fn an_address_without_a_prefix_in_cni_args_is_refused_in_the_words_of_the_reference() {
    if !Release::V1_9_1.is_here() {
        return;
    }
    let row = rows(r#"static {"ipam": {"type": "static"}}"#).next().unwrap();
    let words = words_of(&add(&row, |call| by_1_9_1(call.args("IP=10.0.0.1"))));
    assert!(words.starts_with("the 'ip' field is expected to be in CIDR notation"), "{words}");
    let ours = add(&row, |call| call.args("IP=10.0.0.1")).error();
    assert!(ours.msg.starts_with(&words), "{words:?}, and ours {ours:?}");
}

/// The reference's vrf begins all messages of ADD with this.
const VRF_PREFIX: &str = "cmdAdd failed: ";

#[test]
fn vrf_refuses_another_master_and_another_table_in_the_words_that_follow_the_references_prefix() {
    if !Release::V1_9_1.is_here() {
        return;
    }
    needs!(Vrf);
    for (before, keys, phrase) in [
        (
            "ip link add red type vrf table 77; ip link set eth0 master red",
            json!({}),
            "has already a master set",
        ),
        (
            "ip link add blue type vrf table 77",
            json!({"table": 78}),
            "already exist with different routing table",
        ),
    ] {
        let add = |by: fn(Call) -> Call| {
            let lab = Lab::new();
            let (pod, call) = manually_in(&lab, "1.0.0");
            pod.sh(before);
            by(call.config(keys.clone())).add()
        };
        let theirs = words_of(&add(by_1_9_1));
        let words = theirs.strip_prefix(VRF_PREFIX).unwrap_or_else(|| panic!("{theirs}"));
        assert!(words.contains(phrase), "{words}");
        beyond_reference!("errors");
        let ours = add(|call| call).error();
        assert!(ours.msg.starts_with(words), "{words:?}, and ours {ours:?}");
    }
}

/// Both refuse it, each in its own words.
fn both_refuse((row, refusal): (Row, Refusal)) {
    let theirs = words_of_the_reference(&row);
    assert!(theirs.contains(refusal.theirs), "{}: {theirs:?}", row.document());
    if !quirk("errors") {
        let ours = add(&row, |call| call).error();
        assert_eq!(ours.code, refusal.code, "{}: {theirs:?}, and ours {ours:?}", row.document());
        assert!(ours.msg.contains(refusal.ours), "{}: {theirs:?}, and ours {ours:?}", row.document());
    }
}

#[test]
fn configurations_that_the_reference_refuses_are_refused_with_a_code_and_the_keys_name() {
    if !Release::V1_9_1.is_here() {
        return;
    }
    refusals(OTHER_WORDS).for_each(both_refuse);
}

#[test]
fn refusals_of_dummy_ipvlan_and_vlan_have_a_code_and_the_keys_name() {
    if !Release::V1_9_1.is_here() {
        return;
    }
    refusals(OF_KINDS).filter(|(row, _)| !is_skipped(row)).for_each(both_refuse);
}

/// Only the reference refuses it.
fn ours_accepts((row, [words, anchor]): (Row, [&str; 2])) {
    let theirs = words_of_the_reference(&row);
    assert!(theirs.contains(words), "{}: {theirs:?}", row.document());
    if !quirk(anchor) {
        add(&row, |call| call).ok_result();
    }
}

#[test]
fn configurations_that_only_the_reference_refuses_have_an_entry_in_the_quirks() {
    if !Release::V1_9_1.is_here() {
        return;
    }
    accepted(ACCEPTED).for_each(ours_accepts);
}

#[test]
fn dummy_ipvlan_and_vlan_without_ipam_are_refused_only_by_the_reference() {
    if !Release::V1_9_1.is_here() {
        return;
    }
    accepted(ACCEPTED_OF_KINDS).filter(|(row, _)| !is_skipped(row)).for_each(ours_accepts);
}

/// Both daemons time out after two seconds here.
#[test]
fn an_add_that_no_dhcp_server_answers_fails_with_the_words_of_the_reference() {
    if !Release::V1_9_1.is_here() {
        return;
    }
    let run = |directory: &Path| {
        let mut net = DhcpNetwork::silent();
        net.use_daemon_of(directory);
        net.start_daemon("-timeout 1s -resendtimeout 2s");
        let (_pod, call) = net.plugged("pod");
        call.in_dir(directory).add()
    };
    let theirs: Value = serde_json::from_str(&run(&Release::V1_9_1.dir().unwrap()).stdout).unwrap();
    beyond_reference!("errors");
    let ours = run(&under_test().dir).error();
    assert_eq!(theirs["msg"], ours.msg);
    assert_eq!(ours.code, 11);
    assert!(ours.details.contains("a server with a free address"), "{ours:?}");
}
