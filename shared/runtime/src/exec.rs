//! Running plugins, as an interface: tests and tracers put their own in place of real processes.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cni::{Command, PluginType};

/// One run of a plugin.
#[derive(Clone, Copy, Debug)]
pub struct Invocation<'a> {
    /// The plugin.
    pub kind: &'a PluginType,
    /// Its executable.
    pub program: &'a Path,
    /// What is asked of it.
    pub command: Command,
    /// Arguments of its command line. The specification has none.
    pub args: &'a [&'static str],
    /// Variables, on top of the calling process's own.
    pub env: &'a [(&'static str, OsString)],
    /// The request: the plugin's configuration with what the runtime adds.
    pub stdin: &'a [u8],
    /// When to give up. None: the implementation's own limit.
    pub deadline: Option<Duration>,
}

/// What a plugin that succeeded had to say.
#[derive(Clone, Debug, Default)]
pub struct Output {
    /// A result, for ADD and VERSION. At most [`cni::json::MAX_BYTES`].
    pub stdout: Vec<u8>,
    /// Its log, where that is captured.
    pub stderr: Vec<u8>,
}

/// Finds plugins and runs them. [`Processes`](crate::Processes) is the real one.
///
/// ```
/// use runtime::{Exec, Invocation, Network, Output, Runtime};
///
/// /// Says yes to everything.
/// #[derive(Debug)]
/// struct Yes;
///
/// impl Exec for Yes {
///     fn find(&self, kind: &cni::PluginType, _: &[std::path::PathBuf]) -> cni::Result<std::path::PathBuf> {
///         Ok(kind.as_str().into())
///     }
///     fn run(&self, _: &Invocation<'_>) -> cni::Result<Output> {
///         Ok(Output::default())
///     }
/// }
///
/// let network = Network::from_bytes(br#"{"cniVersion": "1.1.0", "name": "n", "plugins": [{"type": "t"}]}"#)?;
/// Runtime::new(["/opt/cni/bin"]).exec(Yes).status(&network)?;
/// # Ok::<(), runtime::Error>(())
/// ```
pub trait Exec: fmt::Debug + Send + Sync {
    /// The plugin's executable.
    ///
    /// # Errors
    /// Code 7 if there is none in these directories.
    fn find(&self, kind: &PluginType, path: &[PathBuf]) -> cni::Result<PathBuf> {
        cni::exec::find(kind, path)
    }

    /// Runs a plugin to its end.
    ///
    /// # Errors
    /// The plugin's error if it failed. Otherwise, the reason why it could not be started or did not finish.
    fn run(&self, invocation: &Invocation<'_>) -> cni::Result<Output>;
}
