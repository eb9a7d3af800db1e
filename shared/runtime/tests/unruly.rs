//! Plugins that do not do what they should: a clear error, in time, and bounded memory.
#![allow(clippy::unwrap_used, reason = "a failure is a failure of the test")]

mod fakes;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use fakes::{Stage, attach, network};
use runtime::{AttachmentParameters, Error, Processes, Runtime, Stderr};

fn add(stage: &Stage, runtime: &Runtime) -> Result<cni::AddResult, Error> {
    runtime.add(&network("1.0.0", r#"{"type": "t"}"#), &attach(&format!("c{}", stage.calls().len())))
}

fn refused(script: &str) -> Error {
    let stage = Stage::new();
    stage.plugin("t", script);
    add(&stage, &stage.runtime()).unwrap_err()
}

#[test]
fn a_plugin_that_prints_nothing_garbage_or_two_documents_fails_and_its_output_is_quoted() {
    for (script, words) in [
        ("", "the result is empty"),
        ("echo panic: oh", "panic: oh"),
        ("echo '{}'; echo '{}'", "trailing characters"),
        ("echo '[1]'", "the result"),
        ("printf '\\377\\376'", "not valid JSON"),
        ("echo '{\"ips\": [{\"address\": \"10.0.0.2\"}]}'", "ips[0].address"),
    ] {
        let error = refused(script);
        assert_eq!(error.code(), 6, "{script}: {error}");
        assert!(error.to_string().contains(words), "{script}: {error}");
        assert!(error.to_string().starts_with("plugin t (ADD): "), "{error}");
    }
}

#[test]
fn a_failure_is_reported_with_its_error_object_or_with_exit_code_signal_and_log() {
    let own = refused(r#"echo '{"code": 11, "msg": "later", "details": "busy"}'; exit 1"#);
    assert_eq!((own.code(), own.to_string().as_str()), (11, "plugin t (ADD): later (busy)"));
    let silent = refused("echo out of cheese >&2; exit 7").to_string();
    assert!(silent.contains("exit code 7") && silent.contains("out of cheese"), "{silent}");
    assert!(refused("kill -SEGV $$").to_string().contains("signal 11"));
}

#[test]
fn a_plugin_with_endless_output_is_killed() {
    let error = refused("head -c 100000000 /dev/zero");
    assert!(error.code() == 6 && error.to_string().contains("printed more than 4194304 bytes"), "{error}");
}

#[test]
fn an_endless_log_is_read_and_truncated() {
    let stage = Stage::new();
    stage.plugin("t", "head -c 10000000 /dev/zero | tr '\\0' x >&2; echo '{}'");
    add(&stage, &stage.runtime()).unwrap();
    let error = refused("head -c 10000000 /dev/zero | tr '\\0' x >&2; exit 1");
    assert!(error.to_string().len() < 100_000);
}

#[test]
fn a_plugin_that_hangs_is_killed_with_its_children_and_reported() {
    let stage = Stage::new();
    stage.plugin("t", &format!("sleep 1000 & echo $! >{}/child; sleep 1000", stage.path().display()));
    // A busy machine may take longer to start the child.
    let mut seconds = (0..).map(|n| 1 << n);
    let child = loop {
        let timeout = Duration::from_secs(seconds.next().unwrap());
        let error = add(&stage, &stage.runtime().timeout(timeout)).unwrap_err();
        let words = format!("did not finish within {timeout:?} and was killed");
        assert!(error.to_string().contains(&words), "{error}");
        if let Some(child) =
            fs::read_to_string(stage.path().join("child")).ok().filter(|pid| pid.ends_with('\n'))
        {
            break child;
        }
    };
    while is_running(child.trim()) {
        thread::yield_now();
    }
}

fn is_running(pid: &str) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

#[test]
fn a_child_of_the_plugin_that_keeps_stdout_open_is_neither_waited_for_nor_killed() {
    let stage = Stage::new();
    stage.plugin("t", &format!("echo '{{}}'; sleep 1000 & echo $! >{}/child", stage.path().display()));
    add(&stage, &stage.runtime()).unwrap();
    let child = fs::read_to_string(stage.path().join("child")).unwrap();
    assert!(is_running(child.trim()));
    let pid = rustix::process::Pid::from_raw(child.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn a_request_larger_than_a_pipe_reaches_the_plugin_and_an_unread_one_causes_no_error() {
    let stage = Stage::new();
    stage.program("t", "#!/bin/sh\n[ $(wc -c) -gt 1000000 ] && echo '{}'\n");
    let large = format!(r#"{{"type": "t", "x": "{}"}}"#, "x".repeat(1 << 20));
    stage.runtime().add(&network("1.0.0", &large), &attach("c")).unwrap();
    stage.program("t", "#!/bin/sh\necho '{}'\n");
    stage.runtime().add(&network("1.0.0", &large), &attach("d")).unwrap();
}

#[test]
fn a_call_waits_for_an_executable_that_is_being_written() {
    let stage = Stage::new();
    stage.program("t", "#!/bin/sh\necho '{}'\n");
    let file = stage.path().join("bin/t");
    // A busy machine may keep the writer from its end for longer than it is waited for.
    let is_waited_for = |_| {
        let writer = File::options().append(true).open(&file).unwrap();
        let writer = thread::spawn(move || {
            thread::sleep(Duration::from_millis(300));
            drop(writer);
        });
        let added = add(&stage, &stage.runtime());
        writer.join().unwrap();
        added.is_ok()
    };
    assert!((0..10).any(is_waited_for));
}

#[test]
fn a_plugin_that_is_missing_or_not_executable_is_named_with_the_directories() {
    let stage = Stage::new();
    let error = add(&stage, &stage.runtime()).unwrap_err();
    assert_eq!(error.code(), 7);
    assert!(
        error.to_string().contains(&format!("no plugin \"t\" in {}/bin", stage.path().display())),
        "{error}"
    );
    stage.program("t", "#!/no/such/interpreter\n");
    assert_eq!(add(&stage, &stage.runtime()).unwrap_err().code(), 5);
    fs::set_permissions(stage.path().join("bin/t"), Permissions::from_mode(0o644)).unwrap();
    assert_eq!(add(&stage, &stage.runtime()).unwrap_err().code(), 7);
}

#[test]
fn the_plugin_inherits_the_environment_except_variables_of_another_attachment() {
    let stage = Stage::new();
    let script = "#!/bin/sh\necho \"$PATH|$CNI_IFNAME|$CNI_CONTAINERID|$CNI_PATH\" >&2\nexit 1\n";
    stage.program("t", script);
    let runtime = stage.runtime().exec(Processes { stderr: Stderr::Capture, ..Processes::default() });
    let error = runtime.status(&network("1.1.0", r#"{"type": "t"}"#)).unwrap_err().to_string();
    let expected = format!("{}|||{}/bin", std::env::var("PATH").unwrap(), stage.path().display());
    assert!(error.contains(&expected), "{error}");
}

/// The process group in /proc/PID/stat.
fn group(stat: impl AsRef<Path>) -> String {
    let stat = fs::read_to_string(stat).unwrap();
    stat.rsplit(") ").next().unwrap().split(' ').nth(2).unwrap().to_owned()
}

/// Ctrl-C on a terminal would kill the DEL of a rollback, and a killed plugin would leave its children behind.
#[test]
fn each_plugin_has_its_own_process_group() {
    let stage = Stage::new();
    let dir = stage.path().display();
    stage.plugin("t", &format!("cat /proc/$$/stat >{dir}/$CNI_COMMAND; [ $CNI_COMMAND = DEL ]"));
    let plugins = Processes { stderr: Stderr::Capture, ..Processes::default() };
    let runtime = stage.runtime().exec(plugins);
    // An interface that exists would prevent the rollback.
    let attach = AttachmentParameters::new("c", "absent0").unwrap().netns("/proc/self/ns/net");
    runtime.add_or_roll_back(&network("1.0.0", r#"{"type": "t"}"#), &attach).unwrap_err();
    let groups = ["/proc/self/stat".into(), stage.path().join("ADD"), stage.path().join("DEL")].map(group);
    let distinct: std::collections::BTreeSet<_> = groups.iter().collect();
    assert_eq!(distinct.len(), 3, "{groups:?}");
}
