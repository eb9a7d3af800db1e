//! Faults and kills at system calls of the plugins that `faults::Target` lists.

use std::fs;

use faults::{CompoundSweep, DaemonSweep, Family, Hit, Plan, Share, StayingPorts, Target, given_seed};
use lab::{beyond_reference, firewalld, needs};

use super::{printed_seed, sample};

/// The test below that runs a target.
#[derive(Debug, PartialEq)]
enum Part {
    Plugins,
    /// Targets with kinds of links that some kernels lack, and with VLANs of a bridge. `make test-vm` runs them.
    Links,
    Nftables,
    Iptables,
    Firewalld,
    Claims,
    FirstAndLast,
    StartedByPlugins,
    Runtime,
}

fn part(target: &Target) -> Part {
    match (target.hit, target.staying_ports, target.backend) {
        (Hit::Runtime, ..) => Part::Runtime,
        (Hit::Delegate(_) | Hit::Tools(_), ..) => Part::StartedByPlugins,
        (Hit::Plugin, StayingPorts::Older | StayingPorts::Newer, _) => Part::Claims,
        (Hit::Plugin, StayingPorts::Others, None) if target.is_of_a_rare_kind() => Part::Links,
        _ if target.alone => Part::FirstAndLast,
        (Hit::Plugin, StayingPorts::Others, None) => Part::Plugins,
        (Hit::Plugin, StayingPorts::Others, Some("nftables")) => Part::Nftables,
        (Hit::Plugin, StayingPorts::Others, Some("firewalld")) => Part::Firewalld,
        (Hit::Plugin, StayingPorts::Others, Some(_)) => Part::Iptables,
    }
}

/// docs/reliability.md has the figures of all plugins, and the commit of each table that scripts write. docs/testing.md lists each fuzz
/// target.
#[test]
fn the_pages_have_a_row_for_each_swept_plugin_and_each_fuzz_target() {
    let page = |name: &str| fs::read_to_string(lab::repository().join("docs").join(name)).unwrap();
    let (reliability, testing) = (page("reliability.md"), page("testing.md"));
    let figures = |name: &str| {
        let (_, begin) = reliability.split_once(&format!("<!-- {name} -->")).expect(name);
        begin.split_once(&format!("<!-- /{name} -->")).expect(name).0
    };
    for target in Target::all_plugins() {
        // `scripts/sweep --links` writes the rows of these plugins, because other kernels lack their links.
        let table = figures(if target.is_of_a_rare_kind() { "links" } else { "ours" });
        assert!(table.contains(&format!("\n| {} |", target.plugin())), "no figures of {}", target.plugin());
    }
    let begins = reliability.lines().filter_map(|line| line.strip_prefix("<!-- ")?.strip_suffix(" -->"));
    let tables: Vec<&str> =
        begins.filter(|name| reliability.contains(&format!("<!-- /{name} -->"))).collect();
    assert!(tables.len() >= 10, "{tables:?}");
    for name in tables {
        assert!(figures(name).contains("\nCommit"), "the table {name} does not name its commit");
    }
    let (_, conditions) = testing.split_once("\n| target | input | conditions |").unwrap();
    let conditions = conditions.split("\n\n").next().unwrap();
    let named: Vec<&str> = conditions
        .lines()
        .filter_map(|row| row.strip_prefix("| ")?.split(" |").next())
        .flat_map(|targets| targets.split(", "))
        .collect();
    // A target's seeds have its name.
    for entry in fs::read_dir(lab::repository().join("fuzz/corpus")).unwrap().flatten() {
        let target = entry.file_name().into_string().unwrap();
        assert!(named.contains(&&*target), "no row of the fuzz target {target}: {named:?}");
    }
}

/// Runs a sample of a target's hundreds of cases, which takes seconds. `make sweep` runs all.
fn sweep(expected: Part) {
    let targets = Target::of(|target| part(target) == expected);
    let (share, seed) = (Share::AtLeast(20), printed_seed());
    Plan { targets, share, seed, workers: 2, compares: false }.run(|_| {}).assert_clean(15);
}

#[test]
fn plugins_leave_nothing_after_faults_and_kills() {
    beyond_reference!("nothing-left");
    sweep(Part::Plugins);
}

