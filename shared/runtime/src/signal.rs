//! Signals that interrupt an ADD, as a flag for [`Runtime::interrupted_by`](crate::Runtime::interrupted_by).

use std::fs;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::pipe;

use crate::Result;

/// A second signal ends the process only this long after the first, because timeout(1) sends two signals at the same time: to its child, and
/// to the child's process group.
const BETWEEN: Duration = Duration::from_secs(1);

/// A flag that SIGINT, SIGTERM and SIGHUP set, except signals that this process was started to ignore, as by nohup(1). A signal that arrives
/// more than a second later ends the process as usual, because a plugin or its DEL may hang.
///
/// # Errors
/// Code 5 if the signals cannot be handled.
pub fn interrupted_by_signals() -> Result<Arc<AtomicBool>> {
    let [flag, is_last] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let ignored = ignored();
    let heard = |signal: &i32| ignored >> (signal - 1) & 1 == 0;
    let failed = |e| cni::Error::io("handle signals", &e);
    let (mut heard_first, tell) = UnixStream::pair().map_err(failed)?;
    for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(heard) {
        flag::register_conditional_default(signal, is_last.clone())
            .and_then(|_| flag::register(signal, flag.clone()))
            .and_then(|_| pipe::register(signal, tell.try_clone()?))
            .map_err(failed)?;
    }
    let wait = move || {
        if heard_first.read_exact(&mut [0]).is_ok() {
            thread::sleep(BETWEEN);
            is_last.store(true, Ordering::Relaxed);
        }
    };
    thread::Builder::new().spawn(wait).map_err(failed)?;
    Ok(flag)
}

/// The signals that this process ignores, as a mask. Signal 1 is the lowest bit (proc_pid_status(5)). 0 if /proc
/// cannot be read.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}
