//! Many concurrent attachments on one bridge and one range, with disturbances.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::disturber::{Cause, LEASES, disturb};
use lab::{Call, Container, Lab, Outcome, meanwhile};

/// The parameters of a race.
#[derive(Clone, Copy, Debug)]
pub struct Race {
    pub workers: usize,
    pub length: Length,
    /// The number of IPv4 addresses.
    pub addresses: u32,
}

/// The length of a race.
#[derive(Clone, Copy, Debug)]
pub enum Length {
    /// Repeats for this time.
    Time(Duration),
    /// A number of rounds for each worker.
    Rounds(u32),
}

/// The result of a race.
#[derive(Debug, Default)]
pub struct Finish {
    pub attached: usize,
    /// ADDs that failed with a proper error that the disturbances explain.
    pub refused: BTreeMap<Cause, usize>,
    pub findings: Vec<String>,
}

/// State that the workers share.
#[derive(Debug)]
struct Board {
    all_came: Barrier,
    alive: Mutex<HashSet<String>>,
    finish: Mutex<Finish>,
}

/// A container whose leases are removed while it runs. Its addresses are free then, and may be allocated again.
const LOSES_LEASES: &str = "loses-leases";

impl Race {
    /// Whether each worker always finds a free address.
    pub fn has_enough_addresses(self) -> bool {
        usize::try_from(self.addresses).is_ok_and(|addresses| addresses > self.workers)
    }

    /// Runs the race in a separate lab.
    pub fn run(self) -> Finish {
        let lab = Lab::new();
        let stays = lab.container("stays");
        let call = |pod: &Container| lab.plugin("bridge").config(self.config()).on(pod);
        call(&stays).add().ok_result();
        let pods: Vec<_> = (0..self.workers).map(|i| lab.container(&name(i))).collect();
        let before = lab.snapshot();
        let (board, round) = (Board::new(self.workers), AtomicU32::new(1));
        let start = Instant::now();
        let goes_on = |rounds: u32| match self.length {
            Length::Time(time) => start.elapsed() < time,
            Length::Rounds(count) => rounds < count,
        };
        let attach_and_detach = || {
            thread::scope(|scope| {
                let (board, goes_on) = (&board, &goes_on);
                let workers = pods.iter().map(|pod| (call(pod), pod.id.as_str()));
                let workers = workers.map(|(call, id)| scope.spawn(move || work(&call, id, goes_on, board)));
                // All workers are started before the first is waited for.
                for worker in workers.collect::<Vec<_>>() {
                    worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                }
            });
        };
        meanwhile(|| disturb(round.fetch_add(1, Ordering::Relaxed), LOSES_LEASES), attach_and_detach);
        let mut finish = board.finish.into_inner().expect("no worker panics");
        for pod in &pods {
            call(pod).del().ok();
        }
        let left = left(&lab.snapshot().since(&before));
        finish.findings.extend((!left.is_empty()).then(|| format!("left:\n{left}")));
        finish
    }

    fn config(self) -> Value {
        let last = std::net::Ipv4Addr::from(0x0a01_0001 + self.addresses);
        let range = json!({"subnet": "10.1.0.0/22", "rangeStart": "10.1.0.2", "rangeEnd": last});
        json!({
            "bridge": "br0", "isDefaultGateway": true, "ipMasq": true, "macspoofchk": true,
            "ipam": {"type": "host-local", "ranges": [[range], [{"subnet": "fd00:1:2::/64"}]]},
        })
    }
}

fn name(number: usize) -> String {
    if number.is_multiple_of(10) { format!("{LOSES_LEASES}-{number}") } else { format!("pod-{number}") }
}

/// Attaches and detaches, at least once, until the race is over.
fn work(call: &Call, id: &str, goes_on: impl Fn(u32) -> bool, board: &Board) {
    for round in 1.. {
        let run = call.add();
        if round == 1 {
            // No worker detaches before all containers are attached.
            board.all_came.wait();
        }
        let addresses = if run.succeeded() { ips(&run.ok_result()) } else { Vec::new() };
        board.note_add(&run, id);
        if !id.starts_with(LOSES_LEASES) {
            board.live(id, &addresses);
        }
        let del = call.del();
        if !del.succeeded() {
            board.find(format!("DEL failed: {}", del.stdout));
        }
        if !goes_on(round) {
            return;
        }
    }
}

impl Board {
    fn new(workers: usize) -> Self {
        Self { all_came: Barrier::new(workers), alive: Mutex::default(), finish: Mutex::default() }
    }

    fn find(&self, finding: String) {
        self.finish.lock().expect("no worker panics").findings.push(finding);
    }

    fn note_add(&self, run: &Outcome, id: &str) {
        let mut finish = self.finish.lock().expect("no worker panics");
        if run.succeeded() {
            finish.attached += 1;
            return;
        }
        match run.judged().map(|error| Cause::of(&error, id.starts_with(LOSES_LEASES))) {
            Ok(Some(cause)) => *finish.refused.entry(cause).or_default() += 1,
            Ok(None) => finish.findings.push(format!("nobody caused for {id}: {}", run.stdout)),
            Err(fault) => finish.findings.push(format!("{fault}: {run:?}")),
        }
    }

    /// From the result of an ADD to the next DEL, the container's addresses must be its own, in the shared state and on
    /// disk.
    fn live(&self, id: &str, addresses: &[String]) {
        for address in addresses {
            if !self.alive.lock().expect("no worker panics").insert(address.clone()) {
                self.find(format!("{address} is alive twice"));
            }
        }
        for address in addresses {
            let ip = address.split('/').next().unwrap_or_default();
            let lease = fs::read_to_string(Path::new(LEASES).join(ip)).unwrap_or_default();
            if lease != format!("{id}\r\neth0") {
                self.find(format!("the lease of {address} for {id} says {lease:?}"));
            }
        }
        self.alive.lock().expect("no worker panics").retain(|address| !addresses.contains(address));
    }
}

fn ips(result: &Value) -> Vec<String> {
    let ips = result["ips"].as_array().into_iter().flatten();
    ips.filter_map(|ip| ip["address"].as_str()).map(str::to_owned).collect()
}

/// The stale objects in a comparison. The bridge, which was created again, does not count, nor does the attachment that stays,
/// whose rules and bridge were deleted.
fn left(changes: &str) -> String {
    let expected = |line: &&str| ["stays", ": br0", "dev br0"].iter().any(|text| line.contains(text));
    let come = changes.lines().filter(|line| line.starts_with("  +") && !expected(line));
    come.collect::<Vec<_>>().join("\n")
}
