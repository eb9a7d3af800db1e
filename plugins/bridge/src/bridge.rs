//! The bridge, which all attachments of its networks share and the first one creates.

use cni::{AddResult, Code, Error, Result};
use iface::{Namespace, forwarding};
use netlink::{Link, LinkChange, LinkKind, Mac, NewLink};

use crate::conf::Conf;

/// Finds or creates the bridge, and sets what the configuration needs.
pub fn ensure(host: &Namespace, conf: &Conf, mtu: Option<u32>) -> Result<Link> {
    let bridge = match host.nl.link(&conf.bridge)? {
        Some(link) => link,
        None => create(host, conf, mtu)?,
    };
    let Some(LinkKind::Bridge { vlan_filtering }) = bridge.kind else {
        let kind = bridge.kind_name().unwrap_or("physical or loopback");
        return Err(Error::config(format!(
            "bridge {}: a link of that name exists already, and its kind is {kind}",
            conf.bridge
        ))
        .detail("give the bridge another name, or delete the link"));
    };
    if conf.vlans.is_some() && !vlan_filtering {
        host.nl.enable_vlan_filtering(&bridge).map_err(without_vlans)?;
        warn_of_filtering(host, &bridge)?;
    }
    let bridge = if bridge.up { bridge } else { prepare(host, bridge)? };
    let promisc = conf.promisc && !bridge.promisc;
    let mac = follows_ports(host, &bridge)?
        .then(|| bridge.mac.filter(|mac| !mac.is_zero()).unwrap_or_else(Mac::random));
    if promisc || mac.is_some() || !bridge.up {
        let change =
            LinkChange { up: Some(true), promisc: promisc.then_some(true), mac, ..LinkChange::default() };
        host.nl.change_link(&bridge, &change)?;
    }
    Ok(Link { mac: mac.or(bridge.mac), ..bridge })
}

/// Warns if a bridge that has begun to filter VLANs has ports. The bridge puts their untagged frames into its default VLAN, and drops others.
fn warn_of_filtering(host: &Namespace, bridge: &Link) -> Result<()> {
    if !host.nl.ports(bridge.index)?.is_empty() {
        cni::warn(&format!(
            "bridge {} now filters VLANs: it drops tagged frames of its other ports, except those of VLANs that you add with \
             `bridge vlan add dev PORT vid ID`",
            bridge.name
        ));
    }
    Ok(())
}

/// Makes the host ignore router advertisements on a bridge, port or gateway interface that others created, unless its default route comes from
/// them. The kernel's default is 1. Only an administrator sets 2.
pub fn ignore_router_advertisements(host: &Namespace, link: &Link) -> Result<()> {
    if link.accept_ra != Some(1) {
        return Ok(());
    }
    if !forwarding::has_learned_default(host, link)? {
        return host.ignore_router_advertisements(link);
    }
    cni::warn(&format!(
        "the host's default route comes from router advertisements on {0}, so containers on {0} can change it. Set a static \
         default route, and run `sysctl -w net/ipv6/conf/{0}/accept_ra=0`. To accept the advertisements, set it to 2",
        link.name
    ));
    Ok(())
}

/// Whether the bridge's hardware address follows its ports: if nobody set it, the bridge uses the lowest of its ports', and none when the
/// last port is deleted. Neighbours that know the gateway by the old address then lose it. The caller therefore sets the current address
/// permanently.
fn follows_ports(host: &Namespace, bridge: &Link) -> Result<bool> {
    /// NET_ADDR_SET of linux/netdevice.h.
    const SET: &str = "3";
    if let Some(how) = addr_assign_type(bridge) {
        return Ok(how != SET);
    }
    // Such a bridge has the address of one of its ports. Setting the address of any other bridge, even to the same value, would flush its
    // neighbour entries.
    let ports = host.nl.ports(bridge.index)?;
    Ok(ports.is_empty() || ports.iter().any(|port| port.mac == bridge.mac))
}

