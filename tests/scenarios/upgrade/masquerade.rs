//! The reference's nftables masquerade, which the benchmark does not use: docs/benchmarks.md#how-it-is-measured.

use lab::{Lab, Release, skip};
use serde_json::json;

use crate::common::{host_local, leases};

/// DEL also deletes the rules of the other backend, iptables, and expects another message for a missing chain than this
/// release of iptables prints.
const UNEXPECTED: &str = "iptables v1.8.9 (nf_tables)";

#[test]
fn with_the_iptables_of_debian_12_the_references_first_del_of_an_nftables_masquerade_fails() {
    if !Release::V1_9_1.is_here() {
        return;
    }
    let lab = Lab::new();
    let version = lab.host().sh("iptables --version");
    if version.trim() != UNEXPECTED {
        skip(&format!("this host has {}, and the failure is that of {UNEXPECTED}", version.trim()));
        return;
    }
    let keys = json!({
        "bridge": "br0", "isGateway": true, "ipMasq": true, "ipMasqBackend": "nftables",
        "ipam": host_local(&[&["10.1.2.0/24"]]),
    });
    let call = lab.plugin("bridge").config(keys).on(&lab.container("pod")).by_release(Release::V1_9_1);
    let result = call.add().ok_result();
    assert!(lab.host().ruleset().contains("ip saddr 10.1.2.2 ip daddr != 10.1.2.0/24 masquerade"));
    let del = call.config(json!({"prevResult": result}));
    let failed = del.del();
    assert!(!failed.succeeded(), "{failed:?}");
    for words in ["iptables -t nat -D POSTROUTING", UNEXPECTED, ": Chain 'CNI-", "' does not exist"] {
        assert!(failed.stdout.contains(words), "{words}: {failed:?}");
    }
    // The interface is already deleted, so the next DEL does not look for rules.
    del.del().ok();
    assert!(leases().is_empty());
}
