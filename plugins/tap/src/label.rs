//! SELinux context of a tap: the kernel gives it the context of the process that creates it.
//!
//! A process changes its context by starting a program (setexeccon(3)). The plugin therefore starts its own executable, with the open
//! device as stdin. Both processes share the tap, and the first one keeps it.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use cni::{Code, Error, Plugin, Result};
use netlink::Tun;

/// First argument of the started process. The tap's name and queue mode follow.
const ARGUMENT: &str = "create-tap";
const MULTI_QUEUE: &str = "multi-queue";
const SINGLE_QUEUE: &str = "single-queue";

/// Context of the thread's next program (proc_pid_attr(5)).
const NEXT: &str = "/proc/thread-self/attr/exec";

/// Whether the host uses SELinux.
pub fn is_enabled() -> bool {
    Path::new("/sys/fs/selinux/enforce").exists()
}

/// Creates a tap with a context.
///
/// # Errors
/// Code 7 if the policy does not know the context; other errors if the policy or the kernel refuses.
pub fn create(tun: &Tun, name: &str, multi_queue: bool, context: &str) -> Result<()> {
    let device = tun.as_fd().try_clone_to_owned()?;
    let queues = if multi_queue { MULTI_QUEUE } else { SINGLE_QUEUE };
    let mut process = Command::new("/proc/self/exe");
    process.arg0(crate::Tap::NAME).args([ARGUMENT, name, queues]).env_clear();
    process.stdin(device).stdout(Stdio::null());

    set_next(context)?;
    let ended = process.status();
    // Other programs, such as the IPAM plugin, keep the plugin's own context.
    set_next("")?;
    let failed =
        |cause: &io::Error| Error::io(format!("create tap {name} with SELinux context {context:?}"), cause);
    match ended.map_err(|e| failed(&e))?.code() {
        Some(0) => Ok(()),
        Some(errno) => Err(failed(&io::Error::from_raw_os_error(errno))),
        None => Err(failed(&io::Error::other("the process that was to create it was killed"))),
    }
}

fn set_next(context: &str) -> Result<()> {
    let write = || OpenOptions::new().write(true).open(NEXT)?.write(context.as_bytes()).map(drop);
    write().map_err(|e| {
        let error = Error::io(format!("write selinuxContext {context:?} to {NEXT}"), &e);
        if e.kind() == ErrorKind::InvalidInput { error.with_code(Code::InvalidConfig) } else { error }
    })
}

/// Main function of the started process. Its exit code is the kernel's error number.
pub fn serve(arguments: &[OsString]) -> Option<ExitCode> {
    let [argument, name, queues] = arguments else { return None };
    if argument != ARGUMENT {
        return None;
    }
    let device = io::stdin().as_fd().try_clone_to_owned().map(Tun::from);
    let made = device.and_then(|tun| {
        let name = name.to_str().ok_or(ErrorKind::InvalidInput)?;
        tun.create(name, queues == MULTI_QUEUE)
            .map_err(|e| e.errno().map_or(ErrorKind::Other.into(), io::Error::from))
    });
    Some(match made {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => e
            .raw_os_error()
            .and_then(|errno| u8::try_from(errno).ok())
            .map_or(ExitCode::FAILURE, ExitCode::from),
    })
}
