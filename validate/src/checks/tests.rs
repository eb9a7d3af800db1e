use std::fs;
use std::os::unix::fs::PermissionsExt;

use runtime::text;

use super::*;

/// Findings as `LINE:COLUMN level text`, with bridge, host-local, portmap and `foreign` installed.
fn findings(source: &str) -> Vec<String> {
    findings_of(source, true)
}

fn findings_of(source: &str, is_list: bool) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    for name in ["bridge", "host-local", "portmap", "foreign"] {
        fs::write(dir.path().join(name), "").unwrap();
        fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = [dir.path().to_owned()];
    let (root, problems) = text::parse(source);
    let network = Network::from_bytes(source.as_bytes()).ok();
    let mut report = Report::new(&path, is_list, network.as_ref());
    for problem in problems {
        report.error(problem.at, problem.text);
    }
    report.check(&root.unwrap());
    let shown = |finding: Finding| {
        let remedies = ["did you", "put it", "remove the quotes"];
        let is_shown = |help: &String| remedies.iter().any(|remedy| help.starts_with(remedy));
        let help = finding.help.filter(is_shown).unwrap_or_default();
        let text = format!(
            "{}:{} {} {} {help}",
            finding.at.line,
            finding.at.column,
            finding.level.name(),
            finding.text
        );
        text.replace(dir.path().to_str().unwrap(), "DIR").trim_end().to_owned()
    };
    report.finish().into_iter().map(shown).collect()
}

#[test]
fn the_specifications_own_kind_of_example_has_no_finding() {
    let source = r#"{
        "cniVersion": "1.1.0", "cniVersions": ["0.4.0", "1.0.0"], "name": "dbnet", "disableCheck": "true",
        "plugins": [
            {"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "mtu": 1400,
             "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/16", "gateway": "10.1.0.1"}]],
                      "routes": [{"dst": "0.0.0.0/0"}]},
             "dns": {"nameservers": ["10.1.0.1"]}},
            {"type": "portmap", "capabilities": {"portMappings": true}},
            {"type": "foreign", "whatever": {"it": "likes"}}
        ]}"#;
    assert_eq!(findings(source), [""; 0]);
}

