//! Ownership of links in the host's namespace.
//!
//! A link's name is derived from its attachment, so DEL finds it without the container's namespace. Its alias names the attachment, for GC
//! and administrators. If the configuration contains another name (`hostInterface`), DEL finds the link by that name, and its owner by the
//! alias.

use std::path::Path;

use cni::{Attachment, NetworkName, Resource, Scope};
use netlink::Link;

/// Prefix of Ferrule's aliases.
const ALIAS: &str = "cni";

/// A path of the host's namespace, for a plugin and for the tool that calls it.
const HOST: &str = "/proc/self/ns/net";

/// Maximum length of an alias in bytes (IFALIASZ without the NUL).
const ALIAS_MAX: usize = 255;

/// Name of an attachment's link: four letters and 44 bits of a hash.
pub fn name(letters: &str, network: &NetworkName, at: &Attachment) -> String {
    hashed_name(letters, [network.as_str(), at.container.as_str(), at.ifname.as_str()])
}

/// Name of four letters and 44 bits of a hash of strings.
pub fn hashed_name<'a>(letters: &str, parts: impl IntoIterator<Item = &'a str>) -> String {
    format!("{letters}{:011x}", fnv1a(parts) & 0xfff_ffff_ffff)
}

/// FNV-1a of strings, each ended by a byte that does not occur in UTF-8. Must never change: names on running hosts depend on it.
fn fnv1a<'a>(parts: impl IntoIterator<Item = &'a str>) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let bytes = parts.into_iter().flat_map(|part| part.bytes().chain([0xff]));
    bytes.fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

/// Alias of an attachment's link. `None` if it would be too long for the kernel.
pub fn alias(network: &NetworkName, at: &Attachment) -> Option<String> {
    Some(format!("{ALIAS} {network} {} {}", at.container, at.ifname)).filter(|alias| alias.len() <= ALIAS_MAX)
}

/// Group of a network's links until they have an alias, which the kernel does not accept at creation. GC therefore finds the link of a
/// plugin that was killed in between. A link whose alias would be too long stays in the group.
pub fn group(network: &NetworkName) -> u32 {
    (fnv1a([network.as_str()]) as u32) | 1
}

/// Container id and interface name in the alias of a link of this network. The plugin may append its own text to the latter.
pub fn owner<'a>(link: &'a Link, network: &NetworkName) -> Option<(&'a str, &'a str)> {
    let rest = link.alias.strip_prefix(ALIAS)?.strip_prefix(' ')?;
    let (container, rest) = rest.strip_prefix(network.as_str())?.strip_prefix(' ')?.split_once(' ')?;
    Some((container, rest.split_once(' ').map_or(rest, |(ifname, _)| ifname)))
}

/// Whether the alias of a link names this attachment.
pub fn is_owner(network: &NetworkName, at: &Attachment, link: &Link) -> bool {
    owner(link, network) == Some((at.container.as_str(), at.ifname.as_str()))
}

/// Whether the alias of a link names an attachment of any network.
pub fn is_owned(link: &Link) -> bool {
    link.alias.strip_prefix(ALIAS).is_some_and(|rest| rest.starts_with(' '))
}

/// Whether the alias of a link names another attachment. DEL leaves such a link: the ADD of its attachment may have failed because
/// `CNI_IFNAME` existed, or a new container has a namespace at the path of the old one.
pub fn is_of_another(network: &NetworkName, at: &Attachment, link: &Link) -> bool {
    is_owned(link) && !is_owner(network, at, link)
}

/// Whether Ferrule has created a link for this network: it has the alias, or the network's group as long as it has none.
pub fn is_of(network: &NetworkName, link: &Link) -> bool {
    owner(link, network).is_some() || (link.alias.is_empty() && link.group == group(network))
}

/// Whether GC of a network deletes a link. `has_name` is whether the link has the name of an attachment's link: without an alias, nothing
/// else is known.
pub fn is_taken(
    link: &Link,
    network: &NetworkName,
    scope: &Scope,
    has_name: impl Fn(&Attachment) -> bool,
) -> bool {
    is_resource_taken(Resource::new("link", &*link.name), link, network, scope, has_name)
}

/// Like [`is_taken`], for a link that is the container's own interface, in the host's namespace. `cnitool gc` keeps it, unless a cache shows
/// that its attachment is stale: the program that uses it may run without any other sign of life.
pub fn is_own_interface_taken(
    link: &Link,
    network: &NetworkName,
    scope: &Scope,
    has_name: impl Fn(&Attachment) -> bool,
) -> bool {
    let resource = Resource::new("link", &*link.name).netns(Path::new(HOST));
    is_resource_taken(resource, link, network, scope, has_name)
}

