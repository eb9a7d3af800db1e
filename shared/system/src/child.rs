//! Child processes with a request on stdin, and limits on their output and run time.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::{Retry, size_limit};

mod exchange;

use exchange::ChildIo;

/// Attempts to start an executable that is being replaced (ETXTBSY), and the pause between them.
const BUSY_TRIES: u32 = 100;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// Timeout for the exit of a killed child.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);

/// Timeout for the start of children in other threads, before all are killed: the file system of an executable may hang.
const START_TIMEOUT: Duration = Duration::from_secs(1);

/// The children of [`run`].
static CHILDREN: Mutex<Children> =
    Mutex::new(Children { running: Vec::new(), starting: 0, are_killed: false });

/// Locked only for a moment, never while a child is started.
struct Children {
    running: Vec<Running>,
    /// Number of threads that are starting a child, which is not in the list yet.
    starting: usize,
    /// Whether [`kill_all`] was called. No other child starts, and no thread learns that its child has ended.
    are_killed: bool,
}

#[derive(Clone, Copy)]
struct Running {
    child: Pid,
    limits: Limits,
}

/// Limits of a child.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of bytes on stdout.
    pub bytes: u64,
    /// Maximum run time. `None`: unlimited.
    pub time: Option<Duration>,
    /// Whether the child has its own process group, which is killed as a whole.
    pub group: bool,
    /// Whether [`interrupt`] kills the child.
    pub interruptible: bool,
}

impl Limits {
    /// No limits.
    pub const NONE: Self = Self { bytes: u64::MAX, time: None, group: false, interruptible: false };
}

/// Result of a child that exited.
#[derive(Debug)]
pub struct Outcome {
    /// Exit status.
    pub status: ExitStatus,
    /// Output on stdout.
    pub out: Vec<u8>,
    /// The first 64 KiB of stderr, if it is piped.
    pub log: Vec<u8>,
}

/// Reason for stopping a child.
#[derive(Debug)]
pub enum IoStop {
    /// The run time limit.
    Late,
    /// The output limit.
    Endless,
    /// Starting, reading or waiting failed: the operation and its cause.
    System(&'static str, io::Error),
}

/// A child that was killed.
#[derive(Debug)]
pub struct Stopped {
    /// The reason.
    pub why: IoStop,
    /// The first 64 KiB of stderr, if it is piped.
    pub log: Vec<u8>,
    /// Why the child may still run. `None`: it does not.
    pub remains: Option<String>,
}

/// Runs a program until it exits or reaches a limit. Its stdin is `request`. Its stdout is read, and its stderr if the command pipes it.
///
/// The program's own children may keep the pipes open; they are not waited for.
///
/// # Errors
/// If the program cannot be started or reached a limit. It was killed; [`Stopped::remains`] reports a program that survived.
pub fn run(command: &mut Command, request: &[u8], limits: Limits) -> Result<Outcome, Stopped> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    if limits.group {
        command.process_group(0);
    }
    // A limit after all times of the clock is none.
    let deadline = limits.time.and_then(|time| Instant::now().checked_add(time));
    let never_ran =
        |e| Stopped { why: IoStop::System("start the program", e), log: Vec::new(), remains: None };
    let mut child = retry_busy(|| spawn_listed(command, limits)).map_err(never_ran)?;
    let mut io = match ChildIo::new(&mut child, request, limits.bytes) {
        Ok(io) => io,
        Err(e) => {
            return Err(stop(child, limits, IoStop::System("open the program's pipes", e), Vec::new()));
        }
    };
    if let Err(why) = io.until(deadline) {
        return Err(stop(child, limits, why, io.log));
    }
    unlist(&child);
    match child.wait() {
        Ok(status) => Ok(Outcome { status, out: io.out, log: io.log }),
        Err(e) => Err(Stopped {
            why: IoStop::System("wait for the program to exit", e),
            log: io.log,
            remains: None,
        }),
    }
}

/// Starts a program. Retries for a second if the executable is being replaced.
///
/// # Errors
/// If the program cannot be started.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    retry_busy(|| size_limit::with_signal(|| command.spawn()))
}

fn retry_busy(mut start: impl FnMut() -> io::Result<Child>) -> io::Result<Child> {
    let mut tries = 0;
    loop {
        match start() {
            Err(e) if e.kind() == io::ErrorKind::ExecutableFileBusy && tries < BUSY_TRIES => {
                tries += 1;
                thread::sleep(BUSY_PAUSE);
            }
            outcome => return outcome,
        }
    }
}

