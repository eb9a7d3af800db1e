//! Plugins as processes: with a deadline, and with bounds to what they may print.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command as Process, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use cni::exec::failure;
use cni::{Code, Error, json};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::{Exec, Invocation, Output};

/// What is kept of a captured log, in bytes. The rest is read and dropped.
const LOG_BYTES: usize = 64 << 10;

/// What a plugin's log goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stderr {
    /// This process's own stderr.
    #[default]
    Inherit,
    /// [`Output::stderr`], or the details of the error; the first 64 KiB of it.
    Capture,
}

/// Runs plugins as child processes, each in a process group of its own: one that hangs is killed with its children.
#[derive(Clone, Debug)]
pub struct Processes {
    /// How long a plugin may take. Default: 2 minutes, as a kubelet waits for its runtime.
    pub deadline: Duration,
    /// What the plugin's log goes to.
    pub stderr: Stderr,
}

impl Default for Processes {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(120), stderr: Stderr::default() }
    }
}

impl Exec for Processes {
    fn run(&self, invocation: &Invocation<'_>) -> cni::Result<Output> {
        let limit = invocation.deadline.unwrap_or(self.deadline);
        let deadline = Instant::now() + limit;
        let mut child = self.start(invocation).map_err(|e| Error::io("start it", &e))?;
        let mut talk = match Talk::with(&mut child, invocation.stdin) {
            Ok(talk) => talk,
            Err(e) => return Err(end(&mut child, Error::io("watch over it", &e))),
        };
        if let Err(why) = talk.until(deadline) {
            return Err(end(&mut child, why.explain(invocation, limit)).detail(talk.log()));
        }
        let status = child.wait().map_err(|e| Error::io("wait for its end", &e))?;
        talk.outcome(invocation, status)
    }
}

impl Processes {
    fn start(&self, invocation: &Invocation<'_>) -> io::Result<Child> {
        let mut process = Process::new(invocation.program);
        process.envs(invocation.env.iter().map(|(key, value)| (key, value)));
        process.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        process.stderr(if self.stderr == Stderr::Capture { Stdio::piped() } else { Stdio::inherit() });
        cni::exec::spawn(&mut process)
    }
}

/// Kills the plugin and all of its children that have not left its process group.
fn end(child: &mut Child, error: Error) -> Error {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        kill_process_group(group, Signal::KILL).ok();
    }
    child.wait().ok();
    error
}

/// Why a plugin is not waited for any longer.
enum Why {
    Late,
    Endless,
    System(io::Error),
}

impl From<Errno> for Why {
    fn from(e: Errno) -> Self {
        Self::System(e.into())
    }
}

impl Why {
    fn explain(self, invocation: &Invocation<'_>, limit: Duration) -> Error {
        let command = invocation.command;
        match self {
            Self::Late => Error::new(
                Code::Internal,
                format!("{command} did not finish within {limit:?} and was killed"),
            ),
            Self::Endless => {
                Error::new(Code::Decoding, format!("{command} printed more than {} bytes", json::MAX_BYTES))
            }
            Self::System(e) => Error::io("read its output", &e),
        }
    }
}

/// The exchange with a running plugin, in one thread: the request goes in while output comes out.
struct Talk<'a> {
    process: OwnedFd,
    stdin: Option<ChildStdin>,
    request: &'a [u8],
    stdout: Option<ChildStdout>,
    out: Vec<u8>,
    stderr: Option<ChildStderr>,
    log: Vec<u8>,
}

impl<'a> Talk<'a> {
    fn with(child: &mut Child, request: &'a [u8]) -> io::Result<Self> {
        let this = Self {
            process: pidfd_open(Pid::from_child(child), PidfdFlags::empty())?,
            stdin: child.stdin.take(),
            request,
            stdout: child.stdout.take(),
            out: Vec::new(),
            stderr: child.stderr.take(),
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

    /// Goes on until the plugin itself has ended: a child that it leaves behind may hold its pipes open for ever.
    fn until(&mut self, deadline: Instant) -> Result<(), Why> {
        self.feed();
        loop {
            let ended = self.wait(deadline)?;
            self.feed();
            self.read()?;
            if ended {
                return Ok(());
            }
        }
    }

    /// Waits for something to do; says whether the plugin has ended.
    fn wait(&self, deadline: Instant) -> Result<bool, Why> {
        let left = deadline.checked_duration_since(Instant::now()).ok_or(Why::Late)?;
        let left = Timespec::try_from(left).ok();
        let mut fds = vec![PollFd::new(&self.process, PollFlags::IN)];
        fds.extend(self.stdin.as_ref().map(|fd| PollFd::new(fd, PollFlags::OUT)));
        fds.extend(self.stdout.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
        fds.extend(self.stderr.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
        match poll(&mut fds, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(!fds[0].revents().is_empty()),
            Err(e) => Err(e.into()),
        }
    }

    /// Writes what the pipe takes. A plugin need not read all of it: what it prints tells how it went.
    fn feed(&mut self) {
        let Some(stdin) = &mut self.stdin else { return };
        while !self.request.is_empty() {
            match stdin.write(self.request) {
                Ok(written) => self.request = &self.request[written..],
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        self.stdin = None;
    }

    fn read(&mut self) -> Result<(), Why> {
        let out = &mut self.out;
        let take = |bytes: &[u8]| {
            out.extend_from_slice(bytes);
            out.len() as u64 <= json::MAX_BYTES
        };
        if drain(self.stdout.as_mut(), take).map_err(Why::System)? {
            self.stdout = None;
        }
        if self.out.len() as u64 > json::MAX_BYTES {
            return Err(Why::Endless);
        }
        let log = &mut self.log;
        let keep = |bytes: &[u8]| {
            let room = LOG_BYTES.saturating_sub(log.len());
            log.extend_from_slice(&bytes[..bytes.len().min(room)]);
            true
        };
        if drain(self.stderr.as_mut(), keep).map_err(Why::System)? {
            self.stderr = None;
        }
        Ok(())
    }

    fn log(&self) -> String {
        match self.log.trim_ascii() {
            [] => String::new(),
            log => format!("its log: {}", String::from_utf8_lossy(log)),
        }
    }

    fn outcome(self, invocation: &Invocation<'_>, status: ExitStatus) -> cni::Result<Output> {
        if status.success() {
            return Ok(Output { stdout: self.out, stderr: self.log });
        }
        Err(failure(invocation.command, status, &self.out).detail(self.log()))
    }
}

/// Reads what a pipe has, as long as it is wanted; says whether it has ended.
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
