//! GC of what many containers left that nobody detached.

use serde_json::{Value, json};

use crate::machine::Prepare;
use crate::process::{How, Spent, run};

/// What was attached through portmap alone: two ports of both families for each container.
pub fn collection(containers: u16) -> Box<Prepare> {
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