/// Kills a child. If it does not exit, it is left behind.
fn stop(mut child: Child, limits: Limits, why: IoStop, log: Vec<u8>) -> Stopped {
    let killed = kill(Pid::from_child(&child), limits.group);
    unlist(&child);
    let remains = match killed {
        Err(e) => Some(format!("it could not be killed: {e}")),
        Ok(()) => match Retry::new(KILL_TIMEOUT).wait_for(|| child.try_wait()) {
            Ok(Some(_)) => None,
            // The kernel, a debugger or the freezer keeps it.
            Ok(None) => Some(format!("process {} still runs though it was killed", child.id())),
            Err(e) => Some(format!("its exit status could not be read: {e}")),
        },
    };
    Stopped { why, log, remains }
}

fn kill(child: Pid, group: bool) -> io::Result<()> {
    let kill = if group { kill_process_group } else { kill_process };
    Ok(kill(child, Signal::KILL)?)
}

/// Kills all children of [`run`]. A thread that starts another one, or whose child was killed, waits until the process has ended: it must not
/// report the killed child as a failure. Only for a process that ends immediately afterwards: the children must not run on without their
/// parent.
pub fn kill_all() {
    children().are_killed = true;
    let none_starts = || Ok((children().starting == 0).then_some(()));
    Retry::new(START_TIMEOUT).wait_for(none_starts).ok();
    kill_each(|_| true);
}

/// Kills the interruptible children of [`run`]. Returns whether there are any.
pub fn interrupt() -> bool {
    kill_each(|limits| limits.interruptible)
}

/// Whether a child of [`run`] is running.
pub fn is_running() -> bool {
    !children().running.is_empty()
}

fn kill_each(is_meant: impl Fn(&Limits) -> bool) -> bool {
    let children = children();
    let meant: Vec<_> = children.running.iter().filter(|running| is_meant(&running.limits)).collect();
    for running in &meant {
        kill(running.child, running.limits.group).ok();
    }
    !meant.is_empty()
}

fn spawn_listed(command: &mut Command, limits: Limits) -> io::Result<Child> {
    begin_start();
    let started = size_limit::with_signal(|| command.spawn());
    let mut children = children();
    children.starting -= 1;
    children
        .running
        .extend(started.as_ref().ok().map(|child| Running { child: Pid::from_child(child), limits }));
    started
}

fn begin_start() {
    children_unless_killed().starting += 1;
}

/// Called before the child is waited for, because another process can have its id afterwards.
fn unlist(child: &Child) {
    children_unless_killed().running.retain(|running| running.child != Pid::from_child(child));
}

/// Does not return after [`kill_all`].
fn children_unless_killed() -> MutexGuard<'static, Children> {
    loop {
        let children = children();
        if !children.are_killed {
            return children;
        }
        drop(children);
        thread::park();
    }
}

