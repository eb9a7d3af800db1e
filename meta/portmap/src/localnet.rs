//! Host ports on the host's 127.0.0.1 and ::1. The container's answers arrive on another link than `lo`, where the
//! kernel does not accept packets for these addresses by default.

mod users;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use cni::{Code, Error, Failures, NetworkName, Result, Scope, Undo};
use iface::Namespace;
use netfilter::{Backend, Firewall, HostPorts, LoopbackGuard, Owner, SourceNat};
use netlink::Link;
use system::lock::Lock;
use users::Users;

/// Rules that protect the host's services on 127.0.0.1 while a port is mapped there, in addition to the rules of the
/// backend iptables: these are in the table mangle, which other programs may flush. `None` if no port is mapped there, with
/// the backend nftables, or if the kernel has no nf_tables.
pub fn guard(ports: &HostPorts, backend: Backend) -> Option<LoopbackGuard> {
    let is_needed = ports.source_nat != SourceNat::None
        && ports.addresses.iter().any(|address| address.is_ipv4())
        && ports.mappings.iter().any(|mapping| includes(mapping.host_ip, Ipv4Addr::LOCALHOST.into()));
    (is_needed && backend == Backend::Iptables && Firewall::has_nftables()).then_some(LoopbackGuard)
}

/// Allows containers to answer to the host's loopback addresses, for one attachment or many. State that the attachments share is
/// read once.
#[derive(Debug, Default)]
pub struct RouteLocalnet {
    host: Option<Namespace>,
    /// Held from the first attachment that needs `route_localnet`, so that no other plugin restores a value that was
    /// read here.
    lock: Option<Option<Lock>>,
    /// The links with the setting, each with its earlier value.
    set: BTreeMap<String, String>,
}

impl RouteLocalnet {
    pub fn new() -> Self {
        Self::default()
    }

    /// Allows the answers of an attachment's container, if one of its ports is mapped on a loopback address.
    ///
    /// # Errors
    /// If a setting or a route cannot be changed.
    pub fn admit(&mut self, ports: &HostPorts, owner: &Owner, undo: &mut Undo) -> Result<()> {
        // Without source NAT, the container would answer to its own loopback.
        if ports.source_nat == SourceNat::None {
            return Ok(());
        }
        let host = match self.host.take() {
            Some(host) => host,
            None => Namespace::host()?,
        };
        let admitted = self.admit_all(&host, ports, owner, undo);
        self.host = Some(host);
        admitted
    }

    fn admit_all(
        &mut self,
        host: &Namespace,
        ports: &HostPorts,
        owner: &Owner,
        undo: &mut Undo,
    ) -> Result<()> {
        for local in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            let container = ports.addresses.iter().map(|a| a.ip()).find(|ip| ip.is_ipv4() == local.is_ipv4());
            let is_mapped = ports.mappings.iter().any(|mapping| includes(mapping.host_ip, local));
            let Some(container) = container.filter(|_| is_mapped) else { continue };
            match (host.nl.route_get(container)?, local) {
                (None, _) => {}
                (Some(link), IpAddr::V4(_)) => self.admit_v4(host, &link, owner, undo)?,
                // The kernel drops packets to ::1 that arrive from other links, so the route needs no rules, and it stays
                // as long as its link. The kernel also drops the container's answers if br_netfilter has translated their
                // destination to ::1 before routing.
                (Some(link), IpAddr::V6(_)) => host.nl.add_local_route(&link, local)?,
            }
        }
        Ok(())
    }

    /// Sets `route_localnet` on the link. The rules that ADD installed then block packets from other links to 127.0.0.0/8.
    fn admit_v4(&mut self, host: &Namespace, link: &Link, owner: &Owner, undo: &mut Undo) -> Result<()> {
        let key = setting(&link.name);
        if self.lock.is_none() {
            self.lock = Some(lock()?);
        }
        let known = self.set.get(&link.name).cloned();
        let is_set = known.is_some();
        let before = known.map_or_else(|| host.sysctl(&key), Ok)?;
        let owned = owner.clone();
        undo.push(move || withdraw(&owned));
        if let Err(e) = Users::of_host().join(&link.name, &owner.label(), &before) {
            cni::warn(&format!(
                "{key} stays set after the last host port is removed, because its user cannot be recorded in /run/ferrule/localnet: {e}"
            ));
        }
        if !is_set && before != "1" {
            host.set_sysctl(&key, "1")?;
        }
        self.set.insert(link.name.clone(), before);
        Ok(())
    }
}

