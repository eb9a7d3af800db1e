//! `make demo`: attaches two containers to a network, sends traffic between all of them, detaches them, and shows that
//! nothing is left. Then pods on two machines reach each other.
//!
//! The "host" is a network namespace too, so the machine is not changed.
#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a demonstration speaks, and stops where it fails"
)]

mod network;
mod remains;
mod show;
mod traffic;
mod two_machines;

use std::process::ExitCode;

use lab::{Lab, under_test};
use network::Demo;

fn main() -> ExitCode {
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
    let set = show::settings(&attached);

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
    drop(lab);

    show::title("Two machines with flannel's network");
    let across = two_machines::reach_each_other();
    let fine = clean && set && reached && across && pings == [true, true];
    show::verdict(fine);
    ExitCode::from(u8::from(!fine))
}
