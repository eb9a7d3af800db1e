//! ferrule-install: after a failure or a kill, the directory has all old or all new files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use lab::{Lab, ours, plugins, together};

mod diversions;
mod file_systems;
mod interrupted;
mod originals;
mod stay;
mod targets;

/// A plugin of a release, as far as the installer is concerned: it answers VERSION.
const NEW: &str = "#!/bin/sh\necho '{\"supportedVersions\": [\"1.1.0\"]}'\n";

/// A directory with plugins to install, and a directory with other vendors' plugins.
struct Scene {
    from: PathBuf,
    dir: PathBuf,
}

impl Scene {
    fn new(lab: &Lab) -> Self {
        let scene = Self { from: lab.dir().join("from"), dir: lab.dir().join("plugins of a host") };
        fs::create_dir_all(&scene.from).unwrap();
        for name in ["bridge", "portmap"] {
            executable(&scene.from.join(name), NEW);
        }
        scene.others();
        scene
    }

    /// Resets the directory: another vendor's bridge, no portmap, and a plugin that Ferrule does not have.
    fn others(&self) {
        fs::remove_dir_all(&self.dir).ok();
        fs::create_dir_all(&self.dir).unwrap();
        executable(&self.dir.join("bridge"), "others' bridge");
        executable(&self.dir.join("calico"), "calico");
    }

    fn run(&self, arguments: &[&str]) -> Output {
        install(&self.dir, arguments, &[])
    }

    fn install(&self, arguments: &[&str]) -> Output {
        self.install_under(&[], arguments)
    }

    fn install_under(&self, under: &[&str], arguments: &[&str]) -> Output {
        let from = self.from.to_str().unwrap();
        install(&self.dir, &[&["--from", from], arguments].concat(), under)
    }

    #[track_caller]
    fn assert_old(&self, what: &str) {
        let old = [("bridge", "others' bridge"), ("calico", "calico")];
        assert_eq!(content(&self.dir), as_map(&old), "{what}");
        assert!(!self.dir.join(".ferrule").exists(), "{what}");
    }

    #[track_caller]
    fn assert_new(&self, what: &str) {
        let new = [("bridge", NEW), ("calico", "calico"), ("portmap", NEW)];
        assert_eq!(content(&self.dir), as_map(&new), "{what}");
    }

    /// Whether only one of the two plugins is installed.
    fn is_half_changed(&self) -> bool {
        let now = content(&self.dir);
        (now["bridge"] == NEW) != now.contains_key("portmap")
    }

    /// Each file is complete: the old or the new one.
    #[track_caller]
    fn assert_whole(&self, what: &str) {
        let now = content(&self.dir);
        assert!(["others' bridge", NEW].contains(&now["bridge"].as_str()), "{what}: {now:?}");
        assert!(now.get("portmap").is_none_or(|portmap| portmap == NEW), "{what}: {now:?}");
    }
}

fn executable(path: &Path, content: &str) {
    lab::write_program(path, content);
}

fn install(dir: &Path, arguments: &[&str], under: &[&str]) -> Output {
    let program = ours().join("ferrule-install");
    let mut words = under.to_vec();
    words.push(program.to_str().unwrap());
    Command::new(words[0]).args(&words[1..]).arg("--dir").arg(dir).args(arguments).output().unwrap()
}

fn as_map(files: &[(&str, &str)]) -> BTreeMap<String, String> {
    files.iter().map(|(name, content)| ((*name).to_owned(), (*content).to_owned())).collect()
}

/// All files of a directory, except those of the installer.
fn content(dir: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let files = entries.filter(|entry| entry.file_name() != ".ferrule");
    files.map(|e| (e.file_name().into_string().unwrap(), fs::read_to_string(e.path()).unwrap())).collect()
}

#[track_caller]
fn ok(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Asserts that the run failed with these words.
#[track_caller]
fn refused(output: &Output, words: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains(words), "{output:?}");
}

