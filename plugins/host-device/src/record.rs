//! State of a device on the host, stored on disk between ADD and DEL.

use std::path::{Path, PathBuf};

use cni::backup::{self, Backup};
use cni::{Attachment, Gc, NetworkName, Resource, Result};
use iface::Namespace;
use netlink::{Link, Mac};
use serde::{Deserialize, Serialize};

use crate::network::Network;

/// Directory of the records. A reboot deletes it, and moves all devices back.
const DIRECTORY: &str = "/run/cni/host-device";

/// Kinds of physical devices. Others have no kind; all other kinds are virtual (`netns_refund` in the kernel).
const PHYSICAL: [&str; 3] = ["can", "dsa", "ipoib"];

/// A device before ADD.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Record {
    /// Name on the host.
    pub device: String,
    /// Alias on the host. Empty: none.
    pub alias: String,
    /// Whether it was up.
    pub up: bool,
    /// Name of its bridge or bond.
    pub master: Option<String>,
    /// Addresses and routes that were moved with it.
    pub had: Network,
    /// MAC on the host.
    pub mac: Option<String>,
    /// Whether its MAC was that of its lower device, such as a VLAN's card. It may follow that device's MAC.
    has_lower_mac: bool,
    /// MTU on the host. `None` for a port of a bond or team, which has the MAC and MTU of its master.
    mtu: Option<u32>,
    /// MAC from the manufacturer, which the container cannot change.
    permanent_mac: Option<String>,
    kind: Option<String>,
    /// Whether it has a MAC, and no other device has the same MAC, kind and bus address. Channels of a CAN card have no MAC, and ports of a
    /// switch chip (DSA) share all three.
    distinct: bool,
    /// Bus address of its card. Empty: none.
    pub bus_address: String,
    /// Of a veth: index of its other end on the host.
    pub peer: Option<u32>,
    /// Network of the attachment, for GC.
    network: String,
    /// Network namespace of the attachment.
    pub netns: PathBuf,
}

impl Record {
    /// The record of a device before ADD moves it. `records` are those of all attachments.
    ///
    /// # Errors
    /// If the kernel refuses to list the host's interfaces.
    pub fn new(
        host: &Namespace,
        device: &Link,
        records: &[Self],
        network: &NetworkName,
        netns: &Path,
    ) -> Result<Self> {
        // Debian's v1.1.1 leaves the name as alias.
        let alias = if device.alias == device.name { String::new() } else { device.alias.clone() };
        let master = host.nl.link_named_by(device.master)?;
        let lower_mac = lower_mac(host, device)?;
        let record = Self {
            device: device.name.clone(),
            alias,
            up: device.up,
            has_lower_mac: lower_mac.is_some() && device.mac == lower_mac,
            mtu: Some(device.mtu).filter(|_| !master.as_ref().is_some_and(gives_hardware)),
            master: master.map(|master| master.name),
            peer: device.peer.filter(|_| device.is("veth") && device.peer_netns_id.is_none()),
            network: network.as_str().to_owned(),
            netns: netns.to_owned(),
            ..Self::from_link(device)
        };
        let distinct = record.is_distinct(&host.nl.links()?, records);
        Ok(Self { distinct, ..record })
    }

    /// The record of a device that was moved without one: its alias is its name.
    pub fn from_link(link: &Link) -> Self {
        let device = if link.alias.is_empty() { &link.name } else { &link.alias };
        Self {
            device: device.clone(),
            mac: mac(link),
            permanent_mac: permanent_mac(link),
            kind: link.kind_name().map(str::to_owned),
            bus_address: link.bus_address.clone(),
            ..Self::default()
        }
    }

    /// Whether an interface is the device, under any name and alias. Tunnels have no identifying property.
    pub fn matches_link(&self, link: &Link) -> bool {
        self.matches(&Self::from_link(link))
    }

    fn matches(&self, other: &Self) -> bool {
        self.has(other.kind.as_deref(), &other.bus_address) && self.matching_macs(other).contains(&true)
    }

    /// Whether no other device of the host, or in a container, matches.
    fn is_distinct(&self, links: &[Link], records: &[Self]) -> bool {
        let is_another = |name: &str, other: &Self| name != self.device && self.matches(other);
        self.mac.is_some()
            && !links.iter().any(|link| is_another(&link.name, &Self::from_link(link)))
            && !records.iter().any(|record| is_another(&record.device, record))
    }

