//! `ferrule-install --stay`, as the DaemonSet runs it: it installs, waits for SIGTERM, and with `--rollback-on-exit` restores the old files.

use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};
use std::{fs, iter, thread};

use lab::{Lab, ours, together, until};

use super::{NEW, Scene, as_map, calls, content, executable, install, ok, refused};

/// How long to wait for a line. A plugin that another program has replaced is installed again within about 10 seconds.
/// The machine may be busy.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The limit for an exit, which includes an installation or a rollback.
const DEADLINE: Duration = Duration::from_secs(300);

/// A `ferrule-install --stay` as process 1 of a container: only signals that it handles end it.
pub struct Stays {
    container: Child,
    lines: Receiver<String>,
}

impl Stays {
    fn start(dir: &Path, arguments: &[&str]) -> Self {
        let mut program = Command::new("unshare");
        program.args(["--pid", "--fork", "--kill-child"]).arg(ours().join("ferrule-install"));
        program.arg("--stay").arg("--dir").arg(dir).args(arguments);
        let mut container = program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(container.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { container, lines }
    }

    /// Waits for a line that contains these words.
    #[track_caller]
    fn says(&mut self, words: &str) {
        let mut said = iter::from_fn(|| self.lines.recv_timeout(TIMEOUT).ok());
        assert!(said.any(|line| line.contains(words)), "no line contains {words:?}");
    }

    pub fn installed(dir: &Path, arguments: &[&str]) -> Self {
        let mut stays = Self::start(dir, arguments);
        stays.says("waiting for SIGTERM");
        stays
    }

    fn terminate(&self, lab: &Lab) {
        self.signal(lab, "TERM");
    }

    fn signal(&self, lab: &Lab, signal: &str) {
        lab.host().sh(&format!("kill -{signal} $(cat /proc/{0}/task/{0}/children)", self.container.id()));
    }

    /// Waits for the end, and returns the exit code and stderr.
    #[track_caller]
    fn end(&mut self) -> (Option<i32>, String) {
        let start = Instant::now();
        let ended = loop {
            if let Some(ended) = self.container.try_wait().unwrap() {
                break ended;
            }
            assert!(start.elapsed() < DEADLINE, "it does not exit");
            thread::sleep(Duration::from_millis(10));
        };
        let complaint = io::read_to_string(self.container.stderr.take().unwrap()).unwrap();
        (ended.code(), complaint)
    }

    #[track_caller]
    fn ends_well(&mut self) {
        assert_eq!(self.end(), (Some(0), String::new()));
    }

    #[track_caller]
    pub fn stop(mut self, lab: &Lab) {
        self.terminate(lab);
        self.ends_well();
    }
}

impl Drop for Stays {
    fn drop(&mut self) {
        self.container.kill().ok();
        self.container.wait().ok();
    }
}

#[test]
fn a_staying_process_exits_at_a_signal_and_restores_the_old_files_only_with_rollback_on_exit() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    let from = scene.from.to_str().unwrap();
    for (rollback, signal) in
        [("--rollback-on-exit=false", "TERM"), ("--rollback-on-exit", "TERM"), ("--rollback-on-exit", "INT")]
    {
        let mut stays = Stays::installed(&scene.dir, &["--from", from, rollback]);
        scene.assert_new("installed");
        ok(&scene.install(&["--check"]));
        assert_eq!(stays.container.try_wait().unwrap(), None);
        stays.signal(&lab, signal);
        stays.ends_well();
        match rollback {
            "--rollback-on-exit" => scene.assert_old(signal),
            _ => scene.assert_new(signal),
        }
    }
}

