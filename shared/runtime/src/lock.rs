//! Locks in all processes (SPEC.md, section 3, "Lifecycle & Ordering"): one excludes GC from ADD and DEL, and one for each container excludes
//! its ADDs and DELs from each other.

use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use cni::{Code, ContainerId};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{F_WRLCK, SEEK_SET, flock};
use system::Retry;

use crate::Result;

/// The file of the lock that excludes GC.
const OF_GC: &str = "results.lock";
/// The file of the containers' locks. NFS and SMB turn flock(2) into a lock of all bytes, so a process that locked a byte of the other file
/// would wait for itself.
const OF_CONTAINERS: &str = "results.containers.lock";

/// How long a GC waits for ADDs, DELs and repairs to end, and these for a GC: longer than one plugin may run.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// Who may have a lock that is not free in time.
struct Holders {
    text: &'static str,
    /// The end of the advice what to look for.
    advice: &'static str,
}

const GC: Holders = Holders { text: "a GC has run for five minutes", advice: "" };
const CALLS: Holders = Holders {
    text: "ADDs, DELs, repairs or another GC have run without a pause",
    advice: ", and for containers that are started again and again because their ADD fails",
};

/// How long a GC lets waiting processes have the lock: longer than the pauses between the attempts of an ADD.
const GC_PAUSE: Duration = Duration::from_millis(15);

/// Held until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Lock {
    /// Waits until no GC runs.
    ///
    /// # Errors
    /// Code 11 after five minutes: the GC hangs, or was suspended.
    pub(crate) fn shared(dir: &Path) -> Result<Self> {
        Self::shared_unless(dir, &AtomicBool::default())
    }

    /// Like [`Lock::shared`]. Fails with code 999 if the flag is set while it waits.
    pub(crate) fn shared_unless(dir: &Path, interrupted: &AtomicBool) -> Result<Self> {
        Self::shared_within(dir, interrupted, LONGEST_WAIT)
    }

    fn shared_within(dir: &Path, interrupted: &AtomicBool, timeout: Duration) -> Result<Self> {
        Self::take(dir, OF_GC, &GC, |file| {
            poll_unless(interrupted, timeout, || match file.try_lock_shared() {
                Ok(()) => Ok(true),
                Err(TryLockError::WouldBlock) => Ok(false),
                Err(TryLockError::Error(e)) => Err(e),
            })
        })
    }

    /// Waits until no ADD, DEL or GC runs. ADDs and DELs that overlap may never leave the lock free.
    ///
    /// # Errors
    /// Code 11 if the lock is not free within `timeout`.
    pub(crate) fn exclusive(dir: &Path, timeout: Duration) -> Result<Self> {
        Self::take(dir, OF_GC, &CALLS, |file| lock_within(file, timeout))
    }

    /// Releases an exclusive lock, so that waiting processes get it, and takes it again.
    ///
    /// # Errors
    /// Code 5 if the file cannot be locked; code 11 if it is not free within five minutes.
    pub(crate) fn let_others_in(&self) -> Result<()> {
        let locked = self.file.unlock().and_then(|()| {
            thread::sleep(GC_PAUSE);
            lock_within(&self.file, LONGEST_WAIT)
        });
        Ok(locked.map_err(|e| match e.kind() {
            io::ErrorKind::TimedOut => busy("the cache", &CALLS),
            _ => cni::Error::io("lock the results again", &e),
        })?)
    }

    /// Waits until no other process has this lock for the container. Fails with code 999 if the flag is set while it waits.
    pub(crate) fn of_container(dir: &Path, id: &ContainerId, interrupted: &AtomicBool) -> Result<Self> {
        // One byte of the file for each container, by a hash (FNV-1a).
        let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let range = flock {
            l_type: F_WRLCK as _,
            l_whence: SEEK_SET as _,
            l_start: (hash >> 2).cast_signed(),
            l_len: 1,
            l_pid: 0,
        };
        Self::take(dir, OF_CONTAINERS, &CALLS, |file| {
            poll_unless(interrupted, Duration::MAX, || match fcntl(file, FcntlArg::F_OFD_SETLK(&range)) {
                Ok(_) => Ok(true),
                Err(Errno::EAGAIN | Errno::EACCES | Errno::EINTR) => Ok(false),
                Err(e) => Err(e.into()),
            })
        })
    }

    /// The lock for a DEL. `None` if it cannot be taken, for example in a read-only cache: then DEL runs without it.
    ///
    /// # Errors
    /// Code 999 if a signal has ended the waiting for it.
    pub(crate) fn for_del(taken: Result<Self>) -> Result<Option<Self>> {
        match taken {
            Err(e) if e.code() == Code::Internal as u32 => Err(e),
            taken => Ok(taken.ok()),
        }
    }

    /// Locks a file.
    fn take(
        dir: &Path,
        name: &str,
        holders: &Holders,
        lock: impl FnOnce(&File) -> io::Result<()>,
    ) -> Result<Self> {
        let path = dir.join(name);
        let make = || DirBuilder::new().recursive(true).mode(0o755).create(dir);
        let file = open(&path).or_else(|_| make().and_then(|()| open(&path)));
        let locked = file.and_then(|file| lock(&file).map(|()| Self { file }));
        Ok(locked.map_err(|e| match e.kind() {
            io::ErrorKind::Interrupted => {
                let text = "the wait for another command was interrupted";
                cni::Error::new(Code::Internal, text)
                    .detail(format!("the other command has locked {}", path.display()))
            }
            io::ErrorKind::TimedOut => busy(&path.display().to_string(), holders),
            _ => cni::Error::io(format!("lock {}", path.display()), &e),
        })?)
    }
}

