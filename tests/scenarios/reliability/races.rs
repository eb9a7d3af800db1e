//! Many concurrent plugins on one network.

use faults::{Cause, Finish, Length, Race};
use lab::beyond_reference;

/// `make sweep` takes minutes, with a hundred workers.
fn race(workers: usize, addresses: u32) -> Finish {
    let finish = Race { workers, length: Length::Rounds(5), addresses }.run();
    assert!(finish.findings.is_empty(), "{}", finish.findings.join("\n"));
    assert!(finish.attached > 0, "{finish:?}");
    finish
}

#[test]
fn attachments_that_race_never_share_an_address_and_leave_nothing() {
    beyond_reference!("nothing-left");
    let finish = race(20, 1000);
    assert!(!finish.refused.contains_key(&Cause::Exhausted), "{finish:?}");
}

#[test]
fn attachments_that_race_for_too_few_addresses_are_refused_and_never_share_one() {
    beyond_reference!("nothing-left");
    let finish = race(20, 5);
    assert!(finish.refused.contains_key(&Cause::Exhausted), "{finish:?}");
}
