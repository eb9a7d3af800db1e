//! Kills the plugin at random times. The store must stay consistent, and the next process must work.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

const ROUNDS: u32 = 400;

fn start(data_dir: &Path, command: &str, container: &str) -> Child {
    let conf = json!({
        "cniVersion": "1.0.0",
        "name": "net",
        "ipam": {
            "type": "host-local",
            "dataDir": data_dir,
            "ranges": [[{ "subnet": "10.0.0.0/16" }], [{ "subnet": "fd00::/64" }]],
        },
    });
    let mut child = Command::new(env!("CARGO_BIN_EXE_host-local"))
        .env_clear()
        .envs([("CNI_COMMAND", command), ("CNI_CONTAINERID", container), ("CNI_IFNAME", "eth0")])
        .envs([("CNI_NETNS", "/no/such/netns"), ("CNI_PATH", "/no/such/path")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(conf.to_string().as_bytes()).unwrap();
    child
}

fn run(data_dir: &Path, command: &str, container: &str) -> Output {
    let output = start(data_dir, command, container).wait_with_output().unwrap();
    assert!(output.status.success(), "{command} {container}: {output:?}");
    output
}

/// A busy wait, because a sleep is too coarse for some hundred microseconds.
fn kill_after(mut child: Child, instant: Duration) {
    let began = Instant::now();
    while began.elapsed() < instant {
        std::hint::spin_loop();
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The owners of the lease files. All files must be complete.
fn owners(data_dir: &Path) -> Vec<String> {
    let files = fs::read_dir(data_dir.join("net")).unwrap().map(|entry| entry.unwrap().path());
    let leases = files.filter(|path| path.file_name().unwrap().to_str().unwrap().parse::<IpAddr>().is_ok());
    leases
        .map(|path| {
            let content = fs::read_to_string(&path).unwrap();
            let owner = content.strip_suffix("\r\neth0").filter(|owner| owner.starts_with("c-"));
            owner.unwrap_or_else(|| panic!("{} is torn: {content:?}", path.display())).to_owned()
        })
        .collect()
}

#[test]
fn a_kill_at_any_time_leaves_complete_leases_that_del_finds() {
    let data_dir = tempfile::tempdir().unwrap();
    let dir = data_dir.path();
    let stays = ["c-stays-1", "c-stays-2"];
    let began = Instant::now();
    stays.iter().for_each(|container| drop(run(dir, "ADD", container)));
    let usual = began.elapsed() / 2;

    for round in 0..ROUNDS {
        let container = format!("c-{round}");
        let command = if round % 2 == 0 { "ADD" } else { "DEL" };
        if command == "DEL" {
            run(dir, "ADD", &container);
        }
        let instant = usual.mul_f64(1.2 * f64::from(round) / f64::from(ROUNDS));
        kill_after(start(dir, command, &container), instant);
        assert!(owners(dir).iter().all(|owner| *owner == container || stays.contains(&owner.as_str())));
        run(dir, "DEL", &container);
        assert!(!owners(dir).contains(&container), "{command} killed after {instant:?}");
    }

    let given = run(dir, "ADD", "c-last");
    assert!(String::from_utf8_lossy(&given.stdout).contains("10.0."));
    stays.iter().chain(&["c-last"]).for_each(|container| drop(run(dir, "DEL", container)));
    let left = fs::read_dir(dir.join("net")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let network_s = [".lock", "last_reserved_ip.0", "last_reserved_ip.1", "lock"].map(str::to_owned);
    assert_eq!(left.collect::<BTreeSet<_>>(), network_s.into());
}
