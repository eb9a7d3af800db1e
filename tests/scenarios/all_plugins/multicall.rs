//! ferrule, the executable with all plugins: with a plugin's name it is that plugin, and `make install` creates these
//! names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use lab::dhcp::{in_background, started_by};
use lab::{Call, Lab, Outcome, SEPARATE_DELEGATES, ours, quoted, repository, together};
use serde_json::{Value, json};

use crate::common::{dual_stack, host_local, leases};

/// The plugins' names, as listed by ferrule.
fn plugins() -> Vec<String> {
    let listed = Command::new(together().join("ferrule")).arg("--list").output().unwrap();
    let names: Vec<String> = String::from_utf8(listed.stdout).unwrap().lines().map(str::to_owned).collect();
    assert!(names.len() >= 5, "{names:?}");
    names
}

/// The outcome of a start at a terminal.
fn manually(file: &Path, name: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } =
        Command::new(file).arg0(name).args(arguments).env_clear().output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// The answers of a plugin without its delegates.
fn answers(call: &Call) -> Vec<(Option<i32>, String, String)> {
    let commands =
        ["VERSION", "ADD", "CHECK", "DEL", "GC", "STATUS", "TURN"].map(|command| call.run(command));
    let manually = call.clone().without("CNI_COMMAND").run_as_is();
    commands
        .into_iter()
        .chain([manually])
        .map(|Outcome { exit, stdout, stderr, .. }| (exit, stdout, stderr))
        .collect()
}

#[test]
fn started_by_a_plugins_name_it_answers_as_that_plugin() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    for plugin in plugins() {
        let conf =
            json!({"cniVersion": "1.1.0", "ipam": {"type": "none"}, "prevResult": {"cniVersion": "1.1.0"}});
        let call =
            |dir| lab.plugin(&plugin).in_dir(dir).config(conf.clone()).on(&pod).env("CNI_PATH", "/nowhere");
        assert_eq!(answers(&call(&together())), answers(&call(&ours())), "{plugin}");
    }
}

#[test]
fn a_longer_name_and_a_symbolic_link_are_the_plugin_too() {
    let lab = Lab::new();
    for plugin in plugins() {
        let expected = lab.plugin(&plugin).in_dir(&together()).run("VERSION").ok_result();
        for name in [format!("buildkit-cni-{plugin}"), format!("the-{plugin}")] {
            symlink(together().join("ferrule"), Lab::plugin_dir().join(&name)).unwrap();
            let answer =
                lab.plugin(&plugin).in_dir(&Lab::plugin_dir()).called(&name).run("VERSION").ok_result();
            assert_eq!(answer, expected, "{name}");
        }
        // An argument that the plugin does not know changes nothing.
        for arguments in [&[][..], &["--version"]] {
            let about = manually(&together().join("ferrule"), &format!("/elsewhere/{plugin}"), arguments).2;
            assert!(about.starts_with(&format!("CNI {plugin} plugin v")), "{about}");
        }
    }
}

#[test]
fn started_as_ferrule_it_prints_its_usage() {
    let ferrule = together().join("ferrule");
    let (exit, help, _) = manually(&ferrule, "ferrule", &[]);
    assert_eq!((exit, manually(&ferrule, "ferrule", &["--help"]).1), (Some(0), help.clone()));
    assert!(help.contains("ln ferrule bridge"), "{help}");
    assert!(plugins().iter().all(|plugin| help.contains(plugin.as_str())), "{help}");
    let (exit, _, said) = manually(&ferrule, "ferrule", &["bridge"]);
    assert!(exit == Some(2) && said.contains("unknown argument \"bridge\""), "{exit:?} {said}");
}

#[test]
fn a_runtime_that_calls_it_by_an_unknown_name_gets_an_error_with_the_names() {
    let lab = Lab::new();
    let call = lab.plugin("ferrule").in_dir(&together()).on(&lab.container("pod"));
    for command in ["ADD", "DEL", "VERSION"] {
        let error = call.run(command).refused(7, "\"ferrule\"");
        assert!(["bridge", "host-local"].iter().all(|name| error.details.contains(name)), "{error:?}");
    }
}

