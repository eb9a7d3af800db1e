//! Name of the interface: `CNI_IFNAME`, or `CNI_IFNAME.ID` (`eth0.100`) if the master is `CNI_IFNAME`.

use cni::{Add, AddResult, Attachment, Check, Code, Del, Error, IfName, Plugin, Result};
use iface::ownership;
use iface::parent::Parent;
use netlink::{Link, LinkKind};

use crate::Vlan;
use crate::conf::Conf;

/// The ADD of an interface `CNI_IFNAME.ID`. `None` if the name is `CNI_IFNAME`.
///
/// # Errors
/// Code 4 if the name would be too long.
pub fn with_vlan_name(call: &Add<Conf>, parent: &Parent) -> Result<Option<Add<Conf>>> {
    if !parent.in_container || parent.link.name != call.attachment.ifname.as_str() {
        return Ok(None);
    }
    let attachment = renamed(&call.attachment, call.conf.id)?;
    Ok(Some(Add { attachment, ..call.clone() }))
}

/// The CHECK of an interface `CNI_IFNAME.ID`.
pub fn checked(call: &Check<Conf>) -> Option<Check<Conf>> {
    let (parent, id) = (&call.conf.stacked.parent, call.conf.id);
    let attachment = renamed(&call.attachment, id).ok()?;
    let made = |name: &IfName| call.prev_result.container_interface(name).is_some();
    let has_vlan_name = match &parent.name {
        Some(master) => {
            // The master may be given by an alternative name, which no result contains.
            let is_alternative = || call.prev_result.container_interface(master.as_str()).is_none();
            master.as_str() == call.attachment.ifname.as_str() || made(&attachment.ifname) && is_alternative()
        }
        None => made(&attachment.ifname),
    };
    (parent.in_container && has_vlan_name).then(|| Check { attachment, ..call.clone() })
}

/// The DEL of an interface `CNI_IFNAME.ID` that ADD may have created.
pub fn deleted(call: &Del) -> Option<Del> {
    let in_container: bool = call.conf.key(&["linkInContainer"])?;
    let attachment = renamed(&call.attachment, call.conf.key(&["vlanId"])?).ok()?;
    in_container.then(|| Del { attachment, ..call.clone() })
}

/// Whether ADD created a link `CNI_IFNAME.ID`, judged by its alias, or, after a kill, by its group: the container may have created a VLAN
/// of that name.
pub fn is_ours(link: &Link, call: &Del) -> bool {
    let alias = ownership::alias(&call.net.name, &call.attachment);
    let unfinished = link.alias.is_empty() && link.group == ownership::group(&call.net.name);
    link.is(Vlan::NAME) && (unfinished || alias.is_some_and(|alias| link.alias == alias))
}

/// Whether `CNI_IFNAME` may be the configured VLAN, on a master in the container. It may also be that master, itself a VLAN of an earlier
/// plugin, perhaps with the same id.
pub fn may_be_requested(link: &Link, call: &Del, renamed: &Del) -> bool {
    let master: Option<String> = call.conf.key(&["master"]);
    let is_listed = |prev: &AddResult| prev.container_interface(&renamed.attachment.ifname).is_some();
    let is_master = master.is_some_and(|master| master == call.attachment.ifname.as_str())
        || call.prev_result.as_ref().is_some_and(is_listed);
    let expected = call.conf.key::<u16>(&["vlanId"]);
    let is_like_it = matches!(link.kind, Some(LinkKind::Vlan { id, .. }) if expected.is_none_or(|expected| expected == id));
    is_like_it && !is_master && link.peer_netns_id.is_none()
}

/// Whether a link may have the [name of its VLAN](with_vlan_name) instead of `CNI_IFNAME`. GC keeps it: neither its name nor its alias
/// contains the `CNI_IFNAME` of its attachment, which may be valid.
pub fn may_be_renamed(link: &Link) -> bool {
    let Some(LinkKind::Vlan { id, .. }) = link.kind else { return false };
    let ending = format!(".{id}");
    link.name.ends_with(&ending) || link.alias.ends_with(&ending)
}

fn renamed(at: &Attachment, id: u16) -> Result<Attachment> {
    let name = format!("{}.{id}", at.ifname);
    let ifname = IfName::parse(&name).map_err(|e| {
        Error::new(
            Code::InvalidEnvironment,
            format!("CNI_IFNAME {}: {name}, the name of its VLAN, {e}", at.ifname),
        )
    })?;
    Ok(Attachment { ifname, ..at.clone() })
}

#[cfg(test)]
mod tests {
    use netlink::VlanProtocol;

    use super::*;

    #[test]
    fn a_link_with_its_id_at_the_end_of_name_or_alias_may_be_renamed() {
        let vlan = |name: &str, alias: &str| Link {
            name: name.to_owned(),
            alias: alias.to_owned(),
            kind: Some(LinkKind::Vlan { id: 100, protocol: VlanProtocol::Customer }),
            ..Link::default()
        };
        for (name, alias, expected) in [
            ("eth0.100", "cni net c eth0.100", true),
            ("eth0.100", "", true),
            ("uplink", "cni net c eth0.100", true),
            ("eth0", "cni net c eth0", false),
            ("eth0.10", "cni net c eth0.10", false),
        ] {
            assert_eq!(may_be_renamed(&vlan(name, alias)), expected, "{name} {alias:?}");
        }
    }
}
