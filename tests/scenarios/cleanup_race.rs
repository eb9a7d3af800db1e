//! GC runs in a loop while containers of all plugins come and go.

use std::env;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lab::beyond_reference;
use lab::dhcp::{DhcpNetwork, RANGE_FOR_A_DAY};

use crate::cleanup_networks::{ELSEWHERE, Subnets, networks};

/// How long containers come and go: `GC_RACE_SECONDS=120` for the whole test. Without it each container comes once.
const SECONDS: &str = "GC_RACE_SECONDS";
const SAMPLE: usize = 40;
const WHOLE: usize = 100;
const WORKERS: usize = 4;

/// Half of the containers belong to another runtime, whose cache cnitool does not know. Every third container exits without a DEL.
#[test]
fn containers_that_start_and_stop_keep_everything_while_gc_runs_in_a_loop() {
    beyond_reference!("gc");
    let Some(net) = DhcpNetwork::with(RANGE_FOR_A_DAY) else { return };
    let (lab, networks) = (&net.lab, networks(&net.lab, Subnets(209)));
    let versions = ["1.1.0", "1.0.0", "0.4.0"];
    for (network, version) in networks.iter().zip(versions.into_iter().cycle()) {
        network.configure(lab, version);
    }
    let shared: Vec<_> = networks.iter().filter(|network| !network.is_of_one_container).collect();
    let seconds = env::var(SECONDS).ok().and_then(|text| text.parse().ok()).map(Duration::from_secs);
    let containers = if seconds.is_some() { WHOLE } else { SAMPLE };
    let pods: Vec<_> = (0..containers).map(|i| lab.container(&format!("race{i}"))).collect();
    let (tool, is_over) = (lab.cnitool(), AtomicBool::new(false));
    let started = Instant::now();
    let live = |i: usize, round: usize| {
        let network = networks.get(i).unwrap_or(shared[i % shared.len()]);
        let cache = if (i / 2).is_multiple_of(2) { "" } else { ELSEWHERE };
        let names = format!("{} race{i} --container-id race{i}x{round} {cache}", network.name);
        tool.says(&format!("add {names} {}", network.publish(20_000 + i)));
        for _ in 0..2 {
            tool.says(&format!("check {names}"));
        }
        // In a later round the namespace is needed again.
        if !i.is_multiple_of(3) || round > 0 || seconds.is_some() {
            tool.says(&format!("del {names}"));
        }
    };
    let (live, tool) = (&live, &tool);
    thread::scope(|scope| {
        let collector = scope.spawn(|| {
            let mut runs = 0;
            while !is_over.load(Ordering::Relaxed) {
                tool.says("gc --all");
                runs += 1;
            }
            runs
        });
        let worker = |first: usize| {
            move || {
                for round in 0.. {
                    (first..containers).step_by(WORKERS).for_each(|i| live(i, round));
                    if seconds.is_none_or(|least| started.elapsed() > least) {
                        break;
                    }
                }
            }
        };
        let workers: Vec<_> = (0..WORKERS).map(|first| scope.spawn(worker(first))).collect();
        let outcomes: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(collector.join().expect("gc succeeds") > 0);
        assert!(outcomes.iter().all(Result::is_ok), "a live container lost something, or a DEL failed");
    });
    pods.iter().for_each(|pod| pod.vanish());
    nothing_is_left(&net);
}

/// The kernel removes a namespace some time after its last user has left it. Until then, GC keeps what belongs to it.
fn nothing_is_left(net: &DhcpNetwork) {
    let tool = net.lab.cnitool();
    let host = net.lab.host();
    net.until("GC removes all that is left", || {
        tool.says("gc --all");
        let files = host.sh("grep -rl race /var/lib/cni /run/cni --exclude-dir=results || true");
        let objects = host.sh("nft list ruleset; iptables-save 2>/dev/null || true; ip -o link");
        files.is_empty() && !objects.contains("race") && net.list().is_empty()
    });
}
