//! Unusual content in place of a file, for the time of a run.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use crate::env_fault::Lift;
use crate::plugin_file::Owner;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Content {
    Garbage,
    Empty,
    TenMegabytesOfZeros,
    EmptyDirectory,
    Directory,
    LinkOutside,
    LinkToNowhere,
    Fifo,
    Socket,
    DevZero,
}

pub(crate) const CONTENTS: [Content; 10] = [
    Content::Garbage,
    Content::Empty,
    Content::TenMegabytesOfZeros,
    Content::EmptyDirectory,
    Content::Directory,
    Content::LinkOutside,
    Content::LinkToNowhere,
    Content::Fifo,
    Content::Socket,
    Content::DevZero,
];

/// A file that a plugin must not touch.
const OUTSIDE: &str = "/run/lab/plugins/outside";
const NOWHERE: &str = "/run/lab/plugins/nowhere";
const WORDS: &str = "somebody's words\n";

/// Replaces the file until the returned closure runs.
pub(crate) fn inflict(path: &Path, content: Content, owner: Owner) -> Lift {
    let path = path.to_owned();
    let outside = Outside::new();
    let previous = Previous::take(&path, content);
    content.put(&path);
    let put = identity(&path);
    Box::new(move || {
        if identity(&path).is_some_and(|now| Some(now) == put) {
            remove(&path);
        }
        previous.put_back(&path);
        outside.touched(owner)
    })
}

/// The previous content of a path.
enum Previous {
    Nothing,
    /// A file that is overwritten in place, so that its directory does not change.
    Text(Vec<u8>),
    Aside(PathBuf),
}

impl Previous {
    fn take(path: &Path, content: Content) -> Self {
        let in_place = matches!(content, Content::Garbage | Content::Empty | Content::TenMegabytesOfZeros)
            && path.is_file();
        if in_place {
            return Self::Text(fs::read(path).expect("read what is there"));
        }
        let aside = path.with_file_name(".aside");
        match fs::rename(path, &aside) {
            Ok(()) => Self::Aside(aside),
            Err(_) => Self::Nothing,
        }
    }

    /// A plugin may have written its own file meanwhile.
    fn put_back(self, path: &Path) {
        let taken = path.symlink_metadata().is_ok();
        match self {
            Self::Nothing => {}
            Self::Text(bytes) if !taken => fs::write(path, bytes).expect("put back what was there"),
            Self::Text(_) => {}
            Self::Aside(aside) if taken => remove(&aside),
            Self::Aside(aside) => fs::rename(aside, path).expect("put back what was there"),
        }
    }
}

impl Content {
    fn put(self, path: &Path) {
        fs::create_dir_all(path.parent().expect("a directory")).expect("create a directory");
        match self {
            Self::Garbage => fs::write(path, b"\xff{\"\x00garbage\n\n").expect("write garbage"),
            Self::Empty => drop(File::create(path).expect("create a file")),
            Self::TenMegabytesOfZeros => fs::write(path, vec![0; 10 << 20]).expect("write zeros"),
            Self::EmptyDirectory => fs::create_dir(path).expect("create a directory"),
            Self::Directory => fs::create_dir_all(path.join("directory")).expect("create a directory"),
            Self::LinkOutside => symlink(OUTSIDE, path).expect("create a link"),
            Self::LinkToNowhere => symlink(NOWHERE, path).expect("create a link"),
            Self::Fifo => node(path, SFlag::S_IFIFO, 0),
            Self::Socket => drop(UnixListener::bind(path).expect("create a socket")),
            Self::DevZero => node(path, SFlag::S_IFCHR, makedev(1, 5)),
        }
    }
}

fn node(path: &Path, kind: SFlag, device: u64) {
    mknod(path, kind, Mode::from_bits_truncate(0o600), device).expect("create a node");
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    path.symlink_metadata().ok().map(|there| (there.dev(), there.ino()))
}

fn remove(path: &Path) {
    let is_directory = path.symlink_metadata().is_ok_and(|there| there.is_dir());
    let removed = if is_directory { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    removed.unwrap_or_else(|e| panic!("remove {}: {e}", path.display()));
}

/// A file that links lead to, and how to see that it was touched.
struct Outside {
    times: [(i64, i64); 2],
}

impl Outside {
    fn new() -> Self {
        fs::write(OUTSIDE, WORDS).expect("write a file");
        // Read before it was last written, so that the kernel updates the access time at the next read.
        let file = File::options().write(true).open(OUTSIDE).expect("open a file");
        let before = SystemTime::now() - Duration::from_secs(60);
        let times = fs::FileTimes::new().set_accessed(before - Duration::from_secs(60)).set_modified(before);
        file.set_times(times).expect("set a file's times");
        Self { times: Self::times() }
    }

    fn times() -> [(i64, i64); 2] {
        let file = fs::symlink_metadata(OUTSIDE).expect("look at a file");
        [(file.atime(), file.atime_nsec()), (file.mtime(), file.mtime_nsec())]
    }

    fn touched(&self, through: Owner) -> Option<String> {
        let [read, written] = Self::times();
        let created = fs::remove_file(NOWHERE).is_ok();
        if through == Owner::Tool {
            return None;
        }
        if written != self.times[1] || fs::read_to_string(OUTSIDE).ok()? != WORDS {
            return Some("a file outside was written to".to_owned());
        }
        if created {
            return Some("a file outside was created".to_owned());
        }
        (through != Owner::Administrator && read != self.times[0])
            .then(|| "a file outside was read".to_owned())
    }
}
