//! dhcp's daemon, killed at each of its system calls while it starts, renews, leases, releases and exits.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use std::{fmt, fs};

use lab::dhcp::{
    Background, DhcpNetwork, DhcpSite, RANGE_FOR_A_DAY, RANGE_V6_FOR_A_DAY, STATE, daemon_command, executable,
};
use lab::{Call, Container, Sample};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::case::{Case, kills, own_calls};

/// The address family of the leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    /// Both families.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// An expired lease would look like a released one.
    fn network(self) -> Option<DhcpNetwork> {
        match self {
            Self::V4 => DhcpNetwork::with(RANGE_FOR_A_DAY),
            Self::V6 => DhcpNetwork::with_v6(RANGE_V6_FOR_A_DAY),
        }
    }

    /// The `ipam` of dhcp.
    fn ipam(self) -> Value {
        let family = match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        };
        json!({"type": "dhcp", "family": family})
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// A sweep of kills.
#[derive(Clone, Copy, Debug)]
pub struct DaemonSweep {
    pub family: Family,
    pub sample: Sample,
    pub workers: usize,
}

/// The results of all kills.
#[derive(Debug, Default)]
pub struct KillOutcomes {
    /// The number of kills that happened.
    pub tried: usize,
    /// After how many kills the ADD had succeeded nevertheless, and the DEL.
    pub added: usize,
    pub deleted: usize,
    pub findings: Vec<String>,
}

impl DaemonSweep {
    /// None: there is no DHCP server here, which counts as skipped. Calls `report` with each finding.
    pub fn run(self, report: impl Fn(&str) + Sync) -> Option<KillOutcomes> {
        // A lab belongs to its thread.
        let calls =
            thread::scope(|scope| scope.spawn(|| Stage::set(self.family).map(|mut s| s.calls())).join());
        let mut cases = kills(&calls.expect("a life that nothing happens to")?);
        cases.retain(|case| case.injection().contains("SIGKILL"));
        let cases: Vec<_> = self.sample.of(cases).collect();
        let (outcomes, next) = (Mutex::new(KillOutcomes::default()), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..self.workers {
                scope.spawn(|| {
                    let mut stage = Stage::set(self.family);
                    while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let Some(there) = &mut stage else { return };
                        let outcome = catch_unwind(AssertUnwindSafe(|| there.live(Some(case))));
                        let broken = outcome.is_err();
                        let mut outcomes = outcomes.lock().expect("no thread panics with the lock");
                        let finding = outcomes.note(outcome);
                        for what in
                            finding.iter().map(|what| format!("dhcp daemon, {}: {case}: {what}", self.family))
                        {
                            report(&what);
                            outcomes.findings.push(what);
                        }
                        drop(outcomes);
                        if broken {
                            stage = None;
                            stage = stage.or_else(|| Stage::set(self.family));
                        }
                    }
                });
            }
        });
        outcomes.into_inner().ok()
    }
}

impl KillOutcomes {
    /// Counts a kill. Returns the finding, if any.
    fn note(&mut self, outcome: thread::Result<Option<KillOutcome>>) -> Option<String> {
        match outcome {
            Ok(Some(outcome)) => {
                self.tried += 1;
                self.added += usize::from(outcome.added);
                self.deleted += usize::from(outcome.deleted);
                outcome.fault
            }
            Ok(None) => None,
            Err(panic) => {
                self.tried += 1;
                let text = lab::message_of_panic(&*panic);
                Some(text.to_owned())
            }
        }
    }
}

/// The result of one kill.
#[derive(Debug)]
struct KillOutcome {
    added: bool,
    deleted: bool,
    fault: Option<String>,
}

/// Three containers and a server: one keeps and renews its lease, one obtains a lease, one releases its lease.
struct Stage {
    family: Family,
    net: DhcpNetwork,
    keeps: Container,
    comes: (Container, Call),
    goes: (Container, Call),
    /// The address of the container that keeps its lease.
    address: String,
}

const TRACE: &str = "/run/lab/trace";

impl Stage {
    fn set(family: Family) -> Option<Self> {
        let mut net = family.network()?;
        let keeps = net.pod("keeps");
        let ipam = family.ipam();
        let bridge = net.lab.plugin("bridge").config(json!({"bridge": "br0", "ipam": ipam}));
        bridge.on(&keeps).add().ok_result();
        let address = keeps.addresses("eth0")[0].clone();
        let [comes, goes] = ["comes", "goes"].map(|name| {
            let (pod, call) = net.plugged(name);
            (pod, call.config(json!({"ipam": ipam})))
        });
        net.end_daemon(Signal::SIGTERM);
        Some(Self { family, net, keeps, comes, goes, address })
    }

    /// The daemon's own system calls in a run without a kill.
    fn calls(&mut self) -> Vec<crate::Syscall> {
        let outcome = self.live(None);
        assert!(outcome.is_none(), "{outcome:?}");
        own_calls(&trace(), false)
    }

