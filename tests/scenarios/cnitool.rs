//! cnitool: commands by operators, and calls of scripts for the reference's cnitool.

mod attachments;
pub mod cleanup;
mod completion;
mod connectivity;
mod doctor;
mod metrics;
pub mod repair;
mod sysdump;
mod validate;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lab::{Lab, Outcome, Tool, beyond_reference, injecting, needs};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::common::{STORE, cable, host_local, ips, is_ignored, leases, sleeper, with_full_stdout};

/// A bridge with host-local, as a separate network.
fn pods(version: &str, subnet: &str) -> Value {
    let bridge =
        json!({"type": "bridge", "bridge": "br0", "isGateway": true, "ipam": host_local(&[&[subnet]])});
    json!({"cniVersion": version, "name": "net", "plugins": [bridge]})
}

#[test]
fn a_script_written_for_the_references_cnitool_works_unchanged() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let dir = lab.dir().join("conf");
    fs::create_dir(&dir).unwrap();
    let single = json!({"cniVersion": "0.4.0", "name": "mine", "type": "bridge", "bridge": "br0",
        "ipam": host_local(&[&["10.1.2.0/24"]])});
    fs::write(dir.join("10-mine.conf"), single.to_string()).unwrap();
    let tool = lab.cnitool().env("NETCONFPATH", dir.to_str().unwrap()).env("CNI_IFNAME", "net7");
    let netns = pod.path().display();

    let result: Value = serde_json::from_str(&tool.says(&format!("add mine {netns}"))).unwrap();
    assert_eq!((&result["cniVersion"], ips(&result)), (&json!("0.4.0"), vec!["10.1.2.2/24"]));
    assert!(pod.link("net7").is_some());
    assert_eq!(tool.says(&format!("check mine {netns}")), "");
    // The reference prints nothing. Its scripts read only the exit code.
    assert!(tool.says(&format!("status mine {netns}")).contains("ready"));
    assert_eq!(tool.says(&format!("del mine {netns}")), "");
    assert_eq!(tool.says(&format!("del mine {netns}")), "", "a second DEL is fine");
    assert!(pod.link("net7").is_none());
}

#[test]
fn a_fifo_in_place_of_the_directory_of_results_is_an_error_that_names_it() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.configure("10-net.conflist", &pods("1.0.0", "10.1.2.0/24"));
    lab.host().sh("mkdir -p /var/lib/cni; mkfifo /var/lib/cni/results");
    // An open that waits for the FIFO would wait forever.
    let refused = lab.cnitool().under(&["timeout", "-s", "KILL", "60"].map(str::to_owned)).run("add net pod");
    assert!(!refused.succeeded() && refused.stderr.contains("/var/lib/cni/results"), "{refused:#?}");
    assert!(leases().is_empty() && pod.link("eth0").is_none());
}

#[test]
fn an_attachment_is_listed_shown_and_drawn_with_its_live_state() {
    let lab = Lab::new();
    let pod = lab.container("shown-missing");
    let mut conf = pods("1.0.0", "10.1.2.0/24");
    conf["plugins"][0]["isDefaultGateway"] = json!(true);
    lab.configure("10-net.conflist", &conf);
    let tool = lab.cnitool();
    tool.says("add net shown-missing --container-id web1");

    let list = tool.json("list");
    assert_eq!(
        (&list["networks"][0]["name"], &list["networks"][0]["default"]),
        (&json!("net"), &json!(true))
    );
    assert_eq!(list["attachments"][0]["addresses"], json!(["10.1.2.2/24"]));
    assert_eq!(tool.json("show web1")[0]["interfaces"][2]["state"], "up");
    for words in ["we", "net we", "eth0 shown-missing", "/run/netns/shown-missing net"] {
        assert_eq!(tool.json(&format!("show {words}")).as_array().unwrap().len(), 1, "{words}");
    }
    for words in ["net other", "eb1", "shown", "we eth1"] {
        assert_eq!(tool.run(&format!("show {words}")).exit, Some(3), "{words}");
    }
    lab.host().wait_for_bridges();
    assert!(tool.says("graph").starts_with("br0 up bridge 10.1.2.1/24\n└─ veth"));
    assert!(tool.says("graph --format svg").contains(">web1</text>"));

    pod.sh(
        "ip link set eth0 down; ip addr flush dev eth0; ip link set lo up; ip route add 10.99.0.0/16 dev lo",
    );
    let shown = tool.json("show web1");
    assert_eq!(shown[0]["interfaces"][2]["state"], "down");
    assert_eq!(shown[0]["addresses"][0]["there"], false);
    let route = &shown[0]["routes"][0];
    assert_eq!((&route["dst"], &route["there"]), (&json!("0.0.0.0/0"), &json!(false)), "{shown}");
    pod.vanish();
    assert_eq!(tool.json("list attachments")[0]["alive"], false);
    assert!(tool.says("show web1").contains("missing"));
    assert_eq!(tool.run("show other").exit, Some(3));
}

/// The path of a process's namespace ends in `net`.
#[test]
fn show_of_a_network_named_net_does_not_show_others() {
    let lab = Lab::new();
    lab.container("pod");
    let mut conf = pods("1.0.0", "10.1.2.0/24");
    conf["name"] = json!("other");
    lab.configure("10-other.conflist", &conf);
    let process = sleeper(&lab, "pod");
    let tool = lab.cnitool();
    tool.says(&format!("add other /proc/{}/ns/net --container-id web1", process.id()));
    assert_eq!(tool.run("show net").exit, Some(3));
    assert!(tool.says(&format!("show /proc/{}/ns/net", process.id())).contains("web1"));
}

#[test]
fn ports_an_address_and_a_mac_are_options_of_the_command_line() {
    beyond_reference!("address-precedence");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let mut conf = pods("1.0.0", "10.1.2.0/24");
    conf["plugins"]
        .as_array_mut()
        .unwrap()
        .push(json!({"type": "portmap", "capabilities": {"portMappings": true}}));
    lab.configure("10-net.conflist", &conf);
    let tool = lab.cnitool();
    let result: Value = serde_json::from_str(&tool.says(
        "add net pod -p 8080:80 -p 53:53/udp --ip 10.1.2.9 --mac 0a:58:0a:00:00:05 --container-id web1",
    ))
    .unwrap();
    assert_eq!(ips(&result), ["10.1.2.9/24"]);
    assert_eq!(pod.link("eth0").unwrap()["address"], "0a:58:0a:00:00:05");
    assert_eq!(
        tool.json("show web1")[0]["ports"],
        json!([
            {"hostIP": null, "hostPort": 8080, "protocol": "tcp", "containerPort": 80, "state": "there", "takenBy": null},
            {"hostIP": null, "hostPort": 53, "protocol": "udp", "containerPort": 53, "state": "there", "takenBy": null},
        ]),
    );
    tool.says("check net pod --container-id web1");
    tool.says("del net pod --container-id web1");

    let refused = tool.run("add net pod -p 80");
    assert_eq!(
        (refused.exit, refused.stderr.contains("HOSTPORT:PORT")),
        (Some(2), true),
        "{}",
        refused.stderr
    );
}

#[test]
fn a_network_may_be_a_path_and_its_namespace_is_created_on_demand_and_deleted_if_the_add_fails() {
    let lab = Lab::new();
    let file = lab.dir().join("mine.conflist");
    fs::write(&file, pods("1.1.0", "10.1.2.0/24").to_string()).unwrap();
    let (tool, network) = (lab.cnitool(), file.display());
    let namespaces = || lab.host().exec(&["ip", "netns", "list"]);
    let before = namespaces();

    let failed = tool.run(&format!("add --create {network} blue -p 8080:80"));
    assert!(failed.stderr.contains("no plugin of network net forwards ports"), "{failed:?}");
    assert_eq!(namespaces(), before);
    assert_eq!(tool.run(&format!("add --create {network} /run/netns/blue")).exit, Some(2));
    let mut broken = pods("1.1.0", "10.1.3.0/24");
    (broken["name"], broken["plugins"][0]["bridge"]) = (json!("other"), json!("br1"));
    broken["plugins"].as_array_mut().unwrap().push(json!({"type": "refuses"}));
    lab.fake_plugin(
        "refuses",
        r#"[ "$CNI_COMMAND" != ADD ] || { echo '{"code": 111, "msg": "no"}'; exit 1; }"#,
    );
    let other = lab.dir().join("other.conflist");
    fs::write(&other, broken.to_string()).unwrap();
    assert!(!tool.run(&format!("add --create --keep {} kept", other.display())).succeeded());
    assert!(
        lab.host().sh("ip -n kept -br -4 address show eth0").contains("10.1.3.2/24"),
        "with --keep, everything stays"
    );
    tool.says(&format!("del {} kept", other.display()));
    lab.host().sh("ip netns del kept");

    // The second interface finds the namespace that the first ADD created.
    for ifname in ["eth0", "eth1"] {
        tool.says(&format!("add --create {network} blue -i {ifname}"));
        tool.says(&format!("check {network} blue -i {ifname}"));
    }
    tool.says(&format!("status {network}"));
    let inside = |ifname| lab.host().sh(&format!("ip -n blue -br -4 address show {ifname}"));
    assert!(inside("eth0").contains("10.1.2.2/24") && inside("eth1").contains("10.1.2.3/24"));
    tool.says(&format!("del {network} blue"));
    // The configuration of the ADD is used: no file has this network's name.
    tool.says("del net blue -i eth1");
    assert_eq!(lab.host().sh("ip -n blue -br link | grep -c eth || true").trim(), "0");
    lab.host().sh("ip netns del blue");
    assert_eq!(namespaces(), before);
}

#[test]
fn a_namespace_that_another_attachment_uses_by_now_stays_if_the_add_that_created_it_fails() {
    let lab = Lab::new();
    let slow = "cat >/dev/null; [ $CNI_COMMAND = ADD ] || exit 0
        touch /run/lab/running; while ! [ -e /run/lab/go-on ]; do sleep 0.01; done; exit 1";
    lab.fake_plugin("slow", slow);
    let slow = json!({"cniVersion": "1.1.0", "name": "slow", "plugins": [{"type": "slow"}]});
    lab.configure("10-slow.conflist", &slow);
    lab.configure("20-net.conflist", &pods("1.1.0", "10.1.2.0/24"));
    let tool = lab.cnitool();
    let mut add = tool.spawn("add --create slow blue --container-id first");
    lab.host().wait_until("the ADD runs", |_| fs::exists("/run/lab/running").unwrap());
    tool.says("add net blue --container-id second -i eth1");
    fs::write("/run/lab/go-on", "").unwrap();
    assert!(!add.wait().unwrap().success());
    tool.says("check net blue --container-id second -i eth1");
    tool.says("del net blue --container-id second -i eth1");
    lab.host().sh("ip netns del blue");
}

