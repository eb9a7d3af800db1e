//! `cnitool doctor`: each of its findings. A test breaks something, sees the finding with cause and remedy, applies the
//! remedy, and the finding disappears.

mod packets;
mod plugins;
mod unread;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use lab::{Feature, Lab, Tool, beyond_reference, needs};
use serde_json::{Value, json};

use crate::common::host_local;

fn bridge(subnet: &str) -> Value {
    json!({"type": "bridge", "bridge": "br0", "isGateway": true, "ipam": host_local(&[&[subnet]])})
}

fn network(plugins: &Value) -> Value {
    json!({"cniVersion": "1.1.0", "name": "net", "plugins": plugins})
}

/// A host without a finding: one network, whose plugin firewall opens the firewall.
fn healthy(lab: &Lab) -> Tool {
    lab.configure("10-net.conflist", &network(&json!([bridge("10.206.2.0/24"), {"type": "firewall"}])));
    lab.cnitool()
}

/// The findings of a check, a line each: severity, object, cause and remedy.
#[track_caller]
fn findings(tool: &Tool, check: &str) -> Vec<String> {
    let outcome = tool.run("doctor --output json");
    let report: Value = serde_json::from_str(&outcome.stdout).unwrap_or_else(|e| panic!("{e}: {outcome:#?}"));
    let all = report["findings"].as_array().unwrap();
    let worst = ["error", "warning"].iter().position(|level| all.iter().any(|one| one["severity"] == *level));
    let exit = [Some(1), Some(4)].into_iter().nth(worst.unwrap_or(2)).unwrap_or(Some(0));
    assert_eq!(outcome.exit, exit, "{outcome:#?}");
    let of_check = all.iter().filter(|one| one["check"] == check);
    let text = |one: &Value, key: &str| one[key].as_str().unwrap().to_owned();
    of_check
        .map(|one| ["severity", "object", "cause", "remedy"].map(|key| text(one, key)).join(" | "))
        .collect()
}

/// Asserts that one finding of the check contains all these words.
#[track_caller]
fn finds(tool: &Tool, check: &str, words: &[&str]) {
    let found = findings(tool, check);
    let has_all = |line: &String| words.iter().all(|word| line.contains(word));
    assert!(found.iter().any(has_all), "{words:?} in {found:#?}");
}

#[track_caller]
fn finds_nothing(tool: &Tool, check: &str) {
    assert_eq!(findings(tool, check), [""; 0]);
}

#[test]
fn nothing_is_wrong_on_a_healthy_host_and_doctor_changes_nothing() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let _pod = lab.container("pod");
    let tool = healthy(&lab);
    tool.says("add net pod");
    let before = lab.snapshot();
    assert!(tool.says("doctor").contains("1 network and 1 attachment checked: nothing is wrong"));
    lab.snapshot().assert_same(&before);
}

/// bandwidth gives its ifb another MTU than the bridge's on purpose.
#[test]
fn the_ifb_of_a_shaped_container_is_no_finding() {
    beyond_reference!("gc");
    needs!(TrafficControl);
    let lab = Lab::new();
    let _pod = lab.container("pod");
    let limit = json!({"type": "bandwidth", "egressRate": 8_000_000, "egressBurst": 8_000_000});
    lab.configure(
        "10-net.conflist",
        &network(&json!([bridge("10.206.2.0/24"), {"type": "firewall"}, limit])),
    );
    let tool = lab.cnitool();
    tool.says("add net pod");
    assert_eq!(lab.host().ip("link show type ifb").len(), 1);
    assert!(tool.says("doctor").contains("nothing is wrong"));
}

#[test]
fn the_worst_finding_comes_first_with_its_remedy_on_a_line_of_its_own() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let tool = healthy(&lab);
    let wrong = json!({"cniVersion": "1.1.0", "name": "odd", "plugins": [
        {"type": "bridge", "isGatway": true}, {"type": "bridge", "mtu": "1500"}]});
    lab.configure("20-odd.conflist", &wrong);
    let outcome = tool.run("doctor");
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert!(lines[0].starts_with("error: ") && lines[1].starts_with("  → "), "{outcome:#?}");
    let at = |word: &str| lines.iter().position(|line| line.starts_with(word));
    assert!(at("error:") < at("warning:"), "{outcome:#?}");
    assert!(outcome.stdout.contains("did you mean \"isGateway\"?"), "{outcome:#?}");
    assert_eq!(outcome.exit, Some(1));
}

