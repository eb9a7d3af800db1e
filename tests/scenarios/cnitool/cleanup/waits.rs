//! How long GC blocks other commands, and how signals end a GC and a command that waits for it.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::{Duration, Instant};

use lab::dhcp::{in_background, started_by};
use lab::{Lab, Tool, beyond_reference, until, until_within};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde_json::json;

use crate::common::sleeper;

const LOG: &str = "/run/lab/log";

/// A network `slow` with stale attachments of a deleted namespace, and a network `other`. Their plugin writes the command and the container into
/// the log. In DEL, it then waits as the script says.
fn configure(lab: &Lab, deleted: &str, stale: usize, waits: &str) -> Tool {
    let script = format!(
        r#"cat >/dev/null
        case "$CNI_COMMAND" in
        ADD) echo '{{"cniVersion": "1.1.0"}}' ;;
        DEL) echo DEL >>{LOG}; {waits}; echo end >>{LOG} ;;
        esac
        [ "$CNI_CONTAINERID" != late ] || echo late >>{LOG}"#
    );
    lab.fake_plugin("waits", &script);
    for name in ["slow", "other"] {
        let network = json!({"cniVersion": "1.1.0", "name": name, "plugins": [{"type": "waits"}]});
        lab.configure(&format!("{name}.conflist"), &network);
    }
    let tool = lab.cnitool();
    let pod = lab.container(deleted);
    (0..stale).for_each(|i| drop(tool.says(&format!("add slow {deleted} --container-id {deleted}{i}"))));
    pod.vanish();
    lab.container("pod");
    tool
}

/// A script that waits until the file `go` exists.
const FOR_GO: &str = "while kill -0 $PPID && ! [ -e /run/lab/go ]; do sleep 0.01; done";

fn log() -> Vec<String> {
    fs::read_to_string(LOG).unwrap_or_default().lines().map(str::to_owned).collect()
}

fn pid(child: &std::process::Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

#[test]
fn an_add_does_not_wait_until_a_gc_has_deleted_all_stale_attachments() {
    beyond_reference!("gc");
    let lab = Lab::new();
    const STALE: usize = 30;
    let tool = configure(&lab, "thirty-dels", STALE, "sleep 0.2");
    let mut gc = tool.spawn("gc slow");
    until("GC is under way", || !log().is_empty());
    tool.says("add other pod --container-id late");
    assert!(gc.wait().unwrap().success());
    let log = log();
    let before = log.iter().take_while(|line| *line != "late").filter(|line| *line == "end").count();
    assert!(before < STALE - 1, "ADD waited for {before} DELs: {log:?}");
    assert!(tool.json("list attachments")[0]["containerID"] == "late", "GC has done its work");
}

/// An attachment that is created meanwhile would not be in the list of valid ones, and could get an address that --force names.
#[test]
fn an_add_waits_for_a_gc_with_force() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let tool = configure(&lab, "five-dels", 5, "sleep 0.2");
    let mut gc = tool.spawn("gc slow --force waits");
    until("GC is under way", || !log().is_empty());
    tool.says("add other pod --container-id late");
    assert!(gc.wait().unwrap().success());
    let log = log();
    let before = log.iter().take_while(|line| *line != "late").filter(|line| *line == "end").count();
    assert_eq!(before, 5, "{log:?}");
}

/// As with a process whose root directory is on a FUSE or NFS file system without a server. Here the directory of its files is, so that only
/// this lab sees it.
#[test]
fn gc_gives_up_if_a_file_system_does_not_answer_about_a_process_and_removes_nothing() {
    beyond_reference!("gc");
    if !Path::new("/dev/fuse").exists() {
        return lab::skip("the kernel has no FUSE");
    }
    let lab = Lab::new();
    let tool = configure(&lab, "of-blocked-gc", 1, "true");
    let examined = sleeper(&lab, "pod");
    let files = format!("/proc/{}/fd", examined.id());
    let script = format!(
        "exec 3<>/dev/fuse; mount -i -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0 f {files} && exec sleep 600"
    );
    let mut holder = started_by("sh", "-c");
    holder.arg(script);
    let fuse = in_background(lab.host(), holder, Path::new("/dev/null"));
    let is_mounted = || fs::read_to_string("/proc/thread-self/mountinfo").unwrap().contains(&files);
    until("the file system is mounted", is_mounted);
    let gc = tool.run("gc slow");
    assert!(gc.exit == Some(11), "{gc:#?}");
    assert!(gc.stderr.contains("examine the processes of this host: not finished within 30s"), "{gc:#?}");
    assert!(log().is_empty(), "GC has sent DEL");
    tool.says("add other pod --container-id late");
    drop(fuse);
    lab.host().sh(&format!("umount {files}"));
    tool.says("gc slow");
    assert!(log().contains(&"DEL".to_owned()));
}

#[test]
fn a_signal_ends_an_add_that_waits_for_a_gc() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let tool = configure(&lab, "holds-up-add", 1, FOR_GO);
    let mut gc = tool.spawn("gc slow");
    until("GC is under way", || !log().is_empty());
    let mut add = tool.spawn("add other pod --container-id late");
    let process = Path::new("/proc").join(add.id().to_string());
    let is_lock =
        |file: fs::DirEntry| fs::read_link(file.path()).is_ok_and(|to| to.ends_with("results.lock"));
    until("ADD waits", || fs::read_dir(process.join("fd")).unwrap().flatten().any(is_lock));
    kill(pid(&add), Signal::SIGTERM).unwrap();
    let is_running = || fs::read_to_string(process.join("stat")).is_ok_and(|stat| !stat.contains(") Z "));
    until_within(Duration::from_secs(60), "ADD has ended", || !is_running());
    assert_eq!(add.wait().unwrap().code(), Some(1));
    assert_eq!(log(), ["DEL"], "no plugin was called for it");
    fs::write("/run/lab/go", "").unwrap();
    assert!(gc.wait().unwrap().success());
}

/// Its DEL fails, so each run tries it again.
#[test]
fn a_repeated_gc_runs_again_after_each_pause() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let tool = configure(&lab, "never-detached", 1, "exit 1");
    let start = Instant::now();
    let mut gc = tool.spawn("gc --all --every 1s");
    until("it has run three times", || log().len() >= 3);
    assert!(start.elapsed() >= Duration::from_secs(2), "it does not pause");
    kill(pid(&gc), Signal::SIGTERM).unwrap();
    assert_eq!(gc.wait().unwrap().code(), Some(0));
}

/// Ctrl-C sends SIGINT to all processes of the terminal's foreground process group. A pause may be longer than the clock.
#[test]
fn after_ctrl_c_a_repeated_gc_completes_its_run() {
    beyond_reference!("gc");
    for pause in ["1h", "18446744073709551615s"] {
        let lab = Lab::new();
        let tool = configure(&lab, "before-ctrl-c", 1, FOR_GO).under(&["setsid".to_owned()]);
        let mut gc = tool.spawn(&format!("gc --all --every {pause}"));
        until("GC is under way", || !log().is_empty());
        killpg(pid(&gc), Signal::SIGINT).unwrap();
        fs::write("/run/lab/go", "").unwrap();
        let ended = gc.wait().unwrap();
        assert_eq!((ended.code(), ended.signal()), (Some(0), None), "{pause}");
        assert_eq!(log(), ["DEL", "end"], "{pause}");
        assert_eq!(tool.json("list attachments"), json!([]), "{pause}");
    }
}
