//! Polling for an event without a notification.

use std::io;
use std::thread;
use std::time::Duration;

/// Divisor of the time waited so far that gives the next pause. A short wait ends soon after the event, and a hundred long waits do not
/// take the processor from the lock's holder.
const PAUSE_SHARE: u32 = 8;
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// The time left to wait. Pauses are counted, so neither a changed clock nor a stopped process uses it up.
#[derive(Debug)]
pub struct Retry {
    waited: Duration,
    left: Duration,
}

impl Retry {
    /// Waits at most `time`. Zero: one attempt.
    pub fn new(time: Duration) -> Self {
        Self { waited: Duration::ZERO, left: time }
    }

    /// Attempts immediately, and again after each pause. Returns `None` if all attempts failed.
    ///
    /// # Errors
    /// The first error of an attempt.
    pub fn wait_for<T>(
        &mut self,
        mut attempt: impl FnMut() -> io::Result<Option<T>>,
    ) -> io::Result<Option<T>> {
        loop {
            if let Some(got) = attempt()? {
                return Ok(Some(got));
            }
            if self.left.is_zero() {
                return Ok(None);
            }
            let pause = (self.waited / PAUSE_SHARE).clamp(SHORTEST_PAUSE, LONGEST_PAUSE).min(self.left);
            thread::sleep(pause);
            self.waited += pause;
            self.left -= pause;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempts(time: Duration, success: usize) -> (usize, bool) {
        let mut tried = 0;
        let got = Retry::new(time).wait_for(|| {
            tried += 1;
            Ok((tried == success).then_some(()))
        });
        (tried, got.unwrap().is_some())
    }

    #[test]
    fn a_successful_first_attempt_does_not_wait() {
        assert_eq!(attempts(Duration::ZERO, 1), (1, true));
    }

    #[test]
    fn it_is_tried_again_until_the_time_is_over() {
        assert_eq!(attempts(Duration::from_secs(600), 3), (3, true));
        assert_eq!(attempts(Duration::from_millis(3), 10), (4, false));
        assert_eq!(attempts(Duration::ZERO, 10), (1, false));
    }

    #[test]
    fn an_error_is_not_tried_again() {
        let mut tried = 0;
        let failed = Retry::new(Duration::from_secs(600)).wait_for(|| {
            tried += 1;
            Err::<Option<()>, _>(io::ErrorKind::PermissionDenied.into())
        });
        assert_eq!((tried, failed.unwrap_err().kind()), (1, io::ErrorKind::PermissionDenied));
    }
}