#[test]
fn a_configuration_that_add_refuses_is_an_error_and_a_doubtful_one_a_warning() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let tool = healthy(&lab);
    let file = "/etc/cni/net.d/20-other.conflist";
    let check = "configurations.valid";
    for (text, words) in [
        (
            r#"{"cniVersion": "1.1.0", "name": "other", "plugins": [{"type": "bridge", "mtu": "1500"}]}"#,
            ["error", "20-other.conflist:1:", "expected a number", "remove the quotes"],
        ),
        (
            r#"{"cniVersion": "1.1.0", "name": "other", "plugins": [{"type": "loopback", "zzqq": 1}]}"#,
            ["warning", "20-other.conflist:1:", "has no key", "cnitool validate"],
        ),
    ] {
        fs::write(file, text).unwrap();
        finds(&tool, check, &words);
    }
    fs::remove_file(file).unwrap();
    fs::create_dir("/etc/cni/net.d/net").unwrap();
    fs::write("/etc/cni/net.d/net/20.conf", "{").unwrap();
    finds(
        &tool,
        check,
        &["error", "net.d/net/20.conf:1:", "cnitool validate /etc/cni/net.d/10-net.conflist"],
    );
    fs::remove_file("/etc/cni/net.d/net/20.conf").unwrap();
    finds_nothing(&tool, check);
}

#[test]
fn a_host_without_networks_is_a_warning() {
    let lab = Lab::new();
    let tool = lab.cnitool();
    finds(
        &tool,
        "configurations.any",
        &["warning", "/etc/cni/net.d", "no network is configured", "explain bridge"],
    );
    healthy(&lab);
    finds_nothing(&tool, "configurations.any");
}

#[test]
fn a_network_that_is_not_ready_is_an_error() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let tool = healthy(&lab);
    let plugin = "[ \"$CNI_COMMAND\" = VERSION ] && exec echo '{\"cniVersion\":\"1.1.0\",\"supportedVersions\":[\"1.1.0\"]}'
        [ -e /run/lab/daemon ] || { echo '{\"cniVersion\":\"1.1.0\",\"code\":50,\"msg\":\"the daemon does not run\",\"details\":\"start it\"}'; exit 1; }";
    lab.fake_plugin("needy", plugin);
    lab.configure(
        "20-needy.conflist",
        &json!({"cniVersion": "1.1.0", "name": "needy", "plugins": [{"type": "needy"}]}),
    );
    finds(&tool, "networks.status", &["error", "network needy", "the daemon does not run", "| start it"]);
    fs::write("/run/lab/daemon", "").unwrap();
    finds_nothing(&tool, "networks.status");
}

