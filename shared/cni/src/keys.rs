//! Records the keys that a plugin decodes, for tests that compare them with the documentation. Not compiled into plugins.

use std::cell::RefCell;
use std::collections::BTreeSet;

thread_local! {
    static LOOKED_FOR: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
}

/// Paths of the keys that `read` decodes in this thread, such as `ipam.ranges.subnet`, whether they exist or not. Keys of a nested object
/// are recorded only if the object exists.
pub fn looked_for(read: impl FnOnce()) -> BTreeSet<String> {
    LOOKED_FOR.take();
    read();
    LOOKED_FOR.take()
}

/// Records the fields of a struct at a path.
pub(crate) fn note(place: &str, fields: &[&str]) {
    let steps = place.split('.').filter_map(|step| step.split('[').next());
    let place: Vec<&str> = steps.filter(|step| !step.is_empty()).collect();
    let path = |field: &&str| [&place[..], &[*field]].concat().join(".");
    LOOKED_FOR.with_borrow_mut(|seen| seen.extend(fields.iter().map(path)));
}
