//! Links: interfaces, of whatever kind.

use std::os::fd::{AsRawFd, BorrowedFd};

use crate::uapi::{
    AF_UNSPEC, IFF_ALLMULTI, IFF_PROMISC, IFF_UP, IFLA_ADDRESS, IFLA_ALLMULTI, IFLA_ALT_IFNAME,
    IFLA_BR_VLAN_DEFAULT_PVID, IFLA_BR_VLAN_FILTERING, IFLA_BRPORT_ISOLATED, IFLA_BRPORT_MODE, IFLA_EXT_MASK,
    IFLA_IFALIAS, IFLA_IFNAME, IFLA_INFO_DATA, IFLA_INFO_KIND, IFLA_INFO_SLAVE_DATA, IFLA_INFO_SLAVE_KIND,
    IFLA_LINK, IFLA_LINK_NETNSID, IFLA_LINKINFO, IFLA_MASTER, IFLA_MTU, IFLA_NET_NS_FD, IFLA_OPERSTATE,
    IFLA_PROMISCUITY, IFLA_TXQLEN, NLM_F_CREATE, NLM_F_ECHO, NLM_F_EXCL, RTEXT_FILTER_SKIP_STATS,
    RTM_DELLINK, RTM_GETLINK, RTM_NEWLINK, VETH_INFO_PEER,
};
use crate::wire::{Attributes, Message, read_i32, read_str, read_u8, read_u16, read_u32};
use crate::{Mac, Netlink, Result, error};

/// `struct ifinfomsg`.
pub(crate) const HEADER: usize = 16;

/// The longest name of a link, in bytes (IFNAMSIZ less the NUL).
const NAME: usize = 15;

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its number in its namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its hardware address, if it is an Ethernet address.
    pub mac: Option<Mac>,
    /// Bytes.
    pub mtu: u32,
    /// Administratively up.
    pub up: bool,
    /// Promiscuous by request (IFF_PROMISC).
    pub promisc: bool,
    /// How many ask for promiscuity, the kernel's own parts included.
    pub promiscuity: u32,
    /// Receives all multicast by request (IFF_ALLMULTI).
    pub allmulti: bool,
    /// How many ask for all multicast. None: a kernel before 6.0 does not tell.
    pub allmulticity: Option<u32>,
    /// The transmit queue's length, in packets.
    pub tx_queue_len: u32,
    /// Whether it can carry packets now.
    pub state: OperState,
    /// The text for people (`ip link set alias`). Empty if there is none.
    pub alias: String,
    /// `veth`, `bridge`, ...; none for a physical one and loopback.
    pub kind: Option<String>,
    /// The index of the bridge (or bond, VRF) that it is a port of.
    pub master: Option<u32>,
    /// The index of its peer (veth) or of what it is stacked on.
    pub peer: Option<u32>,
    /// The namespace of `peer` if it is another one: an id that only this namespace knows.
    pub peer_netns_id: Option<i32>,
    /// A bridge's: whether it looks at VLAN tags.
    pub vlan_filtering: Option<bool>,
    /// A bridge's: the VLAN that new ports are put into; 0 for none.
    pub vlan_default_pvid: Option<u16>,
    /// A bridge port's: frames may leave through the port that they came from.
    pub hairpin: Option<bool>,
    /// A bridge port's: isolated ports cannot reach each other.
    pub isolated: Option<bool>,
}

impl Link {
    /// Whether it is of a kind, such as `bridge`.
    pub fn is(&self, kind: &str) -> bool {
        self.kind.as_deref() == Some(kind)
    }

