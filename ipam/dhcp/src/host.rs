//! What all leases share: the daemon's flags, its timing and its store.

use std::path::PathBuf;

use dhcp_client::Timing;
use system::host_path::below;

use crate::args::Args;
use crate::closer::Closer;
use crate::store::Store;

/// The daemon's host, or the host of a plugin that releases leases while no daemon runs.
#[derive(Debug)]
pub struct Host {
    pub args: Args,
    pub timing: Timing,
    pub store: Store,
    pub closer: Closer,
}

impl Host {
    /// The host for the daemon's flags.
    pub fn new(args: Args) -> Self {
        let Args { timeout, resend_max, resend_timeout, .. } = args;
        let timing = Timing { timeout, resend_max, resend_timeout };
        let store = Store::for_socket(&below(&args.host_prefix, &args.socket));
        Self { args, timing, store, closer: Closer::start() }
    }

    /// The path of the daemon's socket in this process's file system.
    pub fn socket(&self) -> PathBuf {
        below(&self.args.host_prefix, &self.args.socket)
    }
}
