//! Sockets that another process closes later, because closing them takes the kernel long.
//!
//! A socket to nfnetlink cannot be closed while deletions of anybody are pending: the kernel waits for a grace period of RCU (12 to
//! 55 ms), and holds the mutex of all nf_tables transactions meanwhile. Among a hundred plugins that start and stop containers
//! concurrently, each such wait delays all others. So one process for all of them, the *closer*, receives the sockets
//! (`SCM_RIGHTS`), holds them until nothing has arrived for 100 ms, closes them, and exits.
//!
//! Who has deleted something starts a closer if none is running ([`hand_over_or_start`]). Everybody else hands over to one that
//! is running, and closes the sockets itself if none is ([`hand_over`]): nothing is pending then, or only for a moment.

mod closer;
mod rendezvous;

use std::io;
use std::os::fd::BorrowedFd;

pub use closer::serve;

/// Hands sockets over to the closer, if one is running. The caller drops its own descriptors afterwards in either case: with a
/// closer, that closes nothing. Costs some 5 µs where none is running.
pub fn hand_over(sockets: &[BorrowedFd<'_>]) {
    // Without a closer, closing here is right: it only takes longer.
    rendezvous::send(sockets).ok();
}

/// Hands sockets over to the closer, and starts one if none is running: a copy of this executable. Only for a plugin, since
/// other executables do not know what to do as a closer. Where none can be started, dropping the sockets closes them.
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
    // From now on others find it: they need not wait until the process runs, and start none of their own.
    rendezvous::send(sockets)?;
    closer::spawn(listener)
}
