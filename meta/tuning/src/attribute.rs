//! Attributes of an interface.

use std::fmt;

use cni::{AddResult, Code, Error, Interface, Result, ResultExt, Undo};
use iface::{Namespace, verify};
use netlink::uapi::{IFA_F_PERMANENT, RT_SCOPE_UNIVERSE};
use netlink::{Address, Link, LinkChange, Mac};

/// Smallest MTU of a link with IPv6 (RFC 8200, section 5).
const IPV6_MIN_MTU: u32 = 1280;

/// An attribute and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// The hardware address.
    Mac(Mac),
    /// MTU in bytes.
    Mtu(u32),
    /// Promiscuous mode.
    Promisc(bool),
    /// Reception of all multicast frames.
    Allmulti(bool),
    /// Length of the transmit queue in packets.
    TxQueueLength(u32),
}

impl Attribute {
    /// The current value of the same attribute of a link.
    pub fn of(self, link: &Link) -> Option<Self> {
        match self {
            Self::Mac(_) => link.mac.map(Self::Mac),
            Self::Mtu(_) => Some(Self::Mtu(link.mtu)),
            Self::Promisc(_) => Some(Self::Promisc(link.promisc)),
            Self::Allmulti(_) => Some(Self::Allmulti(link.allmulti)),
            Self::TxQueueLength(_) => Some(Self::TxQueueLength(link.tx_queue_len)),
        }
    }

    /// Sets the value.
    ///
    /// # Errors
    /// Code 7 if the link cannot have the value, 2 if it does not have the attribute; the message names key and value.
    pub fn set(self, sandbox: &Namespace, link: &Link, undo: &mut Undo) -> Result<()> {
        // Registered before the change, which may succeed although the kernel's answer is lost.
        if let Some(before) = self.of(link) {
            let (sandbox, link) = (sandbox.clone(), link.clone());
            undo.push(move || match before.restore(&sandbox, &link) {
                // The kernel refused the change, and then this one, too.
                Err(_) if before.is_of(&sandbox, &link) => Ok(()),
                restored => restored.context(|| format!("restore {before}")),
            });
        }
        self.restore(sandbox, link).map_err(|e| {
            let error = match self {
                _ if e.is_invalid() => Error::from(e).with_code(Code::InvalidConfig),
                _ if e.is_unsupported() => Error::from(e).with_code(Code::UnsupportedField),
                Self::Mac(mac) => iface::mac_taken(Some(mac), e),
                _ => e.into(),
            };
            error.context(self)
        })
    }

    /// Refuses an MTU with which the kernel deletes the link's IPv6 addresses and routes, which nothing restores. An address from a router's
    /// advertisement may come before or after ADD, and does not count.
    ///
    /// # Errors
    /// Code 7 if the link has an IPv6 address that is permanent or in `prev`, and not link-local. An address from DHCPv6 is not permanent.
    pub fn refuse_loss_of_ipv6(self, sandbox: &Namespace, link: &Link, prev: &AddResult) -> Result<()> {
        let Self::Mtu(..IPV6_MIN_MTU) = self else { return Ok(()) };
        let addresses = sandbox.nl.addresses(Some(link))?;
        let is_of_network = |one: &Address| prev.ips_of_name(&link.name).any(|ip| ip.address == one.net);
        let counts = |one: &&Address| {
            let stays = one.flags & IFA_F_PERMANENT != 0 || is_of_network(one);
            one.net.is_ipv6() && one.scope == RT_SCOPE_UNIVERSE && stays
        };
        addresses.iter().find(counts).map_or(Ok(()), |address| {
            Err(Error::config(format!(
                "{self}: {} has the address {}, and IPv6 needs an MTU of at least {IPV6_MIN_MTU}",
                link.name, address.net
            ))
            .detail("the kernel would delete the interface's IPv6 addresses and routes: set a larger MTU, or remove IPv6 from the network"))
        })
    }

    /// Restores the value.
    ///
    /// # Errors
    /// If the kernel refuses, or its answer is lost.
    pub fn restore(self, sandbox: &Namespace, link: &Link) -> netlink::Result<()> {
        sandbox.nl.change_link(link, &self.change())
    }

