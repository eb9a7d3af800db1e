//! Hostile input: what the fuzz target feeds to this plugin, and what must hold whatever it is.

#![allow(clippy::unwrap_used, reason = "a fuzz target ends with a panic")]

use std::path::Component;

use cni::{AsWritten, json};

use crate::conf::{Conf, Selector, lenient_selector};

/// The configuration: no name leaves its directory, and DEL looks for the device that ADD moved.
pub fn configuration(input: &[u8]) {
    let Ok(document) = json::parse(input, "it") else { return };
    let document = AsWritten::from(document);
    let lenient = lenient_selector(&document);
    lenient.iter().for_each(assert_that_it_stays_below);
    let Ok(conf) = Conf::try_from(document) else { return };
    assert_eq!(conf.selector().ok(), lenient.as_ref());
}

fn assert_that_it_stays_below(selector: &Selector) {
    match selector {
        Selector::Id(name) | Selector::Pci(name) => {
            assert!(!name.is_empty() && !name.contains('/') && name != "." && name != "..");
        }
        Selector::Name(name) => assert!((1..=15).contains(&name.len())),
        Selector::Mac(mac) => assert!(!mac.is_multicast() && !mac.is_zero()),
        Selector::Path(path) => {
            assert!(
                path.starts_with("/sys/devices")
                    && !path.components().any(|part| part == Component::ParentDir)
            );
        }
    }
}

#[test]
fn every_seed_is_borne() {
    seeds::replay("host_device", configuration);
}
