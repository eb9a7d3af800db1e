//! Full and read-only disks.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sys::statvfs::{Statvfs, statvfs};

use crate::env_fault::{EnvFault, Lift};
use crate::target::COMMANDS;

use lab::Lab;

/// The disk with all files of the plugins.
pub(crate) const DISK: &str = "/var/lib/cni";
/// More blocks, or inodes, than any command needs.
const ENOUGH: u64 = 8;
/// Files that use up ext4's free blocks or inodes.
const BALLAST: &str = "/var/lib/cni/.ballast";

/// The free space of a disk.
#[derive(Clone, Copy, Debug)]
enum Room {
    Blocks(u64),
    Inodes(u64),
}

/// A file system for all files of a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Disk {
    Memory,
    /// ext4 of 4 MB.
    Ext4,
}

impl Disk {
    /// Mounts it, with a directory on it.
    pub(crate) fn mount(self, lab: &Lab, directory: &str) {
        let image = Lab::plugin_dir().join("disk").display().to_string();
        let disk = match self {
            Self::Memory => String::new(),
            Self::Ext4 => format!(
                "truncate -s 4M {image}
                 mkfs.ext4 -q -b 1024 -N 128 -m 0 {image}
                 mount -o loop {image} {DISK}"
            ),
        };
        lab.host().sh(&disk);
        if !directory.starts_with(DISK) {
            // The plugin creates its directory, in one that is on the disk.
            let above = Path::new(directory).parent().expect("a directory").display();
            lab.host().sh(&format!("mkdir -p {DISK}{above} {above}; mount --bind {DISK}{above} {above}"));
        }
    }
}

/// The object that an error has to name. If both a plugin and its delegate write to the disk, either may report the
/// failure first.
fn culprit(directory: &str) -> Option<String> {
    Some(if directory.starts_with(DISK) { DISK } else { directory }.to_owned())
}

/// Every number of free blocks and free inodes, until there are enough.
pub(crate) fn full(disk: Disk, directory: &str) -> Vec<EnvFault> {
    let rooms = (0..=ENOUGH).flat_map(|n| [Room::Blocks(n), Room::Inodes(n)]);
    let fault = |room| {
        let label = if disk == Disk::Memory { "full disk, tmpfs" } else { "full disk, ext4" };
        let enough = matches!(room, Room::Blocks(ENOUGH) | Room::Inodes(ENOUGH));
        EnvFault {
            inflict: Box::new(move |_| fill(room)),
            culprit: culprit(directory),
            // Removing and checking need no space.
            spares: if enough { &COMMANDS } else { &["DEL", "CHECK", "GC"] },
            ..EnvFault::new(label, format!("{room:?} free"))
        }
    };
    rooms.map(fault).collect()
}

/// A disk that was remounted read-only, as the kernel does with a failing one.
pub(crate) fn read_only(directory: &str) -> EnvFault {
    EnvFault {
        inflict: Box::new(|_| write_protect(DISK, MsFlags::empty())),
        culprit: culprit(directory),
        keeps_files: true,
        ..EnvFault::new("read-only disk", String::new())
    }
}

/// /proc or /sys as in an unprivileged container.
pub(crate) fn read_only_kernel(at: &'static str) -> EnvFault {
    EnvFault {
        inflict: Box::new(move |_| write_protect(at, MsFlags::MS_BIND)),
        culprit: Some(at.to_owned()),
        // The settings by an ADD are deleted with its interface.
        spares: &["DEL", "CHECK", "GC", "STATUS"],
        ..EnvFault::new("read-only /proc, /sys", at.to_owned())
    }
}

fn write_protect(at: &'static str, flags: MsFlags) -> Lift {
    remount(at, flags | MsFlags::MS_RDONLY, None);
    Box::new(move || {
        remount(at, flags, None);
        None
    })
}

fn remount(at: &str, flags: MsFlags, data: Option<&str>) {
    let again = || mount(None::<&str>, at, None::<&str>, MsFlags::MS_REMOUNT | flags, data);
    let (start, mut mounted) = (Instant::now(), again());
    // A child process that another thread has just started may keep a file open for writing until its execve(2).
    while mounted == Err(Errno::EBUSY) && start.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(10));
        mounted = again();
    }
    mounted.unwrap_or_else(|e| panic!("mount {at} again: {e}"));
}

fn fill(room: Room) -> Lift {
    let disk = statvfs(DISK).expect("look at the disk");
    let is_tmpfs = !Path::new(DISK).join("lost+found").exists();
    if is_tmpfs {
        fill_tmpfs(&disk, room)
    } else {
        fill_ext4(room)
    }
    Box::new(move || {
        if is_tmpfs {
            remount(DISK, MsFlags::empty(), Some("size=64m,nr_inodes=10000"));
        } else {
            fs::remove_dir_all(BALLAST).expect("remove the ballast");
            sync();
        }
        None
    })
}

fn fill_tmpfs(disk: &Statvfs, room: Room) {
    let limit = match room {
        Room::Blocks(n) => {
            format!("size={}", (disk.blocks() - disk.blocks_free() + n) * disk.fragment_size())
        }
        Room::Inodes(n) => format!("nr_inodes={}", disk.files() - disk.files_free() + n),
    };
    remount(DISK, MsFlags::empty(), Some(&limit));
}

fn fill_ext4(room: Room) {
    fs::create_dir(BALLAST).expect("a directory for ballast");
    let path = |n: u64| PathBuf::from(BALLAST).join(n.to_string());
    match room {
        Room::Blocks(n) => {
            let mut file = File::create(path(0)).expect("a file for ballast");
            while file.write_all(&[1; 1024]).is_ok() {}
            sync();
            let length = file.metadata().expect("the ballast's length").len();
            file.set_len(length - n * 1024).expect("make room");
        }
        Room::Inodes(n) => {
            let files = (0..).take_while(|n| File::create(path(*n)).is_ok()).count() as u64;
            (0..n.min(files)).for_each(|n| fs::remove_file(path(n)).expect("make room"));
        }
    }
    // Freed blocks are usable only after a commit of the journal.
    sync();
}

fn sync() {
    let directory = File::open(DISK).expect("open the disk");
    nix::unistd::syncfs(&directory).expect("write the disk's journal");
}