#[test]
fn without_a_path_plugins_are_looked_for_wherever_they_may_have_been_installed() {
    let lab = Lab::new();
    let conf = json!({"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "not-there"}]});
    lab.configure("10-net.conflist", &conf);
    lab.container("pod");
    let failed = lab.cnitool().env("CNI_PATH", "").run("add net pod");
    let everywhere = "no plugin \"not-there\" in /opt/cni/bin:/usr/lib/cni:/usr/libexec/cni";
    assert!(failed.stderr.contains(everywhere), "{failed:?}");
}

#[test]
fn the_graph_shows_the_parent_of_each_kind_of_interface() {
    needs!(Macvlan, Tap);
    let lab = Lab::new();
    lab.container("pod").sh("ip link add inner address 02:00:00:00:00:01 type bridge");
    cable(&lab);
    lab.host().sh("ip link add enp3s0 type veth peer name switch; ip link set switch up");
    let tool = lab.cnitool();
    for (ifname, plugin) in [
        ("mac0", json!({"type": "macvlan", "master": "cable"})),
        ("dev0", json!({"type": "host-device", "device": "enp3s0"})),
        ("tap0", json!({"type": "tap"})),
        ("tap1", json!({"type": "tap", "bridge": "inner"})),
    ] {
        let network = json!({"cniVersion": "1.0.0", "name": ifname, "plugins": [plugin]});
        lab.configure(&format!("{ifname}.conflist"), &network);
        tool.says(&format!("add {ifname} pod -i {ifname} --container-id web"));
    }
    let graph = tool.says("graph");
    for branch in [
        "cable ",
        " veth\n└─ mac0 (macvlan bridge) ",
        "enp3s0 of web ",
        " moved device\n└─ dev0 ",
        "programs behind taps\n└─ tap0 (tap) ",
        "inner of web down bridge\n└─ tap1 (tap) ",
    ] {
        assert!(graph.contains(branch), "{branch} in\n{graph}");
    }
}

/// Writes a file, and creates its directory if necessary.
fn put(file: &str, text: &str) {
    fs::create_dir_all(Path::new(file).parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

/// A network namespace without traces of a runtime.
fn unmarked(name: &str) -> String {
    json!({"cniVersion": "1.0.0", "name": name, "plugins": [{"type": "bridge"}]}).to_string()
}

#[test]
fn networks_of_all_runtimes_are_found_where_the_configuration_of_each_says() {
    let lab = Lab::new();
    for dir in
        ["/etc/crio", "/etc/containerd", "/etc/nerdctl", "/etc/containers", "/var/lib/rancher", "/opt/cni"]
    {
        lab.private_dir(dir);
    }
    put("/etc/crio/crio.conf", "[crio.network]\nnetwork_dir = \"/run/lab/old\"\n");
    let drop_in = "[crio.network]\nnetwork_dir = \"/run/lab/crio/\"\nplugin_dirs = [\"/run/lab/bin\"]\n";
    put("/etc/crio/crio.conf.d/10-moved.conf", drop_in);
    let containerd =
        "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\nconf_dir = \"/run/lab/containerd\"\n";
    put("/etc/containerd/config.toml", containerd);
    put("/etc/nerdctl/nerdctl.toml", "debug = \n");
    put("/run/lab/home/containers/containers.conf", "[network]\nnetwork_config_dir = \"/run/lab/podman\"\n");
    let marked = json!({"cniVersion": "1.0.0", "name": "blue", "nerdctlID": "17f29b", "plugins": [{"type": "bridge"}]});
    for (file, text) in [
        ("/etc/cni/net.d/10-shared.conflist", unmarked("shared")),
        ("/etc/cni/net.d/shared/20.conf", r#"{"type": "tuning"}"#.to_owned()),
        ("/etc/cni/net.d/ns/nerdctl-blue.conflist", marked.to_string()),
        ("/run/lab/old/10-old.conflist", unmarked("old")),
        ("/run/lab/crio/10-pods.conflist", unmarked("pods")),
        ("/run/lab/containerd/10-net.conflist", unmarked("net")),
        ("/run/lab/podman/red.conflist", unmarked("red")),
        ("/var/lib/rancher/k3s/agent/etc/cni/net.d/10-flannel.conflist", unmarked("cbr0")),
        ("/opt/cni/config/mesh.conflist", unmarked("mesh")),
    ] {
        put(file, &text);
    }
    let tool = lab.cnitool().env("XDG_CONFIG_HOME", "/run/lab/home");
    let list = tool.run("list networks --all --output json");
    assert!(
        list.succeeded() && list.stderr.contains("nerdctl.toml is not used: it is not TOML"),
        "{list:#?}"
    );
    let list: Value = serde_json::from_str(&list.stdout).unwrap();
    let mut found: Vec<_> =
        list.as_array().unwrap().iter().map(|one| (one["name"].as_str().unwrap(), &one["runtime"])).collect();
    found.sort_by_key(|(name, _)| *name);
    let expected = [
        ("blue", &json!("nerdctl")),
        ("cbr0", &json!("k3s")),
        ("mesh", &json!("Nomad")),
        ("net", &json!("containerd")),
        ("pods", &json!("CRI-O")),
        ("red", &json!("Podman")),
        ("shared", &Value::Null),
    ];
    assert_eq!(found, expected);
    assert!(
        tool.says("list networks --all").contains("shared   unknown     1.0.0    bridge, tuning  default")
    );
    assert_eq!(tool.json("list networks").as_array().unwrap().len(), 1, "its own directory only");

    let elsewhere = tool.run("status pods");
    let advice =
        "network pods is in a directory of CRI-O: add --conf-dir /run/lab/crio/ --plugin-path /run/lab/bin";
    assert!(elsewhere.exit == Some(3) && elsewhere.stderr.contains(advice), "{elsewhere:#?}");
}

#[test]
fn attachments_of_all_runtimes_are_distinguished_and_a_dry_gc_covers_all_networks() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let hash = "b144461d93f3a28fce102c6ef363e0a136de42a00eb2293f16e67be9c0442123";
    let pod = format!(
        "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID={hash}"
    );
    // Namespace, container id, CNI_ARGS, cache, and the runtime that uses these.
    let cases = [
        (
            "netns-0666e705-a4bd-c8fb-52d8-76294d20b4ae",
            hash,
            "IgnoreUnknown=1;K8S_POD_NAME=web",
            "",
            "Podman",
        ),
        ("8b8677c8-8929-4746-8206-514069760f6e", "sandbox", &pod, "", "CRI-O"),
        ("cni-9c91cc08-cad7-f2ab-b307-45095385f2c9", "multus", &pod, "/multus", "containerd"),
        ("blue", "web", "", "", "unknown"),
    ];
    lab.configure("10-net.conflist", &pods("1.1.0", "10.1.2.0/24"));
    let tool = lab.cnitool();
    let made = cases.map(|(netns, id, args, cache, _)| {
        let made = lab.container(netns);
        let cache = format!("--cache-dir /var/lib/cni{cache}");
        tool.clone().env("CNI_ARGS", args).says(&format!("add net {netns} --container-id {id} {cache}"));
        made
    });
    let all = tool.json("list attachments --all");
    for (netns, id, _, cache, runtime) in cases {
        let of_id = |list: &Value| {
            list.as_array()
                .unwrap()
                .iter()
                .find(|one| one["containerID"] == id)
                .map(|one| one["runtime"].clone())
        };
        let expected = Some(if runtime == "unknown" { Value::Null } else { runtime.into() });
        assert_eq!(of_id(&all), expected, "{netns}");
        assert_eq!(
            of_id(&tool.json("list attachments")),
            expected.clone().filter(|_| cache.is_empty()),
            "{netns}"
        );
        assert_eq!(of_id(&tool.json(&format!("show --all {id}"))), expected, "{netns}");
        assert_eq!(of_id(&tool.json("graph --all")["containers"]), expected, "{netns}");
    }
    assert!(tool.says("show --all multus").contains("runtime containerd"));
    assert!(tool.says("graph --all").contains("in multus of containerd, network net"));
    assert_eq!(tool.says("gc --dry-run"), "nothing would be removed\n");

    // The network is known from the cache.
    fs::remove_file("/etc/cni/net.d/10-net.conflist").unwrap();
    made[0].vanish();
    lab.host().wait_until("a pair is deleted", |host| host.ip("link show master br0").len() == 3);
    let dry = tool.says("gc --dry-run");
    let rows: Vec<Vec<&str>> = dry.lines().skip(1).map(|row| row.split_whitespace().collect()).collect();
    let attachment = vec!["net", "attachment", hash, "eth0", "Podman"];
    assert_eq!(rows, [attachment, vec!["net", "lease", "10.1.2.2", hash, "eth0", "Podman"]], "{dry}");
    let dry = tool.json("gc --dry-run");
    let would = dry[0]["wouldRemove"].as_array().unwrap();
    assert!(would.iter().all(|one| one["runtime"] == "Podman" && one["containerID"] == hash), "{dry:#}");
    assert_eq!(leases().len(), 4, "nothing is removed");
    assert_eq!(tool.run("gc").exit, Some(2), "without --dry-run it takes a network");
}

#[test]
fn limits_of_bandwidth_are_shown_as_the_kernel_has_them() {
    needs!(TrafficControl);
    let lab = Lab::new();
    lab.container("pod");
    let mut network = pods("1.0.0", "10.1.2.0/24");
    let limits = json!({
        "type": "bandwidth", "ingressRate": 8_000_000, "ingressBurst": 800_000, "egressRate": 1_500_000, "egressBurst": 2_000_000_000,
    });
    network["plugins"].as_array_mut().unwrap().push(limits);
    lab.configure("10-net.conflist", &network);
    let tool = lab.cnitool();
    tool.says("add net pod --container-id web1");
    let shown = tool.json("show web1");
    let limits = shown[0]["limits"].as_array().unwrap();
    let expected: Vec<_> = limits.iter().map(|limit| (&limit["direction"], &limit["rate"])).collect();
    assert_eq!(expected, [(&json!("ingress"), &json!(8_000_000)), (&json!("egress"), &json!(1_500_000))]);
    assert_eq!(limits[0]["burst"], 800_000);
    let host_end = limits[0]["interface"].as_str().unwrap();
    let text = tool.says("show web1");
    assert!(
        text.contains(&format!("limit receives 8 Mbit/s, burst 800 kbit, enforced by {host_end}")),
        "{text}"
    );
    assert!(text.contains("limit sends 1.5 Mbit/s, burst 2 Gbit, enforced by bwp"), "{text}");

    lab.host().sh(&format!("tc qdisc delete dev {host_end} root"));
    assert_eq!(tool.json("show web1")[0]["limits"][0]["direction"], "egress");
}

#[test]
fn an_add_that_fails_is_rolled_back_and_one_that_hangs_is_killed() {
    let lab = Lab::new();
    lab.container("pod");
    let mut network = pods("1.0.0", "10.1.2.0/24");
    network["plugins"].as_array_mut().unwrap().push(json!({"type": "last"}));
    lab.configure("10-net.conflist", &network);
    lab.fake_plugin(
        "last",
        "[ $CNI_COMMAND = DEL ] || { echo '{\"code\": 11, \"msg\": \"not yet\"}'; exit 1; }",
    );
    let tool = lab.cnitool();
    let failed = tool.run("add net pod");
    assert_eq!(failed.exit, Some(11), "{failed:#?}");
    assert!(failed.stderr.contains("last ADD: not yet"), "{failed:#?}");
    assert!(leases().is_empty());

    let hangs = lab.dir().join("hangs");
    lab.fake_plugin(
        "last",
        &format!("[ $CNI_COMMAND = DEL ] || {{ touch {}; sleep 10000; }}", hangs.display()),
    );
    let is_killed = |seconds: u32| {
        let hung = tool.run(&format!("--timeout {seconds} add net pod"));
        let words = format!("did not finish within {seconds}s and was killed");
        assert!(hung.stderr.contains(&words), "{hung:#?}");
        assert!(hung.stderr.contains("allow more seconds with --timeout"), "{hung:#?}");
        hangs.exists() && leases().is_empty()
    };
    // The other plugins have the same time. If that was not enough for them, try a longer one.
    let in_time = [10, 60, 600].into_iter().any(|seconds| {
        let killed = is_killed(seconds);
        if !killed {
            tool.run("del net pod");
        }
        killed
    });
    assert!(in_time, "{:?}", leases());
}

#[test]
fn an_add_that_fails_is_rolled_back_although_the_cache_has_an_attachment_from_before_a_reboot() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let mut network = pods("1.0.0", "10.1.2.0/24");
    network["plugins"].as_array_mut().unwrap().push(json!({"type": "last"}));
    lab.configure("10-net.conflist", &network);
    lab.fake_plugin("last", "[ $CNI_COMMAND = DEL ] || echo '{}'");
    let tool = lab.cnitool();
    tool.says("add net pod");
    // Like a reboot that empties /run.
    pod.sh("ip link delete eth0");
    leases().iter().for_each(|lease| fs::remove_file(Path::new(STORE).join(lease)).unwrap());

    lab.fake_plugin("last", "[ $CNI_COMMAND = DEL ] || { echo '{\"code\": 11, \"msg\": \"no\"}'; exit 1; }");
    let failed = tool.run("add net pod");
    assert_eq!(failed.exit, Some(11), "{failed:#?}");
    assert!(leases().is_empty() && pod.link("eth0").is_none(), "{failed:#?}");
}

/// Its DEL would delete the interface.
#[test]
fn an_add_of_an_interface_that_others_have_made_is_not_rolled_back_and_the_error_says_so() {
    beyond_reference!("rollback");
    let lab = Lab::new();
    lab.configure("10-net.conflist", &pods("1.0.0", "10.1.2.0/24"));
    let tool = lab.cnitool();
    let refused = |line: &str| {
        let failed = tool.run(line);
        assert!(!failed.succeeded() && failed.stderr.contains("eth0 is taken"), "{failed:#?}");
        let reason = "this ADD was not rolled back, because eth0 existed before it in the namespace";
        assert!(failed.stderr.contains(reason), "{failed:#?}");
    };
    // By another program, on the same bridge.
    let pod = lab.container("pod");
    tool.says("add net pod -i net1");
    lab.host().sh("ip link add others master br0 up type veth peer name eth0 netns pod");
    refused("add net pod");
    assert!(pod.link("eth0").is_some());
    assert_eq!(leases(), ["10.1.2.2"]);

    // By an ADD with another cache.
    let other = lab.container("other");
    tool.says("add net other --cache-dir /run/lab/elsewhere");
    refused("add net other");
    assert!(other.link("eth0").is_some());
    assert_eq!(leases(), ["10.1.2.2", "10.1.2.3"]);
}

#[test]
fn an_add_that_a_signal_interrupts_is_rolled_back() {
    // If the suite's caller ignores a signal, as nohup does, cnitool ignores it too.
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().filter(|it| !is_ignored(*it))
    {
        let lab = Lab::new();
        let pod = lab.container("pod");
        let (mut add, go) = add_that_waits(&lab);
        send(&add, signal);
        fs::write(go, "").unwrap();
        assert_eq!(add.wait().unwrap().code(), Some(1), "{signal}");
        assert!(leases().is_empty() && pod.link("eth0").is_none(), "{signal}");
        assert!(!lab.dir().join("last").exists(), "{signal}: no further plugin is called");
    }
}

#[test]
fn an_add_ignores_a_signal_that_its_caller_ignores() {
    let lab = Lab::new();
    lab.container("pod");
    // As nohup does.
    let nohup = ["sh", "-c", "trap '' HUP; exec \"$0\" \"$@\""].map(str::to_owned);
    let (mut add, go) = add_that_waits_of(&lab, lab.cnitool().under(&nohup));
    send(&add, Signal::SIGHUP);
    fs::write(go, "").unwrap();
    add.wait().unwrap();
    assert!(lab.dir().join("last").exists(), "the next plugin is called");
}

#[test]
fn a_second_signal_kills_the_plugin_of_an_add_and_reverts_it_unless_it_follows_the_first_within_a_second() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let (mut add, _) = add_that_waits(&lab);
    let plugin = fs::read_to_string(lab.dir().join("came")).unwrap();
    let plugin = Path::new("/proc").join(plugin.trim());
    // SIGTERM, because background processes ignore SIGINT. Two signals that arrive together count as one.
    let first = Instant::now();
    while plugin.exists() {
        send(&add, Signal::SIGTERM);
        thread::sleep(Duration::from_millis(10));
    }
    assert!(first.elapsed() >= Duration::from_secs(1), "{:?}", first.elapsed());
    assert_eq!(add.wait().unwrap().code(), Some(1));
    assert!(leases().is_empty() && pod.link("eth0").is_none());
}

/// An ADD of three plugins, the second of which waits until a file exists, and the file. The waiting plugin writes its process id.
fn add_that_waits(lab: &Lab) -> (Child, PathBuf) {
    add_that_waits_of(lab, lab.cnitool())
}

fn add_that_waits_of(lab: &Lab, tool: Tool) -> (Child, PathBuf) {
    let mut network = pods("1.0.0", "10.1.2.0/24");
    network["plugins"].as_array_mut().unwrap().extend(["waits", "last"].map(|kind| json!({"type": kind})));
    lab.configure("10-net.conflist", &network);
    let [came, go, last] = ["came", "go", "last"].map(|name| lab.dir().join(name));
    // It also exits with its caller.
    let wait = format!("while kill -0 $PPID && ! [ -e {} ]; do sleep 0.01; done", go.display());
    let wait = format!("echo $$ >{0}.new; mv {0}.new {0}; {wait}; echo '{{}}'", came.display());
    lab.fake_plugin("waits", &format!("[ $CNI_COMMAND = DEL ] || {{ {wait}; }}"));
    lab.fake_plugin("last", &format!("[ $CNI_COMMAND = DEL ] || touch {}", last.display()));
    let mut add = tool.spawn("add net pod");
    while !came.exists() {
        assert!(add.try_wait().unwrap().is_none(), "it waits for its plugin");
        thread::sleep(Duration::from_millis(5));
    }
    (add, go)
}

fn send(to: &Child, signal: Signal) {
    kill(Pid::from_raw(to.id().cast_signed()), signal).unwrap();
}

#[test]
fn an_add_whose_result_cannot_be_written_fails_and_is_undone() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.configure("10-net.conflist", &pods("1.0.0", "10.1.2.0/24"));
    let tool = lab.cnitool().under(&with_full_stdout());
    let full = tool.run("add net pod");
    assert_eq!(full.exit, Some(1), "{full:#?}");
    assert!(full.stderr.contains("write to stdout: No space left on device"), "{full:#?}");
    assert!(leases().is_empty() && pod.link("eth0").is_none());
    assert!(!tool.run("list").succeeded());

    // The reader has exited.
    let to_nobody = ["sh", "-c", "{ sleep 0.2; \"$0\" \"$@\"; echo $? >&2; } | true"].map(str::to_owned);
    let tool = lab.cnitool().under(&to_nobody);
    let unread = tool.run("add net pod");
    assert!(
        unread.stderr.contains("write to stdout: Broken pipe") && unread.stderr.ends_with("1\n"),
        "{unread:#?}"
    );
    assert!(leases().is_empty() && pod.link("eth0").is_none());
    assert_eq!(tool.run("list").stderr, "0\n");
}

#[test]
fn an_attachment_whose_network_is_not_configured_any_more_can_still_be_removed() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.configure("10-net.conflist", &pods("1.0.0", "10.1.2.0/24"));
    let tool = lab.cnitool();
    let file = "/etc/cni/net.d/10-net.conflist";
    tool.says("add net pod");
    fs::remove_file(file).unwrap();
    let removed = tool.run("del net pod");
    let words = "network net has no valid configuration file: using the configuration of the ADD";
    assert!(removed.succeeded() && removed.stderr.contains(words), "{removed:#?}");
    assert!(leases().is_empty() && pod.link("eth0").is_none());

    lab.configure("10-net.conflist", &pods("1.0.0", "10.1.2.0/24"));
    tool.says("add net pod");
    fs::write(file, "{").unwrap();
    let removed = tool.run("del net pod");
    let words = format!("has no valid configuration file ({file}: ");
    assert!(removed.succeeded() && removed.stderr.contains(&words), "{removed:#?}");
    assert!(leases().is_empty() && pod.link("eth0").is_none());
}