    /// Whether the kernel reports this value of a link.
    fn is_of(self, sandbox: &Namespace, link: &Link) -> bool {
        sandbox.nl.link(&link.name).is_ok_and(|now| now.and_then(|now| self.of(&now)) == Some(self))
    }

    fn change(self) -> LinkChange<'static> {
        let mut change = LinkChange::default();
        match self {
            Self::Mac(mac) => change.mac = Some(mac),
            Self::Mtu(bytes) => change.mtu = Some(bytes),
            Self::Promisc(on) => change.promisc = Some(on),
            Self::Allmulti(on) => change.allmulti = Some(on),
            Self::TxQueueLength(packets) => change.tx_queue_len = Some(packets),
        }
        change
    }

    /// Compares the value. A later plugin of the chain may have set another one, which the result lists.
    ///
    /// # Errors
    /// Code 999, with the current value.
    pub fn verify(self, link: &Link, listed: Option<&Interface>) -> Result<()> {
        let listed = listed.and_then(|listed| self.listed(listed));
        match self.of(link) {
            Some(found) if found == self || Some(found) == listed => Ok(()),
            found => {
                let found = found.map_or_else(|| "none".to_owned(), |found| found.value());
                Err(verify::differs(link, self.key(), &self.value(), &found))
            }
        }
    }

    /// The value of the same attribute in a result.
    fn listed(self, interface: &Interface) -> Option<Self> {
        match self {
            Self::Mac(_) => interface.mac.as_deref()?.parse().ok().map(Self::Mac),
            Self::Mtu(_) => interface.mtu.map(Self::Mtu),
            _ => None,
        }
    }

    /// The configuration's key.
    fn key(self) -> &'static str {
        match self {
            Self::Mac(_) => "mac",
            Self::Mtu(_) => "mtu",
            Self::Promisc(_) => "promisc",
            Self::Allmulti(_) => "allmulti",
            Self::TxQueueLength(_) => "txQLen",
        }
    }

    fn value(self) -> String {
        match self {
            Self::Mac(mac) => mac.to_string(),
            Self::Mtu(number) | Self::TxQueueLength(number) => number.to_string(),
            Self::Promisc(on) | Self::Allmulti(on) => on.to_string(),
        }
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.key(), self.value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_compared_with_each_attribute_and_the_key_is_named() {
        let mac = Mac::new([2, 0, 0, 0, 0, 7]);
        let link = Link { name: "eth0".into(), mac: Some(mac), mtu: 1400, promisc: true, ..Link::default() };
        for kept in [Attribute::Mac(mac), Attribute::Mtu(1400), Attribute::Promisc(true)] {
            kept.verify(&link, None).unwrap();
        }
        for (lost, text) in [
            (Attribute::Mac(Mac::new([2, 0, 0, 0, 0, 8])), "link eth0: mac is 02:00:00:00:00:07"),
            (Attribute::Mtu(1500), "link eth0: mtu is 1400, but was 1500 after ADD"),
            (Attribute::Allmulti(true), "link eth0: allmulti is false"),
            (Attribute::TxQueueLength(5), "link eth0: txQLen is 0"),
        ] {
            let error = lost.verify(&link, None).unwrap_err();
            assert!(error.msg().starts_with(text), "{error}");
        }
    }

    #[test]
    fn a_value_that_a_later_plugin_has_set_and_reported_is_accepted() {
        let link = Link { name: "eth0".into(), mtu: 1300, ..Link::default() };
        let listed = |mtu| Interface { mtu, ..Interface::default() };
        Attribute::Mtu(1400).verify(&link, Some(&listed(Some(1300)))).unwrap();
        for other in [None, Some(1400)] {
            Attribute::Mtu(1400).verify(&link, Some(&listed(other))).unwrap_err();
        }
    }

    #[test]
    fn a_link_without_an_ethernet_address_has_nothing_to_save() {
        let none = Link { name: "tun0".into(), ..Link::default() };
        let expected = Attribute::Mac(Mac::new([2, 0, 0, 0, 0, 7]));
        assert_eq!(expected.of(&none), None);
        assert!(expected.verify(&none, None).unwrap_err().msg().contains("mac is none"));
    }
}
