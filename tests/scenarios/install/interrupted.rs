//! Runs of ferrule-install after an interrupted one, and runs with an error of a call that looks at a file. No file of another program is lost.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Output;

use lab::Lab;

use super::{NEW, Scene, as_map, calls, content, executable, ok, run_under};

/// Changes nothing, except that it undoes an interrupted change.
const ROLL_BACK: [&str; 3] = ["--uninstall", "--skip", "bridge,portmap"];

/// Kills a run at one of its renames, counted back from that of `record.new` to `record`.
fn kill_at_rename(scene: &Scene, options: &[&str], arguments: &[&str], from_last: u32, renames: u32) {
    let inject = format!("inject=rename:signal=KILL:when={}", renames - from_last);
    let under = [&["strace", "-qo", "/dev/null", "-e", &inject], options].concat();
    let output = run_under(scene, &under, arguments);
    assert!(!output.status.success(), "{output:?}");
    assert!(scene.dir.join(".ferrule/record.new").exists(), "it has not begun its change");
}

/// The number of a run's renames, including that of `record.new` to `record`.
fn renames(scene: &Scene, arguments: &[&str]) -> u32 {
    calls(scene, arguments);
    let trace = fs::read_to_string(scene.from.with_extension("trace")).unwrap();
    let mut renames = trace.lines().filter(|line| line.starts_with("rename("));
    let ends = |line: &str| line.contains(".ferrule/record.new\", ");
    u32::try_from(renames.position(ends).unwrap() + 1).unwrap()
}

/// Installs a file as other installers do: under a temporary name, then renamed.
fn replace(path: &Path, content: &str) {
    let temporary = path.with_extension("temporary");
    executable(&temporary, content);
    fs::rename(temporary, path).unwrap();
}

#[track_caller]
fn assert_left(scene: &Scene, output: &Output, names: &[&str], what: &str) {
    let warnings = String::from_utf8_lossy(&output.stderr);
    for name in ["bridge", "portmap"] {
        let warning = format!("kept {}", scene.dir.join(name).display());
        assert_eq!(warnings.contains(&warning), names.contains(&name), "{what}, {name}: {output:?}");
    }
}

/// Another installer, such as Calico's or apt, may run before the next ferrule-install.
#[test]
fn a_rollback_keeps_files_that_other_programs_have_installed_since_the_interruption() {
    for arguments in [&[][..], &["--uninstall"]] {
        let lab = Lab::new();
        let scene = Scene::new(&lab);
        let prepare = || {
            scene.others();
            if arguments.contains(&"--uninstall") {
                ok(&scene.install(&[]));
            }
        };
        prepare();
        let before = content(&scene.dir);
        let renames = renames(&scene, arguments);
        for from_last in [0, 1] {
            for names in [&["portmap"][..], &["bridge"], &["bridge", "portmap"]] {
                let what = format!("{arguments:?} {from_last} {names:?}");
                prepare();
                kill_at_rename(&scene, &[], arguments, from_last, renames);
                names.iter().for_each(|name| replace(&scene.dir.join(name), "Calico's"));
                let output = scene.run(&ROLL_BACK);
                ok(&output);
                let mut expected = before.clone();
                expected.extend(names.iter().map(|name| ((*name).to_owned(), "Calico's".to_owned())));
                assert_eq!(content(&scene.dir), expected, "{what}: {output:?}");
                assert_left(&scene, &output, names, &what);
                // An uninstallation keeps these files too, and restores the others.
                ok(&scene.run(&["--uninstall"]));
                for name in names {
                    assert_eq!(fs::read_to_string(scene.dir.join(name)).unwrap(), "Calico's", "{what}");
                }
                if !names.contains(&"bridge") {
                    assert_eq!(content(&scene.dir)["bridge"], "others' bridge", "{what}");
                }
            }
        }
    }
}

#[test]
fn after_a_kill_before_the_first_change_another_program_may_replace_files() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    let before = scene.dir.join(".ferrule/before");
    let kill =
        ["strace", "-qqo", "/dev/null", "-P", before.to_str().unwrap(), "-e", "inject=fsync:signal=KILL"];
    let output = scene.install_under(&kill, &[]);
    assert!(!output.status.success() && before.join("bridge").exists(), "{output:?}");
    assert!(!scene.dir.join(".ferrule/record.new").exists(), "it has begun its change");
    replace(&scene.dir.join("bridge"), "Calico's");
    ok(&scene.install(&[]));
    scene.assert_new("installed");
    ok(&scene.run(&["--uninstall"]));
    assert_eq!(content(&scene.dir)["bridge"], "Calico's");
}

