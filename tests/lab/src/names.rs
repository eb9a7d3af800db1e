//! Names of containers, across all tests of this process.
//!
//! Each test has its own lab, but cnitool's GC, doctor and metrics, and host-local's search for stale leases, look at the whole machine. A
//! namespace `/run/netns/gone` in another test's lab, or another test's plugin with this container id, makes the deleted container `gone` look
//! alive. Such a test fails only if the two tests run at the same moment. The check here does not depend on the moment: the whole run remembers
//! each name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

static NAMES: Mutex<BTreeMap<String, Uses>> = Mutex::new(BTreeMap::new());

#[derive(Debug, Default)]
struct Uses {
    tests: BTreeSet<String>,
    /// A test that needs the container of this name to be dead.
    claimed_by: Option<String>,
}

/// The test that the calling thread runs: libtest names its threads after them. `None` in threads that a test starts.
pub fn current_test() -> Option<String> {
    thread::current().name().map(str::to_owned)
}

/// Records that a test uses a container's name. Without a test, there is nothing to record.
///
/// # Panics
/// If another test has claimed the name.
pub fn record(name: &str, test: Option<&str>) {
    let Some(test) = test else { return };
    let mut names = lock();
    let uses = names.entry(name.to_owned()).or_default();
    uses.tests.insert(test.to_owned());
    if let Some(owner) = uses.claimed_by.clone().filter(|owner| *owner != test) {
        drop(names);
        refuse(name, &owner, test);
    }
}

/// Records that a test needs a container to be dead, so that no other test may use its name.
///
/// # Panics
/// If another test has used the name. Then it is not claimed, so that no other test fails.
pub fn claim(name: &str, test: Option<&str>) {
    let Some(test) = test else { return };
    let mut names = lock();
    let uses = names.entry(name.to_owned()).or_default();
    uses.tests.insert(test.to_owned());
    if let Some(other) = uses.tests.iter().find(|other| *other != test).cloned() {
        drop(names);
        refuse(name, test, &other);
    }
    uses.claimed_by = Some(test.to_owned());
}

fn lock() -> MutexGuard<'static, BTreeMap<String, Uses>> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refuse(name: &str, owner: &str, other: &str) -> ! {
    panic!(
        "the container {name:?} is deleted by the test {owner}, and the test {other} uses the same name. \
         Searches for running containers look at the whole machine, so the deleted container may look alive. \
         Choose a name in {owner} that no other test uses."
    );
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    fn refusal(job: fn()) -> String {
        *catch_unwind(job).unwrap_err().downcast().unwrap()
    }

    #[test]
    fn a_name_of_a_deleted_container_belongs_to_one_test_in_any_order() {
        let (first, second) = (Some("first::test"), Some("second::test"));
        claim("early", first);
        record("early", first);
        record("late", second);
        record("late", first);
        for text in [
            refusal(|| record("early", Some("second::test"))),
            refusal(|| claim("late", Some("first::test"))),
        ] {
            assert!(text.contains("first::test") && text.contains("second::test"), "{text}");
        }
        record("late", Some("third::test"));
        record("shared", first);
        record("shared", second);
        record("early", None);
        claim("shared", None);
    }
}
