//! The owner of rules: one interface of one container on one network.

use std::fmt;

use cni::{Attachment, NetworkName, Resource, Scope};
use sha2::{Digest, Sha512};

/// Maximum length of a part of a label before it is shortened, in bytes. The ids of nerdctl are `default-` and 64 digits. A label, after the name
/// of a kind of rules, has to fit into the 127 bytes of a comment in nft.
const NETWORK_MAX: usize = 27;
const CONTAINER_MAX: usize = 72;
const IFNAME_MAX: usize = 15;

/// The digits of a digest: valid in a name, a rule and a comment.
const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";

/// The owner of rules: (network, container, interface). It is enough to find all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    network: String,
    container: String,
    ifname: String,
}

impl Owner {
    /// The owner of an attachment's rules.
    pub fn new(network: &NetworkName, at: &Attachment) -> Self {
        Self {
            network: network.to_string(),
            container: at.container.to_string(),
            ifname: at.ifname.to_string(),
        }
    }

    /// The owner with this label. None: the text is another program's, or the label contains a shortened name.
    pub(crate) fn of_label(label: &str) -> Option<Self> {
        let names: Vec<String> = label.split('/').map(str::to_owned).collect();
        let [network, container, ifname] = names.try_into().ok()?;
        let owner = Self { network, container, ifname };
        (owner.label() == label && !label.contains('~')).then_some(owner)
    }

    /// The owner with this label on a network, whose name may be shortened in the label.
    pub(crate) fn on_network(network: &NetworkName, label: &str) -> Option<Self> {
        let (container, ifname) = label.strip_prefix(&network_prefix(network))?.split_once('/')?;
        let [network, container, ifname] = [network, container, ifname].map(str::to_owned);
        let owner = Self { network, container, ifname };
        (owner.label() == label).then_some(owner)
    }

    pub(crate) fn network(&self) -> &str {
        &self.network
    }

    pub(crate) fn container(&self) -> &str {
        &self.container
    }

    pub(crate) fn ifname(&self) -> &str {
        &self.ifname
    }

    /// `network/container/interface`: the comment of everything that the owner has.
    pub fn label(&self) -> String {
        format!(
            "{}{}/{}",
            network_prefix(&self.network),
            self.container_label(),
            shown(&self.ifname, IFNAME_MAX)
        )
    }

    /// The container in the label.
    pub(crate) fn container_label(&self) -> String {
        shown(&self.container, CONTAINER_MAX)
    }

    /// A name of 15 letters and digits for the owner and a purpose.
    pub(crate) fn digest(&self, purpose: &str) -> String {
        digest(&[purpose, &self.network, &self.container, &self.ifname])
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.network, self.container, self.ifname)
    }
}

/// Prefix of the labels of all owners on a network.
pub fn network_prefix(network: &str) -> String {
    shown(network, NETWORK_MAX) + "/"
}

/// The network in a label. It is shortened like the rest of the label if it is long or has special characters, so two
/// networks have different texts.
pub(crate) fn network_of(label: &str) -> Option<&str> {
    label.split('/').next()
}

/// Whether two labels are of one container. Its other attachment keeps a host port that a later one also maps: that one's
/// network may be internal, without a way back to clients.
pub(crate) fn are_of_one_container(one: &str, other: &str) -> bool {
    let container = |label: &str| label.split('/').nth(1).map(str::to_owned);
    one != other && container(one).is_some() && container(one) == container(other)
}

/// Whether GC of a network removes something with this label.
pub fn should_delete(scope: &Scope, network: &NetworkName, kind: &str, label: &str) -> bool {
    let Some(rest) = label.strip_prefix(&network_prefix(network)) else { return false };
    match rest.split_once('/').filter(|_| !rest.contains('~')) {
        Some((container, ifname)) => scope.should_delete(Resource::new(kind, "").of(container, ifname)),
        // The label contains a shortened name.
        None => scope
            .should_delete_hashed(Resource::new(kind, label), |at| Owner::new(network, at).label() == label),
    }
}

