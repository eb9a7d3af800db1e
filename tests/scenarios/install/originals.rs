//! The files from before the installation, in `.ferrule/kept`: an installation replaces one only if it succeeds.

use std::fs;

use lab::Lab;

use super::{Scene, calls, content, executable, ok, refused};

const VENDORS: &str = "a vendor's bridge";

/// Installs over the original bridge. Then a vendor replaces it.
fn replaced(scene: &Scene) {
    scene.others();
    ok(&scene.install(&[]));
    fs::remove_file(scene.dir.join("bridge")).unwrap();
    executable(&scene.dir.join("bridge"), VENDORS);
}

fn kept(scene: &Scene) -> String {
    fs::read_to_string(scene.dir.join(".ferrule/kept/bridge")).unwrap()
}

#[test]
fn an_installation_that_fails_keeps_the_original() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    replaced(&scene);
    fs::remove_file(scene.dir.join("portmap")).unwrap();
    fs::create_dir(scene.dir.join("portmap")).unwrap();
    let output = scene.install(&[]);
    refused(&output, "portmap is a directory");
    refused(&output, "nothing was changed");
    fs::remove_dir(scene.dir.join("portmap")).unwrap();
    assert_eq!(kept(&scene), "others' bridge");
    // A vendor's file is the one to restore only after Ferrule's has replaced it.
    ok(&scene.install(&[]));
    assert_eq!(kept(&scene), VENDORS);
    ok(&scene.run(&["--uninstall"]));
    assert_eq!(content(&scene.dir)["bridge"], VENDORS);
}

#[test]
fn an_installation_that_is_killed_keeps_the_original_until_it_is_complete() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    replaced(&scene);
    let changing = ["write", "fsync", "link", "mkdir", "rename", "chmod", "rmdir"];
    let mut calls = calls(&scene, &[]);
    calls.retain(|(name, _)| changing.iter().any(|part| name.contains(part)));
    let (mut undone, mut complete) = (0, 0);
    for (name, nth) in calls {
        replaced(&scene);
        let inject = format!("inject={name}:signal=KILL:when={nth}");
        scene.install_under(&["strace", "-qo", "/dev/null", "-e", &inject], &[]);
        // Changes nothing itself.
        ok(&scene.run(&["--uninstall", "--skip", "bridge,portmap"]));
        let is_undone = content(&scene.dir)["bridge"] == VENDORS;
        let expected = if is_undone { "others' bridge" } else { VENDORS };
        assert_eq!(kept(&scene), expected, "{inject}");
        undone += u32::from(is_undone);
        complete += u32::from(!is_undone);
        ok(&scene.install(&[]));
        ok(&scene.run(&["--uninstall"]));
        assert_eq!(content(&scene.dir)["bridge"], VENDORS, "{inject}");
        assert!(!scene.dir.join(".ferrule").exists(), "{inject}");
    }
    assert!(undone > 10 && complete > 2, "{undone} {complete}");
}
