//! Many attachments that come and go at once on one bridge and one range, while somebody disturbs.

use std::collections::HashSet;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::netns::PATH;
use crate::{Call, Container, Lab};

/// How many at once, and how often each comes and goes.
#[derive(Clone, Copy, Debug)]
pub struct Race {
    pub workers: usize,
    pub rounds: usize,
}

/// What came of a race.
#[derive(Debug, Default)]
pub struct Finish {
    pub attached: usize,
    /// ADDs that failed, with a proper error.
    pub refused: usize,
    pub findings: Vec<String>,
}

impl Race {
    /// Runs it in a lab of its own. Another process flushes the firewall's tables and removes host-local's index and
    /// hints, again and again: an ADD may fail by that, but no address may be alive twice and nothing may be left.
    pub fn run(self) -> Finish {
        let lab = Lab::new();
        let stays = lab.container("stays");
        let call = |pod: &Container| lab.plugin("bridge").config(config()).on(pod);
        call(&stays).add().ok_result();
        let pods: Vec<_> = (0..self.workers).map(|i| lab.container(&format!("pod{i}"))).collect();
        let before = lab.snapshot();
        let (alive, finish, over) = (Mutex::default(), Mutex::default(), AtomicBool::new(false));
        thread::scope(|scope| {
            let disturber = scope.spawn(|| disturb(&over));
            let workers: Vec<_> = pods.iter().map(call).collect();
            let (alive, finish) = (&alive, &finish);
            let workers =
                workers.into_iter().map(|call| scope.spawn(move || self.work(&call, alive, finish)));
            // Started all before the first is waited for.
            for worker in workers.collect::<Vec<_>>() {
                worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            }
            over.store(true, Ordering::Relaxed);
            disturber.join().expect("the disturber only runs commands");
        });
        let mut finish: Finish = finish.into_inner().expect("no worker panics");
        for pod in &pods {
            call(pod).del().ok();
        }
        let left = left(&lab.snapshot().since(&before));
        finish.findings.extend((!left.is_empty()).then(|| format!("left:\n{left}")));
        finish
    }

    fn work(self, call: &Call, alive: &Mutex<HashSet<String>>, finish: &Mutex<Finish>) {
        for _ in 0..self.rounds {
            let run = call.add();
            let mut addresses = Vec::new();
            if run.succeeded() {
                addresses = ips(&run.ok_result());
            }
            {
                let (mut alive, mut finish) =
                    (alive.lock().expect("no panic"), finish.lock().expect("no panic"));
                finish.attached += usize::from(run.succeeded());
                finish.refused += usize::from(!run.succeeded());
                let improper = (!run.succeeded()).then(|| run.judged().err()).flatten();
                finish.findings.extend(improper.map(|fault| format!("{fault}: {run:?}")));
                for address in &addresses {
                    let first = alive.insert(address.clone());
                    finish.findings.extend((!first).then(|| format!("{address} is alive twice")));
                }
            }
            alive.lock().expect("no panic").retain(|address| !addresses.contains(address));
            let del = call.del();
            if !del.succeeded() {
                finish.lock().expect("no panic").findings.push(format!("DEL failed: {}", del.stdout));
            }
        }
    }
}

fn config() -> Value {
    json!({
        "bridge": "br0", "isDefaultGateway": true, "ipMasq": true, "macspoofchk": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/22"}], [{"subnet": "fd00:1:2::/64"}]]},
    })
}

fn ips(result: &Value) -> Vec<String> {
    let ips = result["ips"].as_array().into_iter().flatten();
    ips.filter_map(|ip| ip["address"].as_str()).map(str::to_owned).collect()
}

/// Threads of a lab are in its namespaces.
fn disturb(over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        let flush =
            Command::new("nft").args(["flush", "ruleset"]).env("PATH", PATH).stderr(Stdio::null()).status();
        flush.expect("start nft");
        for hint in [".index", "last_reserved_ip.0"] {
            fs::remove_file(format!("/var/lib/cni/networks/net/{hint}")).ok();
        }
    }
}

/// What came, but for the attachment that stays: its rules are flushed, too.
fn left(changes: &str) -> String {
    let come = changes.lines().filter(|line| line.starts_with("  +") && !line.contains("stays"));
    come.collect::<Vec<_>>().join("\n")
}
