//! Old values of an interface, stored on disk between ADD and DEL.
//!
//! The file is the reference's, with members that the reference ignores, so each suite restores the other's values.

use std::collections::BTreeMap;
use std::path::Path;

use cni::backup::{self, Backup};
use cni::{Attachment, Gc, NetworkName, Resource, Result, Undo};
use serde::{Deserialize, Serialize};

use crate::attribute::Attribute;
use crate::feature::Values;
use crate::sysctl::Forms;

/// The old values of the attributes and features that ADD changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Saved {
    #[serde(skip_serializing_if = "String::is_empty")]
    mac: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    promisc: Option<bool>,
    #[serde(skip_serializing_if = "is_zero")]
    mtu: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    allmulti: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tx_q_len: Option<u32>,
    /// Not in the reference, like the next members: offload features.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    features: Values,
    /// Values of sysctls that the kernel changed when it stored them, for CHECK.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    sysctls: Forms,
    /// The network, for GC. Empty in a file of the reference.
    #[serde(skip_serializing_if = "String::is_empty")]
    network: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    netns: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Saved {
    pub fn new(before: impl Iterator<Item = Attribute>, network: &NetworkName, netns: &Path) -> Self {
        let network = network.as_str().to_owned();
        let mut this = Self { network, netns: netns.display().to_string(), ..Self::default() };
        for attribute in before {
            match attribute {
                Attribute::Mac(mac) => this.mac = mac.to_string(),
                Attribute::Mtu(bytes) => this.mtu = bytes,
                Attribute::Promisc(on) => this.promisc = Some(on),
                Attribute::Allmulti(on) => this.allmulti = Some(on),
                Attribute::TxQueueLength(packets) => this.tx_q_len = Some(packets),
            }
        }
        this
    }

    pub fn with_features(self, features: Values) -> Self {
        Self { features, ..self }
    }

    pub fn with_sysctls(self, sysctls: Forms) -> Self {
        Self { sysctls, ..self }
    }

    /// The values of sysctls that the kernel changed.
    pub fn into_sysctls(self) -> Forms {
        self.sysctls
    }

    /// Whether it belongs to an attachment of another network.
    pub fn is_of_another(&self, network: &NetworkName) -> bool {
        !self.network.is_empty() && self.network != network.as_str()
    }

    /// The features to restore.
    pub fn features(&self) -> &Values {
        &self.features
    }

    /// The attributes to restore.
    pub fn attributes(&self) -> Vec<Attribute> {
        let mtu = Some(self.mtu).filter(|bytes| *bytes != 0).map(Attribute::Mtu);
        let mac = self.mac.parse().ok().map(Attribute::Mac);
        let promisc = self.promisc.map(Attribute::Promisc);
        let allmulti = self.allmulti.map(Attribute::Allmulti);
        let queue = self.tx_q_len.map(Attribute::TxQueueLength);
        [mtu, mac, promisc, allmulti, queue].into_iter().flatten().collect()
    }

    /// Merges the values of an earlier ADD of the attachment, which are older: another tuning of the same chain, or an ADD without a DEL.
    fn after(self, earlier: Self) -> Self {
        if (&earlier.network, &earlier.netns) != (&self.network, &self.netns) {
            return self;
        }
        Self {
            mac: if earlier.mac.is_empty() { self.mac } else { earlier.mac },
            promisc: earlier.promisc.or(self.promisc),
            mtu: if earlier.mtu == 0 { self.mtu } else { earlier.mtu },
            allmulti: earlier.allmulti.or(self.allmulti),
            tx_q_len: earlier.tx_q_len.or(self.tx_q_len),
            features: self.features.into_iter().chain(earlier.features).collect(),
            // Unlike the others, these are new values: the latest is valid.
            sysctls: earlier.sysctls.into_iter().chain(self.sysctls).collect(),
            ..self
        }
    }
}

/// The file of an attachment, for ADD. If it does not exist, it may be an earlier version's, whose name may also be another attachment's.
/// Only such a file names its namespace.
///
/// # Errors
/// Code 5 if a file cannot be read.
pub fn find_for_add(dir: &Path, network: &NetworkName, at: &Attachment, netns: &Path) -> Result<Backup> {
    find_or_earlier(dir, network, at, |saved| netns == Path::new(&saved.netns))
}

/// Like [`find_for_add`], for DEL and CHECK: it may also be the reference's and, without `netns`, one whose namespace no longer exists.
///
/// # Errors
/// Code 5 if a file cannot be read.
pub fn find(dir: &Path, network: &NetworkName, at: &Attachment, netns: Option<&Path>) -> Result<Backup> {
    find_or_earlier(dir, network, at, |saved| {
        let of = Path::new(&saved.netns);
        saved.netns.is_empty() || netns.map_or_else(|| !of.exists(), |netns| netns == of)
    })
}

