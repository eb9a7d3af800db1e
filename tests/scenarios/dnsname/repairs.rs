//! `cnitool show` and `cnitool repair` on networks with dnsname, also while a DEL runs.

use std::net::TcpStream;
use std::time::Duration;

use lab::{Lab, beyond_reference, under_test, until, until_within};
use serde_json::json;

use super::*;
use crate::cnitool::repair::{Watching, counted};

/// The limit for `--watch` to replace a server. It queries the servers every 2 seconds, and replaces one that has not
/// answered for 5 seconds. The machine may be busy.
const REPLACED: Duration = Duration::from_secs(60);

fn kill_server(lab: &Lab) {
    let server = server_of("net").unwrap();
    lab.host().sh(&format!("kill -9 {server}"));
    until("the server has exited", || !is_running(&server));
}

fn is_running(pid: &str) -> bool {
    Path::new("/proc").join(pid).join("exe").exists()
}

#[test]
fn show_lists_the_names_of_a_container() {
    beyond_reference!("dnsname");
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let (web, _) = networks.attach(&lab, "web", &["www", "front"]);
    let (db, _) = networks.attach(&lab, "db", &[]);
    assert!(networks.tool.says("show web").contains("\n  names web, www, front\n"));
    assert_eq!(networks.tool.json("show web")[0]["names"], json!(["web", "www", "front"]));
    assert_eq!(networks.tool.json("show db")[0]["names"], json!(["db"]));
    networks.del_all(&[&web, &db]);
}

#[test]
fn repair_with_watch_starts_a_killed_server_again() {
    beyond_reference!("dnsname");
    let Some(dig) = Dig::here() else { return };
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let (web, own) = networks.attach(&lab, "web", &["www"]);
    let (db, _) = networks.attach(&lab, "db", &[]);
    let watching = Watching::start(&networks.tool);
    // The first kill may happen before `repair` looks for the first time.
    for _ in 0..2 {
        kill_server(&lab);
        let whole = || networks.tool_for("web", &["www"]).run("check net web --container-id web").succeeded();
        until_within(REPLACED, "a server runs again", whole);
        for name in ["web", "www"] {
            assert_eq!(dig.ask(&db, SERVERS[0], &format!("{name} A")), [bare(&own)[0].as_str()]);
        }
    }
    assert_eq!(watching.end(), Some(0));
    networks.del_all(&[&web, &db]);
    assert_eq!(server_of("net"), None);
}

#[test]
fn repair_replaces_a_server_that_does_not_answer_on_bridge_and_on_ptp() {
    beyond_reference!("dnsname");
    let Some(dig) = Dig::here() else { return };
    let ipam = json!({
        "type": "host-local", "routes": [{"dst": "0.0.0.0/0"}], "ranges": [[{"subnet": "10.1.2.0/24"}]],
    });
    for network in [network(&json!({})), chained("net", &json!({"type": "ptp", "ipam": ipam}), &json!({}))] {
        let lab = Lab::new();
        let networks = Networks::new(&lab, &[network]);
        let (web, _) = networks.attach(&lab, "web", &[]);
        let (db, _) = networks.attach(&lab, "db", &[]);
        let stopped = server_of("net").unwrap();
        lab.host().sh(&format!("kill -STOP {stopped}"));
        networks.tool.says("repair net");
        assert_ne!(server_of("net").unwrap(), stopped);
        for name in ["web", "db"] {
            assert_eq!(dig.ask(&db, SERVERS[0], &format!("{name} A")).len(), 1, "{name}");
        }
        networks.del_all(&[&web, &db]);
        assert!(server_of("net").is_none() && !is_running(&stopped));
    }
}

#[test]
fn repair_with_watch_replaces_a_server_that_does_not_answer() {
    beyond_reference!("dnsname");
    let Some(dig) = Dig::here() else { return };
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let (web, own) = networks.attach(&lab, "web", &[]);
    let watching = Watching::start(&networks.tool);
    // `repair` may look for the first time only after the first server has stopped.
    let stopped = [(); 2].map(|()| {
        let stopped = server_of("net").unwrap();
        lab.host().sh(&format!("kill -STOP {stopped}"));
        until_within(REPLACED, "another server answers", || {
            server_of("net").is_some_and(|server| server != stopped)
                && dig.ask(&web, SERVERS[0], "web A") == [bare(&own)[0].as_str()]
        });
        stopped
    });
    assert_eq!(watching.end(), Some(0));
    networks.del("net", &web);
    assert!(server_of("net").is_none() && !stopped.iter().any(|server| is_running(server)));
}