/// GC's output about a container that has just been deleted. With other tests' namespaces, the kernel may be busy for
/// longer than a GC waits.
fn collected(tool: &Tool) -> Value {
    let runs = (0..60).map(|_| tool.run("gc net --output json"));
    let run = runs.into_iter().find(Outcome::succeeded).expect("the kernel is done with the namespace");
    serde_json::from_str(&run.stdout).unwrap()
}

#[test]
fn attachments_of_deleted_namespaces_are_removed_and_the_others_stay() {
    let lab = Lab::new();
    let [gone, alive] = ["without-path", "alive"].map(|id| lab.container(id));
    lab.configure("10-net.conflist", &pods("1.0.0", "10.1.2.0/24"));
    let tool = lab.cnitool();
    tool.says("add net without-path");
    tool.says("add net alive");
    gone.vanish();
    assert_eq!(collected(&tool)["removed"], 1);
    assert_eq!(leases(), ["10.1.2.3"]);
    assert!(alive.link("eth0").is_some());
    tool.says("gc net --detach-running");
    assert!(leases().is_empty());
}

/// Multus and kubelets before 1.24 have separate directories of libcni's cache. The kubelet's are in the earliest
/// format. No other test uses these addresses, because all namespaces of the machine are searched.
#[test]
fn attachments_in_the_caches_of_other_runtimes_are_valid() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let pods_of = ["own", "of-multus", "kubelet"].map(|id| lab.container(id));
    lab.configure("10-net.conflist", &pods("1.1.0", "10.201.10.0/24"));
    let tool = lab.cnitool();
    tool.says("add net own --container-id own");
    tool.says("add net of-multus --container-id of-multus --cache-dir /var/lib/cni/multus");
    tool.says("add net kubelet --container-id kubelet --cache-dir /var/lib/cni/cache");
    let file = "/var/lib/cni/cache/results/net-kubelet-eth0";
    let kept: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    fs::write(file, kept["result"].to_string()).unwrap();

    let first = tool.json("gc net --dry-run");
    assert_eq!(first["wouldRemove"], json!([]));
    // A lease without a cache file would be kept too, as one of a container that is alive.
    assert_eq!(first["kept"], json!([]));
    tool.says("gc net");
    assert!(pods_of.iter().all(|pod| pod.link("eth0").is_some()));
    assert_eq!(leases().len(), 3);
    pods_of[1].vanish();
    collected(&tool);
    assert_eq!(leases(), ["10.201.10.2", "10.201.10.4"]);
    tool.says("gc net --detach-running");
    assert_eq!(leases(), ["10.201.10.4"], "the kubelet's attachment is not cnitool's own");
}