/// The system calls of a run: each with its name and its number among the calls of this name.
fn calls(scene: &Scene, arguments: &[&str]) -> Vec<(String, u32)> {
    let trace = scene.from.with_extension("trace");
    let under = ["strace", "-qo", trace.to_str().unwrap()];
    ok(&run_under(scene, &under, arguments));
    let mut counts = BTreeMap::new();
    let text = fs::read_to_string(trace).unwrap();
    let names = text.lines().filter_map(|line| Some(line.split_once('(')?.0));
    let names = names.filter(|name| !name.starts_with(['-', '+']) && !name.starts_with("exit"));
    let calls = names.map(|name| {
        let nth = counts.entry(name).or_insert(0);
        *nth += 1;
        (name.to_owned(), *nth)
    });
    // strace itself makes the first call of execve.
    calls.filter(|(name, nth)| !(name == "execve" && *nth == 1)).collect()
}

fn run_under(scene: &Scene, under: &[&str], arguments: &[&str]) -> Output {
    if arguments.contains(&"--uninstall") {
        install(&scene.dir, arguments, under)
    } else {
        scene.install_under(under, arguments)
    }
}

/// Kills a run at each of its system calls, and checks the state after the next run: an installation or an uninstallation.
fn sweep_kills(arguments: &[&str], prepare: impl Fn(&Scene)) {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    prepare(&scene);
    let old = content(&scene.dir);
    let calls = calls(&scene, arguments);
    assert!(calls.len() > 60, "{calls:?}");
    let (mut killed, mut halves) = (0, 0);
    for (at, (name, nth)) in calls.iter().enumerate() {
        let inject = format!("inject={name}:signal=KILL:when={nth}");
        let what = format!("{arguments:?} {inject}");
        let kill = || {
            scene.others();
            prepare(&scene);
            run_under(&scene, &["strace", "-qo", "/dev/null", "-e", &inject], arguments)
        };
        killed += u32::from(!kill().status.success());
        scene.assert_whole(&what);
        if scene.dir.join(".ferrule/record.new").exists() {
            halves += u32::from(scene.is_half_changed());
            // This run changes nothing itself, so only its rollback of the killed run restores the files.
            let said = ok(&scene.run(&["--uninstall", "--skip", "bridge,portmap"]));
            assert!(said.contains("restored the files from before it"), "{what}: {said}");
            assert_eq!(content(&scene.dir), old, "{what}");
            kill();
        }
        if at % 2 == 0 {
            ok(&scene.install(&[]));
            scene.assert_new(&what);
        }
        ok(&scene.run(&["--uninstall"]));
        scene.assert_old(&what);
    }
    assert!(killed as usize > calls.len() / 2, "{killed} of {}", calls.len());
    assert!(halves > 0, "none was killed between two files");
}

#[test]
fn the_run_after_a_killed_installation_rolls_it_back_or_completes_it() {
    sweep_kills(&[], |_| {});
}

#[test]
fn the_run_after_a_killed_uninstallation_rolls_it_back_or_completes_it() {
    sweep_kills(&["--uninstall"], |scene| {
        ok(&scene.install(&[]));
    });
}

#[test]
fn after_an_error_at_any_call_all_files_are_old_or_all_new_and_the_message_says_which() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    let fails = ["open", "write", "fsync", "link", "mkdir", "rename", "chmod", "read", "copy", "sendfile"];
    let calls = calls(&scene, &[]);
    let calls: Vec<_> =
        calls.iter().filter(|(name, _)| fails.iter().any(|part| name.contains(part))).collect();
    let mut refusals = 0;
    for (name, nth) in calls {
        for errno in ["EIO", "ENOSPC"] {
            scene.others();
            let inject = format!("inject={name}:error={errno}:when={nth}");
            let output = scene.install_under(&["strace", "-qo", "/dev/null", "-e", &inject], &[]);
            match output.status.code() {
                Some(0) => scene.assert_new(&inject),
                _ => scene.assert_old(&format!("{inject}: {output:?}")),
            }
            if output.status.code() == Some(1) {
                refusals += 1;
                assert!(!output.stderr.is_empty(), "{inject}");
            }
        }
    }
    assert!(refusals > 40, "{refusals}");
}

