//! Installation into file systems that lack features, such as hard links, or free space.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lab::{Feature, Lab, ours, quoted, skip, together, unpacked, until};

use super::{NEW, Scene, as_map, content, executable, install, ok, refused};

/// Installs links to one executable over a running program, then single executables, and uninstalls them. Returns the first run's output.
fn is_used(lab: &Lab, dir: &Path, under: &[&str]) -> String {
    let (links, singles) = (together(), ours());
    let (links, singles) = (links.to_str().unwrap(), singles.to_str().unwrap());
    let plugins = "bridge,portmap";
    fs::create_dir_all(dir).unwrap();
    lab.host().sh(&format!("cp /bin/sleep {}/bridge", dir.display()));
    let mut running = Command::new(dir.join("bridge"));
    let mut running = running.arg("600").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut said = Vec::new();
    for from in [&["--link", "--from", links][..], &["--from", singles]] {
        let from = [from, &["--only", plugins]].concat();
        said.push(ok(&install(dir, &from, under)));
        ok(&install(dir, &[&from[..], &["--check"]].concat(), &[]));
        for plugin in plugins.split(',') {
            lab.plugin(plugin).in_dir(dir).run("VERSION").ok_result();
        }
    }
    ok(&install(dir, &["--uninstall"], under));
    assert_eq!(running.try_wait().unwrap(), None);
    running.kill().unwrap();
    running.wait().unwrap();
    assert!(fs::read(dir.join("bridge")).unwrap() == fs::read("/bin/sleep").unwrap());
    is_left_with_bridge(dir);
    said.remove(0)
}

/// Waits until the directory contains only bridge. While a removed file is open, FUSE keeps it with another name.
fn is_left_with_bridge(dir: &Path) {
    until("only bridge is left", || {
        ok(&install(dir, &["--uninstall"], &[]));
        let entries: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        entries == ["bridge"]
    });
}

#[test]
fn on_a_file_system_without_hard_links_and_modes_plugins_are_copies() {
    let lab = Lab::new();
    let without = ["inject=?link,linkat:error=EPERM", "inject=?chmod,fchmod,fchmodat:error=EPERM"];
    let under = ["strace", "-qo", "/dev/null", "-e", without[0], "-e", without[1]];
    let said = is_used(&lab, &lab.dir().join("bin"), &under);
    assert!(said.contains("without hard links: each plugin is a copy"), "{said}");
}

/// A file system on a loop device.
struct Disk<'a> {
    lab: &'a Lab,
    device: String,
    dir: PathBuf,
}

impl<'a> Disk<'a> {
    /// exFAT through FUSE, because minimal kernels do not support FAT.
    fn exfat(lab: &'a Lab) -> Option<Self> {
        Self::mount(lab, "truncate -s 48M $1 && mkfs.exfat $1 >/dev/null", "mount.exfat-fuse $1 $2")
    }

    /// A file system whose files can share blocks: btrfs or xfs. `tree` contains the tools.
    fn with_reflinks(lab: &'a Lab, tree: &Path, kind: &str) -> Option<Self> {
        let (tree, arguments) = (quoted(tree), if kind == "xfs" { "-q -m reflink=1" } else { "-q" });
        let make = format!(
            "truncate -s 320M $1 && LD_LIBRARY_PATH={tree}/usr/lib/x86_64-linux-gnu:{tree}/lib/x86_64-linux-gnu {tree}/sbin/mkfs.{kind} {arguments} $1"
        );
        Self::mount(lab, &make, &format!("mount -t {kind} $1 $2"))
    }

    fn mount(lab: &'a Lab, make: &str, mount: &str) -> Option<Self> {
        let (image, dir) = (lab.dir().join("image"), lab.dir().join("disk"));
        fs::create_dir_all(&dir).unwrap();
        let device = Self::try_sh(lab, &format!("{make} && losetup --find --show $1"), &[&image])?;
        let this = Self { lab, device: device.trim().to_owned(), dir };
        Self::try_sh(lab, mount, &[Path::new(&this.device), &this.dir]).map(|_| this)
    }

    /// Runs a shell and returns its output, or `None` if it fails.
    fn try_sh(lab: &Lab, line: &str, arguments: &[&Path]) -> Option<String> {
        let words = ["sh", "-ec", line, "sh"].map(Path::new);
        let output = lab.host().try_exec(&[&words, arguments].concat());
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        Self::try_sh(self.lab, "umount --lazy $1", &[&self.dir]);
        Self::try_sh(self.lab, "losetup --detach $1", &[Path::new(&self.device)]);
    }
}