/// A repair does nothing for containers that have ended without a DEL, so it must not run in each check of the servers.
#[test]
fn repair_with_watch_does_not_repair_again_and_again_for_a_server_without_live_containers() {
    beyond_reference!("dnsname");
    let lab = Lab::new();
    let other = named("other", "br1", &[&["10.1.3.0/24"]], &json!({}));
    let networks = Networks::new(&lab, &[network(&json!({})), other]);
    let (dead, _) = networks.attach(&lab, "not-repaired", &[]);
    let live = lab.container("live");
    networks.add("other", &live, "live", &[]);
    dead.netns.vanish();
    kill_server(&lab);
    let (counting, repairs) = counted(&lab, networks.tool.clone());
    let watching = Watching::start(&counting);
    until("it has repaired once", || repairs() == 1);
    // Each check sends a query to the server of the live container.
    lab.host()
        .sh("nft add table ip checks; nft 'add chain ip checks out { type filter hook output priority 0; }'
         nft add rule ip checks out ip daddr 10.1.3.1 udp dport 53 counter");
    let checks = || {
        let rule = lab.host().sh("nft list chain ip checks out");
        rule.split("packets ").nth(1).unwrap().split(' ').next().unwrap().parse::<u32>().unwrap()
    };
    let before = checks();
    until("it has checked the servers three times", || checks() >= before + 3);
    assert_eq!(repairs(), 1);
    assert_eq!(watching.end(), Some(0));
    networks.del("other", &live);
    networks.del("net", &dead);
    assert!(server_of("net").is_none() && server_of("other").is_none());
}

/// dnsname's DEL has run, and bridge's has not, so the container still has its interface.
#[test]
fn a_repair_in_the_middle_of_a_del_does_not_register_the_names_again() {
    beyond_reference!("dnsname");
    let Some(dig) = Dig::here() else { return };
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let (web, _) = networks.attach(&lab, "web", &["www"]);
    let (db, _) = networks.attach(&lab, "db", &[]);
    lab.plugin("dnsname").on(&web).del().ok();
    let rules = || lab.host().sh("nft list ruleset");
    for _ in 0..2 {
        assert_eq!(networks.tool.json("repair net")["passedOver"], json!(["net/web/eth0"]));
        assert!(dig.ask(&db, SERVERS[0], "web A").is_empty(), "{}", hosts_of("net"));
        assert!(!rules().contains("net/web/eth0"), "{}", rules());
    }
    assert_eq!(dig.ask(&db, SERVERS[0], "db A").len(), 1);

    // DEL of the last container ends the server.
    lab.plugin("dnsname").on(&db).del().ok();
    assert_eq!(networks.tool.json("repair net")["repaired"], json!([]));
    assert!(server_of("net").is_none() && is_gone("net"));
    networks.del_all(&[&web, &db]);

    // After an ADD, the next repair restores the names.
    networks.add("net", &db, "db", &[]);
    networks.add("net", &web, "web", &["www"]);
    networks.del("net", &web);
    networks.add("net", &web, "web", &["www"]);
    fs::write(Path::new(DIRECTORIES).join("net/addnhosts"), "").unwrap();
    networks.tool.says("repair net");
    assert_eq!(dig.ask(&db, SERVERS[0], "www A").len(), 1);
    networks.del_all(&[&web, &db]);
}

/// dnsmasq answers over TCP in a child process, which has the same arguments and sockets.
#[test]
fn a_tcp_process_that_outlives_its_server_is_replaced_and_leaves_nothing() {
    beyond_reference!("dnsname");
    let Some(dig) = Dig::here() else { return };
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let (web, _) = networks.attach(&lab, "web", &[]);
    let orphan = || {
        let server = server_of("net").unwrap();
        let connection = web.run(|| TcpStream::connect((SERVERS[0], 53)).unwrap());
        let children =
            || fs::read_to_string(format!("/proc/{server}/task/{server}/children")).unwrap_or_default();
        until("a process serves the connection", || !children().trim().is_empty());
        let child = children().trim().to_owned();
        lab.host().sh(&format!("kill -9 {server}"));
        until("the server has exited", || !is_running(&server));
        assert!(is_running(&child), "it has not read a question yet");
        (child, connection)
    };
    let (first, _connection) = orphan();
    let (db, _) = networks.attach(&lab, "db", &[]);
    for name in ["web", "db"] {
        assert_eq!(dig.ask(&db, SERVERS[0], &format!("{name} A")).len(), 1, "{name}");
    }
    assert!(!is_running(&first));
    let (second, _connection) = orphan();
    networks.del_all(&[&web, &db]);
    assert!(!is_running(&second) && is_gone("net"));
}

#[test]
fn a_repair_that_cannot_look_for_the_container_again_keeps_its_names() {
    beyond_reference!("dnsname");
    let Some(dig) = Dig::here() else { return };
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let (web, _) = networks.attach(&lab, "web", &[]);
    let path = web.path().display().to_string();
    let (real, fake) = (&under_test().dir, Lab::plugin_dir());
    let failing = networks.tool.clone().env("CNI_PATH", &format!("{}:{}", fake.display(), real.display()));
    let mut failed = 0;
    for nth in 1..=4 {
        lab.host().sh(&format!("kill -9 {}", server_of("net").unwrap()));
        let strace =
            format!("strace -qqo /dev/null -P {path} -e inject=?open,openat:error=ENFILE:when={nth}");
        lab.fake_plugin("dnsname", &format!("exec {strace} {} \"$@\"", real.join("dnsname").display()));
        failed += u8::from(!failing.run("repair net").succeeded());
        assert!(hosts_of("net").contains("web"), "open {nth}");
        networks.tool.says("repair net");
    }
    assert!(failed > 1, "the container is looked for twice");
    assert_eq!(dig.ask(&web, SERVERS[0], "web A").len(), 1);
    networks.del("net", &web);
}
