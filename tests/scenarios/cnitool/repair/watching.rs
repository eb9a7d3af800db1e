//! Changes that `cnitool repair --watch` treats as a loss.

use super::*;

#[test]
fn repair_restores_the_guard_of_route_localnet_after_a_flush_of_mangle() {
    beyond_reference!("repair");
    let lab = Lab::new();
    lab.container("pod");
    let tool = tool(&lab, "iptables");
    tool.says("add net pod --container-id pod");
    let is_guarded = || lab.host().sh("iptables-nft-save -t mangle").contains("127.0.0.0/8");
    assert!(is_guarded());
    let watching = Watching::start(&tool);
    // The first flush may come before the watcher's first look.
    for _ in 0..2 {
        flushes(&lab, "iptables-nft -t mangle -F");
        until_within(RESTORED, "the guard is back", is_guarded);
    }
    assert_eq!(watching.end(), Some(0));
}

/// Counts the calls of bridge's repair: one for each repair.
pub fn counted(lab: &Lab, tool: Tool) -> (Tool, impl Fn() -> usize + use<>) {
    let real = under_test().dir.join("bridge");
    let counted = format!("[ \"$1\" != repair ] || echo >>/run/lab/repairs; exec {} \"$@\"", quoted(&real));
    lab.fake_plugin("bridge", &counted);
    let path = format!("/run/lab/plugins:{}", under_test().dir.display());
    let repairs = || fs::read_to_string("/run/lab/repairs").unwrap_or_default().lines().count();
    (tool.env("CNI_PATH", &path), repairs)
}

#[test]
fn no_change_of_our_own_plugins_starts_a_repair() {
    beyond_reference!("repair");
    for backend in ["nftables", "iptables"] {
        let lab = Lab::new();
        let (tool, repairs) = counted(&lab, tool(&lab, backend));
        lab.container("stays");
        tool.says("add net stays --container-id stays");
        let watching = Watching::start(&tool);
        until("it has looked once", || repairs() == 1);
        let pods = ["first", "second", "third"];
        let udp = json!({"portMappings": [{"hostPort": 8053, "containerPort": 53, "protocol": "udp"}]});
        for pod in pods {
            lab.container(pod);
            let tool =
                if pod == "second" { tool.clone().env("CAP_ARGS", &udp.to_string()) } else { tool.clone() };
            tool.says(&format!("add net {pod} --container-id {pod}"));
        }
        // The last attachment's DEL also removes the shared objects.
        for pod in pods.into_iter().chain(["stays"]) {
            tool.says(&format!("del net {pod} --container-id {pod}"));
        }
        tool.says("add net first --container-id first");
        // A loss that it must notice, after changes that are none.
        let loss = if backend == "iptables" { "iptables-nft -t nat -F" } else { "nft flush ruleset" };
        flushes(&lab, loss);
        until_within(RESTORED, "the rules are back", || tool.run("check net --all").succeeded());
        until_within(RESTORED, "it has looked after the loss", || repairs() > 1);
        assert_eq!(watching.end(), Some(0));
        assert_eq!(repairs(), 2, "{backend}: one for the start, one for the loss");
    }
}

/// firewalld's iptables backend does this: it flushes and deletes all chains in one transaction.
#[test]
fn another_programs_transaction_that_deletes_all_chains_of_a_table_is_a_loss() {
    beyond_reference!("repair");
    let lab = Lab::new();
    lab.container("pod");
    let tool = tool(&lab, "iptables");
    tool.says("add net pod --container-id pod");
    let watching = Watching::start(&tool);
    // The first flush may come before the watcher's first look.
    for _ in 0..2 {
        flushes(&lab, "printf '*nat\\n-F\\n-X\\nCOMMIT\\n' | iptables-nft-restore --noflush");
        until_within(RESTORED, "the rules are back", || tool.run("check net --all").succeeded());
    }
    assert_eq!(watching.end(), Some(0));
}

