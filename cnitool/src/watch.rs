//! Waits for losses of rules, bandwidth limits and DNS servers, or for a signal.

mod limits;
mod servers;

use std::cell::Cell;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use cni::Error;
use netfilter::RulesetMonitor;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use runtime::{Cache, Result};

use crate::signals::{self, Signals};
use limits::Limits;
use servers::Servers;

/// The event that ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Something was removed. [`Watch::has_lost`] reports whether it must be restored.
    Removal,
    Signal,
    Timeout,
}

/// SIGTERM and SIGINT as a descriptor, and the events of the ruleset, of links and of traffic control.
#[derive(Debug)]
pub struct Watch {
    signals: Signals,
    /// None: the kernel has no nf_tables.
    rules: Option<RulesetMonitor>,
    /// Whether rules were lost since the last call of [`Watch::has_lost`].
    without_rules: Cell<bool>,
    limits: Limits,
    servers: Servers,
}

impl Watch {
    /// Subscribes to the events. `own` is the cache of this process.
    ///
    /// # Errors
    /// If the process lacks CAP_NET_ADMIN.
    pub fn start(own: &Cache) -> Result<Self> {
        Ok(Self {
            signals: Signals::block()?,
            rules: RulesetMonitor::subscribe()?,
            without_rules: Cell::new(false),
            limits: Limits::watch()?,
            servers: Servers::watch(own),
        })
    }

    /// Waits for a removal or a signal until the timeout. Without `removals`, waits only for a signal.
    ///
    /// # Errors
    /// If waiting fails.
    pub fn wait(&self, removals: bool, timeout: Option<Duration>) -> Result<Woken> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            let mut ready = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
            if removals {
                let sockets =
                    self.rules.as_ref().map(RulesetMonitor::as_fd).into_iter().chain([self.limits.as_fd()]);
                ready.extend(sockets.map(|socket| PollFd::new(socket, PollFlags::POLLIN)));
            }
            let next_check = removals.then(|| self.servers.next()).flatten();
            match poll(
                &mut ready,
                deadline.into_iter().chain(next_check).min().map_or(PollTimeout::NONE, signals::timeout),
            ) {
                Ok(0) if deadline.is_some_and(|end| Instant::now() >= end) => return Ok(Woken::Timeout),
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(Error::from(e).context("wait for events").into()),
            }
            if ready[0].any().unwrap_or_default() {
                return Ok(Woken::Signal);
            }
            if removals && self.take()? {
                return Ok(Woken::Removal);
            }
        }
    }

    /// Reads pending events. Returns whether any of them reports a removal.
    fn take(&self) -> Result<bool> {
        let rules = self.rules.as_ref().map_or(Ok(false), RulesetMonitor::read_losses)?;
        self.without_rules.set(self.without_rules.get() || rules);
        let servers = self.servers.take();
        Ok(self.limits.take()? || rules || servers)
    }

    /// Whether a live attachment lacks something that was removed since the last call.
    ///
    /// # Errors
    /// If the kernel does not list the links.
    pub fn has_lost(&self) -> Result<bool> {
        let limits = self.limits.are_lost()?;
        Ok(self.without_rules.take() || self.servers.are_lost() || limits)
    }
}
