//! Many plugins at once, on one network.

use suite::beyond_reference;
use suite::sweep::Race;

#[test]
fn attachments_that_race_never_share_an_address_and_leave_nothing() {
    beyond_reference!("nothing-left");
    let finish = Race { workers: 20, rounds: 3 }.run();
    assert!(finish.findings.is_empty(), "{}", finish.findings.join("\n"));
    assert!(finish.attached > finish.refused, "{finish:?}");
}
