//! Lock that excludes GC from ADD and DEL, in all processes (SPEC.md, section 3, "Lifecycle & Ordering").

use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use cni::{Attachment, Code, NetworkName};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{F_WRLCK, SEEK_SET, flock};
use system::Retry;

use crate::Result;

/// How long a GC lets waiting processes have the lock: longer than the pauses between the attempts of an ADD.
const GC_PAUSE: Duration = Duration::from_millis(15);

/// Held until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Lock {
    /// Waits until no GC runs.
    pub(crate) fn shared(dir: &Path) -> Result<Self> {
        Self::take(dir, File::lock_shared)
    }

    /// Like [`Lock::shared`]. Fails with code 999 if the flag is set while it waits.
    pub(crate) fn shared_unless(dir: &Path, interrupted: &AtomicBool) -> Result<Self> {
        Self::take(dir, |file| {
            poll_unless(interrupted, || match file.try_lock_shared() {
                Ok(()) => Ok(true),
                Err(TryLockError::WouldBlock) => Ok(false),
                Err(TryLockError::Error(e)) => Err(e),
            })
        })
    }

    /// Waits until no ADD, DEL or GC runs.
    pub(crate) fn exclusive(dir: &Path) -> Result<Self> {
        Self::take(dir, File::lock)
    }

    /// Releases an exclusive lock, so that waiting processes get it, and takes it again.
    ///
    /// # Errors
    /// Code 5 if the file cannot be locked.
    pub(crate) fn let_others_in(&self) -> Result<()> {
        let locked = self.file.unlock().and_then(|()| {
            thread::sleep(GC_PAUSE);
            self.file.lock()
        });
        Ok(locked.map_err(|e| cni::Error::io("lock the results again", &e))?)
    }

    /// Waits until no other process has this lock for the attachment. Fails with code 999 if the flag is set while it waits.
    pub(crate) fn of_attachment(
        dir: &Path,
        network: &NetworkName,
        at: &Attachment,
        interrupted: &AtomicBool,
    ) -> Result<Self> {
        let names = [network.as_str(), at.container.as_str(), at.ifname.as_str()];
        // One byte of the file for each attachment, by a hash (FNV-1a). Such locks and those of the whole file do not affect each other.
        let bytes = names.iter().flat_map(|name| name.bytes().chain([0xff]));
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let range = flock {
            l_type: F_WRLCK as _,
            l_whence: SEEK_SET as _,
            l_start: (hash >> 2).cast_signed(),
            l_len: 1,
            l_pid: 0,
        };
        Self::take(dir, |file| {
            poll_unless(interrupted, || match fcntl(file, FcntlArg::F_OFD_SETLK(&range)) {
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

    fn take(dir: &Path, lock: impl FnOnce(&File) -> io::Result<()>) -> Result<Self> {
        let path = dir.join("results.lock");
        let make = || DirBuilder::new().recursive(true).mode(0o755).create(dir);
        let file = open(&path).or_else(|_| make().and_then(|()| open(&path)));
        let locked = file.and_then(|file| lock(&file).map(|()| Self { file }));
        Ok(locked.map_err(|e| match e.kind() {
            io::ErrorKind::Interrupted => {
                let text = "the wait for another command was interrupted";
                cni::Error::new(Code::Internal, text)
                    .detail(format!("the other command has locked {}", path.display()))
            }
            _ => cni::Error::io(format!("lock {}", path.display()), &e),
        })?)
    }
}

/// Attempts until an attempt succeeds. A handler's signal does not end a system call that waits: the kernel restarts it.
///
/// # Errors
/// `Interrupted` if the flag is set before. The error of an attempt.
fn poll_unless(interrupted: &AtomicBool, mut attempt: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    let got = Retry::new(Duration::MAX).wait_for(|| match attempt()? {
        true => Ok(Some(())),
        false if interrupted.load(Ordering::Relaxed) => Err(io::ErrorKind::Interrupted.into()),
        false => Ok(None),
    });
    got.map(Option::unwrap_or_default)
}

/// Opens the file for reading and writing, because NFS refuses a shared lock on a file that is only open for writing, and an exclusive lock on
/// one that is only open for reading (flock(2)). Only root may open the file, because each process that opens it can hold the lock.
fn open(path: &Path) -> io::Result<File> {
    system::file::open_own(File::options().read(true).create(true).append(true).mode(0o600), path)
}

#[cfg(test)]
mod tests {
    use nix::fcntl::OFlag;

    use super::*;

    #[test]
    fn the_file_is_open_for_reading_and_writing() {
        let dir = tempfile::tempdir().unwrap();
        let lock = Lock::shared(dir.path()).unwrap();
        let flags = OFlag::from_bits_retain(fcntl(&lock.file, FcntlArg::F_GETFL).unwrap());
        assert_eq!(flags & OFlag::O_ACCMODE, OFlag::O_RDWR);
    }
}
