//! Multi-call executable: many plugins in one file, selected by the name under which it is called.
//!
//! If a delegated plugin is part of the same executable, it runs in the same process, because starting a process would take longer than its
//! work. It gets the same input as a process, and its output is handled in the same way.

use std::cell::RefCell;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{ExitCode, ExitStatus};
use std::sync::OnceLock;

use system::child::{IoStop, Outcome, Stopped};

use crate::call::Variable;
use crate::exec::LIMITS;
use crate::log;
use crate::plugin::{self, Plugin, Print, ReadStdin};
use crate::{Command, Error, Result, Version};

/// Answers a request to a command of Ferrule, such as `repair`.
type AnswerOwn = fn(&[u8]) -> Result<String>;

/// A plugin of a multi-call executable.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    name: &'static str,
    main: fn() -> ExitCode,
    answer: fn(Variable<'_>, ReadStdin<'_>, Print<'_>) -> ExitCode,
    own: fn(&str) -> Option<AnswerOwn>,
}

/// The plugins of this executable. Empty for a single plugin.
static PLUGINS: OnceLock<&[Entry]> = OnceLock::new();

/// If this variable is set, each plugin is a separate process. Tests use both ways.
const SEPARATE: &str = "FERRULE_SEPARATE_DELEGATES";

/// Exit status of a process that panics, as in waitpid(2).
const PANICKED: i32 = 101 << 8;
const FAILED: i32 = 1 << 8;

impl Entry {
    /// The entry of a plugin.
    pub const fn of<P: Plugin>() -> Self {
        Self { name: P::NAME, main: plugin::main::<P>, answer: plugin::answer::<P>, own: plugin::own::<P> }
    }

    /// Name of the plugin.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Runs a command within this process, with its environment.
    ///
    /// # Errors
    /// If it printed more than a process may.
    pub(crate) fn run(&self, command: Command, stdin: &[u8]) -> Result<Outcome, Stopped> {
        self.run_with(&|name| env::var_os(name), command, stdin)
    }

    /// Runs a request that is not in the specification, within this process.
    ///
    /// # Errors
    /// If the request is invalid.
    pub(crate) fn run_own(&self, argument: &str, request: &[u8]) -> Result<String> {
        let _served = log::serving(self.name);
        (self.own)(argument).map_or_else(|| Ok(String::new()), |answer| answer(request))
    }

    fn run_with(&self, own: Variable<'_>, command: Command, stdin: &[u8]) -> Result<Outcome, Stopped> {
        let printed = RefCell::new(Vec::new());
        let variable = |name: &str| match name {
            "CNI_COMMAND" => Some(command.as_str().into()),
            other => own(other),
        };
        let print = |json: &str| {
            printed.borrow_mut().extend_from_slice(format!("{json}\n").as_bytes());
            Ok(())
        };
        let serve = || {
            let _served = log::serving(self.name);
            (self.answer)(&variable, &|| Ok(stdin.to_vec()), &print)
        };
        let status = match catch_unwind(AssertUnwindSafe(serve)) {
            Ok(ExitCode::SUCCESS) => 0,
            Ok(_) => FAILED,
            Err(_) => PANICKED,
        };
        let out = printed.into_inner();
        if out.len() as u64 > LIMITS.bytes {
            return Err(Stopped { why: IoStop::Endless, log: Vec::new(), remains: None });
        }
        Ok(Outcome { status: ExitStatus::from_raw(status), out, log: Vec::new() })
    }
}

/// Serves one call as the plugin with the executable's name: the `main` of a plugin. `None` if no plugin has that name and no runtime
/// calls.
pub fn main(plugins: &'static [Entry]) -> Option<ExitCode> {
    PLUGINS.get_or_init(|| plugins);
    let path = env::args_os().next().unwrap_or_default();
    let file = Path::new(&path).file_name().unwrap_or_default();
    match find(plugins, file) {
        Some(plugin) => Some((plugin.main)()),
        None => plugin::is_called()
            .then(|| plugin::failed(&nobody(plugins, file), Version::LATEST, &plugin::print)),
    }
}

/// The plugin with a file's name, or with its last part, such as `buildkit-cni-bridge`.
fn find<'a>(plugins: &'a [Entry], file: &OsStr) -> Option<&'a Entry> {
    let file = file.to_str()?;
    let is_meant =
        |name| file.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('-'));
    plugins.iter().filter(|plugin| is_meant(plugin.name)).max_by_key(|plugin| plugin.name.len())
}

fn nobody(plugins: &[Entry], file: &OsStr) -> Error {
    let names: Vec<&str> = plugins.iter().map(Entry::name).collect();
    Error::config(format!("type: this executable was called as {file:?}, which is not the name of a plugin"))
        .detail(format!("call it by the name of a plugin: {}", names.join(", ")))
}

/// The plugin of a file, if the file is this executable.
pub(crate) fn here(file: &Path) -> Option<&'static Entry> {
    let plugins = PLUGINS.get()?;
    if env::var_os(SEPARATE).is_some_and(|separate| !separate.is_empty()) {
        return None;
    }
    // A plugin that delegates to itself never ends; a process can be stopped.
    within(plugins, file).filter(|plugin| !log::is_served(plugin.name))
}

fn within<'a>(plugins: &'a [Entry], file: &Path) -> Option<&'a Entry> {
    let inode = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    let plugin = find(plugins, file.file_name()?)?;
    (inode(file)? == inode(Path::new("/proc/self/exe"))?).then_some(plugin)
}

#[cfg(test)]
mod tests;
