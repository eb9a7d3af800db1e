//! A lease on disk: a file whose name is the address, and whose content is the owner.

use std::fmt;
use std::net::IpAddr;

use cni::Attachment;

/// The owner of a lease, as in the file: `CONTAINER CR LF INTERFACE`. Files from before 2018 contain only the
/// container. Such a lease may belong to any of its interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub container: String,
    pub ifname: Option<String>,
}

impl Owner {
    /// Parses a file's content. None for a file without a container that was torn by a crash: it is empty, or full of
    /// zeros after a power failure.
    pub fn parse(content: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(content);
        let blank = |c: char| c.is_whitespace() || c == '\0';
        let mut lines =
            text.trim_matches(blank).splitn(2, '\n').map(|line| line.trim_matches(blank).to_owned());
        let container = lines.next().filter(|name| !name.is_empty())?;
        Some(Self { container, ifname: lines.next() })
    }

    /// The file's content.
    pub fn content(&self) -> String {
        match &self.ifname {
            Some(ifname) => format!("{}\r\n{ifname}", self.container),
            None => self.container.clone(),
        }
    }

    /// The owners that may be in an attachment's lease files, the exact one first.
    pub fn all_of(at: &Attachment) -> [Self; 2] {
        let exact = Self::from(at);
        let old = Self { container: exact.container.clone(), ifname: None };
        [exact, old]
    }

    /// Of an attachment's leases, those with the interface. If there are none, those without an interface. Sorted by
    /// address.
    pub fn most_exact(mut found: Vec<Lease>) -> Vec<Lease> {
        found.sort_by_key(|lease| lease.ip);
        let (exact, old): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|lease| lease.owner.ifname.is_some());
        if exact.is_empty() { old } else { exact }
    }
}

impl From<&Attachment> for Owner {
    fn from(at: &Attachment) -> Self {
        Self { container: at.container.to_string(), ifname: Some(at.ifname.to_string()) }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "container {}", self.container)?;
        self.ifname.as_ref().map_or(Ok(()), |ifname| write!(f, ", interface {ifname}"))
    }
}

/// An address and its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub ip: IpAddr,
    pub owner: Owner,
}

/// The address that is a file's name. None for other files, also for an address that is not in canonical form (RFC
/// 5952): such a file does not reserve the address.
pub fn address(file_name: &str) -> Option<IpAddr> {
    let ip: IpAddr = file_name.parse().ok()?;
    (ip == ip.to_canonical() && ip.to_string() == file_name).then_some(ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(container: &str, ifname: Option<&str>) -> Option<Owner> {
        Some(Owner { container: container.into(), ifname: ifname.map(Into::into) })
    }

    #[test]
    fn both_formats_of_the_reference_are_read_also_with_an_editors_changes() {
        assert_eq!(Owner::parse(b"c1\r\neth0"), owner("c1", Some("eth0")));
        assert_eq!(Owner::parse(b"c1"), owner("c1", None));
        assert_eq!(Owner::parse(b" c1 \neth0\n"), owner("c1", Some("eth0")));
        assert_eq!(Owner::parse(b"c1\n"), owner("c1", None));
    }

    #[test]
    fn a_torn_file_has_no_owner() {
        for torn in [&b""[..], b"\r\n", b" \n", b"\0\0\0\0"] {
            assert_eq!(Owner::parse(torn), None, "{torn:?}");
        }
    }

    #[test]
    fn written_values_are_read_back() {
        for owner in [owner("c", Some("eth0")), owner("c", None)].into_iter().flatten() {
            assert_eq!(Owner::parse(owner.content().as_bytes()), Some(owner));
        }
    }

    #[test]
    fn only_the_canonical_form_of_an_address_names_a_lease() {
        for good in ["10.0.0.5", "fd00::5", "1:0:0:2::3", "::"] {
            assert!(address(good).is_some(), "{good}");
        }
        for bad in
            ["lock", "last_reserved_ip.0", "10.0.0.05", "FD00::5", "fd00:0::5", "::ffff:10.0.0.5", ".new"]
        {
            assert!(address(bad).is_none(), "{bad}");
        }
    }
}
