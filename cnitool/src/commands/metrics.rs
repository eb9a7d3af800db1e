//! `metrics`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;
use runtime::Result;
use system::file::{self, AtomicFile};

use crate::doctor::Host;
use crate::metrics;
use crate::settings::Settings;
use crate::ui::Ui;

/// The paths of stdout. Stdout may be a socket, which cannot be opened, such as that of systemd's journal.
const STDOUT: [&str; 3] = ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];

/// Directories of links to the descriptors of this process, such as /dev/stderr.
const DESCRIPTORS: [&str; 3] = ["/dev", "/dev/fd", "/proc/self/fd"];

/// The end of the temporary file's name.
const LABEL: &str = "metrics";

/// Prints the metrics of this host, or writes them to a file.
pub fn run(to: Option<&Path>, settings: &Settings, ui: &Ui) -> Result<()> {
    let text = metrics::text(&Host::examine(settings).complete()?, ui);
    match to.filter(|file| !STDOUT.iter().any(|stdout| *file == Path::new(stdout))) {
        Some(file) => write(file, &text),
        None => ui.print(&text),
    }
}

/// Writes to a file, or to a device or FIFO. A link of another user in a directory that everybody can write, such as /tmp, could lead to any
/// file.
fn write(file: &Path, text: &str) -> Result<()> {
    let failed = |e| cni::Error::io(format!("write {}", file.display()), &e);
    let kind = file.symlink_metadata().map(|metadata| metadata.file_type());
    let is_descriptor = file.parent().is_some_and(|dir| DESCRIPTORS.iter().any(|of| dir == Path::new(of)));
    match kind {
        Ok(kind) if kind.is_symlink() && !is_descriptor => {
            let error = cni::Error::new(cni::Code::Io, format!("{} is a symbolic link", file.display()));
            Err(error.detail("pass the path of the file that the link leads to").into())
        }
        // /dev/stderr may be a file with earlier output, such as a log.
        Ok(kind) if !kind.is_file() => {
            let links = if is_descriptor { OFlag::empty() } else { OFlag::O_NOFOLLOW };
            let open = File::options().append(true).custom_flags(links.bits()).open(file);
            Ok(open.and_then(|mut open| open.write_all(text.as_bytes())).map_err(failed)?)
        }
        _ => Ok(replace(file, text).map_err(failed)?),
    }
}

/// Node exporter may read the file at any time, as another user. It ignores names that do not end in `.prom`.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let name = file.file_name().and_then(OsStr::to_str).ok_or(io::ErrorKind::InvalidFilename)?;
    let parent = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let dir = file::open_directory(parent)?;
    AtomicFile { dir: &dir, name, label: LABEL }.replace_for_all(text.as_bytes())
}