    /// Decodes the payload of an RTM_NEWLINK or RTM_DELLINK. None for one that tells no name: every link has one.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let flags = read_u32(payload.get(8..)?)?;
        let mut link = Self {
            index: read_u32(payload.get(4..)?)?,
            up: flags & IFF_UP != 0,
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
            IFLA_ADDRESS => self.mac = Mac::read(value),
            IFLA_MTU => self.mtu = read_u32(value).unwrap_or_default(),
            IFLA_PROMISCUITY => self.promiscuity = read_u32(value).unwrap_or_default(),
            IFLA_ALLMULTI => self.allmulticity = read_u32(value),
            IFLA_TXQLEN => self.tx_queue_len = read_u32(value).unwrap_or_default(),
            IFLA_OPERSTATE => self.state = OperState::of(read_u8(value).unwrap_or_default()),
            IFLA_MASTER => self.master = read_u32(value),
            IFLA_LINK => self.peer = read_u32(value).filter(|index| *index != 0),
            IFLA_LINK_NETNSID => self.peer_netns_id = read_i32(value),
            IFLA_LINKINFO => self.take_info(Attributes::of(value)),
            _ => {}
        }
    }

    fn take_info(&mut self, info: Attributes<'_>) {
        self.kind = info.get(IFLA_INFO_KIND).and_then(read_str).map(str::to_owned);
        if let (true, Some(data)) = (self.is("bridge"), info.get(IFLA_INFO_DATA).map(Attributes::of)) {
            self.vlan_filtering = data.get(IFLA_BR_VLAN_FILTERING).and_then(read_u8).map(|on| on != 0);
            self.vlan_default_pvid = data.get(IFLA_BR_VLAN_DEFAULT_PVID).and_then(read_u16);
        }
        let master_kind = info.get(IFLA_INFO_SLAVE_KIND).and_then(read_str);
        if let (Some("bridge"), Some(port)) =
            (master_kind, info.get(IFLA_INFO_SLAVE_DATA).map(Attributes::of))
        {
            self.hairpin = port.get(IFLA_BRPORT_MODE).and_then(read_u8).map(|on| on != 0);
            self.isolated = port.get(IFLA_BRPORT_ISOLATED).and_then(read_u8).map(|on| on != 0);
        }
    }
}

/// Whether a link can carry packets (RFC 2863; Documentation/networking/operstates.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OperState {
    /// The driver does not tell; loopback never does.
    #[default]
    Unknown,
    /// It cannot.
    Down,
    /// What it is stacked on, or its peer, is down.
    LowerLayerDown,
    /// It waits for an event, such as an authentication.
    Dormant,
    /// It can.
    Up,
    /// Something else: absent, or being tested.
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
}

/// A veth pair to make: this end in the socket's namespace, the peer where it says.
#[derive(Clone, Copy, Debug)]
pub struct Veth<'a> {
    /// This end's name.
    pub name: &'a str,
    /// For both ends, in bytes. None: 1500.
    pub mtu: Option<u32>,
    /// The index of the bridge that this end becomes a port of.
    pub master: Option<u32>,
    /// The other end.
    pub peer: Peer<'a>,
}

/// The other end of a veth pair. It is made down: the kernel cannot make it up.
#[derive(Clone, Copy, Debug)]
pub struct Peer<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its hardware address. None: a random one.
    pub mac: Option<Mac>,
    /// Where it is made. None: beside this end.
    pub netns: Option<BorrowedFd<'a>>,
}

/// A bridge to make.
#[derive(Clone, Copy, Debug)]
pub struct Bridge<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its hardware address. A bridge without one takes the lowest of its ports', and changes with them.
    pub mac: Mac,
    /// Bytes. None: 1500, and later the lowest of its ports'.
    pub mtu: Option<u32>,
    /// Whether it looks at VLAN tags.
    pub vlan_filtering: bool,
}

/// What to change about a link. What is none stays.
#[derive(Clone, Copy, Debug)]
pub struct LinkChange<'a> {
    /// Administratively up or down.
    pub up: Option<bool>,
    /// Bytes.
    pub mtu: Option<u32>,
    /// The hardware address.
    pub mac: Option<Mac>,
    /// The bridge that it becomes a port of; 0 for none.
    pub master: Option<u32>,
    /// Take frames that are for others.
    pub promisc: Option<bool>,
    /// Take all multicast.
    pub allmulti: Option<bool>,
    /// Packets.
    pub tx_queue_len: Option<u32>,
    /// Another name. Before Linux 6.2 only a link that is down takes one.
    pub name: Option<&'a str>,
    /// A text for people.
    pub alias: Option<&'a str>,
}

