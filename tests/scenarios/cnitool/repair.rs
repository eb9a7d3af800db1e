//! `cnitool repair`: flushed rules are restored, and nothing else changes.

mod concurrent;
mod firewalld;
mod host_ports;
mod watching;

use std::fs;
use std::time::Duration;

use lab::{
    Lab, Netns, Tool, beyond_reference, needs, quoted, tcp_is_cut_off, tcp_says, under_test, until,
    until_within,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::common::{TOOLS, choose_tools, configure_containerd, dual_stack};
pub use watching::counted;

/// The limit for a repair after an event. `--watch` waits at most 0.2 seconds, and the machine may be busy. A watcher that
/// looks every 10 seconds is too late.
pub const RESTORED: Duration = Duration::from_secs(5);

/// The same for legacy iptables, which sends no events: `--watch` looks every 10 seconds.
const RESTORED_WITHOUT_EVENTS: Duration = Duration::from_secs(60);

const HOST: &str = "198.51.100.1:8080";
const RESULT: &str = "/var/lib/cni/results/net-pod-eth0";

/// A network with everything that can be repaired, by a backend.
fn pods(backend: &str) -> Value {
    let mut bridge = dual_stack();
    let keys = [("type", json!("bridge")), ("ipMasq", json!(true)), ("ipMasqBackend", json!(backend))];
    keys.into_iter().for_each(|(key, value)| bridge[key] = value);
    bridge["macspoofchk"] = json!(true);
    let portmap =
        json!({"type": "portmap", "backend": backend, "capabilities": {"portMappings": true}, "snat": true});
    json!({"cniVersion": "1.0.0", "name": "net", "plugins": [bridge, portmap]})
}

/// cnitool, with a host port for each attachment.
fn tool(lab: &Lab, backend: &str) -> Tool {
    lab.configure("10-net.conflist", &pods(backend));
    let web = json!({"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]});
    lab.cnitool().env("CAP_ARGS", &web.to_string())
}

/// Makes the legacy tools the ones that plugins find.
fn with_legacy_tools(tool: Tool) -> Tool {
    choose_tools("legacy");
    tool.env("PATH", TOOLS)
}

fn answers(far: &Netns) -> bool {
    tcp_says(far, HOST).as_deref() == Some("pod 198.51.100.2")
}

const FLUSHES: [(&str, bool, &str); 7] = [
    ("nftables", false, "nft flush ruleset"),
    ("nftables", false, "nft delete table inet ferrule"),
    ("nftables", false, "nft flush chain inet ferrule prerouting; nft flush chain inet ferrule postrouting"),
    ("iptables", false, "nft flush ruleset"),
    (
        "iptables",
        false,
        "for tool in iptables-nft ip6tables-nft; do $tool -t nat -F; done; iptables-nft -t mangle -F",
    ),
    (
        "iptables",
        true,
        "for tool in iptables-legacy ip6tables-legacy; do $tool -t nat -F; done; iptables-legacy -t mangle -F",
    ),
    (
        "iptables",
        true,
        "for tool in iptables-legacy ip6tables-legacy; do $tool -t nat -F; $tool -t nat -X; done",
    ),
];

/// Removes rules while `--watch` restores them: a tool fails if another program writes at the same time.
fn flushes(lab: &Lab, flush: &str) {
    until("it is flushed", || lab.host().try_exec(&["sh", "-ec", flush]).status.success());
}

#[test]
fn after_each_kind_of_flush_host_ports_and_masquerade_work_again_and_check_passes() {
    beyond_reference!("repair");
    for (backend, legacy, flush) in FLUSHES {
        let lab = Lab::new();
        let (pod, far) = (lab.container("pod"), lab.machine("far"));
        let mut tool = tool(&lab, backend);
        if legacy {
            tool = with_legacy_tools(tool);
        }
        tool.says("add net pod --container-id pod");
        let _servers = [pod.serve_tcp("pod", "10.1.2.2:80"), far.serve_tcp("far", "198.51.100.2:7")];
        assert!(answers(&far), "{flush}");
        lab.host().sh(flush);
        assert!(tcp_is_cut_off(&far, HOST), "{flush}");
        assert!(!tool.run("check net --all").succeeded(), "{flush}");

        assert_eq!(tool.json("repair net")["repaired"], json!(["net/pod/eth0"]), "{flush}");
        assert!(answers(&far), "{flush}");
        assert_eq!(tcp_says(&pod, "198.51.100.2:7").as_deref(), Some("far 198.51.100.1"), "{flush}");
        tool.says("check net --all");
        let state = || {
            lab.host().sh("nft --stateless -a list ruleset; iptables-legacy-save | grep -v '^[#:]' || :
                ip -o link show type veth; grep . /var/lib/cni/networks/net/*")
        };
        let whole = state();
        let again = tool.json("repair --all");
        assert_eq!((&again["repaired"], &again["whole"]), (&json!([]), &json!(1)), "{flush}");
        assert_eq!(state(), whole);
        tool.says("del net pod --container-id pod");
        assert!(!lab.host().sh("nft list ruleset; iptables-legacy-save").contains("10.1.2.2"), "{flush}");
    }
}

/// A network whose containers have limits in both directions.
pub fn limited() -> Value {
    let mut bridge = dual_stack();
    bridge["type"] = json!("bridge");
    let bandwidth = json!({
        "type": "bandwidth", "ingressRate": 8_000_000, "ingressBurst": 800_000, "egressRate": 4_000_000, "egressBurst": 400_000,
    });
    json!({"cniVersion": "1.0.0", "name": "net", "plugins": [bridge, bandwidth]})
}

/// Commands that remove a container's limits.
pub fn losses_of_limits(lab: &Lab) -> [String; 4] {
    let end = lab.host().sh("ip -o link show type veth");
    let end = end.split([' ', '@']).find(|word| word.starts_with("veth")).unwrap();
    [
        format!("tc qdisc del dev {end} root"),
        format!("tc qdisc del dev {end} clsact"),
        format!("tc filter del dev {end} ingress"),
        "ip link show type ifb | grep -o 'bwp[0-9a-f]*' | xargs -n 1 ip link del".to_owned(),
    ]
}

#[test]
fn repair_restores_limits_too_and_keeps_existing_ones() {
    needs!(TrafficControl);
    beyond_reference!("repair");
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.configure("10-net.conflist", &limited());
    let tool = lab.cnitool();
    tool.says("add net pod --container-id pod");
    let state = || lab.host().sh("tc qdisc show; ip -o link show type ifb");
    for loss in losses_of_limits(&lab) {
        lab.host().sh(&loss);
        assert!(!tool.run("check net --all").succeeded(), "{loss}");
        assert_eq!(tool.json("repair net")["repaired"], json!(["net/pod/eth0"]), "{loss}");
        tool.says("check net --all");
        let whole = state();
        assert_eq!(tool.json("repair net")["repaired"], json!([]), "{loss}");
        assert_eq!(state(), whole, "{loss}");
        assert!(pod.reaches("10.1.2.1"), "{loss}");
    }
    tool.says("del net pod --container-id pod");
    assert!(lab.host().ip("link show type ifb").is_empty());
}

#[test]
fn traffic_allowed_by_firewall_is_shown_and_restored_by_repair_and_by_watch() {
    beyond_reference!("repair");
    let drop = "for tool in iptables-nft ip6tables-nft; do $tool -P FORWARD DROP; done";
    for (backend, flush) in
        [("nftables", "nft flush ruleset"), ("nftables", "iptables-nft -F"), ("iptables", "iptables-nft -F")]
    {
        let lab = Lab::new();
        let (pod, far) = (lab.container("pod"), lab.machine("far"));
        lab.host().sh(drop);
        let mut bridge = dual_stack();
        bridge["type"] = json!("bridge");
        let firewall = json!({"type": "firewall", "backend": backend, "ingressPolicy": "isolated"});
        let network = json!({"cniVersion": "1.0.0", "name": "net", "plugins": [bridge, firewall]});
        lab.configure("10-net.conflist", &network);
        let tool = lab.cnitool();
        tool.says("add net pod --container-id pod");
        let shown = tool.says("show pod");
        for rule in ["forward 10.1.2.2 by mark bit 12", "forward fd00:1:2::2 by mark bit 12"] {
            assert_eq!(shown.contains(rule), backend == "nftables", "{shown}");
        }
        assert!(shown.contains("isolated"), "{shown}");
        let _server = far.serve_tcp("far", "198.51.100.2:7");
        let passes = || tcp_says(&pod, "198.51.100.2:7").as_deref() == Some("far 10.1.2.2");
        assert!(passes(), "{backend}");
        // A policy of ACCEPT would hide missing rules.
        let harm = || flushes(&lab, &format!("{flush}; {drop}"));
        harm();
        assert!(tcp_is_cut_off(&pod, "198.51.100.2:7"), "{flush}");
        assert!(!tool.run("check net --all").succeeded(), "{flush}");
        assert_eq!(tool.json("repair net")["repaired"], json!(["net/pod/eth0"]), "{flush}");
        assert!(passes(), "{flush}");
        tool.says("check net --all");
        assert_eq!(tool.json("repair net")["repaired"], json!([]), "{flush}");

        let watching = Watching::start(&tool);
        // The first flush may come before the watcher's first look.
        for _ in 0..2 {
            harm();
            until_within(RESTORED, "the rules are back", || tool.run("check net --all").succeeded());
            assert!(passes(), "{flush}");
        }
        assert_eq!(watching.end(), Some(0), "{flush}");
        tool.says("del net pod --container-id pod");
        assert!(!lab.host().sh("nft list ruleset").contains("10.1.2.2"), "{flush}");
    }
}

#[test]
fn repair_restores_masquerade_of_ptp_too() {
    beyond_reference!("repair");
    for backend in ["nftables", "iptables"] {
        let lab = Lab::new();
        let (pod, far) = (lab.container("pod"), lab.machine("far"));
        let mut ptp = json!({"type": "ptp", "ipMasq": true, "ipMasqBackend": backend});
        ptp["ipam"] = crate::common::host_local(&[&["10.1.2.0/24"]]);
        ptp["ipam"]["routes"] = json!([{"dst": "0.0.0.0/0"}]);
        lab.configure("10-net.conflist", &json!({"cniVersion": "1.0.0", "name": "net", "plugins": [ptp]}));
        let tool = lab.cnitool();
        tool.says("add net pod --container-id pod");
        lab.host().sh("nft flush ruleset");
        assert_eq!(tool.json("repair net")["repaired"], json!(["net/pod/eth0"]), "{backend}");
        let _server = far.serve_tcp("far", "198.51.100.2:7");
        assert_eq!(tcp_says(&pod, "198.51.100.2:7").as_deref(), Some("far 198.51.100.1"), "{backend}");
        tool.says("check net --all");
        assert_eq!(tool.json("repair net")["repaired"], json!([]), "{backend}");
    }
}

#[test]
fn after_a_repair_the_newer_of_two_attachments_has_the_host_port() {
    beyond_reference!("repair");
    for (backend, loss) in [
        ("nftables", "nft flush ruleset"),
        ("iptables", "nft flush ruleset"),
        // Only the older attachment's rules are missing.
        ("nftables", "nft delete element inet ferrule hairpin4/24 '{ 10.1.2.2 . 10.1.2.0 }'"),
        (
            "iptables",
            "iptables-nft -t nat -F $(iptables-nft-save -t nat | grep -o 'FERRULE-HP-.*10.1.2.2:80' | cut -d' ' -f1)",
        ),
    ] {
        let lab = Lab::new();
        let ([old, new], far) = (["old", "new"].map(|id| lab.container(id)), lab.machine("far"));
        let tool = tool(&lab, backend);
        for name in ["old", "new"] {
            tool.says(&format!("add net {name} --container-id {name}"));
        }
        let _servers = [old.serve_tcp("old", "10.1.2.2:80"), new.serve_tcp("new", "10.1.2.3:80")];
        let answer = Some("new 198.51.100.2".to_owned());
        assert_eq!(tcp_says(&far, HOST), answer);
        lab.host().sh(loss);
        tool.says("repair net");
        assert_eq!(tcp_says(&far, HOST), answer, "{backend}: {loss}");
        tool.says("check net new --container-id new");
    }
}

#[test]
fn no_rule_is_installed_for_a_deleted_or_replaced_container() {
    beyond_reference!("repair");
    for (what, happens) in [
        ("its namespace", "umount -l /run/netns/not-for-repair; rm /run/netns/not-for-repair"),
        (
            "not a network namespace",
            "umount -l /run/netns/not-for-repair; mount --bind /proc/self/ns/uts /run/netns/not-for-repair",
        ),
        ("interface eth0 no longer exists", "ip -n not-for-repair link del eth0"),
        ("no longer has address 10.1.2.2/24", "ip -n not-for-repair address del 10.1.2.2/24 dev eth0"),
        ("a different MAC address", "ip -n not-for-repair link set eth0 address 0a:00:00:00:00:01"),
    ] {
        let lab = Lab::new();
        // The scripts delete the namespace without the lab.
        lab.claim_name("not-for-repair");
        lab.container("not-for-repair");
        let tool = tool(&lab, "nftables");
        tool.says("add net not-for-repair --container-id not-for-repair");
        lab.host().sh(&format!("{happens}; nft flush ruleset"));
        let passed = tool.run("repair --all");
        assert!(passed.succeeded(), "{passed:#?}");
        let named = "net/not-for-repair/eth0 is skipped";
        assert!(passed.stderr.contains(named) && passed.stderr.contains(what), "{happens}: {passed:#?}");
        assert_eq!(lab.host().sh("nft list ruleset"), "", "{happens}");
    }
}

#[test]
fn an_attachment_without_its_interface_is_skipped_even_if_no_rule_is_missing() {
    beyond_reference!("repair");
    let lab = Lab::new();
    lab.container("pod");
    let tool = tool(&lab, "nftables");
    tool.says("add net pod --container-id pod");
    lab.host().sh("ip -n pod link set eth0 down; ip -n pod link set eth0 name other");
    let skipped = tool.run("repair --all --output json");
    let warning = "net/pod/eth0 is skipped: interface eth0 no longer exists in /run/netns/pod";
    assert!(skipped.succeeded() && skipped.stderr.contains(warning), "{skipped:#?}");
    let report: Value = serde_json::from_str(&skipped.stdout).unwrap();
    assert_eq!((&report["whole"], &report["passedOver"]), (&json!(0), &json!(["net/pod/eth0"])));
}

#[test]
fn files_of_the_cache_that_are_damaged_foreign_or_hostile_are_named_and_the_others_are_repaired() {
    beyond_reference!("repair");
    let lab = Lab::new();
    let (pod, far) = (lab.container("pod"), lab.machine("far"));
    let tool = tool(&lab, "nftables");
    tool.says("add net pod --container-id pod");
    let _server = pod.serve_tcp("pod", "10.1.2.2:80");
    let good: Value = serde_json::from_slice(&fs::read(RESULT).unwrap()).unwrap();
    let write = |name: &str, text: &str| fs::write(format!("/var/lib/cni/results/{name}"), text).unwrap();
    write("net-torn-eth0", &good.to_string()[..200]);
    write("net-empty-eth0", "");
    write("notes.txt", "call Bob");
    write("net-deep-eth0", &"[".repeat(1 << 20));
    write("net-huge-eth0", &" ".repeat(5 << 20));
    lab.host()
        .sh("mkfifo /var/lib/cni/results/net-fifo-eth0; ln -s /dev/zero /var/lib/cni/results/net-link-eth0");
    // Valid documents with wrong content.
    let with = |change: &dyn Fn(&mut Value)| {
        let mut bad = good.clone();
        change(&mut bad);
        bad.to_string()
    };
    write(
        "net-own-eth0",
        &with(&|bad| {
            bad["containerId"] = json!("own");
            bad["netns"] = json!("/proc/self/ns/net");
        }),
    );
    write("net-root-eth0", &with(&|bad| bad["containerId"] = json!("../root")));
    write(
        "net-nosuch-eth0",
        &with(&|bad| {
            bad["containerId"] = json!("nosuch");
            bad["netns"] = json!("/etc/passwd");
        }),
    );
    write("other-c-eth0", &with(&|bad| bad["networkName"] = json!("other")));
    lab.host().sh("nft flush ruleset");

    let repaired = tool.run("repair --all");
    for name in [
        "net-torn-eth0",
        "net-empty-eth0",
        "net-deep-eth0",
        "net-huge-eth0",
        "net-fifo-eth0",
        "net-link-eth0",
        "net-root-eth0",
        "net/nosuch/eth0",
        "net/own/eth0",
        "other/pod/eth0",
    ] {
        assert!(repaired.stderr.contains(name), "{name}: {repaired:#?}");
    }
    assert!(!repaired.stderr.contains("notes.txt"), "its name is not that of a result: {repaired:#?}");
    assert!(answers(&far), "{repaired:#?}");
    let rules = lab.host().sh("nft list ruleset");
    assert!(!rules.contains("/own/") && !rules.contains("nosuch") && !rules.contains("other/"), "{rules}");
    assert!(repaired.succeeded(), "{repaired:#?}");
}

/// Multus has its own cache. The older entry is that of a deleted container with the same id.
#[test]
fn of_two_entries_for_an_attachment_repair_uses_the_newer_one_in_either_cache() {
    beyond_reference!("repair");
    let (default, multus) = ("/var/lib/cni", "/var/lib/cni/multus");
    for (newer, older) in [(default, multus), (multus, default)] {
        let lab = Lab::new();
        lab.container("pod");
        let tool = tool(&lab, "nftables");
        tool.says(&format!("add net pod --container-id pod --cache-dir {newer}"));
        let text = fs::read(format!("{newer}/results/net-pod-eth0")).unwrap();
        let mut entry: Value = serde_json::from_slice(&text).unwrap();
        entry["netns"] = json!("/run/netns/of-a-deleted-container");
        fs::create_dir_all(format!("{older}/results")).unwrap();
        fs::write(format!("{older}/results/net-pod-eth0"), entry.to_string()).unwrap();
        lab.host().sh(&format!("touch -d '1 hour ago' {older}/results/net-pod-eth0; nft flush ruleset"));
        assert_eq!(tool.json("repair --all")["repaired"], json!(["net/pod/eth0"]), "{newer}");
    }
}

/// Debian's package. Without CNI_COMMAND, it prints its version, whatever its arguments are.
#[test]
fn plugins_of_others_are_named_and_do_nothing() {
    beyond_reference!("repair");
    let lab = Lab::new();
    lab.container("pod");
    lab.fake_plugin("shy", "[ -z \"$CNI_COMMAND\" ] || touch /run/lab/called");
    let tool = tool(&lab, "nftables");
    tool.says("add net pod --container-id pod");
    // As if the list had one more plugin.
    let mut network = pods("nftables");
    network["plugins"].as_array_mut().unwrap().push(json!({"type": "shy"}));
    fs::write("/run/lab/network", network.to_string()).unwrap();
    let mut known: Value = serde_json::from_slice(&fs::read(RESULT).unwrap()).unwrap();
    known["config"] = json!(lab.host().sh("base64 -w0 /run/lab/network"));
    fs::write(RESULT, known.to_string()).unwrap();
    lab.host().sh("nft flush ruleset");
    let passed = tool.clone().env("CNI_PATH", "/usr/lib/cni:/run/lab/plugins").run("repair --all");
    assert!(passed.succeeded() && passed.stderr.contains("bridge, portmap, shy"), "{passed:#?}");
    assert_eq!(lab.host().sh("nft list ruleset"), "");
    let repaired = tool.run("repair --all");
    assert!(
        repaired.stderr.contains("their rules: shy") && repaired.stdout.contains("net/pod/eth0"),
        "{repaired:#?}"
    );
    assert!(!fs::exists("/run/lab/called").unwrap());
}

/// `cnitool repair --all --watch`, until it gets a signal.
pub struct Watching(std::process::Child);

impl Watching {
    pub fn start(tool: &Tool) -> Self {
        Self(tool.spawn("repair --all --watch"))
    }

    pub fn end(mut self) -> Option<i32> {
        kill(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGTERM).unwrap();
        self.0.wait().unwrap().code()
    }
}

/// Also after a failed test.
impl Drop for Watching {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn repair_with_watch_restores_rules_after_each_flush_and_ends_at_sigterm() {
    beyond_reference!("repair");
    // Without events, it takes 10 seconds. One such case is enough.
    for (backend, legacy, flush) in &FLUSHES[..6] {
        let lab = Lab::new();
        let (pod, far) = (lab.container("pod"), lab.machine("far"));
        let mut tool = tool(&lab, backend);
        if *legacy {
            tool = with_legacy_tools(tool);
        }
        tool.says("add net pod --container-id pod");
        let _server = pod.serve_tcp("pod", "10.1.2.2:80");
        let limit = if *legacy { RESTORED_WITHOUT_EVENTS } else { RESTORED };
        let watching = Watching::start(&tool);
        // The first flush may come before the watcher's first look.
        for _ in 0..2 {
            assert!(answers(&far), "{flush}");
            flushes(&lab, flush);
            until_within(limit, "the rules are back", || tool.run("check net --all").succeeded());
        }
        assert!(answers(&far), "{flush}");
        assert_eq!(watching.end(), Some(0), "{flush}");
    }
}

#[test]
fn watch_restores_limits_after_each_removal() {
    needs!(TrafficControl);
    beyond_reference!("repair");
    let lab = Lab::new();
    lab.container("pod");
    lab.configure("10-net.conflist", &limited());
    let tool = lab.cnitool();
    tool.says("add net pod --container-id pod");
    let watching = Watching::start(&tool);
    for loss in losses_of_limits(&lab) {
        // The first flush may come before the watcher's first look.
        for _ in 0..2 {
            flushes(&lab, &loss);
            until_within(RESTORED, "the limits are back", || tool.run("check net --all").succeeded());
        }
    }
    assert_eq!(watching.end(), Some(0));
}

/// kube-proxy writes its rules permanently, in its own tables and in those with Ferrule's rules.
#[test]
fn watch_does_nothing_while_other_programs_change_their_rules() {
    beyond_reference!("repair");
    let lab = Lab::new();
    lab.container("pod");
    let real = under_test().dir.join("bridge");
    let counted = format!("[ \"$1\" != repair ] || echo >>/run/lab/repairs; exec {} \"$@\"", quoted(&real));
    lab.fake_plugin("bridge", &counted);
    let path = format!("/run/lab/plugins:{}", under_test().dir.display());
    let tool = tool(&lab, "nftables").env("CNI_PATH", &path);
    tool.says("add net pod --container-id pod");
    let repairs = || fs::read_to_string("/run/lab/repairs").unwrap_or_default().lines().count();
    let watching = Watching::start(&tool);
    until("it has looked once", || repairs() == 1);
    lab.host().sh("iptables-nft -t nat -N KUBE-SERVICES; nft add table ip kube-proxy");
    for _ in 0..50 {
        lab.host().sh("nft 'add chain ip kube-proxy services; delete chain ip kube-proxy services'
            iptables-nft -t nat -A KUBE-SERVICES -j RETURN; iptables-nft -t nat -F KUBE-SERVICES");
    }
    lab.host().sh("nft delete table inet ferrule");
    until_within(RESTORED, "the rules are back", || tool.run("check net --all").succeeded());
    // The repair at the start may have been late, and restored them.
    until_within(RESTORED, "it has looked after the loss", || repairs() > 1);
    assert_eq!(watching.end(), Some(0));
    assert_eq!(repairs(), 2, "one for the start, one for the loss");
}

/// It exits with an error without CNI_COMMAND, or answers with an error object, as plugins in Go do: with code 4, before CNI 0.8 with 100.
#[test]
fn another_vendors_plugin_that_refuses_the_request_does_not_fail_a_repair() {
    beyond_reference!("repair");
    let object = |code: u32| format!(r#"echo '{{"code": {code}, "msg": "CNI_COMMAND is missing"}}'; exit 1"#);
    for refusal in ["exit 1".to_owned(), object(4), object(100), object(0)] {
        let lab = Lab::new();
        let _pod = lab.container("pod");
        let added = r#"echo '{"cniVersion": "1.0.0"}'"#;
        lab.fake_plugin(
            "vendor",
            &format!("cat >/dev/null\ncase $CNI_COMMAND in ADD) {added} ;; DEL) ;; *) {refusal} ;; esac"),
        );
        let tool = tool(&lab, "nftables");
        let mut list = pods("nftables");
        list["plugins"].as_array_mut().unwrap().insert(0, json!({"type": "vendor"}));
        lab.configure("10-net.conflist", &list);
        tool.says("add net pod --container-id pod");
        lab.host().sh("nft flush ruleset");
        let repaired = tool.json("repair net");
        assert_eq!(repaired["repaired"].as_array().map(Vec::len), Some(1), "{repaired:#}");
        assert_eq!(repaired["foreignPlugins"], json!(["vendor"]), "{refusal}");
        assert!(lab.host().sh("nft list ruleset").contains("net/pod/eth0"));
    }
}

#[test]
fn another_vendors_plugin_that_is_not_installed_does_not_fail_a_repair_but_ferrules_does() {
    beyond_reference!("repair");
    let lab = Lab::new();
    let _pod = lab.container("pod");
    lab.fake_plugin("vendor", "[ $CNI_COMMAND = DEL ] || echo '{\"cniVersion\": \"1.0.0\"}'");
    let tool = tool(&lab, "nftables");
    let mut list = pods("nftables");
    list["plugins"].as_array_mut().unwrap().insert(0, json!({"type": "vendor"}));
    lab.configure("10-net.conflist", &list);
    tool.says("add net pod --container-id pod");
    lab.host().sh("nft flush ruleset");
    let repaired = tool.clone().env("CNI_PATH", under_test().dir.to_str().unwrap()).json("repair net");
    assert_eq!(repaired["repaired"].as_array().map(Vec::len), Some(1), "{repaired:#}");
    assert_eq!(repaired["foreignPlugins"], json!(["vendor"]));
    let lacking = tool.env("CNI_PATH", Lab::plugin_dir().to_str().unwrap()).run("repair net");
    assert!(!lacking.succeeded() && lacking.stderr.contains("no plugin \"bridge\""), "{lacking:#?}");
}

/// Such as k3s, and containerd with another `bin_dir`. cni-repair.service does not set CNI_PATH.
#[test]
fn the_plugins_of_a_runtime_with_directories_of_its_own_restore_the_rules_of_its_containers() {
    beyond_reference!("repair");
    let lab = Lab::new();
    let _pod = lab.container("pod");
    for dir in ["/etc/containerd", "/usr/lib/cni"] {
        lab.private_dir(dir);
    }
    let tool = tool(&lab, "nftables");
    tool.says("add net pod --container-id pod");
    lab.host().sh("mkdir /run/lab/networks; mv /etc/cni/net.d/* /run/lab/networks");
    configure_containerd("/run/lab/networks");
    for command in ["repair --all", "repair net"] {
        lab.host().sh("nft flush ruleset");
        let repaired = tool.clone().env("CNI_PATH", "").json(command);
        assert_eq!(repaired["repaired"], json!(["net/pod/eth0"]), "{command}");
        tool.clone().env("NETCONFPATH", "/run/lab/networks").says("check net --all");
    }
}
