//! Results that other projects' plugins pass to chained ones: docs/portmap.md#the-results-of-other-plugins.

use lab::{Call, Container, Lab, beyond_reference, tcp_is_refused, tcp_says, under_test};
use serde_json::{Value, json};

use crate::common::{host_local, ips};
use crate::portmap::{FAR, HOST, at, mapped, web, with_each_backend};

/// The result of a plugin, with its versions. `NETNS` is replaced by the namespace.
struct Row {
    by: &'static str,
    versions: &'static [&'static str],
    result: fn() -> Value,
}

const fn row(by: &'static str, versions: &'static [&'static str], result: fn() -> Value) -> Row {
    Row { by, versions, result }
}

/// Each of them has the addresses of [`wired`].
const SERVED: [Row; 11] = [
    // Neither a sandbox nor an interface with the addresses (projectcalico/calico#9294).
    row("Calico", &["0.3.1", "1.0.0"], || {
        json!({"interfaces": [{"name": "host0"}],
               "ips": [{"address": "10.244.9.2/32"}, {"address": "fd00:9::2/128"}], "dns": {}})
    }),
    // The container's interface without a sandbox.
    row("Azure CNI", &["0.3.0", "1.0.0"], || {
        json!({"interfaces": [{"name": "eth0", "mac": "02:00:00:00:00:01"}],
               "ips": [{"address": "10.244.9.2/16", "gateway": "10.244.0.1"}],
               "routes": [{"dst": "0.0.0.0/0", "gw": "10.244.0.1"}],
               "dns": {"nameservers": ["168.63.129.16"]}})
    }),
    // A third interface contains data for its DEL.
    row("AWS VPC CNI", &["0.4.0", "1.0.0"], || {
        json!({"interfaces": [{"name": "host0"}, {"name": "eth0", "sandbox": "NETNS"},
                              {"name": "dummy5a3fd8d2a86", "mac": "0", "sandbox": "0"}],
               "ips": [{"address": "10.244.9.2/32", "interface": 1}]})
    }),
    // From 1.0.0 on, it contains more, which the specification has only since 1.1.0.
    row("AWS VPC CNI with several cards", &["1.0.0", "1.1.0"], || {
        json!({"interfaces": [{"name": "host0"}, {"name": "eth0", "sandbox": "NETNS", "pciID": "254"},
                              {"name": "dummy5a3fd8d2a86", "mac": "0", "sandbox": "0", "socketPath": "1"}],
               "ips": [{"address": "10.244.9.2/32", "interface": 1}]})
    }),
    // IPv6 is first.
    row("Cilium", &["0.3.1", "1.0.0", "1.1.0"], || {
        json!({"interfaces": [{"name": "host0", "mac": "02:00:00:00:00:ff"},
                              {"name": "eth0", "mac": "02:00:00:00:00:01", "sandbox": "NETNS"}],
               "ips": [{"address": "fd00:9::2/128", "gateway": "fd00:9::1", "interface": 1},
                       {"address": "10.244.9.2/32", "gateway": "10.244.0.1", "interface": 1}],
               "routes": [{"dst": "fd00:9::1/128"}, {"dst": "::/0", "gw": "fd00:9::1"},
                          {"dst": "10.244.0.1/32"}, {"dst": "0.0.0.0/0", "gw": "10.244.0.1"}]})
    }),
    row(
        "Weave",
        &["0.3.0", "1.0.0"],
        || json!({"ips": [{"address": "10.244.9.2/12", "gateway": "10.240.0.1"}], "dns": {}}),
    ),
    row(
        "Weave of old",
        &["0.1.0", "0.2.0"],
        || json!({"ip4": {"ip": "10.244.9.2/12", "gateway": "10.240.0.1"}, "dns": {}}),
    ),
    row("kindnet", &["0.3.1"], || {
        json!({"interfaces": [{"name": "host0", "mac": "02:00:00:00:00:ff"},
                              {"name": "eth0", "mac": "02:00:00:00:00:01", "sandbox": "NETNS"}],
               "ips": [{"address": "10.244.9.2/24", "gateway": "10.244.9.1", "interface": 1},
                       {"address": "fd00:9::2/64", "gateway": "fd00:9::1", "interface": 1}],
               "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}], "dns": {}})
    }),
    row("Antrea", &["0.3.0", "1.0.0"], || {
        json!({"interfaces": [{"name": "host0", "mac": "02:00:00:00:00:ff", "sandbox": ""},
                              {"name": "eth0", "mac": "02:00:00:00:00:01", "sandbox": "NETNS"}],
               "ips": [{"address": "10.244.9.2/24", "gateway": "10.244.9.1", "interface": 1}],
               "routes": [{"dst": "0.0.0.0/0", "gw": "10.244.9.1"}]})
    }),
    row(
        "an index without a list",
        &["0.3.1", "1.0.0", "1.1.0"],
        || json!({"ips": [{"address": "10.244.9.2/24", "interface": 0}]}),
    ),
    row("an index past the end, and one before the start", &["0.4.0", "1.0.0"], || {
        json!({"interfaces": [{"name": "host0"}],
               "ips": [{"address": "10.244.9.2/24", "interface": 2}, {"address": "fd00:9::2/64", "interface": -1}]})
    }),
];

/// No port can be mapped. The result is passed on.
const PASSED_ON: [Row; 5] = [
    row("an empty result", &["0.2.0", "0.3.1", "1.0.0"], || json!({})),
    row(
        "layer 2 only",
        &["0.4.0", "1.0.0"],
        || json!({"interfaces": [{"name": "host0"}, {"name": "eth0", "sandbox": "NETNS"}]}),
    ),
    row("another interface's addresses", &["0.3.1", "1.0.0"], || {
        json!({"interfaces": [{"name": "eth1", "sandbox": "NETNS"}],
               "ips": [{"address": "10.244.9.2/24", "interface": 0}]})
    }),
    row(
        "the host's addresses",
        &["0.3.1", "1.0.0"],
        || json!({"interfaces": [{"name": "eth0"}], "ips": [{"address": "10.244.9.2/24", "interface": 0}]}),
    ),
    row(
        "loopback's addresses only",
        &["1.0.0"],
        || json!({"ips": [{"address": "127.0.0.1/8"}, {"address": "::1/128"}]}),
    ),
];

impl Row {
    /// The result in each of the plugin's versions.
    fn results(&self) -> impl Iterator<Item = (String, Value)> {
        // Debian's reference is older than 1.1.0, and requires an address before 0.3.0.
        let oldest = if self.by == "an empty result" { "0.3.0" } else { "0.1.0" };
        let spoken = move |version: &&&str| !under_test().reference || (oldest.."1.1.0").contains(*version);
        self.versions.iter().filter(spoken).map(|version| {
            let text = (self.result)().to_string().replace("NETNS", "/run/netns/pod");
            let mut result: Value = serde_json::from_str(&text).unwrap();
            result["cniVersion"] = json!(version);
            if *version < "1.0.0" {
                for ip in result["ips"].as_array_mut().into_iter().flatten() {
                    let v6 = ip["address"].as_str().unwrap().contains(':');
                    ip["version"] = json!(if v6 { "6" } else { "4" });
                }
            }
            (format!("{} {version}", self.by), result)
        })
    }
}

/// A container as such plugins connect it: routed, with a veth pair to the host.
fn wired(lab: &Lab) -> Container {
    let pod = lab.container("pod");
    lab.host().sh("ip link add host0 type veth peer name eth0 address 02:00:00:00:00:01 netns pod
         ip addr add 169.254.1.1/32 dev host0; ip addr add fe80::1/64 dev host0 nodad; ip link set host0 up
         echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
         ip route add 10.244.9.2/32 dev host0; ip route add fd00:9::2/128 dev host0");
    pod.sh("ip link set lo up; ip link set eth0 up
         ip addr add 10.244.9.2/32 dev eth0; ip addr add fd00:9::2/128 dev eth0 nodad
         ip route add 169.254.1.1 dev eth0; ip route add default via 169.254.1.1
         ip route add default via fe80::1 dev eth0");
    pod
}

fn called(lab: &Lab, plugin: &str, pod: &Container, result: &Value) -> Call {
    let version = result["cniVersion"].as_str().unwrap();
    lab.plugin(plugin).version(version).on(pod).config(json!({"prevResult": result}))
}

/// CHECK, if the result's version has it.
fn check(call: &Call, result: &Value) {
    if result["cniVersion"].as_str().unwrap() >= "0.4.0" {
        call.check(result).ok();
    }
}

/// The reference prints a result again without unknown keys: docs/reference-quirks.md#results-handed-on.
#[track_caller]
fn assert_handed_on(got: &Value, prev: &Value, who: &str) {
    if under_test().reference {
        assert_eq!(ips(got), ips(prev), "{who}");
    } else {
        assert_eq!(got, prev, "{who}");
    }
}

#[test]
fn host_ports_lead_to_containers_of_other_plugins() {
    with_each_backend(|lab, keys| {
        let (pod, far) = (wired(lab), lab.machine("far"));
        let _servers = ["10.244.9.2:80", "[fd00:9::2]:80"].map(|address| pod.serve_tcp("pod", address));
        for (who, prev) in SERVED.iter().flat_map(Row::results) {
            let call = called(lab, "portmap", &pod, &prev).config(keys.clone()).config(mapped(web()));
            assert_handed_on(&call.add().ok_result(), &prev, &who);
            let has_v6 = prev.to_string().contains("fd00:9::2");
            for (family, served) in [(0, true), (1, has_v6)] {
                let answer = served.then(|| format!("pod {}", FAR[family]));
                let host_port = at(HOST[family], 8080);
                match served {
                    true => assert_eq!(tcp_says(&far, &host_port), answer, "{who}"),
                    false => assert!(tcp_is_refused(&far, &host_port), "{who}"),
                }
            }
            if !under_test().reference {
                check(&call, &prev);
            }
            call.del().ok();
            assert!(tcp_is_refused(&far, &at(HOST[0], 8080)), "{who}");
        }
    });
}

#[test]
fn without_an_address_for_ports_the_result_is_passed_on_with_a_warning() {
    let lab = Lab::new();
    let pod = wired(&lab);
    let before = lab.snapshot();
    for (who, prev) in PASSED_ON.iter().flat_map(Row::results) {
        let call = called(&lab, "portmap", &pod, &prev).config(mapped(web()));
        let added = call.add();
        assert_handed_on(&added.ok_result(), &prev, &who);
        if !under_test().reference {
            let said = "portmap: warning: no port is mapped: prevResult has no address of eth0\n";
            assert_eq!(added.stderr, said, "{who}");
            check(&call, &prev);
            lab.snapshot().assert_same(&before);
        }
        call.del().ok();
    }
}

#[test]
fn addresses_without_an_interface_that_is_listed_do_not_become_those_of_a_bridge() {
    beyond_reference!("chained-bridge");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let prev = json!({"cniVersion": "1.0.0", "ips": [{"address": "10.9.0.5/24", "interface": 0}]});
    let ipam = host_local(&[&["10.1.2.0/24"]]);
    let call = lab.plugin("bridge").on(&pod).config(json!({"bridge": "br0", "ipam": ipam}));
    let result = call.config(json!({"prevResult": prev})).add().ok_result();
    assert_eq!(result["ips"][1], json!({"address": "10.9.0.5/24"}), "{result}");
}

#[test]
fn tuning_changes_interfaces_of_other_plugins_and_passes_the_rest_on() {
    let lab = Lab::new();
    let pod = wired(&lab);
    let before = lab.snapshot();
    for (who, prev) in SERVED.iter().chain(&PASSED_ON).flat_map(Row::results) {
        let sysctl = json!({"sysctl": {"net.ipv4.conf.eth0.log_martians": "1"}});
        let call = called(&lab, "tuning", &pod, &prev).config(sysctl);
        assert_handed_on(&call.add().ok_result(), &prev, &who);
        check(&call, &prev);
        call.del().ok();

        let call = call.config(json!({"mac": "02:00:00:00:00:aa", "promisc": true}));
        let result = call.add().ok_result();
        let link = pod.link("eth0").unwrap();
        assert_eq!((&link["address"], &link["promiscuity"]), (&json!("02:00:00:00:00:aa"), &json!(1)));
        let interfaces = |result: &Value| result["interfaces"].as_array().cloned().unwrap_or_default();
        for (now, then) in interfaces(&result).iter().zip(interfaces(&prev)) {
            let named = now["name"] == "eth0";
            assert_eq!(
                now["mac"],
                if named { json!("02:00:00:00:00:aa") } else { then["mac"].clone() },
                "{who}"
            );
            assert_eq!(now["name"], then["name"], "{who}");
        }
        assert_eq!(ips(&result), ips(&prev), "{who}");
        check(&call, &result);
        call.del().ok();
        pod.sh("echo 0 >/proc/sys/net/ipv4/conf/eth0/log_martians");
        lab.snapshot().assert_same(&before);
    }
}
