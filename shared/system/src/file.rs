//! Files in untrusted places. A directory, link, FIFO or device in place of a file, or a file that is too large, is an error.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::{OFlag, openat};
use nix::libc;
use nix::sys::stat::Mode;

mod atomic;

pub use atomic::{AtomicFile, is_temporary, label_of, remove_temporary, remove_temporary_before};

/// Reads a file of an administrator. Follows links.
///
/// # Errors
/// If the file cannot be read, is not a regular file, or has more than `limit` bytes.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_all(regular(OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path))?, limit)
}

/// Reads a file that only this program writes. Does not follow links.
///
/// # Errors
/// If the file cannot be read, is not a regular file, or has more than `limit` bytes.
pub fn read_own(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_all(open_own(OpenOptions::new().read(true), path)?, limit)
}

/// Opens a file that only this program writes. Does not follow links and does not block.
///
/// # Errors
/// If the file cannot be opened or is not a regular file.
pub fn open_own(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    regular(options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path))
}

/// Like [`open_own`], in an open directory, whether or not the directory still has its path. A new file has mode 600.
///
/// # Errors
/// If the file cannot be opened or is not a regular file.
pub fn open_in(dir: &File, name: &str, flags: OFlag) -> io::Result<File> {
    let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let opened = openat(dir, name, flags, Mode::S_IRUSR | Mode::S_IWUSR);
    let opened = opened.map(File::from).map_err(io::Error::from);
    // A file that was just created is regular. If a check failed, the file would be left behind.
    if flags.contains(OFlag::O_EXCL) { opened } else { regular(opened) }
}

/// Opens a directory. Does not block if a FIFO has its path.
///
/// # Errors
/// If it cannot be opened, or is not a directory.
pub fn open_directory(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(path)
}

/// Whether a path still names an open file or directory. `now` is the result of stat(2) or lstat(2) for the path.
///
/// # Errors
/// If stat(2) failed for another reason than a missing file.
pub fn is_still(open: &File, now: io::Result<Metadata>) -> io::Result<bool> {
    match now {
        Ok(now) => open.metadata().map(|then| (now.dev(), now.ino()) == (then.dev(), then.ino())),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// Turns the error for a missing file into a default value. A name that is too long for the file system counts as missing.
///
/// # Errors
/// All errors of `outcome` except a missing file.
pub fn missing_is_fine<T: Default>(outcome: io::Result<T>) -> io::Result<T> {
    match outcome {
        Err(e)
            if matches!(
                e.kind(),
                ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidFilename
            ) =>
        {
            Ok(T::default())
        }
        other => other,
    }
}

/// Whether an error says that the path is not a regular file.
pub fn is_irregular(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Irregular>())
}

fn regular(opened: io::Result<File>) -> io::Result<File> {
    match opened {
        Ok(file) if file.metadata()?.is_file() => Ok(file),
        Ok(_) => Err(io::Error::other(Irregular)),
        // A link; a socket, or a FIFO without a reader.
        Err(e) if matches!(e.raw_os_error(), Some(libc::ELOOP | libc::ENXIO | libc::EISDIR)) => {
            Err(io::Error::other(Irregular))
        }
        Err(e) => Err(e),
    }
}

/// Initial size of the buffer in bytes, if the file may be that large. Most leases and cached results are smaller. Growing an empty vector
/// would take eight system calls for one of them.
const FIRST_READ: usize = 4096;

/// Reads a file to its end.
///
/// # Errors
/// If the file cannot be read or has more than `limit` bytes.
pub fn read_all(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(FIRST_READ);
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let text = format!("it is larger than {limit} bytes; find out who wrote it, and move it away");
        return Err(io::Error::new(ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}

#[derive(Debug)]
struct Irregular;

impl std::fmt::Display for Irregular {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("it is not a regular file; find out who created it, and move it away")
    }
}

impl std::error::Error for Irregular {}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn special_files_are_neither_read_nor_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("directory")).unwrap();
        mkfifo(&at("fifo"), Mode::S_IRWXU).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        symlink("/dev/zero", at("link")).unwrap();
        for path in [at("directory"), at("fifo"), at("socket"), at("link"), "/dev/zero".into()] {
            for error in [read(&path, 100).unwrap_err(), read_own(&path, 100).unwrap_err()] {
                assert!(is_irregular(&error), "{}: {error}", path.display());
            }
            let written = open_own(OpenOptions::new().write(true), &path).unwrap_err();
            assert!(is_irregular(&written), "{}: {written}", path.display());
            let name = path.file_name().and_then(|name| name.to_str()).unwrap();
            let parent = File::open(path.parent().unwrap()).unwrap();
            let inside = open_in(&parent, name, OFlag::O_WRONLY | OFlag::O_CREAT).unwrap_err();
            assert!(is_irregular(&inside), "{}: {inside}", path.display());
        }
        assert!(!is_irregular(&read(&at("missing"), 100).unwrap_err()));
    }

    #[test]
    fn only_an_administrators_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        fs::write(&file, "text").unwrap();
        symlink(&file, &link).unwrap();
        assert_eq!(read(&link, 4).unwrap(), b"text");
        assert!(is_irregular(&read_own(&link, 4).unwrap_err()));
    }

    #[test]
    fn a_file_that_is_too_large_is_not_read_into_memory() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "text").unwrap();
        assert_eq!(read_own(&file, 4).unwrap(), b"text");
        assert_eq!(read_own(&file, 3).unwrap_err().kind(), ErrorKind::FileTooLarge);
    }
}
