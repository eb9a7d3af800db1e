//! Offload features of an interface, by the kernel's names.

use std::collections::BTreeMap;

use cni::{Error, Result, ResultExt, Undo};
use iface::{Namespace, verify};
use netlink::{Feature, Features, Link};

/// Features to turn on or off.
pub type Values = BTreeMap<String, bool>;

/// The configured features of an interface, and all its features before ADD.
#[derive(Debug)]
pub struct Offload<'a> {
    values: &'a Values,
    before: Features,
}

impl<'a> Offload<'a> {
    /// Reads the features of the interface, unless none is configured.
    ///
    /// # Errors
    /// Code 7 if the kernel does not know a configured feature; also if the interface cannot change it, and it has the other value.
    pub fn read(values: &'a Values, sandbox: &Namespace, link: &Link) -> Result<Self> {
        let before = if values.is_empty() { Features::default() } else { sandbox.nl.features(link)? };
        for (name, on) in values {
            let reason = match before.get(name) {
                None => "the kernel has no feature of this name",
                Some(found) if found.changeable || found.active == *on => continue,
                Some(_) => "the interface cannot change it",
            };
            let changeable: Vec<_> = before.changeable().collect();
            return Err(refused(name, *on, link, reason)
                .detail(format!("the interface can change these: {}", changeable.join(", "))));
        }
        Ok(Self { values, before })
    }

    /// The configured features as they were requested before ADD, for DEL. While a requested feature lacks another feature, it is off.
    pub fn before(&self) -> Values {
        let requested = |name: &String| Some((name.clone(), self.before.get(name)?.requested));
        self.values.keys().filter_map(requested).collect()
    }

    /// Sets the features.
    ///
    /// # Errors
    /// Code 7 if the kernel keeps a feature on or off; others if the kernel refuses the request.
    pub fn set(&self, sandbox: &Namespace, link: &Link, undo: &mut Undo) -> Result<()> {
        if self.values.is_empty() {
            return Ok(());
        }
        let (before, known, there, own) = (self.before(), self.before.clone(), sandbox.clone(), link.clone());
        undo.push(move || match there.nl.set_features(&own, &known, &before) {
            // The kernel refused the change, and then this one, too.
            Err(_) if are_requested(&before, &there, &own) => Ok(()),
            restored => restored.context(|| "restore features"),
        });
        sandbox.nl.set_features(link, &self.before, self.values)?;
        match differing(self.values, &sandbox.nl.features(link)?).next() {
            None => Ok(()),
            Some((name, on, _)) => {
                Err(refused(name, on, link, &format!("the kernel keeps it {}", word(!on))).detail(
                    "it depends on other features of the interface or of its parent, as segmentation depends on checksums: \
                     configure these too, or remove the key",
                ))
            }
        }
    }
}

/// Compares the features of an interface with the configured ones.
///
/// # Errors
/// Code 999, with the current value.
pub fn verify(values: &Values, sandbox: &Namespace, link: &Link) -> Result<()> {
    if values.is_empty() {
        return Ok(());
    }
    match differing(values, &sandbox.nl.features(link)?).next() {
        None => Ok(()),
        Some((name, on, found)) => {
            let found = found.map_or("missing", |feature| word(feature.active));
            Err(verify::differs(link, name, word(on), found))
        }
    }
}

/// Restores the features of an interface. Features that it does not have are ignored.
///
/// # Errors
/// If the kernel refuses the request.
pub fn restore(values: &Values, sandbox: &Namespace, link: &Link) -> netlink::Result<()> {
    if values.is_empty() {
        return Ok(());
    }
    sandbox.nl.set_features(link, &sandbox.nl.features(link)?, values)
}

/// Whether the kernel reports that these features are requested.
fn are_requested(values: &Values, sandbox: &Namespace, link: &Link) -> bool {
    let now = sandbox.nl.features(link);
    now.is_ok_and(|now| {
        values.iter().all(|(name, on)| now.get(name).is_some_and(|found| found.requested == *on))
    })
}

fn differing<'a>(
    values: &'a Values,
    found: &Features,
) -> impl Iterator<Item = (&'a str, bool, Option<Feature>)> {
    values
        .iter()
        .map(|(name, on)| (name.as_str(), *on, found.get(name)))
        .filter(|(_, on, found)| found.is_none_or(|found| found.active != *on))
}

fn refused(name: &str, on: bool, link: &Link, reason: &str) -> Error {
    Error::config(format!("features: cannot turn {} {name:?} of {}: {reason}", word(on), link.name))
}

fn word(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}
