//! Invalid configurations of portmap, tested like those of other plugins.

use lab::{Call, Lab, beyond_reference};
use serde_json::{Value, json};

use crate::all_plugins::bad_input::{Bad, refuses};

fn portmap(lab: &Lab) -> Call {
    let pod = lab.container("pod");
    let prev = json!({
        "cniVersion": "1.0.0",
        "interfaces": [{"name": "eth0", "sandbox": pod.path()}],
        "ips": [{"address": "10.1.2.2/24", "interface": 0}],
    });
    entry(lab.plugin("portmap").config(json!({"prevResult": prev})).on(&pod), "protocol", json!("tcp"))
}

/// The call with one mapping, in which one key differs from a valid one.
fn entry(call: Call, key: &str, value: Value) -> Call {
    let mut entry = json!({"hostPort": 8080, "containerPort": 80, "protocol": "tcp"});
    entry[key] = value;
    mapped(call, json!([{"hostPort": 9090, "containerPort": 90, "protocol": "udp"}, entry]))
}

fn mapped(call: Call, mappings: Value) -> Call {
    call.config(json!({"runtimeConfig": {"portMappings": mappings}}))
}

#[test]
fn entries_of_port_mappings() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    #[rustfmt::skip]
    let rows = [
        Bad("mappings that are a word", 6, "runtimeConfig.portMappings", |c| mapped(c, json!("all"))),
        Bad("a mapping that is a number", 6, "portMappings[0]", |c| mapped(c, json!([8080]))),
        Bad("an empty mapping", 7, "portMappings[0]", |c| mapped(c, json!([{}]))),
        Bad("no host port", 7, "portMappings[1].hostPort 0", |c| entry(c, "hostPort", Value::Null)),
        Bad("host port 0", 7, "portMappings[1].hostPort 0", |c| entry(c, "hostPort", json!(0))),
        Bad("a host port below nothing", 7, "portMappings[1].hostPort -1", |c| entry(c, "hostPort", json!(-1))),
        Bad("a host port too large", 7, "portMappings[1].hostPort 65536", |c| entry(c, "hostPort", json!(65536))),
        Bad("a host port far too large", 6, "portMappings[1].hostPort", |c| entry(c, "hostPort", json!(1e30))),
        Bad("a host port that is a word", 6, "portMappings[1].hostPort", |c| entry(c, "hostPort", json!("http"))),
        Bad("half a host port", 6, "portMappings[1].hostPort", |c| entry(c, "hostPort", json!(80.5))),
        Bad("no container port", 7, "portMappings[1].containerPort 0", |c| entry(c, "containerPort", Value::Null)),
        Bad("a container port below nothing", 7, "portMappings[1].containerPort -80", |c| entry(c, "containerPort", json!(-80))),
        Bad("a container port too large", 7, "portMappings[1].containerPort 65536", |c| entry(c, "containerPort", json!(65536))),
        Bad("no protocol", 7, "portMappings[1].protocol", |c| entry(c, "protocol", Value::Null)),
        Bad("an unknown protocol", 7, "portMappings[1].protocol \"dccp\"", |c| entry(c, "protocol", json!("dccp"))),
        Bad("a protocol without ports", 7, "portMappings[1].protocol \"icmp\"", |c| entry(c, "protocol", json!("icmp"))),
        Bad("a protocol that is a number", 6, "portMappings[1].protocol", |c| entry(c, "protocol", json!(6))),
        Bad("a protocol with a rule behind it", 7, "tcp -j ACCEPT", |c| entry(c, "protocol", json!("tcp -j ACCEPT"))),
        Bad("a host address that is none", 7, "portMappings[1].hostIP \"localhost\"", |c| entry(c, "hostIP", json!("localhost"))),
        Bad("a host address cut short", 7, "portMappings[1].hostIP \"10.0.0\"", |c| entry(c, "hostIP", json!("10.0.0"))),
        Bad("a host address with a length", 7, "portMappings[1].hostIP \"10.0.0.1/24\"", |c| entry(c, "hostIP", json!("10.0.0.1/24"))),
        Bad("a host address with a zone", 7, "portMappings[1].hostIP \"fe80::1%eth0\"", |c| entry(c, "hostIP", json!("fe80::1%eth0"))),
        Bad("a host address of a group", 7, "portMappings[1].hostIP 224.0.0.1", |c| entry(c, "hostIP", json!("224.0.0.1"))),
        Bad("a host address with a line end", 7, "portMappings[1].hostIP", |c| entry(c, "hostIP", json!("10.0.0.1\n"))),
        Bad("host addresses of a family that the container lacks and no other", 7, "portMappings[0].hostIP 2001:db8::1", |c| mapped(c, json!([{"hostPort": 1, "containerPort": 1, "protocol": "tcp", "hostIP": "2001:db8::1"}]))),
    ];
    refuses(&lab, &portmap(&lab), "ADD", &rows);
}