#[test]
fn a_rollback_restores_hard_links_and_symbolic_links_also_without_hard_links() {
    let without = ["-e", "inject=?link,linkat:error=EPERM"];
    for options in [&[][..], &without] {
        let lab = Lab::new();
        let scene = Scene::new(&lab);
        symlink("calico", scene.dir.join("portmap")).unwrap();
        let linked = ["--from", scene.from.to_str().unwrap()];
        fs::remove_file(scene.from.join("portmap")).unwrap();
        fs::hard_link(scene.from.join("bridge"), scene.from.join("portmap")).unwrap();
        let under = [&["strace", "-qo", "/dev/null"], options].concat();
        ok(&super::install(&scene.dir, &linked, &under));
        scene.assert_new("installed");
        let renames = renames(&scene, &["--uninstall"]);
        ok(&super::install(&scene.dir, &linked, &under));

        kill_at_rename(&scene, options, &["--uninstall"], 0, renames);
        assert!(scene.dir.join("portmap").is_symlink(), "the uninstallation has restored it");
        let output = scene.run(&ROLL_BACK);
        ok(&output);
        scene.assert_new("rolled back");
        assert_left(&scene, &output, &[], "nobody else has changed anything");

        kill_at_rename(&scene, options, &["--uninstall"], 0, renames);
        fs::remove_file(scene.dir.join("portmap")).unwrap();
        symlink("flannel", scene.dir.join("portmap")).unwrap();
        let output = scene.run(&ROLL_BACK);
        ok(&output);
        assert_eq!(fs::read_link(scene.dir.join("portmap")).unwrap(), Path::new("flannel"));
        assert_left(&scene, &output, &["portmap"], "another link");
    }
}

/// A run to disturb: what precedes it, its arguments, and the files after a success.
struct Case<'a> {
    prepare: &'a dyn Fn(&Scene),
    arguments: &'a [&'a str],
    expected: &'a [(&'a str, &'a str)],
}

/// All calls that look at a file and do not open it.
const LOOKS: &str = "?stat,?lstat,?newfstatat,?statx,?access,?faccessat,?faccessat2";

impl Case<'_> {
    /// Injects an error into each look at each file. Returns the number of runs.
    fn sweep(&self, scene: &Scene) -> usize {
        let (trace, state) = (scene.from.with_extension("trace"), scene.dir.join(".ferrule"));
        let (bridge, portmap) = (scene.dir.join("bridge"), scene.dir.join("portmap"));
        let parts = ["record", "record.new", "kept/bridge", "new/bridge", "new/portmap", "before/bridge"];
        let mut paths: Vec<PathBuf> = parts.map(|part| state.join(part)).to_vec();
        paths.extend([state, bridge, portmap]);
        let mut runs = 0;
        for path in &paths {
            let only = ["strace", "-qqo", trace.to_str().unwrap(), "-P", path.to_str().unwrap(), "-e"];
            self.reset(scene);
            run_under(scene, &[&only[..], &[&format!("trace={LOOKS}")]].concat(), self.arguments);
            let text = fs::read_to_string(&trace).unwrap();
            let looks = text.lines().filter(|line| line.contains('(')).count();
            for nth in 1..=looks {
                for errno in ["EIO", "ESTALE"] {
                    self.reset(scene);
                    let before = content(&scene.dir);
                    let is_interrupted = scene.dir.join(".ferrule/record.new").exists();
                    let inject = format!("inject={LOOKS}:error={errno}:when={nth}");
                    let output = run_under(scene, &[&only[..], &[&inject]].concat(), self.arguments);
                    let what = format!("{:?} {inject} {}: {output:?}", self.arguments, path.display());
                    match output.status.code() {
                        Some(0) => assert_eq!(content(&scene.dir), as_map(self.expected), "{what}"),
                        // After an error, the rollback of an interrupted run continues with the next file.
                        _ if is_interrupted => scene.assert_whole(&what),
                        _ => assert_eq!(content(&scene.dir), before, "{what}"),
                    }
                    ok(&scene.run(&["--uninstall"]));
                    scene.assert_old(&what);
                    runs += 1;
                }
            }
        }
        runs
    }

    fn reset(&self, scene: &Scene) {
        scene.others();
        (self.prepare)(scene);
    }
}

/// The error of a disk or of a network file system does not mean that the file is missing.
#[test]
fn after_an_error_of_a_look_at_a_file_no_file_of_others_is_lost() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    let old = [("bridge", "others' bridge"), ("calico", "calico")];
    let new = [("bridge", NEW), ("calico", "calico"), ("portmap", NEW)];
    let missing = [old[0], old[1], new[2]];
    let renames = renames(&scene, &[]);
    let install = |scene: &Scene| drop(ok(&scene.install(&[])));
    let cases = [
        Case { prepare: &|_| {}, arguments: &[], expected: &new },
        Case { prepare: &install, arguments: &[], expected: &new },
        Case { prepare: &install, arguments: &["--uninstall"], expected: &old },
        Case { prepare: &install, arguments: &["--upgrade", "--reclaim"], expected: &new },
        Case { prepare: &|_| {}, arguments: &["--update", "false"], expected: &missing },
        Case {
            prepare: &|scene| kill_at_rename(scene, &[], &[], 0, renames),
            arguments: &ROLL_BACK,
            expected: &old,
        },
    ];
    let mut runs = 0;
    for case in cases {
        runs += case.sweep(&scene);
    }
    assert!(runs > 60, "{runs}");
}
