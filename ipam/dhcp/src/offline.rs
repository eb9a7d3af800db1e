//! DEL and GC without a daemon: the plugin itself releases the leases on disk.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use cni::{Attachment, Code, Error, Failures, Gc, NetworkName, Resource, Result};
use system::Retry;

use crate::args::Args;
use crate::ask;
use crate::host::Host;
use crate::key::{Family, Key};
use crate::lease_client::{PendingRelease, timeout};
use crate::managed_lease::ManagedLease;
use crate::record::{self, LeasedAttachment, Record};
use crate::store;

/// Timeout for the lock while other plugins release leases. One release takes milliseconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of messages that are sent at a time, because each has a socket.
pub const MOST_MESSAGES: usize = 100;

/// Releases an attachment's leases on disk.
///
/// # Errors
/// Code 5 if a lease file cannot be read or removed. Code 11 if a daemon has just started.
pub fn release(socket: &Path, network: &NetworkName, at: &Attachment) -> Result<()> {
    let host = host(socket);
    if !host.store.path().is_dir() {
        return Ok(());
    }
    let held = lock(&host, socket)?;
    let (mut failures, mut releases) = (Failures::new(), Vec::new());
    for family in Family::ALL {
        let key = Key::new(network, at, family);
        let released = match host.store.take(&key) {
            Ok(Some(record)) => release_record(&host, key, record),
            Ok(None) => Ok(None),
            Err(e) => Err(e),
        };
        releases.extend(failures.note(released).flatten());
    }
    // The message to a server that is down waits for the server. Other plugins need not wait.
    drop(held);
    failures.note(wait_until_done(&host, &mut releases));
    failures.into_result()
}

/// Releases a network's leases on disk whose attachments are not valid.
///
/// # Errors
/// Code 5 if a lease file cannot be read or removed. Code 11 if a daemon has just started.
pub fn collect(socket: &Path, call: &Gc) -> Result<()> {
    let host = host(socket);
    if !host.store.path().is_dir() {
        return Ok(());
    }
    let held = lock(&host, socket)?;
    let (mut failures, mut releases) = (Failures::new(), Vec::new());
    if !call.scope.is_dry() {
        for error in host.store.tidy()? {
            failures.note(Err::<(), _>(error));
        }
    }
    let (records, errors) = host.store.all()?;
    // Files that are no records may be anyone's. DEL deletes that of its attachment.
    for error in errors.into_iter().filter(|error| !store::is_no_record(error)) {
        failures.note(Err::<(), _>(error));
    }
    for record in records {
        let is_stale = *call.net.name == *record.attachment.network
            && call.scope.should_delete(resource(&record.attachment));
        let Some(key) = record.key().filter(|_| is_stale) else { continue };
        releases.extend(failures.note(release_record(&host, key, record)).flatten());
        if releases.len() >= MOST_MESSAGES {
            failures.note(wait_until_done(&host, &mut releases));
        }
    }
    drop(held);
    failures.note(wait_until_done(&host, &mut releases));
    failures.into_result()
}

fn resource(attachment: &LeasedAttachment) -> Resource {
    let address = attachment.on_link.map(|address| address.ip());
    record::lease(&attachment.container_id, &attachment.if_name, &attachment.location.netns, address)
}

fn host(socket: &Path) -> Host {
    Host::new(Args { socket: socket.to_owned(), ..Args::default() })
}

/// Locks the leases against a daemon and other plugins. Waits while another plugin releases leases.
fn lock(host: &Host, socket: &Path) -> Result<File> {
    let is_served = || ask::open(socket, LOCK_TIMEOUT).is_ok();
    host.store.wait_for_lock(LOCK_TIMEOUT, is_served)?.ok_or_else(|| {
        Error::new(
            Code::TryAgainLater,
            "the leases are locked: the DHCP daemon is starting or stopping, or another plugin is releasing \
             leases",
        )
        .detail("try again in a moment")
    })
}

fn release_record(host: &Host, key: Key, record: Record) -> Result<Option<Box<dyn PendingRelease>>> {
    ManagedLease::from_record(key, record, host).release(host).map_err(|(_, e)| e)
}

/// Waits until all messages were sent.
fn wait_until_done(host: &Host, releases: &mut Vec<Box<dyn PendingRelease>>) -> Result<()> {
    let waited = Retry::new(timeout(releases)).wait_for(|| {
        releases.extract_if(.., |one| one.is_done()).for_each(|one| one.close(&host.closer));
        Ok(releases.is_empty().then_some(()))
    });
    releases.drain(..).for_each(|one| one.close(&host.closer));
    Ok(waited.map(drop)?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use cni::{ContainerId, IfName};

    use super::*;

    #[test]
    fn plugins_that_release_leases_are_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("dhcp.sock");
        let store = host(&socket).store;
        store.create().unwrap();
        let other = store.lock().unwrap().unwrap();
        let (network, at) = (
            NetworkName::parse("net").unwrap(),
            Attachment {
                container: ContainerId::parse("pod").unwrap(),
                ifname: IfName::parse("eth0").unwrap(),
            },
        );
        let waiting = std::thread::spawn(move || release(&socket, &network, &at));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waiting.is_finished(), "the other plugin still holds the lock");
        drop(other);
        waiting.join().unwrap().unwrap();
    }
}