    /// Whether an interface of the host is the device, moved by the kernel from a destroyed namespace. The container may have changed MAC
    /// and alias. The kernel does not move virtual devices; a veth is identified by its other end.
    pub fn has_returned_as(&self, link: &Link) -> bool {
        let is_it = match self.peer {
            Some(_) => self.is_alike(link) && link.peer == self.peer && link.peer_netns_id.is_none(),
            None => !self.is_virtual() && self.distinct && self.matches_link(link),
        };
        is_it && !link.up && link.name != self.device
    }

    /// Whether an interface has the device's kind and bus address. A container cannot give them to an interface, but a card may have several
    /// interfaces.
    pub fn is_alike(&self, link: &Link) -> bool {
        self.has(link.kind_name(), &link.bus_address)
    }

    fn has(&self, kind: Option<&str>, bus_address: &str) -> bool {
        self.kind.as_deref() == kind && self.bus_address == bus_address
    }

    /// The device's permanent MAC, MAC and alias in a container, as far as an interface has them. The container can change the last two, and
    /// give them to an interface of its own.
    pub fn marks(&self, link: &Link) -> [bool; 3] {
        let [is_permanent, has_mac] = self.matching_macs(&Self::from_link(link));
        [is_permanent, has_mac, link.alias == self.device]
    }

    /// Whether an interface in a container may be the device. A MAC that other devices have does not identify it.
    pub fn is_marked(&self, link: &Link) -> bool {
        let [is_permanent, has_mac, has_alias] = self.marks(link);
        has_alias || self.distinct && (is_permanent || has_mac)
    }

    /// Whether permanent MAC and MAC are those of another device. With two permanent MACs, an equal MAC means nothing: ports of a bond have
    /// one.
    fn matching_macs(&self, other: &Self) -> [bool; 2] {
        let is_known = self.mac.is_some() || !self.bus_address.is_empty();
        let has_mac = is_known && self.mac == other.mac;
        match (&self.permanent_mac, &other.permanent_mac) {
            (Some(own), Some(others)) => [own == others, own == others && has_mac],
            _ => [false, has_mac],
        }
    }

    /// MAC and MTU to restore, as far as an interface has others. Those of a port of a bond or team are its master's.
    ///
    /// Instead of the MAC of a lower device, its present one is restored. The old one would be wrong after a fail-over of a bond, and a
    /// macvlan in passthru mode would set it on its lower device.
    pub fn hardware(&self, link: &Link, lower_mac: Option<Mac>) -> (Option<Mac>, Option<u32>) {
        let Some(mtu) = self.mtu else { return (None, None) };
        let recorded = self.mac.as_ref().and_then(|mac| mac.parse().ok());
        let mac = if self.has_lower_mac { lower_mac } else { recorded };
        let is_right = link.mac == recorded || link.mac == mac;
        (mac.filter(|_| !is_right), Some(mtu).filter(|mtu| link.mtu != *mtu))
    }

    /// Whether the kernel deletes the device with the container's namespace. It moves a physical device to the host, a moment later.
    pub fn is_virtual(&self) -> bool {
        self.kind.as_deref().is_some_and(|kind| !PHYSICAL.contains(&kind))
    }

    /// Writes the record on one line: with a line for each byte of a route, it would be three times as long.
    ///
    /// # Errors
    /// Code 5 if the file cannot be written, or if the device has too many routes for it.
    pub fn save(&self, file: &Backup) -> Result<()> {
        file.write(&serde_json::to_vec(self)?)
    }

    /// Whether it is the record of a device on the host. The container may have changed the MAC.
    fn is_about(&self, name: &str, device: &Link) -> bool {
        let on_its_bus = !self.bus_address.is_empty() && self.bus_address == device.bus_address;
        self.device == name && (on_its_bus || self.matches_link(device))
    }

    /// Whether it belongs to an attachment of this network. For another network's, ADD may have failed because the name existed.
    pub fn is_of(&self, network: &NetworkName) -> bool {
        self.network == network.as_str()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok().filter(|record: &Self| !record.device.is_empty())
    }
}

/// Whether a master gives its MAC and MTU to its ports. A bridge does not.
fn gives_hardware(master: &Link) -> bool {
    master.is("bond") || master.is("team")
}

/// MAC of the device on the host to which a VLAN, a macvlan or another device belongs. The other end of a veth is no such device.
///
/// # Errors
/// If the kernel refuses to list it.
pub fn lower_mac(host: &Namespace, link: &Link) -> Result<Option<Mac>> {
    let lower = link.peer.filter(|_| link.peer_netns_id.is_none() && !link.is("veth"));
    Ok(host.nl.link_named_by(lower)?.and_then(|lower| lower.mac))
}

