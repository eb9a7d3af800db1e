//! `make demo`: two containers get a network, talk to each other, and are gone without a trace.
//!
//! Even the "host" is a namespace of its own, so nothing of the machine that it runs on is touched.
#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a demonstration speaks, and stops where it fails"
)]

use std::io::{IsTerminal, stdout};
use std::process::ExitCode;
use std::time::Instant;

use serde_json::{Value, json};
use suite::{Chain, Container, Lab, Outcome, Snapshot, under_test};

const IFNAME: &str = "eth0";

fn conflist() -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "demo",
        "plugins": [
            {"type": "loopback"},
            {
                "type": "bridge",
                "bridge": "cni0",
                "isDefaultGateway": true,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": "10.88.0.0/24"}], [{"subnet": "fd00:88::/64"}]],
                },
            },
        ],
    })
}

struct Attached {
    container: Container,
    result: Value,
}

fn main() -> ExitCode {
    let lab = Lab::new();
    // As on any host of containers; the bridge plugin would turn it on, and leaves it on.
    lab.host().sh("echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding");
    let network = lab.chain(conflist());
    let containers = ["web", "db"].map(|id| lab.container(id));
    let before = lab.snapshot();
    println!(
        "{} loopback, then bridge with host-local, from {}\n",
        bold("Chain"),
        under_test().dir.display()
    );

    println!("{}", bold("ADD"));
    let attached = containers.map(|container| attach(&network, container));
    print_table(&lab, &attached);

    println!("\n{}", bold("Ping"));
    let [web, db] = &attached;
    let reached = [ping(web, db), ping(db, web)] == [true, true];

    println!("\n{}", bold("CHECK"));
    for one in &attached {
        report(one, &network.check(&one.container, IFNAME, &one.result));
    }

    println!("\n{}", bold("DEL"));
    for one in &attached {
        report(one, &network.del(&one.container, IFNAME, &one.result));
    }

    println!("\n{}", bold("What is left"));
    let clean = is_clean(&lab, &before);
    ExitCode::from(u8::from(!(clean && reached)))
}

/// The network outlives its containers: a bridge without ports, and a folder without leases. Take these away and
/// the machine must be what it was.
fn is_clean(lab: &Lab, before: &Snapshot) -> bool {
    let ports = lab.host().ip("link show master cni0").len();
    let leases =
        lab.host().sh("cd /var/lib/cni/networks/demo && ls | grep -cv -e ^last_reserved_ip -e ^lock || true");
    println!("  of the network: bridge cni0 with {ports} ports, its store with {} leases", leases.trim());
    lab.host().sh("ip link del cni0; rm -r /var/lib/cni/networks");
    let left = lab.snapshot().since(before);
    let nothing = left.is_empty() && ports == 0 && leases.trim() == "0";
    let of_containers =
        if nothing { good("nothing: no link, address, route, rule or file") } else { bad(&left) };
    println!("  of the containers: {of_containers}");
    nothing
}

fn attach(network: &Chain, container: Container) -> Attached {
    let start = Instant::now();
    let result = network.add(&container, IFNAME).ok_result();
    println!("  {:4} attached in {:.1} ms", container.id, start.elapsed().as_secs_f64() * 1e3);
    Attached { container, result }
}

/// Who got which address on which interface, behind which bridge: the kernel's own view.
fn print_table(lab: &Lab, attached: &[Attached]) {
    let row = |cells: [&str; 6]| {
        let [container, interface, mac, addresses, peer, bridge] = cells;
        println!("  {container:<10} {interface:<10} {mac:<18} {addresses:<28} {peer:<14} {bridge}");
    };
    println!();
    row(["CONTAINER", "INTERFACE", "MAC", "ADDRESS", "HOST END", "BRIDGE"]);
    for one in attached {
        let link = one.container.link(IFNAME).expect("the interface is there");
        let host_end = host_end(lab, &link).expect("its other end is there");
        let mut identity = [one.container.id.as_str(), IFNAME, text(&link, "address")];
        let mut behind = [text(&host_end, "ifname"), text(&host_end, "master")];
        for address in one.container.addresses(IFNAME) {
            row([identity[0], identity[1], identity[2], &address, behind[0], behind[1]]);
            (identity, behind) = ([""; 3], [""; 2]);
        }
    }
    for address in lab.host().addresses("cni0") {
        row(["(host)", "cni0", "", &address, "", ""]);
    }
}

fn host_end(lab: &Lab, link: &Value) -> Option<Value> {
    lab.host().ip("link show").into_iter().find(|end| end["ifindex"] == link["link_index"])
}

fn text<'a>(link: &'a Value, key: &str) -> &'a str {
    link[key].as_str().unwrap_or_default()
}

fn ping(from: &Attached, to: &Attached) -> bool {
    let reached = to.container.addresses(IFNAME).into_iter().map(|address| {
        let address = address.split('/').next().unwrap_or_default().to_owned();
        let reached = from.container.reaches(&address);
        let answer = if reached { good("answers") } else { bad("is silent") };
        println!("  {:4} → {:4} {address:<16} {answer}", from.container.id, to.container.id);
        reached
    });
    // Every one of them is tried and shown.
    !reached.collect::<Vec<_>>().contains(&false)
}

fn report(one: &Attached, outcomes: &[Outcome]) {
    outcomes.iter().for_each(Outcome::ok);
    let plugins: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.what.split(' ').next()).collect();
    println!("  {:4} {}: {}", one.container.id, plugins.join(", "), good("ok"));
}

fn bold(text: &str) -> String {
    styled("1", text)
}

fn good(text: &str) -> String {
    styled("32", text)
}

fn bad(text: &str) -> String {
    styled("31", text)
}

/// Colours are for people only.
fn styled(code: &str, text: &str) -> String {
    if stdout().is_terminal() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}
