//! Operations on a network, which run its plugins in order (SPEC.md, section 3).

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cni::{AddResult, Attachment, Code, Command, PluginType, Version, json};
use serde_json::Value;

use crate::error::Failures;
use crate::lock::Lock;
use crate::request::Extras;
use crate::{Attach, Cache, Error, Exec, Invocation, Network, PluginConf, Processes, Result, result};

/// Runs plugins. Knows their directories, how to run them, and the cache of results.
///
/// Cloning is cheap. Several threads may use it for different containers. The caller must serialize operations on one container (SPEC.md,
/// section 3, "Lifecycle & Ordering").
#[derive(Clone, Debug)]
pub struct Runtime {
    path: Vec<PathBuf>,
    pub(crate) cache: Cache,
    exec: Arc<dyn Exec>,
    deadline: Option<Duration>,
    interrupted: Arc<AtomicBool>,
}

impl Runtime {
    /// Finds plugins in these directories. Caches results in [`Cache::DEFAULT_DIR`], and runs plugins with [`Processes`]; their logs go to stderr.
    pub fn new<P: Into<PathBuf>>(path: impl IntoIterator<Item = P>) -> Self {
        let path = path.into_iter().map(Into::into).collect();
        let exec = Arc::new(Processes::default());
        Self { path, cache: Cache::default(), exec, deadline: None, interrupted: Arc::default() }
    }

    /// Sets the directories of plugins.
    #[must_use]
    pub fn path<P: Into<PathBuf>>(mut self, path: impl IntoIterator<Item = P>) -> Self {
        self.path = path.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the cache.
    #[must_use]
    pub fn cache(mut self, cache: Cache) -> Self {
        self.cache = cache;
        self
    }

    /// Deletes files in the cache that a killed process has not completed.
    ///
    /// # Errors
    /// Code 5 if the directory cannot be read or a file not be deleted.
    pub fn remove_incomplete(&self) -> Result<()> {
        self.cache.remove_incomplete()
    }

    /// Sets how plugins are run.
    #[must_use]
    pub fn exec(mut self, exec: impl Exec + 'static) -> Self {
        self.exec = Arc::new(exec);
        self
    }

    /// Sets the timeout for one run of a plugin. The plugin is then killed, with its children.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets a flag that cancels an ADD, for example from a signal handler. The running plugin may finish; no further plugin is run, and ADD
    /// fails. Other commands ignore it, because they can be repeated.
    #[must_use]
    pub fn interrupted_by(mut self, flag: Arc<AtomicBool>) -> Self {
        self.interrupted = flag;
        self
    }

    /// The cache of results.
    pub fn results(&self) -> &Cache {
        &self.cache
    }

    /// ADD: runs the plugins in order, each with the previous one's result, and caches the last result.
    ///
    /// After a failure, call [`Runtime::del`], or use [`Runtime::add_or_roll_back`] instead.
    ///
    /// # Errors
    /// The failure of the first plugin that failed; code 5 if the result cannot be cached; code 999 if it was cancelled.
    pub fn add(&self, network: &Network, attach: &Attach) -> Result<AddResult> {
        let _lock = Lock::shared(self.cache.dir())?;
        let mut last: Option<Value> = None;
        for plugin in &network.plugins {
            let extras = Extras { attach: Some(attach), prev: last.as_ref(), valid: None };
            let out = self.call(Command::Add, network, plugin, &extras)?;
            last = Some(printed(network, plugin, &out)?);
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(Error::own(Code::Internal, format!("ADD was interrupted after {}", plugin.kind)));
            }
        }
        let last = last.ok_or_else(|| Error::own(Code::InvalidConfig, "the network has no plugins"))?;
        self.cache.write(network, attach, &last)?;
        Ok(result::read(&last, network.version)?)
    }

    /// ADD, and DEL if it fails. An attachment that existed before is kept.
    ///
    /// # Errors
    /// Like [`Runtime::add`], followed by failures of the DEL.
    pub fn add_or_roll_back(&self, network: &Network, attach: &Attach) -> Result<AddResult> {
        // A result of an earlier ADD is a regular file. Other kinds of files do not count.
        let known = fs::symlink_metadata(self.cache.path(&network.name, &attach.attachment));
        let known = known.is_ok_and(|there| there.is_file());
        self.add(network, attach).map_err(|failed| {
            if known {
                return failed;
            }
            match self.del(network, attach) {
                Ok(()) => failed,
                Err(left) => failed.and(left.context("roll back")),
            }
        })
    }

    /// CHECK of every plugin. Missing `args` and capability arguments are those of ADD.
    ///
    /// # Errors
    /// The failure of the first plugin that failed; code 1 if the network's version (before 0.4.0) has no CHECK; 3 if no ADD is cached.
    pub fn check(&self, network: &Network, attach: &Attach) -> Result<()> {
        needs(network, Command::Check)?;
        if network.disable_check {
            return Ok(());
        }
        let Some(entry) = self.cache.load(&network.name, &attach.attachment)? else {
            return Err(self.unknown(network, &attach.attachment).into());
        };
        let prev = entry.result_in(network.version)?;
        let attach = attach.clone().completed_from(Some(&entry.attach));
        let extras = Extras { attach: Some(&attach), prev: Some(&prev), valid: None };
        network
            .plugins
            .iter()
            .try_for_each(|plugin| self.call(Command::Check, network, plugin, &extras).map(drop))
    }

    fn unknown(&self, network: &Network, at: &Attachment) -> cni::Error {
        let Attachment { container, ifname } = at;
        let text = format!(
            "interface {ifname} of container {container} was not added to network {}, or its result is lost",
            network.name
        );
        let file = self.cache.path(&network.name, at);
        cni::Error::new(Code::UnknownContainer, text)
            .detail(format!("it would be in {}; is this the right cache directory?", file.display()))
    }

