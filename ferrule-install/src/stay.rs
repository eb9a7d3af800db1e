//! A run with `--stay`, as in the DaemonSet: it waits for a signal, and installs plugins again if others replace
//! them.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cni::{Code, Error, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::placed::Placed;
use crate::source::Sources;
use crate::{files, say};

/// Interval of the checks of the directories.
const INTERVAL_MS: u16 = 10_000;

/// Maximum number of repeated installations in a period. Otherwise two installers would replace each other's files
/// endlessly.
const LIMIT: usize = 5;
const PERIOD: Duration = Duration::from_secs(3600);

/// When replaced plugins were installed again.
#[derive(Default)]
struct Repairs(Vec<Instant>);

impl Repairs {
    /// Whether there may be no further one, because there were too many within the last [`PERIOD`].
    fn is_limited(&mut self, now: Instant) -> bool {
        self.0.retain(|time| now.duration_since(*time) < PERIOD);
        self.0.len() >= LIMIT
    }
}

/// The signals that end the run.
#[derive(Debug)]
pub struct Stay {
    signals: SignalFd,
    /// The host's root directory, as seen by this process.
    root: PathBuf,
    run: u64,
    /// Whether to replace existing files.
    update: bool,
}

impl Stay {
    /// Blocks SIGTERM and SIGINT. From now on, they stay pending until they are read.
    pub fn begin(root: &Path, run: u64, update: bool) -> Result<Self> {
        let ends: SigSet = [Signal::SIGTERM, Signal::SIGINT].into_iter().collect();
        ends.thread_block().map_err(Error::from)?;
        let signals = SignalFd::with_flags(&ends, SfdFlags::SFD_CLOEXEC).map_err(Error::from)?;
        Ok(Self { signals, root: root.to_owned(), run, update })
    }

    /// Waits for a signal until the next check. Returns whether one has arrived.
    fn is_ended(&self) -> Result<bool> {
        let mut waits = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        match poll(&mut waits, PollTimeout::from(INTERVAL_MS)) {
            Err(Errno::EINTR) => Ok(false),
            outcome => Ok(outcome.map_err(Error::from)? > 0),
        }
    }

    /// Checks the directories until a signal arrives.
    pub fn watch(&self, dirs: &[PathBuf], sources: &Sources) -> Result<()> {
        say("waiting for SIGTERM");
        let mut repairs = Repairs::default();
        let mut warned = BTreeSet::new();
        while !self.is_ended()? {
            let is_limited = repairs.is_limited(Instant::now());
            let mut warnings = BTreeSet::new();
            for dir in dirs {
                match self.look_after(dir, sources, is_limited) {
                    Ok(false) => {}
                    Ok(true) => repairs.0.push(Instant::now()),
                    Err(e) => drop(warnings.insert(format!("warning: {e}"))),
                }
            }
            // Each check finds the same problem again until somebody solves it.
            warnings.difference(&warned).for_each(|warning| say(warning));
            warned = warnings;
        }
        Ok(())
    }

    /// Installs replaced plugins again. Returns whether there were any.
    fn look_after(&self, dir: &Path, sources: &Sources, is_limited: bool) -> Result<bool> {
        // If another run is working there or the disk fails, the next check tries again.
        let Ok(placed) = Placed::open(dir, &self.root) else { return Ok(false) };
        let mut due = sources.clone();
        let replaced = placed.replaced(self.run);
        due.retain(|name, _| replaced.contains(name) && self.may_install(&dir.join(name)));
        if due.is_empty() {
            return Ok(false);
        }
        let names: Vec<&str> = due.keys().map(String::as_str).collect();
        let happened =
            format!("another program has replaced or removed {} in {}", names.join(", "), dir.display());
        if is_limited {
            return Err(Error::new(
                Code::TryAgainLater,
                format!(
                    "{happened} again. This has happened {LIMIT} times within an hour, so ferrule-install does not \
                     replace them for now. Stop the other installer, or name its plugins in SKIP_CNI_BINARIES"
                ),
            ));
        }
        placed.repair(&due, self.run).map_err(|e| e.context(&happened))?;
        say(&format!("warning: {happened}: installed again"));
        Ok(true)
    }

    /// Whether the options allow to install a file: without `update`, only if it is missing.
    fn may_install(&self, at: &Path) -> bool {
        self.update || matches!(files::exists(at), Ok(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_five_repairs_within_an_hour_there_is_no_other_until_the_hour_is_over() {
        let (mut repairs, start) = (Repairs::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for n in 0..5 {
            assert!(!repairs.is_limited(at(n)));
            repairs.0.push(at(n));
        }
        assert!(repairs.is_limited(at(3599)));
        assert!(!repairs.is_limited(at(3600)));
    }
}