/// If the buffer for events is full, the kernel drops all further events until the watcher reads.
#[test]
fn watch_restores_limits_even_if_the_kernel_has_dropped_the_event_of_their_removal() {
    needs!(TrafficControl);
    beyond_reference!("repair");
    let lab = Lab::new();
    lab.container("pod");
    lab.configure("10-net.conflist", &limited());
    let (tool, repairs) = counted(&lab, lab.cnitool());
    tool.says("add net pod --container-id pod");
    let [loss, ..] = losses_of_limits(&lab);
    let watching = Watching::start(&tool);
    until("it has looked once", || repairs() == 1);
    let send = |signal: Signal| kill(Pid::from_raw(watching.0.id().cast_signed()), signal).unwrap();
    send(Signal::SIGSTOP);
    until("events are dropped", || {
        // These changes are no loss.
        lab.host().sh("seq 1000 | sed 's/^/link set dev lo alias /' | ip -batch -");
        !lab.host().sh("awk 'NR > 1 && $9 > 0' /proc/net/netlink").is_empty()
    });
    lab.host().sh(&loss);
    send(Signal::SIGCONT);
    until_within(RESTORED, "the limits are back", || tool.run("check net --all").succeeded());
    assert_eq!(watching.end(), Some(0));
}

/// A change by mistake. The comment still identifies the rule.
#[test]
fn check_and_status_notice_a_changed_rule_of_iptables_and_repair_replaces_it() {
    beyond_reference!("repair");
    let of = |table: &str, chain: &str, pattern: &str, replacement: &str| {
        format!(
            "for t in iptables-nft; do $t-save -t {table} | grep -v '^[:#]' | sed '/^-A {chain} /s/{pattern}/{replacement}/' \
             | sed '1a -F {chain}' | grep -e '^\\*' -e '^COMMIT' -e '{chain} ' -e '-F {chain}' | $t-restore --noflush; done"
        )
    };
    for (what, change) in [
        ("the guard's verdict", of("mangle", "PREROUTING", "-j DROP", "-j ACCEPT")),
        ("the guard's interface", of("mangle", "PREROUTING", "! -i lo", "-i lo")),
        ("the way to the host ports", of("nat", "PREROUTING", "--dst-type LOCAL", "--dst-type UNICAST")),
        ("the masquerade of host ports", of("nat", "FERRULE-HAIRPIN", "0x2000\\/0x2000", "0x4000\\/0x4000")),
        (
            "where a port leads",
            of("nat", "FERRULE-HP-[0-9a-v]*", "--to-destination 10.1.2.2", "--to-destination 10.1.2.9"),
        ),
    ] {
        let lab = Lab::new();
        lab.container("pod");
        let tool = tool(&lab, "iptables");
        tool.says("add net pod --container-id pod");
        let rules = || lab.host().sh("iptables-nft-save | grep -- '^-A' | sort");
        let status =
            || lab.plugin("portmap").version("1.1.0").config(json!({"backend": "iptables"})).status();
        let before = rules();
        status().ok();
        let change = if what == "where a port leads" {
            let name =
                lab.host().sh("iptables-nft-save -t nat | grep -o '^:FERRULE-HP-[0-9a-v]*' | tr -d ':\\n'");
            change.replace("FERRULE-HP-[0-9a-v]*", &name)
        } else {
            change
        };
        lab.host().sh(&change);
        assert_ne!(rules(), before, "{what}");
        assert!(!tool.run("check net --all").succeeded(), "{what}");
        // The destination of a port is not shared.
        if what == "where a port leads" {
            status().ok();
        } else {
            status().refused(50, "was changed");
        }
        assert_eq!(tool.json("repair net")["repaired"], json!(["net/pod/eth0"]), "{what}");
        assert_eq!(rules(), before, "{what}");
        tool.says("check net --all");
        status().ok();
    }
}
