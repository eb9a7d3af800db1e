//! `dhcp daemon`: the process that manages the leases of all containers.

mod adoption;
mod connection;
mod leases;
mod listener;
mod operations;
mod serve;
mod timer;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::{self, ExitCode};
use std::time::Duration;

use cni::{Code, Error, Result};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use system::size_limit;

use listener::Listener;
use serve::Daemon;

use crate::args::{self, Args};
use crate::host::Host;
use crate::log::log_line;

/// Timeout for the lock while plugins release leases without a daemon. Each release takes milliseconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// The whole `main` of the daemon.
#[expect(clippy::print_stdout, reason = "someone at a terminal asks for help")]
pub fn main(arguments: &[OsString]) -> ExitCode {
    // The plugins' allocator never reuses freed memory, and the daemon runs for months.
    heap::use_system_allocator();
    if arguments.iter().any(|argument| ["-h", "-help", "--help"].iter().any(|help| argument == help)) {
        print!("{}", args::HELP);
        return ExitCode::SUCCESS;
    }
    let args = match Args::parse(arguments) {
        Ok(args) => args,
        Err(e) => {
            log_line(&format!("dhcp daemon: {e}; run `dhcp daemon -help`"));
            return ExitCode::from(2);
        }
    };
    args.warnings.iter().for_each(|warning| log_line(&format!("dhcp daemon: {warning}")));
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            log_line(&format!("dhcp daemon: {e}"));
            ExitCode::FAILURE
        }
    }
}

fn run(mut args: Args) -> Result<()> {
    // A write past RLIMIT_FSIZE must return an error, not end the daemon.
    size_limit::block_sigxfsz();
    let signals = signals()?;
    raise_open_files_limit();
    // Leases are in a directory next to the socket, and a DEL without a daemon computes this directory from
    // `daemonSocketPath`. So if systemd passed a socket, its path is used instead of -socketpath.
    let (passed, path) = listener::passed().unzip();
    if let Some(path) = path.flatten() {
        args.socket = path;
    }
    let host = Host::new(args);
    host.store.create()?;
    let never = || false;
    let locked = host.store.wait_for_lock(LOCK_TIMEOUT, never)?.ok_or_else(|| {
        let lock = host.store.path().join("lock").display().to_string();
        Error::new(Code::Io, format!("lock {lock}: other processes have held it for {LOCK_TIMEOUT:?}"))
            .detail(format!(
                "`fuser -v {lock}` shows which processes hold it; if it is another DHCP daemon, stop it"
            ))
    })?;
    let listener = listener::open(passed, &host.socket())?;
    let pid_file = host.args.pid_file.clone();
    let served = write_pid_file(pid_file.as_deref()).and_then(|()| {
        let served = serve(host, &listener, &signals);
        pid_file.iter().for_each(|path| drop(fs::remove_file(path)));
        served
    });
    listener.remove();
    // Held until here, so that no other daemon uses the leases.
    drop(locked);
    served
}

fn write_pid_file(path: Option<&Path>) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let failed = |e: io::Error| Error::io(format!("write -pidfile {}", path.display()), &e);
    let mut file = File::create(path).map_err(failed)?;
    writeln!(file, "{}", process::id()).map_err(|e| {
        fs::remove_file(path).ok();
        failed(e)
    })
}

/// Loads the leases of earlier daemons, and serves requests until a signal.
fn serve(host: Host, listener: &Listener, signals: &SignalFd) -> Result<()> {
    let mut daemon = Daemon::new(host)?;
    daemon.load_leases()?;
    daemon.serve(listener, signals)
}

/// A descriptor for SIGTERM and SIGINT, which end the daemon. They are also blocked in all threads that are started
/// later.
fn signals() -> Result<SignalFd> {
    let mut ends = SigSet::empty();
    ends.add(Signal::SIGTERM);
    ends.add(Signal::SIGINT);
    ends.thread_block()?;
    Ok(SignalFd::with_flags(&ends, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}

/// Raises the limit of open files. An ADD needs five descriptors, and services have 1024 by default.
fn raise_open_files_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).ok();
}