    /// DEL: runs the plugins in reverse order, continues after failures, and deletes the cached result if none failed. May be called
    /// repeatedly, without an ADD, and without a valid cached result. Missing `args` and capability arguments are those of ADD.
    ///
    /// # Errors
    /// All failures.
    pub fn del(&self, network: &Network, attach: &Attach) -> Result<()> {
        // A read-only cache must not prevent a DEL.
        let _lock = Lock::shared(self.cache.dir()).ok();
        self.del_unlocked(network, attach)
    }

    pub(crate) fn del_unlocked(&self, network: &Network, attach: &Attach) -> Result<()> {
        self.del_while(network, attach, || true).map(drop)
    }

    /// Like [`Runtime::del`], without its lock, as long as `goes_on` agrees: it is called before each plugin, and before the cached result is
    /// deleted. Returns whether the DEL is complete.
    pub(crate) fn del_while(
        &self,
        network: &Network,
        attach: &Attach,
        mut goes_on: impl FnMut() -> bool,
    ) -> Result<bool> {
        let entry = self.cache.load(&network.name, &attach.attachment).ok().flatten();
        let attach = attach.clone().completed_from(entry.as_ref().map(|entry| &entry.attach));
        // DEL receives the result only since version 0.4.0.
        let prev = entry.filter(|_| network.version >= Version::V0_4_0);
        let prev = prev.and_then(|entry| entry.result_in(network.version).ok());
        let extras = Extras { attach: Some(&attach), prev: prev.as_ref(), valid: None };
        let mut failures = Failures::default();
        for plugin in network.plugins.iter().rev() {
            if !goes_on() {
                return Ok(false);
            }
            failures.note(self.call(Command::Del, network, plugin, &extras));
        }
        failures.into_result()?;
        if !goes_on() {
            return Ok(false);
        }
        self.cache.remove(&network.name, &attach.attachment).map(|()| true)
    }

    /// STATUS of every plugin. A network with a version before 1.1.0 is assumed to be ready.
    ///
    /// # Errors
    /// The failure of the first plugin that is not ready, with its code (50 or 51).
    pub fn status(&self, network: &Network) -> Result<()> {
        if network.version < Command::Status.since() {
            return Ok(());
        }
        let call = |plugin| self.call(Command::Status, network, plugin, &Extras::default()).map(drop);
        network.plugins.iter().try_for_each(call)
    }

    /// Runs one plugin of a network.
    pub(crate) fn call(
        &self,
        command: Command,
        network: &Network,
        plugin: &PluginConf,
        extras: &Extras<'_>,
    ) -> Result<Vec<u8>> {
        let request = extras.request(network, plugin)?;
        let env = attachment_env(extras.attach);
        self.run(command, &plugin.kind, env, &request).map_err(|e| Error::of_plugin(&plugin.kind, command, e))
    }

    pub(crate) fn run(
        &self,
        command: Command,
        kind: &PluginType,
        mut env: Vec<(&'static str, OsString)>,
        stdin: &[u8],
    ) -> cni::Result<Vec<u8>> {
        let program = self.exec.find(kind, &self.path)?;
        // These commands are not in the specification. Other vendors' plugins read only the variable, and do nothing if it is empty.
        let (variable, args) = match command {
            Command::Repair => ("", &[cni::repair::ARGUMENT][..]),
            Command::Collect => ("", &[cni::collect::ARGUMENT][..]),
            command => (command.as_str(), &[][..]),
        };
        env.push(("CNI_COMMAND", variable.into()));
        env.push(("CNI_PATH", self.search_path()));
        let invocation =
            Invocation { kind, program: &program, command, args, env: &env, stdin, deadline: self.deadline };
        Ok(self.exec.run(&invocation)?.stdout)
    }

    pub(crate) fn is_installed(&self, kind: &PluginType) -> bool {
        self.exec.find(kind, &self.path).is_ok()
    }

    fn search_path(&self) -> OsString {
        let dirs: Vec<_> = self.path.iter().map(|dir| dir.as_os_str()).collect();
        dirs.join(":".as_ref())
    }
}

/// Parses a plugin's result, in the network's version.
fn printed(network: &Network, plugin: &PluginConf, out: &[u8]) -> Result<Value> {
    let read = json::parse(out, "its result");
    let read = read.and_then(|value| result::in_version(&value, network.version, network.version));
    read.map_err(|e| Error::of_plugin(&plugin.kind, Command::Add, e.detail(cni::exec::excerpt(out))))
}

/// Variables of the attachment. Without an attachment they are set to empty strings, because this process may have inherited others.
fn attachment_env(attach: Option<&Attach>) -> Vec<(&'static str, OsString)> {
    let text = |get: fn(&Attach) -> OsString| attach.map(get).unwrap_or_default();
    vec![
        ("CNI_CONTAINERID", text(|a| a.attachment.container.as_str().into())),
        ("CNI_NETNS", text(|a| a.netns.clone().unwrap_or_default().into())),
        ("CNI_IFNAME", text(|a| a.attachment.ifname.as_str().into())),
        ("CNI_ARGS", text(|a| a.args.to_string().into())),
    ]
}

fn needs(network: &Network, command: Command) -> Result<()> {
    if network.version >= command.since() {
        return Ok(());
    }
    let error = cni::Error::new(
        Code::IncompatibleVersion,
        format!(
            "network {} has CNI version {}, which does not support {command}",
            network.name, network.version
        ),
    );
    Err(error.detail(format!("set `cniVersion` to {} or later", command.since())).into())
}