/// The error of a command for which the lock was not free in time.
fn busy(what: &str, Holders { text, advice }: &Holders) -> cni::Error {
    cni::Error::new(Code::TryAgainLater, format!("{what} is locked: {text}")).detail(format!(
        "repeat the command. If it fails again, look for a command that hangs or is suspended (fuser -v FILE lists the processes that have or \
         want the lock){advice}"
    ))
}

/// Locks a file exclusively.
///
/// # Errors
/// `TimedOut` if it is locked for `timeout`.
fn lock_within(file: &File, timeout: Duration) -> io::Result<()> {
    let got = Retry::new(timeout).wait_for(|| match file.try_lock() {
        Ok(()) => Ok(Some(())),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(e)) => Err(e),
    });
    got?.ok_or_else(|| io::ErrorKind::TimedOut.into())
}

/// Attempts until an attempt succeeds. A handler's signal does not end a system call that waits: the kernel restarts it.
///
/// # Errors
/// `Interrupted` if the flag is set before. `TimedOut` if no attempt succeeds within `timeout`. The error of an attempt.
fn poll_unless(
    interrupted: &AtomicBool,
    timeout: Duration,
    mut attempt: impl FnMut() -> io::Result<bool>,
) -> io::Result<()> {
    let got = Retry::new(timeout).wait_for(|| match attempt()? {
        true => Ok(Some(())),
        false if interrupted.load(Ordering::Relaxed) => Err(io::ErrorKind::Interrupted.into()),
        false => Ok(None),
    });
    got?.ok_or_else(|| io::ErrorKind::TimedOut.into())
}

/// Opens the file for reading and writing, because NFS refuses a shared lock on a file that is only open for writing, and an exclusive lock on
/// one that is only open for reading (flock(2)). Only root may open the file, because each process that opens it can hold the lock.
fn open(path: &Path) -> io::Result<File> {
    system::file::open_own(File::options().read(true).create(true).append(true).mode(0o600), path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use nix::fcntl::OFlag;

    use super::*;

    #[test]
    fn a_plugin_may_run_as_long_as_it_may_while_others_wait() {
        assert!(LONGEST_WAIT > crate::DEFAULT_TIMEOUT);
        // The error says five minutes.
        assert_eq!(LONGEST_WAIT.as_secs(), 5 * 60);
    }

    #[test]
    fn the_file_is_open_for_reading_and_writing() {
        let dir = tempfile::tempdir().unwrap();
        let lock = Lock::shared(dir.path()).unwrap();
        let flags = OFlag::from_bits_retain(fcntl(&lock.file, FcntlArg::F_GETFL).unwrap());
        assert_eq!(flags & OFlag::O_ACCMODE, OFlag::O_RDWR);
    }

    /// Two containers whose ADD fails after a minute, and is repeated, may hold the lock forever.
    #[test]
    fn a_gc_does_not_wait_forever_for_adds_and_dels_that_overlap() {
        let dir = tempfile::tempdir().unwrap();
        let add = Lock::shared(dir.path()).unwrap();
        let failed = Lock::exclusive(dir.path(), Duration::from_millis(20)).unwrap_err();
        assert_eq!(failed.code(), Code::TryAgainLater as u32, "{failed}");
        assert!(failed.to_string().contains("results.lock is locked"), "{failed}");
        drop(add);
        Lock::exclusive(dir.path(), Duration::ZERO).unwrap();
    }

    /// Its operator has suspended it (Ctrl-Z), or it waits for a file system that does not answer.
    #[test]
    fn an_add_does_not_wait_forever_for_a_gc_that_hangs() {
        let dir = tempfile::tempdir().unwrap();
        let gc = Lock::exclusive(dir.path(), Duration::ZERO).unwrap();
        let add = || Lock::shared_within(dir.path(), &AtomicBool::default(), Duration::from_millis(20));
        let failed = add().unwrap_err();
        assert_eq!(failed.code(), Code::TryAgainLater as u32, "{failed}");
        assert!(failed.to_string().contains("results.lock is locked: a GC has run"), "{failed}");
        // A DEL runs nevertheless.
        assert!(Lock::for_del(add()).unwrap().is_none());
        drop(gc);
        add().unwrap();
    }

    /// ADD and DEL hold both.
    #[test]
    fn the_lock_of_a_container_and_the_lock_against_gc_are_in_different_files() {
        let dir = tempfile::tempdir().unwrap();
        let gc = Lock::shared(dir.path()).unwrap();
        let id = ContainerId::parse("c").unwrap();
        let container = Lock::of_container(dir.path(), &id, &AtomicBool::default()).unwrap();
        let inode = |lock: &Lock| lock.file.metadata().unwrap().ino();
        assert_ne!(inode(&gc), inode(&container));
    }
}