fn key(call: Call, key: &str, value: Value) -> Call {
    call.config(json!({key: value}))
}

fn v4(call: Call, words: &[&str]) -> Call {
    key(call, "conditionsV4", json!(words))
}

#[test]
fn keys_of_portmap() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    #[rustfmt::skip]
    let rows = [
        Bad("an unknown backend", 7, "\"ebpf\"", |c| key(c, "backend", json!("ebpf"))),
        Bad("a backend that is a number", 6, "backend", |c| key(c, "backend", json!(4))),
        Bad("a flag that is a word", 6, "snat", |c| key(c, "snat", json!("yes"))),
        Bad("a flag that is a number", 6, "masqAll", |c| key(c, "masqAll", json!(1))),
        Bad("a bit beyond the mark", 7, "markMasqBit 32", |c| key(c, "markMasqBit", json!(32))),
        Bad("a bit before the mark", 7, "markMasqBit -1", |c| key(c, "markMasqBit", json!(-1))),
        Bad("a mask for a bit", 6, "markMasqBit", |c| key(c, "markMasqBit", json!("0x2000"))),
        Bad("both options for marks", 7, "externalSetMarkChain", |c| c.config(json!({"markMasqBit": 13, "externalSetMarkChain": "MARK"}))),
        Bad("a chain without a name", 7, "externalSetMarkChain", |c| key(c, "externalSetMarkChain", json!(""))),
        Bad("a chain's name too long", 7, "twenty-nine-letters-are-a-lot", |c| key(c, "externalSetMarkChain", json!("twenty-nine-letters-are-a-lot"))),
        Bad("a chain's name with a rule behind it", 7, "MARK -j", |c| key(c, "externalSetMarkChain", json!("MARK -j DROP"))),
        Bad("a chain's name that is an option", 7, "--jump", |c| key(c, "externalSetMarkChain", json!("--jump"))),
        Bad("a chain's name with a line end", 7, "externalSetMarkChain", |c| key(c, "externalSetMarkChain", json!("MARK\n-F"))),
        Bad("a chain of iptables for nftables", 7, "externalSetMarkChain", |c| c.config(json!({"backend": "nftables", "externalSetMarkChain": "MARK"}))),
        Bad("conditions that are a word", 6, "conditionsV4", |c| key(c, "conditionsV4", json!("all"))),
        Bad("conditions of iptables for nftables", 7, "conditions", |c| v4(key(c, "backend", json!("nftables")), &["-s", "192.0.2.1"])),
        Bad("conditions of nftables for iptables", 7, "conditions", |c| v4(key(c, "backend", json!("iptables")), &["ip saddr 192.0.2.1"])),
        Bad("conditions of two backends", 7, "conditionsV6", |c| key(v4(c, &["-s", "192.0.2.1"]), "conditionsV6", json!(["ip6 saddr fd00::1"]))),
        Bad("a condition that is a verdict", 7, "conditionsV4: \"accept", |c| v4(c, &["accept"])),
        Bad("a second rule in a condition", 7, "192.0.2.1;", |c| v4(c, &["ip saddr 192.0.2.1; flush ruleset"])),
        Bad("a second rule on a second line", 7, "flush", |c| v4(c, &["ip saddr 192.0.2.1\nflush ruleset"])),
        Bad("a jump behind a condition", 7, "jump", |c| v4(c, &["ip saddr 192.0.2.1 jump evil"])),
        Bad("a condition of the other family", 7, "ip6 saddr", |c| v4(c, &["ip6 saddr fd00::1"])),
        Bad("an address of the other family", 7, "fd00::1", |c| v4(c, &["ip saddr fd00::1"])),
        Bad("a condition without a value", 7, "conditionsV4", |c| v4(c, &["ip", "saddr"])),
        Bad("a set that is not closed", 7, "conditionsV4", |c| v4(c, &["ip saddr { 192.0.2.1"])),
        Bad("a target in a condition", 7, "-j", |c| v4(c, &["-s", "192.0.2.1", "-j", "ACCEPT"])),
        Bad("a target cut short", 7, "--jum", |c| v4(c, &["-s", "192.0.2.1", "--jum", "DROP"])),
        Bad("another table in a condition", 7, "-t", |c| v4(c, &["-t", "filter"])),
        Bad("a line end in a condition", 7, "conditionsV4", |c| v4(c, &["-s", "192.0.2.1\n-A INPUT -j DROP"])),
        Bad("a match that is a path", 7, "-m", |c| v4(c, &["-m", "../evil"])),
        Bad("an unknown match", 999, "nosuch", |c| v4(c, &["-m", "nosuch"])),
        Bad("a target as part of a word", 7, "-jACCEPT", |c| v4(c, &["-s", "192.0.2.1", "-jACCEPT"])),
        Bad("a target behind short options", 7, "-fj", |c| v4(c, &["-fj", "ACCEPT"])),
        Bad("a target with a sign", 7, "--jump=ACCEPT", |c| v4(c, &["--jump=ACCEPT"])),
        Bad("a list that is changed", 7, "--set", |c| v4(c, &["-m", "recent", "--set"])),
        Bad("a state that is none", 7, "old", |c| v4(c, &["ct state old"])),
        Bad("a limit", 7, "limit rate", |c| v4(c, &["limit rate 10/second"])),
        Bad("a time of the day", 7, "meta hour", |c| v4(c, &["meta hour 08:00-17:30"])),
        Bad("a comment that does not end", 7, "comment", |c| v4(c, &["comment \"x"])),
        Bad("a match without a name", 7, "conditionsV4", |c| v4(c, &["-m"])),
    ];
    refuses(&lab, &portmap(&lab), "ADD", &rows);
}

