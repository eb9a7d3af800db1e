//! The lease record on disk.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use cni::Resource;
use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::key::{Family, Key};
use crate::parameters::{LeaseParameters, V4, V6, boot_id};

/// The version of the file format.
const VERSION: u32 = 2;

/// An attachment and its lease of one family.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// The version of the file format.
    v: u32,
    /// The boot id. The lease's times are meaningless after another boot. None: the daemon could not read the id.
    #[serde(skip_serializing_if = "Option::is_none")]
    boot: Option<String>,
    /// The attachment and its link.
    #[serde(flatten)]
    pub attachment: LeasedAttachment,
    /// The family, the client's configuration, and the lease.
    #[serde(flatten)]
    pub parameters: LeaseParameters,
}

/// An attachment and its link.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeasedAttachment {
    /// The network's name.
    pub network: String,
    /// The container's id.
    pub container_id: String,
    /// The interface's name.
    pub if_name: String,
    /// The container's namespace and the link.
    #[serde(rename = "place")]
    pub location: Location,
    /// The lease is being released. A daemon that finds this after a kill sends the release again, and never uses the
    /// lease.
    pub releasing: bool,
    /// The address was on the link at some time. Before that, the plugin is about to put it there.
    pub seen: bool,
    /// The lease's address as it is on the link. It differs from the new lease's address while the daemon replaces it.
    #[serde(with = "as_text")]
    pub on_link: Option<IpNetwork>,
    /// Another program has removed the address `on_link` from the link. The lease is renewed, and the link is not changed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub removed: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// Location of an interface. Namespace and index identify it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Location {
    /// The path of the container's namespace, on the host.
    pub netns: PathBuf,
    /// The namespace's device and inode numbers.
    pub netns_id: (u64, u64),
    /// The namespace's cookie, because the kernel reuses inode numbers. None: the kernel is older than 5.14.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns_cookie: Option<u64>,
    /// The link's index.
    pub index: u32,
    /// The link's last known hardware address.
    pub mac: [u8; 6],
}

impl Location {
    /// Whether both locations are the same interface.
    pub fn is_same_link(&self, other: &Self) -> bool {
        self.index == other.index && self.is_in(other.netns_id, other.netns_cookie)
    }

    /// Whether the location is in the namespace with these numbers.
    pub fn is_in(&self, netns_id: (u64, u64), cookie: Option<u64>) -> bool {
        let has_same_cookie = self.netns_cookie.zip(cookie).is_none_or(|(own, other)| own == other);
        self.netns_id == netns_id && has_same_cookie
    }
}

impl LeasedAttachment {
    /// An attachment without a lease.
    pub fn new(network: &str, container: &str, ifname: &str, location: Location) -> Self {
        Self {
            network: network.to_owned(),
            container_id: container.to_owned(),
            if_name: ifname.to_owned(),
            location,
            releasing: false,
            seen: false,
            on_link: None,
            removed: false,
        }
    }
}

impl Record {
    /// The record of an attachment.
    pub fn new(attachment: LeasedAttachment, parameters: LeaseParameters) -> Self {
        Self { v: VERSION, boot: boot_id(), attachment, parameters }
    }

    /// Whether the lease is of an earlier boot, so that its container has ended. False if a boot id is unknown.
    pub fn is_of_earlier_boot(&self) -> bool {
        self.is_of_boot_before(boot_id().as_deref())
    }

    fn is_of_boot_before(&self, current: Option<&str>) -> bool {
        self.boot.as_deref().zip(current).is_some_and(|(own, current)| own != current)
    }

    /// Parses a file. None: it is not a record of this version.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let record: Value = serde_json::from_slice(bytes).ok()?;
        if record["v"] != VERSION {
            return None;
        }
        let attachment = LeasedAttachment::deserialize(&record).ok()?;
        let parameters = match Family::deserialize(&record["family"]).ok()? {
            Family::V4 => LeaseParameters::V4(V4::deserialize(&record).ok()?),
            Family::V6 => LeaseParameters::V6(V6::deserialize(&record).ok()?),
        };
        Some(Self { boot: record["boot"].as_str().map(str::to_owned), ..Self::new(attachment, parameters) })
    }

    /// The record's key. None: a name is invalid.
    pub fn key(&self) -> Option<Key> {
        let family = match self.parameters {
            LeaseParameters::V4(_) => Family::V4,
            LeaseParameters::V6(_) => Family::V6,
        };
        let LeasedAttachment { network, container_id, if_name, .. } = &self.attachment;
        Key::parse(network, container_id, if_name, family).ok()
    }
}