/// Such a file system refuses every removal, even that of a file that does not exist.
#[test]
fn del_succeeds_if_a_read_only_cache_does_not_contain_the_attachment() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.configure("10-net.conflist", &pods("1.1.0", "10.201.9.0/24"));
    let tool = lab.cnitool();
    tool.says("add net pod --container-id pod --cache-dir /run/lab/other");
    lab.host().sh("mkdir -p /run/lab/frozen/results
         mount --bind /run/lab/frozen /run/lab/frozen
         mount -o remount,bind,ro /run/lab/frozen");
    tool.says("del net pod --container-id pod --cache-dir /run/lab/frozen");
    assert!(pod.link("eth0").is_none() && leases().is_empty());
}

/// Neither its veths nor its namespace's name identify it, but the container has the address of the lease. No
/// other test uses this address, because all namespaces of the machine are searched.
#[test]
fn a_gc_finds_the_references_containers_alive_by_the_addresses_that_they_have() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let pod = lab.container("has-address");
    lab.configure("10-net.conflist", &pods("1.0.0", "10.201.7.0/24"));
    let theirs = lab.cnitool().env("CNI_PATH", "/usr/lib/cni");
    theirs.says("add net has-address --container-id x7f5 --cache-dir /run/lab/other");
    lab.configure("10-net.conflist", &pods("1.1.0", "10.201.7.0/24"));
    let kept = lab.cnitool().run("gc net");
    assert!(
        kept.succeeded() && kept.stderr.contains("lease 10.201.7.2 of x7f5 eth0: kept: alive"),
        "{kept:#?}"
    );
    assert_eq!(leases(), ["10.201.7.2"]);
    pod.vanish();
    lab.host().wait_until("the pair is deleted", |host| host.ip("link show master br0").is_empty());
    assert_eq!(lab.cnitool().json("gc net --dry-run")["wouldRemove"][0]["name"], "10.201.7.2");
}

/// No other test uses these addresses, because all namespaces of the machine are searched.
#[test]
fn a_node_that_lost_its_cache_and_all_namespaces_is_empty_after_one_gc() {
    beyond_reference!("gc");
    let lab = Lab::new();
    lab.configure("10-net.conflist", &pods("1.1.0", "10.202.0.0/16"));
    let containers: Vec<_> = (0..200).map(|i| lab.container(&format!("lost{i}"))).collect();
    let tool = lab.cnitool();
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                while let i @ 0..200 = next.fetch_add(1, Ordering::Relaxed) {
                    tool.says(&format!("add net lost{i}"));
                }
            });
        }
    });
    assert_eq!(leases().len(), 200);
    containers.iter().for_each(|container| container.vanish());
    // Until then, the containers count as alive.
    lab.host().wait_until("no port is left", |host| host.ip("link show master br0").is_empty());
    fs::remove_dir_all("/var/lib/cni/results").unwrap();
    tool.says("gc net");
    assert!(leases().is_empty());
    assert_eq!(lab.host().ip("link show master br0").len(), 0, "no port is left");
}

#[test]
fn status_reports_a_full_range_set_and_fails_only_if_configured() {
    beyond_reference!("status");
    let lab = Lab::new();
    let conf = pods("1.1.0", "10.1.2.0/30");
    lab.configure("10-net.conflist", &conf);
    lab.container("a");
    let tool = lab.cnitool();
    assert_eq!(tool.run("status net").exit, Some(0));
    tool.says("add net a");
    let full = tool.run("status net");
    assert_eq!(full.exit, Some(0), "{full:#?}");
    let words = "1 of the 1 addresses of range set 10.1.2.1-10.1.2.2 are leased";
    assert!(full.stderr.contains(words), "{full:#?}");
    assert!(tool.says("status").contains("1 of 1 addresses of 10.1.2.1-10.1.2.2 are leased"));
    let ranges = json!([{"range": "10.1.2.1-10.1.2.2", "leased": 1, "capacity": 1}]);
    assert_eq!(tool.json("status net")[0]["ranges"], ranges);

    let mut strict = conf;
    strict["plugins"][0]["ipam"]["statusFailsWhenFull"] = true.into();
    lab.configure("10-net.conflist", &strict);
    let full = tool.run("status net");
    assert_eq!(full.exit, Some(50), "{full:#?}");
    assert_eq!(tool.run("status").exit, Some(50));
    tool.says("del net a");
    assert_eq!(tool.run("status net").exit, Some(0));
}

#[test]
fn only_leases_in_the_directory_of_the_next_add_are_counted() {
    let lab = Lab::new();
    let conf = pods("1.1.0", "10.1.2.0/30");
    lab.configure("10-net.conflist", &conf);
    ["a", "b"].iter().for_each(|id| drop(lab.container(id)));
    let tool = lab.cnitool();
    tool.says("add net a");
    let mut moved = conf;
    moved["plugins"][0]["ipam"]["dataDir"] = "/run/lab/leases".into();
    lab.configure("10-net.conflist", &moved);
    let counted = |count: u64| {
        let status = &tool.json("status net")[0];
        assert_eq!((&status["leased"], &status["ranges"][0]["leased"]), (&json!(count), &json!(count)));
        let metric = format!(r#"cni_addresses_used{{network="net",range="10.1.2.1-10.1.2.2"}} {count}"#);
        let text = tool.says("metrics");
        assert!(text.lines().any(|line| line == metric), "{metric}:\n{text}");
    };
    counted(0);
    // The same address is leased in both directories.
    tool.says("add net b");
    counted(1);
}

#[test]
fn status_lists_invalid_files_and_fails_without_a_network() {
    beyond_reference!("status");
    let lab = Lab::new();
    let tool = lab.cnitool();
    let none = tool.run("status");
    let words = "no network configuration in /etc/cni/net.d";
    assert!(none.exit == Some(3) && none.stderr.contains(words), "{none:#?}");
    lab.configure("10-net.conflist", &pods("1.1.0", "10.1.2.0/24"));
    tool.says("status");
    let file = "/etc/cni/net.d/20-bad.conflist";
    fs::write(file, "{").unwrap();
    let table = tool.run("status");
    let row = table.stdout.lines().find(|line| line.starts_with("20-bad.conflist")).unwrap_or_default();
    assert!(table.exit == Some(3) && row.contains("invalid") && row.contains(file), "{table:#?}");
    let list: Value = serde_json::from_str(&tool.run("status --output json").stdout).unwrap();
    assert_eq!(
        (&list[0]["network"], &list[0]["file"]),
        (&json!("net"), &json!("/etc/cni/net.d/10-net.conflist"))
    );
    assert_eq!(
        (&list[1]["file"], &list[1]["ready"], &list[1]["code"]),
        (&json!(file), &json!(false), &json!(6))
    );
    assert_eq!(tool.run("status net").exit, Some(0));
}

#[test]
fn status_of_all_networks_exits_with_the_code_of_the_worst_failure() {
    beyond_reference!("status");
    let lab = Lab::new();
    let tool = lab.cnitool();
    let versions = r#"{"cniVersion":"1.1.0","supportedVersions":["1.1.0"]}"#;
    for (code, exit) in [(100, 1), (50, 50), (51, 51), (11, 51)] {
        let name = format!("fails-{code}");
        let fails =
            format!(r#"{{ echo '{{"cniVersion":"1.1.0","code":{code},"msg":"not now"}}'; exit 1; }}"#);
        lab.fake_plugin(&name, &format!("[ \"$CNI_COMMAND\" = STATUS ] && {fails}; echo '{versions}'"));
        let network = json!({"cniVersion": "1.1.0", "name": name, "plugins": [{"type": name}]});
        lab.configure(&format!("{code:03}.conflist"), &network);
        let status = tool.run("status");
        assert_eq!(status.exit, Some(exit), "with {name}: {status:#?}");
    }
}

/// libcni's rule.
#[test]
fn of_two_files_of_one_network_every_command_uses_the_list() {
    beyond_reference!("gc");
    let lab = Lab::new();
    lab.container("pod");
    let single = json!({"cniVersion": "1.0.0", "name": "net", "type": "tuning"});
    lab.configure("05-net.conf", &single);
    lab.configure("10-net.conflist", &pods("1.0.0", "10.1.2.0/24"));
    let tool = lab.cnitool();
    let listed = tool.says("list networks");
    let line = |file: &str| listed.lines().find(|line| line.ends_with(file)).unwrap().to_owned();
    assert!(line("05-net.conf").contains("default"), "{listed}");
    assert!(!line("10-net.conflist").contains("name taken"), "{listed}");
    tool.says("add net pod");
    let metrics = tool.says("metrics");
    assert!(metrics.contains(r#"cni_attachments{network="net",plugin="bridge"} 1"#), "{metrics}");
}

/// JSON cannot contain such a name.
#[test]
fn a_file_whose_name_is_not_utf8_is_listed_with_replacement_characters() {
    let lab = Lab::new();
    let tool = lab.cnitool();
    let file = |name: &[u8]| Path::new("/etc/cni/net.d").join(OsStr::from_bytes(name));
    lab.configure("10-net.conflist", &pods("1.0.0", "10.1.2.0/24"));
    fs::write(file(b"20-\xff.conflist"), pods("1.0.0", "10.1.3.0/24").to_string()).unwrap();
    fs::write(file(b"30-\xff.conflist"), "{").unwrap();
    for command in ["list", "list --all", "list networks", "status", "validate"] {
        let outcome = tool.run(&format!("{command} --output json"));
        let json: Value =
            serde_json::from_str(&outcome.stdout).unwrap_or_else(|e| panic!("{e}: {outcome:#?}"));
        for name in ["20-\u{fffd}.conflist", "30-\u{fffd}.conflist"] {
            assert!(json.to_string().contains(name), "{command}: {json:#}");
        }
    }
}

/// ADD works as long as the name of the cache file is not longer than 255 bytes.
#[test]
fn the_attachment_of_the_longest_container_id_is_deleted() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.configure("10-net.conflist", &pods("1.0.0", "10.1.2.0/24"));
    let names = format!("net pod --container-id {}", "x".repeat(255 - "net--eth0".len()));
    let tool = lab.cnitool();
    tool.says(&format!("add {names}"));
    tool.says(&format!("check {names}"));
    tool.says(&format!("del {names}"));
    assert!(pod.link("eth0").is_none() && leases().is_empty());
}

#[test]
fn a_configuration_is_judged_as_a_whole_before_it_is_used() {
    let lab = Lab::new();
    lab.configure("10-net.conflist", &pods("1.0.0", "10.1.2.0/24"));
    let tool = lab.cnitool();
    assert!(tool.says("validate /etc/cni/net.d/10-net.conflist").contains("is valid"));
    let bad = "{\n  \"cniVersion\": \"1.0.0\", \"name\": \"bad\",\n  \"plugins\": [{\"type\": \"bridge\", \"brigde\": 1},]\n}";
    fs::write("/etc/cni/net.d/20-bad.conflist", bad).unwrap();
    let judged = tool.run("validate /etc/cni/net.d/20-bad.conflist");
    assert_eq!(judged.exit, Some(3));
    for finding in
        ["20-bad.conflist:3:34: warning:", "did you mean \"bridge\"?", "3:46: error: a comma before"]
    {
        assert!(judged.stdout.contains(finding), "{finding}: {judged:#?}");
    }
    let missing = tool.run("add bad pod");
    assert!(missing.exit == Some(3) && missing.stderr.contains("line 3, column 46"), "{missing:#?}");
}

#[test]
fn the_rules_of_an_attachment_are_shown_until_its_del() {
    beyond_reference!("rules-by-attachment");
    let lab = Lab::new();
    lab.container("pod");
    let mut network = pods("1.0.0", "10.1.2.0/24");
    network["plugins"][0]["ipMasq"] = json!(true);
    let portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}});
    network["plugins"].as_array_mut().unwrap().push(portmap);
    lab.configure("10-net.conflist", &network);
    let tool = lab.cnitool();
    let mappings = json!({"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]});
    tool.clone().env("CAP_ARGS", &mappings.to_string()).says("add net pod");
    let shown = tool.says("show");
    for line in ["port *:8080/tcp → 80", "rule masquerade 10.1.2.2/24", "rule map tcp 8080 to 10.1.2.2:80"]
    {
        assert!(shown.contains(line), "{line} in {shown}");
    }
    tool.says("del net pod");
    assert!(!lab.host().ruleset().contains("10.1.2.2"));
    let none = tool.run("show");
    assert!(none.exit == Some(3) && none.stderr.contains("no attachment"), "{none:#?}");
}

/// Debian's package, whatever is under test.
#[test]
fn the_references_plugins_run_under_it_unchanged() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let network = json!({"cniVersion": "1.0.0", "name": "net", "plugins": [
        {"type": "bridge", "bridge": "br0", "isGateway": true, "ipam": host_local(&[&["10.1.2.0/24"]])},
        {"type": "tuning", "capabilities": {"mac": true}},
        {"type": "portmap", "capabilities": {"portMappings": true}},
    ]});
    lab.configure("10-net.conflist", &network);
    let arguments = json!({"mac": "0a:00:00:00:00:07", "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]});
    let tool = lab.cnitool().env("CNI_PATH", "/usr/lib/cni");
    tool.clone().env("CAP_ARGS", &arguments.to_string()).says("add net pod");
    assert_eq!(pod.link("eth0").unwrap()["address"], "0a:00:00:00:00:07");
    assert!(tool.says("show pod").contains("port *:8080/tcp → 80"));
    tool.says("version net");
    tool.says("del net pod");
    assert!(pod.link("eth0").is_none());
    // Without CAP_ARGS: the cache has those of the ADD.
    let rules = lab.host().sh("iptables-save -t nat; nft list ruleset");
    assert!(!rules.contains("8080"), "{rules}");
}

#[test]
fn status_calls_the_plugins_with_any_version_of_the_network() {
    beyond_reference!("status");
    let lab = Lab::new();
    lab.configure("10-net.conflist", &pods("1.0.0", "10.1.2.0/30"));
    lab.container("a");
    let tool = lab.cnitool();
    assert_eq!(tool.json("status net")[0]["ready"], true);
    let missing = tool.run("status net --plugin-path /nosuch --output json");
    assert!(!missing.succeeded() && missing.stdout.contains("\"ready\": false"), "{missing:#?}");

    let mut strict = pods("1.0.0", "10.1.2.0/30");
    strict["plugins"][0]["ipam"]["statusFailsWhenFull"] = true.into();
    lab.configure("10-net.conflist", &strict);
    tool.says("add net a");
    assert_eq!(tool.run("status net").exit, Some(50), "its range is full");
    tool.says("del net a");
    lab.host().sh("mkdir -p /var/lib/cni/networks; mount -t tmpfs -o ro none /var/lib/cni/networks");
    assert_eq!(tool.run("status net").exit, Some(50), "its leases cannot be written");
    lab.host().sh("umount /var/lib/cni/networks");
}

#[test]
fn status_lists_the_plugins_that_it_could_not_call_and_why() {
    let lab = Lab::new();
    let versions = "{\"cniVersion\": \"1.0.0\", \"supportedVersions\": [\"0.4.0\", \"1.0.0\"]}";
    lab.fake_plugin("older", &format!("[ $CNI_COMMAND = VERSION ] && echo '{versions}'"));
    let mut network = pods("1.0.0", "10.1.2.0/24");
    network["plugins"].as_array_mut().unwrap().push(json!({"type": "older"}));
    lab.configure("10-net.conflist", &network);
    let tool = lab.cnitool();
    let why = "STATUS needs version 1.1.0, but older supports at most 1.0.0";
    let answer = tool.json("status net");
    assert_eq!(
        (&answer[0]["ready"], &answer[0]["notAsked"][0]),
        (&Value::Null, &json!({"plugin": "older", "why": why}))
    );
    let table = tool.says("status");
    assert!(table.contains("unknown") && table.contains(why) && !table.contains(" ready"), "{table}");
}

/// A network of bridge and portmap.
fn with_ports(name: &str, link: &str, subnet: &str) -> Value {
    let bridge = json!({"type": "bridge", "bridge": link, "isGateway": true, "ipMasq": true, "ipam": host_local(&[&[subnet]])});
    let portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}});
    json!({"cniVersion": "1.0.0", "name": name, "plugins": [bridge, portmap]})
}

