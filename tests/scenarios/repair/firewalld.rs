//! Debian's own firewalld reloads, in a lab of its own and on a D-Bus of its own.

use std::env::consts::ARCH;
use std::fs;
use std::process::{Child, Command, Stdio};

use lab::{Lab, beyond_reference, skip, tcp_is_cut_off};
use serde_json::json;

use super::{HOST, Watching, answers, tool, until};

/// Where scripts/test unpacks it.
const TREE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/../firewalld");
const CONFIGURATION: &str = "/run/lab/firewalld";
const BUS: &str = "unix:path=/run/lab/bus";

/// The daemon and its bus, until they are dropped.
struct Firewalld([Child; 2]);

impl Firewalld {
    /// With a backend. All interfaces are in the zone that lets everything pass, so that only NAT matters.
    fn start(lab: &Lab, backend: &str) -> Self {
        lab.host().sh(&format!(
            "cp -r {TREE}/etc/firewalld {CONFIGURATION}
             sed -i 's/^DefaultZone=.*/DefaultZone=trusted/; s/^FirewallBackend=.*/FirewallBackend={backend}/' \
                {CONFIGURATION}/firewalld.conf"
        ));
        let anybody =
            r#"<allow user="*"/><allow own="*"/><allow send_destination="*"/><allow receive_sender="*"/>"#;
        let bus = format!(
            r#"<busconfig><listen>{BUS}</listen><policy context="default">{anybody}</policy></busconfig>"#
        );
        fs::write("/run/lab/bus.conf", bus).unwrap();
        let stock = format!("{TREE}/usr/lib/firewalld");
        let started = Self([
            spawn("dbus-daemon", &["--config-file=/run/lab/bus.conf", "--nofork", "--nopidfile"]),
            spawn(
                "firewalld",
                &[
                    "--nofork",
                    "--nopid",
                    "--log-file=/run/lab/firewalld.log",
                    "--default-config",
                    &stock,
                    "--system-config",
                    CONFIGURATION,
                ],
            ),
        ]);
        until("firewalld runs", || ask("--state"));
        started
    }
}

impl Drop for Firewalld {
    fn drop(&mut self) {
        for process in self.0.iter_mut().rev() {
            process.kill().ok();
            process.wait().ok();
        }
    }
}

/// A program of the tree, or of the machine where that has it already.
fn program(name: &str) -> Command {
    let libraries = format!("{TREE}/usr/lib/{ARCH}-linux-gnu");
    let mut command = Command::new(name);
    command
        .env("PATH", format!("{TREE}/usr/sbin:{TREE}/usr/bin:/usr/sbin:/usr/bin:/sbin:/bin"))
        .env("PYTHONPATH", format!("{TREE}/usr/lib/python3/dist-packages"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("GI_TYPELIB_PATH", format!("{libraries}/girepository-1.0"))
        .env("LD_LIBRARY_PATH", libraries)
        .env("DBUS_SYSTEM_BUS_ADDRESS", BUS)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

fn spawn(name: &str, arguments: &[&str]) -> Child {
    program(name).args(arguments).spawn().unwrap_or_else(|e| panic!("start {name}: {e}"))
}

/// Whether it does what it is asked for.
fn ask(what: &str) -> bool {
    program("firewall-cmd").arg(what).status().unwrap().success()
}

fn is_here() -> bool {
    let here = fs::exists(TREE).unwrap();
    if !here {
        skip("there is no firewalld to try: scripts/test unpacks Debian's where there is apt-get");
    }
    here
}

#[test]
fn after_a_reload_of_firewalld_a_host_port_works_and_where_it_does_not_check_says_so_and_repair_mends_it() {
    beyond_reference!("repair");
    if !is_here() {
        return;
    }
    for (theirs, ours, lost) in [
        ("iptables", "iptables", Some(true)),
        // Up to version 1.3. From 2.0 on it is, only if firewalld has direct rules (firewalld#863).
        ("nftables", "iptables", None),
        ("iptables", "nftables", Some(false)),
        ("nftables", "nftables", Some(false)),
    ] {
        let lab = Lab::new();
        let (pod, far) = (lab.container("pod"), lab.machine("far"));
        let _firewalld = Firewalld::start(&lab, theirs);
        let tool = tool(&lab, ours);
        tool.says("add net pod --container-id pod");
        let _server = pod.serve_tcp("pod", "10.1.2.2:80");
        assert!(answers(&far), "{ours} beside {theirs}");

        assert!(ask("--reload"));
        let checked = tool.run("check net --all");
        assert_eq!(checked.succeeded(), !tcp_is_cut_off(&far, HOST), "{ours} beside {theirs}: {checked:#?}");
        let lost = lost.unwrap_or(!checked.succeeded());
        assert_eq!(checked.succeeded(), !lost, "{ours} beside {theirs}: {checked:#?}");
        let repaired = if lost { json!(["net/pod/eth0"]) } else { json!([]) };
        assert_eq!(tool.json("repair --all")["repaired"], repaired, "{ours} beside {theirs}");
        assert!(answers(&far), "{ours} beside {theirs}");
        tool.says("check net --all");
    }
}

#[test]
fn whoever_watches_has_rules_back_after_a_reload_of_firewalld() {
    beyond_reference!("repair");
    if !is_here() {
        return;
    }
    for theirs in ["iptables", "nftables"] {
        let lab = Lab::new();
        let (pod, far) = (lab.container("pod"), lab.machine("far"));
        let _firewalld = Firewalld::start(&lab, theirs);
        let tool = tool(&lab, "iptables");
        tool.says("add net pod --container-id pod");
        let _server = pod.serve_tcp("pod", "10.1.2.2:80");
        let watching = Watching::start(&tool);
        // The first may be before it looks for the first time.
        for _ in 0..2 {
            until("firewalld has reloaded", || ask("--reload"));
            until("the rules are back", || tool.run("check net --all").succeeded());
            assert!(answers(&far), "{theirs}");
        }
        assert_eq!(watching.end(), Some(0), "{theirs}");
    }
}