/// On these file systems too, `--link` creates hard links, not copies that share blocks: a plugin calls another one in its own process only if
/// both are the same file. A copy that shares blocks has the same content, so `--check` and an upgrade accept it.
#[test]
fn on_file_systems_with_reflinks_link_creates_hard_links_and_check_accepts_a_reflinked_copy() {
    let Some(tree) = unpacked("file-systems") else { return };
    for kind in ["btrfs", "xfs"] {
        let lab = Lab::new();
        let Some(disk) = Disk::with_reflinks(&lab, &tree, kind) else {
            return skip(&format!("{kind} needs a loop device and a kernel that knows it"));
        };
        let dir = disk.dir.join("bin");
        let said = is_used(&lab, &dir, &[]);
        assert!(!said.contains("without hard links"), "{kind}: {said}");

        let from =
            ["--link", "--from", together().to_str().unwrap(), "--only", "bridge,tap"].map(str::to_owned);
        let from: Vec<&str> = from.iter().map(String::as_str).collect();
        ok(&install(&dir, &from, &[]));
        let inode = |name: &str| fs::metadata(dir.join(name)).unwrap().ino();
        assert_eq!(inode("bridge"), inode("tap"), "{kind}");
        // The operator replaces the hard link by a copy that shares blocks: tap is now a separate file.
        let separate = format!("cd {0}; cp --reflink=always tap own; mv own tap", dir.display());
        lab.host().sh(&separate);
        assert_ne!(inode("bridge"), inode("tap"), "{kind}");
        ok(&install(&dir, &[&from[..], &["--check"]].concat(), &[]));
        lab.plugin("tap").in_dir(&dir).run("VERSION").ok_result();
        ok(&install(&dir, &["--uninstall"], &[]));
        is_left_with_bridge(&dir);
    }
}

#[test]
fn on_exfat_plugins_are_copies() {
    let lab = Lab::new();
    let Some(exfat) = Disk::exfat(&lab) else {
        return skip("exFAT needs a loop device and FUSE (/dev/loop-control, /dev/fuse)");
    };
    let said = is_used(&lab, &exfat.dir.join("bin"), &[]);
    assert!(said.contains("without hard links: each plugin is a copy"), "{said}");

    // There is no space for a copy of each plugin.
    let output = install(&exfat.dir.join("bin"), &["--link", "--from", together().to_str().unwrap()], &[]);
    refused(&output, "free disk space");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("without hard links"), "{said}");
    is_left_with_bridge(&exfat.dir.join("bin"));
}

#[test]
fn an_installation_into_an_overlay_works() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    let mount = "mkdir $1 && mount -t tmpfs overlay $1 && mkdir $1/upper $1/work && \
                 mount -t overlay -o lowerdir=\"$2\",upperdir=$1/upper,workdir=$1/work overlay \"$2\"";
    if Disk::try_sh(&lab, mount, &[&lab.dir().join("overlay"), &scene.dir]).is_none() {
        return skip("this kernel has no overlay");
    }
    scene.assert_old("before");
    ok(&scene.install(&[]));
    scene.assert_new("installed");
    executable(&scene.from.join("bridge"), &NEW.replace("1.1.0", "1.2.0"));
    ok(&scene.install(&[]));
    ok(&scene.install(&["--check"]));
    ok(&scene.run(&["--uninstall"]));
    scene.assert_old("uninstalled");
}

#[test]
fn if_one_file_cannot_be_replaced_none_is_installed_until_it_is_skipped() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    let (mounted, portmap) = (lab.dir().join("mounted"), scene.dir.join("portmap"));
    fs::write(&mounted, "mounted").unwrap();
    fs::write(&portmap, "").unwrap();
    lab.host().sh(&format!("mount --bind {} '{}'", mounted.display(), portmap.display()));
    let old = [("bridge", "others' bridge"), ("calico", "calico"), ("portmap", "mounted")];
    let output = scene.install(&[]);
    for words in ["busy", "exclude it with --skip", "nothing was changed"] {
        refused(&output, words);
    }
    assert_eq!(content(&scene.dir), as_map(&old));
    assert!(!scene.dir.join(".ferrule").exists());

    ok(&scene.install(&["--skip", "portmap"]));
    assert_eq!(content(&scene.dir), as_map(&[("bridge", NEW), old[1], old[2]]));
    ok(&scene.run(&["--uninstall"]));
    assert_eq!(content(&scene.dir), as_map(&old));
}

#[test]
fn an_immutable_file_or_directory_keeps_all_from_being_installed_and_the_message_names_lsattr() {
    if !Feature::Ext4.is_there() {
        return skip("ext4 needs a loop device");
    }
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    let (image, dir) = (lab.dir().join("ext4"), scene.dir.display());
    lab.host().sh(&format!(
        "truncate -s 4M {0} && mkfs.ext4 -q {0} && mount -o loop {0} '{dir}' && rmdir '{dir}/lost+found'",
        image.display()
    ));
    for name in ["bridge", "calico"] {
        executable(&scene.dir.join(name), "old");
    }
    let old = content(&scene.dir);
    for immutable in [scene.dir.join("bridge"), scene.dir.clone()] {
        lab.host().sh(&format!("chattr +i '{}'", immutable.display()));
        refused(&scene.install(&[]), "lsattr shows");
        lab.host().sh(&format!("chattr -i '{}'", immutable.display()));
        assert_eq!(content(&scene.dir), old);
        assert!(!scene.dir.join(".ferrule").exists());
    }
    ok(&scene.install(&[]));
    ok(&scene.run(&["--uninstall"]));
    assert_eq!(content(&scene.dir), old);
}