#[test]
fn an_uninstallation_restores_the_first_files_and_symbolic_links_also_after_an_upgrade() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    symlink("calico", scene.dir.join("portmap")).unwrap();
    let said = ok(&scene.install(&[]));
    assert!(said.contains("bridge; the replaced files are in .ferrule/kept"), "{said}");
    scene.assert_new("first");
    executable(&scene.from.join("bridge"), &NEW.replace("1.1.0", "1.2.0"));
    let said = ok(&scene.install(&[]));
    assert!(!said.contains("kept"), "the one before is ours: {said}");
    assert!(content(&scene.dir)["bridge"].contains("1.2.0"));
    let said = ok(&scene.run(&["--uninstall"]));
    assert!(said.contains("put back"), "{said}");
    assert_eq!(fs::read_link(scene.dir.join("portmap")).unwrap(), Path::new("calico"));
    fs::remove_file(scene.dir.join("portmap")).unwrap();
    scene.assert_old("uninstalled");
    assert!(ok(&scene.run(&["--uninstall"])).contains("nothing is installed"));
}

#[test]
fn an_uninstallation_keeps_files_that_other_programs_have_installed_since() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    ok(&scene.install(&[]));
    fs::remove_file(scene.dir.join("bridge")).unwrap();
    executable(&scene.dir.join("bridge"), "newer");
    let said = ok(&scene.run(&["--uninstall"]));
    assert!(said.contains("kept") && said.contains("another program has written it since"), "{said}");
    assert_eq!(content(&scene.dir), as_map(&[("bridge", "newer"), ("calico", "calico")]));

    ok(&scene.install(&[]));
    ok(&scene.run(&["--uninstall"]));
    assert_eq!(content(&scene.dir)["bridge"], "newer");
}

#[test]
fn an_original_file_is_kept_while_another_programs_file_is_in_its_place() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    ok(&scene.install(&[]));
    fs::remove_file(scene.dir.join("bridge")).unwrap();
    executable(&scene.dir.join("bridge"), "newer");
    let said = ok(&scene.run(&["--uninstall"]));
    let kept = scene.dir.join(".ferrule/kept/bridge");
    assert!(said.contains(&format!("stay in {}", kept.display())), "{said}");
    assert_eq!(fs::read_to_string(&kept).unwrap(), "others' bridge");
    fs::remove_file(scene.dir.join("bridge")).unwrap();
    ok(&scene.run(&["--uninstall"]));
    scene.assert_old("the file in its place was removed");
}

/// Follows the advice in the message: moves the kept files back, and removes the state.
fn start_again(dir: &Path) {
    let state = dir.join(".ferrule");
    for kept in fs::read_dir(state.join("kept")).unwrap().map(|entry| entry.unwrap()) {
        fs::rename(kept.path(), dir.join(kept.file_name())).unwrap();
    }
    fs::remove_dir_all(state).unwrap();
}

#[test]
fn without_a_record_the_original_files_are_kept_and_the_message_says_how_to_restore_them() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    ok(&scene.install(&[]));
    let (state, from) = (scene.dir.join(".ferrule"), scene.from.to_str().unwrap());
    fs::remove_file(state.join("record")).unwrap();
    let advice =
        format!("move the files in {0}/kept back to {1}, remove {0}", state.display(), scene.dir.display());
    for arguments in [&["--uninstall"][..], &["--from", from], &["--upgrade", "--from", from]] {
        let output = scene.run(arguments);
        refused(&output, &format!("{}/record is missing", state.display()));
        refused(&output, &advice);
        assert_eq!(fs::read_to_string(state.join("kept/bridge")).unwrap(), "others' bridge");
        scene.assert_new("unchanged");
    }
    start_again(&scene.dir);
    ok(&scene.run(&["--uninstall"]));
    assert_eq!(content(&scene.dir)["bridge"], "others' bridge");
    ok(&scene.install(&[]));
    scene.assert_new("started again");
}