/// The closer is started from /proc/self/exe, so it must select its plugin by its name.
#[test]
fn the_closer_that_a_del_starts_is_the_same_plugin() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let trace = lab.dir().join("trace");
    let strace =
        ["strace", "-f", "-v", "-s", "200", "-e", "trace=execve,exit_group", "-o"].map(str::to_owned);
    let under: Vec<String> = strace.into_iter().chain([trace.display().to_string()]).collect();
    let mapped = json!({
        "capabilities": {"portMappings": true},
        "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]},
        "prevResult": {
            "cniVersion": "1.0.0",
            "interfaces": [{"name": "eth0", "sandbox": pod.netns.path()}],
            "ips": [{"address": "10.1.2.3/24", "interface": 0}],
        },
    });
    let call = lab.plugin("portmap").in_dir(&together()).config(mapped).on(&pod);
    call.add().ok_result();
    call.under(&under).del().ok();
    let trace = fs::read_to_string(trace).unwrap();
    let closer = trace.lines().find(|line| line.contains("close-later")).unwrap_or_else(|| panic!("{trace}"));
    assert!(closer.contains("/portmap\", \"close-later\"]"), "{closer}");
    let process = closer.split(' ').next().unwrap();
    let ended = trace.lines().any(|line| line.starts_with(process) && line.contains("+++ exited with 0 +++"));
    assert!(ended, "{trace}");
}

/// Installs below a directory of the lab. Returns each file's name and inode.
fn installed(below: &Path, split: &str) -> BTreeMap<String, u64> {
    let script = repository().join("scripts/install");
    let run = Command::new(script).arg(below).env("SPLIT", split).output().unwrap();
    assert!(run.status.success(), "{run:?}");
    let bin = below.join("opt/cni/bin");
    let entries = fs::read_dir(&bin).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().ino())).collect()
}

#[test]
fn it_is_installed_once_under_every_plugins_name_and_replaces_running_files() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let bin = lab.dir().join("root/opt/cni/bin");
    fs::create_dir_all(&bin).unwrap();
    fs::write(bin.join("other"), "another's").unwrap();
    // A running executable, which cannot be written to.
    lab.host().sh(&format!("cp /bin/sleep {}", bin.join("bridge").display()));
    let mut running =
        in_background(lab.host(), started_by(bin.join("bridge"), "600"), Path::new("/dev/null"));

    let install = |split| installed(&lab.dir().join("root"), split);
    let first = install("");
    let expected: BTreeSet<String> =
        plugins().into_iter().chain(["ferrule", "other"].map(str::to_owned)).collect();
    assert_eq!(first.keys().cloned().collect::<BTreeSet<_>>(), expected);
    assert!(plugins().iter().all(|plugin| first[plugin] == first["ferrule"]), "{first:?}");
    assert!(!running.has_ended());

    let call = lab.plugin("bridge").in_dir(&bin).config(dual_stack()).on(&pod);
    call.add().ok_result();
    let driver = || manually(&lab.dir().join("root/usr/local/libexec/netavark/cni"), "cni", &["info"]);
    assert!(driver().1.contains("\"api_version\":\"1.0.0\""), "{:?}", driver());
    let again = install("");
    assert!(again["bridge"] == again["ferrule"] && again["bridge"] != first["bridge"], "{again:?}");
    let split = install("1");
    assert!(!split.contains_key("ferrule"), "{split:?}");
    assert!(split["bridge"] != split["host-local"], "{split:?}");
    assert!(driver().1.contains("api_version"), "{:?}", driver());
    call.del().ok();
    for file in ["root/opt/cni/bin/bridge", "root/usr/local/bin/cnitool"] {
        let mode = fs::metadata(lab.dir().join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755, "{file}");
    }
}

/// bridge and host-local of ferrule. `separate`: host-local as a process.
fn delegating(lab: &Lab, separate: bool, pod: &str, ipam: Value) -> Call {
    let conf = json!({"cniVersion": "1.1.0", "bridge": "br0", "isGateway": true, "ipam": ipam});
    let call = lab.plugin("bridge").in_dir(&together()).config(conf).on(&lab.container(pod));
    call.env(SEPARATE_DELEGATES, if separate { "1" } else { "" })
}

/// The part of an answer that can be compared: the kernel chooses random MAC addresses.
fn comparable(outcome: &Outcome) -> (Option<i32>, Value, String) {
    let mut answer: Value = serde_json::from_str(&outcome.stdout).unwrap_or_default();
    for interface in answer["interfaces"].as_array_mut().into_iter().flatten() {
        interface.as_object_mut().unwrap().remove("mac");
    }
    (outcome.exit, answer, outcome.stderr.clone())
}