#[test]
fn a_rollback_on_exit_keeps_files_of_later_installations() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    let (links, singles) = (together(), ours());
    let (links, singles) = (links.to_str().unwrap(), singles.to_str().unwrap());
    let plugins = ["--only", "bridge,portmap"];
    let older = [&plugins[..], &["--link", "--from", links]].concat();
    let newer = [&plugins[..], &["--from", singles]].concat();
    let rollback = ["--rollback-on-exit"];
    let start = |version: &[&str]| Stays::installed(&scene.dir, &[version, &rollback].concat());
    let is_installed = |version: &[&str]| ok(&install(&scene.dir, &[version, &["--check"]].concat(), &[]));

    // The older process exits before the newer one installs.
    let first = start(&older);
    is_installed(&older);
    first.stop(&lab);
    scene.assert_old("the older one has ended");
    let second = start(&newer);
    is_installed(&newer);
    second.stop(&lab);
    scene.assert_old("both have ended");

    // The older process exits after the newer one has installed. The newer one may have the same version, or not replace files.
    let leaves = [&newer[..], &["--update", "false"]].concat();
    for (later, left) in [(&newer, &newer), (&older, &older), (&leaves, &older)] {
        let first = start(&older);
        let second = start(later);
        first.stop(&lab);
        is_installed(left);
        second.stop(&lab);
        scene.assert_old("both have ended");
    }

    // The newer process does not stay.
    let first = start(&older);
    ok(&install(&scene.dir, &newer, &[]));
    first.stop(&lab);
    is_installed(&newer);

    // A process that was killed during its installation does not count as newer.
    let from = ["--from", scene.from.to_str().unwrap()];
    let first = start(&from);
    let (rename, last) =
        calls(&scene, &[]).into_iter().rfind(|(name, _)| name.starts_with("rename")).unwrap();
    drop(first);
    let first = start(&from);
    let inject = format!("inject={rename}:signal=KILL:when={last}");
    scene.install_under(&["strace", "-qo", "/dev/null", "-e", &inject], &[]);
    assert!(scene.dir.join(".ferrule/record.new").exists(), "it has come to its end");
    first.stop(&lab);
    scene.assert_old("the killed one and the older one have ended");
}

#[test]
fn a_sigterm_during_an_installation_is_handled_after_it() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    let changing = ["write", "fsync", "link", "mkdir", "rename", "chmod"];
    let mut calls = calls(&scene, &[]);
    calls.retain(|(name, _)| changing.iter().any(|part| name.contains(part)));
    assert!(calls.len() > 20, "{calls:?}");
    for (at, (name, nth)) in calls.iter().enumerate() {
        scene.others();
        let inject = format!("inject={name}:signal=TERM:when={nth}");
        let rollback = if at % 2 == 0 { "--rollback-on-exit" } else { "--rollback-on-exit=false" };
        let output =
            scene.install_under(&["strace", "-qo", "/dev/null", "-e", &inject], &["--stay", rollback]);
        ok(&output);
        match at % 2 {
            0 => scene.assert_old(&inject),
            _ => scene.assert_new(&inject),
        }
    }
}

/// An installation that waits until a file is removed, because a plugin waits for this in VERSION.
struct Held<'a> {
    lab: &'a Lab,
    scene: &'a Scene,
}

impl<'a> Held<'a> {
    /// Starts an installation that waits until `release`. Then its plugin runs the command `end`.
    fn begin(lab: &'a Lab, scene: &'a Scene, end: &str) -> (Self, Child) {
        let from = lab.dir().join("held");
        fs::create_dir_all(&from).unwrap();
        let (started, hold) = (lab.dir().join("started"), lab.dir().join("hold"));
        fs::remove_file(&started).ok();
        fs::write(&hold, "").unwrap();
        let wait = format!(
            "#!/bin/sh\n: >{}; while [ -e {} ]; do sleep 0.1; done\n{end}\n",
            started.display(),
            hold.display()
        );
        executable(&from.join("bridge"), &wait);
        executable(&from.join("portmap"), NEW);
        let mut first = Command::new(ours().join("ferrule-install"));
        first.arg("--dir").arg(&scene.dir).arg("--from").arg(&from);
        let first = first.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until("it has begun", || started.exists());
        (Self { lab, scene }, first)
    }

    /// Whether this installation's bridge is installed.
    fn is_installed(&self) -> bool {
        content(&self.scene.dir)["bridge"].contains("while")
    }

    fn release(&self) {
        fs::remove_file(self.lab.dir().join("hold")).unwrap();
    }
}

const ANSWERS: &str = "echo '{\"supportedVersions\": [\"1.1.0\"]}'";

#[test]
fn a_staying_process_waits_for_another_installation() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    let from = scene.from.to_str().unwrap().to_owned();
    let arguments = ["--from", &from, "--rollback-on-exit", "--wait", "600"];

    // At the start.
    let (held, mut other) = Held::begin(&lab, &scene, ANSWERS);
    let mut stays = Stays::start(&scene.dir, &arguments);
    stays.says("another ferrule-install is running");
    held.release();
    assert!(other.wait().unwrap().success());
    stays.says("waiting for SIGTERM");
    scene.assert_new("the later one");
    stays.stop(&lab);
    scene.assert_old("at its begin");

    // At the end: the files of the other process stay.
    let mut stays = Stays::installed(&scene.dir, &arguments);
    let (held, mut other) = Held::begin(&lab, &scene, ANSWERS);
    stays.terminate(&lab);
    stays.says("another ferrule-install is running");
    held.release();
    assert!(other.wait().unwrap().success());
    stays.ends_well();
    assert!(held.is_installed());
    ok(&scene.run(&["--uninstall"]));
    scene.assert_old("at its end");

    // The other process fails: the files of this process are removed.
    let mut stays = Stays::installed(&scene.dir, &arguments);
    let (held, mut other) = Held::begin(&lab, &scene, "exit 3");
    stays.terminate(&lab);
    stays.says("another ferrule-install is running");
    held.release();
    assert_eq!(other.wait().unwrap().code(), Some(1));
    stays.ends_well();
    scene.assert_old("the other one has failed");
}

