//! Network namespaces: opened by path, entered for the duration of a closure.
//!
//! A socket keeps the namespace in which it was opened (network_namespaces(7)). Entering is therefore needed only to open sockets, and for
//! `/proc/sys/net`, which shows the opener's namespace. Never start a program while inside.

#![warn(missing_docs)]

use std::error::Error as StdError;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;

use nix::errno::Errno;
use nix::libc;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::statfs::fstatfs;

const ENTER: &str = "enter";

/// The namespace of the calling thread.
const CURRENT: &str = "/proc/thread-self/ns/net";

/// Magic number of the file system of namespaces (linux/magic.h).
const NSFS_MAGIC: u32 = 0x6e73_6673;

/// An open network namespace, which exists at least as long as this value.
#[derive(Debug)]
pub struct NetNs {
    file: File,
    path: PathBuf,
}

impl NetNs {
    /// Opens the namespace of the calling thread.
    ///
    /// # Errors
    /// If `/proc` is not mounted, or no descriptor is free.
    pub fn current() -> Result<Self, Error> {
        let path = Path::new(CURRENT);
        let file = File::open(path).map_err(|e| Error::new("open", path, e))?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Opens the namespace at a path: a bind mount such as `/run/netns/blue`, or `/proc/PID/ns/net`.
    ///
    /// # Errors
    /// If the path does not exist or is not a network namespace.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let fail = |cause| Error::new("open", path, cause);
        let file = open_file(path).map_err(fail)?;
        if !is_network_namespace(&file).map_err(fail)? {
            return Err(fail(not_a_namespace()));
        }
        Ok(Self { file, path: path.to_owned() })
    }

    /// Like [`NetNs::open`]. Returns `None` if the path does not exist or is not a network namespace: unmounting leaves an empty file.
    ///
    /// # Errors
    /// If the path cannot be read.
    pub fn open_if_present(path: &Path) -> Result<Option<Self>, Error> {
        match Self::open(path) {
            Ok(this) => Ok(Some(this)),
            Err(e) if e.is_missing() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Takes an open file as a namespace. `path` is the path that the opener used.
    ///
    /// # Errors
    /// If the file is not a network namespace.
    pub fn of(file: File, path: &Path) -> Result<Self, Error> {
        match is_network_namespace(&file) {
            Ok(true) => Ok(Self { file, path: path.to_owned() }),
            Ok(false) => Err(Error::new("open", path, not_a_namespace())),
            Err(e) => Err(Error::new("open", path, e)),
        }
    }

    /// The path that was used to open it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Inode number of the namespace. No other existing namespace of the host has it.
    ///
    /// # Errors
    /// If fstat(2) fails.
    pub fn number(&self) -> Result<u64, Error> {
        self.file.metadata().map(|found| found.ino()).map_err(|e| self.failed("look at", e))
    }

    /// Whether both are the same namespace.
    ///
    /// # Errors
    /// If fstat(2) fails for either.
    pub fn is_same_as(&self, other: &Self) -> Result<bool, Error> {
        Ok(self.identity()? == other.identity()?)
    }

    /// Device and inode number, which identify the namespace while it exists. The kernel may reuse them later.
    ///
    /// # Errors
    /// If fstat(2) fails.
    pub fn identity(&self) -> Result<(u64, u64), Error> {
        let seen = self.file.metadata().map_err(|e| self.failed("look at", e))?;
        Ok((seen.dev(), seen.ino()))
    }

    /// Runs a closure inside the namespace, and returns to the thread's own namespace, even after a panic.
    ///
    /// # Errors
    /// If the thread cannot enter the namespace or could not return (CAP_SYS_ADMIN).
    pub fn enter<T>(&self, closure: impl FnOnce() -> T) -> Result<T, Error> {
        self.enter_from(&Self::current()?, closure)
    }

    /// Like [`NetNs::enter`], for a thread that is in the namespace `here`.
    ///
    /// # Errors
    /// If the thread cannot enter the namespace or could not return (CAP_SYS_ADMIN).
    pub fn enter_from<T>(&self, here: &Self, closure: impl FnOnce() -> T) -> Result<T, Error> {
        // Check first that the thread can return: its own namespace may belong to a user namespace without permissions.
        setns(&here.file, CloneFlags::CLONE_NEWNET).map_err(|e| here.failed(ENTER, e.into()))?;
        setns(&self.file, CloneFlags::CLONE_NEWNET).map_err(|e| self.failed(ENTER, e.into()))?;
        let guard = ReturnGuard(here);
        let value = closure();
        drop(guard);
        Ok(value)
    }

    /// Runs a closure in a new namespace. The kernel deletes the namespace when the closure has returned and nothing of it is open.
    ///
    /// # Errors
    /// If the thread could not return (CAP_SYS_ADMIN), or the kernel creates no namespace.
    pub fn scratch<T>(closure: impl FnOnce() -> T) -> Result<T, Error> {
        let here = Self::current()?;
        setns(&here.file, CloneFlags::CLONE_NEWNET).map_err(|e| here.failed(ENTER, e.into()))?;
        unshare(CloneFlags::CLONE_NEWNET)
            .map_err(|e| here.failed("create a temporary namespace, starting from", e.into()))?;
        let guard = ReturnGuard(&here);
        let value = closure();
        drop(guard);
        Ok(value)
    }

    fn failed(&self, operation: &'static str, cause: io::Error) -> Error {
        Error::new(operation, &self.path, cause)
    }
}

/// Opens an untrusted path without blocking on a FIFO and without acquiring a controlling terminal.
fn open_file(path: &Path) -> io::Result<File> {
    let opened = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path);
    match opened {
        // A socket, or a device without a driver.
        Err(e) if e.raw_os_error() == Some(libc::ENXIO) => Err(not_a_namespace()),
        other => other,
    }
}

/// The file system distinguishes namespaces from other files, and ioctl_ns(2) the kinds of namespaces.
#[allow(unsafe_code)]
fn is_network_namespace(file: &File) -> io::Result<bool> {
    if u32::try_from(fstatfs(file)?.filesystem_type().0) != Ok(NSFS_MAGIC) {
        return Ok(false);
    }
    // SAFETY: the descriptor is open, and the request takes no argument.
    let kind = unsafe { libc::ioctl(file.as_raw_fd(), libc::NS_GET_NSTYPE) };
    Ok(Errno::result(kind)? == libc::CLONE_NEWNET)
}

fn not_a_namespace() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a network namespace")
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Attempts to return to the thread's own namespace.
const RETURN_TRIES: u32 = 100;

/// Returns to the namespace when dropped.
struct ReturnGuard<'a>(&'a NetNs);

