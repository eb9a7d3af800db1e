//! A gzipped tar archive.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, Header};

use super::Item;

/// The directory in the archive.
const ROOT: &str = "cnitool-sysdump";

/// Writes a new file that only its owner can read. If this fails, no part of it is left.
///
/// # Errors
/// If the file exists or cannot be written.
pub fn write(to: &Path, items: &[Item]) -> cni::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to);
    let written = file.and_then(|file| {
        write_to(file, items).inspect_err(|_| {
            // The error of the write is more important than that of the removal.
            let _ = fs::remove_file(to);
        })
    });
    written.map_err(|e| cni::Error::io(format!("write {}", to.display()), &e))
}

fn write_to(file: File, items: &[Item]) -> io::Result<()> {
    let mut archive = Builder::new(GzEncoder::new(file, Compression::default()));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    for item in items {
        append(&mut archive, item, now)?;
    }
    archive.into_inner()?.finish()?.sync_all()
}

fn append(archive: &mut Builder<impl Write>, item: &Item, now: u64) -> io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_size(item.text.len() as u64);
    header.set_mode(0o600);
    header.set_mtime(now);
    archive.append_data(&mut header, format!("{ROOT}/{}", item.name), item.text.as_bytes())
}
