//! Which keys are looked for in a document: for tests that hold what is written about a configuration against what is
//! read of it. It is not compiled into a plugin.

use std::cell::RefCell;
use std::collections::BTreeSet;

thread_local! {
    static LOOKED_FOR: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
}

/// The paths of the keys that `read` decodes in this thread, such as `ipam.ranges.subnet`, whether they are there or not.
/// Keys of an object in an object are known only if that one is there.
pub fn looked_for(read: impl FnOnce()) -> BTreeSet<String> {
    LOOKED_FOR.take();
    read();
    LOOKED_FOR.take()
}

/// Notes the fields of a struct at a place of the document.
pub(crate) fn note(place: &str, fields: &[&str]) {
    let steps = place.split('.').filter_map(|step| step.split('[').next());
    let place: Vec<&str> = steps.filter(|step| !step.is_empty()).collect();
    let path = |field: &&str| [&place[..], &[*field]].concat().join(".");
    LOOKED_FOR.with_borrow_mut(|seen| seen.extend(fields.iter().map(path)));
}