#[test]
fn ports_without_rules_are_shown_as_missing_and_check_names_the_remedy() {
    beyond_reference!("rules-by-attachment");
    let lab = Lab::new();
    lab.container("pod");
    lab.configure("10-net.conflist", &with_ports("net", "br0", "10.1.2.0/24"));
    let tool = lab.cnitool();
    tool.says("add net pod -p 8080:80");
    assert_eq!(tool.json("show")[0]["ports"][0]["state"], "there");
    lab.host().sh("nft flush ruleset");
    let shown = tool.run("show");
    assert!(shown.stdout.contains("port *:8080/tcp → 80 missing"), "{shown:#?}");
    assert_eq!(shown.exit, Some(1), "{shown:#?}");
    assert!(shown.stderr.contains("cnitool repair"), "{shown:#?}");
    assert!(tool.says("graph").contains("port *:8080/tcp → 80 missing"));
    let check = tool.run("check net pod");
    assert!(!check.succeeded() && check.stderr.contains("cnitool repair --all"), "{check:#?}");
    tool.says("repair --all");
    assert_eq!(tool.json("show")[0]["ports"][0]["state"], "there");
    assert_eq!(tool.says("repair net"), "✓ attachments: 1 complete\n");
}

/// cnitool, whose system calls fail as strace(1) injects errors.
fn failing(tool: &Tool, arguments: &[&str]) -> Tool {
    tool.clone().under(&injecting(arguments))
}

/// The attachment that `show` prints, and the exit code.
#[track_caller]
fn shown(tool: &Tool) -> (Value, Option<i32>) {
    let outcome = tool.run("show --output json");
    let json: Value = serde_json::from_str(&outcome.stdout).unwrap_or_else(|e| panic!("{e}: {outcome:#?}"));
    (json[0].clone(), outcome.exit)
}

#[test]
fn a_namespace_that_cannot_be_read_is_not_shown_as_missing() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.configure("10-net.conflist", &pods("1.0.0", "10.1.2.0/24"));
    let tool = lab.cnitool();
    tool.says("add net pod --container-id web1");
    let path = pod.path().to_str().unwrap();
    let cases = [
        (vec!["-P", path, "-e", "inject=?open,openat:error=EMFILE"], "Too many open files"),
        (vec!["-e", "inject=setns:error=EPERM"], "requires CAP_SYS_ADMIN"),
    ];
    for (arguments, cause) in cases {
        let unread = failing(&tool, &arguments);
        let (shown, exit) = shown(&unread);
        assert_eq!(exit, Some(4), "{shown:#}");
        assert_eq!(shown["alive"], Value::Null, "{shown:#}");
        let states: Vec<&Value> =
            shown["interfaces"].as_array().unwrap().iter().map(|interface| &interface["state"]).collect();
        assert_eq!(states[0], "up", "{shown:#}");
        assert_eq!(states[2], &Value::Null, "{shown:#}");
        assert_eq!(shown["addresses"][0]["there"], Value::Null, "{shown:#}");
        assert!(shown["unread"][0].as_str().unwrap().contains(cause), "{shown:#}");
        let text = unread.run("show").stdout;
        assert!(text.contains("the namespace cannot be read") && text.contains(cause), "{text}");
        assert!(text.contains(&format!("namespace {path} unknown")) && !text.contains("missing"), "{text}");
        let graph = unread.says("graph");
        assert!(graph.contains("eth0 unknown") && !graph.contains("gone"), "{graph}");
        assert_eq!(unread.json("graph")["containers"][0]["alive"], Value::Null);
    }
    let hidden = ["-P", path, "-e", "inject=?stat,?statx,?newfstatat,?fstatat64:error=EACCES"];
    let hidden = failing(&tool, &hidden);
    assert_eq!(hidden.json("list attachments")[0]["alive"], Value::Null);
    assert!(hidden.says("list attachments").contains("cannot be read"));
}

/// Sockets list the links of the host and of the container, the rules, and the rules of host ports.
#[test]
fn links_and_rules_that_cannot_be_read_are_not_shown_as_missing() {
    beyond_reference!("rules-by-attachment");
    let lab = Lab::new();
    lab.container("pod");
    lab.configure("10-net.conflist", &with_ports("net", "br0", "10.1.2.0/24"));
    let tool = lab.cnitool();
    tool.says("add net pod -p 8080:80");
    let mut unread = BTreeSet::new();
    for nth in 1..=8 {
        let inject = format!("inject=socket:error=EMFILE:when={nth}");
        let failing = failing(&tool, &["-e", &inject]);
        let (json, exit) = shown(&failing);
        let causes = json["unread"].as_array().unwrap();
        if causes.is_empty() {
            // This socket is not necessary.
            assert_eq!((exit, &json["ports"][0]["state"]), (Some(0), &json!("there")), "{inject}: {json:#}");
            continue;
        }
        assert_eq!(exit, Some(4), "{inject}: {json:#}");
        assert!(!json.to_string().contains("\"gone\"") && json["ports"][0]["state"] != "missing", "{json:#}");
        assert!(json["rules"] != json!([]) && json["addresses"][0]["there"] != false, "{json:#}");
        unread.extend(
            causes.iter().filter_map(|cause| cause.as_str()?.split(" cannot").next().map(str::to_owned)),
        );
        let text = failing.run("show");
        assert!(!text.stdout.contains("missing") && text.stdout.contains("Too many open files"), "{text:#?}");
        assert!(!text.stderr.contains("cnitool repair"), "{text:#?}");
    }
    let all = ["the host's links", "the namespace", "the rules", "the rules of host ports"];
    assert_eq!(unread, all.map(str::to_owned).into());
}

#[test]
fn rules_of_iptables_that_require_a_capability_are_not_shown_as_missing() {
    beyond_reference!("rules-by-attachment");
    let lab = Lab::new();
    lab.container("pod");
    let mut network = with_ports("net", "br0", "10.1.2.0/24");
    network["plugins"][1]["backend"] = json!("iptables");
    lab.configure("10-net.conflist", &network);
    let tool = lab.cnitool();
    tool.says("add net pod -p 8080:80");
    assert_eq!(shown(&tool).0["ports"][0]["state"], "there");
    let without = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"].map(str::to_owned);
    let (json, exit) = shown(&tool.clone().under(&without));
    assert_eq!((exit, &json["ports"][0]["state"]), (Some(4), &Value::Null), "{json:#}");
    assert!(json["unread"].to_string().contains("rules of host ports cannot be read"), "{json:#}");
    lab.host().sh("iptables -t nat -F; ip6tables -t nat -F");
    let (json, exit) = shown(&tool);
    assert_eq!((exit, &json["ports"][0]["state"]), (Some(1), &json!("missing")), "{json:#}");
}

