//! `cnitool repair` and GC of the reference's rules.

use lab::{Lab, Release, beyond_reference, tcp_says};
use serde_json::json;

use super::{Setup, vanish_with_pair};
use crate::common::{TOOLS, both_families, dual_stack, host_local};
use crate::upgrade::repair;

impl Setup {
    /// Commands that remove the reference's rules for addresses and the jumps to its other rules, or all of its rules.
    fn losses(&self) -> [String; 2] {
        let (jumps, tables, nft) = if self.is_nftables() {
            let jumps = "flush chain inet cni_plugins_masquerade postrouting
                flush chain ip cni_hostport hostports; flush chain ip6 cni_hostport hostports";
            let all = "delete table inet cni_plugins_masquerade
                delete table ip cni_hostport; delete table ip6 cni_hostport";
            ("", "filter", [jumps, all])
        } else {
            ("$tool -t nat -F POSTROUTING; $tool -t nat -F CNI-HOSTPORT-DNAT", "filter nat", [""; 2])
        };
        let all = format!("for table in {tables}; do $tool -t $table -F; $tool -t $table -X; done");
        let accepts = "$tool-save -t filter | grep '^-A CNI-FORWARD .* -j ACCEPT$' | sed 's/^-A/-D/' | xargs -rL1 $tool";
        let in_iptables = |orders: &str| both_families(self.variant, orders);
        [
            in_iptables(&format!("{accepts}; {jumps}"))
                + &format!("; nft 'flush chain bridge nat PREROUTING; {}'", nft[0]),
            in_iptables(&all) + &format!("; nft 'delete table bridge nat; {}'", nft[1]),
        ]
    }
}

/// Repair installs rules of Ferrule, while parts of the reference's are still on the host.
#[test]
fn flushed_rules_of_the_reference_are_repaired_and_our_del_leaves_nothing() {
    beyond_reference!("repair");
    for setup in Setup::all() {
        for loss in setup.losses() {
            let at = format!("{setup:?}, {loss}");
            let lab = Lab::new();
            let far = lab.machine("far");
            let [first, pod] = ["first", "pod"].map(|id| lab.container(id));
            let [theirs, ours] = setup.tools(&lab);
            lab.host().sh(&both_families(setup.variant, "$tool -P FORWARD DROP"));
            // Shared chains and routes of both exist before, so that only the attachment can be left.
            for tool in [&theirs, &ours] {
                tool.says(&format!("add net first --container-id {}", first.id));
                ours.says(&format!("del net first --container-id {}", first.id));
            }
            lab.host().sh(&loss);
            let before = lab.snapshot();

            repair::restores_rules(&lab, [&theirs, &ours], &pod, &loss, &at);
            let _servers = [pod.serve_tcp("pod", "10.1.2.4:80"), far.serve_tcp("far", "198.51.100.2:7")];
            assert_eq!(tcp_says(&far, "198.51.100.1:8080").as_deref(), Some("pod 198.51.100.2"), "{at}");
            assert_eq!(tcp_says(&pod, "198.51.100.2:7").as_deref(), Some("far 198.51.100.1"), "{at}");
            ours.says(&format!("del net pod --container-id {}", pod.id));
            lab.snapshot().assert_same(&before);
        }
    }
}

