//! Links: network interfaces of any kind.

mod change;
mod create;
mod kind;
mod setting;

use std::os::fd::{AsRawFd, BorrowedFd};

use crate::uapi::*;
use crate::wire::{Attributes, Message, read_i32, read_str, read_u8, read_u32};
use crate::{HardwareAddress, Mac, Netlink, Result};

pub use change::LinkChange;
pub use create::{NewLink, Peer, Target};
pub use kind::{LinkKind, TunKind};
pub use setting::{IpvlanFlag, IpvlanMode, MacvlanMode, VlanProtocol};

/// `struct ifinfomsg`.
pub(crate) const HEADER: usize = 16;

/// Maximum length of a name in bytes (IFNAMSIZ without the NUL).
const NAME: usize = 15;

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its number in its namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Hardware address, if it is an Ethernet address.
    pub mac: Option<Mac>,
    /// Hardware address, if it is an IP over InfiniBand interface.
    pub infiniband: Option<HardwareAddress>,
    /// Hardware address from its manufacturer, which cannot be changed. `None`: none, or Linux before 5.6.
    pub permanent_address: Option<HardwareAddress>,
    /// Alternative names (`ip link property`, Linux 5.5).
    pub alt_names: Vec<String>,
    /// In bytes.
    pub mtu: u32,
    /// Administratively up.
    pub up: bool,
    /// Whether it is its namespace's loopback interface (IFF_LOOPBACK).
    pub loopback: bool,
    /// Whether promiscuous mode was requested (IFF_PROMISC).
    pub promisc: bool,
    /// Whether all multicast was requested (IFF_ALLMULTI).
    pub allmulti: bool,
    /// Length of the transmit queue in packets.
    pub tx_queue_len: u32,
    /// Whether it can carry packets.
    pub state: OperState,
    /// Free text (`ip link set alias`), may be empty.
    pub alias: String,
    /// Number of its group (`ip link set group`); 0 is the default group.
    pub group: u32,
    /// Kind. `None` for physical links and loopback.
    pub kind: Option<LinkKind>,
    /// Index of its bridge, bond or VRF.
    pub master: Option<u32>,
    /// Index of its peer (veth) or parent.
    pub peer: Option<u32>,
    /// Namespace of `peer` if it is another one: this namespace's number for it.
    pub peer_netns_id: Option<i32>,
    /// Bus address of its device, such as `0000:00:1f.6`. Empty: none, or Linux before 5.14.
    pub bus_address: String,
    /// Of a bridge port: whether frames may leave through the port on which they arrived.
    pub hairpin: Option<bool>,
    /// Of a bridge port: whether it cannot reach other isolated ports.
    pub isolated: Option<bool>,
    /// Its sysctl net/ipv4/conf/LINK/forwarding. `None` without IPv4.
    pub forwarding: Option<i32>,
    /// Its sysctl net/ipv4/conf/LINK/route_localnet. `None` without IPv4.
    pub route_localnet: Option<i32>,
    /// Its sysctl net/ipv6/conf/LINK/accept_ra. `None` without IPv6.
    pub accept_ra: Option<i32>,
    /// Its sysctl net/ipv6/conf/LINK/disable_ipv6. `None` without IPv6.
    pub disable_ipv6: Option<i32>,
}

impl Link {
    /// Whether it is of a kind, such as `bridge`.
    pub fn is(&self, kind: &str) -> bool {
        self.kind_name() == Some(kind)
    }

    /// Name of its kind. `None` for physical links and loopback.
    pub fn kind_name(&self) -> Option<&str> {
        self.kind.as_ref().map(LinkKind::name)
    }

    /// Hardware address, of Ethernet or of IP over InfiniBand.
    pub fn address(&self) -> Option<HardwareAddress> {
        self.mac.map(HardwareAddress::from).or_else(|| self.infiniband.clone())
    }