fn find_or_earlier(
    dir: &Path,
    network: &NetworkName,
    at: &Attachment,
    is_own: impl Fn(&Saved) -> bool,
) -> Result<Backup> {
    let (own, earlier) = (Backup::new(dir, network, at), Backup::of_reference(dir, network, at));
    if own == earlier || own.read()?.is_some() {
        return Ok(own);
    }
    Ok(if load(&earlier)?.is_some_and(|saved| is_own(&saved)) { earlier } else { own })
}

/// Writes the old values.
///
/// # Errors
/// Code 5 if the file cannot be written.
pub fn save(backup: &Backup, saved: Saved, undo: &mut Undo) -> Result<()> {
    let before = backup.read()?;
    let saved = match before.as_deref().and_then(parse) {
        Some(earlier) => saved.after(earlier),
        None => saved,
    };
    let bytes = serde_json::to_vec_pretty(&saved)?;
    backup.write(&bytes)?;
    let this = backup.clone();
    undo.push_record(move || before.map_or_else(|| this.remove(), |bytes| this.write(&bytes)));
    Ok(())
}

/// Reads the old values. A truncated file has none: no attribute had been changed when the kill happened.
///
/// # Errors
/// Code 5 if the file cannot be read.
pub fn load(backup: &Backup) -> Result<Option<Saved>> {
    Ok(backup.read()?.as_deref().and_then(parse))
}

fn parse(bytes: &[u8]) -> Option<Saved> {
    serde_json::from_slice(bytes).ok()
}

