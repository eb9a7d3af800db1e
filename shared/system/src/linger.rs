//! Descriptors whose closing takes the kernel long, left to a process that nobody waits for.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::libc::STDERR_FILENO;
use nix::unistd::close;

/// The only argument of the process that holds them.
const ARGUMENT: &str = "hold-descriptors";

/// How long it holds them. What the kernel has to do before they can be closed at once takes it 10 to 25 ms.
const TIME: Duration = Duration::from_millis(100);

/// Leaves two descriptors to a copy of this executable, which holds them for 100 ms and ends. It has neither the environment nor
/// other descriptors of this process. Only for a plugin: other executables do not know what to do then.
///
/// Where no process can be started they are closed here, which is as good but takes longer.
pub fn leave(one: OwnedFd, other: Option<OwnedFd>) {
    let mut process = Command::new("/proc/self/exe");
    // An executable of many plugins is told by this name which one it is.
    process.arg0(env::args_os().next().unwrap_or_default());
    process.arg(ARGUMENT).env_clear().stdin(one).stderr(Stdio::null());
    process.stdout(other.map_or_else(Stdio::null, Stdio::from));
    // Nobody waits for it: it outlives this process, and its parent is the host's init or a subreaper then.
    drop(process.spawn());
}

/// Whether this process is such a copy; then it has held what it was given when this returns.
pub fn held() -> bool {
    let mut arguments = env::args_os().skip(1);
    let asked = arguments.next().as_deref() == Some(OsStr::new(ARGUMENT)) && arguments.next().is_none();
    if asked {
        close_others();
        // No directory is kept from being unmounted.
        env::set_current_dir("/").ok();
        thread::sleep(TIME);
    }
    asked
}

/// Closes what the runtime let its plugin inherit.
fn close_others() {
    let all = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers: Vec<RawFd> = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number > STDERR_FILENO) {
        // The list's own is closed already.
        close(number).ok();
    }
}
