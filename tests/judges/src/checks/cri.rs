//! containerd as a kubelet uses it, also when it is killed.
//!
//! `JUDGES_PODS=100` runs a hundred pods where the sample runs a few, and prints the times.

use std::time::{Duration, Instant};
use std::{env, fs, slice, thread};

use lab::{Feature, udp_says};

use super::cleanup::collects;
use crate::check::Check;
use crate::containerd::{self, Containerd, NETWORK};
use crate::cri::Cri;
use crate::gate::Gate;
use crate::host::{HOST, HOST6, Host, PLUGINS};
use crate::side::Side;
use crate::soon::{soon, tcp_says_soon};

/// The checks for containerd 1 and for containerd 2.
pub fn checks() -> Vec<Check> {
    let failed =
        |group| Check::new(group, "a pod whose ADD fails leaves nothing", failed_add).needs(Feature::Ipv6);
    let mut one = of("containerd, as a kubelet asks");
    one.push(failed("containerd, as a kubelet asks"));
    let mut two = of("containerd 2, as a kubelet asks");
    two.push(failed("containerd 2, as a kubelet asks").reference_fails(
        "+ ip saddr 10.96.0.3  counter jump CNI-",
        "containerd 2 forgets a pod whose DEL failed too, and the reference has no `cnitool gc`",
    ));
    let two =
        two.into_iter().map(|check| check.unless(containerd::lacks_2).prepared_by(containerd::install_2));
    one.into_iter().chain(two).collect()
}

fn of(group: &'static str) -> Vec<Check> {
    let check = |name, ask| Check::new(group, name, ask).needs(Feature::Ipv6);
    vec![
        check("a pod's host ports are reached over TCP and UDP, over both families", ports),
        check("a pod that is removed leaves nothing", nothing_left),
        check(
            "kill -9 in the middle of an ADD: after the restart the pod is removed completely, and the next one works",
            killed_in_add,
        ),
        check(
            "kill -9 in the middle of a DEL: after the restart the pod is removed completely, and the next one works",
            killed_in_del,
        ),
        check("pods keep running while containerd is killed and started again", survives),
        check("pods that sixteen workers start and remove have their ports, and leave nothing", many),
    ]
}

const PORT: u32 = 8080;

const PODS: &str = "JUDGES_PODS";
const SAMPLE: usize = 16;
const WORKERS: usize = 16;

/// Starts containerd, and waits until it has read the configuration of the network.
fn start(host: &Host) -> (Containerd<'_>, Cri) {
    let (containerd, cri) = (Containerd::start(host), Cri::of(host));
    is_ready(&cri);
    (containerd, cri)
}

fn is_ready(cri: &Cri) {
    soon("containerd has a network", &true, || cri.has_a_network());
}

fn is_reached(host: &Host, pod: &str) {
    for address in [format!("{HOST}:{PORT}"), format!("[{HOST6}]:{PORT}")] {
        tcp_says_soon(&host.client, &address, pod);
    }
}

/// Runs a pod, connects to it, and removes it.
fn works(host: &Host, cri: &Cri) {
    let pod = cri.runs_pod("web", PORT);
    is_reached(host, "web");
    cri.removes_pod(&pod);
}

fn ports(host: &Host) {
    let (containerd, cri) = start(host);
    let pod = cri.runs_pod("web", PORT);
    is_reached(host, "web");
    let inside = host.lab.namespace_of("inside", &containerd.pid("k8s.io", pod.id()));
    let _dns = inside.serve_udp("dns", "[::]:53");
    for address in [format!("{HOST}:{PORT}"), format!("[{HOST6}]:{PORT}")] {
        let answer = udp_says(&host.client, &address);
        assert!(answer.is_some_and(|said| said.starts_with("dns ")), "UDP to {address}");
    }
}

fn nothing_left(host: &Host) {
    let (_containerd, cri) = start(host);
    host.leaves_nothing(|| works(host, &cri));
}

fn killed_in_add(host: &Host) {
    is_killed_in(host, "ADD", |cri| drop(cri.try_run_pod("victim", PORT + 1)));
}

fn killed_in_del(host: &Host) {
    is_killed_in(host, "DEL", |cri| {
        let victim = cri.runs_pod("victim", PORT + 1);
        drop(cri.try_stop_pod(&victim));
    });
}