/// A range with one address and a gateway outside of it. host-local warns about that.
fn one_address() -> Value {
    let range = json!({"subnet": "10.1.2.0/24", "rangeStart": "10.1.2.7", "rangeEnd": "10.1.2.7", "gateway": "10.9.9.9"});
    json!({"type": "host-local", "ranges": [[range]]})
}

/// The answers during a container's life, and for an ADD that host-local refuses.
fn life(separate: bool) -> Vec<(Option<i32>, Value, String)> {
    let lab = Lab::new();
    let call = delegating(&lab, separate, "pod", one_address());
    let added = call.add();
    let result = added.ok_result();
    assert_eq!(leases(), ["10.1.2.7"]);
    let other = |pod, ipam| delegating(&lab, separate, pod, ipam);
    let mut outcomes = vec![
        added,
        call.check(&result),
        other("late", one_address()).add(),
        other("wrong", json!({"type": "host-local", "ranges": [[{"subnet": "10.1.2.0/33"}]]})).add(),
        other("asking", one_address()).args("IP=10.1.3.3").add(),
        call.status(),
        call.gc(&[("pod", "eth0")]),
    ];
    assert_eq!(leases(), ["10.1.2.7"], "it is the pod's still");
    outcomes.push(call.del());
    assert!(leases().is_empty());
    outcomes.push(call.check(&result));
    outcomes.iter().map(comparable).collect()
}

#[test]
fn host_local_answers_the_same_within_bridges_process_and_in_a_separate_process() {
    let within = life(false);
    assert_eq!(within, life(true));
    let exits: Vec<_> = within.iter().map(|(exit, ..)| exit.unwrap()).collect();
    assert_eq!(exits, [0, 0, 1, 1, 1, 0, 0, 0, 1], "{within:#?}");
    assert!(within[0].2.starts_with("host-local: warning: gateway 10.9.9.9"), "{:?}", within[0].2);
}

#[test]
fn an_add_that_fails_later_releases_the_address_both_ways() {
    for separate in [false, true] {
        let lab = Lab::new();
        let call = delegating(&lab, separate, "pod", host_local(&[&["10.1.2.0/24"]]));
        let before = lab.snapshot();
        // The result is not read.
        let mut process = call.clone().env("CNI_COMMAND", "ADD").process();
        let stdout = File::options().write(true).open("/dev/full").unwrap();
        let mut child = process.stdout(stdout).stderr(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(&call.input()).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(1));
        assert!(leases().is_empty(), "separate: {separate}");
        let left = lab.snapshot().since(&before);
        assert!(!left.contains("veth"), "{left}");
    }
}

/// The programs that an ADD with host-local starts, including itself.
fn started(lab: &Lab, call: &Call) -> Vec<String> {
    let trace = lab.dir().join("trace");
    let strace = ["strace", "-f", "-e", "trace=execve", "-o"].map(str::to_owned);
    let under: Vec<String> = strace.into_iter().chain([trace.display().to_string()]).collect();
    call.clone().under(&under).add().ok_result();
    let text = fs::read_to_string(trace).unwrap();
    let programs = text.lines().filter_map(|line| line.split_once("execve(\"")?.1.split_once('"'));
    programs.map(|(program, _)| program.rsplit('/').next().unwrap().to_owned()).collect()
}

#[test]
fn a_process_is_started_for_host_local_only_if_it_is_another_file_or_if_requested() {
    let lab = Lab::new();
    let ipam = || host_local(&[&["10.1.2.0/24"]]);
    assert_eq!(started(&lab, &delegating(&lab, false, "one", ipam())), ["bridge"]);
    assert_eq!(started(&lab, &delegating(&lab, true, "two", ipam())), ["bridge", "host-local"]);
    // A copy, as during an update while bridge runs.
    lab.host().sh(&format!("cp {} {}", quoted(&together().join("host-local")), Lab::plugin_dir().display()));
    let copied =
        delegating(&lab, false, "three", ipam()).env("CNI_PATH", Lab::plugin_dir().to_str().unwrap());
    assert_eq!(started(&lab, &copied), ["bridge", "host-local"]);
}
