//! Facts about the running kernel that are expensive to find out, remembered until the host is started again.
//!
//! A fact is a file in /run/ferrule, of mode 600 in a directory of mode 700. It holds the boot's id and the kernel's version: a file
//! of another boot, of another kernel or of another user is no fact.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use nix::fcntl::OFlag;

use crate::file;
use crate::lock;

/// More bytes than a boot's id and a kernel's version have.
const LIMIT: u64 = 1024;

/// What was noted under a name since the host was started.
pub fn noted(name: &str) -> Option<String> {
    let read = || {
        let dir = lock::open_directory(Path::new(lock::DIRECTORY))?;
        let file = lock::require_private(file::open_in(&dir, &file_name(name), OFlag::O_RDONLY)?)?;
        io::Result::Ok((file::read_all(file, LIMIT)?, this_boot()?))
    };
    let (found, boot) = read().ok()?;
    let fact = found.strip_suffix(&boot[..])?.strip_suffix(b"\n")?;
    String::from_utf8(fact.to_vec()).ok()
}

/// Notes a fact under a name. Where root has no directory of its own in /run, nothing is noted.
pub fn note(name: &str, fact: &str) {
    let write = || {
        let dir = lock::ensure_directory(Path::new(lock::DIRECTORY))?;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC;
        let mut file = lock::require_private(file::open_in(&dir, &file_name(name), flags)?)?;
        // In place: what a kill leaves half written has no fact.
        file.write_all(&[fact.as_bytes(), b"\n", &this_boot()?].concat())
    };
    // The next one finds it out again.
    write().ok();
}

fn file_name(name: &str) -> String {
    format!("{name}.boot")
}

fn this_boot() -> io::Result<Vec<u8>> {
    Ok([fs::read("/proc/sys/kernel/random/boot_id")?, fs::read("/proc/version")?].concat())
}
