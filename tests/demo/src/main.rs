//! `make demo`: two containers get a network, are reached from everywhere, and are gone without a trace. Then pods on two machines reach
//! each other.
//!
//! Even the "host" is a namespace of its own, so nothing of the machine that it runs on is touched.
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
    // As on any host of containers; the bridge plugin would turn it on, and leaves it on.
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