#[test]
fn show_graph_and_add_report_a_port_that_a_newer_attachment_has() {
    beyond_reference!("rules-by-attachment");
    let lab = Lab::new();
    let _pods = ["old", "new"].map(|id| lab.container(id));
    lab.configure("10-net.conflist", &with_ports("net", "br0", "10.1.2.0/24"));
    let tool = lab.cnitool();
    tool.says("add net old -p 8080:80 -p 9090:90 --container-id old");
    let added = tool.run("add net new -p 8080:80 --container-id new");
    assert!(added.stderr.contains("host port taken over from net/old/eth0"), "{added:#?}");
    let shown = tool.says("show old");
    for line in ["port *:8080/tcp → 80 taken by net/new/eth0\n", "port *:9090/tcp → 90\n"] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert_eq!(tool.json("show old")[0]["ports"][0]["takenBy"], "net/new/eth0");
    assert_eq!(tool.json("show new")[0]["ports"][0]["state"], "there");
    assert!(tool.says("graph").contains("taken by net/new/eth0"));
    tool.says("del net new --container-id new");
    assert_eq!(tool.json("show old")[0]["ports"][0]["state"], "there");
}

#[test]
fn a_port_of_one_host_address_is_not_shown_as_taken_because_that_of_another_address_is() {
    beyond_reference!("rules-by-attachment");
    for backend in ["nftables", "iptables"] {
        let lab = Lab::new();
        let _pods = ["old", "new"].map(|id| lab.container(id));
        let mut network = with_ports("net", "br0", "10.1.2.0/24");
        network["plugins"][1]["backend"] = json!(backend);
        lab.configure("10-net.conflist", &network);
        let tool = lab.cnitool();
        let ports = "-p 192.0.2.1:8080:80 -p 192.0.2.2:8080:80 -p 0.0.0.0:9090:90 -p 192.0.2.1:9090:91";
        tool.says(&format!("add net old {ports} --container-id old"));
        tool.says("add net new -p 192.0.2.1:8080:80 -p 9090:90 --container-id new");
        let shown = tool.json("show old");
        let states: Vec<_> =
            shown[0]["ports"].as_array().unwrap().iter().map(|port| &port["state"]).collect();
        // A rule of iptables for all addresses precedes older ones for a single address.
        let last = if backend == "iptables" { "taken" } else { "there" };
        assert_eq!(states, ["taken", "there", "taken", last], "{backend}: {shown:#}");
    }
}

#[test]
fn a_port_that_no_plugin_declares_is_shown_as_not_forwarded_and_not_as_missing() {
    let lab = Lab::new();
    lab.container("pod");
    let mut network = with_ports("net", "br0", "10.1.2.0/24");
    network["plugins"][1].as_object_mut().unwrap().remove("capabilities");
    lab.configure("10-net.conflist", &network);
    let web = json!({"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]});
    let tool = lab.cnitool().env("CAP_ARGS", &web.to_string());
    tool.says("add net pod");
    let text = tool.says("show pod");
    assert!(
        text.contains("port *:8080/tcp → 80 not forwarded: no plugin of the network declares portMappings"),
        "{text}"
    );
    assert_eq!(tool.json("show pod")[0]["ports"][0]["state"], "notForwarded");
    assert!(tool.says("graph").contains("not forwarded"));
}

#[test]
fn an_add_warns_of_another_networks_container_with_the_same_address() {
    beyond_reference!("rules-by-attachment");
    let lab = Lab::new();
    let _pods = ["a", "b", "c"].map(|id| lab.container(id));
    lab.configure("10-one.conflist", &with_ports("one", "br0", "10.1.2.0/24"));
    lab.configure("20-two.conflist", &with_ports("two", "br0", "10.1.2.0/24"));
    let tool = lab.cnitool();
    assert_eq!(tool.run("add one a --container-id a -p 8080:80").stderr, "");
    let second = tool.run("add two b --container-id b -p 9090:80");
    let words = "one/a/eth0, on another network, has the same address (masquerade 10.1.2.2/24)";
    assert!(second.succeeded() && second.stderr.contains(words), "{second:#?}");
    assert!(!second.stderr.contains("host port taken over"), "{second:#?}");
    // Stale resources of the network's own containers are not a finding.
    fs::remove_dir_all("/var/lib/cni/networks/two").unwrap();
    let third = tool.run("add two c --container-id c");
    assert!(third.succeeded() && !third.stderr.contains("on another network"), "{third:#?}");
}

#[test]
fn an_add_warns_of_an_address_that_another_network_has_leased_too() {
    beyond_reference!("shared-address");
    let lab = Lab::new();
    let _pods = ["a", "b", "c"].map(|id| lab.container(id));
    for (file, name) in [("10-one.conflist", "one"), ("20-two.conflist", "two")] {
        let bridge = json!({"type": "bridge", "bridge": "br0", "ipam": host_local(&[&["10.1.2.0/24"], &["fd00:1::/64"]])});
        lab.configure(file, &json!({"cniVersion": "1.0.0", "name": name, "plugins": [bridge]}));
    }
    let tool = lab.cnitool();
    assert_eq!(tool.run("add one a --container-id a").stderr, "");
    let second = tool.run("add two b --container-id b");
    for address in ["10.1.2.2", "fd00:1::2"] {
        let words =
            format!("address {address} is also leased in network one, to container a, interface eth0");
        assert!(second.succeeded() && second.stderr.contains(&words), "{second:#?}");
    }
    assert_eq!(
        tool.run("add two c --container-id c").stderr,
        "",
        "no other container has the next addresses"
    );
}

#[test]
fn a_network_may_be_a_path_wherever_a_name_may_be_and_a_mistyped_one_is_an_error() {
    let lab = Lab::new();
    lab.container("pod");
    let file = lab.dir().join("mine.conflist");
    fs::write(&file, pods("1.1.0", "10.1.2.0/24").to_string()).unwrap();
    let (tool, path) = (lab.cnitool(), file.display());
    assert!(tool.says(&format!("version {path}")).contains("bridge"));
    assert_eq!(tool.says(&format!("repair {path}")), "no attachments\n");
    tool.says(&format!("add {path} pod"));
    assert!(tool.says(&format!("graph {path}")).contains("network net"));
    for wrong in ["graph typo", "repair typo", "add net typo"] {
        assert_eq!(tool.run(wrong).exit, Some(3), "{wrong}");
    }
    for command in ["check", "del"] {
        let further = tool.run(&format!("{command} {path} pod green blue"));
        assert!(further.succeeded() && further.stderr.contains("ignored"), "{further:#?}");
        assert!(further.stderr.ends_with(": green blue\n"), "{further:#?}");
    }
    let typo = tool.run(&format!("add {path} typo"));
    assert!(typo.exit == Some(3) && typo.stderr.contains("--create"), "{typo:#?}");
}

#[test]
fn exit_code_2_means_wrong_usage_and_3_that_the_object_does_not_exist() {
    let lab = Lab::new();
    lab.container("pod");
    lab.configure("10-net.conflist", &pods("1.0.0", "10.1.2.0/24"));
    for (line, exit, words) in [
        ("add net pod --args FOO", 2, "--args (or CNI_ARGS) has \"FOO\", which is not KEY=VALUE"),
        ("add net pod --cap-args foo", 2, "--cap-args (or CAP_ARGS) \"foo\" is not a JSON object"),
        ("add net pod --cap-args [1]", 2, "pass an object such as {\"portMappings\""),
        ("add net pod -i a/b", 2, "contains an invalid character /"),
        ("add net pod --container-id a:b", 2, "the container's id \"a:b\" has ':' in it"),
        ("graph net --to x.png", 2, "use .svg, .dot, .gv or .txt"),
        ("explain foo", 2, "`cnitool explain` lists the plugins and the error codes"),
        ("explain bridge.isGatway", 2, "did you mean \"isGateway\"?"),
        ("schema foo", 2, "`cnitool explain` lists the plugins"),
        ("gc", 2, "<NETWORK|--all|--dry-run>"),
        ("repair", 2, "<NETWORK|--all>"),
        ("repair net --all", 2, "cannot be used with"),
        ("validate net", 2, "network net is in /etc/cni/net.d/10-net.conflist"),
        ("add other pod", 3, "no network \"other\""),
        ("add ./missing.conflist pod", 3, "the network's file ./missing.conflist does not exist"),
        ("add net typo", 3, "/run/netns/typo does not exist"),
        ("check net pod", 3, "was not added to network net"),
        ("show typo", 3, "no attachment matches typo"),
        ("gc typo --every 1h", 3, "no network \"typo\""),
        ("repair typo --watch", 3, "no network \"typo\""),
    ] {
        let refused = lab.cnitool().run(line);
        assert!(refused.exit == Some(exit) && refused.stderr.contains(words), "{line}: {refused:#?}");
    }
}

#[test]
fn a_variable_is_no_required_option_and_its_error_names_it() {
    let lab = Lab::new();
    lab.container("pod");
    lab.configure("10-net.conflist", &pods("1.0.0", "10.1.2.0/24"));
    let tool = lab.cnitool().env("NETCONFPATH", "/etc/cni/net.d");
    let usage = tool.run("del");
    assert!(usage.exit == Some(2) && !usage.stderr.contains("--plugin-path"), "{usage:#?}");
    // 0xff is in no UTF-8 text, but may be in the name of a directory.
    let with = |variable: &str| {
        let line = format!("{variable}=$(printf '/opt/\\377') exec \"$0\" \"$@\"");
        tool.clone().under(&["sh", "-c", &line].map(str::to_owned))
    };
    let args = with("CNI_ARGS").run("add net pod");
    assert!(args.exit == Some(2) && args.stderr.contains("CNI_ARGS is not UTF-8 text"), "{args:#?}");
    let path = with("CNI_PATH").run("add net pod");
    assert!(path.exit == Some(1) && path.stderr.contains("no plugin \"bridge\" in /opt/"), "{path:#?}");
}

#[test]
fn a_file_in_the_working_directory_is_suggested_as_a_path() {
    let lab = Lab::new();
    lab.container("pod");
    let here = lab.dir().join("here");
    fs::create_dir(&here).unwrap();
    fs::write(here.join("web.conflist"), pods("1.0.0", "10.1.2.0/24").to_string()).unwrap();
    let tool = lab.cnitool().under(&["env", "-C", here.to_str().unwrap()].map(str::to_owned));
    let refused = tool.run("add web.conflist pod");
    assert!(refused.exit == Some(3) && refused.stderr.contains("pass ./web.conflist"), "{refused:#?}");
    tool.says("add ./web.conflist pod");
}

#[test]
fn the_manual_page_cites_only_existing_pages() {
    let lab = Lab::new();
    let page = lab.cnitool().says("man");
    assert!(page.contains(".SH \"CNITOOL ADD\"") && !page.contains("(1)"), "{page}");
    assert!(page.contains("cnitool add pods blue"), "it has the examples");
}

/// cnitool on a separate terminal, where it also prints what it has done.
fn on_a_terminal(lab: &Lab) -> Tool {
    let words = ["sh", "-c", "exec script --quiet --return --command \"'$0' $*\" /dev/null"];
    lab.cnitool().env("NO_COLOR", "1").under(&words.map(str::to_owned))
}

#[test]
fn gc_of_all_networks_reports_live_containers() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let [gone, _one, _two] = ["gone-of-three", "one", "two"].map(|id| lab.container(id));
    lab.configure("10-net.conflist", &pods("1.0.0", "10.1.2.0/24"));
    let tool = on_a_terminal(&lab);
    for name in ["gone-of-three", "one", "two"] {
        tool.says(&format!("add net {name} --container-id {name}"));
    }
    gone.vanish();
    lab.host().wait_until("the pair is deleted", |host| host.ip("link show master br0").len() == 2);
    let preview = tool.json("gc net --dry-run --detach-running");
    let would = preview["wouldRemove"].as_array().unwrap().iter();
    let alive: Vec<_> = would.filter(|one| one["alive"] == true).map(|one| &one["containerID"]).collect();
    assert_eq!(alive, ["one", "two"]);
    let said = tool.says("gc net --detach-running");
    assert!(said.contains("network net: 2 live attachments, 1 stale attachment"), "{said}");
    assert!(leases().is_empty());
    let said = tool.says("gc net --detach-running");
    assert!(said.contains("✓ network net: nothing removed"), "{said}");
}

#[test]
fn gc_repair_and_status_print_their_result_also_without_a_terminal() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let [gone, _one] = ["gone-of-two", "one"].map(|id| lab.container(id));
    lab.configure("10-net.conflist", &with_ports("net", "br0", "10.1.2.0/24"));
    let tool = lab.cnitool();
    tool.says("add net gone-of-two --container-id gone-of-two");
    tool.says("add net one -p 8080:80 --container-id one");
    let status = tool.says("status net");
    assert!(status.contains("ready") && status.contains("2 of 253 addresses"), "{status}");
    assert_eq!(tool.says("repair net"), "✓ attachments: 2 complete\n");
    assert_eq!(tool.says("repair --all"), "", "a run of a timer or a watch that changes nothing is silent");
    lab.host().sh("nft delete table inet ferrule");
    let repaired = tool.says("repair --all");
    assert!(repaired.ends_with("net/one/eth0 repaired\n✓ attachments: 2 repaired\n"), "{repaired}");
    gone.vanish();
    lab.host().wait_until("the pair is deleted", |host| host.ip("link show master br0").len() == 1);
    let removed = tool.says("gc net");
    assert!(removed.starts_with("✓ network net: 1 stale attachment"), "{removed}");
    assert_eq!(tool.says("gc net"), "✓ network net: nothing removed\n");
    assert_eq!(tool.says("gc --all"), "");
}

