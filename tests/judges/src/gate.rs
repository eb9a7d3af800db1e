//! A plugin that waits when it is called, until the check releases it.
//!
//! This program takes the plugin's place, because a symbolic link to an executable is replaced in one step. A script would not do: the
//! kernel opens it once and its shell a second time, and a call in between fails if the name then belongs to the plugin.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command, ExitCode};

use crate::host::{Host, PLUGINS};
use crate::soon::soon;

/// The `CNI_COMMAND` of the call that waits.
const COMMAND: &str = "/run/lab/gate-command";
const REACHED: &str = "/run/lab/reached";
const LET_GO: &str = "/run/lab/let-go";
/// The first call creates this directory.
const FIRST: &str = "/run/lab/first";

pub struct Gate<'a> {
    host: &'a Host,
    plugin: &'static str,
}

impl<'a> Gate<'a> {
    /// Makes `plugin` wait when it is called with `command` for the first time. Later calls do not wait: if a runtime is killed, one of
    /// its other processes may call the plugin.
    pub fn before(host: &'a Host, plugin: &'static str, command: &str) -> Self {
        let program = std::env::current_exe().expect("the path of this program");
        // The plugin's second name stays, for calls that pass the gate while it opens.
        host.lab.host().sh(&format!(
            "mkfifo {REACHED} {LET_GO}
             rm -rf {FIRST}
             echo {command} >{COMMAND}
             ln -f {PLUGINS}/{plugin} {real}
             ln -s {program} {PLUGINS}/new; mv {PLUGINS}/new {PLUGINS}/{plugin}",
            real = real(plugin).display(),
            program = lab::quoted(&program)
        ));
        Self { host, plugin }
    }

    /// Waits until the plugin waits, and returns its process id.
    #[track_caller]
    pub fn reached(&self) -> String {
        self.host.run(&format!("cat {REACHED}"))
    }

    /// Restores the plugin, and releases the waiting one. Returns when it has exited.
    #[track_caller]
    pub fn open(self, waiting: &str) {
        let Self { host, plugin } = self;
        host.lab.host().sh(&format!(
            "ln {} {PLUGINS}/new; mv {PLUGINS}/new {PLUGINS}/{plugin}; echo go >{LET_GO}",
            real(plugin).display()
        ));
        soon("the plugin that waited has ended", &false, || Path::new("/proc").join(waiting).exists());
        host.run(&format!("rm {REACHED} {LET_GO}"));
    }
}

/// The plugin's second name. It has the suffix -PLUGIN, because ferrule selects the plugin by this suffix.
fn real(plugin: &str) -> PathBuf {
    Path::new(PLUGINS).join(format!("real-{plugin}"))
}

/// The plugin whose place this process has, if a runtime has called it.
pub fn called() -> Option<String> {
    let name = std::env::args().next()?;
    Some(name.strip_prefix(PLUGINS)?.strip_prefix('/')?.to_owned())
}

/// Waits if this is the call to wait for, and becomes the plugin.
pub fn pass(plugin: &str) -> ExitCode {
    let is_awaited = fs::read_to_string(COMMAND).ok().as_deref().map(str::trim)
        == std::env::var("CNI_COMMAND").ok().as_deref();
    if is_awaited && fs::create_dir(FIRST).is_ok() {
        wait().expect("wait at the gate");
    }
    let error = Command::new(real(plugin)).exec();
    eprintln!("run {}: {error}", real(plugin).display());
    ExitCode::FAILURE
}

fn wait() -> io::Result<()> {
    fs::write(REACHED, process::id().to_string())?;
    fs::read(LET_GO).map(drop)
}
