//! Host ports that several attachments ask for: the newest one has it, the others wait, and get it back.
//!
//! Who waits for a port stands in the set `attachments` under a digest of the port, the one that waits longest
//! first, as long as somebody waits.

use std::borrow::Cow;
use std::collections::BTreeMap;

use netlink::RequestError;

use super::batch::Batch;
use super::element::Element;
use super::installed::{Installed, Place, unique};
use super::view::View;
use crate::owner::digest;
use crate::rules::Kind;

/// As text, which an operator reads as the comment of an element of `attachments`.
fn text(claim: &Place) -> String {
    format!("waiting {} {}", claim.label, claim.digest)
}

fn parse(text: &str) -> Option<Place> {
    let (label, digest) = text.strip_prefix("waiting ")?.split_once(' ')?;
    let is_digest = digest.len() == 15 && digest.bytes().all(|b| b.is_ascii_alphanumeric());
    is_digest.then(|| Place { label: label.to_owned(), digest: digest.to_owned() })
}

/// Those that wait for the port of one element of a map, the newest last.
#[derive(Debug)]
pub(super) struct Queue {
    place: String,
    /// What was read.
    places: usize,
    before: Vec<Place>,
    waiting: Vec<Place>,
}

impl Queue {
    /// Reads who waits for a port: nobody, for an element that is no port.
    pub(super) fn read(view: &View<'_>, element: &Element) -> Result<Self, RequestError> {
        let key: String = element.key.iter().map(|byte| format!("{byte:02x}")).collect();
        let place = digest(&["claims", &element.set.name, &key]);
        let mut this = Self { place, places: 0, before: Vec::new(), waiting: Vec::new() };
        if element.set.is_of_host_ports() {
            for index in 0..=u16::MAX {
                let Some(comment) = view.comment_of(&Element::record(&this.place, index))? else { break };
                this.places += 1;
                this.before.extend(parse(&comment));
            }
        }
        this.waiting.clone_from(&this.before);
        Ok(this)
    }

    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.places == 0
    }

    /// Whether an attachment waits.
    pub(super) fn has(&self, label: &str) -> bool {
        self.waiting.iter().any(|claim| claim.label == label)
    }

    /// Lets an attachment wait before all others.
    pub(super) fn extend(&mut self, claim: Option<Place>) {
        if let Some(claim) = claim {
            self.remove(&claim.label);
            self.waiting.push(claim);
        }
    }

    /// An attachment waits no longer.
    pub(super) fn remove(&mut self, label: &str) {
        self.waiting.retain(|claim| claim.label != label);
    }

    /// The newest one whose records still ask for the port, with the element that it gets.
    pub(super) fn pop(
        &mut self,
        view: &View<'_>,
        element: &Element,
        asked: &mut Asked,
    ) -> Result<Option<(Place, Element)>, RequestError> {
        while let Some(claim) = self.waiting.pop() {
            if let Some(own) = asked.by(view, &claim, element)? {
                return Ok(Some((claim, own)));
            }
        }
        Ok(None)
    }

    /// Puts the queue as it is now in place of the one that was read. How many records fewer it has.
    pub(super) fn put(&self, view: &View<'_>, batch: &mut Batch) -> usize {
        if self.waiting == self.before {
            return 0;
        }
        let record = |index: usize| Element::record(&self.place, index as u16);
        (0..self.places).for_each(|index| batch.delete_element(view.table, &record(index)));
        for (index, claim) in self.waiting.iter().enumerate() {
            batch.add_element(view.table, &record(index), &text(claim));
        }
        self.places.saturating_sub(self.waiting.len())
    }
}

/// The elements that attachments ask for, by digest, set and key. Each attachment's records are read once, however many of its
/// ports are looked at.
#[derive(Debug, Default)]
pub(super) struct Asked(BTreeMap<String, BTreeMap<Key, Element>>);

/// A set and a key in it.
type Key = (Cow<'static, str>, Vec<u8>);

impl Asked {
    /// What an attachment asks for in place of an element.
    fn by(
        &mut self,
        view: &View<'_>,
        claim: &Place,
        element: &Element,
    ) -> Result<Option<Element>, RequestError> {
        let key = |element: &Element| (element.set.name.clone(), element.key.clone());
        if !self.0.contains_key(&claim.digest) {
            let found = Installed::read(view, Kind::HostPorts, claim.clone())?;
            let all = unique(&found.records).into_iter().map(|element| (key(&element), element));
            self.0.insert(claim.digest.clone(), all.collect());
        }
        Ok(self.0.get(&claim.digest).and_then(|all| all.get(&key(element))).cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_says_whose_it_is_and_where_its_records_are() {
        let claim = Place { label: "pods/8f3c/eth0".into(), digest: "tk26nfok9ad5144".into() };
        assert_eq!(text(&claim), "waiting pods/8f3c/eth0 tk26nfok9ad5144");
        assert_eq!(parse(&text(&claim)), Some(claim));
        for other in [
            "",
            "waiting",
            "waiting a/b/c",
            "waiting a/b/c d",
            "hostports a/b/c",
            "waiting a b tk26nfok9ad5144",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