#[test]
fn a_file_that_was_copied_over_a_hard_link_is_replaced_by_an_installation_and_by_an_uninstallation() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    let multi = together();
    let linked = ["--link", "--from", multi.to_str().unwrap()];
    for is_upgrade in [true, false] {
        ok(&scene.run(&linked));
        let before = fs::metadata(scene.dir.join("tap")).unwrap().ino();
        fs::write(scene.dir.join("tap"), "#!/bin/sh\n").unwrap();
        assert_eq!(content(&scene.dir)["bridge"], "#!/bin/sh\n", "it is one file");
        let check = install(&scene.dir, &[&linked[..], &["--check"]].concat(), &[]);
        assert!(!check.status.success(), "{check:?}");
        if is_upgrade {
            ok(&scene.run(&linked));
            assert_ne!(fs::metadata(scene.dir.join("tap")).unwrap().ino(), before);
            ok(&install(&scene.dir, &[&linked[..], &["--check"]].concat(), &[]));
        }
        ok(&scene.run(&["--uninstall"]));
        scene.assert_old("the original is back, and nothing else");
    }
}

#[test]
fn plugins_can_be_installed_and_uninstalled_by_name() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    refused(&scene.install(&["--only", "portmap,nonesuch"]), "there is no plugin \"nonesuch\"");
    scene.assert_old("a name that is none");
    ok(&scene.install(&["--only", "portmap"]));
    assert_eq!(content(&scene.dir)["bridge"], "others' bridge");
    ok(&scene.install(&["--only", "bridge"]));
    scene.assert_new("both");
    refused(&scene.run(&["--uninstall", "--only", "brigde"]), "no plugin \"brigde\" is installed");
    scene.assert_new("a name that is not installed");
    ok(&scene.run(&["--uninstall", "--only", "bridge"]));
    assert_eq!(content(&scene.dir)["bridge"], "others' bridge");
    assert_eq!(content(&scene.dir)["portmap"], NEW);
    ok(&scene.run(&["--uninstall"]));
    scene.assert_old("the rest");
}

#[test]
fn a_reclaim_that_fails_keeps_the_original_of_a_removed_plugin() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    ok(&scene.install(&[]));
    fs::remove_file(scene.dir.join("bridge")).unwrap();
    executable(&scene.from.join("portmap"), "#!/bin/sh\nexit 3");
    refused(&scene.install(&["--upgrade", "--reclaim"]), "nothing was changed");
    ok(&scene.run(&["--uninstall"]));
    scene.assert_old("the original was kept");
}

#[test]
fn if_one_plugin_does_not_answer_none_is_installed() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    for (bad, words) in [
        ("#!/bin/sh\nexit 3", "exit status: 3"),
        ("#!/bin/sh\necho '{}'", "names no version"),
        ("", "VERSION"),
    ] {
        executable(&scene.from.join("portmap"), bad);
        let output = scene.install(&[]);
        refused(&output, words);
        refused(&output, "nothing was changed");
        scene.assert_old(words);
    }
}

#[test]
fn a_directory_that_is_full_or_read_only_or_has_a_subdirectory_of_a_plugins_name_is_not_changed() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    let dir = scene.dir.display();
    lab.host().sh(&format!("mount -t tmpfs -o size=64k disk '{dir}'"));
    scene.others_in_place();
    fs::write(scene.from.join("bridge"), format!("{NEW}{}", "#".repeat(100_000))).unwrap();
    refused(&scene.install(&[]), "No space left on device");
    scene.assert_old("full");
    executable(&scene.from.join("bridge"), NEW);

    lab.host().sh(&format!("mount -o remount,ro '{dir}'"));
    refused(&scene.install(&[]), "Read-only file system");
    scene.assert_old("read-only");
    lab.host().sh(&format!("mount -o remount,rw,noexec '{dir}'"));
    refused(&scene.install(&[]), "noexec");
    scene.assert_old("noexec");
    lab.host().sh(&format!("mount -o remount,rw,exec '{dir}'"));

    fs::create_dir(scene.dir.join("portmap")).unwrap();
    refused(&scene.install(&[]), "portmap is a directory");
    fs::remove_dir(scene.dir.join("portmap")).unwrap();
    scene.assert_old("a directory");
    ok(&scene.install(&[]));
    scene.assert_new("another file system");
}

impl Scene {
    /// Like [`Scene::others`], for a directory that is a mount point.
    fn others_in_place(&self) {
        executable(&self.dir.join("bridge"), "others' bridge");
        executable(&self.dir.join("calico"), "calico");
    }
}