/// A lease as listed by `cnitool gc`. Its name is the address, if it has one yet.
pub fn lease(container: &str, ifname: &str, netns: &Path, address: Option<IpAddr>) -> Resource {
    let name = address.map(|ip| ip.to_string()).unwrap_or_default();
    Resource { address, ..Resource::new("dhcp lease", name).of(container, ifname).netns(netns) }
}

/// `10.1.2.3/24`.
mod as_text {
    use ipnetwork::IpNetwork;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    pub fn serialize<S: Serializer>(net: &Option<IpNetwork>, serializer: S) -> Result<S::Ok, S::Error> {
        net.map(|net| net.to_string()).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<IpNetwork>, D::Error> {
        let text: Option<String> = Deserialize::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;

    /// Records as the daemon wrote them, with dnsmasq as the server.
    const WRITTEN: [&[u8]; 2] = [include_bytes!("record/v4.json"), include_bytes!("record/v6.json")];

    #[test]
    fn a_written_record_is_read_and_rewritten_without_loss() {
        let [v4, v6] = WRITTEN.map(|written| Record::read(written).unwrap());
        for (record, written, file, address) in [
            (&v4, WRITTEN[0], "b3d7aee926a5da5c32a323dadee576bb.json", "10.9.0.121/24"),
            (&v6, WRITTEN[1], "b3d7aee926a5da5c32a323dadee576bb.v6.json", "fd00::22/128"),
        ] {
            let (key, attachment) = (record.key().unwrap(), &record.attachment);
            assert_eq!((key.to_string(), key.file()), ("pod/net/eth0".to_owned(), file.to_owned()));
            assert_eq!(attachment.on_link.unwrap().to_string(), address);
            assert!(attachment.location.index == 2 && !attachment.releasing && !attachment.seen);
            let mut written: Value = serde_json::from_slice(written).unwrap();
            assert_eq!(json!(record), written);
            written["v"] = json!(3);
            assert!(Record::read(written.to_string().as_bytes()).is_none());
        }
        let (LeaseParameters::V4(v4), LeaseParameters::V6(v6)) = (v4.parameters, v6.parameters) else {
            panic!("another family")
        };
        assert_eq!(
            (v4.priority, v4.asks.client_id, v4.asks.required),
            (Some(7), b"\0pod/net/eth0".to_vec(), vec![6])
        );
        assert_eq!(v4.lease.unwrap().options.get(6), Some(&[10, 9, 0, 53][..]));
        assert_eq!((v6.identity.iaid, v6.lease.unwrap().server.len()), (1, 14));
    }

    /// The socket's directory may be on a disk.
    #[test]
    fn a_record_is_of_an_earlier_boot_if_it_has_another_boot_id() {
        let written: Value = serde_json::from_slice(WRITTEN[0]).unwrap();
        let with = |boot: Value| {
            let mut record = written.clone();
            record["boot"] = boot;
            Record::read(record.to_string().as_bytes()).unwrap()
        };
        let another = json!("11111111-2222-4333-8444-555555555555");
        assert!(with(another.clone()).is_of_earlier_boot());
        assert!(!with(json!(boot_id())).is_of_earlier_boot());
        // The id cannot be read now, or could not be read when the record was written.
        assert!(!with(another.clone()).is_of_boot_before(None));
        let without = Record::read(WRITTEN[0]).unwrap();
        assert!(!without.is_of_earlier_boot() && !without.is_of_boot_before(None));
        assert_eq!(json!(Record::new(without.attachment, without.parameters))["boot"], json!(boot_id()));
        assert_eq!(json!(with(another.clone()))["boot"], another);
    }

    /// The kernel reuses inode numbers.
    #[test]
    fn a_namespace_with_another_cookie_is_another_namespace() {
        let without = Record::read(WRITTEN[0]).unwrap().attachment.location;
        let [one, other] = [1, 2].map(|cookie| Location { netns_cookie: Some(cookie), ..without.clone() });
        assert!(one.is_same_link(&one) && !one.is_same_link(&other));
        assert!(one.is_same_link(&without) && without.is_same_link(&one));
    }
}
