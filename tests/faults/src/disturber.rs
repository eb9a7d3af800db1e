//! Disturbs a race, and classifies the failures that this explains.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use lab::CniError;
use lab::start_by_path;

/// The directory of the network's leases.
pub const LEASES: &str = "/var/lib/cni/networks/net";

/// Flushes the firewall, removes host-local's index and hints and the leases of some containers, and sets the bridge
/// down and up or deletes it in some rounds. Rounds count from 1. A lab's threads are in its namespaces.
pub fn disturb(round: u32, loses_leases: &str) {
    run("nft flush ruleset");
    for hint in [".index", "last_reserved_ip.0"] {
        fs::remove_file(Path::new(LEASES).join(hint)).ok();
    }
    remove_leases(loses_leases);
    if round.is_multiple_of(5) {
        run("ip link set br0 down");
        run("ip link set br0 up");
    }
    if round.is_multiple_of(50) {
        run("ip link del br0");
    }
}

/// As an administrator does, without the lock.
fn remove_leases(of: &str) {
    for entry in fs::read_dir(LEASES).into_iter().flatten().flatten() {
        if fs::read_to_string(entry.path()).is_ok_and(|lease| lease.starts_with(of)) {
            fs::remove_file(entry.path()).ok();
        }
    }
}

fn run(line: &str) {
    let mut words = line.split(' ');
    let mut command = start_by_path(words.next().unwrap_or_default());
    // The object may not exist.
    command.args(words).stderr(Stdio::null()).status().expect("start a command");
}

/// Why an ADD may fail. A flush of the firewall or missing files of host-local are no reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    Exhausted,
    BridgeGone,
    /// The file was deleted while it was written, before it had its name.
    LeaseDeleted,
}

impl Cause {
    /// The cause of an error of a container, whose leases may be those that are deleted. None: the error is a finding.
    pub fn of(error: &CniError, loses_leases: bool) -> Option<Self> {
        let says = |word: &str| error.msg.contains(word);
        if loses_leases && says(&format!("write {LEASES}/")) && says("No such file or directory") {
            return Some(Self::LeaseDeleted);
        }
        if says("no IP addresses available in range set: 10.1.0.2-") {
            return Some(Self::Exhausted);
        }
        // If the bridge does not exist, neither do its sysctls, and it cannot have ports. The kernel reports both like
        // this.
        let named = says("br0") && (says("No such device") || says("No such file or directory"));
        let unnamed = says("create veth ") && says("with peer eth0: Invalid argument");
        (named || unnamed).then_some(Self::BridgeGone)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exhausted => "no address was free",
            Self::BridgeGone => "the bridge was away",
            Self::LeaseDeleted => "its lease was deleted",
        })
    }
}
