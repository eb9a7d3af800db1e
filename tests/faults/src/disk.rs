//! Disks that are full or may not be written to.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::sys::statvfs::{Statvfs, statvfs};

use super::harm::{Harm, Lift};
use lab::Lab;

/// The disk that all plugins keep their things on.
pub(super) const DISK: &str = "/var/lib/cni";
/// More blocks, or inodes, than any verb needs.
const ENOUGH: u64 = 8;
/// Where a file of all of ext4's free blocks, and files of all of its inodes are put.
const BALLAST: &str = "/var/lib/cni/.ballast";

/// How much is left.
#[derive(Clone, Copy, Debug)]
enum Room {
    Blocks(u64),
    Inodes(u64),
}

/// One disk for all that plugins keep, in memory.
pub(super) fn tmpfs(lab: &Lab) {
    share(lab);
}

/// One disk for all that plugins keep, of 4 MB with ext4 on it.
pub(super) fn ext4(lab: &Lab) {
    lab.host().sh(&format!(
        "truncate -s 4M /run/lab/plugins/disk
         mkfs.ext4 -q -b 1024 -N 128 -m 0 /run/lab/plugins/disk
         mount -o loop /run/lab/plugins/disk {DISK}"
    ));
    share(lab);
}

/// tuning's folder is on it, too.
fn share(lab: &Lab) {
    lab.host().sh(&format!("mkdir -p {DISK}/run /run/cni; mount --bind {DISK}/run /run/cni"));
}

/// Every number of free blocks, and of free inodes, up to where there are enough.
pub(super) fn full(file_system: &str, culprit: &str) -> Vec<Harm> {
    let rooms = (0..=ENOUGH).flat_map(|n| [Room::Blocks(n), Room::Inodes(n)]);
    let harm = |room| {
        let label = format!("full disk, {file_system}");
        let enough = matches!(room, Room::Blocks(ENOUGH) | Room::Inodes(ENOUGH));
        Harm {
            inflict: Box::new(move || fill(room)),
            culprit: Some(culprit.to_owned()),
            // To remove takes no room, and neither does to look.
            spares: if enough { &["ADD", "DEL", "CHECK", "GC", "STATUS"] } else { &["DEL", "CHECK", "GC"] },
            ..Harm::new(&label, format!("{room:?} free"))
        }
    };
    rooms.map(harm).collect()
}

/// A disk that was made read-only, as the kernel does with one that fails.
pub(super) fn read_only(culprit: &str) -> Harm {
    Harm {
        inflict: Box::new(|| {
            remount(DISK, MsFlags::MS_RDONLY, None);
            Box::new(|| {
                remount(DISK, MsFlags::empty(), None);
                None
            })
        }),
        culprit: Some(culprit.to_owned()),
        ..Harm::new("read-only disk", String::new())
    }
}

/// /proc or /sys as in a container that is not privileged.
pub(super) fn read_only_kernel(at: &'static str) -> Harm {
    Harm {
        inflict: Box::new(move || {
            remount(at, MsFlags::MS_BIND | MsFlags::MS_RDONLY, None);
            Box::new(move || {
                remount(at, MsFlags::MS_BIND, None);
                None
            })
        }),
        culprit: Some(at.to_owned()),
        // What an ADD has set goes with its interface.
        spares: &["DEL", "CHECK", "GC", "STATUS"],
        ..Harm::new("read-only /proc, /sys", at.to_owned())
    }
}

fn remount(at: &str, flags: MsFlags, data: Option<&str>) {
    mount(None::<&str>, at, None::<&str>, MsFlags::MS_REMOUNT | flags, data)
        .unwrap_or_else(|e| panic!("mount {at} again: {e}"));
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
    fs::create_dir(BALLAST).expect("a folder for ballast");
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
    // What was freed is free once the journal says so.
    sync();
}

fn sync() {
    let folder = File::open(DISK).expect("open the disk");
    nix::unistd::syncfs(&folder).expect("write the disk's journal");
}
