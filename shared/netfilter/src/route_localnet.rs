//! The sysctl `route_localnet` of links: which attachments need it, and the value to restore after the last one.
//!
//! The sysctl lets packets from a link reach 127.0.0.0/8, so the rules that guard these addresses must exist while it is
//! set. A DEL or GC therefore restores it first ([`release`], [`release_stale`]), and removes those rules only if this
//! succeeds.

mod users;

use std::io;
use std::time::Duration;

use cni::{Error, Failures, NetworkName, Result, Scope, Undo};
use netlink::Netlink;
use system::lock::Lock;

use crate::backend::Backend;
use crate::firewall::Firewall;
use crate::kind::Kind;
use crate::kinds::{HostPorts, KeptGuard, LoopbackGuard};
use crate::owner::{Owner, should_delete};
use users::{DIRECTORY, Unused, Users};

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
/// # Errors
/// Code 5 if the record cannot be written. The setting must then stay as it is, because no DEL could restore it.
pub fn add_user(link: &str, owner: &Owner, earlier_value: i32) -> Result<()> {
    let joined = Users::of_host().join(link, &owner.label(), earlier_value);
    joined.map_err(|e| not_recorded(&key(link), &e))
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
fn remove_stale_users(network: &NetworkName, scope: &Scope) -> Result<()> {
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

/// Whether an attachment is recorded. False if this cannot be read: most hosts have no such records, and the directory
/// may be another program's file.
pub(crate) fn has_user(owner: &Owner) -> bool {
    Users::of_host().has(&owner.label()).unwrap_or_default()
}

/// Restores the earlier value of each link without users.
fn restore_unused(remove: impl FnOnce(&Users) -> io::Result<Vec<Unused>>) -> Result<()> {
    let users = Users::of_host();
    let failed = |e| Error::io(UPDATE_USERS, &e);
    if !users.may_exist().map_err(failed)? {
        return Ok(());
    }
    let _lock = lock()?;
    let mut failures = Failures::new();
    for Unused { link, earlier_value } in remove(&users).map_err(failed)? {
        let restored = earlier_value.map_or(Ok(()), |value| restore(&link, value));
        if failures.note(restored).is_some() {
            failures.note(
                users.remove_link(&link).map_err(|e| Error::io(format!("remove {DIRECTORY}/{link}"), &e)),
            );
        }
    }
    failures.into_result()
}

/// Restores the earlier value of a link, if the link still exists.
fn restore(name: &str, earlier_value: i32) -> Result<()> {
    let host = Netlink::open()?;
    // The kernel also finds another link, with this name as an alternative one.
    let link = host.link(name)?.filter(|link| link.name == name);
    let link = link.filter(|link| link.route_localnet.is_some_and(|now| now != earlier_value));
    match link.map_or(Ok(()), |link| host.set_route_localnet(&link, earlier_value)) {
        // The link has been deleted meanwhile.
        Err(e) if e.is_missing() => Ok(()),
        result => Ok(result?),
    }
}

/// The kinds of rules that include the guard of the loopback addresses in nf_tables.
const GUARDING: [Kind; 2] = [HostPorts::KIND, LoopbackGuard::KIND];
/// The same, with the guard that an earlier DEL has kept.
const WITH_KEPT: [Kind; 3] = [HostPorts::KIND, LoopbackGuard::KIND, KeptGuard::KIND];

/// Removes an attachment from the users ([`remove_user`]). If that fails, keeps the guard. Call it in DEL, before rules
/// are removed. Returns the kinds of rules that include the guard and that this DEL may remove.
pub fn release(owner: &Owner, failures: &mut Failures) -> &'static [Kind] {
    match failures.note(remove_user(owner)) {
        Some(()) => &WITH_KEPT,
        None => failures.note(keep_guard(owner)).unwrap_or_default(),
    }
}

/// Like [`release`], for the stale attachments of a network (GC).
pub fn release_stale(network: &NetworkName, scope: &Scope, failures: &mut Failures) -> &'static [Kind] {
    match failures.note(remove_stale_users(network, scope)) {
        Some(()) => &WITH_KEPT,
        None => failures.note(keep_stale_guard(network, scope)).unwrap_or_default(),
    }
}

/// Keeps the guard of the loopback addresses, because the DEL of an attachment could not restore the setting. The next
/// DEL or GC removes the guard. Returns the kinds of rules that this DEL may remove.
///
/// # Errors
/// Code 5 or 999 if the kernel refuses the guard. Then the DEL must remove nothing.
fn keep_guard(owner: &Owner) -> Result<&'static [Kind]> {
    let kept = Firewall::has_nftables().and_then(|has_nftables| match has_nftables {
        true => keep(|firewall| {
            let has = |kind| firewall.has(owner, kind);
            Ok((has(HostPorts::KIND)? || has(LoopbackGuard::KIND)?).then(|| owner.clone()))
        }),
        // With iptables alone, the guard is a shared part of the host ports, and is deleted with the last ones.
        false if Firewall::has_others_in_legacy(owner, HostPorts::KIND)? => Ok(&[HostPorts::KIND]),
        false => Ok(&[]),
    });
    kept.map_err(stays)
}

/// Like [`keep_guard`], for the GC of a network. One of its stale attachments has the guard from then on.
fn keep_stale_guard(network: &NetworkName, scope: &Scope) -> Result<&'static [Kind]> {
    let kept = Firewall::has_nftables().and_then(|has_nftables| match has_nftables {
        true => keep(|firewall| firewall.stale_owner(network, scope, &GUARDING)),
        false => Ok(&[]),
    });
    kept.map_err(stays)
}

fn stays(e: Error) -> Error {
    e.detail("the host ports stay until the next DEL or GC, because their rules protect 127.0.0.0/8")
}

/// Installs the guard for an attachment, if there is one.
fn keep(owner: impl FnOnce(&Firewall) -> Result<Option<Owner>>) -> Result<&'static [Kind]> {
    let (firewall, mut undo) = (Firewall::open(Some(Backend::Nftables))?, Undo::new());
    if let Some(owner) = owner(&firewall)? {
        firewall.install(&owner, &KeptGuard, &mut undo)?;
        undo.commit();
    }
    Ok(&GUARDING)
}

/// Whether rules include the guard.
pub(crate) fn is_guarding(kind: Kind) -> bool {
    GUARDING.contains(&kind)
}