    /// Decodes the payload of an RTM_NEWLINK or RTM_DELLINK. `None` without a name: every link has one.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let flags = read_u32(payload.get(8..)?)?;
        let mut link = Self {
            index: read_u32(payload.get(4..)?)?,
            up: flags & IFF_UP != 0,
            loopback: flags & IFF_LOOPBACK != 0,
            promisc: flags & IFF_PROMISC != 0,
            allmulti: flags & IFF_ALLMULTI != 0,
            ..Self::default()
        };
        for (kind, value) in Attributes::after(HEADER, payload) {
            link.take(kind, value);
        }
        (!link.name.is_empty()).then_some(link)
    }

    fn take(&mut self, kind: u16, value: &[u8]) {
        match kind {
            IFLA_IFNAME => self.name = read_str(value).unwrap_or_default().to_owned(),
            IFLA_IFALIAS => self.alias = read_str(value).unwrap_or_default().to_owned(),
            IFLA_GROUP => self.group = read_u32(value).unwrap_or_default(),
            IFLA_ADDRESS => {
                (self.mac, self.infiniband) = (Mac::read(value), HardwareAddress::read(value));
            }
            IFLA_PERM_ADDRESS => self.permanent_address = hardware_address(value),
            IFLA_PROP_LIST => {
                let names = Attributes::of(value).filter(|(kind, _)| *kind == IFLA_ALT_IFNAME);
                self.alt_names = names.filter_map(|(_, name)| read_str(name)).map(str::to_owned).collect();
            }
            IFLA_MTU => self.mtu = read_u32(value).unwrap_or_default(),
            IFLA_TXQLEN => self.tx_queue_len = read_u32(value).unwrap_or_default(),
            IFLA_OPERSTATE => self.state = OperState::of(read_u8(value).unwrap_or_default()),
            IFLA_MASTER => self.master = read_u32(value),
            IFLA_LINK => self.peer = read_u32(value).filter(|index| *index != 0),
            IFLA_PARENT_DEV_NAME => self.bus_address = read_str(value).unwrap_or_default().to_owned(),
            IFLA_LINK_NETNSID => self.peer_netns_id = read_i32(value),
            IFLA_LINKINFO => self.take_info(Attributes::of(value)),
            IFLA_AF_SPEC => {
                let sysctl = |family: u8, attribute, number: usize| {
                    let all = Attributes::of(Attributes::of(value).get(family.into())?).get(attribute)?;
                    all.get(4 * number..).and_then(read_i32)
                };
                // The kernel counts the sysctls of IPv4 from 1.
                let v4 = |number: u16| sysctl(AF_INET, IFLA_INET_CONF, usize::from(number) - 1);
                let v6 = |number| sysctl(AF_INET6, IFLA_INET6_CONF, number);
                self.forwarding = v4(IPV4_DEVCONF_FORWARDING);
                self.route_localnet = v4(IPV4_DEVCONF_ROUTE_LOCALNET);
                self.accept_ra = v6(DEVCONF_ACCEPT_RA);
                self.disable_ipv6 = v6(DEVCONF_DISABLE_IPV6);
            }
            _ => {}
        }
    }

    fn take_info(&mut self, info: Attributes<'_>) {
        self.kind = LinkKind::read(info);
        let master_kind = info.get(IFLA_INFO_SLAVE_KIND).and_then(read_str);
        if let (Some("bridge"), Some(port)) =
            (master_kind, info.get(IFLA_INFO_SLAVE_DATA).map(Attributes::of))
        {
            self.hairpin = port.get(IFLA_BRPORT_MODE).and_then(read_u8).map(|on| on != 0);
            self.isolated = port.get(IFLA_BRPORT_ISOLATED).and_then(read_u8).map(|on| on != 0);
        }
    }
}

/// Reads an address of Ethernet or of IP over InfiniBand.
fn hardware_address(value: &[u8]) -> Option<HardwareAddress> {
    Mac::read(value).map(HardwareAddress::from).or_else(|| HardwareAddress::read(value))
}

/// Operational state (RFC 2863; Documentation/networking/operstates.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OperState {
    /// Not reported by the driver; always for loopback.
    #[default]
    Unknown,
    /// Cannot carry packets.
    Down,
    /// Its parent or peer is down.
    LowerLayerDown,
    /// Waits for an event, such as an authentication.
    Dormant,
    /// Can carry packets.
    Up,
    /// Absent, or being tested.
    Other,
}

impl OperState {
    fn of(number: u8) -> Self {
        match number {
            0 => Self::Unknown,
            2 => Self::Down,
            3 => Self::LowerLayerDown,
            5 => Self::Dormant,
            6 => Self::Up,
            _ => Self::Other,
        }
    }