impl Drop for ReturnGuard<'_> {
    fn drop(&mut self) {
        // Returning needs memory. If there is none, a later attempt may succeed.
        let back = (0..RETURN_TRIES).any(|_| setns(&self.0.file, CloneFlags::CLONE_NEWNET).is_ok());
        if !back {
            // Continuing in the container's namespace would apply changes for the host to the container.
            process::abort();
        }
    }
}

/// A failed operation on a namespace.
#[derive(Debug)]
pub struct Error {
    path: PathBuf,
    operation: &'static str,
    cause: io::Error,
}

impl Error {
    fn new(operation: &'static str, path: &Path, cause: io::Error) -> Self {
        Self { path: path.to_owned(), operation, cause }
    }

    /// Whether the path does not exist, or is not a network namespace.
    pub fn is_missing(&self) -> bool {
        matches!(self.cause.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) || self.is_not_a_namespace()
    }

    /// Whether the path exists but is not a network namespace.
    pub fn is_not_a_namespace(&self) -> bool {
        self.cause.raw_os_error().is_none() && self.cause.kind() == io::ErrorKind::InvalidInput
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = match self.cause.raw_os_error() {
            Some(number) => Errno::from_raw(number).desc().to_owned(),
            None => self.cause.to_string(),
        };
        write!(f, "{} network namespace {}: {cause}", self.operation, self.path.display())?;
        match self.cause.raw_os_error() {
            Some(libc::EPERM) if self.operation == ENTER => {
                f.write_str(" (requires CAP_SYS_ADMIN, here and in the user namespace that it belongs to)")
            }
            _ => Ok(()),
        }
    }
}

/// The message contains the cause.
impl StdError for Error {}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc;
    use std::thread;

    use nix::sched::unshare;

    use super::*;

    /// Runs a test in a thread with its own namespace.
    fn isolated(test: impl FnOnce(NetNs) + Send + 'static) {
        let thread = thread::spawn(|| {
            let before = NetNs::current().unwrap();
            unshare(CloneFlags::CLONE_NEWNET).expect("the tests need root");
            test(before);
        });
        thread.join().unwrap();
    }

    #[test]
    fn a_closure_runs_inside_and_its_thread_returns() {
        isolated(|before| {
            let here = NetNs::current().unwrap();
            assert!(before.enter(|| NetNs::current().unwrap().is_same_as(&before).unwrap()).unwrap());
            assert!(NetNs::current().unwrap().is_same_as(&here).unwrap());
        });
    }

    #[test]
    fn a_panic_inside_is_passed_to_the_caller() {
        isolated(|before| {
            let here = NetNs::current().unwrap();
            catch_unwind(AssertUnwindSafe(|| before.enter(|| panic!("inside")))).unwrap_err();
            assert!(NetNs::current().unwrap().is_same_as(&here).unwrap());
        });
    }

    #[test]
    fn other_files_count_as_missing_and_are_named() {
        for path in ["", "/no/such/path", "/proc/self/status/x", "/proc/self/status", "/"] {
            assert!(NetNs::open_if_present(Path::new(path)).unwrap().is_none(), "{path}");
        }
        let error = NetNs::open(Path::new("/proc/self/status")).unwrap_err();
        assert_eq!(error.to_string(), "open network namespace /proc/self/status: not a network namespace");
    }

    #[test]
    fn a_namespace_of_another_kind_is_no_network_namespace() {
        let mount = Path::new("/proc/self/ns/mnt");
        let error = NetNs::open(mount).unwrap_err();
        assert_eq!(error.to_string(), "open network namespace /proc/self/ns/mnt: not a network namespace");
        assert!(NetNs::open_if_present(mount).unwrap().is_none());
    }

    #[test]
    fn a_fifo_or_a_socket_in_its_place_neither_blocks_nor_passes_for_one() {
        let dir = tempfile::tempdir().unwrap();
        let (fifo, socket) = (dir.path().join("fifo"), dir.path().join("socket"));
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            for path in [fifo, socket] {
                sender.send(NetNs::open_if_present(&path).unwrap().is_none()).unwrap();
            }
        });
        // A blocked open would never return.
        for _ in 0..2 {
            assert_eq!(receiver.recv_timeout(std::time::Duration::from_secs(600)), Ok(true));
        }
    }
}
