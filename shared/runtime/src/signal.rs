//! Signals that interrupt an ADD, as a flag for [`Runtime::interrupted_by`](crate::Runtime::interrupted_by), or that end the process and its
//! plugins.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};
use std::{fs, io, mem, process};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use system::child;

use crate::Result;

/// Only a signal this long after the last one counts, because timeout(1) sends two signals at the same time: to its child, and to the child's
/// process group. A user may press Ctrl-C twice.
const BETWEEN: Duration = Duration::from_secs(1);

/// A flag that SIGINT, SIGQUIT, SIGTERM and SIGHUP set, except signals that this process was started to ignore, as by nohup(1). A signal
/// that arrives more than a second later kills the plugin whose ADD is running, so that its DEL follows. If another plugin is running, such a
/// signal has the effect of [`ended_by_signals`], because a DEL may hang. If none is running, the first such signal has no effect, because the
/// process will look at the flag and call DEL; the next one ends the process, too.
///
/// # Errors
/// Code 5 if the signals cannot be handled.
pub fn interrupted_by_signals() -> Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in heard() {
        // In the signal's handler: the thread may run only after the caller has looked at the flag.
        flag::register(signal, Arc::clone(&interrupted)).map_err(failed)?;
    }
    let (mut last, mut was_idle) = (None, false);
    handle(move |signal| {
        if last.get_or_insert_with(Instant::now).elapsed() <= BETWEEN {
            return;
        }
        if !child::interrupt() && (child::is_running() || mem::replace(&mut was_idle, true)) {
            end(signal);
        }
        last = Some(Instant::now());
    })?;
    Ok(interrupted)
}

/// The same signals kill the running plugins and end this process. Without it, a plugin would run on without its lock, and could delete what a
/// later ADD creates.
///
/// # Errors
/// Code 5 if the signals cannot be handled.
pub fn ended_by_signals() -> Result<()> {
    handle(end)
}

fn end(signal: i32) {
    child::kill_all();
    // The kernel does not end the first process of a container for a signal that the process does not handle.
    if process::id() != 1 {
        emulate_default_handler(signal).ok();
    }
    process::exit(128 + signal);
}

/// Handles the signals in a thread.
fn handle(handler: impl FnMut(i32) + Send + 'static) -> Result<()> {
    let mut signals = Signals::new(heard()).map_err(failed)?;
    thread::Builder::new().spawn(move || signals.forever().for_each(handler)).map_err(failed)?;
    Ok(())
}

/// The signals that this process was not started to ignore.
fn heard() -> impl Iterator<Item = i32> {
    let ignored = ignored();
    [SIGINT, SIGQUIT, SIGTERM, SIGHUP].into_iter().filter(move |signal| ignored >> (signal - 1) & 1 == 0)
}

fn failed(error: io::Error) -> cni::Error {
    cni::Error::io("handle signals", &error)
}

/// The signals that this process ignores, as a mask. Signal 1 is the lowest bit (proc_pid_status(5)). 0 if /proc
/// cannot be read.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}
