//! Many containers are attached and detached concurrently, while other programs change the ruleset.

use std::io::Write;
use std::panic::resume_unwind;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use lab::{Call, Container, Lab, Outcome, beyond_reference, meanwhile, under_test};
use serde_json::{Value, json};

use crate::common::{dual_stack, ips};
use crate::field::{effects, stubs};

const BACKENDS: [&str; 2] = ["nftables", "iptables"];

/// A container with two host ports.
struct Pod {
    container: Container,
    /// The host ports.
    ports: u16,
    bridge: Call,
    portmap: Call,
}

impl Pod {
    fn new(lab: &Lab, backend: &str, n: u16, plugins: &Path) -> Self {
        let plugin = |name: &str| stubs::call(lab.plugin(name), plugins);
        let port = |host: u16, container: u16, protocol: &str| json!({"hostPort": host, "containerPort": container, "protocol": protocol});
        let mappings = json!([port(8000 + n, 80, "tcp"), port(8000 + n, 53, "udp")]);
        let bridge = plugin("bridge").config(dual_stack());
        let portmap = plugin("portmap").config(json!({"backend": backend}));
        Self {
            container: lab.container(&format!("pod{n}")),
            ports: 8000 + n,
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
        let join =
            |thread: thread::ScopedJoinHandle<_>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        threads.into_iter().map(join).collect()
    })
}

/// Runs `work` while another process permanently changes the ruleset, as kube-proxy's `nft` does.
fn with_a_writer<T>(work: impl FnOnce() -> T) -> T {
    let change = || {
        for verb in ["add", "delete"] {
            nft(&format!("{verb} element inet others busy {{ 80, 443 }}\n"));
        }
    };
    meanwhile(change, work)
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

/// Asserts that each container is attached, and that both of its host ports lead to its addresses.
fn are_attached(lab: &Lab, pods: &[Pod], results: &[Value]) {
    let tables = lab.host().sh("nft list ruleset; iptables-save -t nat");
    for (Pod { container, ports, .. }, result) in pods.iter().zip(results) {
        assert!(container.link("eth0").is_some(), "{}: bridge has done nothing", container.id);
        let address = ips(result)[0].split('/').next().unwrap();
        let of_port = tables.lines().filter(|line| effects::has_host_port(line, *ports, address));
        let of_port: Vec<_> = of_port.collect();
        let leads = |protocol: &str| of_port.iter().any(|line| effects::has_word(line, protocol));
        assert!(leads("tcp") && leads("udp"), "{}: portmap has done nothing: {of_port:?}", container.id);
    }
}

/// Attaches and detaches containers while another process changes the ruleset.
fn storm(backend: &str, count: u16, plugins: &Path) {
    let lab = Lab::new();
    nft("table inet others { set busy { type inet_service; }; }\n");
    let pods: Vec<_> = (0..count).map(|n| Pod::new(&lab, backend, n, plugins)).collect();
    // Shared objects stay after the first container, so they exist from here on.
    let result = pods[0].add();
    let of_one = rules(&lab);
    pods[0].del(&result).iter().for_each(Outcome::ok);
    let before = lab.snapshot();
    let results = with_a_writer(|| concurrently(&pods, |_, pod| pod.add()));
    are_attached(&lab, &pods, &results);
    // Only maps and sets grow with the number of containers, so the last ADD is as fast as the first.
    assert!(backend == "iptables" || rules(&lab) == of_one, "{}", lab.host().ruleset());
    with_a_writer(|| concurrently(&pods, |n, pod| pod.del(&results[n]).iter().for_each(Outcome::ok)));
    lab.snapshot().assert_same(&before);
}

#[test]
fn many_concurrent_containers_attach_and_detach_without_errors_or_leftovers() {
    beyond_reference!("nothing-left");
    BACKENDS.iter().for_each(|backend| storm(backend, 30, &under_test().dir));
}

#[test]
fn the_storm_fails_if_a_plugin_is_replaced_by_a_stub() {
    beyond_reference!("nothing-left");
    let chain = json!({"plugins": [{"type": "bridge", "ipam": {"type": "host-local"}}, {"type": "portmap"}]});
    for backend in BACKENDS {
        stubs::fails_with_stubs(backend, &chain, |plugins| storm(backend, 4, plugins));
    }
}
