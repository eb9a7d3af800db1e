//! Hosts on which other programs use legacy iptables, with its tools or without.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use lab::{Chain, Lab, Outcome, beyond_reference, injecting, write_program};
use serde_json::json;

use crate::common::dual_stack;

/// bridge with masquerade, and portmap.
fn full_chain(lab: &Lab) -> Chain {
    let mut bridge = dual_stack();
    bridge["type"] = json!("bridge");
    bridge["ipMasq"] = json!(true);
    let mappings = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    let portmap = json!({"type": "portmap", "runtimeConfig": {"portMappings": mappings}});
    lab.chain(json!({"cniVersion": "1.1.0", "name": "net", "plugins": [bridge, portmap]}))
}

/// Rules as kube-proxy adds them, in both families.
const OF_OTHERS: &str = "for tool in iptables-legacy ip6tables-legacy; do
    $tool -t nat -N KUBE-SERVICES; $tool -t nat -A PREROUTING -j KUBE-SERVICES
    $tool -t nat -N CNI-HOSTPORT-DNAT; $tool -t nat -A PREROUTING -j CNI-HOSTPORT-DNAT
done";

/// As if the package was not installed: only a regular file is a tool.
const WITHOUT_TOOLS: &str =
    "for tool in iptables-restore iptables-save iptables-legacy-restore iptables-legacy-save; do
        for family in '' 6; do
            path=$(command -v $(echo $tool | sed s/ip/ip$family/)) && mount --bind /dev/null $(readlink -f $path)
        done
    done; true";

/// Replaces the tools, for calls with this PATH: they record that they were started, and fail.
fn fail_tools(lab: &Lab) {
    fs::create_dir(lab.dir().join("failing")).unwrap();
    for family in ["iptables", "ip6tables"] {
        for suffix in ["", "-save", "-restore", "-legacy", "-legacy-save", "-legacy-restore"] {
            let path = lab.dir().join(format!("failing/{family}{suffix}"));
            write_program(&path, "#!/bin/sh\necho $0 >>/run/lab/started\necho 'no mood' >&2\nexit 3\n");
        }
    }
}

const FAILING: &str = "/run/lab/failing";

#[test]
fn with_legacy_rules_of_other_programs_no_program_is_started() {
    beyond_reference!("rules-by-attachment");
    let lab = Lab::new();
    lab.host().sh(OF_OTHERS);
    fail_tools(&lab);
    let pod = lab.container("pod");
    let network = full_chain(&lab).each(|call| call.env("PATH", FAILING));
    let result = network.add(&pod, "eth0").ok_result();
    network.del(&pod, "eth0", &result).iter().for_each(Outcome::ok);
    for plugin in ["bridge", "portmap"] {
        lab.plugin(plugin).config(json!({"ipam": dual_stack()["ipam"]})).env("PATH", FAILING).gc(&[]).ok();
    }
    assert_eq!(fs::read_to_string(lab.dir().join("started")).unwrap_or_default(), "");
    assert_eq!(lab.host().ruleset(), "");
}

#[test]
fn without_the_tools_a_del_is_complete_despite_legacy_rules_of_other_programs() {
    beyond_reference!("rules-by-attachment");
    let lab = Lab::new();
    lab.host().sh(OF_OTHERS);
    lab.host().sh(WITHOUT_TOOLS);
    let pod = lab.container("pod");
    let network = full_chain(&lab);
    let result = network.add(&pod, "eth0").ok_result();
    for outcome in network.del(&pod, "eth0", &result) {
        outcome.ok();
        assert_eq!(outcome.stderr, "", "there is nothing to warn of");
    }
    assert_eq!(lab.host().ruleset(), "");
}