#[test]
fn a_missing_directory_is_created_and_an_installation_into_the_source_is_refused() {
    let lab = Lab::new();
    let mut scene = Scene::new(&lab);
    scene.dir = lab.dir().join("missing/bin");
    assert!(ok(&scene.run(&["--uninstall"])).contains("nothing is installed"));
    assert!(!scene.dir.exists());
    assert!(ok(&scene.install(&[])).contains("made the directory"));
    assert_eq!(content(&scene.dir), as_map(&[("bridge", NEW), ("portmap", NEW)]));
    scene.dir = scene.from.clone();
    refused(&scene.install(&[]), "into itself");
}

/// nerdctl uses the first of several directories that exists, also if it is empty.
#[test]
fn created_directories_are_removed_by_an_uninstallation_if_they_are_empty_and_after_a_failure() {
    let lab = Lab::new();
    let mut scene = Scene::new(&lab);
    let parent = lab.dir().join("missing");
    scene.dir = parent.join("cni/bin");
    ok(&scene.install(&[]));
    ok(&scene.install(&["--only", "bridge"]));
    let said = ok(&scene.run(&["--uninstall"]));
    assert!(said.contains(&format!("removed the directory {}", parent.display())), "{said}");
    assert!(!parent.exists());

    ok(&scene.install(&[]));
    let other = parent.join("cni/other");
    fs::write(&other, "").unwrap();
    ok(&scene.run(&["--uninstall"]));
    assert!(!scene.dir.exists() && other.exists());

    executable(&scene.from.join("portmap"), "#!/bin/sh\nexit 3");
    refused(&scene.install(&[]), "nothing was changed");
    assert!(!scene.dir.exists() && other.exists());
}

#[test]
fn no_empty_directory_is_left_if_a_directory_cannot_be_created() {
    let lab = Lab::new();
    let mut scene = Scene::new(&lab);
    let (missing, link) = (lab.dir().join("missing"), lab.dir().join("link"));
    symlink("nowhere", &link).unwrap();
    scene.dir = missing.join("bin");
    let both = scene.install(&["--dir", link.to_str().unwrap()]);
    refused(&both, "/link is a symbolic link to a directory that does not exist");
    assert!(!missing.exists());

    // The parent has been created: the calls of mkdir are for bin, for the parent, and again for bin.
    let inject = "inject=?mkdir,mkdirat:error=ENOSPC:when=3+";
    let full = scene.install_under(&["strace", "-qo", "/dev/null", "-e", inject], &[]);
    refused(&full, "make the directory");
    assert!(String::from_utf8_lossy(&full.stdout).contains("removed the directory"), "{full:?}");
    assert!(!missing.exists());
}

/// Kubespray, for example, gives the directory to another user.
#[test]
fn a_container_needs_one_capability_for_a_directory_of_another_user() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    for path in [scene.dir.clone(), scene.dir.join("bridge")] {
        chown(path, Some(1000), Some(1000)).unwrap();
    }
    let limited = |set| scene.install_under(&["setpriv", "--bounding-set", set], &[]);
    let refusal = limited("-all");
    refused(
        &refusal,
        "root without the capability DAC_OVERRIDE may not write there: add it to the container",
    );
    scene.assert_old("refused");
    ok(&limited("-all,+dac_override"));
    scene.assert_new("installed");
    ok(&install(&scene.dir, &["--uninstall"], &["setpriv", "--bounding-set", "-all,+dac_override"]));
    scene.assert_old("uninstalled");
    assert_eq!(fs::metadata(scene.dir.join("bridge")).unwrap().uid(), 1000);

    // SELinux and NFS servers also deny root with this capability.
    let inject = "inject=?mkdir,mkdirat:error=EACCES:when=1";
    let denied = scene.install_under(&["strace", "-qo", "/dev/null", "-e", inject], &[]);
    refused(&denied, "a security module or the file system denies it");
}

