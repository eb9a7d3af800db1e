//! CHECK: compares the ruleset with the installed rules.

use cni::{Code, Error, Result};
use netlink::{Family, RequestError};

use super::claims::WaitingAttachments;
use super::install::{LayoutDiff, layout_of};
use super::installed::{Installed, RecordKey};
use super::retry::failure;
use super::view::View;
use super::{Nft, query, tables};
use crate::kind::{Kind, NftablesRules};
use crate::opening::Opening;
use crate::owner::Owner;
use crate::ruleset::{Element, Layout, Record};

/// The remedy for missing rules.
const REMEDY: &str = "something has removed or changed them; `cnitool repair --all` installs them again";

impl Nft {
    /// Checks that an attachment's rules are as they were installed. Returns the host ports that another attachment
    /// has. Ports with conditions are not among them: a newer rule matches only some packets, and the kernel does not
    /// report which.
    ///
    /// # Errors
    /// The missing rule, or the attachment that has its element.
    pub(crate) fn check(&self, owner: &Owner, kind: Kind, rules: &NftablesRules) -> Result<Vec<String>> {
        let outcome = self.find_drift(owner, kind, rules);
        let found = outcome.map_err(|r| failure("check", owner, "read the ruleset", r))?;
        found.map_err(|what| {
            let text = format!("the nftables rules of {owner} are not those that ADD installed: {what}");
            Error::new(Code::Internal, text).detail(REMEDY)
        })
    }

    /// Checks the content of shared rules, as far as they exist (STATUS).
    ///
    /// # Errors
    /// Code 999, with the first changed rule.
    pub(crate) fn verify_shared(&self, kind: Kind) -> Result<()> {
        let layout = (kind.properties.nftables.layout)();
        let diff = LayoutDiff::of(&self.socket, kind.table(), &layout);
        match diff.map_err(|r| failure("check", kind, "read the ruleset", r))?.changed_rule() {
            Some(what) => Err(Error::new(Code::Internal, what).detail("`cnitool repair --all` restores it")),
            None => Ok(()),
        }
    }

    /// The ports that wait, or the first difference.
    fn find_drift(
        &self,
        owner: &Owner,
        kind: Kind,
        rules: &NftablesRules,
    ) -> Result<Result<Vec<String>, String>, RequestError> {
        match self.find_shared_drift(kind, &layout_of(kind, rules), &rules.openings)? {
            Some(what) => Ok(Err(what)),
            None => self.find_own_drift(&View::new(&self.socket, kind, 1), owner, rules),
        }
    }

    /// The first difference of the shared rules.
    pub(super) fn find_shared_drift(
        &self,
        kind: Kind,
        layout: &Layout,
        openings: &[(Family, Opening)],
    ) -> Result<Option<String>, RequestError> {
        let diff = LayoutDiff::of(&self.socket, kind.table(), layout)?;
        if let Some(what) = diff.missing_rule().or_else(|| diff.changed_rule()) {
            return Ok(Some(what));
        }
        tables::closed(&self.socket, openings)
    }

    /// The attachment's ports that wait, or the first difference of its own elements and rules.
    pub(super) fn find_own_drift(
        &self,
        view: &View<'_>,
        owner: &Owner,
        rules: &NftablesRules,
    ) -> Result<Result<Vec<String>, String>, RequestError> {
        let (kind, records) = (view.kind, &rules.records);
        let found = Installed::read(view, RecordKey::of(owner, kind))?;
        if found.records != *records {
            let missing = records.iter().find(|record| !found.records.contains(record));
            let what = missing.map_or_else(
                || "are not those of the configuration".to_owned(),
                |record| format!("lack {record}"),
            );
            return Ok(Err(format!("the {kind} rules {what}")));
        }
        let (label, mut waiting) = (&found.record_key.label, Vec::new());
        for (record, element) in records.iter().flat_map(|r| r.elements.iter().map(move |e| (r, e))) {
            match holder(view, element, label)? {
                Ok(None) => {}
                Ok(Some(other)) => waiting.push(format!("{other} has it now: {record}")),
                Err(what) => return Ok(Err(format!("an element of set {} {what}", element.set.name))),
            }
        }
        if let Some(rule) = rules.rules.first() {
            let here = query::rules(&self.socket, kind.table(), rule.chain)?;
            if here.iter().filter(|rule| rule.comment == *label).count() != rules.rules.len() {
                return Ok(Err("a rule with its conditions is missing".into()));
            }
            let layout = (kind.properties.nftables.layout)();
            let is_shared = |comment: &str| layout.rules.iter().any(|rule| rule.comment == comment);
            if here.iter().skip_while(|rule| !is_shared(&rule.comment)).any(|rule| rule.comment == *label) {
                return Ok(Err(
                    "a rule with its conditions follows a shared rule that it must precede".into()
                ));
            }
        }
        Ok(Ok(waiting))
    }

    /// An attachment's installed rules: a line for each record.
    pub(crate) fn describe(&self, owner: &Owner, kind: Kind) -> Result<Vec<String>> {
        let view = View::new(&self.socket, kind, 1);
        let found = Installed::read(&view, RecordKey::of(owner, kind));
        let found = found.map_err(|r| failure("list", owner, "read the ruleset", r))?;
        Ok(found.records.iter().map(Record::to_string).collect())
    }
}

/// The attachment that has an element for which this one waits. None: this one has it. An error: the difference.
fn holder(
    view: &View<'_>,
    element: &Element,
    label: &str,
) -> Result<Result<Option<String>, String>, RequestError> {
    Ok(match view.comment_of(element)? {
        Some(_) if element.set.is_shared => Ok(None),
        Some(holder) if holder == label => Ok(None),
        Some(other) if WaitingAttachments::read(view, element)?.has(label) => Ok(Some(other)),
        Some(other) => Err(format!("belongs to {other}")),
        None => Err("is missing".into()),
    })
}
