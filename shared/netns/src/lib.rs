//! A network namespace: opened by path, entered for the length of a closure.
//!
//! A socket keeps the namespace that it was opened in (network_namespaces(7)), so entering is needed only to open
//! one, and for `/proc/sys/net`, which shows the namespace of who opens it. Never start a program while inside.

#![warn(missing_docs)]

mod packet;

use std::error::Error as StdError;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::statfs::fstatfs;

pub use packet::PacketSocket;

/// The namespace of the calling thread.
const CURRENT: &str = "/proc/thread-self/ns/net";

/// The file system that namespaces are files of (`NSFS_MAGIC` in linux/magic.h).
const NSFS_MAGIC: u32 = 0x6e73_6673;

/// An open network namespace. It lives at least as long as this.
#[derive(Debug)]
pub struct NetNs {
    file: File,
    path: PathBuf,
}

impl NetNs {
    /// The namespace that the calling thread is in.
    ///
    /// # Errors
    /// If `/proc` is not mounted, or descriptors run out.
    pub fn current() -> Result<Self, Error> {
        Self::open(Path::new(CURRENT))
    }

    /// The namespace that a path names: a bind mount such as `/run/netns/blue`, or `/proc/PID/ns/net`.
    ///
    /// # Errors
    /// If there is nothing, or no namespace, at the path.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let fail = |cause| Error { path: path.to_owned(), operation: "open", cause };
        let file = File::open(path).map_err(fail)?;
        let fs = fstatfs(&file).map_err(|e| fail(e.into()))?;
        if u32::try_from(fs.filesystem_type().0) != Ok(NSFS_MAGIC) {
            return Err(fail(io::Error::new(io::ErrorKind::InvalidInput, "not a network namespace")));
        }
        Ok(Self { file, path: path.to_owned() })
    }

    /// As [`NetNs::open`], but none if nothing is there, or no namespace any more: an unmounted one leaves a plain
    /// file behind.
    ///
    /// # Errors
    /// If the path cannot be looked at.
    pub fn open_if_present(path: &Path) -> Result<Option<Self>, Error> {
        match Self::open(path) {
            Ok(this) => Ok(Some(this)),
            Err(e) if e.is_missing() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The path that it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether both are the same namespace.
    ///
    /// # Errors
    /// If either cannot be looked at.
    pub fn is_same_as(&self, other: &Self) -> Result<bool, Error> {
        let identity =
            |ns: &Self| ns.file.metadata().map(|m| (m.dev(), m.ino())).map_err(|e| ns.failed("look at", e));
        Ok(identity(self)? == identity(other)?)
    }

    /// Runs a closure inside of the namespace, and comes back even if it panics.
    ///
    /// # Errors
    /// If it cannot be entered: it is of another kind, or the capabilities miss (CAP_SYS_ADMIN).
    pub fn enter<T>(&self, closure: impl FnOnce() -> T) -> Result<T, Error> {
        let home = Home(Self::current()?);
        setns(&self.file, CloneFlags::CLONE_NEWNET).map_err(|e| self.failed("enter", e.into()))?;
        let value = closure();
        drop(home);
        Ok(value)
    }

    /// Waits until no other process holds the lock of this namespace, and holds it until dropped. The lock is
    /// flock(2) on the namespace itself, so it needs no file and dies with its holder.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn lock(&self) -> Result<Lock, Error> {
        // Opened anew: a lock belongs to an open file, and would not exclude another one of this process.
        let file = File::open(&self.path).map_err(|e| self.failed("open", e))?;
        file.lock().map_err(|e| self.failed("lock", e))?;
        Ok(Lock { _file: file })
    }

    fn failed(&self, operation: &'static str, cause: io::Error) -> Error {
        Error { path: self.path.clone(), operation, cause }
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Held while something that all attachments of a host share is looked at and changed, see [`NetNs::lock`].
#[derive(Debug)]
#[must_use = "it is released at once otherwise"]
pub struct Lock {
    _file: File,
}

/// The namespace to come back to.
struct Home(NetNs);

impl Drop for Home {
    fn drop(&mut self) {
        if setns(&self.0.file, CloneFlags::CLONE_NEWNET).is_err() {
            // To go on in the container's namespace would do to it what was meant for the host.
            process::abort();
        }
    }
}

/// What failed on which namespace.
#[derive(Debug)]
pub struct Error {
    path: PathBuf,
    operation: &'static str,
    cause: io::Error,
}

impl Error {
    /// Whether there is no namespace at the path.
    pub fn is_missing(&self) -> bool {
        let errno = self.cause.raw_os_error().map(Errno::from_raw);
        matches!(errno, Some(Errno::ENOENT | Errno::ENOTDIR))
            || self.cause.kind() == io::ErrorKind::InvalidInput
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = match self.cause.raw_os_error() {
            Some(number) => Errno::from_raw(number).desc().to_owned(),
            None => self.cause.to_string(),
        };
        write!(f, "{} network namespace {}: {cause}", self.operation, self.path.display())
    }
}

/// The cause is part of the message.
impl StdError for Error {}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc;
    use std::thread;

    use nix::sched::unshare;

    use super::*;

    /// A namespace of its own, for the thread that a test runs in.
    fn isolated(test: impl FnOnce(NetNs) + Send + 'static) {
        let thread = thread::spawn(|| {
            let before = NetNs::current().unwrap();
            unshare(CloneFlags::CLONE_NEWNET).expect("the tests need root");
            test(before);
        });
        thread.join().unwrap();
    }

    #[test]
    fn a_closure_runs_inside_and_its_thread_comes_back() {
        isolated(|before| {
            let here = NetNs::current().unwrap();
            assert!(before.enter(|| NetNs::current().unwrap().is_same_as(&before).unwrap()).unwrap());
            assert!(NetNs::current().unwrap().is_same_as(&here).unwrap());
        });
    }

    #[test]
    fn a_panic_inside_comes_back_too() {
        isolated(|before| {
            let here = NetNs::current().unwrap();
            catch_unwind(AssertUnwindSafe(|| before.enter(|| panic!("inside")))).unwrap_err();
            assert!(NetNs::current().unwrap().is_same_as(&here).unwrap());
        });
    }

    #[test]
    fn what_is_no_namespace_is_missing_and_named() {
        for path in ["", "/no/such/path", "/proc/self/status/x", "/proc/self/status", "/"] {
            assert!(NetNs::open_if_present(Path::new(path)).unwrap().is_none(), "{path}");
        }
        let error = NetNs::open(Path::new("/proc/self/status")).unwrap_err();
        assert_eq!(error.to_string(), "open network namespace /proc/self/status: not a network namespace");
    }

    #[test]
    fn a_namespace_of_another_kind_can_not_be_entered() {
        let mount = NetNs::open(Path::new("/proc/self/ns/mnt")).unwrap();
        assert!(mount.enter(|| ()).unwrap_err().to_string().starts_with("enter network namespace"));
    }

    #[test]
    fn only_one_holds_the_lock_of_a_namespace() {
        isolated(|_| {
            let here = NetNs::open(Path::new(&format!("/proc/{}/ns/net", nix::unistd::gettid()))).unwrap();
            let path = here.path().to_owned();
            let held = here.lock().unwrap();
            let (tell, told) = mpsc::channel();
            let other = thread::spawn(move || {
                let there = NetNs::open(&path).unwrap();
                tell.send("waits").unwrap();
                let _lock = there.lock().unwrap();
                tell.send("holds").unwrap();
            });
            assert_eq!(told.recv().unwrap(), "waits");
            assert!(told.try_recv().is_err());
            drop(held);
            assert_eq!(told.recv().unwrap(), "holds");
            other.join().unwrap();
        });
    }
}
