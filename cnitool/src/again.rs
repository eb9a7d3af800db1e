//! Runs cnitool again in a separate process, for commands that keep running (`--watch`, `--every`). The memory of
//! each run is freed, and a failed run does not end the parent.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use runtime::Result;

use crate::ui::Ui;

/// Runs cnitool with these arguments, and waits for it. With `may_refuse`, returns the exit code if no later run can succeed either: wrong
/// usage, or a network that does not exist or is invalid.
///
/// # Errors
/// If the process cannot be started.
pub fn again(
    arguments: impl Iterator<Item = OsString>,
    what: &str,
    may_refuse: bool,
    ui: &Ui,
) -> Result<Option<ExitCode>> {
    let mut command = Command::new("/proc/self/exe");
    command.args(arguments).stdin(Stdio::null());
    // Ctrl-C on a terminal ends this process after the run, so the signal must not reach the run.
    command.process_group(0);
    let ended = command.status().map_err(|e| cni::Error::io(format!("start the {what}"), &e))?;
    match ended.code() {
        Some(0) => Ok(None),
        Some(code @ (2 | 3)) if may_refuse => Ok(u8::try_from(code).ok().map(ExitCode::from)),
        _ => {
            ui.warn(&format!("the {what} was not complete ({ended}); the next one tries again"));
            Ok(None)
        }
    }
}