/// Runs a sample of the cases of a plugin whose links some kernels lack. `make test-vm` runs these tests, and `make
/// test-vm-short` one of them: a VM without KVM is ten times as slow.
fn sweep_links(plugin: &str) {
    let targets =
        Target::of(|target| part(target) == Part::Links && target.plugin() == plugin && !target.single);
    let (share, seed) = (Share::AtLeast(8), printed_seed());
    Plan { targets, share, seed, workers: 2, compares: false }.run(|_| {}).assert_clean(6);
}

#[test]
fn bridge_leaves_nothing_in_a_vlan_after_faults_and_kills() {
    beyond_reference!("nothing-left");
    needs!(BridgeVlanFiltering);
    sweep_links("bridge");
}

#[test]
fn dummy_leaves_nothing_after_faults_and_kills() {
    beyond_reference!("nothing-left");
    needs!(Dummy);
    sweep_links("dummy");
}

#[test]
fn ipvlan_leaves_nothing_after_faults_and_kills() {
    beyond_reference!("nothing-left");
    needs!(Ipvlan);
    sweep_links("ipvlan");
}

#[test]
fn vlan_leaves_nothing_after_faults_and_kills() {
    beyond_reference!("nothing-left");
    needs!(Vlan);
    sweep_links("vlan");
}

#[test]
fn vrf_leaves_nothing_after_faults_and_kills() {
    beyond_reference!("nothing-left");
    needs!(Vrf);
    sweep_links("vrf");
}

/// Has found an error of an ADD that did not report its rollback's failure.
const SEED: u64 = 1_433_997_135;

/// The same pairs in each run, so that a change is judged by what it changes. `make sweep` tries others; `FERRULE_SEED` selects them here.
#[test]
fn after_a_failed_rollback_the_next_del_or_gc_removes_everything() {
    beyond_reference!("nothing-left");
    let targets = Target::of(CompoundSweep::fits);
    let sweep = CompoundSweep { targets, pairs: 2, seed: given_seed().unwrap_or(SEED), workers: 2 };
    println!("the seed is {}", sweep.seed);
    sweep.run(|_| {}).assert_clean(15);
}

#[test]
fn firewall_rules_leave_nothing_after_faults_and_kills() {
    beyond_reference!("nothing-left");
    sweep(Part::Nftables);
}

#[test]
fn rules_by_iptables_leave_nothing_after_faults_and_kills() {
    beyond_reference!("nothing-left");
    sweep(Part::Iptables);
}

#[test]
fn sources_of_firewalld_s_zones_leave_nothing_after_faults_and_kills() {
    beyond_reference!("nothing-left");
    if firewalld::is_here() {
        sweep(Part::Firewalld);
    }
}

/// Before and after, the port leads to the attachment that stays.
#[test]
fn a_host_port_that_two_attachments_claim_leads_to_the_one_that_remains_after_faults_and_kills() {
    beyond_reference!("nothing-left");
    sweep(Part::Claims);
}

/// They create the bridge, tables and chains, and remove the last rules.
#[test]
fn the_first_and_the_last_attachment_leave_nothing_after_faults_and_kills() {
    beyond_reference!("nothing-left");
    sweep(Part::FirstAndLast);
}

#[test]
fn ipam_plugins_and_iptables_tools_that_fail_or_are_killed_leave_nothing() {
    beyond_reference!("nothing-left");
    sweep(Part::StartedByPlugins);
}

#[test]
fn a_runtime_leaves_nothing_after_faults_and_kills() {
    beyond_reference!("nothing-left");
    sweep(Part::Runtime);
}

#[test]
fn after_a_kill_of_the_dhcp_daemon_at_any_moment_no_lease_is_lost_or_stale() {
    beyond_reference!("dhcp-restart");
    sweep_daemon(Family::V4);
}

#[test]
fn after_a_kill_of_the_dhcp_daemon_at_any_moment_no_ipv6_lease_is_lost_or_stale() {
    beyond_reference!("dhcp-v6");
    sweep_daemon(Family::V6);
}

fn sweep_daemon(family: Family) {
    if let Some(lives) = (DaemonSweep { family, sample: sample(41), workers: 2 }).run(|_| {}) {
        assert!(lives.tried >= 5 && lives.findings.is_empty(), "{lives:?}");
    }
}
