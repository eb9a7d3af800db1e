//! flannel's original plugin, written in Go, and Ferrule's take turns. The last package of the original is in Debian 11: it
//! knows neither IPv6 nor versions of the protocol after 0.4.0.

use std::path::{Path, PathBuf};

use lab::{Release, unpacked};

use super::*;
use crate::upgrade::{Who, gc, repair};

/// flanneld's file, without IPv6. Either flanneld masquerades, or the bridge.
fn flanneld_masquerades(it_does: bool) {
    flanneld_says(&format!(
        "FLANNEL_NETWORK=10.42.0.0/16\nFLANNEL_SUBNET=10.42.1.1/24\nFLANNEL_MTU=1400\nFLANNEL_IPMASQ={it_does}\n"
    ));
}

/// The directories of the original plugin and of the reference's bridge, for each release of the bridge. None: the test counts as skipped.
fn originals(tree: &Path) -> Vec<[PathBuf; 2]> {
    let bridges = Release::with("bridge").into_iter().filter_map(Release::dir);
    bridges.map(|bridge| [tree.join("usr/lib/cni"), bridge]).collect()
}

#[test]
fn ferrule_and_the_original_plugin_delete_each_others_attachments_and_save_the_same_keys() {
    beyond_reference!("flannel");
    let Some(tree) = unpacked("flannel") else { return };
    for [flannel_dir, bridge_dir] in originals(&tree) {
        let lab = Lab::new();
        let call = flannel(&lab).config(json!({"cniVersion": "0.4.0"}));
        flanneld_masquerades(true);
        settled(&lab, &call);
        let [pod, other] = ["pod", "other"].map(|id| lab.container(id));
        let by_original = |pod| call.clone().on(pod).in_dir(&flannel_dir).also_in_dir(&bridge_dir);
        by_original(&other).add().ok_result();
        let before = lab.snapshot();
        let (original, call) = (by_original(&pod), call.clone().on(&pod));

        let result = original.add().ok_result();
        let mut theirs = document("pod");
        // Later releases write ranges instead, as Ferrule does.
        let subnet = theirs["ipam"].as_object_mut().unwrap().remove("subnet").unwrap();
        theirs["ipam"]["ranges"] = json!([[{"subnet": subnet}]]);
        call.check(&result).ok();
        gc::keeps_valid_and_removes_stale(&lab, Who::Ours, &call, [&pod, &other], &result, &before);
        call.del().ok();
        assert_eq!(kept(), ["other"]);
        lab.snapshot().assert_same(&before);

        call.add().ok_result();
        let mut ours = document("pod");
        // Other programs ignore this key.
        assert_eq!(ours.as_object_mut().unwrap().remove("ferrule.ifname"), Some(json!("eth0")));
        assert_eq!(ours, theirs);
        original.del().ok();
        assert_eq!(kept(), ["other"]);
        lab.snapshot().assert_same(&before);
    }
}

#[test]
fn flushed_masquerade_of_the_original_plugins_bridge_is_repaired_and_our_del_leaves_nothing() {
    beyond_reference!("flannel");
    let Some(tree) = unpacked("flannel") else { return };
    for [flannel_dir, bridge_dir] in originals(&tree) {
        let lab = Lab::new();
        flanneld_masquerades(false);
        let plugin = json!({"type": "flannel", "delegate": {"isDefaultGateway": true}});
        lab.configure("10-net.conflist", &json!({"cniVersion": "0.4.0", "name": "net", "plugins": [plugin]}));
        let ours = lab.cnitool();
        let path = format!("{}:{}", flannel_dir.display(), bridge_dir.display());
        let theirs = ours.clone().env("CNI_PATH", &path);
        repair::restores_masquerade(&lab, [&theirs, &ours], "iptables -t nat -F", &path);
        assert!(kept().is_empty(), "{path}");
    }
}
