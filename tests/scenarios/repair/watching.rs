//! What `cnitool repair --watch` takes for a loss.

use super::*;

#[test]
fn the_guard_of_route_localnet_is_back_after_a_flush_of_mangle() {
    beyond_reference!("repair");
    let lab = Lab::new();
    lab.container("pod");
    let tool = tool(&lab, "iptables");
    tool.says("add net pod --container-id pod");
    let is_guarded = || lab.host().sh("iptables-nft-save -t mangle").contains("127.0.0.0/8");
    assert!(is_guarded());
    let watching = Watching::start(&tool);
    // The first may be before it looks for the first time.
    for _ in 0..2 {
        flushes(&lab, "iptables-nft -t mangle -F");
        until("the guard is back", is_guarded);
    }
    assert_eq!(watching.end(), Some(0));
}
