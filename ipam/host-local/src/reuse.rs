//! Stale leases are released by host-local itself when a range set has no free address, and in the background when it is nearly
//! full.
//!
//! The search for live containers reads what containers control: a hostile one can let it wait for ever. So it is done by a
//! process of its own, with a deadline, and without the lock of the leases.

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
use system::child::{self, Limits};

use crate::store::{Aged, Store};

/// The only argument of the process.
const ARGUMENT: &str = "release-stale-leases";

/// How long an ADD waits for it.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long it may run in the background.
const LIFETIME: Duration = Duration::from_secs(60);

/// Which leases may be released.
#[derive(Debug, Deserialize, Serialize)]
pub struct Request {
    /// Where the leases of all networks are.
    pub data_dir: PathBuf,
    /// The network.
    pub network: String,
    /// How many seconds a lease is at least old.
    pub age: u64,
    /// Whether containers of before the last start of the host are dead.
    pub reboot: bool,
    /// The container that ADD is called for.
    pub container: String,
}

impl Request {
    /// Releases stale leases. Whether there were any. The caller does not hold the lock.
    pub fn run(&self) -> bool {
        let Ok(request) = serde_json::to_vec(self) else { return false };
        let limits = Limits { bytes: 1, time: Some(TIMEOUT), group: true };
        match child::run(&mut command(), &request, limits) {
            Ok(outcome) => !outcome.out.is_empty(),
            Err(stopped) => {
                let why = format!("{:?}", stopped.why);
                cni::warn(&format!("the search for stale leases of network {} failed: {why}", self.network));
                false
            }
        }
    }

    /// The same in the background: nobody waits for it.
    pub fn start(&self) {
        let Ok(request) = serde_json::to_vec(self) else { return };
        let mut command = command();
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // The next ADD tries again.
        if let Ok(mut child) = child::spawn(&mut command)
            && let Some(mut stdin) = child.stdin.take()
        {
            stdin.write_all(&request).ok();
        }
    }

    /// Two looks at the leases, and in between one at the host: only what has not changed is released.
    fn release(&self) -> Result<bool> {
        let Ok(network) = NetworkName::parse(&self.network) else { return Ok(false) };
        let Some(store) = Store::open(&self.data_dir, &network)? else { return Ok(false) };
        let leases = store.aged()?;
        drop(store);
        let stale = proof::stale(leases, &network, self);
        if stale.is_empty() {
            return Ok(false);
        }
        let Some(mut store) = Store::open(&self.data_dir, &network)? else { return Ok(false) };
        let mut released = false;
        for (aged, why) in stale {
            if store.release_unchanged(&aged)? {
                log(&network, &aged, &why);
                released = true;
            }
        }
        Ok(released)
    }
}

/// A copy of this process, without its environment: `CNI_CONTAINERID` in it would tell of a call.
fn command() -> Command {
    let mut command = Command::new("/proc/self/exe");
    // An executable of many plugins finds by this name which one it is.
    command.arg0("host-local").arg(ARGUMENT).env_clear().current_dir("/");
    command
}

/// Whether this process is that copy; then it has done its work when this returns.
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
        Some(Ok(true)) => answer(),
        Some(Ok(false)) => ExitCode::SUCCESS,
        Some(Err(error)) => {
            cni::warn(&error.to_string());
            ExitCode::FAILURE
        }
        None => ExitCode::FAILURE,
    })
}

/// One byte: there is room now.
fn answer() -> ExitCode {
    std::io::stdout().write_all(b"+").ok();
    ExitCode::SUCCESS
}

/// In the log of the runtime, and in the host's (RFC 3164: daemon, notice): the runtime does not listen to one in the background.
fn log(network: &NetworkName, Aged { lease, .. }: &Aged, why: &str) {
    let text = format!("network {network}: stale lease {} of {} is released: {why}", lease.ip, lease.owner);
    cni::warn(&text);
    let line = format!("<29>host-local[{}]: {text}", process::id());
    let sent = UnixDatagram::unbound().and_then(|socket| {
        socket.set_nonblocking(true)?;
        socket.send_to(line.as_bytes(), "/dev/log")
    });
    // There may be no such log.
    sent.ok();
}
