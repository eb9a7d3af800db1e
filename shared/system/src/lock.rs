//! Locks between the plugins of a host, which only root can hold.
//!
//! flock(2) needs only a file that can be opened for reading. If other users could take such a lock, they could block every container's
//! start and end. The lock files therefore have mode 600, in a directory with mode 700.

use std::fmt;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::geteuid;

use crate::{Retry, file};

/// Directory of the lock files. They are empty, one for each lock, and stay until the next boot.
pub(crate) const DIRECTORY: &str = "/run/ferrule";

/// Locked if there is no such directory. Everyone can open it.
const NAMESPACE: &str = "/proc/thread-self/ns/net";

/// Timeout for a lock that everyone can take.
const PUBLIC_LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether this process has waited for a lock until the timeout. It then no longer waits for any lock: a rollback has many steps, and each
/// would wait for the same holder.
static TIMED_OUT: AtomicBool = AtomicBool::new(false);

/// A lock that is held until it is dropped. The kernel releases it when its holder and all programs that inherited it have exited.
#[derive(Debug)]
#[must_use = "it is released immediately otherwise"]
pub struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock `name`, such as `iptables`, and waits at most `time`. A process that has timed out once no longer waits for any lock.
    /// A process that takes a lock twice waits for itself.
    ///
    /// If root has no directory of its own in `/run` (it is read-only, full, missing, or another user's), the network namespace itself is
    /// locked. Everyone can do that, so the timeout is 5 seconds. Returns `None` if that passes: the caller must continue without the lock.
    ///
    /// # Errors
    /// If other processes held the lock for all of `time`, or descriptors or memory run out.
    pub fn acquire(name: &str, time: Duration) -> Result<Option<Self>, LockError> {
        let path = Path::new(DIRECTORY).join(format!("{name}.lock"));
        match wait_for(time, || private(&path)) {
            Ok(Some(file)) => Ok(Some(Self { file })),
            Ok(None) => Err(LockError::Held { path, time }),
            Err(e) if is_host_limitation(&e) => public().map_err(|error| LockError::Io { path, error }),
            Err(error) => Err(LockError::Io { path, error }),
        }
    }

    /// Lets programs started from now on inherit the lock. It is released only when they have exited too, even if this process is killed.
    ///
    /// # Errors
    /// If fcntl(2) fails.
    pub fn pass_on(&self) -> io::Result<()> {
        Ok(fcntl_setfd(&self.file, FdFlags::empty())?)
    }
}

/// A lock that could not be taken.
#[derive(Debug)]
pub enum LockError {
    /// Other processes held it until the timeout.
    Held {
        /// The lock's file.
        path: PathBuf,
        /// The timeout.
        time: Duration,
    },
    /// The file cannot be opened or locked.
    Io {
        /// The lock's file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held { path, time } => {
                write!(f, "lock {}: other processes have held it for {time:?}", path.display())
            }
            Self::Io { path, error } => write!(f, "lock {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for LockError {}

/// Whether this host does not allow a private file in the directory. All plugins get the same error, and lock the namespace instead.
fn is_host_limitation(error: &io::Error) -> bool {
    use Errno::{EACCES, EDQUOT, ENOENT, ENOSPC, ENOSYS, ENOTDIR, EPERM, EROFS};
    let ways = [ENOENT, ENOTDIR, EROFS, EACCES, EPERM, ENOSPC, EDQUOT, ENOSYS];
    let number = error.raw_os_error().map(Errno::from_raw);
    number.is_some_and(|number| ways.contains(&number)) || file::is_irregular(error)
}

/// Calls `attempt` until it takes a lock, for at most `time`. Returns `None` on timeout. A process that has timed out once no longer waits for
/// any lock: `attempt` is then called only once.
///
/// # Errors
/// Those of `attempt`.
pub fn wait_for<T>(time: Duration, attempt: impl FnMut() -> io::Result<Option<T>>) -> io::Result<Option<T>> {
    let time = if TIMED_OUT.load(Ordering::Relaxed) { Duration::ZERO } else { time };
    let taken = Retry::new(time).wait_for(attempt)?;
    if taken.is_none() {
        TIMED_OUT.store(true, Ordering::Relaxed);
    }
    Ok(taken)
}

/// Returns `None` if another process holds the lock.
fn private(path: &Path) -> io::Result<Option<File>> {
    let file = open(path)?;
    // If the file was deleted meanwhile, later processes lock a new file.
    Ok((try_lock(&file)? && file::is_still(&file, fs::symlink_metadata(path))?).then_some(file))
}

/// Locks the namespace. Returns `None` on timeout.
fn public() -> io::Result<Option<Lock>> {
    let file = File::open(NAMESPACE)?;
    let locked = wait_for(PUBLIC_LOCK_TIMEOUT, || Ok(try_lock(&file)?.then_some(())))?;
    Ok(locked.map(|()| Lock { file }))
}

/// Opens a lock file, and creates it if it is missing.
fn open(path: &Path) -> io::Result<File> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Err(ErrorKind::InvalidInput.into());
    };
    loop {
        let dir = ensure_directory(parent)?;
        match file::open_in(&dir, name, OFlag::O_RDONLY | OFlag::O_CREAT) {
            // Another process deleted the directory meanwhile.
            Err(e)
                if e.kind() == ErrorKind::NotFound
                    && !file::is_still(&dir, fs::symlink_metadata(parent))? => {}
            opened => return require_private(opened?),
        }
    }
}

