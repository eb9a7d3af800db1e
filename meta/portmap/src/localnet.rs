//! Host ports on the host's 127.0.0.1 and ::1. The container's answers arrive on another link than `lo`, where the
//! kernel does not accept packets for these addresses by default.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cni::{Code, Error, Result, Undo};
use iface::Namespace;
use netfilter::{Backend, Firewall, HostPorts, LoopbackGuard, Owner, SourceNat, route_localnet};
use netlink::Link;
use system::lock::Lock;

/// The loopback rules that host ports in iptables also need in nf_tables, if a port is mapped on 127.0.0.1: other
/// programs may flush the iptables table mangle. None with nftables, whose host ports include these rules, and if the
/// kernel has no nf_tables. `backend` is that of the host ports, and is called only if such a port exists. None: they are the
/// reference's.
///
/// # Errors
/// The error of `backend`.
pub fn guard_in_nftables(
    ports: &HostPorts,
    backend: impl FnOnce() -> Result<Option<Backend>>,
) -> Result<Option<LoopbackGuard>> {
    let is_needed = ports.source_nat != SourceNat::None
        && ports.addresses.iter().any(|address| address.is_ipv4())
        && ports.mappings.iter().any(|mapping| maps_loopback(mapping.host_ip, Ipv4Addr::LOCALHOST.into()));
    let is_needed = is_needed && backend()? == Some(Backend::Iptables) && Firewall::has_nftables()?;
    Ok(is_needed.then_some(LoopbackGuard))
}

/// Lets containers' answers to 127.0.0.1 and ::1 reach the host, for one attachment or many: sets `route_localnet` on
/// the link to the container, or adds a local route to ::1. State that the attachments share is read once.
#[derive(Debug, Default)]
pub struct LoopbackAnswers {
    host: Option<Namespace>,
    /// Held from the first attachment that needs `route_localnet`, so that no other plugin restores a value that was
    /// read here. Outer None: not acquired yet. Inner None: the host has no directory for locks.
    lock: Option<Option<Lock>>,
    /// The links on which this call has set `route_localnet`, each with its earlier value.
    earlier_values: BTreeMap<String, i32>,
}

impl LoopbackAnswers {
    pub fn new() -> Self {
        Self::default()
    }

    /// Allows the answers of an attachment's container, if one of its ports is mapped on a loopback address.
    ///
    /// # Errors
    /// Code 5 if a user of `route_localnet` cannot be recorded. Code 11 if another plugin holds the lock for 10 s. Code 999 if
    /// the kernel refuses to set `route_localnet`, or a request for a route.
    pub fn enable(&mut self, ports: &HostPorts, owner: &Owner, undo: &mut Undo) -> Result<()> {
        // Without source NAT, the container would answer to its own loopback.
        if ports.source_nat == SourceNat::None {
            return Ok(());
        }
        let host = self.host()?;
        self.enable_families(&host, ports, owner, undo)
    }

    /// Checks that an attachment's container can answer to 127.0.0.1, if one of its ports is mapped on it.
    ///
    /// # Errors
    /// Code 999 if another program has reset `route_localnet`.
    pub fn check(&mut self, ports: &HostPorts, owner: &Owner) -> Result<()> {
        if ports.source_nat == SourceNat::None {
            return Ok(());
        }
        check_v4(&self.host()?, ports, owner)
    }

    /// The host's namespace, opened once.
    fn host(&mut self) -> Result<Namespace> {
        let host = self.host.take().map_or_else(Namespace::host, Ok)?;
        Ok(self.host.insert(host).clone())
    }

    fn enable_families(
        &mut self,
        host: &Namespace,
        ports: &HostPorts,
        owner: &Owner,
        undo: &mut Undo,
    ) -> Result<()> {
        for local in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            match (answering_link(host, ports, local)?, local) {
                (None, _) => {}
                (Some(link), IpAddr::V4(_)) => self.enable_v4(host, &link, owner, undo)?,
                // Nothing deletes this route. It is harmless: the kernel drops packets to ::1 from other links anyway.
                // If br_netfilter has already rewritten the container's answers to ::1, the kernel drops them too.
                (Some(link), IpAddr::V6(_)) => host.nl.add_local_route(&link, local)?,
            }
        }
        Ok(())
    }

    /// Sets `route_localnet` on the link. The rules that ADD installed then block packets from other links to 127.0.0.0/8.
    fn enable_v4(&mut self, host: &Namespace, link: &Link, owner: &Owner, undo: &mut Undo) -> Result<()> {
        if self.lock.is_none() {
            self.lock = Some(route_localnet::lock()?);
        }
        let known_value = self.earlier_values.get(&link.name).copied();
        let earlier_value = match known_value {
            Some(value) => value,
            // `link` was read without the lock.
            None => host.link(&link.name)?.route_localnet.unwrap_or_default(),
        };
        let owned = owner.clone();
        undo.push(move || route_localnet::remove_user(&owned));
        route_localnet::add_user(&link.name, owner, earlier_value)?;
        if known_value.is_none() && earlier_value != 1 {
            host.nl.set_route_localnet(link, 1)?;
        }
        self.earlier_values.insert(link.name.clone(), earlier_value);
        Ok(())
    }
}

fn check_v4(host: &Namespace, ports: &HostPorts, owner: &Owner) -> Result<()> {
    let Some(link) = answering_link(host, ports, Ipv4Addr::LOCALHOST.into())? else { return Ok(()) };
    // The kernel uses the greater one of the link's value and the value for all links.
    if link.route_localnet.unwrap_or_default() != 0 || host.sysctl(&route_localnet::key("all"))? != "0" {
        return Ok(());
    }
    let text = format!(
        "{} is 0, so the host ports of {owner} do not work at 127.0.0.1",
        route_localnet::key(&link.name)
    );
    Err(Error::new(Code::Internal, text)
        .detail("something has reset it; `cnitool repair --all` sets it again"))
}

/// The link on which a container answers to a loopback address that one of its ports is mapped on. None also without a
/// route to the container: no answer can arrive.
fn answering_link(host: &Namespace, ports: &HostPorts, local: IpAddr) -> Result<Option<Link>> {
    let container = ports.addresses.iter().map(|a| a.ip()).find(|ip| ip.is_ipv4() == local.is_ipv4());
    let is_mapped = ports.mappings.iter().any(|mapping| maps_loopback(mapping.host_ip, local));
    match container.filter(|_| is_mapped) {
        Some(container) => Ok(host.nl.route_get(container)?),
        None => Ok(None),
    }
}

/// Whether a mapping with this host address can be reached at the family's loopback address, or at another one of the
/// same family.
fn maps_loopback(host_ip: Option<IpAddr>, local: IpAddr) -> bool {
    host_ip.is_none_or(|ip| ip.is_ipv4() == local.is_ipv4() && (ip.is_unspecified() || ip.is_loopback()))
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
            let is_mapped = [ip("127.0.0.1"), ip("::1")].map(|local| maps_loopback(host_ip, local.unwrap()));
            assert_eq!(is_mapped, [v4, v6], "{host_ip:?}");
        }
    }
}