/// Adds rules of the reference in legacy iptables, next to Ferrule's in nf_tables.
fn with_legacy_rules_of_the_reference(lab: &Lab) {
    lab.host().sh("chain=CNI-$(printf netpod | sha512sum | cut -c1-24)
         for tool in iptables-legacy ip6tables-legacy; do
             $tool -t nat -N $chain; $tool -t nat -A $chain -j ACCEPT; $tool -t nat -A POSTROUTING -j $chain
         done");
}

#[test]
fn without_the_tools_a_del_of_legacy_rules_warns_and_removes_the_rest() {
    beyond_reference!("rules-by-attachment");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let network = full_chain(&lab);
    let result = network.add(&pod, "eth0").ok_result();
    with_legacy_rules_of_the_reference(&lab);
    lab.host().sh(WITHOUT_TOOLS);
    let outcomes = network.del(&pod, "eth0", &result);
    outcomes.iter().for_each(Outcome::ok);
    let warned = outcomes.iter().filter(|outcome| outcome.stderr.contains("iptables-legacy"));
    assert_eq!(warned.count(), 1, "{outcomes:#?}");
    assert_eq!(lab.host().ruleset(), "");
}

#[test]
fn a_failed_tool_is_reported_after_everything_else_was_removed() {
    beyond_reference!("rules-by-attachment");
    let lab = Lab::new();
    fail_tools(&lab);
    let pod = lab.container("pod");
    let network = full_chain(&lab);
    network.add(&pod, "eth0").ok_result();
    with_legacy_rules_of_the_reference(&lab);
    let bridge = lab.plugin("bridge").on(&pod).config(json!({"ipam": dual_stack()["ipam"]}));
    let failing = bridge.clone().env("PATH", FAILING);
    failing.del().refused(999, "iptables-legacy");
    assert!(!lab.host().ruleset().contains("masquerade net/pod/eth0"));
    assert!(lab.host().sh("ip link show type veth").is_empty());
    bridge.del().ok();
    let left = lab.host().sh("iptables-legacy-save; ip6tables-legacy-save");
    assert!(!left.contains("CNI-"), "{left}");
}

#[test]
fn a_del_that_cannot_open_nf_tables_keeps_the_way_of_other_containers_open() {
    beyond_reference!("rules-by-attachment");
    let lab = Lab::new();
    lab.host().sh("iptables-legacy -P FORWARD DROP; ip6tables-legacy -P FORWARD DROP");
    let [stays, ends] = ["stays", "ends"].map(|id| lab.container(id));
    let mut bridge = dual_stack();
    bridge["type"] = json!("bridge");
    let plugins = json!([bridge, {"type": "firewall"}]);
    let network = lab.chain(json!({"cniVersion": "1.1.0", "name": "net", "plugins": plugins}));
    network.add(&stays, "eth0").ok_result();
    let result = network.add(&ends, "eth0").ok_result();
    let firewall = lab.plugin("firewall").version("1.1.0").on(&ends).config(json!({"prevResult": result}));
    let is_open = || {
        ["iptables", "ip6tables"]
            .map(|tool| lab.host().sh(&format!("{tool}-legacy-save")).contains("mark bit"))
    };
    assert_eq!(is_open(), [true; 2]);
    let mut unopened = 0;
    for nth in 1..=20 {
        firewall.add().ok_result();
        let outcome = firewall
            .clone()
            .under(&injecting(&["-e", &format!("inject=socket:error=ENOBUFS:when={nth}")]))
            .del();
        unopened += u8::from(!outcome.succeeded() && outcome.error().msg.contains("open nf_tables"));
        assert_eq!(is_open(), [true; 2], "socket {nth}: {outcome:?}");
    }
    assert!(unopened > 0, "nf_tables could be opened in each run");
    network.del(&ends, "eth0", &result).iter().for_each(Outcome::ok);
    assert_eq!(is_open(), [true; 2]);
}

/// As on a host that has only iptables-nft, while a container brought its own iptables-legacy.
#[test]
fn without_the_legacy_tools_an_add_warns_and_changes_no_table_of_iptables_nft() {
    beyond_reference!("rules-by-attachment");
    let lab = Lab::new();
    lab.host().sh("iptables-legacy -P FORWARD DROP; ip6tables-legacy -P FORWARD DROP; mkdir /run/lab/tools
         for tool in iptables ip6tables; do for verb in -save -restore; do
             ln -s $(command -v $tool-nft$verb) /run/lab/tools/$tool$verb
         done; done
         # All of the legacy tools are links to one executable.
         mount --bind /dev/null $(readlink -f $(command -v iptables-legacy))");
    let pod = lab.container("pod");
    let mut bridge = dual_stack();
    bridge["type"] = json!("bridge");
    let plugins = json!([bridge, {"type": "firewall"}]);
    let network = lab.chain(json!({"cniVersion": "1.1.0", "name": "net", "plugins": plugins}));
    let network = network.each(|call| call.env("PATH", "/run/lab/tools:/usr/sbin:/usr/bin:/sbin:/bin"));
    let outcome = network.add(&pod, "eth0");
    let result = outcome.ok_result();
    for words in
        ["the tools of iptables-legacy are not installed", "FORWARD of iptables-legacy drops", "repair"]
    {
        assert!(outcome.stderr.contains(words), "{outcome:#?}");
    }
    assert!(!lab.host().ruleset().contains("CNI-FORWARD"), "{}", lab.host().ruleset());
    network.del(&pod, "eth0", &result).iter().for_each(Outcome::ok);
    assert_eq!(lab.host().ruleset(), "");
}

#[test]
fn tables_that_cannot_be_listed_do_not_count_as_missing() {
    beyond_reference!("rules-by-attachment");
    let lab = Lab::new();
    let pod = lab.container("pod");
    full_chain(&lab).add(&pod, "eth0").ok_result();
    with_legacy_rules_of_the_reference(&lab);
    let bridge = lab.plugin("bridge").on(&pod).config(json!({"ipam": dual_stack()["ipam"]}));
    let path = "/proc/thread-self/net/ip_tables_names";
    let unread = injecting(&["-P", path, "-e", "inject=?open,openat:error=EMFILE"]);
    bridge.clone().under(&unread).del().refused(5, path);
    assert!(lab.host().sh("iptables-legacy-save").contains("CNI-"));
    bridge.del().ok();
    let left = lab.host().sh("iptables-legacy-save; ip6tables-legacy-save");
    assert!(!left.contains("CNI-"), "{left}");
}

/// A rootless engine that creates the network namespace before it maps users: the list belongs to the host's root.
#[test]
fn a_list_of_tables_that_a_rootless_engine_may_not_read_counts_as_empty() {
    beyond_reference!("rules-by-attachment");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let mut bridge = dual_stack();
    bridge["type"] = json!("bridge");
    bridge["ipMasq"] = json!(true);
    let plugins = json!([bridge, {"type": "firewall"}]);
    let network = lab.chain(json!({"cniVersion": "1.1.0", "name": "net", "plugins": plugins})).each(|call| {
        let [v4, v6] = ["/proc/thread-self/net/ip_tables_names", "/proc/thread-self/net/ip6_tables_names"];
        call.under(&injecting(&["-e", "inject=?open,openat:error=EACCES", "-P", v4, "-P", v6]))
    });
    let result = network.add(&pod, "eth0").ok_result();
    network.check(&pod, "eth0", &result).iter().for_each(Outcome::ok);
    network.del(&pod, "eth0", &result).iter().for_each(Outcome::ok);
    assert_eq!(lab.host().ruleset(), "");
}

/// Such as a kube-proxy that installs some ten thousand rules. The lock says nothing about the attachment's rules.
#[test]
fn while_another_program_holds_the_lock_of_iptables_check_reports_the_lock_and_no_missing_rule() {
    beyond_reference!("rules-by-attachment");
    let lab = Lab::new();
    lab.host().sh("mkdir /run/lab/legacy; for family in iptables ip6tables; do for verb in save restore; do
             ln -s $(command -v $family-legacy-$verb) /run/lab/legacy/$family-$verb
         done; done");
    let pod = lab.container("pod");
    let mappings = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    let prev = lab.plugin("bridge").config(dual_stack()).on(&pod).add().ok_result();
    let portmap = lab
        .plugin("portmap")
        .config(
            json!({"backend": "iptables", "prevResult": prev, "runtimeConfig": {"portMappings": mappings}}),
        )
        .env("PATH", "/run/lab/legacy")
        .on(&pod);
    portmap.add().ok_result();
    portmap.check(&prev).ok();
    let mut holder = Command::new("flock")
        .args(["--no-fork", "/run/xtables.lock", "sh", "-c", "echo held; exec sleep infinity"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    let checked = portmap.check(&prev);
    checked.refused(11, "for the xtables lock");
    assert!(!checked.stdout.contains("repair"), "{checked:#?}");
    holder.kill().unwrap();
    holder.wait().unwrap();
    portmap.check(&prev).ok();
    lab.host().sh("iptables-legacy -t nat -F");
    portmap.check(&prev).refused(999, "not those that ADD installed");
}
