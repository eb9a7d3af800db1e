//! The rounds of scenarios.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lab::{Call, Container, Lab};
use serde_json::{Value, json};

use crate::machine::Prepare;
use crate::networks::nothing;
use crate::process::{How, Spent, run};
use crate::side::Side;
use crate::unrest;

/// Pause of another program between two changes of the ruleset: 50 changes a second.
const PAUSE: Duration = Duration::from_millis(20);

/// A side's configuration of its n-th container.
pub type Conflist = fn(Side, usize) -> Value;

/// Prepares the host: other containers, a full range.
pub type Before = fn(&Lab, Side) -> Spent;

/// VERSION of a plugin: the time to start it.
pub fn version(plugin: &'static str) -> Box<Prepare> {
    Box::new(move |lab, side| {
        let call = side.plugin(lab, plugin);
        Box::new(move |how| vec![run(&call, "VERSION", how).0])
    })
}

/// ADD and DEL of a container. With `only`, just this plugin of the chain is measured, next to another attached
/// container: the first and the last attachment of a host also create and delete tables, which is not typical.
pub fn chain(conflist: Conflist, before: Before, only: Option<&'static str>) -> Box<Prepare> {
    Box::new(move |lab, side| {
        let mut before = before(lab, side);
        if only.is_some() {
            let other = side.network(lab, &conflist(side, 1));
            before.then(attach(&other, &lab.container("other"), How::Timed, None).0);
        }
        let container = lab.container("pod");
        let network = side.network(lab, &conflist(side, 0));
        Box::new(move |how| {
            let (mut add, result) = attach(&network, &container, how, only);
            add.failures.append(&mut before.failures);
            vec![add, detach(&network, &container, &result, how, only)]
        })
    })
}

/// ADD and DEL of many containers by several workers, as after a reboot of a node: the total time.
pub fn crowd(conflist: Conflist, containers: usize, workers: usize) -> Box<Prepare> {
    storm(conflist, nothing, containers, workers)
}

/// ADD and DEL of many containers on a prepared host. If anything is left at the end, the round fails.
fn storm(conflist: Conflist, before: Before, containers: usize, workers: usize) -> Box<Prepare> {
    Box::new(move |lab, side| {
        let mut before = before(lab, side);
        let pods: Vec<_> = (0..containers)
            .map(|n| (lab.container(&format!("pod{n}")), side.network(lab, &conflist(side, n))))
            .collect();
        let host = lab.host().clone();
        Box::new(move |how| {
            let mut add = in_parallel(&pods, workers, |(pod, network)| attach(network, pod, how, None).0);
            add.failures.append(&mut before.failures);
            let mut del =
                in_parallel(&pods, workers, |(pod, network)| detach(network, pod, &Value::Null, how, None));
            let left = host.sh("nft list ruleset").matches("pod").count();
            del.failures.extend((left > 0).then(|| format!("{left} rules are left")));
            vec![add, del]
        })
    })
}

/// ADD and then DEL of each of many containers by several workers: some start while others stop, as in a rolling
/// update.
pub fn churn(conflist: Conflist, containers: usize, workers: usize) -> Box<Prepare> {
    Box::new(move |lab, side| {
        let pods: Vec<_> = (0..containers)
            .map(|n| (lab.container(&format!("pod{n}")), side.network(lab, &conflist(side, n))))
            .collect();
        let host = lab.host().clone();
        Box::new(move |how| {
            let mut all = in_parallel(&pods, workers, |(pod, network)| {
                let (mut both, result) = attach(network, pod, how, None);
                both.then(detach(network, pod, &result, how, None));
                both
            });
            let stale = host.sh("nft list ruleset").matches("pod").count();
            all.failures.extend((stale > 0).then(|| format!("{stale} rules are left")));
            vec![all]
        })
    })
}

/// Like [`crowd`], with many tracked connections, and while another program changes the ruleset.
pub fn crowd_in_unrest(conflist: Conflist, containers: usize, workers: usize) -> Box<Prepare> {
    let whole = storm(conflist, unrest::with_connections, containers, workers);
    Box::new(move |lab, side| {
        let mut whole = whole(lab, side);
        Box::new(move |how| unrest::with_a_writer(PAUSE, || whole(how)))
    })
}

pub fn in_parallel<T: Sync>(all: &[T], workers: usize, work: impl Fn(&T) -> Spent + Sync) -> Spent {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut sum = Spent::default();
        while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            sum.then(work(one));
        }
        sum
    };
    let start = Instant::now();
    let mut sum = thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        let mut sum = Spent::default();
        workers.into_iter().for_each(|worker| sum.then(worker.join().expect("a worker ends")));
        sum
    });
    sum.took = start.elapsed();
    sum
}

/// ADD of all plugins, first to last. Returns the last result. Stops at the first failure.
pub fn attach(
    network: &[Call],
    container: &Container,
    how: How,
    only: Option<&'static str>,
) -> (Spent, Value) {
    let mut sum = Spent::default();
    let mut prev = Value::Null;
    for call in network {
        let counts = only.is_none_or(|plugin| call.plugin() == plugin);
        let call = on(call, container).config(json!({"prevResult": prev}));
        let (spent, output) = run(&call, "ADD", if counts { how } else { How::Timed });
        let failed = !spent.failures.is_empty();
        if counts || failed {
            sum.then(spent);
        }
        if failed {
            break;
        }
        prev = serde_json::from_str(&output).unwrap_or_default();
    }
    (sum, prev)
}

/// The call for a container. dnsname alone reads the container's name.
fn on(call: &Call, container: &Container) -> Call {
    let call = call.clone().on(container);
    if call.plugin() == "dnsname" {
        call.args(&format!("IgnoreUnknown=1;K8S_POD_NAME={}", container.id))
    } else {
        call
    }
}

/// DEL of all plugins, last to first.
pub fn detach(
    network: &[Call],
    container: &Container,
    result: &Value,
    how: How,
    only: Option<&'static str>,
) -> Spent {
    let mut sum = Spent::default();
    for call in network.iter().rev() {
        let counts = only.is_none_or(|plugin| call.plugin() == plugin);
        let call = on(call, container).config(json!({"prevResult": result}));
        let (spent, _) = run(&call, "DEL", if counts { how } else { How::Timed });
        if counts {
            sum.then(spent);
        }
    }
    sum
}
