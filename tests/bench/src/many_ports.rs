//! Attachments with a thousand ports, next to thousands of others and a program that changes the ruleset 200 times a second.

use std::time::Duration;

use lab::Call;
use serde_json::{Value, json};

use crate::collection::mapped;
use crate::machine::Prepare;
use crate::process::{How, Spent, run};
use crate::unrest;

const PORTS: u16 = 1_000;

/// 200 changes a second.
const PAUSE: Duration = Duration::from_millis(5);

/// ADD, ADD of another attachment with the same ports, DEL of both, and GC with nothing to remove.
pub fn many_ports(others: u16) -> Box<Prepare> {
    Box::new(move |lab, side| {
        let pod = lab.container("pod");
        lab.host().sh("nft 'table inet others { set busy { type inet_service; }; }'");
        let call = side.plugin(lab, "portmap").version("1.1.0").on(&pod);
        let mut failures = Vec::new();
        for n in 0..others {
            let add = call.clone().config(mapped(n)).env("CNI_CONTAINERID", &format!("other{n}"));
            failures.append(&mut run(&add, "ADD", How::Timed).0.failures);
        }
        let valid = (0..others).map(|n| json!({"containerID": format!("other{n}"), "ifname": "eth0"}));
        let gc = call.clone().config(json!({"cni.dev/valid-attachments": valid.collect::<Value>()}));
        let [old, new] = [others, others + 1].map(|n| large(&call, n));
        Box::new(move |how| {
            let run = |call: &Call, command| run(call, command, how).0;
            let work = || {
                vec![run(&old, "ADD"), run(&new, "ADD"), run(&new, "DEL"), run(&old, "DEL"), run(&gc, "GC")]
            };
            let mut spent: Vec<Spent> = unrest::with_a_writer(PAUSE, work);
            spent[0].failures.append(&mut failures);
            spent
        })
    })
}

/// An attachment with the many ports.
fn large(call: &Call, n: u16) -> Call {
    let port = |n: u16| json!({"hostPort": n, "containerPort": n, "protocol": "udp"});
    let mut config = mapped(n);
    config["runtimeConfig"] = json!({"portMappings": (1..=PORTS).map(port).collect::<Value>()});
    call.clone().config(config).env("CNI_CONTAINERID", &format!("large{n}"))
}
