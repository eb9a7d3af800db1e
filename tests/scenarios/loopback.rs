use lab::Lab;
use serde_json::{Value, json};

use crate::common::is_up;

#[test]
fn the_loopback_interface_comes_up_and_answers_in_both_families() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let result = lab.plugin("loopback").ifname("lo").on(&pod).add().ok_result();
    assert!(pod.reaches("127.0.0.1"));
    assert!(pod.reaches("::1"));
    assert_eq!(result["interfaces"][0]["name"], "lo");
    assert_eq!(result["interfaces"][0]["sandbox"], pod.path().to_str().unwrap());
    assert_eq!(addresses(&result), ["127.0.0.1/8", "::1/128"]);
}

fn addresses(result: &Value) -> Vec<&str> {
    result["ips"].as_array().unwrap().iter().map(|ip| ip["address"].as_str().unwrap()).collect()
}

#[test]
fn del_sets_the_loopback_interface_down() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = lab.plugin("loopback").ifname("lo").on(&pod);
    call.add().ok_result();
    assert!(is_up(&pod, "lo"));
    call.del().ok();
    assert!(!is_up(&pod, "lo"));
}

#[test]
fn plugins_that_need_no_cni_args_ignore_malformed_and_unknown_ones() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let prev = json!({"cniVersion": "1.0.0", "ips": [{"address": "127.0.0.1/8"}]});
    for args in ["none", "COLOUR=red", ";;", "=", "IgnoreUnknown=maybe"] {
        for plugin in ["loopback", "portmap"] {
            let call =
                lab.plugin(plugin).ifname("lo").on(&pod).args(args).config(json!({"prevResult": prev}));
            call.add().ok_result();
            call.check(&prev).ok();
            call.del().ok();
        }
    }
}