#[test]
fn without_wait_only_a_staying_process_waits_for_another_installation() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    ok(&scene.install(&[]));
    let held = fs::File::open(scene.dir.join(".ferrule")).unwrap();
    held.lock().unwrap();
    let mut stays = Stays::start(&scene.dir, &["--from", scene.from.to_str().unwrap()]);
    stays.says("waiting: another ferrule-install is running");
    assert_eq!(scene.install(&[]).status.code(), Some(11));
}

/// An uninstallation also removes the directory, if an installation created it.
#[test]
fn an_installation_that_waits_for_an_uninstallation_creates_the_directory_again() {
    let lab = Lab::new();
    let mut scene = Scene::new(&lab);
    let parent = lab.dir().join("missing");
    scene.dir = parent.join("bin");
    ok(&scene.install(&[]));
    let held = fs::File::open(scene.dir.join(".ferrule")).unwrap();
    held.lock().unwrap();
    let from = scene.from.to_str().unwrap();
    let mut stays = Stays::start(&scene.dir, &["--from", from, "--rollback-on-exit", "--wait", "600"]);
    stays.says("another ferrule-install is running");
    fs::rename(&parent, lab.dir().join("removed")).unwrap();
    drop(held);
    stays.says("waiting for SIGTERM");
    assert_eq!(content(&scene.dir), as_map(&[("bridge", NEW), ("portmap", NEW)]));
    stays.stop(&lab);
    assert!(!parent.exists());
}

#[test]
fn concurrent_runs_in_a_new_directory_install_one_after_the_other() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    for (wait, codes) in [(&[][..], &[0, 11][..]), (&["--wait", "600"], &[0])] {
        scene.others();
        let start = || {
            let mut program = Command::new(ours().join("ferrule-install"));
            program.arg("--dir").arg(&scene.dir).arg("--from").arg(&scene.from).args(wait);
            program.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let all: Vec<_> = iter::repeat_with(start).take(8).collect();
        let ended: Vec<_> = all.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
        let allowed = |output: &Output| output.status.code().is_some_and(|code| codes.contains(&code));
        assert!(ended.iter().all(allowed) && ended.iter().any(|output| output.status.success()), "{ended:?}");
        scene.assert_new(&format!("{wait:?}"));
        ok(&scene.run(&["--uninstall"]));
        scene.assert_old(&format!("{wait:?}"));
    }
}

#[test]
fn a_run_whose_state_directory_another_run_has_removed_fails_with_code_11_or_tries_again() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    let inject = "inject=?mkdir,mkdirat:error=EEXIST:when=1";
    let output = scene.install_under(&["strace", "-qo", "/dev/null", "-e", inject], &[]);
    assert_eq!(output.status.code(), Some(11), "{output:?}");
    scene.assert_old(inject);
    // With --wait, it tries again.
    ok(&scene.install_under(&["strace", "-qo", "/dev/null", "-e", inject], &["--wait", "600"]));
    scene.assert_new(inject);
}

#[test]
fn if_the_old_files_cannot_be_restored_nothing_changes_and_the_error_names_the_cause() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    let from = scene.from.to_str().unwrap().to_owned();
    let dir = scene.dir.display();
    lab.host().sh(&format!("mount -t tmpfs -o size=256k disk '{dir}'"));
    for (harm, remedy, words) in [
        ("mount -o remount,ro", "mount -o remount,rw", ["Read-only file system", "read-write"]),
        (
            "fill() { ! cat /dev/zero >\"$1/ballast\"; }; fill",
            "empty() { rm \"$1/ballast\"; }; empty",
            ["No space left", "free disk space"],
        ),
    ] {
        scene.others_in_place();
        let mut stays = Stays::installed(&scene.dir, &["--from", &from, "--rollback-on-exit"]);
        lab.host().sh(&format!("{harm} '{dir}' 2>/dev/null"));
        stays.terminate(&lab);
        let (code, said) = stays.end();
        assert_eq!(code, Some(1), "{said}");
        for words in words.into_iter().chain(["nothing was changed"]) {
            assert!(said.contains(words), "{said}");
        }
        refused(&scene.run(&["--uninstall"]), words[0]);
        lab.host().sh(&format!("{remedy} '{dir}'"));
        scene.assert_new(harm);
        ok(&scene.run(&["--uninstall"]));
        scene.assert_old(harm);
    }
}