    /// The word of the kernel in /sys/class/net/LINK/operstate.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Down => "down",
            Self::LowerLayerDown => "lowerlayerdown",
            Self::Dormant => "dormant",
            Self::Up => "up",
            Self::Other => "notpresent or testing",
        }
    }
}

/// `struct ifinfomsg`.
pub(crate) fn header(family: u8, index: u32, flags: u32, mask: u32) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[0] = family;
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
    bytes[12..16].copy_from_slice(&mask.to_ne_bytes());
    bytes
}

impl Netlink {
    /// Finds a link by its name or alternative name.
    ///
    /// # Errors
    /// If the kernel refuses the request.
    pub fn link(&self, name: &str) -> Result<Option<Link>> {
        let mut message = lookup(0);
        // An alternative name may be longer, and then has its own attribute.
        let long = name.len() > NAME;
        message.put_str(if long { IFLA_ALT_IFNAME } else { IFLA_IFNAME }, name);
        match self.one_link(message, name) {
            // The name is too long for that too, or the kernel has none (before 5.5).
            Err(e) if long && e.is_invalid() => Ok(None),
            other => other,
        }
    }

    /// Finds a link by its index.
    ///
    /// # Errors
    /// If the kernel refuses the request.
    pub fn link_by_index(&self, index: u32) -> Result<Option<Link>> {
        let message = lookup(index);
        self.one_link(message, &format!("number {index}"))
    }

    /// Finds the link of an index attribute, such as [`Link::peer`] or [`Route::link`](crate::Route::link). `None` also without an index.
    ///
    /// # Errors
    /// If the kernel refuses the request.
    pub fn link_named_by(&self, index: Option<u32>) -> Result<Option<Link>> {
        index.map_or(Ok(None), |index| self.link_by_index(index))
    }

    fn one_link(&self, message: Message, subject: &str) -> Result<Option<Link>> {
        match self.socket.query(message, Link::parse).map_err(|r| r.during("look up link", subject)) {
            Ok(link) => Ok(Some(link)),
            Err(e) if e.is_missing() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Lists all links.
    ///
    /// # Errors
    /// If the kernel refuses the request.
    pub fn links(&self) -> Result<Vec<Link>> {
        self.some_links(None)
    }

    /// Lists the ports of a bridge.
    ///
    /// # Errors
    /// If the kernel refuses the request.
    pub fn ports(&self, bridge: u32) -> Result<Vec<Link>> {
        self.some_links(Some(bridge))
    }

    fn some_links(&self, master: Option<u32>) -> Result<Vec<Link>> {
        let mut message = lookup(0);
        message.put_optional(IFLA_MASTER, master);
        let links = self.socket.dump(message, |_, payload| Link::parse(payload));
        let links = links.map_err(|r| r.during("list", "links"))?;
        // Older kernels ignore the filter.
        Ok(links.into_iter().filter(|l| master.is_none() || l.master == master).collect())
    }
}

/// A request without counters, which the kernel would sum over all CPUs.
fn lookup(index: u32) -> Message {
    let mut message = Message::new(RTM_GETLINK, 0, &header(AF_UNSPEC, index, 0, 0));
    message.put_u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
    message
}

fn put_netns(message: &mut Message, netns: Option<BorrowedFd<'_>>) {
    message.put_optional(IFLA_NET_NS_FD, netns.map(|fd| fd.as_raw_fd().cast_unsigned()));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A port of another kind of master, whose attributes 4 and 33 have other meanings than a bridge port's.
    fn port_of(kind: &str) -> Link {
        let mut message = Message::new(0, 0, &header(AF_UNSPEC, 7, 0, 0));
        message.put_str(IFLA_IFNAME, "port");
        message.nest(IFLA_LINKINFO, |m| {
            m.put_str(IFLA_INFO_SLAVE_KIND, kind);
            m.nest(IFLA_INFO_SLAVE_DATA, |m| {
                m.put_u8(IFLA_BRPORT_MODE, 1);
                m.put_u8(IFLA_BRPORT_ISOLATED, 1);
            });
        });
        Link::parse(&message.finish(1)[16..]).unwrap()
    }

    #[test]
    fn only_a_port_of_a_bridge_has_a_bridge_ports_settings() {
        assert_eq!((port_of("bridge").hairpin, port_of("bridge").isolated), (Some(true), Some(true)));
        assert_eq!((port_of("bond").hairpin, port_of("bond").isolated), (None, None));
    }
}
