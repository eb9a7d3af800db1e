//! flannel's original plugin, written in Go, and Ferrule's take turns. The last package of the original is in Debian 11: it
//! knows neither IPv6 nor versions of the protocol after 0.4.0.

use lab::{Release, unpacked};

use super::*;

#[test]
fn ferrule_and_the_original_plugin_delete_each_others_attachments_and_save_the_same_keys() {
    beyond_reference!("flannel");
    let Some(tree) = unpacked("flannel") else { return };
    for bridge in Release::with("bridge").into_iter().filter_map(Release::dir) {
        let lab = Lab::new();
        let call = flannel(&lab).config(json!({"cniVersion": "0.4.0"}));
        flanneld_says(
            "FLANNEL_NETWORK=10.42.0.0/16\nFLANNEL_SUBNET=10.42.1.1/24\nFLANNEL_MTU=1400\nFLANNEL_IPMASQ=true\n",
        );
        settled(&lab, &call);
        let pod = lab.container("pod");
        let before = lab.snapshot();
        let call = call.on(&pod);
        let original = call.clone().in_dir(&tree.join("usr/lib/cni")).also_in_dir(&bridge);

        let result = original.add().ok_result();
        let mut theirs = document("pod");
        // Later releases write ranges instead, as Ferrule does.
        let subnet = theirs["ipam"].as_object_mut().unwrap().remove("subnet").unwrap();
        theirs["ipam"]["ranges"] = json!([[{"subnet": subnet}]]);
        call.check(&result).ok();
        call.del().ok();
        assert!(kept().is_empty());
        lab.snapshot().assert_same(&before);

        call.add().ok_result();
        let mut ours = document("pod");
        // Other programs ignore this key.
        assert_eq!(ours.as_object_mut().unwrap().remove("ferrule.ifname"), Some(json!("eth0")));
        assert_eq!(ours, theirs);
        original.del().ok();
        assert!(kept().is_empty());
        lab.snapshot().assert_same(&before);
    }
}
