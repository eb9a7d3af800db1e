//! Boot time of the host: no container survives a reboot.

use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

/// Tolerance for changes of the clock.
const MARGIN: Duration = Duration::from_secs(60);

/// Boot time, by the current clock. If the clock was set forward since boot, files look older than the boot: this alone does not prove that
/// a container has exited.
#[derive(Clone, Copy, Debug)]
pub struct Boot(Option<SystemTime>);

impl Boot {
    /// Uses `CLOCK_BOOTTIME`, which also counts during suspend.
    pub fn read() -> Self {
        let up = clock_gettime(ClockId::Boottime).tv_sec.cast_unsigned();
        Self(SystemTime::now().checked_sub(Duration::from_secs(up)))
    }

    /// Whether a time is more than a minute before boot.
    pub fn is_after(self, time: SystemTime) -> bool {
        self.0.is_some_and(|booted| time + MARGIN < booted)
    }

    /// Whether a file was last changed more than a minute before boot. A link is not followed.
    pub fn is_after_file(self, path: &Path) -> bool {
        let modified = path.symlink_metadata().and_then(|file| file.modified());
        modified.is_ok_and(|modified| self.is_after(modified))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_before_the_start_is_in_doubt() {
        let boot = Boot::read();
        let booted = boot.0.unwrap();
        assert!(!boot.is_after(SystemTime::now()));
        for (seconds, is_after) in [(0, false), (59, false), (60, false), (61, true)] {
            assert_eq!(boot.is_after(booted - Duration::from_secs(seconds)), is_after, "{seconds}");
        }
    }
}
