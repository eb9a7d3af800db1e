//! `cnitool test-connectivity`: a working network passes, each broken promise is found, and nothing is left.

use std::fs;
use std::path::Path;

use lab::dhcp::{in_background, started_by};
use lab::{Lab, Outcome, Tool, beyond_reference, needs, ours, quoted, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::common::{host_local, is_ignored, leases, ports};

/// A host whose uplink leads to another machine, its router.
fn host() -> (Lab, lab::Netns) {
    let lab = Lab::new();
    let far = lab.machine("far");
    lab.host().sh("ip route add default via 198.51.100.2; ip -6 route add default via 2001:db8:51::2");
    (lab, far)
}

fn bridge() -> Value {
    json!({"type": "bridge", "bridge": "br0", "isDefaultGateway": true, "ipMasq": true,
        "ipam": host_local(&[&["10.207.2.0/24"], &["fd00:207::/64"]])})
}

fn configure(lab: &Lab, plugins: &Value) -> Tool {
    lab.configure("10-net.conflist", &json!({"cniVersion": "1.1.0", "name": "net", "plugins": plugins}));
    lab.cnitool()
}

/// A plugin that runs a command on the host at ADD, and otherwise is tuning.
fn saboteur(lab: &Lab, action: &str) -> Value {
    let tuning = ours().join("tuning");
    lab.fake_plugin(
        "sabotage",
        &format!("[ $CNI_COMMAND != ADD ] || {{ {action}; }} >&2\nexec {}", quoted(&tuning)),
    );
    json!({"type": "sabotage"})
}

/// The checks of a run, a line each: promise, from, to, result, details and remedy.
#[track_caller]
fn rows(outcome: &Outcome) -> Vec<String> {
    let report: Value = serde_json::from_str(&outcome.stdout).unwrap_or_else(|e| panic!("{e}: {outcome:#?}"));
    let rows = report["checks"].as_array().unwrap();
    let has_failed = rows.iter().any(|row| row["result"] == "failed");
    assert_eq!(
        (outcome.exit, &report["passed"]),
        (Some(i32::from(has_failed)), &json!(!has_failed)),
        "{outcome:#?}"
    );
    let keys = ["promise", "from", "to", "result", "details", "remedy"];
    rows.iter().map(|row| keys.map(|key| row[key].as_str().unwrap_or_default()).join(" | ")).collect()
}

#[track_caller]
fn run(tool: &Tool) -> Vec<String> {
    rows(&tool.run("test-connectivity net --output json"))
}

/// Asserts that one row contains all these words.
#[track_caller]
fn has(rows: &[String], words: &[&str]) {
    let has_all = |row: &&String| words.iter().all(|word| row.contains(word));
    assert!(rows.iter().any(|row| has_all(&row)), "{words:?} in {rows:#?}");
}

/// Everything that a test could leave: links, rules, leases, results, namespaces.
fn state(lab: &Lab) -> String {
    let results = "ls /var/lib/cni/results 2>/dev/null || true";
    let links = lab.host().link_names().join(" ");
    format!(
        "{links}\n{:?}\n{}{}{}",
        leases(),
        lab.host().sh(results),
        lab.host().sh("ip netns list"),
        // Without counters, because the reference's rules have some.
        lab.host().sh("nft --stateless list ruleset")
    )
}

#[test]
fn a_working_network_passes_in_both_families_and_nothing_is_left() {
    needs!(NftNat, Ipv6);
    let (lab, _far) = host();
    let tool = configure(&lab, &json!([bridge(), ports()]));
    fs::create_dir_all("/var/lib/cni/networks/net").unwrap();
    let before = state(&lab);
    let first = run(&tool);
    for promise in ["container to container", "gateway", "MTU", "outside"] {
        let of = |family: &str| {
            first
                .iter()
                .any(|row| row.starts_with(promise) && row.contains(family) && row.contains("| passed |"))
        };
        let v6 = if promise == "outside" { "2001:db8:51::2" } else { "fd00:207:" };
        let v4 = if promise == "outside" { "198.51.100.2" } else { "10.207.2." };
        assert!(of(v4) && of(v6), "{promise}: {first:#?}");
    }
    for client in ["the host", "container b", "another machine"] {
        has(&first, &["host port", client, "| 198.51.100.1 |", "| passed |"]);
        has(&first, &["host port", client, "| 2001:db8:51::1 |", "| passed |"]);
    }
    assert!(first.iter().all(|row| row.contains("| passed |")), "{first:#?}");
    assert_eq!(state(&lab).replacen(" br0", "", 1), before, "the bridge stays");
    let table = tool.says("test-connectivity net");
    assert!(table.contains("network net: all checks passed"), "{table}");
}

#[test]
fn containers_that_do_not_reach_each_other_are_found() {
    let (lab, _far) = host();
    let cut = saboteur(
        &lab,
        "for link in $(ls /sys/class/net | grep ^veth); do bridge link set dev $link isolated on; done",
    );
    let tool = configure(&lab, &json!([bridge(), cut]));
    let found = run(&tool);
    let words = [
        "container to container",
        "container b",
        "container a 10.207.2.2",
        "| failed |",
        "no answer",
        "cnitool doctor",
    ];
    has(&found, &words);
    has(&found, &["gateway", "| passed |"]);
    configure(&lab, &json!([bridge()]));
    has(&run(&tool), &["container to container", "10.207.2.", "| passed |"]);
}

#[test]
fn containers_that_are_not_isolated_as_configured_are_found() {
    let (lab, _far) = host();
    let mut apart = bridge();
    apart["portIsolation"] = json!(true);
    let tool = configure(&lab, &json!([apart]));
    has(&run(&tool), &["isolation of containers", "| passed |"]);
    let undo = saboteur(
        &lab,
        "for link in $(ls /sys/class/net | grep ^veth); do bridge link set dev $link isolated off; done",
    );
    configure(&lab, &json!([apart, undo]));
    has(&run(&tool), &["isolation of containers", "| failed |", "is answered", "portIsolation"]);
}

#[test]
fn containers_that_firewall_does_not_isolate_as_configured_are_found() {
    beyond_reference!("ingress-policy");
    let (lab, _far) = host();
    let isolated = json!({"type": "firewall", "ingressPolicy": "isolated"});
    let tool = configure(&lab, &json!([bridge(), isolated]));
    has(&run(&tool), &["isolation of containers", "| passed |"]);
    let undo = saboteur(&lab, "nft flush ruleset");
    configure(&lab, &json!([bridge(), isolated, undo]));
    has(&run(&tool), &["isolation of containers", "| failed |", "is answered", "ingressPolicy isolated"]);
}

#[test]
fn a_gateway_that_does_not_answer_is_found() {
    beyond_reference!("bridge-mac");
    let (lab, _far) = host();
    let mut without = bridge();
    without["isDefaultGateway"] = json!(false);
    let tool = configure(&lab, &json!([without]));
    let found = run(&tool);
    has(&found, &["gateway", "container a", "10.207.2.1", "| failed |", "isGateway"]);
    assert!(!found.iter().any(|row| row.starts_with("outside")), "nothing outside is promised: {found:#?}");
    configure(&lab, &json!([bridge()]));
    has(&run(&tool), &["gateway", "10.207.2.1", "| passed |"]);
}

#[test]
fn packets_as_large_as_the_mtu_that_are_lost_are_found() {
    let (lab, _far) = host();
    // The container's MTU is larger than the host's end.
    let small =
        saboteur(&lab, "for link in $(ls /sys/class/net | grep ^veth); do ip link set $link mtu 1400; done");
    let tool = configure(&lab, &json!([bridge(), small]));
    let found = run(&tool);
    has(&found, &["container to container", "| passed |"]);
    has(&found, &["MTU", "10.207.2.", "| failed |", "packets of 1500 bytes with DF are lost", "set `mtu`"]);
    has(&found, &["MTU", "fd00:207::", "| failed |", "1500"]);
    configure(&lab, &json!([bridge()]));
    has(&run(&tool), &["MTU", "10.207.2.", "| passed | 1500 bytes"]);
}

#[test]
fn a_network_without_addresses_does_not_pass_because_nothing_was_tested() {
    let (lab, _far) = host();
    let tool = configure(&lab, &json!([{"type": "bridge", "bridge": "br0"}]));
    let outcome = tool.run("test-connectivity net --output json");
    let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!((outcome.exit, &report["passed"]), (Some(1), &json!(false)), "{outcome:#?}");
    assert_eq!(report["checks"].as_array().unwrap().len(), 1, "{report}");
    let row = &report["checks"][0];
    assert_eq!(
        (&row["result"], &row["details"]),
        (&json!("skipped"), &json!("the containers have no addresses"))
    );
    let table = tool.run("test-connectivity net");
    assert!(
        table.exit == Some(1) && table.stdout.contains("✗ network net: nothing was tested"),
        "{table:#?}"
    );
}

#[test]
fn dropped_traffic_to_outside_is_found_and_without_a_route_the_check_is_skipped() {
    let (lab, far) = host();
    let tool = configure(&lab, &json!([bridge()]));
    lab.host().sh("nft 'table inet x { chain f { type filter hook forward priority 0; policy drop; }\n}'");
    has(
        &run(&tool),
        &[
            "outside",
            "container a",
            "198.51.100.2",
            "| failed |",
            "but it answers the host",
            "cnitool doctor",
        ],
    );
    lab.host().sh("nft delete table inet x");
    has(&run(&tool), &["outside", "198.51.100.2", "| passed |"]);
    far.sh("ip link set eth0 down");
    has(&run(&tool), &["outside", "198.51.100.2", "| skipped |", "does not answer the host either"]);
    lab.host().sh("ip route del default; ip -6 route del default");
    has(&run(&tool), &["outside", "IPv4", "| skipped |", "--outside"]);
    far.sh("ip link set eth0 up");
    let named = rows(&tool.run("test-connectivity net --outside 198.51.100.2 --output json"));
    has(&named, &["outside", "198.51.100.2", "| passed |"]);
}

#[test]
fn a_host_port_that_does_not_lead_to_the_container_is_found_from_each_side() {
    needs!(NftNat);
    let (lab, _far) = host();
    let tool = configure(&lab, &json!([bridge(), ports()]));
    for (hook, clients) in [("forward", &["container b", "another machine"][..]), ("output", &["the host"])] {
        lab.host().sh(&format!(
            "nft 'table inet x {{ chain f {{ type filter hook {hook} priority 0; ct status dnat drop; }}\n}}'"
        ));
        let found = run(&tool);
        for client in clients {
            has(&found, &["host port", client, "| 198.51.100.1 |", "| failed |", "cnitool repair net"]);
        }
        lab.host().sh("nft delete table inet x");
    }
    assert!(run(&tool).iter().all(|row| row.contains("| passed |")));
    // A connection that another server accepts.
    let _other = lab.host().serve_tcp("other", "198.51.100.1:9");
    lab.host().sh("nft 'table inet x { chain o { type nat hook output priority -150; ip daddr 198.51.100.1 meta l4proto tcp dnat ip to 198.51.100.1:9; }\n}'");
    has(
        &run(&tool),
        &[
            "host port",
            "the host",
            "| 198.51.100.1 |",
            "| failed |",
            "the connection does not reach the container",
        ],
    );
}

#[test]
fn another_machine_that_cannot_be_attached_is_skipped_with_the_reason() {
    needs!(NftNat);
    let (lab, _far) = host();
    let tool = configure(&lab, &json!([bridge(), ports()]));
    fs::create_dir_all("/run/lab/few").unwrap();
    for plugin in ["bridge", "host-local", "portmap", "static"] {
        lab.host().exec(&["cp", ours().join(plugin).to_str().unwrap(), "/run/lab/few"]);
    }
    let words = ["host port", "another machine", "| skipped |"];
    let without_ptp = run(&tool.clone().env("CNI_PATH", "/run/lab/few"));
    has(&without_ptp, &[&words[..], &["no plugin \"ptp\""]].concat());
    has(&without_ptp, &["host port", "the host", "| passed |"]);
    let still = saboteur(&lab, "echo 0 >/proc/sys/net/ipv4/ip_forward");
    configure(&lab, &json!([bridge(), ports(), still]));
    has(&run(&tool), &[&words[..], &["the host does not forward IPv4"]].concat());
}

#[test]
fn dns_servers_that_do_not_answer_or_do_not_know_the_containers_name_are_found() {
    if !lab::dhcp::has_dnsmasq() {
        return lab::skip("dnsmasq is missing");
    }
    let (lab, _far) = host();
    // The test starts dnsmasq itself. So another plugin dnsname, even if it is found first, changes nothing.
    lab.fake_plugin("dnsname", &format!("exec {}", quoted(&ours().join("tuning"))));
    let mut named = bridge();
    named["dns"] = json!({"nameservers": ["10.207.2.1"]});
    let path = format!("{}:{}", Lab::plugin_dir().display(), ours().display());
    let tool = configure(&lab, &json!([named])).env("CNI_PATH", &path);
    has(&run(&tool), &["DNS", "container a", "10.207.2.1", "| failed |", "start the DNS server"]);

    let firewall = "nft 'add table inet t; add chain inet t o { type filter hook output priority 0; }; \
                    add rule inet t o udp dport 53 drop'";
    let refusing = saboteur(&lab, &format!("nsenter --net=$CNI_NETNS {firewall}"));
    configure(&lab, &json!([named, refusing]));
    has(&run(&tool), &["DNS", "10.207.2.1", "| failed |", "Operation not permitted"]);
    configure(&lab, &json!([named]));

    let serve = |options: &str| {
        let line = format!(
            "--keep-in-foreground --user=root --conf-file=/dev/null --pid-file= --no-resolv --no-hosts --listen-address=10.207.2.1 --bind-interfaces {options}"
        );
        in_background(lab.host(), started_by("/usr/sbin/dnsmasq", &line), Path::new("/run/lab/server.log"))
    };
    let server = serve("");
    lab.host().wait_until("the server listens", |host| host.sh("ss -lun").contains("10.207.2.1:53"));
    has(&run(&tool), &["DNS", "10.207.2.1", "| passed |"]);
    drop(server);

    // A server that asks other servers may need more than a second.
    let slow = "import socket, time; server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); server.bind(('10.207.2.1', 53))
while True:
    query, client = server.recvfrom(512); time.sleep(1.2)
    server.sendto(query[:2] + bytes([0x81, 0x83]) + query[4:], client)";
    let mut python = started_by("python3", "-c");
    python.arg(slow);
    let server = in_background(lab.host(), python, Path::new("/run/lab/slow.log"));
    lab.host().wait_until("the server listens", |host| host.sh("ss -lun").contains("10.207.2.1:53"));
    has(&run(&tool), &["DNS", "10.207.2.1", "| passed |"]);
    drop(server);

    let server = serve("");
    lab.host().wait_until("the server listens", |host| host.sh("ss -lun").contains("10.207.2.1:53"));
    configure(&lab, &json!([named, {"type": "dnsname"}]));
    has(
        &run(&tool),
        &["DNS", "10.207.2.1", "| failed |", "does not know cnitool-test-", "/run/containers/cni/dnsname"],
    );
    drop(server);
    // It answers for any name.
    let _server = serve("--address=/#/10.207.2.3");
    lab.host().wait_until("the server listens", |host| host.sh("ss -lun").contains("10.207.2.1:53"));
    has(&run(&tool), &["DNS", "10.207.2.1", "| passed | cnitool-test-"]);
}

#[test]
fn a_bandwidth_limit_that_does_not_work_is_found() {
    needs!(TrafficControl);
    let (lab, _far) = host();
    let limited = json!({"type": "bandwidth", "ingressRate": 8_000_000, "ingressBurst": 800_000});
    let tool = configure(&lab, &json!([bridge(), limited]));
    has(&run(&tool), &["ingress limit | container b | container a | passed |", "bit/s"]);
    let undo = saboteur(
        &lab,
        "for link in $(ls /sys/class/net | grep ^veth); do tc qdisc del dev $link root || true; done",
    );
    configure(&lab, &json!([bridge(), limited, undo]));
    has(
        &run(&tool),
        &["ingress limit", "| failed |", "8 Mbit/s and a burst of 800 kbit are allowed", "cnitool repair"],
    );
    let limited = json!({"type": "bandwidth", "egressRate": 8_000_000, "egressBurst": 800_000});
    configure(&lab, &json!([bridge(), limited]));
    has(&run(&tool), &["egress limit | container a | container b | passed |", "bit/s"]);
    let undo = saboteur(
        &lab,
        "for link in $(ls /sys/class/net | grep ^veth); do tc qdisc del dev $link clsact || true; done",
    );
    configure(&lab, &json!([bridge(), limited, undo]));
    has(&run(&tool), &["egress limit", "| failed |", "8 Mbit/s and a burst of 800 kbit are allowed"]);
    let large = json!({"type": "bandwidth", "egressRate": 8_000_000, "egressBurst": 2_000_000_000});
    configure(&lab, &json!([bridge(), large]));
    has(&run(&tool), &["egress limit", "| skipped |", "too large"]);
}

/// A proxy, or another machine with the same address.
#[test]
fn a_bandwidth_limit_is_not_measured_if_something_else_answers_for_the_container() {
    needs!(TrafficControl, NftNat);
    let (lab, _far) = host();
    let _other = lab.host().serve_tcp("other", "198.51.100.1:9");
    lab.host().sh("nft 'table ip x { chain p { type nat hook prerouting priority -150; ip daddr 10.207.4.0/24 meta l4proto tcp dnat to 198.51.100.1:9; }\n}'");
    let ptp = json!({"type": "ptp", "ipam": host_local(&[&["10.207.4.0/24"]])});
    let limited = json!({"type": "bandwidth", "ingressRate": 8_000_000, "ingressBurst": 800_000});
    let tool = configure(&lab, &json!([ptp, limited]));
    has(&run(&tool), &["ingress limit", "| failed |", "the connection does not reach the container"]);
}

#[test]
fn a_failed_add_and_a_failed_del_are_found_and_the_rest_is_removed() {
    let (lab, _far) = host();
    // Two addresses, one of which is the gateway's.
    let small = json!({"type": "bridge", "bridge": "br0", "isGateway": true, "ipam": host_local(&[&["10.207.3.0/30"]])});
    let tool = configure(&lab, &json!([small]));
    let found = run(&tool);
    has(&found, &["attach", "container b", "net", "| failed |", "no IP addresses available"]);
    assert_eq!((found.len(), leases()), (1, Vec::new()));
    lab.host().sh("ip link del br0");

    lab.fake_plugin("clingy", &format!("[ $CNI_COMMAND != DEL ] || {{ echo '{{\"code\": 11, \"msg\": \"not now\"}}'; exit 1; }}\nexec {}", quoted(&ours().join("tuning"))));
    configure(&lab, &json!([bridge(), {"type": "clingy"}]));
    has(&run(&tool), &["remove", "container a", "| failed |", "not now", "cnitool gc net"]);
    lab.fake_plugin("clingy", &format!("exec {}", quoted(&ours().join("tuning"))));
    tool.says("gc net");
    assert_eq!(leases(), Vec::<String>::new());
}

/// The test is in its longest check: an address that does not answer.
fn interrupted(lab: &Lab, tool: &Tool, signal: Signal) -> Option<i32> {
    let mut running = tool.spawn("test-connectivity net --outside 198.51.100.77");
    until("both containers are attached", || {
        fs::read_dir("/var/lib/cni/results").is_ok_and(|results| results.count() >= 2)
    });
    // The machine for the outside may exist already, too.
    assert!(lab.host().link_names().iter().filter(|name| name.starts_with("veth")).count() >= 2);
    kill(Pid::from_raw(running.id() as i32), signal).unwrap();
    running.wait().unwrap().code()
}

#[test]
fn a_signal_ends_the_test_and_both_containers_are_removed() {
    let (lab, _far) = host();
    let tool = configure(&lab, &json!([bridge(), ports()]));
    run(&tool);
    let before = state(&lab);
    let table = lab.dir().join("table");
    let to_file = format!("exec \"$0\" \"$@\" >{}", table.display());
    let tool = tool.under(&["sh", "-c", &to_file].map(str::to_owned));
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().filter(|it| !is_ignored(*it))
    {
        // On a busy machine, the test may have ended before the signal.
        let is_interrupted = (0..10).any(|_| {
            let code = interrupted(&lab, &tool, signal);
            assert_eq!(state(&lab), before, "{signal}");
            code == Some(1)
        });
        assert!(is_interrupted, "{signal}");
        let table = fs::read_to_string(&table).unwrap();
        assert!(!table.contains("all checks passed") && table.contains("a signal ended the test"), "{table}");
    }
}

#[test]
fn gc_removes_leftovers_of_a_killed_test() {
    beyond_reference!("gc");
    let (lab, _far) = host();
    let tool = configure(&lab, &json!([bridge()]));
    run(&tool);
    let before = state(&lab);
    // On a busy machine, the test may have ended before the signal.
    assert!((0..10).any(|_| interrupted(&lab, &tool, Signal::SIGKILL).is_none()));
    assert_eq!(leases().len(), 4);
    // A process that another test is starting may have a copy of a descriptor of the namespaces until its execve(2).
    lab.host().wait_until("the namespaces are deleted", |host| {
        host.link_names().iter().all(|name| !name.starts_with("veth"))
    });
    let collected = tool.run("gc net");
    assert_eq!(state(&lab), before, "{collected:?}");
    assert!(!Path::new("/run/netns/cnitool-test").exists());
}
