//! Fuzz target of this plugin and its conditions.

#![allow(clippy::unwrap_used, reason = "a fuzz target ends with a panic")]

use cni::{AsWritten, NetConf, NetworkName, PluginType, Version, json};

use crate::conf::Conf;
use crate::document::{self, is_of, kind};
use crate::subnet::Subnet;

/// The input is the configuration and, after an empty line, flanneld's file. The other plugin's configuration has the network's name, names
/// another plugin than flannel, and has a range for each subnet. DEL reads the same as ADD.
pub fn configuration(input: &[u8]) {
    let end = input.windows(2).position(|two| two == b"\n\n").unwrap_or(input.len());
    let subnet = Subnet::parse(&String::from_utf8_lossy(input.get(end + 2..).unwrap_or_default()));
    if let Ok(subnet) = &subnet {
        assert!(!subnet.networks.is_empty() && (1..=2).contains(&subnet.subnets.len()));
        assert!(subnet.networks.iter().chain(&subnet.subnets).all(|net| net.ip() == net.network()));
    }
    let Ok(json) = json::parse(&input[..end], "it") else { return };
    let written = AsWritten::from(json);
    let name = NetworkName::parse("net").unwrap();
    let (dns, path) = (None, Vec::new());
    let net = NetConf { name, version: Version::LATEST, dns, ipam: None, path };
    let leniently = Conf::leniently(&written);
    let lost = document::of(&leniently, &net, None).unwrap();
    assert!(is_of(&lost, "net") && json::member(&lost["ipam"], "type").is_some());
    let Ok(conf) = Conf::try_from(written) else { return };
    assert!(leniently.data_dir == conf.data_dir && leniently.subnet_file == conf.subnet_file);
    let Ok(made) = document::of(&conf, &net, subnet.as_ref().ok()) else { return };
    assert!(is_of(&made, "net") && kind(&made) == kind(&lost) && kind(&made) != "flannel");
    assert!(PluginType::parse(kind(&made)).is_ok());
    if let Ok(subnet) = &subnet {
        assert_eq!(made["ipam"]["ranges"].as_array().unwrap().len(), subnet.subnets.len());
        assert!(made["ipam"]["routes"].as_array().unwrap().len() >= subnet.networks.len());
    }
}

#[test]
fn every_seed_passes() {
    seeds::replay("flannel", configuration);
}