/// Installs a broken file.
fn replace(scene: &Scene, name: &str) {
    replace_with(THEIRS, scene, name);
}

/// Installs a file with a rename, as installers do.
fn replace_with(content: &str, scene: &Scene, name: &str) {
    let theirs = scene.dir.join("theirs");
    executable(&theirs, content);
    fs::rename(theirs, scene.dir.join(name)).unwrap();
}

const THEIRS: &str = "another installer's";

#[test]
fn a_staying_process_reinstalls_replaced_plugins_and_gives_up_after_five_times() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    let dir = scene.dir.display();
    lab.host().sh(&format!("mount -t tmpfs -o size=256k disk '{dir}'"));
    scene.others_in_place();
    let mut stays = Stays::installed(&scene.dir, &["--from", scene.from.to_str().unwrap()]);
    for time in 0..5 {
        replace(&scene, "bridge");
        if time == 0 {
            // An attempt that fails does not count.
            lab.host().sh(&format!("! cat /dev/zero >'{dir}/ballast' 2>/dev/null"));
            stays.says("No space left");
            lab.host().sh(&format!("rm '{dir}/ballast'"));
        }
        stays.says("has replaced or removed bridge");
        assert_eq!(content(&scene.dir)["bridge"], NEW, "{time}");
    }
    replace(&scene, "bridge");
    stays.says("Stop the other installer");
    assert_eq!(content(&scene.dir)["bridge"], THEIRS);
    refused(&scene.install(&["--check"]), "1 of 2 plugins");
    stays.stop(&lab);
    ok(&scene.run(&["--uninstall"]));
    assert_eq!(content(&scene.dir)["bridge"], THEIRS);
}

#[test]
fn a_staying_process_keeps_the_original_when_it_replaces_a_broken_plugin() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    let mut stays =
        Stays::installed(&scene.dir, &["--from", scene.from.to_str().unwrap(), "--rollback-on-exit"]);
    replace(&scene, "bridge");
    stays.says("installed again");
    stays.stop(&lab);
    scene.assert_old("rolled back");
}

/// For example, an upgrade of another vendor's package.
#[test]
fn a_staying_process_keeps_a_working_plugin_that_it_replaces() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    let mut stays =
        Stays::installed(&scene.dir, &["--from", scene.from.to_str().unwrap(), "--rollback-on-exit"]);
    let latest = format!("{NEW}# another vendor's latest version\n");
    replace_with(&latest, &scene, "bridge");
    stays.says("installed again");
    scene.assert_new("installed again");
    stays.stop(&lab);
    assert_eq!(content(&scene.dir), as_map(&[("bridge", latest.as_str()), ("calico", "calico")]));
}

#[test]
fn a_staying_process_does_not_replace_files_that_its_options_exclude() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    for excludes in [["--skip", "bridge"], ["--update", "false"]] {
        ok(&scene.install(&[]));
        replace(&scene, "bridge");
        let from = scene.from.to_str().unwrap();
        let mut stays = Stays::installed(&scene.dir, &[&["--from", from], &excludes[..]].concat());
        fs::remove_file(scene.dir.join("portmap")).unwrap();
        stays.says("has replaced or removed portmap in");
        assert_eq!(content(&scene.dir)["portmap"], NEW, "{excludes:?}");
        assert_eq!(content(&scene.dir)["bridge"], THEIRS, "{excludes:?}");
        stays.stop(&lab);
    }
}

/// The image's plugins are links to one file.
#[test]
fn a_staying_process_reinstalls_all_plugins_that_share_the_file_of_an_overwritten_one() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    let linked = together();
    let linked = ["--from", linked.to_str().unwrap(), "--only", "bridge,dummy,static"];
    let mut stays = Stays::installed(&scene.dir, &linked);
    fs::write(scene.dir.join("dummy"), THEIRS).unwrap();
    assert_eq!(fs::read(scene.dir.join("static")).unwrap(), THEIRS.as_bytes(), "it is one file");
    stays.says("has replaced or removed bridge, dummy, static");
    ok(&install(&scene.dir, &[&linked[..], &["--check"]].concat(), &[]));
    stays.stop(&lab);
    ok(&scene.run(&["--uninstall"]));
    scene.assert_old("the overwritten file was not kept as an original");
}
