use serde_json::{Value, json};
use suite::{Lab, tcp_says, udp_says};

/// Two families, as most of the scenarios want them.
fn dual_stack() -> Value {
    json!({
        "bridge": "br0",
        "isDefaultGateway": true,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "fd00:1:2::/64"}]],
        },
    })
}

#[test]
fn two_containers_reach_each_other_and_the_host_in_both_families() {
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let call = lab.plugin("bridge").config(dual_stack());
    call.clone().on(&a).add().ok_result();
    call.on(&b).add().ok_result();

    assert_eq!(a.addresses("eth0"), ["10.1.2.2/24", "fd00:1:2::2/64"]);
    assert_eq!(b.addresses("eth0"), ["10.1.2.3/24", "fd00:1:2::3/64"]);
    for address in ["10.1.2.3", "fd00:1:2::3", "10.1.2.1", "fd00:1:2::1"] {
        assert!(a.reaches(address), "{address}");
    }
    let _servers = [b.serve_tcp("b", "[::]:80"), b.serve_udp("b", "0.0.0.0:53")];
    assert_eq!(tcp_says(&a, "[fd00:1:2::3]:80").as_deref(), Some("b fd00:1:2::2"));
    assert_eq!(udp_says(&a, "10.1.2.3:53").as_deref(), Some("b 10.1.2.2"));
}

#[test]
fn nothing_but_the_bridge_is_left_after_del() {
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let call = lab.plugin("bridge").config(dual_stack());
    call.clone().on(&a).add().ok_result();
    let before = lab.snapshot();
    call.clone().on(&b).add().ok_result();
    call.on(&b).del().ok();
    lab.snapshot().assert_same(&before);
}
