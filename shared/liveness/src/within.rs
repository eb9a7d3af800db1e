//! A limit for reading what processes control.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// The result of a scan. `None` if it takes longer than `timeout`; the thread that scans ends with this process.
pub fn within<T: Send + 'static>(timeout: Duration, scan: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    let started = thread::Builder::new().spawn(move || sender.send(scan()));
    started.ok().and_then(|_| receiver.recv_timeout(timeout).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As one that waits for the memory of a process.
    #[test]
    fn a_scan_that_does_not_end_has_no_result() {
        let (_never, blocked) = mpsc::channel::<()>();
        assert_eq!(within(Duration::from_millis(20), move || blocked.recv().is_ok()), None);
        assert_eq!(within(Duration::from_secs(600), || 7), Some(7));
    }
}