#[test]
fn a_list_without_a_version_has_the_oldest_one_as_for_libcni() {
    let found = findings(r#"{"name": "n", "plugins": [{"type": "bridge"}]}"#);
    assert_eq!(found, ["1:1 warning: no cniVersion: the default 0.1.0 has no chains, CHECK, GC and STATUS"]);
}

#[test]
fn one_supported_version_is_enough_and_the_others_may_be_for_newer_runtimes() {
    let list = |versions: &str| {
        findings(&format!(r#"{{{versions}, "name": "n", "plugins": [{{"type": "bridge"}}]}}"#))
    };
    for accepted in [
        r#""cniVersion": "1.1.0", "cniVersions": ["0.4.0", "1.0.0", "1.1.0", "1.2.0"]"#,
        r#""cniVersion": "9.1.0", "cniVersions": ["1.0.0"]"#,
        r#""cniVersions": ["9.1.0", "1.0.0"]"#,
    ] {
        assert_eq!(list(accepted), [""; 0], "{accepted}");
    }
    for (refused, expected) in [
        (r#""cniVersion": "9.1.0""#, r#"error: cniVersion: "9.1.0" is not supported (supported versions: "#),
        (
            r#""cniVersion": "9.1.0", "cniVersions": ["9.2.0"]"#,
            r#"error: cniVersions: "9.2.0" is not supported ("#,
        ),
        (
            r#""cniVersion": "1.0.0", "cniVersions": ["v1"]"#,
            r#"error: cniVersions[0]: "v1" is not a version"#,
        ),
        (r#""cniVersion": "1.x.0""#, r#"error: cniVersion: "1.x.0" is not a version, such as 1.1.0"#),
    ] {
        let found = list(refused);
        assert!(found.len() == 1 && found[0].contains(expected), "{refused}: {found:?}");
    }
}

#[test]
fn relative_paths_are_warnings() {
    let source = r#"{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "bridge",
        "ipam": {"type": "host-local", "subnet": "10.1.0.0/16", "dataDir": "leases", "resolvConf": "/r.conf"}}]}"#;
    let expected = "2:76 warning: dataDir: \"leases\" is relative to the plugin's working directory, so a DEL from another \
                    directory does not find it; use an absolute path";
    assert_eq!(findings(source), [expected]);
}

#[test]
fn dnsname_needs_an_address_of_the_host_that_containers_reach() {
    let about_names = |first: &str| {
        let list =
            format!(r#"{{"cniVersion": "1.0.0", "name": "n", "plugins": [{first}, {{"type": "dnsname"}}]}}"#);
        let all = findings(&list).into_iter();
        all.filter_map(|finding| Some(finding.split_once(" dnsname: ")?.0.split_once(' ')?.1.to_owned()))
            .collect::<Vec<_>>()
    };
    for (first, expected) in [
        (r#"{"type": "macvlan", "master": "lo"}"#, Some("error:")),
        (r#"{"type": "tap"}"#, Some("error:")),
        (r#"{"type": "macvlan", "master": "lo"}, {"type": "ipvlan"}"#, Some("error:")),
        (r#"{"type": "bridge", "bridge": "not-here"}"#, Some("warning:")),
        (r#"{"type": "bridge", "isGateway": false}"#, Some("warning:")),
        (r#"{"type": "bridge", "isgateway": true}"#, None),
        (r#"{"type": "bridge", "isDefaultGateway": true}"#, None),
        // Another vendor's plugin may add any interface.
        (r#"{"type": "bridge"}, {"type": "foreign"}"#, None),
        (r#"{"type": "macvlan", "master": "lo"}, {"type": "foreign"}"#, None),
        (r#"{"type": "ptp"}"#, None),
        (r#"{"type": "foreign"}"#, None),
        (r#"{"type": "macvlan", "master": "lo"}, {"type": "ptp"}"#, None),
    ] {
        assert_eq!(about_names(first), expected.into_iter().collect::<Vec<_>>(), "{first}");
    }
}

#[test]
fn every_problem_is_found_in_one_run_with_its_path_and_the_nearest_known_key() {
    let source = r#"{
  "cniVersion": "1.1.0",
  "name": "my net",
  "plugins": [
    {"type": "bridge", "isGatway": true, "mtu": "1500", "vlan": 5000, // wrong
     "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0", "gatway": "10.1.0.1"}]]}},
    {"type": "portmap", "capabilities": {"portMapping": true}, "backend": "nftable"},
    {"type": "tunning"},
    {"bridge": "x"},
  ]
}"#;
    assert_eq!(
        findings(source),
        [
            r#"3:11 error: the network's name "my net" has ' ' in it; only letters, digits, '_', '.' and '-' are allowed"#,
            r#"5:24 warning: plugin bridge has no key "isGatway" did you mean "isGateway"?"#,
            "5:49 error: mtu: expected a number from 0 to 65535, found a string remove the quotes",
            "5:65 error: vlan: 5000 is not a number from 0 to 4094",
            "5:71 error: JSON has no comments",
            r#"6:60 error: subnet: "10.1.0.0" has no prefix length, such as 10.1.0.0/24"#,
            r#"6:72 warning: ranges[0][0] has no key "gatway" did you mean "gateway"?"#,
            r#"7:42 warning: plugin portmap does not use the capability "portMapping" did you mean "portMappings"?"#,
            r#"7:75 error: backend: "nftable" is none of nftables, iptables did you mean "nftables"?"#,
            r#"8:14 error: no plugin "tunning" in DIR did you mean "tuning"?"#,
            "9:5 error: type is missing: the name of a plugin",
            "9:20 error: a comma before the closing ']' is not JSON",
        ]
    );
}

#[test]
fn a_value_of_another_type_is_named_in_the_words_of_json_with_its_remedy() {
    let ipam = |keys: &str| format!(r#"{{"type": "bridge", "ipam": {{"type": "host-local", {keys}}}}}"#);
    for (plugin, expected) in [
        (
            ipam(r#""ranges": [{"subnet": "10.1.0.0/16"}]"#),
            "ranges[0]: expected a list of objects, found an object put it into [ ]",
        ),
        (ipam(r#""ranges": 5"#), "ranges: expected a list of lists of objects, found a number"),
        (
            r#"{"type": "bridge", "dns": {"search": "a"}}"#.to_owned(),
            "search: expected a list of strings, found a string put it into [ ]",
        ),
        (
            r#"{"type": "bridge", "isGateway": "true"}"#.to_owned(),
            "isGateway: expected true or false, found a string remove the quotes",
        ),
        (
            r#"{"type": "bridge", "mtu": "big"}"#.to_owned(),
            "mtu: expected a number from 0 to 65535, found a string",
        ),
        (
            r#"{"type": "bridge", "bridge": 5}"#.to_owned(),
            "bridge: expected the name of an interface, found a number",
        ),
        (
            r#"{"type": "flannel", "delegate": {"type": "flannel"}}"#.to_owned(),
            "delegate.type: flannel cannot delegate to itself",
        ),
        (
            r#"{"type": "flannel", "delegate": {"name": "x"}}"#.to_owned(),
            "delegate.name must not be set: flannel sets it",
        ),
    ] {
        let source = format!(r#"{{"cniVersion": "1.0.0", "name": "n", "plugins": [{plugin}]}}"#);
        let found = findings(&source);
        assert!(
            found.iter().any(|finding| finding.ends_with(&format!(" error: {expected}"))),
            "{plugin}: {found:?}"
        );
    }
    for (list, expected) in [
        (
            r#"{"cniVersion": "1.2.0", "name": "n", "plugins": []}"#,
            "cniVersion: \"1.2.0\" is not supported (supported versions:",
        ),
        (
            r#"{"cniVersion": "1.0.0", "name": "n", "plugins": "bridge"}"#,
            "plugins: expected a list of plugin objects, found a string",
        ),
        (
            r#"{"cniVersion": "1.0.0", "name": "n", "plugins": {"type": "bridge"}}"#,
            "found an object put it into [ ]",
        ),
    ] {
        assert!(
            findings(list).iter().any(|finding| finding.contains(expected)),
            "{list}: {:?}",
            findings(list)
        );
    }
}

#[test]
fn the_problem_of_a_misplaced_plugin_names_the_right_place() {
    let source = r#"{"cniVersion": "1.0.0", "name": "n", "plugins": [
        {"type": "portmap"}, {"type": "host-local"}, {"type": "bridge", "ipam": {"type": "portmap"}}]}"#;
    assert_eq!(
        findings(source),
        [
            "2:18 error: portmap needs an earlier plugin, and is the first of its list",
            "2:39 error: host-local is an IPAM plugin, for the key ipam of another plugin",
            "2:90 error: portmap is a chained plugin, after an interface plugin",
        ]
    );
}

#[test]
fn keys_are_case_insensitive_and_a_conf_file_may_contain_a_single_plugin() {
    let source =
        r#"{"CNIVersion": "0.4.0", "name": "n", "type": "bridge", "isgateway": true, "disableCheck": true}"#;
    let findings = findings(source);
    assert_eq!(findings, ["1:1 error: a .conflist needs a list of plugins"]);
}

#[test]
fn keys_that_only_a_runtime_may_set_are_reported() {
    let source = r#"{"cniVersion": "1.0.0", "name": "n", "plugins": [
        {"type": "bridge", "runtimeConfig": {}, "prevresult": {}, "cni.dev/valid-attachments": []}]}"#;
    assert_eq!(
        findings(source),
        [
            "2:28 warning: runtimeConfig is set by the runtime: remove it",
            "2:49 warning: prevresult is set by the runtime: remove it",
            "2:67 warning: cni.dev/valid-attachments is set by the runtime: remove it",
        ]
    );
}

#[test]
fn a_plugin_without_a_name_can_only_be_a_part_of_a_network() {
    let source = r#"{"type": "portmap", "sant": true}"#;
    assert_eq!(
        findings_of(source, false),
        [
            "1:1 warning: name is missing: the plugin can only be part of the network that has the name of \
             its directory",
            "1:10 warning: portmap receives no ports: it does not declare the capability portMappings",
            r#"1:21 warning: plugin portmap has no key "sant" did you mean "snat"?"#,
        ]
    );
}
