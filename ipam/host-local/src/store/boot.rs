//! The boot id.

use std::fs::File;
use std::io::{self, Read};
use std::sync::OnceLock;

/// Length of an id in bytes: a UUID as text.
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
pub fn is_id(mark: &[u8]) -> bool {
    mark.len() == ID_LEN && mark.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'-')
}