/// `--all` means all networks. Next to it, `gc NETWORK --all` must not detach running containers.
#[test]
fn gc_refuses_all_with_a_network_and_says_what_to_use() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.configure("10-net.conflist", &pods("1.0.0", "10.1.2.0/24"));
    let tool = lab.cnitool();
    tool.says("add net pod --container-id pod");
    for (line, advice) in [
        ("gc net --all", "run `cnitool gc net` or `cnitool gc --all`"),
        ("gc net --all --dry-run", "run `cnitool gc net --detach-running`"),
        ("gc --detach-running --dry-run", "<NETWORK>"),
    ] {
        let refused = tool.run(line);
        assert!(refused.exit == Some(2) && refused.stderr.contains(advice), "{line}: {refused:#?}");
    }
    assert!(pod.link("eth0").is_some() && leases().len() == 1);
}

#[test]
fn a_failed_gc_reports_the_failure_and_counts_only_removed_objects() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let _pods = ["one", "two"].map(|id| lab.container(id));
    lab.fake_plugin(
        "fails",
        "case $CNI_COMMAND$CNI_CONTAINERID in ADD*) echo '{\"cniVersion\": \"1.0.0\"}' ;; \
        DELone) echo '{\"code\": 100, \"msg\": \"no\"}'; exit 1 ;; esac",
    );
    lab.configure(
        "10-net.conflist",
        &json!({"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "fails"}]}),
    );
    let tool = on_a_terminal(&lab);
    for name in ["one", "two"] {
        tool.says(&format!("add net {name} --container-id {name}"));
    }
    let failed = tool.run("gc net --detach-running");
    let said = &failed.stdout;
    assert!(
        !failed.succeeded()
            && said.contains(
                "✗ network net: GC failed: 1 live attachment removed; other resources may have been removed"
            ),
        "{said}"
    );
    assert!(said.contains("one") && !said.contains("stale"), "{said}");
}

#[test]
fn a_dry_gc_that_fails_does_not_say_that_nothing_would_be_removed() {
    beyond_reference!("gc");
    let lab = Lab::new();
    lab.configure("10-net.conflist", &pods("1.0.0", "10.1.2.0/24"));
    let tool = lab.cnitool();
    assert_eq!(tool.says("gc net --dry-run"), "nothing would be removed\n");
    lab.host().sh("mkdir -p /var/lib/cni/networks; touch /var/lib/cni/networks/net");
    for line in ["gc net --dry-run", "gc --dry-run", "gc net --dry-run --output json"] {
        let failed = tool.run(line);
        assert!(!failed.succeeded() && failed.stdout.is_empty(), "{line}: {failed:#?}");
    }
}

#[test]
fn a_repair_that_repairs_nothing_is_no_success_unless_nothing_was_missing() {
    beyond_reference!("repair");
    let lab = Lab::new();
    let [_one, gone] = ["one", "beyond-repair"].map(|id| lab.container(id));
    lab.configure("10-net.conflist", &with_ports("net", "br0", "10.1.2.0/24"));
    let tool = on_a_terminal(&lab);
    tool.says("add net one -p 8080:80 --container-id one");
    tool.says("add net beyond-repair --container-id beyond-repair");
    assert!(tool.says("repair net").contains("✓ attachments: 2 complete"));
    gone.vanish();
    lab.host().sh("nft delete table inet ferrule");
    let said = tool.says("repair net");
    assert!(said.contains("✓ attachments: 1 repaired, 1 skipped"), "{said}");
    let nowhere = tool.env("CNI_PATH", "/nowhere").run("repair net");
    assert!(!nowhere.succeeded() && nowhere.stdout.contains("✗ attachments:"), "{nowhere:#?}");
    assert!(nowhere.stdout.contains("1 failed"), "{nowhere:#?}");
}

#[test]
fn a_value_of_the_wrong_type_is_reported_in_terms_of_json() {
    beyond_reference!("errors");
    let lab = Lab::new();
    let _pod = lab.container("pod");
    let (list, plugin) = (lab.dir().join("list.conflist"), lab.dir().join("plugin.conflist"));
    fs::write(
        &list,
        json!({"cniVersion": "1.0.0", "name": "net", "plugins": {"type": "bridge"}}).to_string(),
    )
    .unwrap();
    let mtu = json!([{"type": "bridge", "mtu": "9000"}]);
    fs::write(&plugin, json!({"cniVersion": "1.0.0", "name": "net", "plugins": mtu}).to_string()).unwrap();
    let tool = lab.cnitool();
    for (line, words) in [
        (format!("add {} pod", list.display()), "plugins: expected a list, found an object"),
        (
            format!("validate {}", list.display()),
            "plugins: expected a list of plugin objects, found an object",
        ),
        (
            format!("add {} pod", plugin.display()),
            "mtu: expected a whole number, found the string \"9000\": remove the quotes",
        ),
        (format!("add {} pod --cap-args [1]", plugin.display()), "expected an object, found a list"),
    ] {
        let run = tool.run(&line);
        let said = format!("{}{}", run.stdout, run.stderr);
        assert!(!run.succeeded() && said.contains(words), "{words}: {said}");
        assert!(!said.contains("u32") && !said.contains("sequence"), "{said}");
    }
}

#[test]
fn a_second_add_that_fails_does_not_undo_the_first_one_which_still_runs() {
    let lab = Lab::new();
    let _pod = lab.container("pod");
    let gate = "cat >/dev/null; [ $CNI_COMMAND != ADD ] || { touch /run/lab/waits; while [ ! -e /run/lab/go ]; do sleep 0.01; done
        echo '{\"cniVersion\": \"1.0.0\"}'; }";
    lab.fake_plugin("gate", gate);
    let bridge = json!({"type": "bridge", "bridge": "br0", "ipam": host_local(&[&["10.1.2.0/24"]])});
    let list = json!({"cniVersion": "1.0.0", "name": "net", "plugins": [bridge, {"type": "gate"}]});
    lab.configure("10-net.conflist", &list);
    let tool = lab.cnitool();
    let mut first = tool.spawn("add net pod --container-id pod");
    lab.host().wait_until("the first ADD waits", |_| Path::new("/run/lab/waits").exists());
    let mut second = tool.spawn("add net pod --container-id pod");
    // The second one either waits, or has undone what the first one is adding.
    for _ in 0..100 {
        if second.try_wait().unwrap().is_some() {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    fs::write("/run/lab/go", "").unwrap();
    assert!(first.wait().unwrap().success());
    assert!(!second.wait().unwrap().success());
    assert!(lab.host().sh("ip link show type veth").contains("master br0"), "the veth of the first ADD");
}

#[test]
fn a_failed_add_keeps_an_attachment_whose_result_cannot_be_examined() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let bridge = json!({"type": "bridge", "bridge": "br0", "ipam": host_local(&[&["10.1.2.0/24"]])});
    lab.configure("10-net.conflist", &json!({"cniVersion": "1.0.0", "name": "net", "plugins": [bridge]}));
    let tool = lab.cnitool();
    tool.says("add net pod --container-id pod");
    let result = "/var/lib/cni/results/net-pod-eth0";
    let inject = "inject=?lstat,?newfstatat,?statx:error=EIO";
    let unseen = injecting(&["-P", result, "-e", inject]);
    let failed = tool.clone().under(&unseen).run("add net pod --container-id pod");
    assert!(!failed.succeeded() && failed.stderr.contains("this ADD was not rolled back"), "{failed:#?}");
    assert!(pod.link("eth0").is_some());
    tool.says("check net pod --container-id pod");
}

#[test]
fn del_uses_the_configuration_of_each_attachments_own_add_whether_the_file_has_changed_or_is_deleted() {
    let lab = Lab::new();
    let [_a, _b, _c] = ["a", "b", "c"].map(|id| lab.container(id));
    let tool = lab.cnitool();
    let leases = |dir: &str| lab.host().sh(&format!("find /run/lab/{dir} -name '10.*'"));
    for id in ["a", "b", "c"] {
        let mut ipam = host_local(&[&["10.1.2.0/24"]]);
        ipam["dataDir"] = json!(format!("/run/lab/{id}"));
        let bridge = json!({"type": "bridge", "bridge": "br0", "ipam": ipam});
        lab.configure("10-net.conflist", &json!({"cniVersion": "1.0.0", "name": "net", "plugins": [bridge]}));
        tool.says(&format!("add net {id} --container-id {id}"));
        assert!(!leases(id).is_empty());
    }
    tool.says("del net a --container-id a");
    assert_eq!(leases("a"), "");
    fs::remove_file("/etc/cni/net.d/10-net.conflist").unwrap();
    tool.says("del net c --container-id c");
    assert_eq!(leases("c"), "");
    assert_ne!(leases("b"), "");
    tool.says("del net --all");
    assert_eq!(leases("b"), "");
}

#[test]
fn check_compares_an_attachment_with_the_configuration_of_its_add_although_the_file_has_changed() {
    beyond_reference!("rules-by-attachment");
    let lab = Lab::new();
    lab.container("pod");
    let added = with_ports("net", "br0", "10.1.2.0/24");
    lab.configure("10-net.conflist", &added);
    let tool = lab.cnitool();
    tool.says("add net pod -p 8080:80");

    // ADD has not called this plugin, and used another bridge and subnet.
    let mut today = with_ports("net", "br1", "10.9.9.0/24");
    today["plugins"].as_array_mut().unwrap().push(json!({"type": "firewall"}));
    lab.configure("10-net.conflist", &today);
    tool.says("check net pod");

    // ADD has called portmap.
    let mut today = added;
    today["plugins"].as_array_mut().unwrap().pop();
    today["plugins"][0]["ipMasq"] = json!(false);
    lab.configure("10-net.conflist", &today);
    lab.host().sh("nft flush ruleset");
    let check = tool.run("check net pod");
    assert!(!check.succeeded() && check.stderr.contains("cnitool repair --all"), "{check:#?}");
    assert!(check.stderr.contains("CHECK used the configuration of the ADD"), "{check:#?}");
    tool.says("repair --all");
    tool.says("check net pod");
}

/// `cniVersion: 0.3.1` has no CHECK.
#[test]
fn if_check_refuses_the_version_of_the_add_the_error_says_that_todays_configuration_differs() {
    beyond_reference!("rules-by-attachment");
    let lab = Lab::new();
    lab.container("pod");
    lab.configure("10-net.conflist", &pods("0.3.1", "10.1.2.0/24"));
    let tool = lab.cnitool();
    tool.says("add net pod");
    lab.configure("10-net.conflist", &pods("1.0.0", "10.1.2.0/24"));
    let check = tool.run("check net pod");
    assert!(check.stderr.contains("has CNI version 0.3.1, which does not support CHECK"), "{check:#?}");
    assert!(check.stderr.contains("CHECK used the configuration of the ADD"), "{check:#?}");
}

#[test]
fn check_of_a_network_with_disable_check_warns_that_it_was_skipped_and_lists_nothing_as_done() {
    let lab = Lab::new();
    let _pods = ["a", "b"].map(|id| lab.container(id));
    let mut network = pods("1.0.0", "10.1.2.0/24");
    lab.configure("10-net.conflist", &network);
    let tool = lab.cnitool();
    for id in ["a", "b"] {
        tool.says(&format!("add net {id} --container-id {id}"));
    }
    assert_eq!(tool.json("check net --all")["done"].as_array().map(Vec::len), Some(2));
    network["disableCheck"] = json!(true);
    lab.configure("10-net.conflist", &network);
    for (targets, skipped) in [
        ("a --container-id a", "eth0 of container a on network net"),
        ("--all", "2 attachments of network net"),
    ] {
        let check = tool.run(&format!("check net {targets} --output json"));
        let warning = format!("CHECK of {skipped} was skipped");
        assert!(check.succeeded() && check.stderr.contains(&warning), "{check:#?}");
        assert_eq!(serde_json::from_str::<Value>(&check.stdout).unwrap()["done"], json!([]), "{check:#?}");
    }
    let seen = on_a_terminal(&lab).run("check net a --container-id a");
    assert!(seen.stdout.contains("disableCheck") && !seen.stdout.contains("done"), "{seen:#?}");
}

#[test]
fn all_with_the_name_of_one_attachment_is_refused_and_detaches_nothing() {
    let lab = Lab::new();
    let pods = ["blue", "green"].map(|name| lab.container(name));
    lab.configure("10-net.conflist", &self::pods("1.0.0", "10.1.2.0/24"));
    let tool = lab.cnitool();
    for pod in &pods {
        tool.says(&format!("add net {0} --container-id {0}", pod.name()));
    }
    for command in ["del", "check"] {
        let names = ["--container-id blue", "-i eth0", "--ifname=eth0"];
        let after = names.map(|name| format!("{command} net --all {name}"));
        for arguments in after.into_iter().chain([format!("-i eth0 {command} net --all")]) {
            let refused = tool.run(&arguments);
            assert!(
                refused.exit == Some(2) && refused.stderr.contains("cannot be used with '--"),
                "{refused:#?}"
            );
        }
    }
    assert!(pods.iter().all(|pod| pod.link("eth0").is_some()));
    // Scripts export the variable for all commands.
    tool.env("CNI_IFNAME", "eth0").says("del net --all");
    assert!(pods.iter().all(|pod| pod.link("eth0").is_none()));
}

/// In the reference, `--ifname` is an option of all commands.
#[test]
fn the_interfaces_name_may_be_before_the_command_and_commands_without_an_interface_ignore_it() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.configure("10-net.conflist", &pods("1.1.0", "10.1.2.0/24"));
    let tool = lab.cnitool();
    tool.says("-i eth1 add net pod");
    assert!(pod.link("eth1").is_some());
    tool.says("--ifname eth1 check net pod");
    tool.says("status net -i eth1");
    tool.says("-i other del net pod -i eth1");
    assert!(pod.link("eth1").is_none());
}

