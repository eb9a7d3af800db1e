//! `test-connectivity`: tests a network with packets between two temporary containers.

mod bandwidth;
mod dns;
mod echo;
mod pods;
mod ports;
mod promises;
mod report;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use runtime::Network;

use self::pods::{Made, Pod};
pub use self::report::{Outcome, Row};
use crate::settings::Settings;

/// A test of one network.
#[derive(Debug)]
pub struct Test<'a> {
    pub network: &'a Network,
    pub settings: &'a Settings,
    /// Addresses beyond the host to which echo requests are sent. Empty: the host's own gateways.
    pub outside: Vec<IpAddr>,
    /// Set by a signal: the test then ends early, and removes the containers.
    pub stopped: Arc<AtomicBool>,
}

/// A group of checks. Its arguments are container A, container B and the rows to which it adds.
type Promise = fn(&Test<'_>, &Pod, &Pod, &mut Vec<Row>);

const PROMISES: &[Promise] = &[
    promises::between,
    promises::gateway,
    promises::mtu,
    promises::outside,
    ports::host_port,
    dns::servers,
    bandwidth::limits,
];

impl Test<'_> {
    /// Attaches two containers, runs all checks, and removes the containers. A failed ADD or DEL is a row of the
    /// table.
    pub fn run(&self) -> Vec<Row> {
        let port = ports::free(self.network);
        let mut rows = Vec::new();
        let mut pods = Vec::new();
        for (name, port) in [("a", port), ("b", None)] {
            let failed = match Pod::attach(self, name, port) {
                Ok(Made::Pod(pod)) => {
                    pods.push(*pod);
                    continue;
                }
                Ok(Made::Failed(row)) => row,
                Err(e) => Row::new(
                    "attach",
                    format!("container {name}"),
                    "",
                    Outcome::failed(e.to_string(), "run it as root"),
                ),
            };
            rows.push(failed);
            break;
        }
        if let [a, b] = &pods[..] {
            for promise in PROMISES {
                let before = rows.len();
                promise(self, a, b, &mut rows);
                if self.is_stopped() {
                    // The signal may be the reason why a check failed.
                    let last = rows.split_off(before);
                    rows.extend(last.into_iter().filter(Row::is_of_removal));
                    break;
                }
            }
        }
        if self.is_stopped() {
            rows.push(Row::skipped("all promises", "", "", "a signal ended the test"));
        }
        rows.extend(pods.into_iter().filter_map(|pod| pod.remove(self)));
        rows
    }

    /// Whether a signal has arrived. Checks then stop waiting.
    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}