fn is_resource_taken(
    resource: Resource,
    link: &Link,
    network: &NetworkName,
    scope: &Scope,
    has_name: impl Fn(&Attachment) -> bool,
) -> bool {
    match owner(link, network) {
        Some((container, ifname)) => scope.should_delete(resource.of(container, ifname)),
        None if !link.alias.is_empty() || link.group != group(network) => false,
        None => scope.should_delete_hashed(resource, has_name),
    }
}

#[cfg(test)]
mod tests {
    use cni::{ContainerId, IfName};

    use super::*;

    fn at(container: &str, ifname: &str) -> Attachment {
        Attachment {
            container: ContainerId::parse(container).unwrap(),
            ifname: IfName::parse(ifname).unwrap(),
        }
    }

    fn network(name: &str) -> NetworkName {
        NetworkName::parse(name).unwrap()
    }

    fn link(name: &str, alias: &str, group: u32) -> Link {
        Link { name: name.into(), alias: alias.into(), group, ..Link::default() }
    }

    #[test]
    fn a_name_fits_is_stable_and_differs_for_attachments() {
        let [a, b] = ["net", "net2"].map(network);
        let one = name("veth", &a, &at("c", "eth0"));
        assert_eq!(one, "veth3a087267863");
        assert_eq!(one.len(), 15);
        for (network, at) in [(&b, at("c", "eth0")), (&a, at("c", "eth1")), (&a, at("ce", "th0"))] {
            assert_ne!(name("veth", network, &at), one);
        }
    }

    /// Links of people are in group 0.
    #[test]
    fn a_networks_group_is_stable_and_never_the_default_group() {
        assert_eq!(["net", "pods"].map(|name| group(&network(name))), [0xa032_fe85, 0x2c85_58d7]);
        assert!((0..100).all(|n| group(&network(&format!("net{n}"))) % 2 == 1));
    }

    #[test]
    fn an_alias_names_the_attachment_to_its_own_network_only() {
        let [net, longer] = ["net", "network"].map(network);
        let ours = link("veth0", &alias(&net, &at("c", "eth0")).unwrap(), 0);
        assert_eq!(owner(&ours, &net), Some(("c", "eth0")));
        assert_eq!(owner(&ours, &longer), None);
        assert_eq!(owner(&link("veth0", "cni net c eth0 and more", 0), &net), Some(("c", "eth0")));
        assert!(is_owned(&ours));
        for of_people in ["mine", "cnitool", ""] {
            let theirs = link("veth0", of_people, 0);
            assert_eq!(owner(&theirs, &net), None);
            assert!(!is_owned(&theirs));
        }
        assert_eq!(alias(&net, &at(&"c".repeat(250), "eth0")), None);
    }

    #[test]
    fn a_link_is_of_its_network_from_the_start() {
        let net = NetworkName::parse("net").unwrap();
        for (alias, group, expected) in [
            ("", group(&net), true),
            ("cni net pod eth0", 0, true),
            ("", 0, false),
            ("cni other pod eth0", 0, false),
            ("of an administrator", group(&net), false),
        ] {
            assert_eq!(is_of(&net, &link("eth0", alias, group)), expected, "{alias:?} {group}");
        }
    }

    #[test]
    fn a_link_is_stale_by_its_alias_or_by_the_group_that_it_was_made_in() {
        let (net, kept) = (network("net"), at("kept", "eth0"));
        let scope = Scope::all_but([kept.clone()].into_iter().collect());
        let kept_name = name("veth", &net, &kept);
        let unfinished = group(&net);
        for (name, alias, group, expected) in [
            ("veth1", "cni net gone eth0", 0, true),
            ("veth1", "cni net kept eth1", 0, true),
            ("veth1", "cni net kept eth0", 0, false),
            ("veth1", "cni other gone eth0", 0, false),
            ("veth1", "", 0, false),
            ("veth1", "", unfinished, true),
            ("veth1", "mine", unfinished, false),
            (&kept_name, "", unfinished, false),
        ] {
            let link = link(name, alias, group);
            let is_taken = is_taken(&link, &net, &scope, |at| super::name("veth", &net, at) == link.name);
            assert_eq!(is_taken, expected, "{name} {alias:?} {group}");
        }
    }
}
