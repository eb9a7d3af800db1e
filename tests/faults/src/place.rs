//! Something else where a plugin's file should be.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use super::harm::{Harm, Lift};

/// A path that is read or written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    label: &'static str,
    /// With a `.` at its end, the address that was last given out completes it.
    path: &'static str,
    whose: Whose,
}

/// Who writes it, and so what may be expected of a plugin.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Whose {
    Plugins,
    /// The same, and it is a folder: another one in its place is as good.
    PluginsFolder,
    /// Maybe as a link.
    Administrators,
    /// A program's that plugins start.
    Tools,
}

#[derive(Clone, Copy, Debug)]
enum Content {
    Garbage,
    Empty,
    TenMegabytesOfZeros,
    EmptyFolder,
    Folder,
    LinkOutside,
    LinkToNowhere,
    Fifo,
    Socket,
    DevZero,
}

const CONTENTS: [Content; 10] = [
    Content::Garbage,
    Content::Empty,
    Content::TenMegabytesOfZeros,
    Content::EmptyFolder,
    Content::Folder,
    Content::LinkOutside,
    Content::LinkToNowhere,
    Content::Fifo,
    Content::Socket,
    Content::DevZero,
];

/// A file that is none of a plugin's business.
const OUTSIDE: &str = "/run/lab/plugins/outside";
const NOWHERE: &str = "/run/lab/plugins/nowhere";
const WORDS: &str = "somebody's words\n";

const fn own(label: &'static str, path: &'static str) -> Place {
    Place { label, path, whose: Whose::Plugins }
}

const fn folder(label: &'static str, path: &'static str) -> Place {
    Place { label, path, whose: Whose::PluginsFolder }
}

const fn administrators(label: &'static str, path: &'static str) -> Place {
    Place { label, path, whose: Whose::Administrators }
}

pub(super) const HOST_LOCAL: [Place; 11] = [
    folder("dataDir", "/var/lib/cni/networks"),
    folder("the network's folder", "/var/lib/cni/networks/net"),
    own("lock", "/var/lib/cni/networks/net/lock"),
    own(".lock", "/var/lib/cni/networks/net/.lock"),
    own(".index", "/var/lib/cni/networks/net/.index"),
    own(".new", "/var/lib/cni/networks/net/.new"),
    own(".boot_id", "/var/lib/cni/networks/net/.boot_id"),
    own("last_reserved_ip.0", "/var/lib/cni/networks/net/last_reserved_ip.0"),
    own("the next lease", NEXT_LEASE),
    own("the attachment's lease", "/var/lib/cni/networks/net/10.1.2."),
    administrators("resolvConf", "/etc/cni/resolv.conf"),
];

const NEXT_LEASE: &str = "/var/lib/cni/networks/net/10.1.2.100";
const LAST_RESERVED: &str = "/var/lib/cni/networks/net/last_reserved_ip.0";

pub(super) const TUNING: [Place; 4] = [
    folder("dataDir", "/run/cni/tuning"),
    own("the backup", "/run/cni/tuning/victim_eth0.json"),
    own("the new backup", "/run/cni/tuning/.new.net~victim_eth0.json"),
    administrators("the allowlist", "/etc/cni/tuning/allowlist.conf"),
];

pub(super) const CNITOOL: [Place; 5] = [
    folder("the results", "/var/lib/cni/results"),
    own("results.lock", "/var/lib/cni/results.lock"),
    own("the result", "/var/lib/cni/results/net-victim-eth0"),
    administrators("the network's file", "/etc/cni/net.d/net.conflist"),
    administrators("another network's file", "/etc/cni/net.d/00-other.conflist"),
];

/// The lock of the iptables tools.
pub(super) const XTABLES: [Place; 1] =
    [Place { label: "/run/xtables.lock", path: "/run/xtables.lock", whose: Whose::Tools }];

