//! A plugin hit at its system calls.

use faults::{Beside, Plan, Subject};
use lab::beyond_reference;

/// Of some thousand cases a number that takes seconds. Prime: no two cases of a call's errors are always left out together.
fn sweep(subjects: Vec<Subject>, every: usize) {
    Plan { subjects, every, workers: 2 }.run(|_| {}).assert_clean();
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

/// What is there before and after is a port that leads to the one of the two attachments that stays.
#[test]
fn a_host_port_that_two_attachments_claim_leads_to_the_one_that_remains_after_faults_and_kills() {
    beyond_reference!("nothing-left");
    let of = |backend| [Beside::Older, Beside::Newer].map(|beside| Subject::claimed(backend, beside));
    sweep([of("nftables"), of("iptables")].concat(), 251);
}

#[test]
fn iptables_tools_that_fail_or_are_killed_leave_nothing() {
    beyond_reference!("nothing-left");
    sweep(vec![Subject::tool(), Subject::tool_of_portmap(), Subject::legacy_tool()], 31);
}

#[test]
fn tuning_and_loopback_leave_nothing_after_faults_and_kills() {
    beyond_reference!("nothing-left");
    sweep(vec![Subject::tuning(), Subject::loopback()], 29);
}

#[test]
fn a_runtime_leaves_nothing_after_faults_and_kills() {
    beyond_reference!("nothing-left");
    sweep(vec![Subject::managed()], 23);
}
