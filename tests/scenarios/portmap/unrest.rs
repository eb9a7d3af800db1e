//! Large changes while other programs change the ruleset hundreds of times a second.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use lab::{Container, beyond_reference, meanwhile};

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
