//! The parent of a container's interface: the `master` of a macvlan, an ipvlan, a VLAN.

use cni::{AddResult, AsWritten, Attachment, Error, Interface, LinkName, Result};
use netlink::{Link, LinkKind};
use serde::Deserialize;

use crate::Namespace;
use crate::verify::{differs, missing};

/// The keys as written.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawParent {
    master: String,
    link_in_container: bool,
}

/// Keys about the parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentConf {
    /// `master`, its name or an alternative name. `None`: the interface of an earlier plugin.
    pub name: Option<LinkName>,
    /// `linkInContainer`: whether it is in the container's namespace.
    pub in_container: bool,
    /// Whether the fallback is the link of the default route.
    pub or_default_route: bool,
}

impl ParentConf {
    /// Reads the keys from a plugin's configuration.
    ///
    /// # Errors
    /// Code 6 for a key of the wrong type, 7 for an invalid name.
    pub fn read(document: &AsWritten) -> Result<Self> {
        let raw: RawParent = document.decode()?;
        let name = Some(raw.master).filter(|name| !name.is_empty());
        let name = name.map(|name| LinkName::parse(&name).map_err(|e| Error::config(format!("master {e}"))));
        Ok(Self { name: name.transpose()?, in_container: raw.link_in_container, or_default_route: true })
    }

    /// Finds the parent for an ADD.
    ///
    /// # Errors
    /// Code 7 if it does not exist, or if the earlier plugins created several candidates.
    pub fn find(&self, host: &Namespace, sandbox: &Namespace, prev: &AddResult) -> Result<Parent> {
        let namespace = if self.in_container { sandbox } else { host };
        let link = match &self.name {
            Some(name) => named(namespace, name, "master")?,
            None => match self.of_chain(prev)? {
                Some(interface) => named(namespace, &interface.name, "prevResult: interface")?,
                None if !self.or_default_route => return Err(without_name(namespace)),
                None => namespace.default_uplink()?.ok_or_else(|| without_default_route(namespace))?,
            },
        };
        Ok(Parent { link, namespace: namespace.clone(), in_container: self.in_container })
    }

    /// Finds a parent on the host for STATUS, which has neither a container nor `prevResult`. `None` if the parent depends on these.
    ///
    /// # Errors
    /// Code 7 if the named link does not exist.
    pub fn find_on_host(&self, host: &Namespace) -> Result<Option<Parent>> {
        let Some(name) = self.name.as_ref().filter(|_| !self.in_container) else { return Ok(None) };
        let link = named(host, name, "master")?;
        Ok(Some(Parent { link, namespace: host.clone(), in_container: false }))
    }

    /// CHECK: verifies that the attachment's interface is on the configured parent, and returns the parent.
    ///
    /// # Errors
    /// If the interface or its parent is missing or different.
    pub fn verify(&self, host: &Namespace, sandbox: &Namespace, at: &Attachment) -> Result<Link> {
        let child = sandbox.link(&at.ifname).map_err(|e| {
            e.detail("the kernel deletes it together with its master; the master may have been deleted, or created again")
        })?;
        let namespace = if self.in_container { sandbox } else { host };
        let Some(name) = &self.name else {
            let parent = namespace.nl.link_named_by(child.peer)?;
            return parent.ok_or_else(|| missing("its master", &child));
        };
        let parent = named(namespace, name, "master")?;
        // The kernel puts a macvlan on a macvlan, and an ipvlan on an ipvlan, on the latter's parent.
        let is_sibling = matches!(
            (&parent.kind, &child.kind),
            (Some(LinkKind::Macvlan { .. }), Some(LinkKind::Macvlan { .. }))
                | (Some(LinkKind::Ipvlan { .. }), Some(LinkKind::Ipvlan { .. }))
        );
        let bearer = if is_sibling { parent.peer } else { Some(parent.index) };
        if child.peer == bearer { Ok(parent) } else { Err(differs(&child, "master", name, "another link")) }
    }

    /// The interface that earlier plugins of the chain created in the parent's namespace. Of several, the one with addresses.
    fn of_chain<'a>(&self, prev: &'a AddResult) -> Result<Option<&'a Interface>> {
        let made: Vec<&Interface> =
            prev.interfaces.iter().filter(|i| i.sandbox.is_some() == self.in_container).collect();
        let has_address =
            |interface: &&&Interface| prev.ips.iter().any(|ip| prev.interface_of(ip) == Some(**interface));
        let addressed: Vec<&Interface> = made.iter().filter(has_address).copied().collect();
        match (&made[..], &addressed[..]) {
            ([], _) => Ok(None),
            ([only], _) | (_, [only]) => Ok(Some(only)),
            _ => {
                let names: Vec<&str> = made.iter().map(|interface| interface.name.as_str()).collect();
                Err(Error::config(format!("master is missing, and prevResult lists {}", names.join(", ")))
                    .detail("set the key master to one of them"))
            }
        }
    }
}

/// A parent.
#[derive(Clone, Debug)]
pub struct Parent {
    /// The link.
    pub link: Link,
    /// Its namespace.
    pub namespace: Namespace,
    /// Whether that is the container's namespace.
    pub in_container: bool,
}

impl Parent {
    /// Warns if it is down. For kinds that work on a parent that is down.
    pub fn warn_if_down(&self) {
        if !self.link.up {
            cni::warn(&format!("master {} is down: no packet passes until it is set up", self.link.name));
        }
    }

    /// MTU of a child. `None`: the parent's.
    ///
    /// # Errors
    /// Code 7 if it is more than the parent's.
    pub fn mtu(&self, requested: Option<u32>) -> Result<Option<u32>> {
        let Link { name, mtu: most, .. } = &self.link;
        match requested {
            Some(mtu) if mtu > *most => {
                Err(Error::config(format!("mtu {mtu} is more than {most}, the MTU of its master {name}")))
            }
            requested => Ok(requested),
        }
    }
}

fn named(namespace: &Namespace, name: &str, key: &str) -> Result<Link> {
    namespace
        .nl
        .link(name)?
        .ok_or_else(|| Error::config(format!("{key} {name}: this link does not exist in {namespace}")))
}

fn without_name(namespace: &Namespace) -> Error {
    Error::config("master is missing").detail(format!(
        "set the key master, or have an earlier plugin of the chain make an interface in {namespace}"
    ))
}

fn without_default_route(namespace: &Namespace) -> Error {
    Error::config(format!("master is missing, and {namespace} has no default route"))
        .detail("set the key master; without it, the master is the link of the default route")
}