/// Rootless runtimes start plugins as other users.
#[test]
fn other_users_can_start_plugins_in_new_directories_whatever_the_umask_is() {
    let lab = Lab::new();
    let mut scene = Scene::new(&lab);
    for umask in ["077", "0"] {
        let parent = lab.dir().join(umask);
        scene.dir = parent.join("cni/bin");
        let script = format!("umask {umask}; exec \"$0\" \"$@\"");
        ok(&scene.install_under(&["sh", "-c", &script], &[]));
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        for path in [&parent, &parent.join("cni"), &scene.dir, &scene.dir.join("bridge")] {
            assert_eq!(mode(path), 0o755, "{umask} {}", path.display());
        }
        assert_eq!(mode(&scene.dir.join(".ferrule")), 0o700);
        assert_eq!(mode(&scene.dir.join(".ferrule/record")), 0o600);
    }
}

#[test]
fn a_symbolic_link_to_a_directory_is_followed_and_one_to_a_missing_directory_is_refused() {
    let lab = Lab::new();
    let mut scene = Scene::new(&lab);
    let (real, link) = (scene.dir.clone(), lab.dir().join("link"));
    let old = content(&real);
    symlink(&real, &link).unwrap();
    scene.dir.clone_from(&link);
    ok(&scene.install(&[]));
    assert!(link.is_symlink());
    assert_eq!(content(&real)["portmap"], NEW);
    ok(&scene.run(&["--uninstall"]));
    assert_eq!(content(&real), old);

    fs::remove_file(&link).unwrap();
    symlink("nowhere", &link).unwrap();
    for dir in [link.clone(), link.join("bin")] {
        scene.dir = dir;
        refused(&scene.install(&[]), "/link is a symbolic link to a directory that does not exist");
    }
}

#[test]
fn two_at_once_do_not_mix() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    let slow = NEW.replace(
        "\n",
        &format!("\n: >>{0}/started; while [ -e {0}/hold ]; do :; done\n", lab.dir().display()),
    );
    executable(&scene.from.join("bridge"), &slow);
    fs::write(lab.dir().join("hold"), "").unwrap();
    let mut first = Command::new(ours().join("ferrule-install"));
    let first =
        first.arg("--dir").arg(&scene.dir).arg("--from").arg(&scene.from).stdout(Stdio::null()).spawn();
    lab::until("the first has begun", || lab.dir().join("started").exists());
    let second = scene.run(&["--uninstall"]);
    fs::remove_file(lab.dir().join("hold")).unwrap();
    assert!(first.unwrap().wait().unwrap().success());
    assert_eq!(second.status.code(), Some(11), "{second:?}");
    assert_eq!(content(&scene.dir)["portmap"], NEW);
}

#[test]
fn all_plugins_are_installed_over_running_ones_as_single_files_or_as_hard_links() {
    let lab = Lab::new();
    let dir = lab.dir().join("bin");
    fs::create_dir_all(&dir).unwrap();
    // A running program: its file cannot be written, only replaced.
    lab.host().sh(&format!("cp /bin/sleep {}", dir.join("bridge").display()));
    let mut running = Command::new(dir.join("bridge"));
    // With the inherited output, it would keep the suite's output open if this test fails.
    let mut running = running.arg("600").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let expected: BTreeSet<String> = plugins().into_iter().collect();
    let installed = |arguments: &[&str], files: usize| {
        ok(&install(&dir, arguments, &[]));
        let names = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap());
        let found: BTreeMap<String, u64> = names
            .filter(|e| e.file_name() != ".ferrule")
            .map(|e| (e.file_name().into_string().unwrap(), e.metadata().unwrap().ino()))
            .collect();
        assert_eq!(found.keys().cloned().collect::<BTreeSet<_>>(), expected);
        assert_eq!(found.values().collect::<BTreeSet<_>>().len(), files, "{found:?}");
        for plugin in plugins() {
            lab.plugin(&plugin).in_dir(&dir).run("VERSION").ok_result();
        }
    };
    installed(&[], expected.len());
    assert_eq!(running.try_wait().unwrap(), None);
    let multi = together().display().to_string();
    installed(&["--link", "--from", &multi], 1);
    // Hard links in the source are installed as hard links.
    installed(&["--from", &multi], 1);
    ok(&install(&dir, &["--uninstall"], &[]));
    let left: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["bridge"]);
    assert_eq!(running.try_wait().unwrap(), None);
    running.kill().unwrap();
    running.wait().unwrap();
}