fn mac(link: &Link) -> Option<String> {
    link.address().map(|address| address.to_string())
}

fn permanent_mac(link: &Link) -> Option<String> {
    link.permanent_address.as_ref().map(ToString::to_string)
}

/// The record file of an attachment.
pub fn file(network: &NetworkName, at: &Attachment) -> Backup {
    Backup::of_one(Path::new(DIRECTORY), network, at)
}

/// Reads the record of an attachment. The reference writes none.
///
/// # Errors
/// Code 5 if the file cannot be read.
pub fn load(file: &Backup) -> Result<Option<Record>> {
    Ok(file.read_in_directory()?.as_deref().and_then(Record::read))
}

/// The records of all attachments.
///
/// # Errors
/// Code 5 if a record cannot be read.
pub fn all() -> Result<Vec<Record>> {
    Ok(files()?.map(|(_, record)| record).collect())
}

/// The record of a device on the host whose container has exited, or whose DEL was interrupted. Its alias is then its name, unless the
/// container has changed it.
pub fn of_device<'a>(records: &'a [Record], device: &Link) -> Option<&'a Record> {
    let by_hardware = records.iter().find(|record| record.has_returned_as(device));
    by_hardware.or_else(|| records.iter().find(|record| record.is_about(&device.alias, device)))
}

/// Deletes records of a device's earlier attachments. Their DEL would otherwise remove the device from the new container.
///
/// # Errors
/// Code 5 if a record cannot be read or deleted.
pub fn remove_stale(device: &Link, but: &Backup) -> Result<()> {
    let mut earlier =
        files()?.filter(|(path, record)| *path != but.path() && record.is_about(&device.name, device));
    earlier.try_for_each(|(path, _)| backup::remove(&path))
}

fn files() -> Result<impl Iterator<Item = (PathBuf, Record)>> {
    let files = backup::all(Path::new(DIRECTORY))?.into_iter();
    Ok(files.filter_map(|(path, bytes)| Some((path, Record::read(&bytes)?))))
}

