//! A private view of the file system, so that files of plugins are deleted with the lab.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};

const NONE: Option<&str> = None;

/// Call this in a new mount namespace, in a thread that is already in the lab's network namespace: sysfs shows the
/// network namespace of the process that mounts it.
pub fn make_private() {
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE).unwrap_or_else(|e| {
        panic!("make mounts private: {e} (in a chroot, its root has to be a mount point: mount --bind)")
    });
    tmpfs("/run");
    mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), NONE).expect("mount sysfs");
    for (parent, child) in [("/var/lib", "cni"), ("/etc", "cni")] {
        private_child(Path::new(parent), child);
    }
    fs::create_dir_all("/run/netns").expect("create /run/netns");
}

pub fn tmpfs(at: &str) {
    mount(Some("lab"), at, Some("tmpfs"), MsFlags::empty(), Some("mode=755"))
        .unwrap_or_else(|e| panic!("mount tmpfs on {at}: {e}"));
}

/// Mounts an empty directory at parent/child, even if the machine does not have the path. A parent without it is
/// replaced by links to its contents, because nothing may be created on the machine itself.
pub fn private_child(parent: &Path, child: &str) {
    let path = parent.join(child);
    if !path.is_dir() {
        if !original(parent).exists() {
            replace_by_links(parent);
        }
        fs::create_dir(&path).expect("create a private directory");
    }
    tmpfs(path.to_str().expect("an ASCII path"));
}

/// The original of a directory that was replaced by links.
fn original(dir: &Path) -> PathBuf {
    Path::new("/run/original").join(dir.strip_prefix("/").expect("an absolute path"))
}

fn replace_by_links(dir: &Path) {
    let original = original(dir);
    fs::create_dir_all(&original).expect("create a mount point");
    mount(Some(dir), &original, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE).expect("bind a directory");
    tmpfs(dir.to_str().expect("an ASCII path"));
    for entry in fs::read_dir(&original).expect("list a directory").flatten() {
        symlink(entry.path(), dir.join(entry.file_name())).expect("link to the original");
    }
}
