//! Location of an attachment: its namespace and its link. It is checked again for each use.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;

use cni::{Error, Result};
use iface::Namespace;
use netlink::{Address, Link};
use netns::NetNs;

use crate::args::below;
use crate::record::Location;

/// The interface of an attachment, and its open namespace.
#[derive(Debug)]
pub struct OpenInterface {
    pub namespace: Namespace,
    pub link: Link,
}

/// Why the interface is not available.
#[derive(Debug)]
pub enum NotFound {
    /// The interface has been deleted, or the namespace: another one is at its path.
    Gone(String),
    /// There is no namespace at the path. The container has been deleted, or the daemon runs in a mount namespace that does not have the path.
    Missing(String),
    /// The lease's address is not on the link: nobody uses it.
    Unused(String),
    /// It cannot be looked at now.
    Failed(Error),
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone(what) | Self::Missing(what) | Self::Unused(what) => f.write_str(what),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl<E: Into<Error>> From<E> for NotFound {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Opens the interface at a location.
///
/// # Errors
/// If no namespace or another one is at its path, if the link has been deleted, or if either cannot be looked at.
pub fn find(location: &Location, if_name: &str, host_prefix: &Path) -> Result<OpenInterface, NotFound> {
    let path = below(host_prefix, &location.netns);
    let gone = |what: String| Err(NotFound::Gone(what));
    let Some(netns) = NetNs::open_if_present(&path)? else {
        return Err(NotFound::Missing(format!("no network namespace is at {}", path.display())));
    };
    if netns.identity()? != location.netns_id {
        return gone(format!("{} is now another network namespace", path.display()));
    }
    let namespace = Namespace::of(netns)?;
    // The index identifies the interface. Its hardware address may change: by tuning, or with the master of an ipvlan.
    match namespace.nl.link_by_index(location.index)? {
        Some(link) => Ok(OpenInterface { namespace, link }),
        None => gone(format!("link {if_name} in {namespace} has been deleted")),
    }
}

impl OpenInterface {
    /// The location of this interface.
    ///
    /// # Errors
    /// If the link has no hardware address of six bytes.
    pub fn location(&self) -> Result<Location> {
        let mac = self.link.mac.ok_or_else(|| {
            Error::config(format!(
                "link {} in {} has no hardware address, so DHCP servers cannot answer it",
                self.link.name, self.namespace
            ))
        })?;
        let netns = self.namespace.netns();
        Ok(Location {
            netns: netns.path().to_owned(),
            netns_id: netns.identity()?,
            index: self.link.index,
            mac: mac.bytes(),
        })
    }
}

/// Whether a link has an address, whatever its prefix length is.
pub fn has(addresses: &[Address], address: IpAddr) -> bool {
    addresses.iter().any(|one| one.net.ip() == address)
}
