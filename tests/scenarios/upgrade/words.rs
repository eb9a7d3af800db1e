//! Ferrule refuses what the reference's 1.9.1 refuses, with the reference's words at the start of the message, for
//! scripts. The tables list all of its plugins' errors that a configuration can cause.

mod tables;

use std::path::Path;

use lab::dhcp::DhcpNetwork;
use lab::{Call, CniError, Lab, Release, beyond_reference, quirk, under_test};
use serde_json::Value;

use tables::{ACCEPTED, MISSING, OTHER_WORDS, Row, SAME_WORDS, row, rows};

/// Runs ADD on a separate host: stale interfaces of the reference would make Ferrule's ADD fail.
fn on_a_host<T>(Row(plugin, keys): &Row, run: impl FnOnce(&Call) -> T) -> T {
    let lab = Lab::new();
    let pod = lab.container("pod");
    crate::common::cable(&lab);
    run(&lab.plugin(plugin).on(&pod).config(keys.clone()))
}

/// The message of the reference's error.
fn words_of_the_reference(row: &Row) -> String {
    let said = on_a_host(row, |call| call.clone().by_release(Release::V1_9_1).add().stdout);
    let theirs: Value = serde_json::from_str(&said).unwrap();
    let words = theirs["msg"].as_str();
    words.unwrap_or_else(|| panic!("1.9.1 accepts {} {}: {theirs}", row.0, row.1)).to_owned()
}

/// The message of the reference's error, and Ferrule's error.
fn refusals(row: &Row) -> (String, CniError) {
    (words_of_the_reference(row), on_a_host(row, |call| call.add().error()))
}

#[test]
fn messages_of_refusals_begin_with_the_words_of_the_reference() {
    if !Release::V1_9_1.is_here() {
        return;
    }
    for row in rows(SAME_WORDS) {
        let (words, ours) = refusals(&row);
        assert!(ours.msg.starts_with(&words), "{} {}: {words:?}, and ours {ours:?}", row.0, row.1);
    }
}

#[test]
fn configurations_that_the_reference_refuses_are_refused_with_a_code_of_the_specification() {
    if !Release::V1_9_1.is_here() {
        return;
    }
    for row in rows(OTHER_WORDS) {
        let (words, ours) = refusals(&row);
        beyond_reference!("errors");
        assert!([2, 4, 5, 6, 7].contains(&ours.code), "{} {}: {words:?}, and ours {ours:?}", row.0, row.1);
        assert!(!ours.msg.contains("is taken"), "{} {}: refused for another reason: {ours:?}", row.0, row.1);
    }
}

#[test]
fn objects_that_the_reference_does_not_find_on_the_host_ours_do_not_find_either() {
    if !Release::V1_9_1.is_here() {
        return;
    }
    for row in rows(MISSING) {
        let (words, ours) = refusals(&row);
        assert!(!ours.msg.is_empty(), "{} {}: {words:?}, and ours {ours:?}", row.0, row.1);
    }
}

#[test]
fn configurations_that_only_the_reference_refuses_have_an_entry_in_the_quirks() {
    if !Release::V1_9_1.is_here() {
        return;
    }
    for line in ACCEPTED.lines().filter(|line| !line.is_empty()) {
        let (anchor, line) = line.split_once(": ").unwrap();
        let row = row(line);
        words_of_the_reference(&row);
        if quirk(anchor) {
            return;
        }
        on_a_host(&row, |call| call.add().ok_result());
    }
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
