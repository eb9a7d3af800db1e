//! Changing and deleting links.

use std::os::fd::BorrowedFd;

use super::{Link, LinkKind, header, put_netns};
use crate::uapi::*;
use crate::wire::Message;
use crate::{Mac, Netlink, Result};

/// Changes of a link. `None`: unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkChange<'a> {
    /// Administratively up or down.
    pub up: Option<bool>,
    /// In bytes.
    pub mtu: Option<u32>,
    /// The hardware address.
    pub mac: Option<Mac>,
    /// The bridge or VRF of the link; 0 for none.
    pub master: Option<u32>,
    /// Whether it receives frames for other addresses.
    pub promisc: Option<bool>,
    /// Whether it receives all multicast frames.
    pub allmulti: Option<bool>,
    /// In packets.
    pub tx_queue_len: Option<u32>,
    /// New name. Before Linux 6.2 the link must be down.
    pub name: Option<&'a str>,
    /// Free text.
    pub alias: Option<&'a str>,
    /// Number of its group; 0 for the default group.
    pub group: Option<u32>,
    /// Moves it to another namespace, down, before the other changes. If these fail, it has moved nevertheless. If its name is taken there,
    /// the request fails unless it contains a new name.
    pub netns: Option<BorrowedFd<'a>>,
}

impl LinkChange<'_> {
    fn flags(&self) -> (u32, u32) {
        let expected = [(IFF_UP, self.up), (IFF_PROMISC, self.promisc), (IFF_ALLMULTI, self.allmulti)];
        expected.into_iter().fold((0, 0), |(flags, mask), (flag, on)| match on {
            Some(true) => (flags | flag, mask | flag),
            Some(false) => (flags, mask | flag),
            None => (flags, mask),
        })
    }
}

impl Netlink {
    /// Changes a link.
    ///
    /// # Errors
    /// If the link does not exist, or the kernel refuses.
    pub fn change_link(&self, link: &Link, change: &LinkChange<'_>) -> Result<()> {
        let (flags, mask) = change.flags();
        let mut message = Message::new(RTM_NEWLINK, 0, &header(AF_UNSPEC, link.index, flags, mask));
        message.put_optional(IFLA_MTU, change.mtu);
        message.put_optional(IFLA_MASTER, change.master);
        message.put_optional(IFLA_GROUP, change.group);
        message.put_optional(IFLA_TXQLEN, change.tx_queue_len);
        put_netns(&mut message, change.netns);
        if let Some(mac) = change.mac {
            message.put(IFLA_ADDRESS, &mac.bytes());
        }
        if let Some(name) = change.name {
            message.put_str(IFLA_IFNAME, name);
        }
        if let Some(alias) = change.alias {
            message.put(IFLA_IFALIAS, alias.as_bytes());
        }
        self.order(message, "change link", &link.name)
    }

    /// Sets a link up.
    ///
    /// # Errors
    /// If the link does not exist, or the kernel refuses.
    pub fn set_up(&self, link: &Link) -> Result<()> {
        self.change_link(link, &LinkChange { up: Some(true), ..LinkChange::default() })
    }

    /// Removes an alternative name ([`Link::alt_names`]). Succeeds if the link does not have it.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn remove_alt_name(&self, link: &Link, name: &str) -> Result<()> {
        let mut message = Message::new(RTM_DELLINKPROP, 0, &header(AF_UNSPEC, link.index, 0, 0));
        message.nest(IFLA_PROP_LIST, |m| m.put_str(IFLA_ALT_IFNAME, name));
        self.order_if_it_exists(
            message,
            "remove the alternative name",
            format_args!("{name} of {}", link.name),
        )
    }

    /// Checks whether this process may change links.
    ///
    /// # Errors
    /// If it may not.
    pub fn may_change_links(&self) -> Result<()> {
        // The kernel checks the capability before it looks for the link, which cannot exist.
        let message = Message::new(RTM_NEWLINK, 0, &header(AF_UNSPEC, i32::MAX.cast_unsigned(), 0, 0));
        self.order_if_it_exists(message, "change", "links")
    }

    /// Deletes a link, and its peer with it. Succeeds if it does not exist.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn delete_link(&self, link: &Link) -> Result<()> {
        let message = Message::new(RTM_DELLINK, 0, &header(AF_UNSPEC, link.index, 0, 0));
        self.order_if_it_exists(message, "delete link", &link.name)
    }

    /// Sets the sysctl net/ipv4/conf/LINK/route_localnet. Unlike a write of the file, this works with a read-only /proc/sys.
    ///
    /// # Errors
    /// If the link does not exist or has no IPv4, or the kernel refuses.
    pub fn set_route_localnet(&self, link: &Link, value: i32) -> Result<()> {
        let message = inet_conf(link, IPV4_DEVCONF_ROUTE_LOCALNET, value);
        self.order(message, "set route_localnet of link", &link.name)
    }

    /// Sets the sysctl net/ipv4/conf/LINK/forwarding to 1, also with a read-only /proc/sys.
    ///
    /// # Errors
    /// If the link does not exist or has no IPv4, or the kernel refuses.
    pub fn enable_ipv4_forwarding(&self, link: &Link) -> Result<()> {
        let message = inet_conf(link, IPV4_DEVCONF_FORWARDING, 1);
        self.order(message, "enable IPv4 forwarding of link", &link.name)
    }

    /// Turns on VLAN filtering of a bridge.
    ///
    /// # Errors
    /// If the kernel was built without CONFIG_BRIDGE_VLAN_FILTERING, or refuses.
    pub fn enable_vlan_filtering(&self, bridge: &Link) -> Result<()> {
        let mut message = Message::new(RTM_NEWLINK, 0, &header(AF_UNSPEC, bridge.index, 0, 0));
        message.nest(IFLA_LINKINFO, |m| {
            LinkKind::Bridge { vlan_filtering: true }.write(m, |_| {});
        });
        self.order(message, "enable VLAN filtering of bridge", &bridge.name)
    }
}

fn inet_conf(link: &Link, sysctl: u16, value: i32) -> Message {
    let mut message = Message::new(RTM_SETLINK, 0, &header(AF_UNSPEC, link.index, 0, 0));
    message.nest(IFLA_AF_SPEC, |m| {
        m.nest(AF_INET.into(), |m| {
            m.nest(IFLA_INET_CONF, |m| m.put(sysctl, &value.to_ne_bytes()));
        });
    });
    message
}
