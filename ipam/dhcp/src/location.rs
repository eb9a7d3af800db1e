//! Location of an attachment: its namespace and its link. It is checked at each use.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use cni::{Error, Result};
use iface::Namespace;
use netlink::{Address, Link};
use netns::NetNs;
use nix::errno::Errno;
use system::host_path::below;

use crate::record::Location;

/// The interface of an attachment, with its open namespace.
#[derive(Debug)]
pub struct OpenInterface {
    pub namespace: Namespace,
    pub link: Link,
}

/// Why the interface cannot be used.
#[derive(Debug)]
pub enum InterfaceError {
    /// The interface or the namespace has been deleted. Another namespace may be at the path.
    Deleted(String),
    /// The path does not exist. Either the container has been deleted, or the daemon runs in a mount namespace without
    /// this path.
    PathMissing(String),
    /// The lease's address is not on the link.
    Unused(String),
    /// The kernel reported an error.
    Failed(Error),
}

impl fmt::Display for InterfaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deleted(what) | Self::PathMissing(what) | Self::Unused(what) => f.write_str(what),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl<E: Into<Error>> From<E> for InterfaceError {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Attempts to list addresses or routes while they change.
const TRIES: u32 = 3;

/// Opens a namespace for the daemon. A container's owner may add any number of addresses, and change them all the time, but the daemon has other
/// containers to serve: longer lists are errors, which concern only this container's lease.
///
/// # Errors
/// If no descriptor is free.
pub fn open(netns: NetNs) -> Result<Namespace> {
    let namespace = Namespace::of(netns)?;
    namespace.nl.limit_dumps(dhcp_client::MOST_ADDRESSES, TRIES);
    Ok(namespace)
}

/// Opens the interface at a location.
///
/// # Errors
/// If the path does not exist or is another namespace, if the link has been deleted, or if the kernel reports an error.
pub fn find(location: &Location, if_name: &str, host_prefix: &Path) -> Result<OpenInterface, InterfaceError> {
    let path = below(host_prefix, &location.netns);
    let deleted = |what: String| Err(InterfaceError::Deleted(what));
    let Some(netns) = NetNs::open_if_present(&path)? else {
        return Err(InterfaceError::PathMissing(format!("no network namespace is at {}", path.display())));
    };
    let namespace = open(netns)?;
    if !location.is_in(namespace.netns().identity()?, namespace.nl.netns_cookie()) {
        return deleted(format!("{} is now another network namespace", path.display()));
    }
    // The index identifies the interface. Its hardware address may change: by tuning, or with an ipvlan's master.
    match namespace.nl.link_by_index(location.index)? {
        Some(link) => Ok(OpenInterface { namespace, link }),
        None => deleted(format!("link {if_name} in {namespace} has been deleted")),
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
            netns_cookie: self.namespace.nl.netns_cookie(),
            index: self.link.index,
            mac: mac.bytes(),
        })
    }
}

/// Whether an operation failed because the process or the machine has no free descriptors or memory, so that it may
/// succeed later. The errors of netns and iface contain the kernel's text, but no error number, so the texts are compared:
/// the C library's text and that of [`Errno::desc`], which differ.
pub fn is_shortage(error: &Error) -> bool {
    let text = error.to_string();
    [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::ENOBUFS].into_iter().any(|errno| {
        let cause = Error::from(io::Error::from(errno));
        text.contains(errno.desc()) || text.contains(cause.msg())
    })
}

/// Whether a link has an address, with any prefix length.
pub fn has(addresses: &[Address], address: IpAddr) -> bool {
    addresses.iter().any(|one| one.net.ip() == address)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use netlink::RequestError;

    use super::*;

    #[test]
    fn a_shortage_is_recognized_in_the_errors_of_files_and_of_netlink() {
        for (errno, expected) in [
            (Errno::EMFILE, true),
            (Errno::ENFILE, true),
            (Errno::ENOMEM, true),
            (Errno::ENOBUFS, true),
            (Errno::EACCES, false),
            (Errno::ENODEV, false),
        ] {
            let netlink = RequestError::from(errno).during("list", "addresses");
            let file = Error::io("open a socket", &errno.into());
            for error in [netlink.into(), file] {
                assert_eq!(is_shortage(&error), expected, "{error}");
            }
        }
    }
}
