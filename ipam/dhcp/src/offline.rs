//! DEL and GC while no daemon runs. They are not kept waiting for one: a lease that is on disk is given back from here.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use cni::{Attachment, Code, Error, Failures, Gc, NetworkName, Result};
use system::Patience;

use crate::ask;
use crate::attached::Attached;
use crate::daemon::{Args, Departing, Host, patience};
use crate::record::{Key, Record};
use crate::store::Kept;
use crate::v6;

/// How long others are waited for that give back. One takes milliseconds.
const LOCK_PATIENCE: Duration = Duration::from_secs(30);

/// So many messages leave at a time: each has a socket.
const AT_ONCE: usize = 100;

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
    let held = lock(&host, socket)?;
    let v4 = match host.store.read(&key) {
        Ok(None) => Ok(None),
        Ok(Some(record)) => give_back(&host, key.clone(), record),
        // Whatever it is, it is of this attachment.
        Err(_) => host.store.remove::<Record>(&key).map(|()| None),
    };
    let v6 = match host.store.read::<v6::Record>(&key) {
        Ok(None) => Ok(None),
        Ok(Some(record)) => give_back_v6(&host, key, record),
        Err(_) => host.store.remove::<v6::Record>(&key).map(|()| None),
    };
    // Where a server has gone, its message waits: others need not.
    drop(held);
    let mut failures = Failures::new();
    let departing = [v4, v6].into_iter().filter_map(|one| failures.note(one).flatten());
    let mut departing: Vec<Departing> = departing.collect();
    failures.note(wait_until_done(&mut departing));
    failures.into_result()
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
    let held = lock(&host, socket)?;
    let (mut failures, mut departing) = (Failures::new(), Vec::new());
    host.store.tidy()?;
    let is_stale = |network: &str, container: &str, if_name: &str| {
        *call.net.name == *network && !call.valid.contains(container, if_name)
    };
    let v4 = host.store.all::<Record>()?.0.into_iter();
    let v4 = v4.filter(|record| is_stale(&record.network, &record.container_id, &record.if_name));
    let v6 = host.store.all::<v6::Record>()?.0.into_iter();
    let v6 = v6.filter(|record| is_stale(&record.network, &record.container_id, &record.if_name));
    let given_back = v4
        .filter_map(|record| Some(give_back(&host, record.key()?, record)))
        .chain(v6.filter_map(|record| Some(give_back_v6(&host, record.key()?, record))));
    for one in given_back {
        departing.extend(failures.note(one).flatten());
        if departing.len() >= AT_ONCE {
            failures.note(wait_until_done(&mut departing));
        }
    }
    drop(held);
    failures.note(wait_until_done(&mut departing));
    failures.into_result()
}

fn host(socket: &Path) -> Host {
    Host::new(Args { socket: socket.to_owned(), ..Args::default() })
}

/// Nobody else gives the same back, and no daemon starts meanwhile. Other plugins that give something back are waited for.
fn lock(host: &Host, socket: &Path) -> Result<File> {
    let is_served = || ask::open(socket, LOCK_PATIENCE).is_ok();
    host.store.wait_for_lock(LOCK_PATIENCE, is_served)?.ok_or_else(|| {
        Error::new(
            Code::TryAgainLater,
            "the leases are locked: the DHCP daemon starts or ends, or other plugins give leases back",
        )
        .detail("try again in a moment")
    })
}

fn give_back(host: &Host, key: Key, record: Record) -> Result<Option<Departing>> {
    match Attached::resume(key, record, host.timing).release(host) {
        Ok(link) => Ok(link.map(Departing::V4)),
        Err((_, e)) => Err(e),
    }
}

fn give_back_v6(host: &Host, key: Key, record: v6::Record) -> Result<Option<Departing>> {
    match v6::Attached::resume(key, record).release(host) {
        Ok(leaving) => Ok(leaving.map(Departing::V6)),
        Err((_, e)) => Err(e),
    }
}

/// The process ends soon, and its sockets with it: messages are to have left by then.
fn wait_until_done(departing: &mut Vec<Departing>) -> Result<()> {
    Patience::new(patience(departing)).wait_for(|| {
        departing.retain_mut(|one| !one.is_done());
        Ok(departing.is_empty().then_some(()))
    })?;
    departing.clear();
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use cni::{ContainerId, IfName};

    use super::*;

    #[test]
    fn others_that_give_something_back_are_waited_for() {
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
        drop(other);
        waiting.join().unwrap().unwrap();
    }
}
