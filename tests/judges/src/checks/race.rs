//! Containers of Podman and of ctr, both of which use libcni, come and go while GC runs in a loop.
//!
//! `JUDGES_RACE_SECONDS=120` is the whole test, with a hundred containers at least. Without it a few come once.

use std::env;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lab::Feature;

use crate::check::Check;
use crate::containerd::{Containerd, ctr};
use crate::host::{CNITOOL, HOST, Host, IMAGE};
use crate::podman::Podman;
use crate::soon::tcp_says_soon;

const SECONDS: &str = "JUDGES_RACE_SECONDS";
const WORKERS: usize = 3;
const SAMPLE: usize = 9;
const WHOLE: usize = 100;

pub fn checks() -> Vec<Check> {
    vec![
        Check::new(
            "cni-gc.service",
            "containers of Podman and ctr come and go while GC runs in a loop: none loses anything, and nothing is left",
            race,
        )
        .ours_alone(super::cleanup::WHY)
        .needs(Feature::Ipv6),
    ]
}

fn networks(podman: &Podman<'_>) -> Vec<&'static str> {
    let mut networks = vec!["net"];
    podman.does("network create net");
    for (driver, feature) in [("macvlan", Feature::Macvlan), ("ipvlan", Feature::Ipvlan)] {
        if feature.is_there() {
            podman.does(&format!(
                "network create --driver {driver} --opt parent=uplink --subnet 10.95.{}.0/24 {driver}",
                networks.len()
            ));
            networks.push(driver);
        }
    }
    networks
}

fn race(host: &Host) {
    let podman = Podman::new(host);
    // The plugins of this network are called by ctr.
    let _containerd = Containerd::start(host);
    let networks = networks(&podman);
    let seconds = env::var(SECONDS).ok().and_then(|text| text.parse().ok()).map(Duration::from_secs);
    let containers = if seconds.is_some() { WHOLE } else { SAMPLE };
    let (machine, client) = (host.lab.host(), &host.client);
    // A shell reads the line. What hangs is ended.
    let does = |line: String| machine.sh(&format!("timeout --kill-after=5 300 {line}"));
    let live = |i: usize, round: usize| {
        let name = format!("race{i}x{round}");
        if i.is_multiple_of(WORKERS) {
            // It sees its address twice.
            let look = "/bin/busybox ip addr show eth0";
            let seen = does(ctr(&format!(
                "run --rm --cni --snapshotter native --cpu-shares 0 {IMAGE} {name} /bin/sh -c '{look}; /bin/busybox sleep 1; {look}'"
            )));
            assert_eq!(seen.matches("inet 10.90.0.").count(), 2, "{seen}");
            return;
        }
        let network = networks[i % networks.len()];
        let port = 20_000 + i;
        let publish = if network == "net" { format!("--publish {port}:80") } else { String::new() };
        does(format!(
            "podman run --detach --name {name} --hostname {name} --network {network} {publish} {IMAGE}"
        ));
        for _ in 0..2 {
            let seen = does(format!("podman exec {name} /bin/busybox ip addr show eth0"));
            assert!(seen.contains("inet 10."), "{name} on {network}: {seen}");
            if network == "net" {
                tcp_says_soon(client, &format!("{HOST}:{port}"), &name);
            }
        }
        if i.is_multiple_of(4) {
            // With its monitor, so that nobody cleans up for now.
            let pids =
                does(format!("podman inspect --format '{{{{.State.ConmonPid}}}} {{{{.State.Pid}}}}' {name}"));
            does(format!("kill -9 {}", pids.trim()));
        }
        does(format!("podman rm --force --time 0 {name}"));
    };
    let race = |containers: usize, least: Option<Duration>| {
        let (is_over, started) = (AtomicBool::new(false), Instant::now());
        thread::scope(|scope| {
            let collector = scope.spawn(|| {
                let mut runs = 0;
                while !is_over.load(Ordering::Relaxed) {
                    does(format!("{CNITOOL} gc --all"));
                    runs += 1;
                }
                runs
            });
            let live = &live;
            let worker = |first: usize| {
                move || {
                    for round in 0.. {
                        (first..containers).step_by(WORKERS).for_each(|i| live(i, round));
                        if least.is_none_or(|least| started.elapsed() > least) {
                            break;
                        }
                    }
                }
            };
            let workers: Vec<_> = (0..WORKERS).map(|first| scope.spawn(worker(first))).collect();
            let outcomes: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
            is_over.store(true, Ordering::Relaxed);
            assert!(collector.join().expect("gc succeeds") > 0);
            assert!(outcomes.iter().all(Result::is_ok), "a container lost something");
        });
        does(format!("{CNITOOL} gc --all"));
    };
    // The networks' own things come with their first containers.
    race(SAMPLE, None);
    let before = host.snapshot();
    race(containers, seconds);
    host.snapshot().assert_same(&before);
}