/// ext4 uses the inode number of a removed file for the next one.
#[test]
fn another_vendors_hard_links_with_the_inode_number_of_a_removed_plugin_are_not_ours() {
    if !Feature::Ext4.is_there() {
        return skip("ext4 needs a loop device");
    }
    let lab = Lab::new();
    let (image, dir) = (lab.dir().join("ext4"), lab.dir().join("bin"));
    fs::create_dir(&dir).unwrap();
    let [image, mount] = [&image, &dir].map(|path| path.display());
    lab.host().sh(&format!(
        "truncate -s 32M {image} && mkfs.ext4 -q -I 256 {image} && mount -o loop {image} {mount}"
    ));
    let from = together().to_str().unwrap().to_owned();
    ok(&install(&dir, &["--from", &from, "--only", "bridge,tap"], &[]));
    let [bridge, tap] = ["bridge", "tap"].map(|name| dir.join(name));
    let ours = fs::metadata(&bridge).unwrap().ino();
    for plugin in [&bridge, &tap] {
        fs::remove_file(plugin).unwrap();
    }
    lab.host().exec(&["sync"]);
    let others = (0..2000).map(|nth| dir.join(format!("other {nth}"))).find(|path| {
        fs::write(path, "others'").unwrap();
        fs::metadata(path).unwrap().ino() == ours
    });
    let others = others.expect("ext4 uses the inode number again");
    for plugin in [&bridge, &tap] {
        fs::hard_link(&others, plugin).unwrap();
    }
    let said = ok(&install(&dir, &["--uninstall"], &[]));
    for plugin in [&bridge, &tap] {
        assert!(said.contains(&format!("kept {}", plugin.display())), "{said}");
        assert_eq!(fs::read_to_string(plugin).unwrap(), "others'");
    }
}

#[test]
fn a_user_who_may_not_write_changes_nothing_and_the_message_says_to_run_it_as_root() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    fs::set_permissions(lab.dir(), fs::Permissions::from_mode(0o755)).unwrap();
    let under = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let output = scene.install_under(&under, &[]);
    refused(&output, "Permission denied (run it as root");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("lsattr"), "{output:?}");
    scene.assert_old("after a run without permission");
}

#[test]
fn however_little_room_is_left_all_is_old_or_all_is_new() {
    let lab = Lab::new();
    let scene = Scene::new(&lab);
    let newer = lab.dir().join("newer");
    fs::create_dir(&newer).unwrap();
    let newest = NEW.replace("1.1.0", "1.2.0");
    for name in ["bridge", "portmap"] {
        executable(&newer.join(name), &newest);
    }
    let (newer, from) = (newer.to_str().unwrap(), scene.from.to_str().unwrap());
    let (dir, ballast) = (scene.dir.display(), scene.dir.join("ballast"));
    let (install_new, upgrade): (&[_], &[_]) = (&["--from", from], &["--from", newer]);
    let uninstall: &[_] = &["--uninstall"];
    let (mut refusals, mut successes) = (0, 0);
    for pages in 0..12 {
        for (earlier, arguments) in
            [(None, install_new), (Some(install_new), upgrade), (Some(install_new), uninstall)]
        {
            lab.host().sh(&format!("mount -t tmpfs -o size=1m disk '{dir}'"));
            scene.others_in_place();
            if let Some(earlier) = earlier {
                ok(&scene.run(earlier));
            }
            let old = content(&scene.dir);
            lab.host().sh(&format!(
                "cd '{dir}'; head -c $((($(stat -f -c %f .) - {pages}) * $(stat -f -c %S .))) /dev/zero >ballast"
            ));
            let output = scene.run(arguments);
            fs::remove_file(&ballast).unwrap();
            let what = format!("{arguments:?} in {pages} pages: {output:?}");
            if output.status.success() {
                successes += 1;
                let new = if arguments == upgrade { &newest } else { NEW };
                match arguments == uninstall {
                    true => scene.assert_old(&what),
                    false => assert_eq!(
                        content(&scene.dir),
                        as_map(&[("bridge", new), ("calico", "calico"), ("portmap", new)]),
                        "{what}"
                    ),
                }
            } else {
                refusals += 1;
                refused(&output, "nothing was changed");
                assert_eq!(content(&scene.dir), old, "{what}");
            }
            ok(&scene.run(install_new));
            ok(&scene.run(uninstall));
            scene.assert_old(&what);
            // Lazy, because a child of another thread may still have a file open while it starts.
            lab.host().sh(&format!("umount --lazy '{dir}'"));
        }
    }
    assert!(refusals > 5 && successes > 5, "{refusals} {successes}");
}
