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
        if !parent.join(ORIGINAL).exists() {
            replace_by_links(parent);
        }
        fs::create_dir(&path).expect("create a private directory");
    }
    tmpfs(path.to_str().expect("an ASCII path"));
}

/// Where the machine's own directory is in one that was replaced by links. It is read-only, and not below /run, which
/// tests empty as a reboot does: a test must be unable to delete files of the machine.
const ORIGINAL: &str = ".original";

fn replace_by_links(dir: &Path) {
    let staging = Path::new("/run/original");
    fs::create_dir(staging).expect("create a mount point");
    mount(Some(dir), staging, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE).expect("bind a directory");
    for target in mounts_below(staging) {
        let read_only = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
        mount(NONE, &target, NONE, read_only, NONE).expect("make a directory read-only");
    }
    tmpfs(dir.to_str().expect("an ASCII path"));
    let original = dir.join(ORIGINAL);
    fs::create_dir(&original).expect("create a mount point");
    mount(Some(staging), &original, NONE, MsFlags::MS_MOVE, NONE).expect("move a mount");
    fs::remove_dir(staging).expect("delete a mount point");
    for entry in fs::read_dir(&original).expect("list a directory").flatten() {
        // A relative link, such as /etc/os-release, leads nowhere from a directory below.
        let target = fs::read_link(entry.path()).unwrap_or_else(|_| entry.path());
        symlink(target, dir.join(entry.file_name())).expect("link to the original");
    }
}

/// The mounts at and below a directory, without those of the lab (proc_pid_mountinfo(5)).
fn mounts_below(dir: &Path) -> Vec<PathBuf> {
    let all = fs::read_to_string("/proc/thread-self/mountinfo").expect("list mounts");
    let of_machine = all.lines().filter(|line| !line.contains(" - tmpfs lab "));
    let targets = of_machine.filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    targets.filter(|target| target.starts_with(dir)).collect()
}
