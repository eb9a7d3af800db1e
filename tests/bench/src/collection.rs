//! GC: with many stale attachments, and with many valid ones.

use std::fs;
use std::ops::Range;

use lab::{Lab, Netns};
use serde_json::{Value, json};

use crate::machine::Prepare;
use crate::networks::{STORE, address, bridged, lease};
use crate::process::{How, Spent, run};
use crate::side::Side;

/// Attachments through portmap only: each container has two ports of both families.
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

/// Many valid attachments, with links, rules and leases, none of which GC may remove. The plugin creates the first one.
/// The others are created after it, all together.
pub fn of_valid_attachments(count: u32) -> Box<Prepare> {
    Box::new(move |lab, side| {
        let pod = lab.container("pod");
        let bridge = side.network(lab, &bridged(side, 0)).remove(0).version("1.1.0").on(&pod);
        let bridge = bridge.config(json!({"isDefaultGateway": null, "ipMasq": true}));
        let mut failures = run(&bridge.clone().ifname("e0"), "ADD", How::Timed).0.failures;
        add_links(lab, 1..count);
        add_rules(lab, 1..count);
        (1..count).for_each(|n| lease(n, &format!("pod\r\ne{n}")));
        let valid = (0..count).map(|n| json!({"containerID": "pod", "ifname": format!("e{n}")}));
        let gc = bridge.config(json!({"cni.dev/valid-attachments": valid.collect::<Value>()}));
        let (host, there) = (lab.host().clone(), size(lab.host()));
        Box::new(move |how| {
            let mut spent = run(&gc, "GC", how).0;
            spent.failures.append(&mut failures);
            let left = size(&host);
            spent.failures.extend((left != there).then(|| format!("of {there:?}, GC left {left:?}")));
            vec![spent]
        })
    })
}

/// The usual number of other attachments.
const ATTACHMENTS: u16 = 5_000;

/// Attachments through portmap and firewall, and their elements in the masquerade sets of the attached container.
/// `BENCH_ATTACHMENTS=50` tries a smaller number.
pub fn attachments(lab: &Lab, side: Side) -> Spent {
    let count =
        std::env::var("BENCH_ATTACHMENTS").map_or(ATTACHMENTS, |text| text.parse().expect("a number"));
    let pod = lab.container("others");
    lab.host().sh("ip link add eth0 netns others type veth peer name others0");
    let calls = ["portmap", "firewall"].map(|plugin| side.plugin(lab, plugin).version("1.1.0").on(&pod));
    let mut sum = Spent::default();
    for n in 0..count {
        for call in &calls {
            let add = call.clone().config(mapped(n)).env("CNI_CONTAINERID", &format!("other{n}"));
            sum.then(run(&add, "ADD", How::Timed).0);
        }
    }
    add_rules(lab, 1..u32::from(count) + 1);
    sum
}

/// Veth pairs with the aliases of their attachments.
fn add_links(lab: &Lab, numbers: Range<u32>) {
    let link = |n| {
        format!(
            "link add name veth{n} type veth peer name e{n} netns pod\n\
             link set dev veth{n} alias \"cni bench pod e{n}\"\n"
        )
    };
    fs::write("/run/lab/links", numbers.map(link).collect::<String>()).expect("write a batch of links");
    lab.host().exec(&["ip", "-batch", "/run/lab/links"]);
}

/// Masquerade: elements in the sets of the first attachment's rules. The digests are not real, but unique.
fn add_rules(lab: &Lab, numbers: Range<u32>) {
    let add = |set: &str, element: &dyn Fn(u32) -> String| {
        let elements: Vec<_> = numbers.clone().map(element).collect();
        format!("add element inet ferrule {set} {{ {} }}\n", elements.join(", "))
    };
    let script = [
        add("masquerade4", &|n| format!("{} comment \"bench/pod/e{n}\"", address(n))),
        add("subnet4/8", &|n| format!("{} . 10.0.0.0 comment \"bench/pod/e{n}\"", address(n))),
        add("attachments", &|n| {
            let (digest, ip) = (format!("digest{n:09}"), address(n));
            format!(
                "\"{digest}\" . 0 comment \"masquerade bench/pod/e{n}\", \
                 \"{digest}\" . 1 comment \"masquerade {ip}/8\""
            )
        }),
    ];
    fs::write("/run/lab/rules", script.concat()).expect("write a script of rules");
    lab.host().exec(&["nft", "-f", "/run/lab/rules"]);
}

/// The numbers of links, rules and leases.
fn size(host: &Netns) -> [usize; 3] {
    let leases = fs::read_dir(STORE).expect("list the leases").count();
    [host.link_names().len(), host.ruleset().matches("pod/e").count(), leases]
}

/// A container with two ports of both families.
pub fn mapped(n: u16) -> Value {
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
