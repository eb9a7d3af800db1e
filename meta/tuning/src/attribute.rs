//! Attributes of an interface.

use std::fmt;

use cni::{Code, Error, Result, ResultExt, Undo};
use iface::{Namespace, verify};
use netlink::{Link, LinkChange, Mac};

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
            let code = match &e {
                e if e.is_invalid() => Code::InvalidConfig,
                e if e.is_unsupported() => Code::UnsupportedField,
                _ => Code::Internal,
            };
            Error::from(e).with_code(code).context(self)
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

    /// Compares the value.
    ///
    /// # Errors
    /// Code 999, with the current value.
    pub fn verify(self, link: &Link) -> Result<()> {
        match self.of(link) {
            Some(found) if found == self => Ok(()),
            found => {
                let found = found.map_or_else(|| "none".to_owned(), |found| found.value());
                Err(verify::differs(link, self.key(), &self.value(), &found))
            }
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
            kept.verify(&link).unwrap();
        }
        for (lost, text) in [
            (Attribute::Mac(Mac::new([2, 0, 0, 0, 0, 8])), "link eth0: mac is 02:00:00:00:00:07"),
            (Attribute::Mtu(1500), "link eth0: mtu is 1400, but ADD left it 1500"),
            (Attribute::Allmulti(true), "link eth0: allmulti is false"),
            (Attribute::TxQueueLength(5), "link eth0: txQLen is 0"),
        ] {
            let error = lost.verify(&link).unwrap_err();
            assert!(error.msg().starts_with(text), "{error}");
        }
    }

    #[test]
    fn a_link_without_an_ethernet_address_has_nothing_to_save() {
        let none = Link { name: "tun0".into(), ..Link::default() };
        let expected = Attribute::Mac(Mac::new([2, 0, 0, 0, 0, 7]));
        assert_eq!(expected.of(&none), None);
        assert!(expected.verify(&none).unwrap_err().msg().contains("mac is none"));
    }
}