fn children() -> MutexGuard<'static, Children> {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{BufRead, BufReader};
    use std::sync::mpsc;

    use nix::fcntl::AT_FDCWD;
    use nix::sys::fanotify::{
        EventFFlags, Fanotify, FanotifyResponse, InitFlags, MarkFlags, MaskFlags, Response,
    };

    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn is_alive(pid: &str) -> bool {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    }

    /// On a busy machine, a killed child may need longer than the timeout.
    fn ends(stopped: &Stopped) {
        let Some(remains) = &stopped.remains else { return };
        assert!(remains.contains("still runs"), "{remains}");
        let pid = remains.split(' ').nth(1).unwrap();
        while is_alive(pid) {
            thread::yield_now();
        }
    }

    #[test]
    fn a_child_gets_its_request_and_its_output_is_read() {
        let outcome =
            run(sh("cat; echo oh >&2; exit 7").stderr(Stdio::piped()), b"hello", Limits::NONE).unwrap();
        assert_eq!(
            (outcome.status.code(), &outcome.out[..], &outcome.log[..]),
            (Some(7), &b"hello"[..], &b"oh\n"[..])
        );
    }

    /// Neither side blocks the other with full pipes.
    #[test]
    fn a_child_is_read_while_it_is_fed() {
        let request = b"-A POSTROUTING\n".repeat(100_000);
        assert!(run(&mut Command::new("cat"), &request, Limits::NONE).unwrap().out == request);
    }

    /// A process that watches executables keeps one from being started, as a file system that hangs does.
    #[test]
    fn a_start_that_hangs_does_not_block_other_threads() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        fs::copy("/bin/true", &program).unwrap();
        let kind = InitFlags::FAN_CLASS_CONTENT | InitFlags::FAN_CLOEXEC;
        // Not without root.
        let Ok(watch) = Fanotify::init(kind, EventFFlags::O_CLOEXEC) else { return };
        watch.mark(MarkFlags::FAN_MARK_ADD, MaskFlags::FAN_OPEN_EXEC_PERM, AT_FDCWD, Some(&program)).unwrap();
        let (done, other) = mpsc::channel();
        let other = thread::scope(|scope| {
            let hanging = scope.spawn(|| run(&mut Command::new(&program), b"", Limits::NONE));
            let events = watch.read_events().unwrap();
            scope.spawn(move || done.send(run(&mut Command::new("true"), b"", Limits::NONE)));
            let other = other.recv_timeout(Duration::from_secs(60));
            let allow = FanotifyResponse::new(events[0].fd().unwrap(), Response::FAN_ALLOW);
            watch.write_response(allow).unwrap();
            assert!(hanging.join().unwrap().unwrap().status.success());
            other
        });
        assert!(other.unwrap().unwrap().status.success());
    }

    #[test]
    fn a_child_that_runs_too_long_is_killed() {
        let limits = Limits { time: Some(Duration::from_millis(50)), ..Limits::NONE };
        let stopped = run(sh("echo oh >&2; exec sleep 600").stderr(Stdio::piped()), b"", limits).unwrap_err();
        assert!(matches!(stopped.why, IoStop::Late), "{stopped:?}");
        ends(&stopped);
    }

    #[test]
    fn a_limit_that_the_clock_cannot_represent_is_none() {
        let limits = Limits { time: Some(Duration::MAX), ..Limits::NONE };
        assert!(run(&mut Command::new("true"), b"", limits).unwrap().status.success());
    }

    #[test]
    fn a_child_that_prints_without_end_is_killed() {
        let limits = Limits { bytes: 1000, ..Limits::NONE };
        let stopped = run(sh("echo oh >&2; cat /dev/zero").stderr(Stdio::piped()), b"", limits).unwrap_err();
        assert!(matches!(stopped.why, IoStop::Endless), "{stopped:?}");
        ends(&stopped);
    }

    #[test]
    fn a_group_is_killed_as_a_whole() {
        let limits = Limits { bytes: 0, group: true, ..Limits::NONE };
        let mut command = sh("sleep 600 & echo $! >&2; cat /dev/zero");
        let stopped = run(command.stderr(Stdio::piped()), b"", limits).unwrap_err();
        assert!(matches!(stopped.why, IoStop::Endless), "{stopped:?}");
        ends(&stopped);
        let inner = String::from_utf8(stopped.log).unwrap();
        // The test may be the child of a subreaper, which need not have reaped the orphan yet.
        while !inner.is_empty() && is_alive(inner.trim()) {
            thread::yield_now();
        }
    }

    #[test]
    fn only_interruptible_children_are_interrupted() {
        let (ended, ends) = mpsc::channel();
        let dir = tempfile::tempdir().unwrap();
        let start = |name: &str, interruptible| {
            let started = dir.path().join(name);
            let script = format!("touch {name}; until [ -e end ]; do sleep 0.01; done");
            let (ended, dir) = (ended.clone(), dir.path().to_owned());
            thread::spawn(move || {
                let limits = Limits { group: true, interruptible, ..Limits::NONE };
                let outcome = run(sh(&script).current_dir(dir), b"", limits).unwrap();
                ended.send((interruptible, outcome.status.code())).ok();
            });
            while !started.exists() {
                thread::yield_now();
            }
        };
        start("rollback", false);
        assert!(!interrupt());
        start("add", true);
        // It is listed a moment after its start.
        while !interrupt() {
            thread::yield_now();
        }
        assert_eq!(ends.recv().unwrap(), (true, None));
        assert!(!interrupt() && is_running());
        fs::write(dir.path().join("end"), "").unwrap();
        assert_eq!(ends.recv().unwrap(), (false, Some(0)));
    }

    #[test]
    fn a_missing_program_is_an_error() {
        let stopped = run(&mut Command::new("/no/such/program"), b"", Limits::NONE).unwrap_err();
        assert!(
            matches!(&stopped.why, IoStop::System("start the program", e) if e.kind() == io::ErrorKind::NotFound),
            "{stopped:?}"
        );
    }

    /// A stopped debugger keeps even a killed process.
    #[test]
    fn a_child_that_cannot_be_stopped_is_left_behind() {
        let script = "strace -qq -o /dev/null -p $$ & tracer=$!
                      until grep -q \"TracerPid:.$tracer\" /proc/$$/status; do :; done
                      echo $tracer; exec sleep 600";
        let mut child = sh(script).stdout(Stdio::piped()).spawn().unwrap();
        let mut tracer = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut tracer).unwrap();
        let signal =
            |name| assert!(Command::new("kill").args([name, tracer.trim()]).status().unwrap().success());
        signal("-STOP");
        let status = || fs::read_to_string(format!("/proc/{}/status", tracer.trim())).unwrap();
        while !status().contains("T (stopped)") {}
        let stopped = stop(child, Limits::NONE, IoStop::Late, Vec::new());
        signal("-KILL");
        assert!(stopped.remains.as_ref().is_some_and(|text| text.contains("still runs")), "{stopped:?}");
    }
}