/// Removes an attachment from the users of `route_localnet`. Restores the setting of its link if no other attachment needs it.
///
/// # Errors
/// Settings that could not be restored.
pub fn withdraw(owner: &Owner) -> Result<()> {
    restore_unused(|users| users.remove(&owner.label()))
}

/// Like [`withdraw`], for the stale attachments of a network.
///
/// # Errors
/// Settings that could not be restored.
pub fn withdraw_stale(network: &NetworkName, scope: &Scope) -> Result<()> {
    let takes = |label: &str| netfilter::takes(scope, network, "route_localnet record", label);
    if scope.is_dry() {
        return list(takes);
    }
    restore_unused(|users| users.retain(&takes))
}

/// Only lists the stale users. Writes no value.
fn list(takes: impl Fn(&str) -> bool) -> Result<()> {
    let (users, failed) =
        (Users::of_host(), |e| Error::io("read /run/ferrule/localnet, the users of route_localnet", &e));
    if users.are_known().map_err(failed)? {
        users.retain(&takes).map_err(failed)?;
    }
    Ok(())
}

/// Timeout for the lock. Each holder needs some microseconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether a mapping of the address includes a loopback address.
fn includes(host_ip: Option<IpAddr>, local: IpAddr) -> bool {
    host_ip.is_none_or(|ip| ip.is_ipv4() == local.is_ipv4() && (ip.is_unspecified() || ip.is_loopback()))
}

/// The lock for reading the users and changing the setting. None: the host has no place for locks.
fn lock() -> Result<Option<Lock>> {
    Ok(Lock::acquire("localnet", LOCK_TIMEOUT)?)
}

fn setting(link: &str) -> String {
    format!("ipv4/conf/{link}/route_localnet")
}

type Unused = Vec<(String, String)>;

/// Restores the earlier value of each link without users.
fn restore_unused(remove: impl FnOnce(&Users) -> io::Result<Unused>) -> Result<()> {
    let users = Users::of_host();
    let failed = |e| Error::io("read /run/ferrule/localnet, the users of route_localnet", &e);
    if !users.are_known().map_err(failed)? {
        return Ok(());
    }
    let _lock = lock()?;
    let mut failures = Failures::new();
    for (link, before) in remove(&users).map_err(failed)? {
        if failures.note(restore(&setting(&link), &before)).is_some() {
            failures.note(
                users
                    .remove_link(&link)
                    .map_err(|e| Error::io(format!("remove /run/ferrule/localnet/{link}"), &e)),
            );
        }
    }
    failures.into_result()
}

/// The link may have been deleted. If the value is already right, it is not written, because it may be read-only.
fn restore(key: &str, before: &str) -> Result<()> {
    let host = Namespace::host()?;
    if host.sysctl(key).is_ok_and(|now| now == before) {
        return Ok(());
    }
    match host.set_sysctl(key, before) {
        Err(gone) if gone.code() == Code::UnsupportedField as u32 => Ok(()),
        set => set,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ports_of_loopback_or_of_all_addresses_are_mapped_on_127_0_0_1() {
        let ip = |text: &str| Some(text.parse().unwrap());
        for (host_ip, v4, v6) in [
            (None, true, true),
            (ip("0.0.0.0"), true, false),
            (ip("127.0.0.53"), true, false),
            (ip("192.0.2.1"), false, false),
            (ip("::"), false, true),
            (ip("::1"), false, true),
            (ip("2001:db8::1"), false, false),
        ] {
            let is_mapped = [ip("127.0.0.1"), ip("::1")].map(|local| includes(host_ip, local.unwrap()));
            assert_eq!(is_mapped, [v4, v6], "{host_ip:?}");
        }
    }
}
