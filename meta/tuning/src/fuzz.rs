//! Fuzz targets of this plugin and their conditions.

#![allow(clippy::unwrap_used, reason = "a fuzz target ends with a panic")]

use std::fs;
use std::path::{Component, Path};

use cni::backup::Backup;
use cni::{
    AsWritten, Attachment, CniArgs, ContainerId, Gc, IfName, NetConf, NetworkName, Undo, Version, json,
};

use crate::allowlist;
use crate::attribute::Attribute;
use crate::backup::{self, Saved};
use crate::conf::{self, Conf};

/// The input is the configuration and, after an empty line, the allowlist. No accepted sysctl is outside of net/, and no value has a line
/// end.
pub fn configuration(input: &[u8]) {
    let end = input.windows(2).position(|two| two == b"\n\n").unwrap_or(input.len());
    let Ok(document) = json::parse(&input[..end], "it") else { return };
    let raw = AsWritten::from(document.clone());
    let data_dir = conf::data_dir(&raw);
    let Ok(conf) = Conf::try_from(raw) else { return };
    assert_eq!(data_dir.unwrap(), conf.data_dir);
    for sysctl in &conf.sysctls {
        for ifname in ["eth0", "eth0.100", "...", "net"].map(|name| IfName::parse(name).unwrap()) {
            let path = sysctl.key.path(&ifname);
            let below = |part| matches!(part, Component::Normal(_));
            assert!(Path::new(&path).components().all(below) && !path.contains(['\0', '\n']), "{path}");
            assert!(!path.starts_with('/') && !path.ends_with('/'), "{path}");
        }
        assert!(!sysctl.value.contains(['\0', '\n']));
    }
    for mac in conf.attributes(&CniArgs::default()).unwrap() {
        assert!(!matches!(mac, Attribute::Mac(mac) if mac.is_multicast() || mac.is_zero()));
    }
    let list = String::from_utf8_lossy(input.get(end + 2..).unwrap_or_default());
    let permitted = allowlist::permit_by(&list, &conf.sysctls).is_ok();
    assert!(!permitted || conf.sysctls.is_empty() || !list.trim().is_empty());
}

/// Files of the directory of old values: undoing a save restores the file, saved values are restored, DEL leaves no file of the attachment,
/// and GC deletes only files with a network. `scratch` is a temporary directory.
pub fn backups(scratch: &Path, input: &[u8]) {
    let network = NetworkName::parse("net").unwrap();
    let at =
        Attachment { container: ContainerId::parse("c").unwrap(), ifname: IfName::parse("eth0").unwrap() };
    let (dir, file) = (scratch.join("tuning"), scratch.join("tuning/c_eth0.json"));
    seeds::unpack(&dir, input);
    fs::write(scratch.join("outside"), "kept").unwrap();
    let backup = Backup::new(&dir, &network, &at);
    let before = fs::read(&file).ok();
    let earlier = backup::load(&backup).unwrap();
    let now = [Attribute::Mtu(1400), Attribute::Promisc(false)];
    let features = [("rx-gro".to_owned(), true)].into_iter().collect();
    let saved = Saved::new(now.into_iter(), &network, Path::new("/run/netns/c")).with_features(features);

    let mut undo = Undo::new();
    backup::save(&backup, saved.clone(), &mut undo).unwrap();
    assert!(undo.unwind().is_empty());
    assert_eq!(fs::read(&file).ok(), before);
    backup::save(&backup, saved, &mut undo).unwrap();
    undo.commit();
    let restored = backup::load(&backup).unwrap().unwrap();
    assert!(restored.features().contains_key("rx-gro"));
    let restored = restored.attributes();
    let expected = |attribute: &Attribute| {
        restored
            .iter()
            .any(|one| one.to_string().split(' ').next() == attribute.to_string().split(' ').next())
    };
    assert!(now.iter().all(expected));
    let said = earlier.map(|saved| saved.attributes()).unwrap_or_default();
    assert!(restored.iter().all(|attribute| now.contains(attribute) || said.contains(attribute)));

    let foreign: Vec<_> = names(&dir).into_iter().filter(|name| !tells(&dir.join(name))).collect();
    let net = NetConf { name: network, version: Version::LATEST, dns: None, ipam: None, path: Vec::new() };
    backup::remove_stale(
        &dir,
        &Gc { scope: cni::Scope::all_but([at].into_iter().collect()), net, conf: AsWritten::default() },
    )
    .unwrap();
    assert!(file.exists());
    assert!(foreign.iter().all(|name| dir.join(name).exists() || is_left_by_a_kill(name)), "{foreign:?}");
    backup.remove().unwrap();
    assert!(!file.exists());
    assert_eq!(fs::read(scratch.join("outside")).unwrap(), b"kept");
    assert_eq!(fs::read_dir(scratch).unwrap().count(), 2);
}

fn is_left_by_a_kill(name: &str) -> bool {
    system::file::label_of(name).is_some_and(|label| label.starts_with("net~"))
}

fn names(dir: &Path) -> Vec<String> {
    fs::read_dir(dir).unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok()).collect()
}

fn tells(file: &Path) -> bool {
    let saved: Option<Saved> = fs::read(file).ok().and_then(|content| serde_json::from_slice(&content).ok());
    saved.is_some_and(|saved| serde_json::to_value(saved).unwrap()["network"] == "net")
}

#[test]
fn every_seed_passes() {
    seeds::replay("tuning", configuration);
    let scratch = tempfile::tempdir().unwrap();
    seeds::replay("backups", |input| backups(scratch.path(), input));
}
