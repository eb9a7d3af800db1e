//! `make demo`: attaches two containers to a network, sends traffic between all of them, detaches them, and shows that
//! nothing is left. Then pods on two machines reach each other.
//!
//! The "host" is a network namespace too, so the machine is not changed.
#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a demonstration speaks, and stops where it fails"
)]

mod chains;
mod network;
mod remains;
mod show;
mod traffic;
mod two_machines;

use std::env;
use std::process::ExitCode;

use lab::{Lab, under_test};
use network::Demo;

/// Runs both parts, or the one that the argument names: `containers` or `machines`.
fn main() -> ExitCode {
    let chosen = env::args().nth(1);
    let runs = |part: &str| chosen.as_ref().is_none_or(|chosen| chosen == part);
    let mut worked = Vec::new();
    if runs("containers") {
        worked.extend(containers_talk());
    }
    if runs("machines") {
        show::title("Two machines with flannel's network");
        worked.extend(two_machines::reach_each_other());
    }
    assert!(!worked.is_empty(), "the parts are containers and machines");
    let failed: Vec<_> = worked.into_iter().filter(|(_, fine)| !fine).map(|(part, _)| part).collect();
    show::verdict(&failed);
    ExitCode::from(u8::from(!failed.is_empty()))
}

/// Attaches two containers on one machine, and returns which plugins and commands worked.
fn containers_talk() -> Vec<(&'static str, bool)> {
    let lab = Lab::new();
    // As on any host with containers, forwarding is on before the plugins run. The bridge plugin would turn it on and
    // leave it on.
    lab.host().sh("echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding");
    let client = lab.machine("client");
    let containers = ["web", "db"].map(|id| lab.container(id));
    let demo = Demo::new();
    let before = remains::of_the_machine(&lab);
    println!("{} {}, from {}", show::bold("Chain"), demo.plugins(), under_test().dir.display());

    show::title("ADD");
    let attached = containers.map(|container| demo.add(container));
    show::attachments(&lab, &attached);
    let [lo, backlog] = show::settings(&attached);

    let [web, db] = &attached;
    show::title("Ping");
    let pings = [traffic::ping(web, db), traffic::ping(db, web)];
    show::title("Ports of the host that lead to web, and masquerade");
    let reached = traffic::everywhere(&lab, &client, web, db);

    show::title("CHECK");
    attached.iter().for_each(|one| demo.check(one));
    show::title("DEL");
    attached.iter().for_each(|one| demo.del(one));

    show::title("What is left");
    let clean = remains::none(&lab, &before);
    let bridged = pings == [true, true];
    vec![
        ("loopback", lo),
        ("tuning", backlog),
        ("bridge with host-local", bridged),
        ("portmap", reached),
        ("DEL", clean),
    ]
}
