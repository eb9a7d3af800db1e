//! The daemon's only timer. It uses the clock of leases, which also runs while the machine is suspended. poll(2)'s
//! clock stops then.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use cni::{Error, Result};
use dhcp_client::Time;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// A timer as a descriptor (timerfd_create(2)), which is readable when it is due.
#[derive(Debug)]
pub struct Timer {
    descriptor: OwnedFd,
    /// The time that the timer is set to. None: it is stopped.
    due: Option<Time>,
}

impl Timer {
    /// A stopped timer.
    ///
    /// # Errors
    /// If there are no more descriptors.
    pub fn new() -> Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let created = timerfd_create(TimerfdClockId::Boottime, flags);
        let descriptor = created.map_err(|e| Error::io("create a timer", &e.into()))?;
        Ok(Self { descriptor, due: None })
    }

    /// Sets the timer. A time in the past is due immediately.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set(&mut self, due: Option<Time>) -> Result<()> {
        if self.due == due {
            return Ok(());
        }
        // Zero would stop the timer.
        let since_boot = due.map(|due| due.since(Time::default()).max(Duration::from_nanos(1)));
        let moment = |since: Duration| Timespec::try_from(since).ok();
        let it_value = since_boot.and_then(moment).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
        let setting = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        timerfd_settime(&self.descriptor, TimerfdTimerFlags::ABSTIME, &setting)
            .map_err(|e| Error::io("set the timer", &e.into()))?;
        self.due = due;
        Ok(())
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