/// ptp with a default route and masquerade. Without a backend, the reference uses iptables, and Ferrule repairs by nftables.
#[test]
fn flushed_masquerade_of_the_references_ptp_is_repaired_and_our_del_leaves_nothing() {
    beyond_reference!("repair");
    let (tables, table) =
        (both_families("nft", "$tool -t nat -F"), "nft delete table inet cni_plugins_masquerade");
    for (release, backend, loss) in [
        (Release::V1_1_1, None, &*tables),
        (Release::V1_9_1, None, &tables),
        (Release::V1_9_1, Some("iptables"), &tables),
        (Release::V1_9_1, Some("nftables"), table),
    ] {
        if !release.is_here() {
            continue;
        }
        let at = format!("{release} {backend:?}");
        let lab = Lab::new();
        let mut ptp = json!({"type": "ptp", "ipMasq": true, "ipam": host_local(&[&["10.1.2.0/24"]])});
        ptp["ipam"]["routes"] = json!([{"dst": "0.0.0.0/0"}]);
        backend.inspect(|backend| ptp["ipMasqBackend"] = json!(backend));
        lab.configure("10-net.conflist", &json!({"cniVersion": "1.0.0", "name": "net", "plugins": [ptp]}));
        let ours = lab.cnitool();
        repair::restores_masquerade(&lab, [&ours.clone().by_release(release), &ours], loss, &at);
    }
}

/// The reference still jumps to its chain, so the chain stays. Our rule that marks an empty chain as created here does not.
#[test]
fn a_flushed_chain_of_the_reference_is_empty_again_after_our_last_del() {
    beyond_reference!("firewall-upgrade");
    for setup in Setup::all() {
        let lab = Lab::new();
        let [stays, goes] = ["stays", "of-flushed-chain"].map(|id| lab.container(id));
        let [theirs, ours] = setup.tools(&lab);
        theirs.says(&format!("add net stays --container-id {}", stays.id));
        lab.host().sh(&both_families(setup.variant, "$tool -F CNI-FORWARD"));
        let rules = || lab.host().sh(&both_families(setup.variant, "$tool -S"));
        let before = rules();
        ours.says(&format!("add net of-flushed-chain --container-id {}", goes.id));
        assert_ne!(rules(), before, "{setup:?}");
        ours.says(&format!("del net of-flushed-chain --container-id {}", goes.id));
        assert_eq!(rules(), before, "{setup:?}");
    }
}

/// cnitool's GC, like libcni's, first runs DEL for the attachments in its cache. DEL finds all rules.
#[test]
fn gc_keeps_rules_of_the_reference_without_the_networks_name_until_del_of_the_cached_attachment() {
    beyond_reference!("firewall-upgrade");
    for setup in Setup::all() {
        let lab = Lab::new();
        let [stays, goes] = ["stays", "of-old-rules-gc"].map(|id| lab.container(id));
        let [theirs, ours] = setup.tools(&lab);
        theirs.says(&format!("add net stays --container-id {}", stays.id));
        let state = || lab.snapshot().without(&goes.id);
        let before = state();
        theirs.says(&format!("add net {0} --container-id {0}", goes.id));
        vanish_with_pair(&lab, &goes);
        for plugin in ["firewall", "portmap", "bridge"] {
            let call = lab.plugin(plugin).env("PATH", TOOLS).config(json!({"ipam": dual_stack()["ipam"]}));
            call.gc(&[("stays", "eth0")]).ok();
        }

        let changes = state().since(&before);
        assert!(!changes.contains("\n  - "), "{setup:?}: {changes}");
        let left = changes.lines().filter_map(|line| line.strip_prefix("  + ")).filter(|line| *line != "}");
        let (of_address, of_container): (Vec<_>, Vec<_>) = left.partition(|line| {
            let accepts = line.ends_with("accept") || line.ends_with("ACCEPT");
            accepts && ["10.1.2.3", "fd00:1:2::3"].iter().any(|address| line.contains(address))
        });
        assert_eq!(of_address.len(), 4, "{setup:?}: {changes}");
        assert!(of_container.iter().all(|line| line.contains(&goes.id)), "{setup:?}: {changes}");
        for (rule, is_left) in
            [("macspoofchk-of-old-rules-gc-eth0", true), ("dnat to 10.1.2.3:80", setup.is_nftables())]
        {
            let is_here = of_container.iter().any(|line| line.contains(rule));
            assert_eq!(is_here, is_left, "{setup:?}, {rule}: {changes}");
        }

        ours.says("gc net");
        state().assert_same(&before);
        ours.says("check net --all");
    }
}
