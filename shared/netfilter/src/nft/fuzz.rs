//! Messages to nf_tables from hostile rules.

use super::batch::Batch;
use super::install::layout_of;
use crate::kind::Rules;
use crate::owner::Owner;

/// Maximum number of rules of one mapping.
const ALTERNATIVES: usize = 64;

/// Maximum length of a comment that nft(8) reads.
const COMMENT_MAX: usize = 127;

/// Writing and parsing a record are inverse, and there are no more rules than the conditions have alternatives.
pub(crate) fn rules(owner: &Owner, rules: &dyn Rules) {
    let (kind, rules, label) = (rules.kind(), rules.nftables(), owner.label());
    let records = &rules.records;
    let (table, mut batch) = (kind.table(), Batch::new(None));
    for record in records {
        assert_eq!((kind.properties.nftables.parse)(&record.text).as_ref(), Some(record));
        assert!(record.text.len() <= COMMENT_MAX);
        record.elements.iter().for_each(|element| batch.add_element(table, element, &label));
    }
    assert!(rules.rules.len() <= ALTERNATIVES * records.len());
    layout_of(kind, &rules).rules.iter().chain(&rules.rules).for_each(|rule| batch.add_rule(table, rule));
    assert!(format!("{kind} {label}").len() <= COMMENT_MAX);
}
