//! Other programs change the ruleset hundreds of times a second, or before each transaction.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lab::{Container, Outcome, beyond_reference, meanwhile, stopping};

use super::*;
use crate::field::crowd::by_workers;

/// The number of host ports of the large attachments.
const PORTS: u16 = 1_000;

/// The number of other attachments on the host.
const OTHERS: u16 = 1_000;

/// The pause between two changes of the other program.
const PAUSE: Duration = Duration::from_millis(2);

/// Runs `work` while an interactive `nft` changes a table of its own.
fn while_others_change_the_ruleset<T>(work: impl FnOnce() -> T) -> T {
    let mut nft = interactive_nft();
    let input = nft.stdin.take().unwrap();
    writeln!(&input, "add table inet others; add set inet others busy {{ type inet_service; }}").unwrap();
    let change = || {
        for verb in ["add", "delete"] {
            writeln!(&input, "{verb} element inet others busy {{ 80 }}").unwrap();
            thread::sleep(PAUSE);
        }
    };
    let outcome = meanwhile(change, work);
    drop(input);
    assert!(nft.wait().unwrap().success());
    outcome
}

fn interactive_nft() -> Child {
    Command::new("nft").arg("-i").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

/// An attachment of portmap, with its number in its address.
fn attachment(lab: &Lab, pod: &Container, name: &str, number: u16, mappings: Value) -> Call {
    let [high, low] = number.to_be_bytes();
    let interface = json!({"name": "eth0", "sandbox": pod.path()});
    let ips = json!([{"address": format!("10.1.{high}.{low}/16"), "interface": 0}]);
    let prev = json!({"cniVersion": "1.1.0", "interfaces": [interface], "ips": ips});
    let call =
        lab.plugin("portmap").version("1.1.0").config(json!({"prevResult": prev, "backend": "nftables"}));
    call.config(mapped(mappings)).on(pod).env("CNI_CONTAINERID", name)
}

#[test]
fn large_changes_succeed_while_other_programs_change_the_ruleset() {
    beyond_reference!("nothing-left");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let others: Vec<_> = (0..OTHERS)
        .map(|n| attachment(&lab, &pod, &format!("other{n}"), 256 + n, json!([port("udp", 20_000 + n, 53)])))
        .collect();
    by_workers(&others, |call| call.add().ok_result());
    let ports: Value = (1..=PORTS).map(|n| port("udp", n, n)).collect();
    let [old, new] = [("old", 2), ("new", 3)].map(|(id, n)| attachment(&lab, &pod, id, n, ports.clone()));

    while_others_change_the_ruleset(|| {
        old.add().ok_result();
        // Claims all ports.
        new.add().ok_result();
        new.del().ok();
        // The ports return to the older attachment, which waited for them.
        old.run("CHECK").ok();
        old.del().ok();
        others[0].gc(&[("other0", "eth0")]).ok();
    });
    let left = lab.host().sh("nft list table inet ferrule");
    assert!(
        left.contains("net/other0/eth0") && !left.contains("net/other1/") && !left.contains("net/old/"),
        "{left}"
    );
}

/// The time limit for transactions that the kernel refuses because of other programs, as in docs/netfilter.md.
const LIMIT: Duration = Duration::from_secs(20);

/// A plugin that still tries then has no time limit. Many times as long as one attempt, for a busy machine.
const TOO_LATE: Duration = Duration::from_secs(60);

/// Runs a command of an attachment whose host port an older one has too. Each transaction is lost: after each read of
/// the generation, the plugin is stopped, and another program changes the table. Asserts that the command fails after
/// the time limit, that nothing was changed, and that a DEL works later.
fn loses_each_transaction(is_attached: bool, run: impl FnOnce(&Call) -> Outcome) {
    let lab = Lab::new();
    let [old, new] = [("old", 2), ("new", 3)]
        .map(|(id, number)| portmap(&lab, &lab.container(id), number).config(by("nftables")));
    old.add().ok_result();
    let without_new = lab.snapshot();
    if is_attached {
        new.add().ok_result();
    }
    let before = lab.snapshot();
    let (host, begun, mut attempts) = (lab.host(), Instant::now(), 0);
    let outcome = stopping(
        |strace| run(&new.clone().under(strace)),
        |request| {
            if request.contains("NFT_MSG_GETGEN") && begun.elapsed() < TOO_LATE {
                attempts += 1;
                // After changes in other tables, the plugin sends the transaction again without reading.
                host.try_exec(&["nft", "add chain inet ferrule others"]);
                host.try_exec(&["nft", "delete chain inet ferrule others"]);
            }
        },
    );
    let took = begun.elapsed();
    outcome.refused(11, "the plugin tried for 20 seconds");
    assert!((LIMIT..TOO_LATE).contains(&took) && attempts > 3, "{attempts} attempts in {took:?}");
    lab.snapshot().assert_same(&before);
    new.del().ok();
    lab.snapshot().assert_same(&without_new);
}

#[test]
fn an_add_that_loses_each_transaction_fails_with_code_11_after_20_seconds_and_changes_nothing() {
    beyond_reference!("nothing-left");
    loses_each_transaction(false, Call::add);
}

#[test]
fn a_del_that_loses_each_transaction_fails_with_code_11_after_20_seconds_and_changes_nothing() {
    beyond_reference!("nothing-left");
    loses_each_transaction(true, Call::del);
}

#[test]
fn a_gc_that_loses_each_transaction_fails_with_code_11_after_20_seconds_and_changes_nothing() {
    beyond_reference!("nothing-left");
    loses_each_transaction(true, |call| call.gc(&[("old", "eth0")]));
}