impl Place {
    /// Brings about that it is used, and tells where it is.
    fn path(&self) -> PathBuf {
        if self.path == NEXT_LEASE {
            fs::write(LAST_RESERVED, "10.1.2.99").expect("set where host-local goes on");
        }
        if !self.path.ends_with('.') {
            return self.path.into();
        }
        let last = fs::read_to_string(LAST_RESERVED).unwrap_or_default();
        Path::new(self.path).with_file_name(last.trim())
    }

    /// Leases and networks are looked for in a folder: where there is none, the error names that.
    fn culprit(&self) -> Option<String> {
        let folders = ["/var/lib/cni/networks/net/10.", "/etc/cni/net.d/"];
        let in_folder = folders.iter().any(|start| self.path.starts_with(start));
        let folder = Path::new(self.path).parent().and_then(Path::to_str).filter(|_| in_folder);
        (self.whose != Whose::Tools).then(|| folder.unwrap_or(self.path).to_owned())
    }

    fn may_be(&self, content: Content) -> bool {
        self.whose != Whose::PluginsFolder || !matches!(content, Content::EmptyFolder | Content::Folder)
    }
}

/// Everything that a place can be instead.
pub(super) fn hostile(places: &[Place]) -> Vec<Harm> {
    let cases = places.iter().flat_map(|place| CONTENTS.map(|content| (*place, content)));
    cases
        .filter(|(place, content)| place.may_be(*content))
        .map(|(place, content)| harm(place, content))
        .collect()
}

fn harm(place: Place, content: Content) -> Harm {
    // One that waits for ever, or reads without end, is stopped.
    let guard = ["timeout", "-s", "KILL", "60", "prlimit", "--data=600000000:"].map(str::to_owned);
    Harm {
        inflict: Box::new(move || inflict(place, content)),
        vary: Box::new(move |call| call.under(&guard)),
        culprit: place.culprit(),
        hides: true,
        ..Harm::new("hostile files", format!("{content:?} at {}", place.label))
    }
}

fn inflict(place: Place, content: Content) -> Lift {
    let path = place.path();
    let outside = Outside::new();
    let kept = Kept::take(&path, content);
    content.put(&path);
    let put = identity(&path);
    Box::new(move || {
        if identity(&path).is_some_and(|now| Some(now) == put) {
            remove(&path);
        }
        kept.put_back(&path);
        outside.touched(place.whose)
    })
}

/// What was at a place before.
enum Kept {
    Nothing,
    /// A file that is written over, so that its folder does not change.
    Text(Vec<u8>),
    Aside(PathBuf),
}

impl Kept {
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

    /// A plugin may have put its own there meanwhile.
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
        fs::create_dir_all(path.parent().expect("a folder")).expect("create a folder");
        match self {
            Self::Garbage => fs::write(path, b"\xff{\"\x00garbage\n\n").expect("write garbage"),
            Self::Empty => drop(File::create(path).expect("create a file")),
            Self::TenMegabytesOfZeros => fs::write(path, vec![0; 10 << 20]).expect("write zeros"),
            Self::EmptyFolder => fs::create_dir(path).expect("create a folder"),
            Self::Folder => fs::create_dir_all(path.join("folder")).expect("create a folder"),
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
    let folder = path.symlink_metadata().is_ok_and(|there| there.is_dir());
    let removed = if folder { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    removed.unwrap_or_else(|e| panic!("remove {}: {e}", path.display()));
}

/// A file that links lead to, and what shows that it was touched.
struct Outside {
    times: [(i64, i64); 2],
}

impl Outside {
    fn new() -> Self {
        fs::write(OUTSIDE, WORDS).expect("write a file");
        // Read before it was last written to, so that the kernel notes the next reading.
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

    fn touched(&self, through: Whose) -> Option<String> {
        let [read, written] = Self::times();
        let created = fs::remove_file(NOWHERE).is_ok();
        if through == Whose::Tools {
            return None;
        }
        if written != self.times[1] || fs::read_to_string(OUTSIDE).ok()? != WORDS {
            return Some("a file outside was written to".to_owned());
        }
        if created {
            return Some("a file outside was created".to_owned());
        }
        (through != Whose::Administrators && read != self.times[0])
            .then(|| "a file outside was read".to_owned())
    }
}
