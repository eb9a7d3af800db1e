//! Each plugin run with exactly the capabilities that docs/reliability.md#privileges names, and without each of them.

use lab::{Call, Container, Lab, Outcome, beyond_reference};
use serde_json::{Value, json};

use crate::common::dual_stack;

/// What a verb needs of capabilities.
type Needs = &'static [&'static str];

const NONE: Needs = &[];
const NET: Needs = &["net_admin"];
const SYS: Needs = &["sys_admin"];
const BOTH: Needs = &["net_admin", "sys_admin"];

/// A plugin with options, and what it needs for ADD, CHECK, DEL, GC and STATUS.
struct Row {
    plugin: &'static str,
    keys: Value,
    needs: [Needs; 5],
}

const VERBS: [&str; 5] = ["ADD", "CHECK", "DEL", "GC", "STATUS"];

fn row(plugin: &'static str, keys: Value, needs: [Needs; 5]) -> Row {
    Row { plugin, keys, needs }
}

fn bridge(keys: Value, needs: [Needs; 5]) -> Row {
    let mut config = dual_stack();
    config["isDefaultGateway"] = json!(false);
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    row("bridge", config, needs)
}

fn portmap(backend: &str, needs: [Needs; 5]) -> Row {
    let ports = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
                       {"hostPort": 5353, "containerPort": 53, "protocol": "udp"}]);
    row("portmap", json!({"backend": backend, "runtimeConfig": {"portMappings": ports}}), needs)
}

#[test]
fn bridge_needs_no_more_than_two_capabilities_and_says_which_one_misses() {
    beyond_reference!("nothing-left");
    hold(&[
        bridge(json!({}), [BOTH, SYS, NET, NET, BOTH]),
        bridge(json!({"isDefaultGateway": true}), [BOTH, SYS, NET, NET, BOTH]),
        bridge(json!({"ipMasq": true, "ipMasqBackend": "nftables"}), [BOTH, BOTH, NET, NET, BOTH]),
        bridge(json!({"ipMasq": true, "ipMasqBackend": "iptables"}), [BOTH, BOTH, NET, NET, BOTH]),
        bridge(json!({"macspoofchk": true}), [BOTH, BOTH, NET, NET, BOTH]),
    ]);
}

#[test]
fn loopback_and_tuning_need_no_more_than_two_capabilities_and_say_which_one_misses() {
    beyond_reference!("nothing-left");
    hold(&[
        row("loopback", json!({}), [BOTH, SYS, BOTH, NONE, BOTH]),
        row(
            "tuning",
            json!({"sysctl": {"net.core.somaxconn": "500", "net.ipv4.conf.IFNAME.arp_filter": "1"}}),
            [SYS, SYS, NONE, NONE, NONE],
        ),
        row("tuning", json!({"mtu": 1400, "promisc": true}), [BOTH, SYS, BOTH, NONE, NONE]),
    ]);
}

#[test]
fn portmap_needs_no_more_than_one_capability_and_says_if_it_misses() {
    beyond_reference!("nothing-left");
    hold(&[portmap("nftables", [NET; 5]), portmap("iptables", [NET, NET, NET, NET, NONE])]);
}

#[test]
fn host_local_needs_no_capability() {
    beyond_reference!("nothing-left");
    let ranges = json!({"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.2.0/24"}]]}});
    hold(&[row("host-local", ranges, [NONE; 5])]);
}

#[test]
fn host_local_works_for_any_user_who_owns_its_data_dir() {
    beyond_reference!("nothing-left");
    let lab = Lab::new();
    let dir = "/run/lab/mine";
    lab.host().sh(&format!("install -d -o 1000 {dir}"));
    // The executable may lie where only root gets.
    let script = format!("cp \"$0\" {dir}/x; exec setpriv --reuid=1000 --clear-groups {dir}/x");
    let ipam = json!({"type": "host-local", "dataDir": dir, "ranges": [[{"subnet": "10.1.2.0/24"}]]});
    let call = lab.plugin("host-local").config(json!({"ipam": ipam})).on(&lab.container("pod"));
    let call = call.under(&["sh".to_owned(), "-c".to_owned(), script]);
    let prev = call.add().ok_result();
    call.check(&prev).ok();
    call.status().ok();
    call.gc(&[("pod", "eth0")]).ok();
    call.del().ok();
    lab.host().sh("install -d -m 700 /run/lab/closed; touch /run/lab/closed/netns");
    let unseen = call.clone().env("CNI_NETNS", "/run/lab/closed/netns");
    let prev = unseen.add().ok_result();
    unseen.check(&prev).ok();
    unseen.del().ok();
    lab.host().sh(&format!("chown -R 0 {dir}"));
    call.add().refused(5, "Permission denied");
    call.status().refused(50, "Permission denied");
}

/// Holds each of the plugins to its row of the table.
fn hold(rows: &[Row]) {
    for row in rows {
        let lab = Lab::new();
        let pod = lab.container("pod");
        let call = call(&lab, &pod, row);
        for (verb, needs) in VERBS.into_iter().zip(row.needs) {
            for lacking in needs {
                let rest: Vec<_> = needs.iter().copied().filter(|need| need != lacking).collect();
                is_refused(&lab, &call, verb, &rest, &format!("CAP_{}", lacking.to_uppercase()));
            }
            let prev = prepare(&call, verb);
            let run = run(&with(&call, needs), verb, prev.as_ref());
            assert!(run.succeeded(), "{verb} with {needs:?} of {}: {run:#?}", row.keys);
            call.del().ok();
        }
    }
}

/// One error names what misses, and an ADD has left nothing.
fn is_refused(lab: &Lab, call: &Call, verb: &str, capabilities: &[&str], missing: &str) {
    let prev = prepare(call, verb);
    let before = lab.snapshot();
    let error = run(&with(call, capabilities), verb, prev.as_ref()).error();
    let text = format!("{error:?}");
    assert!(text.contains(missing) && text.contains("ermi"), "{verb} without {missing}: {text}");
    if verb != "DEL" && verb != "GC" {
        lab.snapshot().assert_same(&before);
    }
    call.del().ok();
}

/// What a verb needs: an attachment; or, for ADD, that what attachments share is there.
fn prepare(call: &Call, verb: &str) -> Option<Value> {
    let prev = call.add().ok_result();
    if ["ADD", "STATUS"].contains(&verb) {
        call.del().ok();
        return None;
    }
    Some(prev)
}

fn run(call: &Call, verb: &str, prev: Option<&Value>) -> Outcome {
    match verb {
        "CHECK" => call.check(prev.unwrap()),
        "GC" => call.gc(&[]),
        "STATUS" => call.status(),
        _ => call.run(verb),
    }
}

/// Root with these capabilities, and no way to have more.
fn with(call: &Call, capabilities: &[&str]) -> Call {
    let bounding: String = capabilities.iter().map(|name| format!(",+{name}")).collect();
    let argv = ["setpriv", "--inh-caps=-all", &format!("--bounding-set=-all{bounding}")];
    call.clone().under(&argv.map(str::to_owned))
}

/// The call of a plugin, after what it needs to be chained to.
fn call(lab: &Lab, pod: &Container, row: &Row) -> Call {
    let call = lab.plugin(row.plugin).config(row.keys.clone()).on(pod);
    if !["portmap", "tuning"].contains(&row.plugin) {
        return call;
    }
    let prev = lab.plugin("bridge").config(dual_stack()).on(pod).add().ok_result();
    call.config(json!({"prevResult": prev}))
}