impl LinkChange<'_> {
    /// Changes nothing.
    pub const NONE: Self = Self {
        up: None,
        mtu: None,
        mac: None,
        master: None,
        promisc: None,
        allmulti: None,
        tx_queue_len: None,
        name: None,
        alias: None,
    };

    fn flags(&self) -> (u32, u32) {
        let wanted = [(IFF_UP, self.up), (IFF_PROMISC, self.promisc), (IFF_ALLMULTI, self.allmulti)];
        wanted.into_iter().fold((0, 0), |(flags, mask), (flag, on)| match on {
            Some(true) => (flags | flag, mask | flag),
            Some(false) => (flags, mask | flag),
            None => (flags, mask),
        })
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
    /// The link of a name (or alternative name), if there is one.
    ///
    /// # Errors
    /// If the kernel refuses to tell.
    pub fn link(&self, name: &str) -> Result<Option<Link>> {
        let mut message = lookup(0);
        // An alternative name may be longer, and has an attribute of its own then.
        message.put_str(if name.len() <= NAME { IFLA_IFNAME } else { IFLA_ALT_IFNAME }, name);
        self.one_link(message, name)
    }

    /// The link of an index, if there is one.
    ///
    /// # Errors
    /// If the kernel refuses to tell.
    pub fn link_by_index(&self, index: u32) -> Result<Option<Link>> {
        let message = lookup(index);
        self.one_link(message, &format!("number {index}"))
    }

    fn one_link(&self, message: Message, subject: &str) -> Result<Option<Link>> {
        match self.socket.query(message, Link::parse).map_err(|r| r.during("look up link", subject)) {
            Ok(link) => Ok(Some(link)),
            Err(e) if e.is_missing() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// All links.
    ///
    /// # Errors
    /// If the kernel refuses to tell.
    pub fn links(&self) -> Result<Vec<Link>> {
        self.some_links(None)
    }

    /// The ports of a bridge.
    ///
    /// # Errors
    /// If the kernel refuses to tell.
    pub fn ports(&self, bridge: u32) -> Result<Vec<Link>> {
        self.some_links(Some(bridge))
    }

    fn some_links(&self, master: Option<u32>) -> Result<Vec<Link>> {
        let mut message = lookup(0);
        if let Some(index) = master {
            message.put_u32(IFLA_MASTER, index);
        }
        let links = self.socket.dump(message, |_, payload| Link::parse(payload));
        let links = links.map_err(|r| r.during("list", "links"))?;
        // The filter is a wish: older kernels ignore it.
        Ok(links.into_iter().filter(|l| master.is_none() || l.master == master).collect())
    }

    /// Makes a veth pair in one request, this end up, and returns this end. The peer is born where it belongs:
    /// to move it there later would take fifty times as long.
    ///
    /// # Errors
    /// If either name is taken, or the kernel refuses.
    pub fn create_veth(&self, veth: &Veth<'_>) -> Result<Link> {
        let mut message = creation(veth.name, IFF_UP, veth.mtu);
        if let Some(master) = veth.master {
            message.put_u32(IFLA_MASTER, master);
        }
        let Peer { name, mac, netns } = veth.peer;
        message.nest(IFLA_LINKINFO, |m| {
            m.put_str(IFLA_INFO_KIND, "veth");
            m.nest(IFLA_INFO_DATA, |m| {
                m.nest(VETH_INFO_PEER, |m| {
                    m.raw(&header(AF_UNSPEC, 0, 0, 0));
                    m.put_str(IFLA_IFNAME, name);
                    put_optional(m, IFLA_MTU, veth.mtu);
                    if let Some(mac) = mac {
                        m.put(IFLA_ADDRESS, &mac.bytes());
                    }
                    if let Some(fd) = netns {
                        m.put_u32(IFLA_NET_NS_FD, fd.as_raw_fd().cast_unsigned());
                    }
                });
            });
        });
        let made =
            self.create(message, "create veth", veth.name, &format!("{} with peer {name}", veth.name))?;
        // It becomes a port after the kernel has told of its making, yet within the request.
        Ok(Link { master: veth.master, ..made })
    }

    /// Makes a bridge, up, and returns it.
    ///
    /// # Errors
    /// If the name is taken, or the kernel refuses.
    pub fn create_bridge(&self, bridge: &Bridge<'_>) -> Result<Link> {
        let mut message = creation(bridge.name, IFF_UP, bridge.mtu);
        message.put(IFLA_ADDRESS, &bridge.mac.bytes());
        message.nest(IFLA_LINKINFO, |m| {
            m.put_str(IFLA_INFO_KIND, "bridge");
            if bridge.vlan_filtering {
                m.nest(IFLA_INFO_DATA, |m| m.put_u8(IFLA_BR_VLAN_FILTERING, 1));
            }
        });
        self.create(message, "create bridge", bridge.name, bridge.name)
    }

    fn create(&self, message: Message, operation: &'static str, name: &str, subject: &str) -> Result<Link> {
        let mut link = None;
        let outcome = self.socket.request(message, |_, payload| link = Link::parse(payload));
        outcome.map_err(|r| r.during(operation, subject))?;
        // Kernels before 6.2 do not honour NLM_F_ECHO for links.
        match link.map_or_else(|| self.link(name), |link| Ok(Some(link)))? {
            Some(link) => Ok(link),
            None => Err(error::Refusal::from(nix::errno::Errno::ENODEV).during(operation, subject)),
        }
    }

    /// Changes a link.
    ///
    /// # Errors
    /// If it is gone, or the kernel refuses.
    pub fn change_link(&self, link: &Link, change: &LinkChange<'_>) -> Result<()> {
        let (flags, mask) = change.flags();
        let mut message = Message::new(RTM_NEWLINK, 0, &header(AF_UNSPEC, link.index, flags, mask));
        put_optional(&mut message, IFLA_MTU, change.mtu);
        put_optional(&mut message, IFLA_MASTER, change.master);
        put_optional(&mut message, IFLA_TXQLEN, change.tx_queue_len);
        if let Some(mac) = change.mac {
            message.put(IFLA_ADDRESS, &mac.bytes());
        }
        if let Some(name) = change.name {
            message.put_str(IFLA_IFNAME, name);
        }
        if let Some(alias) = change.alias {
            message.put(IFLA_IFALIAS, alias.as_bytes());
        }
        self.socket.request(message, |_, _| {}).map_err(|r| r.during("change link", &link.name))
    }

    /// Sets a link up.
    ///
    /// # Errors
    /// If it is gone, or the kernel refuses.
    pub fn set_up(&self, link: &Link) -> Result<()> {
        self.change_link(link, &LinkChange { up: Some(true), ..LinkChange::NONE })
    }

    /// Deletes a link, and with it its peer. That it is gone already is fine.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn delete_link(&self, link: &Link) -> Result<()> {
        let message = Message::new(RTM_DELLINK, 0, &header(AF_UNSPEC, link.index, 0, 0));
        let outcome = self.socket.request(message, |_, _| {});
        error::missing_is_fine(outcome.map_err(|r| r.during("delete link", &link.name)))
    }

    /// Lets a bridge look at VLAN tags.
    ///
    /// # Errors
    /// If the kernel was built without (CONFIG_BRIDGE_VLAN_FILTERING), or refuses.
    pub fn enable_vlan_filtering(&self, bridge: &Link) -> Result<()> {
        let mut message = Message::new(RTM_NEWLINK, 0, &header(AF_UNSPEC, bridge.index, 0, 0));
        message.nest(IFLA_LINKINFO, |m| {
            m.put_str(IFLA_INFO_KIND, "bridge");
            m.nest(IFLA_INFO_DATA, |m| m.put_u8(IFLA_BR_VLAN_FILTERING, 1));
        });
        let outcome = self.socket.request(message, |_, _| {});
        outcome.map_err(|r| r.during("enable VLAN filtering of bridge", &bridge.name))
    }
}

/// Without the counters, which the kernel sums up over all CPUs.
fn lookup(index: u32) -> Message {
    let mut message = Message::new(RTM_GETLINK, 0, &header(AF_UNSPEC, index, 0, 0));
    message.put_u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
    message
}

fn creation(name: &str, flags: u32, mtu: Option<u32>) -> Message {
    let create = NLM_F_CREATE | NLM_F_EXCL | NLM_F_ECHO;
    let mut message = Message::new(RTM_NEWLINK, create, &header(AF_UNSPEC, 0, flags, flags));
    message.put_str(IFLA_IFNAME, name);
    put_optional(&mut message, IFLA_MTU, mtu);
    message
}

fn put_optional(message: &mut Message, kind: u16, value: Option<u32>) {
    if let Some(value) = value {
        message.put_u32(kind, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The port of a master of some kind, whose attributes 4 and 33 mean something else than a bridge's.
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