/// A runtime may resolve symbolic links in the path of a plugin, as `filepath.EvalSymlinks` and `realpath` do. The path of a hard link stays
/// the same. With symbolic links to one file, the runtime would start `ferrule`, which would not know the plugin's name.
#[test]
fn a_runtime_that_resolves_symbolic_links_starts_the_right_plugin() {
    let lab = Lab::new();
    let (dir, seen) = (lab.dir().join("bin"), lab.dir().join("opt/cni/bin"));
    fs::create_dir_all(seen.parent().unwrap()).unwrap();
    symlink(&dir, &seen).unwrap();
    let multi = together().display().to_string();
    for arguments in [&["--link", "--from", &multi][..], &[]] {
        ok(&install(&dir, arguments, &[]));
        for plugin in plugins() {
            let resolved = fs::canonicalize(seen.join(&plugin)).unwrap();
            assert_eq!(resolved, dir.canonicalize().unwrap().join(&plugin), "{arguments:?}");
            // Starts the resolved path, as such a runtime does.
            let about = Command::new(&resolved).env_clear().output().unwrap();
            let about = String::from_utf8(about.stderr).unwrap();
            assert!(about.starts_with(&format!("CNI {plugin} plugin v")), "{about}");
            lab.plugin(&plugin).in_dir(resolved.parent().unwrap()).run("VERSION").ok_result();
        }
    }
}

#[test]
fn a_check_lists_plugins_that_differ_from_the_source_and_changes_nothing() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    let missing = scene.install(&["--check"]);
    refused(&missing, "2 of 2 plugins");
    let said = String::from_utf8_lossy(&missing.stdout);
    assert!(said.contains("portmap is missing") && said.contains("bridge differs from"), "{said}");
    scene.assert_old("checked");

    ok(&scene.install(&[]));
    assert!(ok(&scene.install(&["--check"])).contains("2 plugins"));
    assert!(ok(&scene.install(&["--check", "--only", "bridge"])).contains("1 plugins"));
    // A new version that is not installed yet.
    executable(&scene.from.join("bridge"), &NEW.replace("1.1.0", "1.2.0"));
    refused(&scene.install(&["--check"]), "1 of 2 plugins");
    ok(&scene.install(&["--check", "--skip", "bridge"]));
    let untouched = scene.install(&["--check", "--update", "false"]);
    ok(&untouched);
    // With `--update false`, existing files stay, but they must answer VERSION too.
    executable(&scene.dir.join("portmap"), "others' portmap");
    refused(&scene.install(&["--check", "--update", "false"]), "1 of 2 plugins");
    refused(
        &scene.install(&["--check", "--update", "false"]),
        "with --update true, it also replaces the others",
    );
}

