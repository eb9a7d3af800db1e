//! Current state of a namespace in the kernel: links, addresses and routes. Read only.

use std::path::Path;

use cni::Result;
use netlink::tc::Qdisc;
use netlink::{Address, Link, LinkKind, Netlink, OperState, Route, RouteFilter, TunKind};
use netns::NetNs;
use nix::errno::Errno;

/// A snapshot of a namespace.
#[derive(Debug, Default)]
pub struct Live {
    pub links: Vec<Link>,
    pub addresses: Vec<Address>,
    pub routes: Vec<Route>,
    /// Queueing disciplines. Only of the host's links.
    pub qdiscs: Vec<Qdisc>,
}

impl Live {
    /// The namespace that cnitool itself runs in.
    ///
    /// # Errors
    /// If the kernel does not list the namespace's links, addresses, routes or queueing disciplines.
    pub fn host() -> Result<Self> {
        let netlink = Netlink::open()?;
        let qdiscs = match netlink.qdiscs(None) {
            // A kernel without traffic control has no queueing disciplines.
            Err(e) if e.errno() == Some(Errno::EOPNOTSUPP) => Vec::new(),
            qdiscs => qdiscs?,
        };
        Ok(Self { qdiscs, ..Self::read(&netlink)? })
    }

    /// The namespace at a path. None if no namespace exists at the path.
    ///
    /// # Errors
    /// If the namespace cannot be entered, or the kernel does not list its links, addresses or routes.
    pub fn at(path: &Path) -> Result<Option<Self>> {
        let Some(netns) = NetNs::open_if_present(path)? else { return Ok(None) };
        Self::read(&netns.enter(Netlink::open)??).map(Some)
    }

    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }

    /// The master of a link: a bridge, bond or VRF.
    pub fn master(&self, link: &Link) -> Option<&Link> {
        self.links.iter().find(|other| Some(other.index) == link.master)
    }

    /// The link on which a link of this namespace is stacked, such as a macvlan's master. It is in this namespace or
    /// in the host's.
    pub fn parent<'a>(&'a self, link: &Link, host: &'a Self) -> Option<&'a Link> {
        let stacked = ["macvlan", "macvtap", "ipvlan", "vlan"].iter().any(|kind| link.is(kind));
        let there = if link.peer_netns_id.is_some() { host } else { self };
        there.links.iter().find(|other| stacked && Some(other.index) == link.peer)
    }

    /// The addresses of a link.
    pub fn addresses_of(&self, link: &Link) -> impl Iterator<Item = &Address> {
        self.addresses.iter().filter(|address| address.index == link.index)
    }

    fn read(netlink: &Netlink) -> Result<Self> {
        Ok(Self {
            links: netlink.links()?,
            addresses: netlink.addresses(None)?,
            routes: netlink.routes(RouteFilter::default())?,
            qdiscs: Vec::new(),
        })
    }
}

/// The state of a link in one word.
pub fn state(link: &Link) -> &'static str {
    match (link.up, link.state) {
        (false, _) => "down",
        (true, OperState::Up | OperState::Unknown) => "up",
        (true, OperState::LowerLayerDown) => "peer down",
        (true, OperState::Down) => "no carrier",
        (true, OperState::Dormant) => "dormant",
        (true, OperState::Other) => "other",
    }
}

/// The kind as `ip link` prints it. With the mode of a macvlan or ipvlan, the id of a VLAN, the table of a VRF, and
/// `tun` or `tap`. None for a physical link and for loopback.
pub fn kind(link: &Link) -> Option<String> {
    match link.kind.as_ref()? {
        LinkKind::Ipvlan { mode, .. } => Some(format!("ipvlan {mode}")),
        kind @ LinkKind::Macvlan { mode, .. } => Some(format!("{} {mode}", kind.name())),
        LinkKind::Tun(TunKind { tap: true, .. }) => Some("tap".to_owned()),
        LinkKind::Vlan { id, .. } => Some(format!("vlan {id}")),
        LinkKind::Vrf { table } => Some(format!("vrf table {table}")),
        kind => Some(kind.name().to_owned()),
    }
}
