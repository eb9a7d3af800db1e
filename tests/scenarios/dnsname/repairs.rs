//! `cnitool show` and `cnitool repair` on networks with dnsname, also while a DEL runs.

use std::net::TcpStream;

use lab::{Lab, beyond_reference, until};
use serde_json::json;

use super::*;
use crate::repair::Watching;

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
        until("a server runs again", whole);
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
    assert!(server_of("net").is_none() && !Path::new(DIRECTORIES).join("net").exists());
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
    assert!(!is_running(&second) && !Path::new(DIRECTORIES).join("net").exists());
}