#[test]
fn a_plugin_without_the_networks_version_is_an_error_or_a_warning_if_all_have_the_older_one() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let tool = healthy(&lab);
    let versions = |list: &str| format!(r#"echo '{{"cniVersion":"1.0.0","supportedVersions":{list}}}'"#);
    lab.fake_plugin("chained", &versions(r#"["0.4.0", "1.0.0"]"#));
    lab.fake_plugin("ipam", &versions(r#"["0.3.1", "0.4.0"]"#));
    let mut network = json!({"cniVersion": "0.4.0", "cniVersions": ["1.1.0"], "name": "mixed", "plugins": [
        {"type": "bridge", "bridge": "br1", "ipam": {"type": "ipam"}}, {"type": "firewall"}, {"type": "chained"}]});
    lab.configure("20-mixed.conflist", &network);
    let chained = "chained supports only 0.4.0, 1.0.0";
    for plugin in [chained, "ipam supports only 0.3.1, 0.4.0"] {
        let words = ["warning", "network mixed", "version 1.1.0", "uses version 0.4.0", plugin];
        finds(&tool, "networks.version", &words);
    }
    network["cniVersion"] = "0.3.1".into();
    lab.configure("20-mixed.conflist", &network);
    let remedy = "`cnitool version mixed` lists them";
    finds(&tool, "networks.version", &["error", "network mixed", "version 1.1.0", chained, remedy]);
    network["cniVersion"] = "0.4.0".into();
    network["cniVersions"] = json!([]);
    lab.configure("20-mixed.conflist", &network);
    finds_nothing(&tool, "networks.version");
}

/// The runtime of the network finds other plugins than `cnitool`.
#[test]
fn the_version_is_that_of_the_plugins_which_the_networks_runtime_finds() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let tool = lab.cnitool().env("CNI_PATH", "");
    ["/opt/cni", "/etc/crio"].iter().for_each(|dir| lab.private_dir(dir));
    let dirs = "network_dir = \"/run/lab/crio\"\nplugin_dirs = [\"/run/lab/plugins\"]";
    fs::write("/etc/crio/crio.conf", format!("[crio.network]\n{dirs}\n")).unwrap();
    for (dir, versions) in [("/opt/cni/bin", r#"["1.1.0"]"#), ("/run/lab/plugins", r#"["1.0.0"]"#)] {
        fs::create_dir_all(dir).unwrap();
        let script =
            format!("#!/bin/sh\necho '{{\"cniVersion\": \"1.0.0\", \"supportedVersions\": {versions}}}'\n");
        let file = format!("{dir}/twice");
        fs::write(&file, script).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let network = json!({"cniVersion": "1.1.0", "name": "mixed", "plugins": [{"type": "twice"}]});
    fs::create_dir_all("/run/lab/crio").unwrap();
    fs::write("/run/lab/crio/10-mixed.conflist", network.to_string()).unwrap();
    finds(&tool, "networks.version", &["error", "network mixed", "twice supports only 1.0.0"]);
}

#[test]
fn a_range_that_is_nearly_full_is_a_warning_before_containers_fail() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let tool = lab.cnitool();
    lab.configure("10-net.conflist", &network(&json!([bridge("10.206.3.0/28"), {"type": "firewall"}])));
    // 13 addresses: 2 to 14.
    let pods: Vec<_> = (0..12).map(|n| lab.container(&format!("pod{n}"))).collect();
    pods[..11].iter().for_each(|pod| drop(tool.says(&format!("add net {}", pod.name()))));
    finds_nothing(&tool, "networks.full");
    tool.says("add net pod11");
    finds(
        &tool,
        "networks.full",
        &["warning", "network net", "12 of 13 addresses", "cnitool gc net --dry-run"],
    );
    tool.says("del net pod11");
    finds_nothing(&tool, "networks.full");
}

#[test]
fn a_bridge_that_add_cannot_use_is_an_error() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let tool = healthy(&lab);
    let check = "networks.bridge";
    finds_nothing(&tool, check);
    lab.host().sh("ip link add br0 type veth");
    finds(&tool, check, &["error", "network net", "br0 is not a bridge", "ip link del br0"]);
    lab.host()
        .sh("ip link del br0; ip link add br0 type bridge; ip addr add 169.254.0.1/16 dev br0 scope link");
    finds_nothing(&tool, check);
    // Of the network's old subnet.
    lab.host().sh("ip addr add 10.206.9.1/24 dev br0");
    let words =
        ["error", "network net", "br0 has the address 10.206.9.1/24", "10.206.2.1/24", "ip link del br0"];
    finds(&tool, check, &words);
    let mut forced = bridge("10.206.2.0/24");
    forced["forceAddress"] = json!(true);
    lab.configure("10-net.conflist", &network(&json!([forced])));
    finds_nothing(&tool, check);
    let file = "/run/lab/subnet.env";
    let flanneld = "FLANNEL_NETWORK=10.206.0.0/16\nFLANNEL_SUBNET=10.206.4.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n";
    let flannel = json!({"type": "flannel", "subnetFile": file, "delegate": {"bridge": "br0"}});
    lab.configure("10-net.conflist", &network(&json!([flannel])));
    finds_nothing(&tool, check);
    fs::write(file, flanneld).unwrap();
    finds(&tool, check, &["error", "network net", "10.206.9.1/24", "10.206.4.1/24"]);
    lab.host().sh("ip link del br0");
    finds_nothing(&tool, check);
}

/// Deleting the bridge would detach the other network's containers.
#[test]
fn the_remedy_for_a_bridge_with_containers_of_another_network_is_another_bridge() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let _pod = lab.container("pod");
    let tool = healthy(&lab);
    let mut unused = network(&json!([bridge("10.206.9.0/24")]));
    unused["name"] = json!("unused");
    let check = "networks.bridge";
    tool.says("add net pod");
    lab.configure("05-unused.conflist", &unused);
    let advises_another_bridge = || {
        let found = findings(&tool, check);
        let words = ["10.206.2.1/24", "10.206.9.1/24", "used by network net", "another name"];
        assert!(found.len() == 1 && found[0].starts_with("error | network unused"), "{found:#?}");
        assert!(words.iter().all(|word| found[0].contains(word)), "{found:#?}");
        assert!(!found[0].contains("ip link del"), "{found:#?}");
    };
    advises_another_bridge();
    // Only the cache has the network.
    let file = "/etc/cni/net.d/10-net.conflist";
    let configured = fs::read(file).unwrap();
    fs::remove_file(file).unwrap();
    advises_another_bridge();
    fs::write(file, configured).unwrap();
    tool.says("del net pod");
    finds(&tool, check, &["error", "network unused", "ip link del br0"]);
}

/// As after a change of the subnet.
#[test]
fn a_configuration_without_containers_does_not_change_the_remedy_for_a_bridge() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let _pods = ["pod", "pod2"].map(|id| lab.container(id));
    let tool = healthy(&lab);
    let check = "networks.bridge";
    tool.says("add net pod");
    lab.configure("10-net.conflist", &network(&json!([bridge("10.206.9.0/24")])));
    let mut old = network(&json!([bridge("10.206.2.0/24")]));
    old["name"] = json!("old");
    let before = findings(&tool, check);
    lab.configure("20-old.conflist", &old);
    assert_eq!(findings(&tool, check), before);
    let [line] = &before[..] else { panic!("{before:#?}") };
    assert!(line.starts_with("error | network net | ") && !line.contains("used by"), "{line}");
    let remedy = line.rsplit(" | ").next().unwrap();
    let added = tool.run("add net pod2");
    assert!(added.stderr.starts_with("error 7: ") && added.stderr.contains(remedy), "{remedy} in {added:#?}");
}

#[test]
fn a_kind_of_links_that_the_kernel_does_not_have_is_an_error() {
    let lab = Lab::new();
    let tool = healthy(&lab);
    finds_nothing(&tool, "kernel.links");
    let [dummy, ipvlan, macvlan] = ["dummy", "ipvlan", "macvlan"];
    for (plugin, kind, feature) in [
        (dummy, dummy, Feature::Dummy),
        (ipvlan, ipvlan, Feature::Ipvlan),
        (macvlan, macvlan, Feature::Macvlan),
        ("tap", "tun", Feature::Tap),
    ] {
        lab.configure(
            "20-other.conflist",
            &json!({"cniVersion": "1.1.0", "name": "other", "plugins": [{"type": plugin}]}),
        );
        if feature.is_there() {
            finds_nothing(&tool, "kernel.links");
        } else {
            let cause = format!("the kernel has no links of kind {kind}");
            finds(&tool, "kernel.links", &["error", "network other", &cause, "module"]);
        }
    }
}

#[test]
fn disabled_ipv6_is_an_error_if_a_network_has_ipv6_addresses() {
    let lab = Lab::new();
    lab::needs!(Ipv6);
    let tool = healthy(&lab);
    lab.host().sh("sysctl -qw net.ipv6.conf.all.disable_ipv6=1");
    finds_nothing(&tool, "kernel.ipv6");
    lab.configure("10-net.conflist", &network(&json!([bridge("fd00:206::/64")])));
    finds(
        &tool,
        "kernel.ipv6",
        &["error", "network net", "IPv6 is disabled", "sysctl -w net/ipv6/conf/all/disable_ipv6=0"],
    );
    lab.host().sh("sysctl -qw net/ipv6/conf/all/disable_ipv6=0");
    finds_nothing(&tool, "kernel.ipv6");
}

#[test]
fn disabled_ipv6_of_a_networks_bridge_is_an_error() {
    let lab = Lab::new();
    lab::needs!(Ipv6);
    let _pod = lab.container("pod");
    let (tool, remedy) = (lab.cnitool(), "sysctl -w net/ipv6/conf/br0/disable_ipv6=0");
    lab.configure("10-net.conflist", &network(&json!([bridge("fd00:206::/64")])));
    tool.says("add net pod");
    finds_nothing(&tool, "kernel.ipv6");
    lab.host().sh("sysctl -qw net.ipv6.conf.br0.disable_ipv6=1");
    finds(&tool, "kernel.ipv6", &["error", "network net", "IPv6 is disabled on bridge br0", remedy]);
    lab.host().sh(remedy);
    finds_nothing(&tool, "kernel.ipv6");
}

#[test]
fn stale_resources_of_a_deleted_container_are_a_warning() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let pod = lab.container("warned-of");
    let tool = healthy(&lab);
    tool.says("add net warned-of");
    finds_nothing(&tool, "stale");
    pod.vanish();
    finds(&tool, "stale", &["warning", "network net", "1 attachment", "1 lease", "cnitool gc net"]);
    tool.says("gc net");
    finds_nothing(&tool, "stale");
}