/// Opens a directory that only this user can enter, and creates it if it is missing.
///
/// # Errors
/// `EACCES` if others can enter or own it; other errors of open(2) and mkdir(2).
pub(crate) fn ensure_directory(path: &Path) -> io::Result<File> {
    loop {
        match open_directory(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => match DirBuilder::new().mode(0o700).create(path) {
                // Another plugin created it first.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                made => made?,
            },
            opened => return opened,
        }
    }
}

pub(crate) fn open_directory(path: &Path) -> io::Result<File> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    require_private(File::options().read(true).custom_flags(flags).open(path)?)
}

/// Checks that no other user can open the file, now or later.
pub(crate) fn require_private(file: File) -> io::Result<File> {
    let found = file.metadata()?;
    let mine = found.uid() == geteuid().as_raw() && found.mode() & 0o077 == 0;
    if mine { Ok(file) } else { Err(io::Error::from_raw_os_error(libc::EACCES)) }
}

/// Locks a file with flock(2) unless another process has locked it.
///
/// # Errors
/// If flock(2) fails for another reason.
pub fn try_lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(e)) if e.kind() == ErrorKind::Interrupted => Ok(false),
        Err(TryLockError::Error(e)) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    /// Returns `None` on timeout.
    fn take(path: &Path, time: Duration) -> io::Result<Option<File>> {
        Retry::new(time).wait_for(|| private(path))
    }

    /// Deletes a directory while others create files in it. It disappears from its path in one step.
    fn remove(dir: &Path) {
        let aside = dir.with_extension("removed");
        fs::rename(dir, &aside).unwrap();
        // A process with the open directory may create one more file in it.
        while let Err(e) = fs::remove_dir_all(&aside) {
            assert_eq!(e.kind(), ErrorKind::DirectoryNotEmpty, "{e}");
        }
    }

    #[test]
    fn only_one_holds_a_lock_and_the_next_one_gets_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("own/one.lock");
        let held = take(&path, LONG).unwrap().unwrap();
        let (sender, receiver) = mpsc::channel();
        let there = path.clone();
        let other = thread::spawn(move || {
            sender.send("waits").unwrap();
            let _lock = take(&there, LONG).unwrap().unwrap();
            sender.send("holds").unwrap();
        });
        assert_eq!(receiver.recv().unwrap(), "waits");
        assert!(receiver.try_recv().is_err());
        take(&dir.path().join("own/two.lock"), LONG).unwrap().unwrap();
        drop(held);
        assert_eq!(receiver.recv().unwrap(), "holds");
        other.join().unwrap();
    }

    #[test]
    fn a_lock_that_is_not_released_is_waited_for_until_the_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("own/one.lock");
        let _held = take(&path, LONG).unwrap().unwrap();
        assert!(take(&path, Duration::ZERO).unwrap().is_none());
        assert!(take(&path, Duration::from_millis(30)).unwrap().is_none());
    }

    #[test]
    fn a_waiter_for_a_deleted_lock_file_gets_its_replacement() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("own/one.lock");
        let before = take(&path, LONG).unwrap().unwrap();
        let there = path.clone();
        let (sender, receiver) = mpsc::channel();
        let other = thread::spawn(move || {
            sender.send(()).unwrap();
            take(&there, LONG).unwrap().unwrap()
        });
        receiver.recv().unwrap();
        remove(&dir.path().join("own"));
        drop(before);
        let held = other.join().unwrap();
        assert!(file::is_still(&held, fs::symlink_metadata(&path)).unwrap());
        assert!(take(&path, Duration::ZERO).unwrap().is_none());
    }

    /// Otherwise the caller would lock the namespace instead.
    #[test]
    fn a_directory_that_is_deleted_concurrently_is_created_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("own/one.lock");
        drop(take(&path, LONG).unwrap());
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    fs::remove_dir_all(dir.path().join("own")).ok();
                }
            });
            let failed = (0..2000).find_map(|_| take(&path, LONG).err());
            done.store(true, Ordering::Relaxed);
            assert!(failed.is_none(), "{failed:?}");
        });
    }

    #[test]
    fn files_that_others_can_open_and_links_are_not_locked() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("own");
        let path = own.join("one.lock");
        drop(take(&path, LONG).unwrap());
        assert_eq!(fs::metadata(&own).unwrap().mode() & 0o777, 0o700);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        for (what, mode) in [(&path, 0o604), (&own, 0o755), (&own, 0o777)] {
            let before = fs::metadata(what).unwrap().permissions();
            fs::set_permissions(what, Permissions::from_mode(mode)).unwrap();
            assert!(is_host_limitation(&take(&path, LONG).unwrap_err()), "{} {mode:o}", what.display());
            fs::set_permissions(what, before).unwrap();
        }
        fs::rename(&path, own.join("elsewhere")).unwrap();
        symlink("elsewhere", &path).unwrap();
        assert!(is_host_limitation(&take(&path, LONG).unwrap_err()));
        fs::rename(&own, dir.path().join("elsewhere")).unwrap();
        symlink("elsewhere", &own).unwrap();
        assert!(is_host_limitation(&take(&path, LONG).unwrap_err()));
        assert!(is_host_limitation(&take(Path::new("/proc/ferrule/one.lock"), LONG).unwrap_err()));
    }
}