/// Deletes the network's files whose attachments are not valid. Files without a network are left for DEL.
///
/// # Errors
/// Code 5 if a file cannot be deleted, or the directory not be read.
pub fn remove_stale(dir: &Path, call: &Gc) -> Result<()> {
    let describe = |bytes: &[u8]| {
        let saved = parse(bytes).filter(|saved| saved.network == call.net.name.as_str())?;
        Some(Resource::new("backup of settings", "").netns(Path::new(&saved.netns)))
    };
    backup::collect(dir, call, describe, |file, _| file.remove())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use cni::{ContainerId, IfName};
    use netlink::Mac;

    use super::*;

    fn at(container: &str) -> Attachment {
        Attachment {
            container: ContainerId::parse(container).unwrap(),
            ifname: IfName::parse("eth0").unwrap(),
        }
    }

    fn net() -> NetworkName {
        NetworkName::parse("net").unwrap()
    }

    fn saved(netns: &str, before: &[Attribute]) -> Saved {
        Saved::new(before.iter().copied(), &net(), Path::new(netns))
    }

    const BEFORE: [Attribute; 5] = [
        Attribute::Mtu(1500),
        Attribute::Mac(Mac::new([2, 0, 0, 0, 0, 7])),
        Attribute::Promisc(false),
        Attribute::Allmulti(true),
        Attribute::TxQueueLength(0),
    ];

    #[test]
    fn saved_values_are_restored() {
        let dir = tempfile::tempdir().unwrap();
        let backup = Backup::new(&dir.path().join("tuning"), &net(), &at("c"));
        assert_eq!(load(&backup).unwrap(), None);
        let mut undo = Undo::new();
        save(&backup, saved("/n", &BEFORE), &mut undo).unwrap();
        undo.commit();
        assert_eq!(load(&backup).unwrap().unwrap().attributes(), BEFORE);
        backup.remove().unwrap();
        backup.remove().unwrap();
        assert_eq!(fs::read_dir(dir.path().join("tuning")).unwrap().count(), 0);
    }

    #[test]
    fn files_of_the_reference_are_read_and_ours_have_the_same_members() {
        let theirs = br#"{
 "mac": "02:00:00:00:00:07",
 "promisc": false,
 "mtu": 1500,
 "allmulti": true,
 "txQLen": 0
}"#;
        assert_eq!(parse(theirs).unwrap().attributes(), BEFORE);
        let ours = serde_json::to_value(saved("/n", &BEFORE)).unwrap();
        let theirs: serde_json::Value = serde_json::from_slice(theirs).unwrap();
        for (member, value) in theirs.as_object().unwrap() {
            assert_eq!(&ours[member], value);
        }
    }

    #[test]
    fn the_first_of_two_in_a_chain_saw_the_values_to_restore() {
        let dir = tempfile::tempdir().unwrap();
        let backup = Backup::new(dir.path(), &net(), &at("c"));
        let mut first = Undo::new();
        save(&backup, saved("/n", &[Attribute::Mtu(1500)]), &mut first).unwrap();
        let mut second = Undo::new();
        let both = [Attribute::Mtu(1400), Attribute::Promisc(false)];
        save(&backup, saved("/n", &both), &mut second).unwrap();
        let load = || load(&backup).unwrap().map(|saved| saved.attributes());
        assert_eq!(load().unwrap(), [Attribute::Mtu(1500), Attribute::Promisc(false)]);
        assert!(second.unwind().is_empty());
        assert_eq!(load().unwrap(), [Attribute::Mtu(1500)]);
        assert!(first.unwind().is_empty());
        assert_eq!(load(), None);
    }

    #[test]
    fn the_first_of_two_in_a_chain_saw_the_features_to_restore() {
        let of = |features: &[(&str, bool)]| {
            let features = features.iter().map(|(name, on)| ((*name).to_owned(), *on)).collect();
            saved("/n", &[]).with_features(features)
        };
        let both = of(&[("rx-gro", false), ("tx-checksum-ip-generic", true)]).after(of(&[("rx-gro", true)]));
        assert_eq!(both, of(&[("rx-gro", true), ("tx-checksum-ip-generic", true)]));
        assert_eq!(parse(&serde_json::to_vec(&both).unwrap()), Some(both));
    }

    #[test]
    fn the_last_of_two_in_a_chain_set_the_sysctls() {
        let of = |written: &str, stored: &str| {
            let forms = [("core/a".to_owned(), (written.to_owned(), stored.to_owned()))];
            saved("/n", &[]).with_sysctls(forms.into())
        };
        let both = of("0x10", "16").after(of("01", "1"));
        assert_eq!(both, of("0x10", "16"));
        let kept = saved("/n", &[Attribute::Mtu(1400)]).after(both);
        assert_eq!(kept.attributes(), [Attribute::Mtu(1400)]);
        assert_eq!(kept.into_sysctls(), of("0x10", "16").into_sysctls());
    }

    #[test]
    fn rules_in_another_namespace_are_ignored() {
        let left = saved("/old", &[Attribute::Mtu(9000)]);
        let new = saved("/new", &[Attribute::Mtu(1500)]);
        assert_eq!(new.clone().after(left), new);
    }

    #[test]
    fn a_file_whose_name_two_attachments_have_is_its_owners() {
        let dir = tempfile::tempdir().unwrap();
        let of = |container: &str, ifname: &str| Attachment {
            container: ContainerId::parse(container).unwrap(),
            ifname: IfName::parse(ifname).unwrap(),
        };
        let (one, other) = (of("a", "b_c"), of("a_b", "c"));
        let found = |at: &Attachment, netns: &str| {
            let file = find(dir.path(), &net(), at, Some(Path::new(netns))).unwrap();
            load(&file).unwrap().map(|saved| saved.attributes())
        };
        let write = |file: &Backup, saved: &Saved| file.write(&serde_json::to_vec(saved).unwrap()).unwrap();
        // Of an earlier version, and of the reference.
        let former = Backup::of_reference(dir.path(), &net(), &one);
        write(&former, &saved("/one", &[Attribute::Mtu(1500)]));
        assert_eq!((found(&one, "/one"), found(&other, "/other")), (Some(vec![Attribute::Mtu(1500)]), None));
        // ADD after the earlier version's, and DEL after the namespace was deleted.
        let for_add = |at: &Attachment, netns: &str| {
            find_for_add(dir.path(), &net(), at, Path::new(netns)).unwrap() == former
        };
        assert_eq!((for_add(&one, "/one"), for_add(&other, "/other")), (true, false));
        let without_netns = || find(dir.path(), &net(), &one, None).unwrap() == former;
        assert!(without_netns());
        write(&former, &saved("/proc/self/ns/net", &[]));
        assert!(!without_netns());
        fs::write(former.path(), r#"{"mtu": 1600}"#).unwrap();
        assert!(!for_add(&one, "/one"));
        assert_eq!(found(&one, "/one"), Some(vec![Attribute::Mtu(1600)]));
        write(&Backup::new(dir.path(), &net(), &other), &saved("/other", &[Attribute::Mtu(1700)]));
        assert_eq!(found(&other, "/other"), Some(vec![Attribute::Mtu(1700)]));
        assert_eq!(found(&one, "/one"), Some(vec![Attribute::Mtu(1600)]));
    }

    #[test]
    fn a_truncated_file_contains_no_values() {
        let dir = tempfile::tempdir().unwrap();
        let backup = Backup::new(dir.path(), &net(), &at("c"));
        for torn in ["", "{\n \"mac\": \"02"] {
            fs::write(backup.path(), torn).unwrap();
            assert_eq!(load(&backup).unwrap(), None);
        }
    }

    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let backup = Backup::new(dir.path(), &net(), &at("c"));
        fs::write(dir.path().join("outside"), r#"{"mtu": 9000}"#).unwrap();
        std::os::unix::fs::symlink(dir.path().join("outside"), backup.path()).unwrap();
        let refused = load(&backup).unwrap_err();
        assert!(refused.msg().contains("c_eth0.json: it is not a regular file"), "{refused}");
        backup.remove().unwrap();
        assert_eq!(load(&backup).unwrap(), None);
    }

    #[test]
    fn an_id_too_long_for_a_file_name_has_no_backup() {
        let dir = tempfile::tempdir().unwrap();
        let backup = Backup::new(dir.path(), &net(), &at(&"c".repeat(255)));
        assert_eq!(load(&backup).unwrap(), None);
        backup.remove().unwrap();
        let refused = save(&backup, saved("/n", &BEFORE), &mut Undo::new()).unwrap_err();
        assert_eq!(refused.code(), 5);
    }
}
