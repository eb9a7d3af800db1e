//! The sysctl `route_localnet` of links: which attachments need it, and the value to restore after the last one.
//!
//! The sysctl lets packets from a link reach 127.0.0.0/8, so the rules that guard these addresses must exist while it is
//! set. A DEL or GC therefore restores it first ([`remove_user`], [`remove_stale_users`]), and removes those rules only
//! if this succeeds.

mod users;

use std::io::{self, ErrorKind};
use std::time::Duration;

use cni::{Error, Failures, NetworkName, Result, Scope};
use netlink::Netlink;
use system::lock::Lock;

use crate::firewall::Reference;
use crate::kinds::HostPorts;
use crate::owner::{Owner, should_delete};
pub use users::DIRECTORY;
use users::{Unused, Users};

/// The operation that failed if the users cannot be read or removed.
const UPDATE_USERS: &str = "update /run/ferrule/localnet, the users of route_localnet";

/// Timeout for the lock. Each holder needs some microseconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// The key of a link's setting, below `net/`.
pub fn key(link: &str) -> String {
    format!("ipv4/conf/{link}/route_localnet")
}

/// The lock for reading the users and changing the setting. None: the host has no place for locks.
///
/// # Errors
/// Code 11 if another plugin holds the lock for 10 s.
pub fn lock() -> Result<Option<Lock>> {
    Ok(Lock::acquire("localnet", LOCK_TIMEOUT)?)
}

/// Records that an attachment needs the setting of a link, and the value to restore after its last user. Hold the
/// [`lock`] from before this value was read until after the setting was changed.
///
/// Returns false, with a warning, if `/run` is read-only. The setting must then stay as it is, because no DEL could
/// restore it: other host ports are worth more than those of 127.0.0.1.
///
/// # Errors
/// Code 5 if the record cannot be written.
pub fn add_user(link: &str, owner: &Owner, earlier_value: i32) -> Result<bool> {
    match Users::of_host().join(link, &owner.label(), earlier_value) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::ReadOnlyFilesystem => {
            let key = key(link);
            cni::warn(&format!(
                "the host ports of {owner} may not work at 127.0.0.1: {key} stays {earlier_value}, because its user cannot be recorded in {DIRECTORY}: {e}"
            ));
            Ok(false)
        }
        Err(e) => Err(not_recorded(&key(link), &e)),
    }
}

fn not_recorded(key: &str, cause: &io::Error) -> Error {
    Error::io(format!("record a user of {key} in {DIRECTORY}"), cause)
        .detail("DEL could not restore the setting; make this directory writable, or map no port on 127.0.0.1 (hostIP)")
}

/// Removes an attachment from the users. Restores the setting of its link if no other attachment needs it.
///
/// # Errors
/// Code 5 if `/run/ferrule/localnet` cannot be read or changed. Code 11 if another plugin holds the lock for 10 s. Code 999
/// if the kernel refuses to restore a setting. The other links are restored nevertheless.
pub fn remove_user(owner: &Owner) -> Result<()> {
    restore_unused(|users| users.remove(&owner.label()))
}

/// Like [`remove_user`], for the stale attachments of a network.
///
/// # Errors
/// The same.
pub fn remove_stale_users(network: &NetworkName, scope: &Scope) -> Result<()> {
    let is_stale = |label: &str| should_delete(scope, network, "route_localnet record", label);
    if scope.is_dry() {
        return list(is_stale);
    }
    restore_unused(|users| users.remove_where(&is_stale))
}

/// Lists the stale users in a dry run: `is_stale` records each of them and returns false, so that `remove_where`
/// deletes nothing.
fn list(is_stale: impl Fn(&str) -> bool) -> Result<()> {
    let (users, failed) = (Users::of_host(), |e| Error::io(UPDATE_USERS, &e));
    if users.may_exist().map_err(failed)? {
        users.remove_where(&is_stale).map_err(failed)?;
    }
    Ok(())
}

/// Restores the earlier value of each link without users. Links that containers of the reference may need keep theirs,
/// and their record for a later DEL.
fn restore_unused(remove: impl FnOnce(&Users) -> io::Result<Vec<Unused>>) -> Result<()> {
    let users = Users::of_host();
    let failed = |e| Error::io(UPDATE_USERS, &e);
    if !users.may_exist().map_err(failed)? {
        return Ok(());
    }
    let _lock = lock()?;
    let (mut failures, reference) = (Failures::new(), Reference::default());
    for Unused { link, earlier_value } in remove(&users).map_err(failed)? {
        let restored = earlier_value.map_or(Ok(true), |value| restore(&link, value, &reference));
        if failures.note(restored) == Some(true) {
            failures.note(
                users.remove_link(&link).map_err(|e| Error::io(format!("remove {DIRECTORY}/{link}"), &e)),
            );
        }
    }
    failures.into_result()
}

/// Restores the earlier value of a link, if the link still exists. Returns false if the reference's host ports may need
/// the present value: the reference sets it in ADD, and never restores it.
fn restore(name: &str, earlier_value: i32, reference: &Reference) -> Result<bool> {
    let host = Netlink::open()?;
    // The kernel also finds another link, with this name as an alternative one.
    let link = host.link(name)?.filter(|link| link.name == name);
    let Some(link) = link.filter(|link| link.route_localnet.is_some_and(|now| now != earlier_value)) else {
        return Ok(true);
    };
    if earlier_value == 0 && reference.has_any(HostPorts::KIND) {
        let key = key(name);
        cni::warn(&format!(
            "{key} stays set: host ports of containernetworking/plugins may need it; a DEL or GC after the last one restores it"
        ));
        return Ok(false);
    }
    match host.set_route_localnet(&link, earlier_value) {
        // The link has been deleted meanwhile.
        Err(e) if e.is_missing() => Ok(true),
        result => Ok(result.map(|()| true)?),
    }
}
