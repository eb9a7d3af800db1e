//! Exchange with a child process in one thread: writes the request and reads the output concurrently. Threads for the pipes would need
//! memory during an ADD, and Rust's runtime aborts if a thread's memory is refused.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};

use super::IoStop;

/// Bytes of a log that are kept. The rest is read and dropped.
const LOG_BYTES: usize = 64 << 10;

/// Polling interval for a child without a pidfd.
const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// The exchange with a running child over its piped streams.
#[derive(Debug)]
pub struct ChildIo<'a> {
    child: Pid,
    /// `None` if pidfd_open(2) is not possible; the child is then polled. It needs Linux 5.3, a free descriptor, and a seccomp filter that
    /// allows it.
    process: Option<OwnedFd>,
    stdin: Option<ChildStdin>,
    request: &'a [u8],
    stdout: Option<ChildStdout>,
    most: u64,
    stderr: Option<ChildStderr>,
    /// Output on stdout.
    pub out: Vec<u8>,
    /// The first 64 KiB of stderr.
    pub log: Vec<u8>,
}

impl<'a> ChildIo<'a> {
    /// Starts the exchange. `most` limits the bytes on stdout.
    ///
    /// # Errors
    /// If the pipes cannot be made non-blocking.
    pub fn new(child: &mut Child, request: &'a [u8], most: u64) -> io::Result<Self> {
        let pid = Pid::from_child(child);
        let this = Self {
            child: pid,
            process: pidfd_open(pid, PidfdFlags::empty()).ok(),
            stdin: child.stdin.take(),
            request,
            stdout: child.stdout.take(),
            most,
            stderr: child.stderr.take(),
            out: Vec::new(),
            log: Vec::new(),
        };
        let pipes = [
            this.stdin.as_ref().map(AsFd::as_fd),
            this.stdout.as_ref().map(AsFd::as_fd),
            this.stderr.as_ref().map(AsFd::as_fd),
        ];
        for pipe in pipes.into_iter().flatten() {
            fcntl_setfl(pipe, OFlags::NONBLOCK)?;
        }
        Ok(this)
    }

    /// Runs until the child has exited. Its own children may keep the pipes open forever, so the end of the pipes does not matter.
    ///
    /// # Errors
    /// If the deadline passes or the output is too long. The child still runs.
    pub fn until(&mut self, deadline: Option<Instant>) -> Result<(), IoStop> {
        self.feed()?;
        loop {
            let ended = self.wait(deadline)?;
            self.feed()?;
            self.read()?;
            if ended {
                return Ok(());
            }
        }
    }

    /// Waits for an event. Returns whether the child has exited.
    fn wait(&self, deadline: Option<Instant>) -> Result<bool, IoStop> {
        let left = |deadline: Instant| deadline.checked_duration_since(Instant::now()).ok_or(IoStop::Late);
        let mut left = deadline.map(left).transpose()?.and_then(|left| Timespec::try_from(left).ok());
        if self.process.is_none() {
            left = Some(left.map_or(LOOK_AGAIN, |left| left.min(LOOK_AGAIN)));
        }
        let mut fds = Vec::new();
        fds.extend(self.process.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
        fds.extend(self.stdin.as_ref().map(|fd| PollFd::new(fd, PollFlags::OUT)));
        fds.extend(self.stdout.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
        fds.extend(self.stderr.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
        match poll(&mut fds, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(IoStop::System("wait for the program's output", e.into())),
        }
        match &self.process {
            Some(_) => Ok(!fds[0].revents().is_empty()),
            None => self.has_ended(),
        }
    }

    /// Checks whether the child has exited, without reaping it.
    fn has_ended(&self) -> Result<bool, IoStop> {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(self.child), look) {
            Ok(status) => Ok(status.is_some()),
            Err(Errno::INTR) => Ok(false),
            Err(e) => Err(IoStop::System("wait for the program to exit", e.into())),
        }
    }

    /// Writes as much as the pipe accepts. The child need not read everything: its output shows its success. A child that got only a part
    /// would treat it as the whole request.
    fn feed(&mut self) -> Result<(), IoStop> {
        let Some(stdin) = &mut self.stdin else { return Ok(()) };
        while !self.request.is_empty() {
            match stdin.write(self.request) {
                Ok(written) => self.request = &self.request[written..],
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::BrokenPipe => break,
                Err(e) => return Err(IoStop::System("write the program's input", e)),
            }
        }
        self.stdin = None;
        Ok(())
    }

    fn read(&mut self) -> Result<(), IoStop> {
        let (out, most) = (&mut self.out, self.most);
        let take = |bytes: &[u8]| {
            out.extend_from_slice(bytes);
            out.len() as u64 <= most
        };
        if drain(self.stdout.as_mut(), take).map_err(unheard)? {
            self.stdout = None;
        }
        if self.out.len() as u64 > most {
            return Err(IoStop::Endless);
        }
        let log = &mut self.log;
        let keep = |bytes: &[u8]| {
            let room = LOG_BYTES.saturating_sub(log.len());
            log.extend_from_slice(&bytes[..bytes.len().min(room)]);
            true
        };
        if drain(self.stderr.as_mut(), keep).map_err(unheard)? {
            self.stderr = None;
        }
        Ok(())
    }
}

fn unheard(e: io::Error) -> IoStop {
    IoStop::System("read the program's output", e)
}

/// Reads the available bytes while `take` accepts them. Returns whether the pipe has ended.
fn drain(pipe: Option<&mut impl Read>, mut take: impl FnMut(&[u8]) -> bool) -> io::Result<bool> {
    let Some(pipe) = pipe else { return Ok(true) };
    let mut buffer = [0; 8 << 10];
    loop {
        match pipe.read(&mut buffer) {
            Ok(0) => return Ok(true),
            Ok(length) if take(&buffer[..length]) => {}
            Ok(_) => return Ok(false),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}
