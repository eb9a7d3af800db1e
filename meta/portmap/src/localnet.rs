//! 127.0.0.1 and ::1 of the host as a host port's address: the answers of a container come in by the link that leads to it,
//! where the kernel expects nothing for these.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cni::Result;
use firewall::{HostPorts, SourceNat};
use iface::Namespace;
use netlink::Link;

/// Takes such answers in, if any of the ports can be asked for there. What is set for this stays, like the bridge: other
/// containers behind the link share it.
///
/// # Errors
/// If the kernel refuses.
pub fn admit(ports: &HostPorts) -> Result<()> {
    // Without source NAT the container would answer to its own loopback.
    if ports.source_nat == SourceNat::None {
        return Ok(());
    }
    let host = Namespace::host()?;
    for (local, admit) in WAYS {
        let container = ports.addresses.iter().map(|a| a.ip()).find(|ip| ip.is_ipv4() == local.is_ipv4());
        let asked = ports.mappings.iter().any(|mapping| includes(mapping.host_ip, local));
        if let Some(container) = container.filter(|_| asked)
            && let Some(link) = host.nl.link_towards(container)?
        {
            admit(&host, &link)?;
        }
    }
    Ok(())
}

type Admit = fn(&Namespace, &Link) -> Result<()>;

const WAYS: [(IpAddr, Admit); 2] =
    [(IpAddr::V4(Ipv4Addr::LOCALHOST), admit_v4), (IpAddr::V6(Ipv6Addr::LOCALHOST), admit_v6)];

/// Whether the address of a mapping can be one of loopback.
fn includes(host_ip: Option<IpAddr>, local: IpAddr) -> bool {
    host_ip.is_none_or(|ip| ip.is_ipv4() == local.is_ipv4() && (ip.is_unspecified() || ip.is_loopback()))
}

/// The firewall's rules keep 127/8 from others then.
fn admit_v4(host: &Namespace, link: &Link) -> Result<()> {
    let key = format!("ipv4/conf/{}/route_localnet", link.name);
    if host.sysctl(&key)? == "1" { Ok(()) } else { host.set_sysctl(&key, "1") }
}

/// The kernel keeps ::1 from others by itself. It takes the container's answers for such if br_netfilter has rewritten
/// them to ::1 before.
fn admit_v6(host: &Namespace, link: &Link) -> Result<()> {
    Ok(host.nl.accept_at(link, Ipv6Addr::LOCALHOST.into())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ports_of_loopback_or_of_all_addresses_are_asked_for_there() {
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
            let asked = WAYS.map(|(local, _)| includes(host_ip, local));
            assert_eq!(asked, [v4, v6], "{host_ip:?}");
        }
    }
}
