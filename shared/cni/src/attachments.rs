//! Attachments, and sets of them for GC.

use crate::{ContainerId, IfName};

/// An attachment: one interface of one container, unique within a network (SPEC.md, section 1).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attachment {
    /// Container id.
    pub container: ContainerId,
    /// Name of the interface in the container.
    pub ifname: IfName,
}

/// A sorted set of attachments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attachments(Vec<Attachment>);

impl Attachments {
    /// Whether it contains an interface of a container.
    pub fn contains(&self, container: &str, ifname: &str) -> bool {
        self.0.binary_search_by(|at| (&*at.container, &*at.ifname).cmp(&(container, ifname))).is_ok()
    }

    /// Whether it contains any interface of a container.
    pub fn has_container(&self, container: &str) -> bool {
        self.0.binary_search_by(|at| (*at.container).cmp(container)).is_ok()
    }

    /// Whether it contains an interface of a container. An empty name means any interface, as in a [`crate::Resource`].
    pub fn includes(&self, container: &str, ifname: &str) -> bool {
        if ifname.is_empty() { self.has_container(container) } else { self.contains(container, ifname) }
    }

    /// All attachments.
    pub fn iter(&self) -> std::slice::Iter<'_, Attachment> {
        self.0.iter()
    }
}

impl FromIterator<Attachment> for Attachments {
    fn from_iter<I: IntoIterator<Item = Attachment>>(all: I) -> Self {
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort_unstable();
        all.dedup();
        Self(all)
    }
}

impl<'a> IntoIterator for &'a Attachments {
    type Item = &'a Attachment;
    type IntoIter = std::slice::Iter<'a, Attachment>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment(container: &str, ifname: &str) -> Attachment {
        Attachment {
            container: ContainerId::parse(container).unwrap(),
            ifname: IfName::parse(ifname).unwrap(),
        }
    }

    #[test]
    fn an_attachment_is_found_by_both_of_its_names() {
        let all = [("b", "eth1"), ("a", "eth0"), ("b", "eth0"), ("ab", "eth0"), ("a", "eth0")];
        let all: Attachments = all.into_iter().map(|(c, i)| attachment(c, i)).collect();
        assert_eq!(all.iter().count(), 4);
        assert!(all.iter().all(|at| all.contains(&at.container, &at.ifname)));
        for (container, ifname) in [("a", "eth1"), ("c", "eth0"), ("", ""), ("b", "eth2")] {
            assert!(!all.contains(container, ifname), "{container} {ifname}");
        }
        assert!(["a", "ab", "b"].iter().all(|container| all.has_container(container)));
        assert!(!all.has_container("c") && !Attachments::default().has_container("a"));
        assert!(all.includes("a", "") && !all.includes("c", "") && !all.includes("", ""));
        assert!(all.iter().all(|at| all.includes(&at.container, &at.ifname)) && !all.includes("a", "other"));
    }
}