/// Origin of a link's hardware address. `None` if `/sys` does not show it: `/sys` belongs to the namespace in which it was mounted, where
/// the name may be another link's.
fn addr_assign_type(link: &Link) -> Option<String> {
    let read = |key| std::fs::read_to_string(format!("/sys/class/net/{}/{key}", link.name)).ok();
    let address = read("address")?;
    link.mac.filter(|mac| mac.to_string() == address.trim())?;
    read("addr_assign_type").map(|how| how.trim().to_owned())
}

fn create(host: &Namespace, conf: &Conf, mtu: Option<u32>) -> Result<Link> {
    let vlan_filtering = conf.vlans.is_some();
    let new = NewLink::new(&conf.bridge, LinkKind::Bridge { vlan_filtering });
    // Random, because the bridges of two hosts may share an Ethernet.
    match host.nl.create_link(&NewLink { mac: Some(Mac::random()), mtu, ..new }) {
        // The host's default may be 2, which an administrator wants for other links.
        Ok(link) => Ok(Link { accept_ra: Some(1), ..link }),
        // Another plugin created it first.
        Err(e) if e.is_exists() => host.link(&conf.bridge),
        Err(e) if vlan_filtering && e.is_unsupported() => Err(without_vlans(e)),
        Err(e) => Err(e.into()),
    }
}

/// Sets the sysctls of a bridge that is down: a new one, or that of an ADD that was killed before this step.
///
/// Duplicate address detection of the link-local address is off, because the bridge's MAC is its own. It takes about 2 s, during which the
/// bridge cannot look for neighbours when it forwards, and other machines could not reach the first containers.
fn prepare(host: &Namespace, bridge: Link) -> Result<Link> {
    let [ra, dad] = ["accept_ra", "accept_dad"].map(|key| format!("ipv6/conf/{}/{key}", bridge.name));
    let ignores = bridge.accept_ra == Some(1);
    let pairs = [(&*ra, "0"), (&*dad, "0")];
    host.try_sysctls(if ignores { &pairs } else { &pairs[1..] })?;
    Ok(Link { accept_ra: if ignores { Some(0) } else { bridge.accept_ra }, ..bridge })
}

fn without_vlans(cause: netlink::Error) -> Error {
    let unsupported = cause.is_unsupported();
    let error = Error::from(cause).context("configure vlan or vlanTrunk");
    if !unsupported {
        return error;
    }
    error
        .with_code(Code::UnsupportedField)
        .detail("this kernel was built without CONFIG_BRIDGE_VLAN_FILTERING")
}

/// Checks that the bridge exists and is up, with the hardware address in ADD's result and the configured modes.
pub fn verify(host: &Namespace, conf: &Conf, prev: &AddResult) -> Result<Link> {
    let listed = |name: &str| prev.host_interfaces().find(|i| i.name == name);
    let expected = match listed(&conf.bridge) {
        // The configured name may be an alternative one.
        None => host.nl.link(&conf.bridge)?.and_then(|link| listed(&link.name)),
        found => found,
    };
    let expected =
        expected.ok_or_else(|| Error::config(format!("prevResult does not list bridge {}", conf.bridge)))?;
    let bridge = iface::verify::interface(host, expected)?;
    iface::verify::of_kind(&bridge, "bridge")?;
    iface::verify::up_on_host(&bridge)?;
    if conf.promisc && !bridge.promisc {
        return Err(iface::verify::differs(&bridge, "promiscuous mode", "on", "off"));
    }
    Ok(bridge)
}

/// Warns if bridged frames do not pass the host's firewall (br_netfilter). A container that reaches another one on its bridge through a
/// service address then gets the answer from the wrong address.
pub fn warn_without_br_netfilter(host: &Namespace, conf: &Conf) {
    let needed = conf.hairpin && conf.is_gateway;
    if needed && host.sysctl("bridge/bridge-nf-call-iptables").ok().as_deref() != Some("1") {
        cni::warn(
            "bridged traffic does not pass the host's firewall, so containers cannot reach each other through \
             services or host ports: run `modprobe br_netfilter && sysctl -w net.bridge.bridge-nf-call-iptables=1`",
        );
    }
}
