//! Steps: system calls that touch the directory.

use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nix::libc;
use nix::unistd::Pid;

/// How a system call names its files.
#[derive(Clone, Copy, Debug)]
enum Files {
    /// By a path.
    Path,
    /// By an open directory and a relative path.
    At,
    TwoPaths,
    TwoAt,
    Open,
    /// By a descriptor, if it is a directory: nothing else affects what is read of a file.
    Directory,
    /// By a descriptor, if it is locked: closing another one changes nothing.
    Locked,
}

use Files::{At, Directory, Locked, Open, TwoAt, TwoPaths};

const CALLS: [(libc::c_long, &str, Files); 21] = [
    (libc::SYS_openat, "openat", At),
    (libc::SYS_flock, "flock", Open),
    (libc::SYS_close, "close", Locked),
    (libc::SYS_read, "read", Open),
    (libc::SYS_write, "write", Open),
    (libc::SYS_pread64, "pread64", Open),
    (libc::SYS_pwrite64, "pwrite64", Open),
    (libc::SYS_ftruncate, "ftruncate", Open),
    (libc::SYS_getdents64, "getdents64", Open),
    (libc::SYS_fstat, "fstat", Directory),
    (libc::SYS_newfstatat, "newfstatat", At),
    (libc::SYS_statx, "statx", At),
    (libc::SYS_utimensat, "utimensat", At),
    (libc::SYS_mkdirat, "mkdirat", At),
    (libc::SYS_unlinkat, "unlinkat", At),
    (libc::SYS_renameat, "renameat", TwoAt),
    (libc::SYS_renameat2, "renameat2", TwoAt),
    (libc::SYS_linkat, "linkat", TwoAt),
    (libc::SYS_symlinkat, "symlinkat", At),
    (libc::SYS_truncate, "truncate", Files::Path),
    (libc::SYS_fchmodat, "fchmodat", At),
];

/// System calls that newer architectures lack.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: [(libc::c_long, &str, Files); 8] = [
    (libc::SYS_open, "open", Files::Path),
    (libc::SYS_stat, "stat", Files::Path),
    (libc::SYS_lstat, "lstat", Files::Path),
    (libc::SYS_mkdir, "mkdir", Files::Path),
    (libc::SYS_rmdir, "rmdir", Files::Path),
    (libc::SYS_unlink, "unlink", Files::Path),
    (libc::SYS_rename, "rename", TwoPaths),
    (libc::SYS_link, "link", TwoPaths),
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: [(libc::c_long, &str, Files); 0] = [];

/// The system call that a process is about to make.
#[derive(Clone, Debug)]
pub struct Step {
    call: &'static str,
    files: Vec<PathBuf>,
    /// The file that it locks, as a path for the process.
    locks: Option<PathBuf>,
    /// The lock is requested with LOCK_NB.
    tries: bool,
}

impl Step {
    /// The step of a process that has stopped at the entry of a system call, if the call touches `root`.
    pub fn of(pid: Pid, root: &Path) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/syscall")).ok()?;
        let mut words = text.split_whitespace();
        let number: libc::c_long = words.next()?.parse().ok()?;
        let arguments: Vec<u64> =
            words.map_while(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok()).collect();
        let (_, call, kind) = CALLS.iter().chain(&OLD_CALLS).find(|(nr, ..)| *nr == number).copied()?;
        let files: Vec<_> =
            files(pid, kind, &arguments).iter().filter_map(|path| below(path, root)).collect();
        let locks = (call == "flock").then(|| open_file(pid, arguments[0]));
        let tries = locks.is_some() && arguments[1] & libc::LOCK_NB as u64 != 0;
        (!files.is_empty()).then_some(Self { call, files, locks, tries })
    }

    /// Whether the process would block, because another one holds the lock.
    pub fn waits(&self) -> bool {
        !self.tries && self.finds_it_held()
    }

    /// Whether LOCK_NB would fail, because another process holds the lock.
    pub fn tries_in_vain(&self) -> bool {
        self.tries && self.finds_it_held()
    }

    fn finds_it_held(&self) -> bool {
        let Some(path) = &self.locks else { return false };
        // Opening the file again creates a separate open file description, whose lock conflicts with the holder's. This
        // also works for a deleted file.
        let file = File::open(path).expect("open a file of a stopped process");
        let held = file.try_lock().is_err();
        // Closing is not enough: a process started by another thread may have inherited the descriptor for a moment.
        file.unlock().expect("give the lock back");
        held
    }

    /// The name of the file that the step removes, if it does.
    pub fn removes(&self) -> Option<&str> {
        ["unlink", "unlinkat"]
            .contains(&self.call)
            .then(|| self.files.first()?.file_name()?.to_str())
            .flatten()
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.call)?;
        self.files.iter().try_for_each(|file| write!(f, " {}", file.display()))
    }
}

fn files(pid: Pid, kind: Files, arguments: &[u64]) -> Vec<PathBuf> {
    let open = |fd: u64| fs::read_link(open_file(pid, fd)).unwrap_or_default();
    let path = |at: usize| string(pid, arguments[at]);
    let under = |at: usize| {
        // AT_FDCWD is not a descriptor. The path is then complete.
        let path = path(at + 1);
        if path.as_os_str().is_empty() { open(arguments[at]) } else { open(arguments[at]).join(path) }
    };
    match kind {
        Files::Path => vec![path(0)],
        At => vec![under(0)],
        TwoPaths => vec![path(0), path(1)],
        TwoAt => vec![under(0), under(2)],
        Open => vec![open(arguments[0])],
        Directory => vec![open(arguments[0])].into_iter().filter(|path| path.is_dir()).collect(),
        Locked => vec![open(arguments[0])].into_iter().filter(|_| is_locked(pid, arguments[0])).collect(),
    }
}

fn open_file(pid: Pid, fd: u64) -> PathBuf {
    format!("/proc/{pid}/fd/{}", fd & 0xffff_ffff).into()
}

fn is_locked(pid: Pid, fd: u64) -> bool {
    let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).unwrap_or_default();
    info.lines().any(|line| line.starts_with("lock:"))
}

/// The string at an address in the process's memory.
fn string(pid: Pid, address: u64) -> PathBuf {
    let mut bytes = [0; 256];
    let memory = File::open(format!("/proc/{pid}/mem")).expect("open the memory of a stopped process");
    // A null pointer, as utimensat(2) accepts, is read as the empty string.
    let length = memory.read_at(&mut bytes, address).unwrap_or(0);
    let end = bytes[..length].iter().position(|&byte| byte == 0).unwrap_or(length);
    String::from_utf8_lossy(&bytes[..end]).into_owned().into()
}

/// The path relative to the root. `.` for the root itself.
fn below(path: &Path, root: &Path) -> Option<PathBuf> {
    let rest = path.strip_prefix(root).ok()?;
    Some(if rest.as_os_str().is_empty() { ".".into() } else { rest.to_owned() })
}
