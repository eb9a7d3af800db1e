//! The iptables tools of a family, and the lock of those who use them.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use cni::{Code, Error, Result, ResultExt};
use netlink::Family;
use system::lock::Lock;

use super::tool::{self, DEADLINE};

/// How long a tool waits for the lock that other writers hold, in seconds.
const LOCK_WAIT: &str = "5";

/// How often to try again because another writer came between listing and changing.
const TRIES: usize = 4;

/// The lock of those that change rules by iptables.
const LOCK: &str = "iptables";

/// How long to wait for it. A hundred containers at once on a slow machine take turns for half a minute.
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

    /// Those of the legacy variant; the host's default where they have no name of their own.
    pub(super) fn find_legacy(family: Family) -> Result<Self> {
        Self::find(family, "-legacy").or_else(|_| Self::find(family, ""))
    }

    /// Changes rules: all that the script says, or nothing of a table.
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

/// Lists and changes rules, again if another writer came between: not if a tool hung.
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

/// Keeps other plugins from changing rules by iptables. A tool holds it until it ends, also if the plugin that started it is
/// killed. None: this host has no place for a lock.
pub(super) fn lock() -> Result<Option<Lock>> {
    let lock = Lock::acquire(LOCK, LOCK_TIMEOUT)?;
    if let Some(lock) = &lock {
        lock.pass_on().context(|| "pass a lock on to child processes")?;
    }
    Ok(lock)
}

/// Waits for tools that are still at work, whose plugin may have been killed.
///
/// # Errors
/// Code 11 if they do not end in time.
pub(crate) fn settle() -> Result<()> {
    Ok(Lock::acquire(LOCK, LOCK_TIMEOUT).map(drop)?)
}
