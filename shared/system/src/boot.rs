//! The boot id, and facts about the running kernel that are expensive to determine, stored until the next boot.
//!
//! A fact is a file in /run/ferrule, with mode 600 in a directory with mode 700. It contains the boot id and the kernel version. A file of
//! another boot, kernel or user is ignored.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use nix::fcntl::OFlag;

use crate::file;
use crate::lock::{self, Lock};

/// Maximum size of a file in bytes. The largest fact, the ages of stale resources, has about 100 bytes for each.
const LIMIT: u64 = 16 << 20;
/// Timeout for the lock of [`update`]. Work under it takes milliseconds.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Length of a boot id in bytes: a UUID as text.
pub const ID_LEN: usize = 36;

/// The kernel's id of this boot (random(4)). It is read once.
///
/// # Errors
/// If it cannot be read, for example without /proc.
pub fn id() -> io::Result<[u8; ID_LEN]> {
    static ID: OnceLock<[u8; ID_LEN]> = OnceLock::new();
    if let Some(id) = ID.get() {
        return Ok(*id);
    }
    let mut id = [0; ID_LEN];
    File::open("/proc/sys/kernel/random/boot_id")?.read_exact(&mut id)?;
    Ok(*ID.get_or_init(|| id))
}

/// Whether this is a valid boot id.
pub fn is_id(bytes: &[u8]) -> bool {
    bytes.len() == ID_LEN && bytes.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'-')
}

/// Returns the fact stored under a name since boot.
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

/// Stores a fact under a name. Does nothing if root has no directory of its own in /run.
pub fn note(name: &str, fact: &str) {
    // On failure, the next process determines the fact again.
    write(name, fact).ok();
}

/// Changes the fact stored under a name. `change` receives the present one. A lock prevents another process from changing it meanwhile.
///
/// # Errors
/// If another process held the lock for 5 seconds, root has no directory of its own in /run, or the file cannot be written.
pub fn update(name: &str, change: impl FnOnce(Option<String>) -> String) -> io::Result<()> {
    let _lock = Lock::acquire(&file_name(name), TIMEOUT).map_err(io::Error::other)?;
    write(name, &change(noted(name)))
}

fn write(name: &str, fact: &str) -> io::Result<()> {
    let dir = lock::ensure_directory(Path::new(lock::DIRECTORY))?;
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC;
    let mut file = lock::require_private(file::open_in(&dir, &file_name(name), flags)?)?;
    // Written in place: a file that a kill truncated contains no valid fact.
    file.write_all(&[fact.as_bytes(), b"\n", &this_boot()?].concat())
}

fn file_name(name: &str) -> String {
    format!("{name}.boot")
}

fn this_boot() -> io::Result<Vec<u8>> {
    Ok([&id()?[..], b"\n", &fs::read("/proc/version")?].concat())
}
