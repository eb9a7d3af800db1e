//! Fuzz target of this plugin and its conditions.

#![allow(clippy::unwrap_used, reason = "a fuzz target ends with a panic")]

use std::path::Component;

use cni::{AsWritten, json};

use crate::conf::{By, Conf, Selector, lenient_selector};

/// No name of an accepted configuration leaves its directory, and DEL looks for the device that ADD moved.
pub fn configuration(input: &[u8]) {
    let Ok(document) = json::parse(input, "it") else { return };
    let document = AsWritten::from(document);
    let lenient = lenient_selector(&document);
    lenient.iter().for_each(assert_that_it_stays_below);
    let Ok(conf) = Conf::try_from(document) else { return };
    assert_eq!(conf.selector().ok(), lenient.as_ref());
}

fn assert_that_it_stays_below(selector: &Selector) {
    match &selector.by {
        By::Name(name) => assert!((1..=127).contains(&name.len())),
        By::Address(_) => {}
        By::Directory(all) => assert!(all.iter().all(|path| {
            let climbs = path.components().any(|part| part == Component::ParentDir);
            path.starts_with("/sys") && path.file_name().is_some() && !climbs
        })),
    }
}

#[test]
fn every_seed_passes() {
    seeds::replay("host_device", configuration);
}
