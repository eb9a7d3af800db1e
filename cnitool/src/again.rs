//! Runs cnitool again in a separate process, for commands that keep running (`--watch`, `--every`). The memory of
//! each run is freed, and a failed run does not end the parent.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use runtime::Result;

use crate::ui::Ui;

/// Runs cnitool with these arguments, and waits for it.
///
/// # Errors
/// If the process cannot be started.
pub fn again(arguments: impl Iterator<Item = OsString>, what: &str, ui: &Ui) -> Result<()> {
    let mut command = Command::new("/proc/self/exe");
    command.args(arguments).stdin(Stdio::null());
    // Ctrl-C on a terminal ends this process after the run, so the signal must not reach the run.
    command.process_group(0);
    let ended = command.status().map_err(|e| cni::Error::io(format!("start the {what}"), &e))?;
    if !ended.success() {
        ui.warn(&format!("the {what} was not complete ({ended}); the next one tries again"));
    }
    Ok(())
}