    /// Runs a daemon and kills it, then starts the next one. None: it was not killed.
    fn live(&mut self, case: Option<&Case>) -> Option<KillOutcome> {
        self.net.start_daemon("");
        let gone = address(&self.goes.1.add().ok_result());
        // The interface plugin deletes an IPv4 address, and does not run here.
        if self.family == Family::V6 {
            put(&self.goes.0, &gone);
        }
        self.net.end_daemon(Signal::SIGTERM);
        self.let_renewal_be_due();
        let before = renewals();

        let trace = case.map_or_else(|| "trace=all".to_owned(), Case::injection);
        let strace = format!("strace -f -q -s 8 -o {TRACE} -e {trace}");
        self.net.start_daemon_by(daemon_command(&strace, &executable(), ""));
        self.until_or_death(DhcpSite::is_listening);
        let added = self.comes.1.add();
        let leased = added.succeeded().then(|| address(&added.ok_result()));
        leased.iter().for_each(|leased| put(&self.comes.0, leased));
        let deleted = self.goes.1.del();
        let timed = leased.clone().map(|one| (self.comes.0.clone(), one));
        self.until_or_death(|_| renewals() > before && timed.iter().all(|(pod, one)| has_times(pod, one)));
        if !self.has_ended() {
            self.end_traced();
        }
        let killed = case.is_some_and(|case| case.happened_in(&self::trace()));
        self.net.end_daemon(Signal::SIGKILL);
        // The next daemon must renew. After a kill between the record of a renewal and its log line, it would wait for
        // a minute.
        self.let_renewal_be_due();
        let before = renewals();

        self.net.start_daemon("");
        let fault = self.judge(leased.as_deref(), (&gone, deleted.succeeded()), before);
        self.comes.1.del().ok();
        self.net.end_daemon(Signal::SIGTERM);
        killed.then(|| KillOutcome { added: leased.is_some(), deleted: deleted.succeeded(), fault })
    }

    /// Checks the next daemon's leases. `leased` is the address of a successful ADD, `gone` the address to release, and
    /// whether its DEL succeeded.
    fn judge(&self, leased: Option<&str>, (gone, deleted): (&str, bool), before: usize) -> Option<String> {
        if leased.is_none() {
            self.comes.1.del().ok();
        }
        if !deleted {
            self.goes.1.del().ok();
        }
        self.net.until("the lease is renewed", || renewals() > before);
        let mut expected = vec![("keeps", self.address.as_str())];
        expected.extend(leased.map(|address| ("comes", address)));
        expected.sort_unstable();
        let leases = self.net.list();
        let text = |lease: &'_ Value, key: &str| lease[key].as_str().unwrap_or_default().to_owned();
        let mut there: Vec<_> =
            leases.iter().map(|lease| (text(lease, "containerId"), text(lease, "address"))).collect();
        there.sort_unstable();
        if !there.iter().map(|(id, address)| (id.as_str(), address.as_str())).eq(expected.iter().copied()) {
            return Some(format!("the next daemon has {there:?}, and not {expected:?}"));
        }
        if leased == Some(&*self.address) {
            return Some(format!("{} is on two containers", self.address));
        }
        if self.keeps.addresses("eth0") != [&*self.address] {
            return Some(format!("{} is not on its link any more", self.address));
        }
        if !self.goes.0.addresses("eth0").is_empty() {
            return Some(format!("{gone} is still on its link"));
        }
        let names = fs::read_dir(STATE).expect("list the leases").flatten();
        let names: Vec<_> = names.map(|entry| entry.file_name()).filter(|name| name != "lock").collect();
        if names.len() != expected.len() {
            return Some(format!("these files are there: {names:?}"));
        }
        // The third word of dnsmasq's line is the address.
        let gone = gone.split('/').next();
        self.net.until("the server has the lease back", || {
            let leases = fs::read_to_string("/run/lab/server.leases").unwrap_or_default();
            leases.lines().all(|line| line.split(' ').nth(2) != gone)
        });
        None
    }

    /// Changes the record as if half of the lease time had passed.
    fn let_renewal_be_due(&self) {
        for entry in fs::read_dir(STATE).expect("list the leases").flatten() {
            let Ok(text) = fs::read_to_string(entry.path()) else { continue };
            let Ok(mut record) = serde_json::from_str::<Value>(&text) else { continue };
            if record["containerId"] == "keeps" {
                record["lease"]["renew"] = json!(1);
                fs::write(entry.path(), record.to_string()).expect("write a lease");
            }
        }
    }

    /// Waits until a daemon that may be killed has done something, or is dead.
    fn until_or_death(&mut self, done: impl Fn(&DhcpSite) -> bool) {
        let start = Instant::now();
        while !done(&self.net) && !self.has_ended() {
            assert!(
                start.elapsed() < Duration::from_secs(600),
                "the daemon hangs: {}",
                self.net.daemon_log()
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn has_ended(&mut self) -> bool {
        self.net.daemon().is_none_or(Background::has_ended)
    }

    /// Ends the daemon with a signal. It is a child of strace.
    fn end_traced(&mut self) {
        let strace = self.net.daemon().expect("a daemon that has not ended").id();
        let children = fs::read_to_string(format!("/proc/{strace}/task/{strace}/children"));
        for child in children.unwrap_or_default().split_whitespace().filter_map(|pid| pid.parse().ok()) {
            kill(Pid::from_raw(child), Signal::SIGTERM).ok();
        }
        self.until_or_death(|_| false);
    }
}

fn renewals() -> usize {
    fs::read_to_string("/run/lab/daemon.log").unwrap_or_default().matches("keeps/net/eth0: renewed").count()
}

/// Adds an address to a container's link, as an interface plugin does. The daemon sets its lifetimes.
fn put(pod: &Container, address: &str) {
    pod.sh(&format!("ip addr replace {address} dev eth0 nodad"));
}

fn has_times(pod: &Container, address: &str) -> bool {
    pod.sh("ip addr show dev eth0 dynamic").contains(address)
}

fn trace() -> String {
    String::from_utf8_lossy(&fs::read(TRACE).unwrap_or_default()).into_owned()
}

fn address(result: &Value) -> String {
    result["ips"][0]["address"].as_str().unwrap_or_default().to_owned()
}