/// GC examines these networks too.
#[test]
fn stale_resources_of_a_network_without_a_file_are_a_warning() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let pods = ["of-a-cache", "of-a-driver"].map(|id| lab.container(id));
    let tool = healthy(&lab);
    let other = |name: &str, subnet: &str| {
        let mut bridge = bridge(subnet);
        bridge["bridge"] = name.into();
        json!({"cniVersion": "1.1.0", "name": name, "plugins": [bridge, {"type": "firewall"}]})
    };
    lab.configure("20-cached.conflist", &other("cached", "10.206.4.0/24"));
    tool.says("add cached of-a-cache --container-id of-a-cache");
    fs::remove_file("/etc/cni/net.d/20-cached.conflist").unwrap();
    fs::create_dir_all("/var/lib/cni/netavark").unwrap();
    let driven = other("driven", "10.206.5.0/24").to_string();
    fs::write("/var/lib/cni/netavark/driven.conflist", driven).unwrap();
    tool.says("add driven of-a-driver --container-id of-a-driver --conf-dir /var/lib/cni/netavark");
    fs::remove_file("/var/lib/cni/results/driven-of-a-driver-eth0").unwrap();
    finds_nothing(&tool, "stale");
    pods.iter().for_each(|pod| pod.vanish());
    lab.host().wait_until("the pairs are gone", |host| host.sh("ip -o link show type veth").is_empty());
    for name in ["cached", "driven"] {
        finds(&tool, "stale", &["warning", &format!("network {name}"), "1 lease", "cnitool gc"]);
    }
    tool.says("gc --all");
    finds_nothing(&tool, "stale");
}