fn prev(call: Call, result: Value) -> Call {
    key(call, "prevResult", result)
}

#[test]
fn results_before_portmap() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    #[rustfmt::skip]
    let rows = [
        Bad("none", 7, "prevResult", |c| prev(c, Value::Null)),
        Bad("a list", 6, "prevResult", |c| prev(c, json!([]))),
        Bad("one of the future", 1, "9.9.9", |c| prev(c, json!({"cniVersion": "9.9.9"}))),
        Bad("one of another form", 7, "0.2.0", |c| prev(c, json!({"cniVersion": "0.2.0", "ip4": {"ip": "10.1.2.2/24"}}))),
        Bad("one with an address that is none", 6, "prevResult", |c| prev(c, json!({"ips": [{"address": "10.1.2"}]}))),
    ];
    refuses(&lab, &portmap(&lab), "ADD", &rows);
}

#[test]
fn tools_of_iptables() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    lab.fake_plugin("iptables-restore", "echo 'the lock is lost' >&2; exit 4");
    let call = key(portmap(&lab), "backend", json!("iptables"));
    let rows = [
        Bad("a tool that fails", 999, "the lock is lost", |c| c.env("PATH", "/run/lab/plugins")),
        Bad("a tool that fails, by name", 999, "iptables-restore", |c| c.env("PATH", "/run/lab/plugins")),
    ];
    refuses(&lab, &call, "ADD", &rows);
    lab.host().sh("mount --bind /dev/null $(readlink -f $(command -v iptables-restore))");
    call.add().refused(2, "iptables-restore");
}