/// A text unchanged, or shortened if it is too long or has characters that tools might misinterpret.
fn shown(text: &str, max: usize) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '@' | '+');
    if text.len() <= max && text.chars().all(plain) {
        return text.to_owned();
    }
    // No name in the protocol contains "~", so a shortened text differs from all unchanged ones.
    let head: String = text.chars().filter(|&c| plain(c)).take(max.saturating_sub(16)).collect();
    let mut digest = digest(&[text]);
    digest.truncate(max.saturating_sub(head.len() + 1));
    format!("{head}~{digest}")
}

/// 75 bits of a SHA-512 of texts, none of which contains a NUL.
pub(crate) fn digest(texts: &[&str]) -> String {
    let hash = Sha512::digest(texts.join("\0"));
    hash.iter().take(15).map(|byte| char::from(DIGITS[usize::from(byte % 32)])).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use cni::{ContainerId, IfName};

    use super::*;
    use crate::Kind;

    pub(crate) fn owner(network: &str, container: &str, ifname: &str) -> Owner {
        let at = Attachment {
            container: ContainerId::parse(container).unwrap(),
            ifname: IfName::parse(ifname).unwrap(),
        };
        Owner::new(&NetworkName::parse(network).unwrap(), &at)
    }

    #[test]
    fn a_label_names_the_owner_in_words() {
        assert_eq!(owner("cbr0", "c1", "eth0").label(), "cbr0/c1/eth0");
        let kubernetes = owner("k8s-pod-network", &"f".repeat(64), "eth0");
        assert_eq!(kubernetes.label(), format!("k8s-pod-network/{}/eth0", "f".repeat(64)));
        let nerdctls = format!("default-{}", "f".repeat(64));
        assert_eq!(owner("bridge", &nerdctls, "eth0").label(), format!("bridge/{nerdctls}/eth0"));
    }

    #[test]
    fn a_label_is_short_and_safe_for_any_names() {
        let long = owner(&"n".repeat(255), &"c".repeat(255), "a\"b;c{}$'`é");
        for kind in Kind::ALL {
            let title = format!("{kind} {}", long.label());
            assert!(title.len() <= 127, "{title}");
        }
        assert!(!long.label().contains(['"', ';', '{', '$', '\'']));
        let other = owner(&"n".repeat(255), &format!("{}d", "c".repeat(254)), "a\"b;c{}$'`é");
        assert_ne!(long.label(), other.label());
        assert!(long.label().starts_with(&network_prefix(&"n".repeat(255))));
    }

    #[test]
    fn the_owner_of_a_label_is_known_unless_its_container_is_shortened() {
        for network in ["net".to_owned(), "n".repeat(255)] {
            let name = NetworkName::parse(&network).unwrap();
            let owner = owner(&network, "c1", "eth0");
            assert_eq!(Owner::on_network(&name, &owner.label()), Some(owner));
            let long = self::owner(&network, &"c".repeat(255), "eth0");
            assert_eq!(Owner::on_network(&name, &long.label()), None);
            assert_eq!(Owner::on_network(&name, "other/c1/eth0"), None);
        }
    }

    #[test]
    fn attachments_of_one_container_are_recognized_by_their_labels() {
        let long = "c".repeat(255);
        let label = |network: &str, container: &str, ifname: &str| owner(network, container, ifname).label();
        assert!(are_of_one_container(&label("a", "c1", "eth0"), &label("b", "c1", "eth1")));
        assert!(are_of_one_container(&label("a", &long, "eth0"), &label("b", &long, "eth0")));
        assert!(!are_of_one_container(&label("a", "c1", "eth0"), &label("a", "c1", "eth0")));
        assert!(!are_of_one_container(&label("a", "c1", "eth0"), &label("a", "c2", "eth0")));
        assert!(!are_of_one_container("", "shared"));
    }

    #[test]
    fn a_digest_differs_for_owners_and_purposes() {
        let one = owner("net", "c", "eth0");
        assert_eq!(one.digest("hostports").len(), 15);
        assert_ne!(one.digest("hostports"), one.digest("masquerade"));
        assert_ne!(one.digest("hostports"), owner("net", "c", "eth1").digest("hostports"));
        assert_ne!(owner("a", "bc", "e").digest("x"), owner("ab", "c", "e").digest("x"));
    }
}
