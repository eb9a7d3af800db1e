//! The ifb for the container's egress traffic on the host.

use std::cell::Cell;
use std::rc::Rc;

use cni::{Attachment, Code, Error, Gc, NetworkName, Result, Undo};
use iface::{Namespace, creation, ownership};
use netlink::{Link, LinkChange, LinkKind, Mac, NewLink};
use sha2::{Digest, Sha512};

use crate::kernel::{self, Part};

/// Prefix of the name.
const LETTERS: &str = "bwp";

/// Below 1280 bytes, the kernel sets up no IPv6 (RFC 8200, section 5; `addrconf_notify()`). An ifb has no packets of its own, so it needs
/// no address, sysctls and multicast groups, which take the kernel longer than the link itself. Packets of any size pass.
const MTU: u32 = 1279;

/// Maximum length of a link's name in bytes.
const NAME: usize = 15;

/// End of the alias if ADD created clsact, which is then deleted with the ifb.
const MADE_CLSACT: &str = " clsact";

/// Maximum length of an alias in bytes.
const ALIAS: usize = 255;

/// Whether something may still lead to an ifb. Then the ifb has to stay: its alias tells the next DEL what it may remove.
pub type InUse = Rc<Cell<bool>>;

/// Owner of the ifb.
#[derive(Clone, Copy, Debug)]
pub struct Ifb<'a> {
    /// Network.
    pub network: &'a NetworkName,
    /// Attachment.
    pub at: &'a Attachment,
}

impl Ifb<'_> {
    /// Possible names: the reference's, which all interfaces of a container on a network share, and a separate one if that is in use.
    fn names(&self) -> [String; 2] {
        let (network, container) = (self.network.as_str(), self.at.container.as_str());
        [name(&[network, container]), name(&[network, container, &self.at.ifname])]
    }

    /// Alias that names the owner. `None` if it would be too long.
    fn alias(&self, with_clsact: bool) -> Option<String> {
        let mut alias = ownership::alias(self.network, self.at)?;
        if with_clsact && alias.len() + MADE_CLSACT.len() <= ALIAS {
            alias.push_str(MADE_CLSACT);
        }
        Some(alias)
    }

    /// Whether a link's alias names this attachment. `None` if it names no attachment.
    fn is_named_by(&self, link: &Link) -> Option<bool> {
        let own = (self.at.container.as_str(), &*self.at.ifname);
        ownership::is_owned(link).then(|| ownership::owner(link, self.network) == Some(own))
    }

    /// The ifbs that DEL deletes: the attachment's own, those of a killed ADD, and the reference's.
    pub fn all(&self, host: &Namespace) -> Result<Vec<Link>> {
        let mut found = Vec::new();
        for name in self.names() {
            let link = host.nl.link(&name)?.filter(|link| link.is("ifb"));
            found.extend(link.filter(|link| self.is_named_by(link) != Some(false)));
        }
        Ok(found)
    }

    /// The attachment's ifb.
    ///
    /// # Errors
    /// If it does not exist.
    pub fn find(&self, host: &Namespace) -> Result<Link> {
        let all = self.all(host)?;
        let own = all.iter().find(|link| self.is_named_by(link) == Some(true)).or(all.first());
        own.cloned().ok_or_else(|| {
            let text = format!(
                "link {}, which limits the traffic from {}, is missing",
                self.names()[0],
                self.at.ifname
            );
            Error::new(Code::Internal, text).detail("`cnitool repair --all` restores it")
        })
    }

    /// Creates the ifb, down, or finds that of an earlier ADD. While the second value is set, the roll-back keeps the ifb.
    pub fn make(&self, host: &Namespace, undo: &mut Undo) -> Result<(Link, InUse)> {
        let in_use = InUse::default();
        let names = self.names();
        // Without an alias, only the separate name identifies the owner.
        let usable = if self.alias(false).is_some() { &names[..] } else { &names[1..] };
        for name in usable {
            let new = NewLink {
                mtu: Some(MTU),
                // Derived from the name, so that it does not change if repair creates the ifb again: CHECK compares it with ADD's result.
                mac: Some(mac(name)),
                group: Some(ownership::group(self.network)),
                ..NewLink::new(name, LinkKind::Ifb)
            };
            match host.nl.create_link(&new) {
                Ok(link) => {
                    let (nl, made, led_to) = (host.nl.clone(), link.clone(), in_use.clone());
                    undo.push(move || if led_to.get() { Ok(()) } else { nl.delete_link(&made) });
                    return Ok((link, in_use));
                }
                Err(e) if e.is_exists() => {}
                Err(e) if e.is_unanswered() => {
                    return Err(creation::withdraw(
                        host,
                        std::slice::from_ref(name),
                        &LinkKind::Ifb,
                        e.into(),
                    ));
                }
                Err(e) => return Err(kernel::explained(Part::Ifb, e)),
            }
            if let Some(link) = host.nl.link(name)?.filter(|link| self.is_of_earlier_add(link, &names[1])) {
                return Ok((link, in_use));
            }
        }
        Err(Error::new(Code::Internal, format!("link {} already exists in the host's namespace", names[1]))
            .detail(format!("it does not belong to this attachment; run `ip link delete {}`", names[1])))
    }

    fn is_of_earlier_add(&self, link: &Link, own_name: &str) -> bool {
        let unfinished =
            link.alias.is_empty() && link.group == ownership::group(self.network) && link.name == own_name;
        link.is("ifb") && self.is_named_by(link).unwrap_or(unfinished)
    }

    /// Sets the ifb's alias, and sets it up.
    pub fn finish(&self, host: &Namespace, link: &Link, with_clsact: bool) -> Result<()> {
        let alias = self.alias(with_clsact);
        let group = alias.as_ref().map(|_| 0);
        let change = LinkChange { up: Some(true), group, alias: alias.as_deref(), ..LinkChange::default() };
        Ok(host.nl.change_link(link, &change)?)
    }
}

