//! Lets another process close sockets, because the kernel takes long to close them.
//!
//! Closing an nfnetlink socket waits for an RCU grace period (12 to 55 ms) while any process's deletions are pending, and holds the mutex
//! of all nf_tables transactions. Among a hundred concurrent plugins, each such wait delays all others. One process, the *closer*,
//! therefore receives the sockets (`SCM_RIGHTS`), holds them until none has arrived for 100 ms, closes them, and exits.
//!
//! A plugin that deleted something starts a closer if none runs ([`hand_over_or_start`]). All others use a running closer, and otherwise
//! close the sockets themselves ([`hand_over`]): their deletions, if any, are nearly done.

mod closer;
mod rendezvous;

use std::io;
use std::os::fd::BorrowedFd;

pub use closer::serve;

/// Passes sockets to the closer, if one runs. The caller then drops its own descriptors, which closes nothing if the closer has them. Costs
/// about 5 µs without a closer.
pub fn hand_over(sockets: &[BorrowedFd<'_>]) {
    // Without a closer, dropping the sockets closes them, only slower.
    rendezvous::send(sockets).ok();
}

/// Passes sockets to the closer, and starts one if none runs: a copy of this executable. Only plugins may call this, because other
/// executables do not implement the closer. If no closer can be started, dropping the sockets closes them.
pub fn hand_over_or_start(sockets: &[BorrowedFd<'_>]) {
    if rendezvous::send(sockets).is_err() {
        start(sockets).ok();
    }
}

fn start(sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
    if closer::is_not_reaped() {
        return Err(io::ErrorKind::Other.into());
    }
    let listener = rendezvous::listen()?;
    // Other plugins can connect from now on, before the process runs.
    rendezvous::send(sockets)?;
    closer::spawn(listener)
}
