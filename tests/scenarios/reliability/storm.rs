//! Many containers are attached and detached concurrently, while other programs change the ruleset.

use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;

use lab::{Call, Container, Lab, Outcome, beyond_reference, meanwhile};
use serde_json::{Value, json};

use crate::common::dual_stack;

const PODS: u16 = 30;

/// A container with two host ports.
struct Pod {
    container: Container,
    bridge: Call,
    portmap: Call,
}

impl Pod {
    fn new(lab: &Lab, backend: &str, n: u16) -> Self {
        let port = |host: u16, container: u16, protocol: &str| json!({"hostPort": host, "containerPort": container, "protocol": protocol});
        let mappings = json!([port(8000 + n, 80, "tcp"), port(8000 + n, 53, "udp")]);
        let bridge = lab.plugin("bridge").config(dual_stack());
        let portmap = lab.plugin("portmap").config(json!({"backend": backend}));
        Self {
            container: lab.container(&format!("pod{n}")),
            bridge: bridge.config(json!({"ipMasq": true, "ipMasqBackend": backend})),
            portmap: portmap.config(json!({"runtimeConfig": {"portMappings": mappings}})),
        }
    }

    fn add(&self) -> Value {
        let prev = self.bridge.clone().on(&self.container).add().ok_result();
        self.portmap.clone().on(&self.container).config(json!({"prevResult": prev})).add().ok_result()
    }

    fn del(&self, prev: &Value) -> [Outcome; 2] {
        [&self.portmap, &self.bridge]
            .map(|call| call.clone().on(&self.container).config(json!({"prevResult": prev})).del())
    }
}

fn concurrently<T: Send>(pods: &[Pod], work: impl Fn(usize, &Pod) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            pods.iter().enumerate().map(|(n, pod)| scope.spawn(move || work(n, pod))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Runs `work` while another process permanently changes the ruleset, as kube-proxy's `nft` does.
fn with_a_writer(work: impl FnOnce()) {
    let change = || {
        for verb in ["add", "delete"] {
            nft(&format!("{verb} element inet others busy {{ 80, 443 }}\n"));
        }
    };
    meanwhile(change, work);
}

fn nft(script: &str) {
    let mut nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    nft.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(nft.wait().unwrap().success(), "{script}");
}

/// The number of nftables rules.
fn rules(lab: &Lab) -> usize {
    let ruleset: Value = serde_json::from_str(&lab.host().sh("nft -j list ruleset")).unwrap();
    ruleset["nftables"].as_array().unwrap().iter().filter(|object| !object["rule"].is_null()).count()
}

#[test]
fn many_concurrent_containers_attach_and_detach_without_errors_or_leftovers() {
    beyond_reference!("nothing-left");
    for backend in ["nftables", "iptables"] {
        let lab = Lab::new();
        nft("table inet others { set busy { type inet_service; }; }\n");
        let pods: Vec<_> = (0..PODS).map(|n| Pod::new(&lab, backend, n)).collect();
        // Shared objects stay after the first container, so they exist from here on.
        let result = pods[0].add();
        let of_one = rules(&lab);
        pods[0].del(&result).iter().for_each(Outcome::ok);
        let before = lab.snapshot();
        with_a_writer(|| {
            let results = concurrently(&pods, |_, pod| pod.add());
            // Only maps and sets grow with the number of containers, so the last ADD is as fast as the first.
            assert!(backend == "iptables" || rules(&lab) == of_one, "{}", lab.host().ruleset());
            concurrently(&pods, |n, pod| pod.del(&results[n]).iter().for_each(Outcome::ok));
        });
        lab.snapshot().assert_same(&before);
    }
}
