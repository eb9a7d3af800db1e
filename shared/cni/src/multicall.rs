//! Multicall executable: the name of the called file selects the plugin.
//!
//! A delegate in the same executable is called within the process, because starting a process takes longer than the delegate's work.
//! It receives the same request as a process, and its output is handled in the same way.

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
use crate::delegate::LIMITS;
use crate::plugin::{self, Plugin, Print, ReadStdin};
use crate::{Command, Error, Result, Version};

/// Answers a request on stdin to a command of our own, such as `repair`.
type AnswerOwn = fn(&[u8]) -> Result<String>;

/// A plugin of an executable that has many.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    name: &'static str,
    main: fn() -> ExitCode,
    answer: fn(Variable<'_>, ReadStdin<'_>, Print<'_>) -> ExitCode,
    own: fn(&str) -> Option<AnswerOwn>,
}

/// The plugins of this executable. Empty: it is one plugin.
static PLUGINS: OnceLock<&[Entry]> = OnceLock::new();

/// With this variable set each plugin is a process of its own. Tests try both ways.
const SEPARATE: &str = "FERRULE_SEPARATE_DELEGATES";

/// The exit status of a process that panics, as waitpid(2) tells it.
const PANICKED: i32 = 101 << 8;
const FAILED: i32 = 1 << 8;

impl Entry {
    /// The entry of a plugin.
    pub const fn of<P: Plugin>() -> Self {
        Self { name: P::NAME, main: plugin::main::<P>, answer: plugin::answer::<P>, own: plugin::own::<P> }
    }

    /// The plugin's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Has the plugin serve a command within this process, with its environment.
    ///
    /// # Errors
    /// If it printed more than a process may.
    pub(crate) fn run(&self, command: Command, stdin: &[u8]) -> Result<Outcome, Stopped> {
        self.run_with(&|name| env::var_os(name), command, stdin)
    }

    /// Has the plugin serve a request that is not the specification's within this process.
    ///
    /// # Errors
    /// What is wrong with the request.
    pub(crate) fn run_own(&self, argument: &str, request: &[u8]) -> Result<String> {
        let _served = plugin::serving(self.name);
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
            let _served = plugin::serving(self.name);
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

/// Serves one call as the plugin by whose name the executable was called: the whole `main` of a plugin. None: the name is no
/// plugin's, and no runtime asks for one.
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

/// The plugin that a file of this name is: the plugin's own name, or one that ends in it, such as `buildkit-cni-bridge`.
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

/// The plugin that a file is, if the file is this very executable.
pub(crate) fn here(file: &Path) -> Option<&'static Entry> {
    let plugins = PLUGINS.get()?;
    if env::var_os(SEPARATE).is_some_and(|separate| !separate.is_empty()) {
        return None;
    }
    // One that delegates to itself does so without end: as processes it can be stopped.
    within(plugins, file).filter(|plugin| !plugin::is_served(plugin.name))
}

fn within<'a>(plugins: &'a [Entry], file: &Path) -> Option<&'a Entry> {
    let inode = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    let plugin = find(plugins, file.file_name()?)?;
    (inode(file)? == inode(Path::new("/proc/self/exe"))?).then_some(plugin)
}

#[cfg(test)]
mod tests;
