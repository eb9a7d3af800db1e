//! What a plugin must be permitted, and what it says where it is not.

use serde_json::json;
use suite::{Lab, beyond_reference};

use crate::common::dual_stack;

/// The capabilities that docs/reliability.md#privileges names are enough, and without one the error says what misses.
#[test]
fn bridge_needs_two_capabilities_and_says_so() {
    beyond_reference!("nothing-left");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = lab.plugin("bridge").config(dual_stack()).config(json!({"ipMasq": true})).on(&pod);
    let with = |capabilities: &str| {
        let bounding = format!("--bounding-set=-all{capabilities}");
        call.clone().under(&["setpriv".into(), bounding, "--inh-caps=-all".into()])
    };
    let enough = with(",+net_admin,+sys_admin");
    let result = enough.add().ok_result();
    enough.check(&result).ok();
    enough.del().ok();
    let before = lab.snapshot();
    for (capabilities, word) in
        [("", "CAP_SYS_ADMIN"), (",+net_admin", "CAP_SYS_ADMIN"), (",+sys_admin", "ermitted")]
    {
        let error = with(capabilities).add().error();
        assert!(format!("{error:?}").contains(word), "{capabilities}: {error:?}");
        lab.snapshot().assert_same(&before);
        with(capabilities).del().error();
    }
}