/// GC: passes records of the network's invalid attachments to `move_back`, and deletes those for which it returns true.
///
/// # Errors
/// Errors of `move_back`, and files that cannot be read or deleted.
pub fn collect(call: &Gc, mut move_back: impl FnMut(&Record) -> Result<bool>) -> Result<()> {
    let of_network = |bytes: &[u8]| Record::read(bytes).filter(|record| record.is_of(&call.net.name));
    let describe = |bytes: &[u8]| Some(Resource::new("device", "").netns(&of_network(bytes)?.netns));
    backup::collect(Path::new(DIRECTORY), call, describe, |file, bytes| match of_network(bytes) {
        Some(record) if move_back(&record)? => file.remove(),
        _ => Ok(()),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::slice;

    use netlink::LinkKind;

    use super::*;

    #[test]
    fn a_device_without_mac_and_bus_is_no_other_one_of_its_kind() {
        let tunnel = Link::default();
        assert!(!Record::from_link(&tunnel).matches_link(&tunnel));
        for known in [
            Link { mac: Some("02:00:00:00:00:07".parse::<Mac>().unwrap()), ..Link::default() },
            Link { bus_address: "0000:3b:02.5".to_owned(), ..Link::default() },
        ] {
            assert!(
                Record::from_link(&known).matches_link(&known)
                    && !Record::from_link(&known).matches_link(&tunnel)
            );
        }
    }

    #[test]
    fn a_card_that_the_kernel_has_moved_is_found_also_by_its_permanent_mac() {
        let mac = |text: &str| text.parse::<Mac>().unwrap();
        let own = mac("00:00:5e:00:53:07");
        let card = Link {
            name: "ens3".to_owned(),
            mac: Some(own),
            permanent_address: Some(own.into()),
            bus_address: "0000:3b:02.5".to_owned(),
            ..Link::default()
        };
        let record = Record { distinct: true, ..Record::from_link(&card) };
        let moved = Link { name: "eth0".to_owned(), mac: Some(mac("02:00:00:00:00:99")), ..card.clone() };
        assert!(record.has_returned_as(&moved));
        for other in [
            // Another interface of the card.
            Link { permanent_address: Some(mac("00:00:5e:00:53:08").into()), ..moved.clone() },
            // A port of its bond, before Linux 5.14.
            Link {
                permanent_address: Some(mac("00:00:5e:00:53:08").into()),
                mac: Some(own),
                ..moved.clone()
            },
            Link { bus_address: "0000:3b:02.6".to_owned(), ..moved.clone() },
            Link { kind: Some(LinkKind::Veth), ..moved.clone() },
            Link { up: true, ..moved },
            card,
        ] {
            assert!(!record.has_returned_as(&other), "{other:?}");
        }
    }

    #[test]
    fn a_channel_or_port_of_the_same_card_is_not_taken_for_the_device_in_a_container() {
        let mac = Some("00:00:5e:00:53:07".parse::<Mac>().unwrap());
        let of = |name: &str, kind: &str, mac: Option<Mac>| Link {
            name: name.to_owned(),
            kind: Some(LinkKind::Other(kind.to_owned())),
            mac,
            permanent_address: mac.map(Into::into),
            bus_address: "0000:3b:02.5".to_owned(),
            ..Link::default()
        };
        for (kind, mac) in [("can", None), ("dsa", mac)] {
            let [own, other] = ["port0", "port1"].map(|name| of(name, kind, mac));
            let record = Record::from_link(&own);
            for (links, records) in [
                (vec![own.clone(), other.clone()], vec![]),
                // The other one is also in a container.
                (vec![own.clone()], vec![record.clone(), Record::from_link(&other)]),
            ] {
                let record = Record { distinct: record.is_distinct(&links, &records), ..record.clone() };
                assert!(!record.has_returned_as(&other), "{kind}");
                assert!(of_device(slice::from_ref(&record), &other).is_none(), "{kind}");
                // Its alias is then its name.
                let moved = Link { name: "eth0".to_owned(), alias: "port0".to_owned(), ..own.clone() };
                assert_eq!(of_device(slice::from_ref(&record), &moved), Some(&record), "{kind}");
            }
        }
        let [own, other] = ["port0", "port1"].map(|name| of(name, "dsa", mac));
        let other =
            Link { permanent_address: Some("00:00:5e:00:53:08".parse::<Mac>().unwrap().into()), ..other };
        let record = Record::from_link(&own);
        assert!(record.is_distinct(&[own, other], slice::from_ref(&record)));
    }

    #[test]
    fn of_two_vlans_with_one_mac_none_is_taken_for_the_other() {
        let vlan = Link {
            name: "ens3.5".to_owned(),
            mac: Some("02:00:00:00:00:07".parse::<Mac>().unwrap()),
            kind: Some(LinkKind::Other("vlan".to_owned())),
            ..Link::default()
        };
        let other = Link { name: "ens3.6".to_owned(), ..vlan.clone() };
        assert!(!Record::from_link(&vlan).has_returned_as(&other));
    }

    #[test]
    fn a_port_of_a_bond_or_team_has_its_masters_mac_and_mtu() {
        let of = |kind: &str| Link { kind: Some(LinkKind::Other(kind.to_owned())), ..Link::default() };
        assert!(["bond", "team"].iter().all(|kind| gives_hardware(&of(kind))));
        assert!(!gives_hardware(&of("bridge")));
        let port = Record { mac: Some("02:00:00:00:00:07".to_owned()), ..Record::default() };
        assert_eq!(port.hardware(&of("veth"), None), (None, None));
    }

    #[test]
    fn a_device_with_its_lower_devices_mac_gets_the_present_one_unless_it_has_kept_its_own() {
        let [before, now, other] =
            ["07", "08", "09"].map(|end| format!("02:00:00:00:00:{end}").parse::<Mac>().unwrap());
        let record = Record { mac: Some(before.to_string()), mtu: Some(1500), ..Record::default() };
        let link = |mac| Link { mac: Some(mac), mtu: 1500, ..Link::default() };
        for (has_lower_mac, mac, expected) in [
            (true, before, None),
            (true, now, None),
            (true, other, Some(now)),
            (false, before, None),
            (false, now, Some(before)),
        ] {
            let record = Record { has_lower_mac, ..record.clone() };
            assert_eq!(record.hardware(&link(mac), Some(now)), (expected, None), "{has_lower_mac} {mac}");
        }
    }

    #[test]
    fn physical_devices_return_to_the_host() {
        let of = |kind: Option<&str>| {
            Record::from_link(&Link {
                kind: kind.map(|kind| LinkKind::Other(kind.to_owned())),
                ..Link::default()
            })
        };
        assert!([None, Some("can"), Some("dsa"), Some("ipoib")].iter().all(|kind| !of(*kind).is_virtual()));
        assert!([Some("veth"), Some("vcan")].iter().all(|kind| of(*kind).is_virtual()));
    }
}
