//! GC: of what many containers left that nobody detached, and beside many that are there.

use serde_json::{Value, json};

use crate::machine::Prepare;
use crate::networks::bridged;
use crate::process::{How, Spent, run};
use crate::rounds::in_parallel;

/// What was attached through portmap alone: two ports of both families for each container.
pub fn of_stale_mappings(containers: u16) -> Box<Prepare> {
    Box::new(move |lab, side| {
        let pod = lab.container("pod");
        let call = side.plugin(lab, "portmap").version("1.1.0").on(&pod);
        Box::new(move |how| {
            let mut spent = Spent::default();
            for n in 0..containers {
                let add = call.clone().config(mapped(n)).env("CNI_CONTAINERID", &format!("stale{n}"));
                spent.failures.append(&mut run(&add, "ADD", How::Timed).0.failures);
            }
            let gc = call.clone().config(json!({"cni.dev/valid-attachments": []}));
            spent.then(run(&gc, "GC", how).0);
            vec![spent]
        })
    })
}

/// How many ports the kernel lets a bridge have, less one.
const PORTS: u16 = 1_000;

/// Attachments that all are there yet: links, rules and leases, none of which may go.
pub fn of_valid_attachments(count: u16) -> Box<Prepare> {
    Box::new(move |lab, side| {
        let pod = lab.container("pod");
        let bridge = side.network(lab, &bridged(side, 0)).remove(0).version("1.1.0").on(&pod);
        let bridge = bridge.config(json!({"isDefaultGateway": null, "ipMasq": true}));
        let numbers: Vec<_> = (0..count).collect();
        let add = |n: &u16| {
            let call =
                bridge.clone().ifname(&format!("e{n}")).config(json!({"bridge": format!("br{}", n / PORTS)}));
            run(&call, "ADD", How::Timed).0
        };
        let mut failures = in_parallel(&numbers, 4, add).failures;
        let valid = numbers.iter().map(|n| json!({"containerID": "pod", "ifname": format!("e{n}")}));
        let gc = bridge.config(json!({"cni.dev/valid-attachments": valid.collect::<Value>()}));
        Box::new(move |how| {
            let mut spent = run(&gc, "GC", how).0;
            spent.failures.append(&mut failures);
            vec![spent]
        })
    })
}

fn mapped(n: u16) -> Value {
    let port =
        |host: u16, container: u16| json!({"hostPort": host, "containerPort": container, "protocol": "tcp"});
    let [high, low] = n.to_be_bytes();
    let ips = [format!("10.1.{high}.{low}/16"), format!("fd00:1::{n:x}/64")];
    let ips = ips.map(|address| json!({"address": address, "interface": 0}));
    json!({
        "prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": "/run/netns/pod"}], "ips": ips},
        "runtimeConfig": {"portMappings": [port(10_000 + 2 * n, 80), port(10_001 + 2 * n, 81)]},
    })
}
