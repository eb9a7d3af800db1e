//! Every decoder there is, for the property test and the fuzz target alike.

use netlink::wire::Frames;
use netlink::{Address, BridgeVlan, Link, Neighbour, Route, Rule};

/// Takes bytes for a datagram, and for the payload of each kind of message.
pub fn everything(bytes: &[u8]) {
    payload(bytes);
    for frame in Frames::new(bytes) {
        let _ = frame.status().map_err(|refusal| refusal.during("read", "bytes").to_string());
        payload(frame.payload);
    }
}

fn payload(bytes: &[u8]) {
    let _ = Link::parse(bytes);
    let _ = Address::parse(bytes);
    let _ = Route::parse(bytes);
    let _ = Rule::parse(bytes).map(|rule| rule.to_string());
    let _ = Neighbour::parse(bytes);
    let _ = BridgeVlan::parse(bytes);
}
