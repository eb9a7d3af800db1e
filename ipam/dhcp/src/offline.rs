//! DEL and GC while no daemon runs. They are not kept waiting for one: a lease that is on disk is given back from here.

use std::path::Path;

use cni::{Attachment, Code, Error, Failures, Gc, NetworkName, Result};
use system::Patience;

use crate::attached::Attached;
use crate::daemon::{Args, Host, LEAVING};
use crate::record::{Key, Record};

/// Gives the lease of an attachment back, if there is one on disk.
///
/// # Errors
/// Code 5: its file cannot be removed. Code 11: a daemon has just started.
pub fn release(socket: &Path, network: &NetworkName, at: &Attachment) -> Result<()> {
    let host = host(socket);
    let key = Key::new(network, at);
    if !host.store.path().is_dir() {
        return Ok(());
    }
    let _lock = lock(&host)?;
    match host.store.read(&key) {
        Ok(None) => Ok(()),
        Ok(Some(record)) => give_back(&host, key, record),
        // Whatever it is, it is of this attachment.
        Err(_) => host.store.remove(&key),
    }
}

/// Gives the leases on disk of a network back that are of no valid attachment.
///
/// # Errors
/// As [`release`].
pub fn collect(socket: &Path, call: &Gc) -> Result<()> {
    let host = host(socket);
    if !host.store.path().is_dir() {
        return Ok(());
    }
    let _lock = lock(&host)?;
    let mut failures = Failures::new();
    for record in host.store.all(true)?.0 {
        let is_valid = call.valid.contains(&record.container_id, &record.if_name);
        if let Some(key) = record.key().filter(|_| *call.net.name == record.network && !is_valid) {
            failures.note(give_back(&host, key, record));
        }
    }
    failures.into_result()
}

fn host(socket: &Path) -> Host {
    Host::new(Args { socket: socket.to_owned(), ..Args::default() })
}

/// Nobody else gives the same back, and no daemon starts meanwhile.
fn lock(host: &Host) -> Result<std::fs::File> {
    host.store.lock_if_there()?.ok_or_else(|| {
        Error::new(Code::TryAgainLater, "the DHCP daemon starts or ends at this moment")
            .detail("try again as soon as it has")
    })
}

fn give_back(host: &Host, key: Key, record: Record) -> Result<()> {
    let one = Attached::resume(key, record, host.timing);
    match one.release(host) {
        Ok(Some(link)) => {
            // The process ends soon, and its sockets with it: the message is to have left by then.
            Patience::new(LEAVING)
                .wait_for(|| Ok(system::socket::unsent(&link).is_ok_and(|n| n == 0).then_some(())))?;
            Ok(())
        }
        Ok(None) => Ok(()),
        Err((_, e)) => Err(e),
    }
}
