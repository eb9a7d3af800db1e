//! `metrics`.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use runtime::Result;

use crate::doctor::Host;
use crate::metrics;
use crate::settings::Settings;
use crate::ui::Ui;

/// Prints the metrics of this host, or writes them to a file.
pub fn run(to: Option<&Path>, settings: &Settings, ui: &Ui) -> Result<()> {
    let text = metrics::text(&Host::examine(settings).complete()?, ui);
    let Some(file) = to else { return ui.print(&text) };
    Ok(write(file, &text).map_err(|e| cni::Error::io(format!("write {}", file.display()), &e))?)
}

/// Writes to a file, to the file that a link leads to, or to a device or FIFO.
fn write(file: &Path, text: &str) -> io::Result<()> {
    match fs::canonicalize(file) {
        Ok(real) if real.is_file() => replace(&real, text),
        Err(_) if !file.is_symlink() => replace(file, text),
        // A link to a pipe, such as /dev/stdout, leads to no path.
        _ => fs::write(file, text),
    }
}

/// Node exporter may read the file at any time, as another user. It ignores names that do not end in `.prom`.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let mut name = file.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(format!(".{}", std::process::id()));
    let temporary = file.with_file_name(name);
    let written = File::create_new(&temporary).and_then(|mut open| {
        open.write_all(text.as_bytes())?;
        open.set_permissions(Permissions::from_mode(0o644))?;
        fs::rename(&temporary, file)
    });
    if written.is_err() {
        fs::remove_file(&temporary).ok();
    }
    written
}
