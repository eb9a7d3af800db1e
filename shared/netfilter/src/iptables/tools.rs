//! The iptables tools of a family, and the lock for using them.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use cni::{Code, Error, Result, ResultExt};
use netlink::Family;
use system::lock::Lock;

use super::tool::{self, DEADLINE};

/// How long a tool waits for the xtables lock, in seconds.
const LOCK_WAIT: &str = "5";

/// Maximum number of attempts if another program makes a change between listing and changing.
const TRIES: usize = 4;

/// Name of the lock for changes by iptables.
const LOCK: &str = "iptables";

/// Timeout for the lock. A hundred concurrent containers on a slow machine need half a minute.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// The tools of a family.
#[derive(Clone, Debug)]
pub(super) struct Tools {
    restore: PathBuf,
    save: PathBuf,
}

impl Tools {
    /// `variant` is empty for the host's default, or `-legacy`.
    pub(super) fn find(family: Family, variant: &str) -> Result<Self> {
        let prefix = family.choose("iptables", "ip6tables");
        let find = |verb: &str| {
            let name = format!("{prefix}{variant}-{verb}");
            tool::find(&name).ok_or_else(|| {
                Error::new(Code::Io, format!("{name} is not installed"))
                    .detail("install the package iptables, or set the backend to nftables")
            })
        };
        Ok(Self { restore: find("restore")?, save: find("save")? })
    }

    /// The legacy variant's tools. They have no separate name if the host's default is the legacy variant.
    pub(super) fn find_legacy(family: Family) -> Result<Self> {
        Self::find(family, "-legacy")
            .or_else(|missing| Self::find(family, "").ok().filter(Self::are_legacy).ok_or(missing))
    }

    /// Whether these change the legacy tables. Only versions since 1.8 report their variant. Older ones are legacy.
    fn are_legacy(&self) -> bool {
        let version = tool::run(Command::new(&self.restore).arg("--version"), "", DEADLINE);
        version.is_ok_and(|version| !version.contains("nf_tables"))
    }

    /// Changes rules: for each table, the whole script or nothing.
    pub(super) fn restore(&self, script: &str) -> Result<()> {
        let restore = &mut Command::new(&self.restore);
        tool::run(restore.args(["--noflush", "-w", LOCK_WAIT]), script, DEADLINE).map(drop)
    }

    /// Lists the rules of tables.
    pub(super) fn save(&self, tables: &[&str]) -> Result<String> {
        tables
            .iter()
            .map(|table| tool::run(Command::new(&self.save).args(["-t", table]), "", DEADLINE))
            .collect()
    }
}

/// Repeats an attempt if another program made a change in between. Not after a timeout of a tool.
pub(super) fn retry(attempt: impl Fn() -> Result<()>) -> Result<()> {
    let mut outcome = attempt();
    for _ in 1..TRIES {
        if !matches!(&outcome, Err(e) if !tool::is_hung(e)) {
            break;
        }
        outcome = attempt();
    }
    outcome
}

/// Prevents other plugins from changing rules by iptables. A tool inherits the lock and holds it until it exits, also
/// if its plugin is killed. None: the host has no place for locks.
pub(super) fn lock() -> Result<Option<Lock>> {
    let lock = Lock::acquire(LOCK, LOCK_TIMEOUT)?;
    if let Some(lock) = &lock {
        lock.pass_on().context(|| "pass a lock on to child processes")?;
    }
    Ok(lock)
}

/// Waits for tools that still run, because their plugin may have been killed.
///
/// # Errors
/// Code 11 if they do not exit in time.
pub(crate) fn settle() -> Result<()> {
    Ok(Lock::acquire(LOCK, LOCK_TIMEOUT).map(drop)?)
}
