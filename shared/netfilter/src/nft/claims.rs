//! Keys that several attachments claim: host ports, or by mistake a container's address. The newest attachment has the
//! element. The others wait, and get it when the newer ones are deleted.
//!
//! The waiting attachments are in the set `attachments`, under a digest of the key, the oldest first.

use std::borrow::Cow;
use std::collections::BTreeMap;

use netlink::RequestError;

use super::batch::Batch;
use super::installed::{Installed, RecordKey, label, unique};
use super::view::View;
use crate::owner::digest;
use crate::ruleset::Element;

/// Maximum length of a comment that nft(8) reads, in bytes (`NFTNL_UDATA_COMMENT_MAXLEN` of libnftnl, without the NUL).
const COMMENT_MAX: usize = 127;

/// A claim as text, which operators see as the comment of an element of `attachments`. A long label is left out. The
/// records contain it too.
fn text(claim: &RecordKey) -> String {
    let RecordKey { label, digest } = claim;
    let text = format!("waiting {label} {digest}");
    if text.len() <= COMMENT_MAX { text } else { format!("waiting {digest}") }
}

/// The label, if the text contains it, and the digest.
fn parse(text: &str) -> Option<(Option<&str>, &str)> {
    let rest = text.strip_prefix("waiting ")?;
    let (label, digest) = rest.split_once(' ').map_or((None, rest), |(label, digest)| (Some(label), digest));
    let is_digest = digest.len() == 15 && digest.bytes().all(|b| b.is_ascii_alphanumeric());
    is_digest.then_some((label, digest))
}

/// Parses a claim. None: it is not a claim, or its records do not exist.
fn read(view: &View<'_>, text: &str) -> Result<Option<RecordKey>, RequestError> {
    let Some((in_text, digest)) = parse(text) else { return Ok(None) };
    let record_key = |label: &str| RecordKey { label: label.to_owned(), digest: digest.to_owned() };
    if let Some(in_text) = in_text {
        return Ok(Some(record_key(in_text)));
    }
    let title = view.comment_of(&Element::record(digest, 0))?;
    Ok(title.and_then(|title| label(view.kind, &title).map(record_key)))
}

/// The attachments that wait for the port of one element of a map, the newest last.
#[derive(Debug)]
pub(super) struct WaitingAttachments {
    digest: String,
    /// The number of its elements in the set of records.
    recorded: usize,
    /// The queue as it was read.
    before: Vec<RecordKey>,
    waiting: Vec<RecordKey>,
}

impl WaitingAttachments {
    /// Reads the queue of a port. Empty for an element that is not a port.
    pub(super) fn read(view: &View<'_>, element: &Element) -> Result<Self, RequestError> {
        let key: String = element.key.iter().map(|byte| format!("{byte:02x}")).collect();
        let digest = digest(&["claims", &element.set.name, &key]);
        let mut this = Self { digest, recorded: 0, before: Vec::new(), waiting: Vec::new() };
        if element.set.is_claimed {
            for index in 0..=u16::MAX {
                let Some(comment) = view.comment_of(&Element::record(&this.digest, index))? else { break };
                this.recorded += 1;
                this.before.extend(read(view, &comment)?);
            }
        }
        this.waiting.clone_from(&this.before);
        Ok(this)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.recorded == 0
    }

    pub(super) fn has(&self, label: &str) -> bool {
        self.waiting.iter().any(|claim| claim.label == label)
    }

    /// Appends an attachment: it is the next one to get the port.
    pub(super) fn push_newest(&mut self, claim: RecordKey) {
        self.remove(&claim.label);
        self.waiting.push(claim);
    }

    /// Removes an attachment from the queue.
    pub(super) fn remove(&mut self, label: &str) {
        self.retain(|waiting| waiting != label);
    }

    /// Keeps only attachments with certain labels.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.waiting.retain(|claim| is_kept(&claim.label));
    }

    /// Removes the newest attachment whose records still contain the port, and returns it with its element.
    pub(super) fn pop(
        &mut self,
        view: &View<'_>,
        element: &Element,
        requested: &mut RequestedElements,
    ) -> Result<Option<(RecordKey, Element)>, RequestError> {
        while let Some(claim) = self.waiting.pop() {
            if let Some(own) = requested.by(view, &claim, element)? {
                return Ok(Some((claim, own)));
            }
        }
        Ok(None)
    }

    /// Replaces the queue in the ruleset. Returns by how many records it has shrunk.
    pub(super) fn write(&self, view: &View<'_>, batch: &mut Batch) -> usize {
        if self.waiting == self.before {
            return 0;
        }
        let record = |index: usize| Element::record(&self.digest, index as u16);
        (0..self.recorded).for_each(|index| batch.delete_element(view.table, &record(index)));
        for (index, claim) in self.waiting.iter().enumerate() {
            batch.add_element(view.table, &record(index), &text(claim));
        }
        self.recorded.saturating_sub(self.waiting.len())
    }
}

/// The elements that attachments request, by digest, set and key. Each attachment's records are read once, for any
/// number of its ports.
#[derive(Debug, Default)]
pub(super) struct RequestedElements(BTreeMap<String, BTreeMap<Key, Element>>);

/// A set and a key in it.
pub(super) type Key = (Cow<'static, str>, Vec<u8>);

pub(super) fn key(element: &Element) -> Key {
    (element.set.name.clone(), element.key.clone())
}

impl RequestedElements {
    /// The element that an attachment requests in place of another one.
    fn by(
        &mut self,
        view: &View<'_>,
        claim: &RecordKey,
        element: &Element,
    ) -> Result<Option<Element>, RequestError> {
        if !self.0.contains_key(&claim.digest) {
            let found = Installed::read(view, claim.clone())?;
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
    fn a_claim_names_its_owner_and_the_digest_of_its_records() {
        let digest = "tk26nfok9ad5144";
        for (label, expected) in [
            ("pods/8f3c/eth0".to_owned(), "waiting pods/8f3c/eth0 tk26nfok9ad5144"),
            (format!("{}/{}/{}", "n".repeat(27), "f".repeat(72), "e".repeat(15)), "waiting tk26nfok9ad5144"),
        ] {
            let claim = RecordKey { label: label.clone(), digest: digest.into() };
            assert_eq!(text(&claim), expected);
            let in_text = Some(&*label).filter(|_| expected.contains('/'));
            assert_eq!(parse(expected), Some((in_text, digest)));
        }
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

    #[test]
    fn the_longest_label_of_a_claim_can_be_restored_by_nft() {
        let claim = |length| RecordKey { label: "l".repeat(length), digest: "tk26nfok9ad5144".into() };
        assert_eq!(text(&claim(103)).len(), COMMENT_MAX);
        assert!(text(&claim(104)).len() < COMMENT_MAX);
    }
}
