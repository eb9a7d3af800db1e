//! Releases stale leases: during an ADD if a range set has no free address, and in the background if it is nearly full.
//!
//! The search for live containers reads data that containers control, and a hostile container can block it. So it runs
//! in a separate process with a timeout, without the lock of the leases.

mod proof;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{self, Command, ExitCode, Stdio};
use std::time::Duration;

use cni::{NetworkName, Result};
use serde::{Deserialize, Serialize};
use system::child::{self, IoStop, Limits};

use crate::store::{DatedLease, Owner, Store};

/// The process's only argument.
const ARGUMENT: &str = "release-stale-leases";

/// Timeout of the search during an ADD.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of the search in the background.
const LIFETIME: Duration = Duration::from_secs(60);

/// The leases that may be released.
#[derive(Debug, Deserialize, Serialize)]
pub struct Request {
    /// The directory with the leases of all networks.
    pub data_dir: PathBuf,
    pub network: String,
    /// Minimum age of the leases in seconds.
    pub age: u64,
    /// Whether leases from before the last boot are stale.
    pub reboot: bool,
    /// The container and the interface that an ADD attaches after the search. None in the background.
    pub next: Option<(String, String)>,
}

impl Request {
    /// Whether this is a request of the attachment that has a lease.
    fn is_of(&self, owner: &Owner) -> bool {
        let next = self.next.as_ref();
        next.is_some_and(|(container, ifname)| {
            owner.container == *container && owner.ifname.as_ref() == Some(ifname)
        })
    }

    /// Whether this is a request of a container.
    fn is_of_container(&self, id: &str) -> bool {
        self.next.as_ref().is_some_and(|(container, _)| container == id)
    }

    /// Releases stale leases. The caller must not hold the lock.
    pub fn run(&self) {
        let Ok(request) = serde_json::to_vec(self) else { return };
        let limits = Limits { bytes: 0, time: Some(TIMEOUT), ..Limits::NONE };
        if let Err(stopped) = child::run(&mut command(), &request, limits) {
            let why = match stopped.why {
                IoStop::Late => format!("it did not finish within {TIMEOUT:?}"),
                IoStop::Endless => "it printed too much".to_owned(),
                IoStop::System(operation, e) => format!("{operation}: {e}"),
            };
            cni::warn(&format!("the search for stale leases of network {} failed: {why}", self.network));
        }
    }

    /// Releases stale leases in the background.
    pub fn start(mut self) {
        self.next = None;
        let Ok(request) = serde_json::to_vec(&self) else { return };
        let mut command = command();
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // If starting fails, the next ADD tries again.
        if let Ok(mut child) = child::spawn(&mut command)
            && let Some(mut stdin) = child.stdin.take()
        {
            stdin.write_all(&request).ok();
        }
    }

    /// Reads the leases before and after looking at the host. Only leases that have not changed are released.
    fn release(&self) -> Result<()> {
        let Ok(network) = NetworkName::parse(&self.network) else { return Ok(()) };
        let Some(store) = Store::open(&self.data_dir, &network)? else { return Ok(()) };
        let leases = store.dated_leases()?;
        drop(store);
        let stale = proof::stale(leases, &network, self);
        if stale.is_empty() {
            return Ok(());
        }
        let Some(mut store) = Store::open(&self.data_dir, &network)? else { return Ok(()) };
        for (aged, why) in stale {
            if store.release_unchanged(&aged)? {
                log(&network, &aged, &why);
            }
        }
        Ok(())
    }
}

/// A copy of this process with an empty environment: with `CNI_CONTAINERID`, it would look like a plugin call.
fn command() -> Command {
    let mut command = Command::new("/proc/self/exe");
    // The multicall executable selects the plugin by this name.
    command.arg0("host-local").arg(ARGUMENT).env_clear().current_dir("/");
    command
}

/// Runs the search if this process is that copy.
pub fn serve(arguments: &[OsString]) -> Option<ExitCode> {
    if arguments != [OsStr::new(ARGUMENT)] {
        return None;
    }
    heap::use_system_allocator();
    std::thread::spawn(|| {
        std::thread::sleep(LIFETIME);
        process::exit(1);
    });
    let request = serde_json::from_reader(std::io::stdin()).ok();
    Some(match request.map(|request: Request| request.release()) {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(error)) => {
            cni::warn(&error.to_string());
            ExitCode::FAILURE
        }
        None => ExitCode::FAILURE,
    })
}

/// Logs to stderr and to syslog (RFC 3164: daemon, notice), because the runtime does not read stderr of a process in
/// the background.
fn log(network: &NetworkName, DatedLease { lease, .. }: &DatedLease, why: &str) {
    let text = format!("network {network}: stale lease {} of {} is released: {why}", lease.ip, lease.owner);
    cni::warn(&text);
    let line = format!("<29>host-local[{}]: {text}", process::id());
    let sent = UnixDatagram::unbound().and_then(|socket| {
        socket.set_nonblocking(true)?;
        socket.send_to(line.as_bytes(), "/dev/log")
    });
    // The host may have no syslog.
    sent.ok();
}
