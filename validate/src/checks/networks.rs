//! Checks several networks together: duplicate names, overlapping ranges, and different gateway addresses of one bridge.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use cni::json;
use host_local::{Conf, Range};
use runtime::Network;
use runtime::text::Node;
use serde_json::Value;

use super::Report;
use super::own::blamed;
use crate::ranges;

/// The ranges that host-local allocates for a network, and the link for each of them.
#[derive(Debug)]
pub struct Ranges {
    pub file: PathBuf,
    name: String,
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    /// The bridge or the master. Empty: none.
    link: String,
    /// The VLAN of this link. 0: none.
    vlan: u64,
    /// Whether the host routes to the range through this link. Then no other link may have the same range.
    is_routed: bool,
    /// The IPv4 addresses that ADD gives to the bridge, with the prefix length.
    gateways: Vec<(IpAddr, u8)>,
    ranges: Vec<Range>,
}

impl Ranges {
    pub fn of(network: &Network, file: &Path) -> Self {
        let parts =
            ranges::by_host_local(network).into_iter().map(|(request, conf)| Part::of(&request, &conf));
        Self { file: file.to_owned(), name: network.name.to_string(), parts: parts.collect() }
    }
}

impl Part {
    fn of(request: &Value, conf: &Conf) -> Self {
        let text =
            |key: &str| json::member(request, key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let is_true = |key: &str| json::member(request, key).and_then(Value::as_bool).unwrap_or_default();
        let (link, is_routed) = match ranges::bridge(request) {
            Some(name) => (name.to_owned(), is_true("isGateway") || is_true("isDefaultGateway")),
            // ptp creates a link for each container.
            None if text("type") == "ptp" => (String::new(), true),
            None => (text("master"), false),
        };
        let vlan = ["vlan", "vlanId"].iter().find_map(|key| json::member(request, key)?.as_u64());
        let gateways = ranges::bridge_gateways(request, conf);
        Self {
            link,
            vlan: vlan.unwrap_or_default(),
            is_routed,
            gateways,
            ranges: conf.sets.iter().flat_map(|set| set.ranges()).cloned().collect(),
        }
    }

    /// Two ranges that contain the same address and conflict: they are on the same link, or the host routes to both.
    fn clash<'a>(&'a self, other: &'a Self) -> Option<(&'a Range, &'a Range)> {
        let same_link = !self.link.is_empty() && (&self.link, self.vlan) == (&other.link, other.vlan);
        let routed = self.is_routed && other.is_routed;
        let meets = |a: &Range, b: &Range| {
            let subnets = a.subnet.contains(b.subnet.ip()) || b.subnet.contains(a.subnet.ip());
            (same_link || routed) && a.overlaps(b) || routed && !same_link && subnets
        };
        self.ranges.iter().find_map(|a| other.ranges.iter().find(|b| meets(a, b)).map(|b| (a, b)))
    }

    /// Two different gateway addresses for one bridge. A bridge has only one IPv4 gateway address.
    fn contradiction(&self, other: &Self) -> Option<(IpAddr, IpAddr)> {
        let is_shared = self.gateways.iter().any(|own| other.gateways.contains(own));
        let pair = (self.gateways.first()?.0, other.gateways.first()?.0);
        (self.link == other.link && !is_shared).then_some(pair)
    }
}

impl Report<'_> {
    /// Warns of conflicts between a network and other networks of this host.
    pub fn among(
        &mut self,
        root: &Node,
        own: &Ranges,
        others: &[Ranges],
        siblings: impl Fn(&Ranges) -> bool,
    ) {
        for other in others.iter().filter(|other| other.file != own.file) {
            let file = other.file.display();
            if other.name == own.name {
                // A file outside the directory may be a new version of the other file.
                if siblings(other) {
                    let at = root.get("name").map_or(root.at, |node| node.at);
                    let text = format!("the network in {file} has the same name, {}", own.name);
                    self.warning(at, text).help = Some(
                        "runtimes use only one of the two files: rename one \
                     network"
                            .to_owned(),
                    );
                }
                continue;
            }
            let clash = |part: &Part| {
                let (here, there) = other.parts.iter().find_map(|theirs| part.clash(theirs))?;
                Some((here.to_string(), there.to_string()))
            };
            if let Some((here, there)) = own.parts.iter().find_map(clash) {
                let text = format!("range {here} overlaps {there} of network {} in {file}", other.name);
                self.warning(blamed(root, &text), text).help = Some(
                    "containers of both networks may get the same address; choose another subnet".to_owned(),
                );
            }
            let contradicts = |part: &Part| {
                let (here, there) = other.parts.iter().find_map(|theirs| part.contradiction(theirs))?;
                Some((part.link.clone(), here, there))
            };
            if let Some((bridge, here, there)) = own.parts.iter().find_map(contradicts) {
                let text = format!(
                    "bridge {bridge} gets the gateway address {here}, but {there} by network {} in {file}",
                    other.name
                );
                self.warning(blamed(root, &text), text).help = Some(
                    "a bridge has one IPv4 gateway address: choose another bridge for one of the networks"
                        .to_owned(),
                );
            }
        }
    }
}
