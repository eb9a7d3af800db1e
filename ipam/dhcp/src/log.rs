//! The daemon's log: lines on stderr. The daemon never waits for a full pipe or disk.

use std::fmt::Display;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Maximum length of a line in bytes. A pipe that poll(2) reports as writable has room for it (PIPE_BUF).
const LONGEST: usize = 4096;

/// The number of lines lost since the last written one.
static LOST: AtomicUsize = AtomicUsize::new(0);

/// Logs a line about an attachment.
pub fn log(attachment: impl Display, what: &str) {
    log_line(&format!("{attachment}: {what}"));
}

/// Logs a line. If writing it would block, it is lost, and counted.
pub fn log_line(text: &str) {
    let lost = LOST.swap(0, Ordering::Relaxed);
    let note =
        if lost > 0 { format!("dhcp daemon: {lost} lines of the log were lost\n") } else { String::new() };
    if write(&line(&(note + text))).is_err() {
        LOST.fetch_add(lost + 1, Ordering::Relaxed);
    }
}

fn line(text: &str) -> Vec<u8> {
    let mut line = text.as_bytes().to_vec();
    line.truncate(LONGEST - 1);
    line.push(b'\n');
    line
}

fn write(line: &[u8]) -> io::Result<()> {
    let stderr = io::stderr();
    let mut polled = [PollFd::from_borrowed_fd(stderr.as_fd(), PollFlags::OUT)];
    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    if !polled[0].revents().contains(PollFlags::OUT) {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    stderr.lock().write_all(line)
}