#[test]
fn resources_without_a_known_container_are_a_note_and_do_not_change_the_exit_code() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let _quiet = lab.container("quiet");
    let tool = healthy(&lab);
    crate::common::cable(&lab);
    let ipam = json!({"type": "static", "addresses": [{"address": "10.219.6.9/24"}]});
    let ports = json!({"type": "portmap", "capabilities": {"portMappings": true}});
    lab.configure(
        "20-web.conflist",
        &json!({"cniVersion": "1.1.0", "name": "web", "plugins": [
        {"type": "macvlan", "master": "cable", "ipam": ipam}, ports]}),
    );
    tool.says("add web quiet --container-id x7f3 -p 8089:80 --cache-dir /run/lab/elsewhere");
    // Only the rules are left of the container.
    lab.host().sh("ip -n quiet link del eth0");
    finds(&tool, "stale", &["note", "network web", "whose container may be alive", "--force CONTAINER"]);
    assert_eq!(tool.run("doctor").exit, Some(0));
    tool.says("gc web --force x7f3");
    finds_nothing(&tool, "stale");
}

#[test]
fn an_attachment_that_lost_its_rules_or_its_address_is_an_error_with_the_remedy_for_each() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.configure(
        "10-net.conflist",
        &network(&json!([bridge("10.206.2.0/24"),
        {"type": "portmap", "capabilities": {"portMappings": true}}, {"type": "firewall"}])),
    );
    let tool = lab.cnitool();
    tool.says("add net pod --container-id web -p 8080:80");
    finds_nothing(&tool, "attachments.check");
    lab.host().sh("nft flush ruleset");
    finds(
        &tool,
        "attachments.check",
        &["error", "attachment net/web/eth0", "CHECK failed", "run `cnitool repair net`"],
    );
    tool.says("repair net");
    finds_nothing(&tool, "attachments.check");
    pod.sh("ip addr flush dev eth0");
    finds(
        &tool,
        "attachments.check",
        &["error", "attachment net/web/eth0", "10.206.2.2", "delete the pod, or restart the container"],
    );
    tool.says("del net pod --container-id web");
    finds_nothing(&tool, "attachments.check");
}

