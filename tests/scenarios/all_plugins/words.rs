//! Words that programs parse and people search their logs for: docs/errors.md#words.

use lab::{Call, Lab, beyond_reference, plugins, under_test};
use serde_json::json;

use crate::common::host_local;

/// A plugin's stderr when it is started without any input.
fn said_by(lab: &Lab, plugin: &str) -> String {
    let bare = ["PATH", "CNI_IFNAME", "CNI_PATH"].into_iter().fold(lab.plugin(plugin), Call::without);
    let outcome = bare.stdin("").run_as_is();
    outcome.ok();
    outcome.stderr
}

/// The core of a version number in Semantic Versioning 2.0.0, with or without a `v`.
fn semantic(text: &str) -> Option<[u64; 3]> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let (text, build) = text.split_once('+').unwrap_or((text, "0"));
    let identifier = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let core: Option<Vec<u64>> = text.split('.').map(|number| number.parse().ok()).collect();
    core?.try_into().ok().filter(|_| build.split('.').all(identifier))
}

/// Nomad's fingerprint (client/fingerprint/plugins_cni.go): the first word that is a semantic version.
fn found_by_nomad(stderr: &str) -> Option<[u64; 3]> {
    stderr.split_whitespace().find_map(semantic)
}

/// nerdctl's `FirewallPluginGEQVersion` (pkg/netutil/cni_plugin_unix.go): a line that begins with these words, and
/// continues with a semantic version. nerdctl only checks firewall.
fn found_by_nerdctl(stderr: &str, plugin: &str) -> Option<[u64; 3]> {
    let words = format!("CNI {plugin} plugin ");
    stderr.lines().find_map(|line| line.strip_prefix(&words)).and_then(semantic)
}

/// Puppet's module nomad_cni: the last word of the first line.
fn found_by_puppet(stderr: &str) -> Option<[u64; 3]> {
    stderr.lines().next()?.split_whitespace().last().and_then(semantic)
}

#[test]
fn without_a_command_each_plugin_prints_its_release_as_nomad_nerdctl_and_puppet_parse_it() {
    beyond_reference!("words");
    let lab = Lab::new();
    for plugin in plugins() {
        let said = said_by(&lab, &plugin);
        let release = Some([1, 9, 1]);
        assert_eq!(found_by_nomad(&said), release, "{said}");
        assert_eq!(found_by_nerdctl(&said, &plugin), release, "{said}");
        assert_eq!(found_by_puppet(&said), release, "{said}");
        let lines: Vec<_> = said.lines().collect();
        assert!(lines[0].starts_with(&format!("CNI {plugin} plugin v1.9.1+ferrule.")), "{said}");
        let spoken = "CNI protocol versions supported: 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0";
        assert_eq!(lines[1..], [spoken]);
    }
}

#[test]
fn the_rules_of_the_three_parsers_are_as_strict_as_theirs() {
    let older = "CNI firewall plugin v1.1.0\nCNI protocol versions supported: 0.4.0, 1.0.0\n";
    for found in [found_by_nomad(older), found_by_nerdctl(older, "firewall"), found_by_puppet(older)] {
        assert_eq!(found, Some([1, 1, 0]));
    }
    let other = "CNI plugin firewall 0.1.0 (Ferrule)\n";
    assert_eq!((found_by_nerdctl(other, "firewall"), found_by_puppet(other)), (None, None));
    assert_eq!(semantic("v1.9.1+ferrule.0.1.0"), Some([1, 9, 1]));
    for none in ["unknown", "v1", "1.9.1+", "1.9.1+a..b", "0.1.0,", "v1.9.1+a_b"] {
        assert_eq!(semantic(none), None, "{none}");
    }
}

/// Asserts that a refused call has exactly this message, even if a library appends the details.
#[track_caller]
fn is_refused_with(call: &Call, command: &str, words: &str) {
    let error = call.run(command).error();
    assert_eq!((error.msg.as_str(), error.details.as_str()), (words, ""), "{command} of {}", call.plugin());
}

#[test]
fn a_command_that_is_newer_than_the_configuration_is_refused_in_known_words() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    for plugin in plugins() {
        let call = lab.plugin(&plugin).version("0.3.1").on(&pod).config(json!({"prevResult": {}}));
        is_refused_with(&call, "CHECK", "config version does not allow CHECK");
        if !under_test().reference {
            is_refused_with(&call, "GC", "config version does not allow GC");
            is_refused_with(&call, "STATUS", "config version does not allow STATUS");
        }
    }
}

#[test]
fn two_addresses_of_a_family_before_0_3_0_are_refused_in_known_words_also_through_bridge() {
    let lab = Lab::new();
    let keys = json!({"bridge": "br0", "ipam": host_local(&[&["10.1.2.0/24"], &["10.1.3.0/24"]])});
    for version in ["0.1.0", "0.2.0"] {
        let words = format!("CNI version {version} does not support more than 1 address per family");
        // The reference leaves its interface in the container.
        let pod = lab.container(&format!("pod-{version}"));
        for plugin in ["host-local", "bridge"] {
            is_refused_with(
                &lab.plugin(plugin).version(version).on(&pod).config(keys.clone()),
                "ADD",
                &words,
            );
        }
    }
}

#[test]
fn an_interface_name_with_a_slash_is_refused_in_known_words() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let prev = json!({"cniVersion": "1.0.0", "interfaces": []});
    let call = lab.plugin("tuning").on(&pod).ifname("eth/0").config(json!({"prevResult": prev}));
    let error = call.add().error();
    if !under_test().reference {
        // The reference's library refuses the name before the plugin can.
        let words = "Interface name (eth/0) contains an invalid character /";
        assert!(error.msg.contains(words), "{error:?}");
    }
}

/// Asserts the exact message of host-local's ADD, whatever its details are.
#[track_caller]
fn add_says(call: &Call, words: &str) {
    assert_eq!(call.add().error().msg, words);
}

#[test]
fn host_locals_refusals_have_the_words_that_alerts_search_for() {
    let lab = Lab::new();
    let call = |id: &str, sets: &[&[&str]]| {
        let ipam = lab.plugin("host-local").config(json!({"ipam": host_local(sets)}));
        ipam.env("CNI_CONTAINERID", id).env("CNI_NETNS", "/run/netns/of-nobody")
    };
    let small: &[&[&str]] = &[&["10.0.0.0/30", "10.0.1.0/30"]];
    call("a", small).add().ok_result();
    let refused = "failed to allocate for range 0:";
    let ends = "10.0.0.1-10.0.0.2,10.0.1.1-10.0.1.2";
    let taken = format!("{refused} requested IP address 10.0.0.2 is not available in range set {ends}");
    add_says(&call("b", small).args("IP=10.0.0.2"), &taken);
    let gateway = format!("{refused} requested ip 10.0.1.1 is subnet's gateway");
    add_says(&call("b", small).args("IP=10.0.1.1"), &gateway);
    let nowhere = "failed to allocate all requested IPs: 10.9.9.9";
    add_says(&call("b", small).args("IP=10.9.9.9"), nowhere);
    let twice = format!("{refused} 10.0.0.2 has been allocated to a, duplicate allocation is not allowed");
    add_says(&call("a", small), &twice);
    call("b", small).add().ok_result();
    add_says(&call("c", small), &format!("{refused} no IP addresses available in range set: {ends}"));
}
