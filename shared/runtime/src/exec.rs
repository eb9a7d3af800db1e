//! Interface for running plugins. Tests and tracers use their own implementation instead of processes.

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
    /// Command.
    pub command: Command,
    /// Command line arguments. The specification has none.
    pub args: &'a [&'static str],
    /// Environment variables, in addition to the process's own.
    pub env: &'a [(&'static str, OsString)],
    /// Request: the plugin's configuration with the runtime's keys.
    pub stdin: &'a [u8],
    /// Timeout. `None`: the implementation's default.
    pub timeout: Option<Duration>,
}

/// Output of a plugin that succeeded.
#[derive(Clone, Debug, Default)]
pub struct Output {
    /// Result, for ADD and VERSION. At most [`cni::json::MAX_BYTES`].
    pub stdout: Vec<u8>,
    /// Log, if it is captured.
    pub stderr: Vec<u8>,
}

/// Finds plugins and runs them. [`Processes`](crate::Processes) runs them as processes.
///
/// ```
/// use runtime::{Exec, Invocation, Network, Output, Runtime};
///
/// /// Each command succeeds.
/// #[derive(Debug)]
/// struct Succeed;
///
/// impl Exec for Succeed {
///     fn find(&self, kind: &cni::PluginType, _: &[std::path::PathBuf]) -> cni::Result<std::path::PathBuf> {
///         Ok(kind.as_str().into())
///     }
///     fn run(&self, _: &Invocation<'_>) -> cni::Result<Output> {
///         Ok(Output::default())
///     }
/// }
///
/// let network = Network::from_bytes(br#"{"cniVersion": "1.1.0", "name": "n", "plugins": [{"type": "t"}]}"#)?;
/// Runtime::new(["/opt/cni/bin"]).exec(Succeed).status(&network)?;
/// # Ok::<(), runtime::Error>(())
/// ```
pub trait Exec: fmt::Debug + Send + Sync {
    /// Finds the plugin's executable.
    ///
    /// # Errors
    /// Code 7 if it is in none of these directories.
    fn find(&self, kind: &PluginType, path: &[PathBuf]) -> cni::Result<PathBuf> {
        cni::exec::find(kind, path)
    }

    /// Runs a plugin until it exits.
    ///
    /// # Errors
    /// The plugin's error if it failed; otherwise why it could not be run or was killed.
    fn run(&self, invocation: &Invocation<'_>) -> cni::Result<Output>;
}
