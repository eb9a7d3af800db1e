//! The veth pair between host and container.

use std::os::fd::AsFd;

use cni::{Attachment, Code, Error, NetworkName, Result, Undo};
use netlink::{Link, LinkChange, LinkKind, Mac, NewLink, Peer};

use crate::Namespace;

/// What an alias of ours begins with.
const ALIAS: &str = "cni";

/// The longest alias, in bytes (IFALIASZ less its NUL).
const ALIAS_MAX: usize = 255;

/// What a plugin decides about its pair.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spec {
    /// For both ends, in bytes. None: 1500.
    pub mtu: Option<u32>,
    /// The container's end's hardware address. None: a random one.
    pub mac: Option<Mac>,
    /// The index of the bridge that the host's end becomes a port of.
    pub master: Option<u32>,
}

/// A pair.
#[derive(Clone, Debug)]
pub struct Veth {
    /// The end in the host, up.
    pub host: Link,
    /// The end in the container, down.
    pub container: Link,
}

/// Makes a pair, each end where it belongs.
///
/// The host's end is named after the attachment ([`host_name`]), so that DEL finds it when the container's namespace is
/// gone, and bears an alias that says whose it is, so that GC and people find it.
///
/// # Errors
/// Code 4 if the container has an interface of that name.
pub fn create(
    host: &Namespace,
    sandbox: &Namespace,
    network: &NetworkName,
    at: &Attachment,
    spec: Spec,
    undo: &mut Undo,
) -> Result<Veth> {
    let name = host_name(network, at);
    let pair = NewLink {
        mtu: spec.mtu,
        master: spec.master,
        group: Some(group(network)),
        up: true,
        peer: Some(Peer { name: &at.ifname, mac: spec.mac, netns: Some(sandbox.as_fd()) }),
        ..NewLink::new(&name, LinkKind::Veth)
    };
    let link = host.nl.create_link(&pair).map_err(|e| match e {
        e if e.is_exists() => taken(sandbox, at, &name),
        e if e.is_unanswered() => withdraw(host, &name, e.into()),
        e => e.into(),
    })?;
    let (nl, made) = (host.nl.clone(), link.clone());
    undo.push(move || nl.delete_link(&made));
    if let Some(alias) = alias(network, at) {
        let named = LinkChange { alias: Some(&alias), group: Some(0), ..LinkChange::NONE };
        host.nl.change_link(&link, &named)?;
    }
    Ok(Veth { host: link, container: sandbox.link(&at.ifname)? })
}

/// Deletes a pair that may have been made: the kernel's answer was lost. One with an alias is of an earlier ADD.
fn withdraw(host: &Namespace, name: &str, error: Error) -> Error {
    let made = host.nl.link(name).map(|link| link.filter(|link| link.alias.is_empty()));
    match made.and_then(|link| link.map_or(Ok(()), |link| host.nl.delete_link(&link))) {
        Ok(()) => error,
        Err(left) => error.detail(format!("roll back: {left}")),
    }
}

/// The group that a pair of a network is in from its making until it has its alias, which no link can be made with:
/// whoever is killed in between leaves one that GC finds. Those whose alias would be too long stay in it.
fn group(network: &NetworkName) -> u32 {
    (fnv1a([network.as_str()]) as u32) | 1
}

/// To be asked before the first effect of an ADD that makes an interface.
///
/// # Errors
/// Code 4 if the container has an interface of that name.
pub fn refuse_taken_name(sandbox: &Namespace, at: &Attachment) -> Result<()> {
    match sandbox.nl.link(&at.ifname)? {
        None => Ok(()),
        Some(_) => Err(Error::new(
            Code::InvalidEnvironment,
            format!("CNI_IFNAME {} is taken in {sandbox}", at.ifname),
        )
        .detail("an earlier ADD was not followed by its DEL, or another plugin made it")),
    }
}

/// Whose name is taken.
fn taken(sandbox: &Namespace, at: &Attachment, host_name: &str) -> Error {
    refuse_taken_name(sandbox, at).err().unwrap_or_else(|| {
        Error::new(Code::Internal, format!("link {host_name} exists in the host's namespace already"))
            .detail(format!("it is left of an earlier ADD of container {}; a DEL removes it", at.container))
    })
}

/// The name of an attachment's end in the host: `veth` and 44 bits of a hash.
pub fn host_name(network: &NetworkName, at: &Attachment) -> String {
    let hash = fnv1a([network.as_str(), at.container.as_str(), at.ifname.as_str()]);
    format!("veth{:011x}", hash & 0xfff_ffff_ffff)
}

/// FNV-1a of strings, each closed by a byte that no UTF-8 has. Stable for ever: names on running hosts depend on it.
pub fn fnv1a<'a>(parts: impl IntoIterator<Item = &'a str>) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let bytes = parts.into_iter().flat_map(|part| part.bytes().chain([0xff]));
    bytes.fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

/// None for names so long that the kernel would not take it.
fn alias(network: &NetworkName, at: &Attachment) -> Option<String> {
    Some(format!("{ALIAS} {network} {} {}", at.container, at.ifname)).filter(|alias| alias.len() <= ALIAS_MAX)
}

/// Whether a link is of an attachment of a network that is not among the valid ones.
pub fn is_stale(link: &Link, network: &NetworkName, valid: &[Attachment]) -> bool {
    match owner(link, network) {
        Some((container, ifname)) => {
            !valid.iter().any(|at| at.container.as_str() == container && at.ifname.as_str() == ifname)
        }
        None if !link.alias.is_empty() || link.group != group(network) => false,
        None => valid.iter().all(|at| host_name(network, at) != link.name),
    }
}

/// The attachment of a network that a link belongs to by its alias: container id and interface name.
pub fn owner<'a>(link: &'a Link, network: &NetworkName) -> Option<(&'a str, &'a str)> {
    let (container, ifname) = link
        .alias
        .strip_prefix(ALIAS)?
        .strip_prefix(' ')?
        .strip_prefix(network.as_str())?
        .strip_prefix(' ')?
        .split_once(' ')?;
    Some((container, ifname))
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

    #[test]
    fn a_host_name_fits_is_stable_and_tells_attachments_apart() {
        let [a, b] = ["net", "net2"].map(|n| NetworkName::parse(n).unwrap());
        let name = host_name(&a, &at("c", "eth0"));
        assert_eq!(name, "veth3a087267863");
        assert_eq!(name.len(), 15);
        for other in [
            host_name(&b, &at("c", "eth0")),
            host_name(&a, &at("c", "eth1")),
            host_name(&a, &at("ce", "th0")),
        ] {
            assert_ne!(name, other);
        }
    }

    #[test]
    fn an_alias_says_whose_a_link_is_and_only_to_its_network() {
        let [net, network] = ["net", "network"].map(|n| NetworkName::parse(n).unwrap());
        let link = Link { alias: alias(&net, &at("c", "eth0")).unwrap(), ..Link::default() };
        assert_eq!(owner(&link, &net), Some(("c", "eth0")));
        assert_eq!(owner(&link, &network), None);
        assert_eq!(owner(&Link { alias: "mine".into(), ..Link::default() }, &net), None);
    }
}