/// Kills containerd while portmap runs, in the middle of the chain. The plugin continues as an orphan, and nobody reads its result.
fn is_killed_in(host: &Host, command: &str, job: impl FnOnce(&Cri) + Send) {
    let (mut containerd, cri) = start(host);
    works(host, &cri);
    let before = host.snapshot();
    let gate = Gate::before(host, "portmap", command);
    let waiting = thread::scope(|scope| {
        let client = scope.spawn(|| job(&cri));
        let waiting = gate.reached();
        containerd.is_killed();
        client.join().expect("the client ends with an error");
        waiting
    });
    gate.open(&waiting);
    containerd.is_started_again();
    is_ready(&cri);
    let pods = cri.pods();
    assert!(!pods.is_empty(), "containerd has forgotten the pod");
    // GC may run before the kubelet removes the pod.
    if host.side == Side::Ours {
        collects(host);
    }
    pods.iter().for_each(|pod| cri.removes_pod(pod));
    host.snapshot().assert_same(&before);
    works(host, &cri);
    host.snapshot().assert_same(&before);
}

fn many(host: &Host) {
    let (_containerd, cri) = start(host);
    works(host, &cri);
    let before = host.snapshot();
    let count = env::var(PODS).ok().and_then(|text| text.parse().ok()).unwrap_or(SAMPLE);
    let names: Vec<String> = (0..count).map(|i| format!("pod{i}")).collect();
    let port_of = |i: usize| 20_000 + u32::try_from(i).expect("a small number");
    let (pods, started) = by_workers(count, |i| cri.runs_pod(&names[i], port_of(i)));
    for (i, name) in names.iter().enumerate() {
        tcp_says_soon(&host.client, &format!("{HOST}:{}", port_of(i)), name);
    }
    let (_, removed) = by_workers(count, |i| cri.removes_pod(&pods[i]));
    println!("time with {}: {count} pods started in {started:.1?}, removed in {removed:.1?}", host.side);
    host.snapshot().assert_same(&before);
}

/// Calls `job` with each number below `count`. Returns the results in order, and how long all of them took.
fn by_workers<T: Send>(count: usize, job: impl Fn(usize) -> T + Sync) -> (Vec<T>, Duration) {
    let begin = Instant::now();
    let work = &|first: usize| (first..count).step_by(WORKERS).map(|i| (i, job(i))).collect::<Vec<_>>();
    let mut done: Vec<(usize, T)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|first| scope.spawn(move || work(first))).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a pod is started or removed")).collect()
    });
    let took = begin.elapsed();
    done.sort_by_key(|(i, _)| *i);
    (done.into_iter().map(|(_, result)| result).collect(), took)
}

fn survives(host: &Host) {
    let (mut containerd, cri) = start(host);
    works(host, &cri);
    let before = host.snapshot();
    let pod = cri.runs_pod("web", PORT);
    is_reached(host, "web");
    containerd.is_killed();
    is_reached(host, "web");
    containerd.is_started_again();
    is_ready(&cri);
    is_reached(host, "web");
    assert_eq!(cri.pods(), slice::from_ref(&pod));
    cri.removes_pod(&pod);
    host.snapshot().assert_same(&before);
}

fn failed_add(host: &Host) {
    // Other addresses than in the other checks, whose sandbox processes may still run.
    let network = NETWORK.replace("10.90.", "10.96.").replace("fd00:90:", "fd00:96:");
    let (_containerd, cri) = (Containerd::with_network(host, &network), Cri::of(host));
    is_ready(&cri);
    works(host, &cri);
    let before = host.snapshot();
    let broken = "#!/bin/sh\nexit 1\n";
    host.run(&format!("mv {PLUGINS}/firewall {PLUGINS}/aside"));
    fs::write(format!("{PLUGINS}/firewall"), broken).expect("write a plugin that fails");
    host.run(&format!("chmod +x {PLUGINS}/firewall"));
    let failed = cri.try_run_pod("victim", PORT);
    assert!(failed.is_err(), "{failed:?}");
    host.run(&format!("mv {PLUGINS}/aside {PLUGINS}/firewall"));
    let pods = cri.pods();
    pods.iter().for_each(|pod| cri.removes_pod(pod));
    // containerd 2 drops a pod if its DEL failed too, so nobody repeats the DEL.
    if pods.is_empty() && host.side == Side::Ours {
        collects(host);
    }
    host.snapshot().assert_same(&before);
}
