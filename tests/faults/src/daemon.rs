//! dhcp's daemon, killed at each of its system calls while it starts, renews, leases, takes back and ends.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use lab::dhcp::{Background, DhcpNetwork, DhcpSite, RANGE, STATE, daemon_command, executable};
use lab::{Call, Container};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::case::{Case, kills, own_calls};

/// Which kills are tried.
#[derive(Clone, Copy, Debug)]
pub struct DaemonSweep {
    /// Only each `every`-th.
    pub every: usize,
    pub workers: usize,
}

/// What came of them.
#[derive(Debug, Default)]
pub struct Lives {
    /// The kills that happened.
    pub tried: usize,
    /// After how many of them the ADD had succeeded all the same, and the DEL.
    pub added: usize,
    pub deleted: usize,
    pub findings: Vec<String>,
}

impl DaemonSweep {
    /// None: there is no DHCP server here, and that is counted as a skip. `report` is told of each finding as it comes.
    pub fn run(self, report: impl Fn(&str) + Sync) -> Option<Lives> {
        // A lab belongs to its thread.
        let calls = thread::scope(|scope| scope.spawn(|| Stage::set().map(|mut s| s.calls())).join());
        let mut cases = kills(&calls.expect("a life that nothing happens to")?);
        cases.retain(|case| case.injection().contains("SIGKILL"));
        let cases: Vec<_> = cases.into_iter().step_by(self.every).collect();
        let (lives, next) = (Mutex::new(Lives::default()), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..self.workers {
                scope.spawn(|| {
                    let mut stage = Stage::set();
                    while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let Some(there) = &mut stage else { return };
                        let life = catch_unwind(AssertUnwindSafe(|| there.live(Some(case))));
                        let broken = life.is_err();
                        let mut lives = lives.lock().expect("nobody panics with the lock");
                        let finding = lives.note(life);
                        for what in finding.iter().map(|what| format!("dhcp daemon: {case}: {what}")) {
                            report(&what);
                            lives.findings.push(what);
                        }
                        drop(lives);
                        if broken {
                            stage = None;
                            stage = stage.or_else(Stage::set);
                        }
                    }
                });
            }
        });
        lives.into_inner().ok()
    }
}

impl Lives {
    /// Counts a life. What is wrong with it.
    fn note(&mut self, life: thread::Result<Option<Life>>) -> Option<String> {
        match life {
            Ok(Some(life)) => {
                self.tried += 1;
                self.added += usize::from(life.added);
                self.deleted += usize::from(life.deleted);
                life.fault
            }
            Ok(None) => None,
            Err(panic) => {
                self.tried += 1;
                let text = panic.downcast_ref::<String>().map_or("a panic", String::as_str);
                Some(text.to_owned())
            }
        }
    }
}

/// What came of one kill.
#[derive(Debug)]
struct Life {
    added: bool,
    deleted: bool,
    fault: Option<String>,
}

/// Three containers and a server: the lease of one is kept and renewed, one gets a lease, one gives its lease back.
struct Stage {
    net: DhcpNetwork,
    keeps: Container,
    comes: Call,
    goes: Call,
    /// The address of the one that keeps it.
    address: String,
}

const TRACE: &str = "/run/lab/trace";

impl Stage {
    fn set() -> Option<Self> {
        let mut net = DhcpNetwork::with(RANGE)?;
        let keeps = net.pod("keeps");
        net.bridge(&keeps).add().ok_result();
        let address = keeps.addresses("eth0")[0].clone();
        let (comes, goes) = (net.plugged("comes").1, net.plugged("goes").1);
        net.end_daemon(Signal::SIGTERM);
        Some(Self { net, keeps, comes, goes, address })
    }

    /// The daemon's own system calls in a life that nothing happens to.
    fn calls(&mut self) -> Vec<crate::Syscall> {
        let life = self.live(None);
        assert!(life.is_none(), "{life:?}");
        own_calls(&trace(), false)
    }

    /// One life of a daemon, and what the next one makes of it. None: it was not killed.
    fn live(&mut self, case: Option<&Case>) -> Option<Life> {
        self.net.start_daemon("");
        self.goes.add().ok_result();
        self.net.end_daemon(Signal::SIGTERM);
        self.let_renewal_be_due();
        let before = renewals();

        let trace = case.map_or_else(|| "trace=all".to_owned(), Case::injection);
        let strace = format!("strace -f -q -s 8 -o {TRACE} -e {trace}");
        self.net.start_daemon_by(daemon_command(&strace, &executable(), ""));
        self.until_or_death(DhcpSite::is_listening);
        let added = self.comes.add();
        let deleted = self.goes.del();
        self.until_or_death(|_| renewals() > before);
        if !self.has_ended() {
            self.end_traced();
        }
        let killed = case.is_some_and(|case| case.happened_in(&self::trace()));
        self.net.end_daemon(Signal::SIGKILL);
        // The next one is to renew in any case. After a kill between the note of a renewal and its log it would wait for a minute.
        self.let_renewal_be_due();
        let before = renewals();

        let leased = added.succeeded().then(|| address(&added.ok_result()));
        self.net.start_daemon("");
        let fault = self.objection(leased.as_deref(), deleted.succeeded(), before);
        self.comes.del().ok();
        self.net.end_daemon(Signal::SIGTERM);
        killed.then(|| Life { added: leased.is_some(), deleted: deleted.succeeded(), fault })
    }

    /// What is wrong with what the next daemon has: `leased` is the address that an ADD has got.
    fn objection(&self, leased: Option<&str>, deleted: bool, before: usize) -> Option<String> {
        if leased.is_none() {
            self.comes.del().ok();
        }
        if !deleted {
            self.goes.del().ok();
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
        let names = fs::read_dir(STATE).expect("list the leases").flatten();
        let names: Vec<_> = names.map(|entry| entry.file_name()).filter(|name| name != "lock").collect();
        if names.len() != expected.len() {
            return Some(format!("these files are there: {names:?}"));
        }
        // dnsmasq ends the line of a lease with the client's identifier.
        let goes: String = b"goes/net/eth0".iter().map(|byte| format!(":{byte:02x}")).collect();
        self.net.until("the server has the lease back", || {
            !fs::read_to_string("/run/lab/server.leases").unwrap_or_default().contains(&goes)
        });
        None
    }

    /// As if half of the lease's time had passed.
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
        for _ in 0..6000 {
            if done(&self.net) || self.has_ended() {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("the daemon hangs: {}", self.net.daemon_log());
    }

    fn has_ended(&mut self) -> bool {
        self.net.daemon().is_none_or(Background::has_ended)
    }

    /// An orderly end: the daemon is the child of strace.
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

fn trace() -> String {
    String::from_utf8_lossy(&fs::read(TRACE).unwrap_or_default()).into_owned()
}

fn address(result: &Value) -> String {
    result["ips"][0]["address"].as_str().unwrap_or_default().to_owned()
}
