//! A run with `--stay`, as in the DaemonSet: it waits for a signal, and installs plugins again if others replace
//! them.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cni::{Error, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::placed::Placed;
use crate::say;
use crate::source::Sources;

/// Interval of the checks of the directories.
const INTERVAL_MS: u16 = 10_000;

/// Maximum number of repeated installations in a period. Otherwise two installers would replace each other's files
/// endlessly.
const LIMIT: usize = 5;
const PERIOD: Duration = Duration::from_secs(3600);

/// The signals that end the run.
#[derive(Debug)]
pub struct Stay {
    signals: SignalFd,
    run: u64,
}

impl Stay {
    /// Blocks SIGTERM and SIGINT. From now on, they stay pending until they are read.
    pub fn begin(run: u64) -> Result<Self> {
        let ends: SigSet = [Signal::SIGTERM, Signal::SIGINT].into_iter().collect();
        ends.thread_block().map_err(Error::from)?;
        let signals = SignalFd::with_flags(&ends, SfdFlags::SFD_CLOEXEC).map_err(Error::from)?;
        Ok(Self { signals, run })
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
        let mut times: Vec<Instant> = Vec::new();
        let mut has_given_up = false;
        while !self.is_ended()? {
            times.retain(|time| time.elapsed() < PERIOD);
            let is_limited = times.len() >= LIMIT;
            for dir in dirs {
                if self.look_after(dir, sources, is_limited, has_given_up) && !is_limited {
                    times.push(Instant::now());
                }
            }
            has_given_up = is_limited;
        }
        Ok(())
    }

    /// Installs replaced plugins again. Returns whether there were any.
    fn look_after(&self, dir: &Path, sources: &Sources, is_limited: bool, is_quiet: bool) -> bool {
        // If another run is working there or the disk fails, the next check tries again.
        let Ok(placed) = Placed::open(dir) else { return false };
        let replaced = placed.replaced(self.run);
        if replaced.is_empty() {
            return false;
        }
        let names = replaced.iter().cloned().collect::<Vec<_>>().join(", ");
        if is_limited {
            if !is_quiet {
                say(&format!(
                    "warning: somebody has replaced or removed {names} in {} again. This has happened {LIMIT} times \
                     within an hour, so ferrule-install does not replace them for now. Stop the other installer",
                    dir.display()
                ));
            }
            return true;
        }
        say(&format!(
            "warning: somebody has replaced or removed {names} in {}: installing again",
            dir.display()
        ));
        let sources = sources.iter().filter(|(name, _)| replaced.contains(*name));
        let sources: Sources = sources.map(|(name, from)| (name.clone(), from.clone())).collect();
        if let Err(error) = placed.install(&sources, self.run) {
            say(&format!("warning: {error}"));
        }
        true
    }
}
