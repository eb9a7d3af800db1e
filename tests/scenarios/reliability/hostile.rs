//! Hostile input for the real executables.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use faults::Target;
use lab::{Call, Lab, beyond_reference};
use serde_json::{Value, json};

use crate::all_plugins::bad_input::{Bad, refuses};
use crate::common::dual_stack;

/// Memory limit of a plugin, for prlimit(1): 64 MB.
const MEMORY: [&str; 2] = ["prlimit", "--as=67108864"];

/// The names of all plugins.
fn plugins() -> BTreeSet<String> {
    Target::plugins().iter().map(|target| target.plugin().to_owned()).collect()
}

/// Documents, each with a word of the expected error. Without their last member, most of them are valid networks, which cnitool would attach.
/// The error for a deeply nested document quotes a line of it, so their lines are short.
fn bulky() -> Vec<(&'static str, String)> {
    let with = |member: &str| {
        format!(r#"{{"cniVersion": "1.0.0", "name": "net", "plugins": [{{"type": "loopback"}}], {member}}}"#)
    };
    // cnitool passes this member to the plugin without decoding it.
    let in_plugin = |value: &str| {
        format!(
            r#"{{"cniVersion": "1.0.0", "name": "net", "plugins": [{{"type": "loopback", "x": {value}}}]}}"#
        )
    };
    let mut keys = String::new();
    (0..1_000_000).for_each(|n| write!(keys, r#""{n}":0,"#).unwrap());
    let (few, list) = (&keys[..3_500_000], "[0],".repeat(900_000));
    let text = |length: usize| "a".repeat(length << 20);
    vec![
        ("4194304 bytes", " ".repeat(100 << 20) + &with(r#""x": 0"#)),
        ("4194304 bytes", with(&format!(r#""x": "{}""#, text(10)))),
        ("4194304 bytes", with(&format!(r#"{keys}"": 0"#))),
        ("65536 values", with(&format!(r#"{}"": 0"#, &few[..=few.rfind(',').unwrap()]))),
        ("65536 values", with(&format!(r#""x": [{list}0]"#))),
        ("65536 values", with(&format!(r#""x": {}{}"#, "[".repeat(100_000), "]".repeat(100_000)))),
        ("65536 values", r#"{"a":"#.repeat(100_000)),
        ("recursion", "[\n".repeat(60_000)),
        ("recursion", "{\"a\":\n".repeat(60_000)),
        ("recursion", in_plugin(&format!("{}{}", "[\n".repeat(60_000), "]".repeat(60_000)))),
        (
            "name",
            format!(r#"{{"name": "{}", "plugins": [{{"type": "loopback"}}], "prevResult": {{}}}}"#, text(3)),
        ),
        ("number out of range", in_plugin("1e999")),
        ("number out of range", in_plugin(&"9".repeat(1 << 20))),
    ]
}

#[test]
fn a_document_that_would_take_much_memory_or_time_gets_an_error() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let documents = bulky();
    let before = lab.snapshot();
    for plugin in &plugins() {
        let call = lab.plugin(plugin).on(&pod).under(&MEMORY.map(str::to_owned));
        for (culprit, document) in &documents {
            let call = call.clone().stdin(document.as_str());
            for outcome in [call.add(), call.del()] {
                let error = outcome.error();
                assert!([6, 7].contains(&error.code) && error.msg.contains(culprit), "{culprit}: {error:?}");
                assert!(outcome.stdout.len() < 4096, "{culprit}");
            }
        }
    }
    lab.snapshot().assert_same(&before);
}

/// The largest accepted values, for each key that a plugin reads.
#[test]
fn a_huge_value_of_a_known_key_is_handled() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    let pod = lab.container("pod");
    // A bridge stays after a failure on purpose, so create it before.
    lab.host().sh("ip link add cni0 address 02:00:00:00:00:01 type bridge; ip link set cni0 up");
    let before = lab.snapshot();
    let text = "a".repeat(4_000_000);
    let many = |value: Value| vec![value; 20_000];
    let holes: Vec<String> = (0..60_000).map(|n| format!("fd00::{n:x}:1")).collect();
    for (plugin, keys) in [
        ("bridge", json!({"bridge": text})),
        ("bridge", json!({"ipMasqBackend": text})),
        ("bridge", json!({"runtimeConfig": {"mac": text}})),
        ("bridge", json!({"ipam": {"type": text}})),
        ("bridge", json!({"vlanTrunk": many(json!({"id": 4095}))})),
        ("host-local", json!({"ipam": {"subnet": text}})),
        ("host-local", json!({"ipam": {"ranges": [many(json!({"subnet": "10.0.0.0/24"}))]}})),
        (
            "host-local",
            json!({"ipam": {"ranges": [[{"subnet": "fd00::/64", "exclude": many("fd00::/64".into())}]]}}),
        ),
        (
            "host-local",
            json!({"ipam": {"ranges": [[{"subnet": "fd00::/64", "exclude": holes}]]}, "runtimeConfig": {"ips": ["::1"]}}),
        ),
        ("host-local", json!({"ipam": {"subnet": "10.0.0.0/24", "dataDir": format!("/{text}")}})),
        ("tuning", json!({"prevResult": {}, "sysctl": {text.as_str(): "1"}})),
        ("tuning", json!({"prevResult": {}, "mac": text})),
        ("portmap", json!({"prevResult": {}, "conditionsV4": many("-s".into()), "backend": "nftables"})),
        ("portmap", json!({"prevResult": {}, "conditionsV4": ["tcp sport {1,2} ".repeat(64)]})),
        ("portmap", json!({"prevResult": {}, "externalSetMarkChain": text})),
        ("loopback", json!({"prevResult": {"ips": many(json!({"address": text[..300]}))}})),
    ] {
        let call = lab.plugin(plugin).config(keys.clone()).on(&pod).under(&MEMORY.map(str::to_owned));
        let outcome = call.add();
        let error = outcome.error();
        let key = keys.as_object().unwrap().keys().next_back().unwrap();
        assert!([2, 5, 6, 7].contains(&error.code), "{plugin} {key}: code {}", error.code);
        assert!(outcome.stdout.len() < 1 << 16, "{plugin} {key}: {} bytes", outcome.stdout.len());
    }
    lab.snapshot().assert_same(&before);
}

#[test]
fn cnitool_refuses_input_that_would_need_much_memory_or_time() {
    let lab = Lab::new();
    lab.container("pod");
    let tool = lab.cnitool().under(&MEMORY.map(str::to_owned));
    let file = lab.dir().join("net.conflist");
    fs::create_dir_all("/etc/cni/net.d").unwrap();
    for (culprit, document) in bulky() {
        fs::write(&file, &document).unwrap();
        fs::copy(&file, "/etc/cni/net.d/10-net.conflist").unwrap();
        // cnitool's own parser has another word for it.
        let words = if culprit == "recursion" { [culprit, "nested too deeply"] } else { [culprit; 2] };
        for line in [format!("validate {}", file.display()), "add net pod".to_owned()] {
            let run = tool.run(&line);
            let said = format!("{}{}", run.stdout, run.stderr);
            let shown = said.get(..4096).unwrap_or(&said);
            // 1: a plugin's error; 3: a mistake in the configuration.
            assert!(matches!(run.exit, Some(1 | 3)), "{line} exits with {:?}: {shown}", run.exit);
            assert!(words.iter().any(|word| said.contains(word)), "{line} does not say {culprit}: {shown}");
            assert!(run.stderr.len() < 4096, "{line}, {culprit}: {} bytes", run.stderr.len());
        }
    }
}

/// Strings that might leave a directory, end a line, be an option or be expanded.
const REACHING: [&str; 12] =
    ["..", "../../etc", "/etc", "a/b", "a\nb", "a\0b", "\"", "a;b", "%s", "a b", "\u{2028}", "$(x)"];

#[test]
fn a_name_that_reaches_outside_of_its_place_is_refused_by_every_plugin_and_command() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let long = "x".repeat(300);
    let before = lab.snapshot();
    for plugin in &plugins() {
        let call = lab.plugin(plugin).config(json!({"prevResult": {}, "ipam": {"type": plugin}})).on(&pod);
        for name in REACHING.into_iter().chain(["-a", "*", long.as_str()]) {
            let call = call.clone().config(json!({"name": name}));
            let outcomes = [call.add(), call.del(), call.check(&json!({})), call.gc(&[]), call.status()];
            outcomes.iter().for_each(|outcome| drop(outcome.refused(7, "name")));
        }
        for name in REACHING.into_iter().filter(|name| !name.contains('\0')).chain(["-a", "*", &long]) {
            let call = call.clone().env("CNI_CONTAINERID", name);
            [call.add(), call.del(), call.check(&json!({}))]
                .iter()
                .for_each(|o| drop(o.refused(4, "CNI_CONTAINERID")));
            call.gc(&[(name, "eth0")]).refused(7, "containerID");
        }
        for name in ["..", "a/b", "a\nb", "%s", "a b", "eth0:1", "\u{2028}", &long] {
            let call = call.clone().ifname(name);
            [call.add(), call.del(), call.check(&json!({}))]
                .iter()
                .for_each(|o| drop(o.refused(4, "CNI_IFNAME")));
            call.gc(&[("c", name)]).refused(7, "ifname");
        }
    }
    lab.snapshot().assert_same(&before);
}

/// The kernel accepts these names, and so do rules, scripts and files.
#[test]
fn an_interface_may_have_any_name_that_the_kernel_accepts() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    let pod = lab.container("pod");
    for backend in ["iptables", "nftables"] {
        let keys = json!({"ipMasq": true, "ipMasqBackend": backend, "macspoofchk": true});
        let bridge = lab.plugin("bridge").config(dual_stack()).config(keys).on(&pod);
        let attach_and_detach = |name: &str| {
            let bridge = bridge.clone().ifname(name);
            let result = bridge.add().ok_result();
            bridge.check(&result).ok();
            let ports = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
            let keys =
                json!({"backend": backend, "runtimeConfig": {"portMappings": ports}, "prevResult": result});
            let portmap = lab.plugin("portmap").config(keys).on(&pod).ifname(name);
            portmap.add().ok_result();
            portmap.check(&result).ok();
            portmap.del().ok();
            bridge.del().ok();
        };
        attach_and_detach("eth0");
        let before = lab.snapshot();
        for name in ["-j", "\"", "'a", "a;b", "*", "é", "$(x)", "\\", "#", "..."] {
            attach_and_detach(name);
            lab.snapshot().assert_same(&before);
        }
    }
}

#[test]
fn a_key_that_reaches_outside_of_its_place_is_refused() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    let pod = lab.container("pod");
    fn ipam(call: Call, key: &str, value: &str) -> Call {
        call.config(json!({"ipam": {"type": "host-local", "subnet": "10.0.0.0/24", key: value}}))
    }
    #[rustfmt::skip]
    let rows = [
        Bad("a data directory with a NUL", 7, "dataDir", |c| ipam(c, "dataDir", "/var/lib\0/x")),
        Bad("a resolvConf that is a device", 5, "/dev/zero", |c| ipam(c, "resolvConf", "/dev/zero")),
        Bad("a resolvConf that is a directory", 5, "/etc", |c| ipam(c, "resolvConf", "/etc")),
        Bad("a resolvConf without a writer", 5, "pipe", |c| ipam(c, "resolvConf", "/run/lab/plugins/pipe")),
    ];
    lab.host().sh("mkfifo /run/lab/plugins/pipe");
    refuses(&lab, &lab.plugin("host-local").on(&pod), "ADD", &rows);
    let tuning = lab.plugin("tuning").on(&pod).config(json!({"prevResult": {}}));
    let mut before = lab.snapshot();
    for key in REACHING.into_iter().chain(["-a", "*"]) {
        for key in [key.to_owned(), format!("net.{key}"), format!("net.ipv4.conf.{key}.forwarding")] {
            let error = tuning.clone().config(json!({"sysctl": {key.as_str(): "1"}})).add().error();
            assert!([2, 7].contains(&error.code), "{key}: {error:?}");
        }
    }
    lab.snapshot().assert_same(&before);
    tuning.clone().config(json!({"dataDir": "/run\0", "mtu": 1400})).add().refused(7, "dataDir");
    let portmap =
        lab.plugin("portmap").on(&pod).config(json!({"prevResult": {"ips": [{"address": "10.0.0.2/24"}]},
        "runtimeConfig": {"portMappings": [{"hostPort": 1, "containerPort": 1, "protocol": "tcp"}]}}));
    // Shared objects stay.
    for backend in ["iptables", "nftables"] {
        let call = portmap.clone().config(json!({"backend": backend}));
        call.add().ok_result();
        call.del().ok();
    }
    before = lab.snapshot();
    for word in REACHING.into_iter().chain(["-j", "*"]) {
        for words in
            [json!([word]), json!(["-s", word]), json!(["-i", word]), json!([format!("iifname {word}")])]
        {
            let outcome = portmap.clone().config(json!({"conditionsV4": words})).add();
            if outcome.succeeded() {
                portmap.del().ok();
            } else {
                let error = outcome.error();
                assert!([2, 7, 999].contains(&error.code), "{words}: {error:?}");
            }
        }
        lab.snapshot().assert_same(&before);
    }
}
