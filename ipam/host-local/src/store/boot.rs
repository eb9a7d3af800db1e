//! Which boot is this?

use std::fs::File;
use std::io::{self, Read};
use std::sync::OnceLock;

/// Bytes of an id, a UUID as text.
pub const ID_LEN: usize = 36;

/// The id that the kernel gave to this boot (random(4)). It is read once.
///
/// # Errors
/// What the file system says, if /proc is missing.
pub fn id() -> io::Result<[u8; ID_LEN]> {
    static ID: OnceLock<[u8; ID_LEN]> = OnceLock::new();
    if let Some(id) = ID.get() {
        return Ok(*id);
    }
    let mut id = [0; ID_LEN];
    File::open("/proc/sys/kernel/random/boot_id")?.read_exact(&mut id)?;
    Ok(*ID.get_or_init(|| id))
}

/// Whether this can be the id of a boot.
pub fn is_id(mark: &[u8]) -> bool {
    mark.len() == ID_LEN && mark.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'-')
}
