//! Fuzzing: conditions that hold for any input.

#![allow(clippy::unwrap_used, reason = "a fuzz target ends with a panic")]

use std::collections::HashSet;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use cni::{AsWritten, Attachment, ContainerId, IfName, NetworkName, Result, Version, json};

use crate::allocator::{self, Leases};
use crate::conf::{self, Conf};
use crate::range::RangeSet;
use crate::resolv;
use crate::store::{self, Store};

/// A configuration. Each range set has free addresses, all in its subnets, and none is a gateway. Two range sets have
/// no address in common. A requested address is allocated from its own range set.
pub fn configuration(input: &[u8]) {
    let Ok(document) = json::parse(input, "it") else { return };
    let written = AsWritten::from(document);
    let data_dir = conf::data_dir(&written);
    let Ok(conf) = Conf::try_from(written) else { return };
    assert_eq!(data_dir.unwrap(), conf.data_dir);
    let mut given = HashSet::new();
    for set in &conf.sets {
        let few: Vec<IpAddr> = set.candidates(None).take(5).collect();
        assert!(set.capacity() > 0 && !few.is_empty());
        few.iter().for_each(|ip| may_give(set, *ip));
        assert!(few.iter().all(|ip| given.insert(*ip)), "twice one of {few:?}");
        let next = set.candidates(Some(few[0])).next().unwrap();
        assert_eq!(next, few.get(1).copied().unwrap_or(few[0]));
    }
    let sets = conf.sets.as_slice();
    if let Ok(requested) = allocator::requests(sets, &[&conf.args_ips, &conf.runtime_ips]) {
        let ips = allocator::choose(sets, &requested, &Free).unwrap();
        sets.iter().zip(&ips).for_each(|(set, ip)| may_give(set, *ip));
        assert!(conf.runtime_ips.iter().all(|ip| ips.contains(ip)));
        assert!(conf.check_fits(Version::V0_2_0).is_err() || ips.len() <= 2);
    }
}

fn may_give(set: &RangeSet, ip: IpAddr) {
    let range = set.range_of(ip).unwrap();
    assert!(range.may_lease(ip) && range.subnet.contains(ip) && range.gateway != ip, "{ip} of {set}");
    assert_eq!(range.subnet.is_ipv4(), set.is_ipv4());
}

/// A view in which no address is leased.
struct Free;

impl Leases for Free {
    fn last_reserved(&self, _: usize) -> Option<IpAddr> {
        None
    }
    fn is_taken(&self, _: IpAddr) -> Result<bool> {
        Ok(false)
    }
    fn holder(&self, _: IpAddr) -> String {
        String::new()
    }
}

/// The files of a network's directory. An address without a valid lease file is allocated, found and released. GC
/// leaves no lease. No file outside of the directory is changed. `scratch` is a temporary directory.
pub fn store(scratch: &Path, input: &[u8]) {
    let network = NetworkName::parse("net").unwrap();
    let at =
        Attachment { container: ContainerId::parse("c").unwrap(), ifname: IfName::parse("eth0").unwrap() };
    let dir = scratch.join("net");
    seeds::unpack(&dir, input);
    fs::write(scratch.join("outside"), "kept").unwrap();
    let dns = resolv::read(&dir.join("resolv.conf")).unwrap_or_default();
    assert!(dns.nameservers.iter().chain(&dns.search).all(|word| !word.contains(char::is_whitespace)));
    let set = sets();
    store::status(scratch, &network, &set).ok();

    let mut store = Store::open(scratch, &network).unwrap().unwrap();
    let (found, failures) = store.leases_of(&at).unwrap();
    failures.into_result().unwrap();
    for lease in &found {
        assert!(
            lease.owner.container == "c" && lease.owner.ifname.as_deref().is_none_or(|name| name == "eth0")
        );
        assert!(store.is_taken(lease.ip).unwrap() && store.holder(lease.ip).len() < 4096);
        assert_eq!(lease.owner.content().lines().next(), Some("c"));
    }
    let held = |ip: IpAddr| fs::read(dir.join(ip.to_string())).is_ok_and(|content| !content.is_empty());
    if let Ok(ips) = allocator::choose(&set, &[None], &store) {
        assert!(!held(ips[0]));
        store.reserve(&at, &ips).unwrap();
        assert_eq!(store.last_reserved(0), Some(ips[0]));
        drop(store);
        store = Store::open(scratch, &network).unwrap().unwrap();
        let (leases, _) = store.leases_of(&at).unwrap();
        let ours = leases.iter().find(|lease| lease.ip == ips[0]).unwrap();
        store.release(ours).unwrap();
        assert!(!held(ips[0]));
    }
    // It fails if the boot mark is not a regular file.
    if store.reset_after_reboot().is_ok() {
        store.reset_after_reboot().unwrap();
    }
    store.remove_boot_mark().unwrap();
    store.retain(|_, _| false).unwrap().into_result().unwrap();
    assert!(store.leases_of(&at).unwrap().0.is_empty());
    drop(store);
    let left = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| !name.to_str().is_some_and(is_lease)));
    assert_eq!(fs::read(scratch.join("outside")).unwrap(), b"kept");
    assert_eq!(fs::read_dir(scratch).unwrap().count(), 2);
}

/// As in [`store::lease`]: only the canonical form of an address is a lease's name.
fn is_lease(name: &str) -> bool {
    name.parse::<IpAddr>().is_ok_and(|ip| ip.to_string() == name && ip.to_canonical() == ip)
}

fn sets() -> Vec<RangeSet> {
    let document = br#"{"ipam": {"subnet": "10.0.0.0/28"}}"#;
    Conf::try_from(AsWritten::from(json::parse(document, "it").unwrap())).unwrap().sets
}

#[test]
fn every_seed_passes() {
    seeds::replay("host_local", configuration);
    let scratch = tempfile::tempdir().unwrap();
    seeds::replay("leases", |input| store(scratch.path(), input));
}