/// These options mean all interfaces.
#[test]
fn gc_refuses_the_interfaces_name_if_it_would_detach_running_containers() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.configure("10-net.conflist", &pods("1.1.0", "10.1.2.0/24"));
    let tool = lab.cnitool();
    for ifname in ["eth0", "eth1"] {
        tool.says(&format!("add net pod --container-id pod -i {ifname}"));
    }
    for line in
        ["gc net --detach-running -i eth1", "-i eth1 gc net --detach-running", "gc net --force pod -i eth1"]
    {
        let refused = tool.run(line);
        let text = "cannot be used with '--ifname <NAME>'";
        assert!(refused.exit == Some(2) && refused.stderr.contains(text), "{line}: {refused:#?}");
    }
    assert!(["eth0", "eth1"].iter().all(|name| pod.link(name).is_some()));
    // Without these options, `gc` detaches no running container. Scripts export the variable for all commands.
    tool.says("gc net -i eth1");
    tool.env("CNI_IFNAME", "eth1").says("gc net --detach-running");
    assert!(["eth0", "eth1"].iter().all(|name| pod.link(name).is_none()));
}

/// As for root of a user namespace, which may not read the caches of the host.
#[test]
fn an_add_does_not_depend_on_other_caches_that_cannot_be_read() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.configure("10-net.conflist", &pods("1.1.0", "10.1.2.0/24"));
    fs::create_dir_all("/var/lib/cni/other").unwrap();
    std::os::unix::fs::symlink("results", "/var/lib/cni/other/results").unwrap();
    let tool = lab.cnitool();
    tool.says("add net pod --cache-dir /run/lab/own");
    assert!(pod.link("eth0").is_some());
    // A failed ADD is rolled back.
    lab.fake_plugin(
        "fails",
        r#"[ $CNI_COMMAND != ADD ] || { echo '{"code": 11, "msg": "not now"}'; exit 1; }"#,
    );
    let plugins = json!([{"type": "bridge", "bridge": "br0"}, {"type": "fails"}]);
    lab.configure("20-fails.conflist", &json!({"cniVersion": "1.0.0", "name": "fails", "plugins": plugins}));
    let failed = tool.run("add fails pod -i eth1 --cache-dir /run/lab/own");
    assert!(failed.stderr.contains("not now") && pod.link("eth1").is_none(), "{failed:#?}");
}

#[test]
fn all_warns_of_attachments_in_other_caches_of_the_host_and_leaves_them() {
    let lab = Lab::new();
    let own = lab.container("own");
    let other = lab.container("other");
    lab.configure("10-net.conflist", &pods("1.0.0", "10.1.2.0/24"));
    let tool = lab.cnitool();
    tool.says("add net own");
    assert!(tool.run("check net --all").stderr.is_empty());
    tool.says("add net other --cache-dir /var/lib/cni/multus");
    for command in ["check", "del"] {
        let run = tool.run(&format!("{command} net --all"));
        let words = "the cache /var/lib/cni/multus contains 1 attachment of network net too";
        assert!(run.succeeded() && run.stderr.contains(words), "{run:#?}");
    }
    assert!(own.link("eth0").is_none() && other.link("eth0").is_some());
    let rest = tool.run("del net --all --cache-dir /var/lib/cni/multus");
    assert!(rest.succeeded() && rest.stderr.is_empty() && other.link("eth0").is_none(), "{rest:#?}");
}

#[test]
fn a_name_is_below_run_netns_also_after_the_namespace_was_deleted_and_despite_a_file_of_that_name() {
    let lab = Lab::new();
    let pod = lab.container("named-as-a-file");
    lab.configure("10-net.conflist", &pods("1.0.0", "10.1.2.0/24"));
    let here = lab.dir().join("here");
    fs::create_dir(&here).unwrap();
    fs::write(here.join("named-as-a-file"), "").unwrap();
    let in_here = ["env", "-C", here.to_str().unwrap()].map(str::to_owned);
    let tool = lab.cnitool().under(&in_here);
    tool.says("add net named-as-a-file");
    assert!(pod.link("eth0").is_some());
    let other = tool.run("del net named-as-a-file --container-id other");
    assert!(
        other.succeeded() && other.stderr.contains("does not contain eth0 of container other"),
        "{other:#?}"
    );
    assert!(!leases().is_empty());
    pod.vanish();
    let deleted = tool.run("del net named-as-a-file");
    assert!(deleted.succeeded() && deleted.stderr.is_empty(), "{deleted:#?}");
    assert!(leases().is_empty());
    // The reference's cnitool takes a namespace in the working directory, so scripts may have one.
    let pod = lab.container("db");
    lab.host().sh(&format!("cd {}; touch mine; mount --bind /run/netns/db mine", here.display()));
    tool.says("add net mine");
    assert!(pod.link("eth0").is_some());
}

#[test]
fn with_json_files_are_written_too_and_each_warning_and_error_is_a_line_of_json() {
    let lab = Lab::new();
    lab.configure("10-net.conflist", &pods("1.0.0", "10.1.2.0/24"));
    let tool = lab.cnitool();
    let dir = lab.dir().display().to_string();
    assert!(tool.json(&format!("graph --to {dir}/g.svg"))["containers"].is_array());
    assert!(fs::read_to_string(lab.dir().join("g.svg")).unwrap().starts_with("<svg"));
    let written = tool.json(&format!("schema --to {dir}"));
    let files: Vec<&str> =
        written["files"].as_array().unwrap().iter().map(|file| file.as_str().unwrap()).collect();
    assert!(files.contains(&format!("{dir}/bridge.json").as_str()), "{files:?}");

    let failed = tool.run("add net nonesuch green --output json");
    let lines: Vec<Value> = failed.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines[0]["warning"].as_str().unwrap().contains("green"), "{failed:#?}");
    assert_eq!((lines.len(), &lines[1]["code"]), (2, &json!(3)), "{failed:#?}");
}