/// Whether ADD created the clsact of the filters that lead to a link.
pub fn made_clsact(link: &Link) -> bool {
    ownership::is_owned(link) && link.alias.ends_with(MADE_CLSACT)
}

/// Ifbs of a network whose attachments are not valid. The reference's name neither network nor interface, so they are not included.
pub fn stale(links: &[Link], call: &Gc) -> Vec<Link> {
    let network = &call.net.name;
    let is_taken = |link: &Link| {
        // A killed ADD set no alias, or it would be too long.
        let has_name = |at: &Attachment| Ifb { network, at }.names().contains(&link.name);
        ownership::is_taken(link, network, &call.scope, has_name)
    };
    let is_stale = |link: &&Link| link.is("ifb") && link.name.starts_with(LETTERS) && is_taken(link);
    links.iter().filter(is_stale).cloned().collect()
}

fn mac(name: &str) -> Mac {
    let hash = Sha512::digest(name);
    Mac::local([hash[0], hash[1], hash[2], hash[3], hash[4]])
}

fn name(parts: &[&str]) -> String {
    let hash = Sha512::digest(parts.concat());
    let mut name = LETTERS.to_owned();
    name.extend(hash.iter().map(|byte| format!("{byte:02x}")));
    name.truncate(NAME);
    name
}

#[cfg(test)]
mod tests {
    use cni::{ContainerId, IfName};

    use super::*;

    fn attachment(container: &str, ifname: &str) -> Attachment {
        Attachment {
            container: ContainerId::parse(container).unwrap(),
            ifname: IfName::parse(ifname).unwrap(),
        }
    }

    /// `printf netc1 | sha512sum`, and the name used by the reference's release 1.1.1.
    #[test]
    fn the_name_is_the_references() {
        let (network, at) = (NetworkName::parse("net").unwrap(), attachment("c1", "eth0"));
        let names = Ifb { network: &network, at: &at }.names();
        assert_eq!(names[0], "bwp623e1c388032");
        assert!(names[1] != names[0] && names[1].len() == 15);
    }

    #[test]
    fn an_alias_names_the_owner_and_whether_clsact_is_deleted_with_the_ifb() {
        let (network, at) = (NetworkName::parse("net").unwrap(), attachment("c1", "eth0"));
        let ifb = Ifb { network: &network, at: &at };
        let with = |alias: &str| Link { alias: alias.into(), ..Link::default() };
        for (clsact, alias) in [(false, "cni net c1 eth0"), (true, "cni net c1 eth0 clsact")] {
            assert_eq!(ifb.alias(clsact).as_deref(), Some(alias));
            assert_eq!((made_clsact(&with(alias)), ifb.is_named_by(&with(alias))), (clsact, Some(true)));
        }
        assert_eq!(ifb.is_named_by(&with("cni net c1 eth1 clsact")), Some(false));
        assert_eq!(ifb.is_named_by(&with("cni other c1 eth0")), Some(false));
        assert_eq!(ifb.is_named_by(&with("")), None);
        assert!(!made_clsact(&with("my clsact")));
        // The longest possible alias.
        let long = attachment(&"c".repeat(255 - "cni net  eth0".len()), "eth0");
        let ifb = Ifb { network: &network, at: &long };
        assert_eq!(
            (ifb.alias(true).map(|alias| alias.len()), ifb.alias(true)),
            (Some(255), ifb.alias(false))
        );
    }
}