#[test]
fn options_or_the_environment_select_plugins_to_skip_and_files_to_keep() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    let said = ok(&scene.install(&["--skip", "portmap,calico"]));
    assert!(said.contains("there is no plugin \"calico\" to skip"), "{said}");
    assert_eq!(content(&scene.dir), as_map(&[("bridge", NEW), ("calico", "calico")]));

    scene.others();
    ok(&scene.install_under(&["env", "SKIP_CNI_BINARIES=bridge"], &[]));
    let others = ("bridge", "others' bridge");
    assert_eq!(content(&scene.dir), as_map(&[others, ("calico", "calico"), ("portmap", NEW)]));
    // Blanks separate names, too.
    scene.others();
    ok(&scene.install_under(&["env", "SKIP_CNI_BINARIES=bridge calico", "UPDATE_CNI_BINARIES="], &[]));
    assert_eq!(content(&scene.dir), as_map(&[others, ("calico", "calico"), ("portmap", NEW)]));
    for update in [&["env", "UPDATE_CNI_BINARIES=false", "SKIP_CNI_BINARIES="][..], &[]] {
        scene.others();
        let arguments = if update.is_empty() { &["--update", "false"][..] } else { &[] };
        let said = ok(&scene.install_under(update, arguments));
        assert!(said.contains("bridge: it existed before"), "{said}");
        assert_eq!(content(&scene.dir), as_map(&[others, ("calico", "calico"), ("portmap", NEW)]));
    }
    ok(&scene.install(&["--update", "false", "--skip", "portmap"]));
    ok(&scene.run(&["--uninstall"]));
    scene.assert_old("uninstalled");
    ok(&scene.install(&["--skip", "bridge,portmap"]));
    scene.assert_old("nothing to install");
    let output = scene.install_under(&["env", "UPDATE_CNI_BINARIES=perhaps"], &[]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn plugins_can_be_started_at_every_moment_of_an_installation() {
    let lab = Lab::new();
    let dir = lab.dir().join("bin");
    let (mut starts, mut turn) = (0, 0);
    // On a busy machine, a whole installation may finish before this thread starts a plugin.
    while turn < 5 || starts == 0 {
        turn += 1;
        let mut program = Command::new(ours().join("ferrule-install"));
        program.arg("--from").arg(together()).arg("--dir").arg(&dir).stdout(Stdio::null());
        let mut running = program.spawn().unwrap();
        while running.try_wait().unwrap().is_none() {
            // The plugin is missing until the first run has installed it.
            if turn > 1 {
                lab.plugin("portmap").in_dir(&dir).run("VERSION").ok_result();
                starts += 1;
            }
        }
        assert!(running.wait().unwrap().success());
    }
}

/// If an upgrade removed or moved a file, the plugin would be missing for a moment.
#[test]
fn an_upgrade_replaces_each_plugin_without_removing_or_moving_it() {
    let lab = Lab::new();
    let (dir, trace) = (lab.dir().join("bin"), lab.dir().join("trace"));
    ok(&install(&dir, &["--from", together().to_str().unwrap()], &[]));
    let calls = "trace=unlink,unlinkat,rename,renameat,renameat2";
    let strace = ["strace", "-f", "-qq", "-y", "-s", "4096", "-e", calls, "-o", trace.to_str().unwrap()];
    ok(&install(&dir, &["--from", ours().to_str().unwrap()], &strace));
    let trace = fs::read_to_string(trace).unwrap();
    let calls: Vec<Vec<&str>> = trace.lines().map(|line| line.split('"').collect()).collect();
    // A relative path is in the directory in angle brackets before it.
    let path = |call: &[&str], nth: usize| {
        let dir = call.get(nth - 1)?.split(['<', '>']).nth(1).unwrap_or_default();
        Some(Path::new(dir).join(call.get(nth)?))
    };
    let [removed, created]: [BTreeSet<_>; 2] =
        [1, 3].map(|nth| calls.iter().filter_map(|call| path(call, nth)).collect());
    for plugin in plugins().iter().map(|plugin| dir.join(plugin)) {
        assert!(!removed.contains(&plugin) && created.contains(&plugin), "{}: {trace}", plugin.display());
    }
}

/// dhcp's daemon has no `--help`, so its manual page must describe the flags in docs/dhcp.md.
#[test]
fn the_manual_pages_describe_every_option() {
    let page = |name: &str| {
        let text = fs::read_to_string(lab::repository().join("packaging/man").join(name)).unwrap();
        text.replace("\\-", "-")
    };
    let help = Command::new(ours().join("ferrule-install")).arg("--help").output().unwrap();
    let docs = fs::read_to_string(lab::repository().join("docs/dhcp.md")).unwrap();
    let long = String::from_utf8(help.stdout).unwrap();
    let long = long.lines().map(str::trim_start).filter(|line| line.contains("--") && line.starts_with('-'));
    let long: Vec<String> = long
        .map(|line| line.split_whitespace().find(|word| word.starts_with("--")).unwrap())
        .map(|word| word.split(['[', '=', ',']).next().unwrap().to_owned())
        .collect();
    let flags: Vec<String> = docs
        .lines()
        .filter_map(|line| line.strip_prefix("| `-")?.split('`').next().map(|flag| format!("-{flag}")))
        .collect();
    assert!(long.len() > 8 && flags.len() > 6, "{long:?} {flags:?}");
    for (name, options) in [("ferrule-install.8", long), ("cni-dhcp.8", flags)] {
        let page = page(name);
        let missing: Vec<_> = options.into_iter().filter(|option| !page.contains(option.as_str())).collect();
        assert!(missing.is_empty(), "{name}: {missing:?}");
    }
}
