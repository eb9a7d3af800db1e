//! Messages to nf_tables of hostile rules.

use super::batch::Batch;
use super::element::Record;
use super::install::{mark_of, own_rules};
use super::layout::Layout;
use crate::owner::Owner;
use crate::rules::Rules;

/// The most rules that one mapping may become.
const ALTERNATIVES: usize = 64;

/// A record is told and read back, and no more rules are made than the conditions have alternatives.
pub(crate) fn rules(owner: &Owner, rules: &Rules) {
    let (records, table) = (Record::all(rules), rules.kind().table());
    let mut batch = Batch::new(None);
    for record in &records {
        assert_eq!(record.to_string().parse().as_ref(), Ok(record));
        record.elements().iter().for_each(|element| batch.add_element(table, element, &owner.label()));
    }
    let layout = Layout::of(rules.kind(), &records, mark_of(rules));
    let own = own_rules(owner, rules);
    assert!(own.len() <= ALTERNATIVES * records.len());
    layout.rules.iter().chain(&own).for_each(|rule| batch.add_rule(table, rule));
    assert!(owner.label().len() < 128);
}