/// Without creating the containers again.
#[test]
fn a_host_link_that_is_down_and_a_missing_gateway_address_are_errors_with_the_command_that_is_enough() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let _pod = lab.container("pod");
    let tool = healthy(&lab);
    let check = "attachments.check";
    tool.says("add net pod --container-id web");
    let port = lab.host().sh("ip -br link show master br0 | cut -d@ -f1");
    let port = port.trim();
    for (cause, remedy) in [
        ("ip link set br0 down".to_owned(), "ip link set br0 up".to_owned()),
        (format!("ip link set {port} down"), format!("ip link set {port} up")),
        ("ip addr flush dev br0".to_owned(), "ip addr add 10.206.2.1/24 dev br0".to_owned()),
    ] {
        finds_nothing(&tool, check);
        lab.host().sh(&cause);
        finds(&tool, check, &["error", "attachment net/web/eth0", &format!("| run `{remedy}`")]);
        lab.host().sh(&remedy);
    }
    finds_nothing(&tool, check);
}

#[test]
fn a_damaged_result_is_a_warning() {
    let lab = Lab::new();
    let _pod = lab.container("pod");
    let tool = healthy(&lab);
    tool.says("add net pod --container-id web");
    let file = "/var/lib/cni/results/net-web-eth0";
    let whole = fs::read(file).unwrap();
    fs::write(file, &whole[..10]).unwrap();
    finds(&tool, "attachments.results", &["warning", file, "damaged", "delete the file"]);
    let bare = json!({"cniVersion": "0.4.0", "interfaces": [{"name": "eth0", "sandbox": "/run/netns/pod"}]});
    fs::write(file, bare.to_string()).unwrap();
    let words = ["note", file, "format of libcni before 0.8", "restart the container"];
    finds(&tool, "attachments.results", &words);
    fs::write(file, whole).unwrap();
    finds_nothing(&tool, "attachments.results");
}

#[test]
fn a_check_that_cannot_run_is_a_warning_and_the_others_run() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let tool = lab.cnitool();
    lab.configure("10-net.conflist", &network(&json!([bridge("10.206.2.0/24")])));
    let without = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"].map(str::to_owned);
    let outcome = tool.under(&without).run("doctor");
    assert!(outcome.stdout.contains("warning: check firewalls.nftables: the check failed"), "{outcome:#?}");
    assert!(outcome.stdout.contains("run `cnitool doctor` as root"), "{outcome:#?}");
}
