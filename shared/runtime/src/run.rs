//! ADD, CHECK, DEL and STATUS of a network: run its plugins in order, for DEL in reverse order (SPEC.md, section 3).

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cni::{AddResult, Attachment, Code, Command, PluginType, Version, json};
use serde_json::Value;

use crate::error::Failures;
use crate::lock::Lock;
use crate::request::Extras;
use crate::{
    AttachmentParameters, Cache, Entry, Error, Exec, Invocation, Network, PluginConf, Processes, Result,
    result,
};

/// Runs the plugins of a network. Contains the plugin directories, the [`Exec`] and the cache of results.
///
/// Cloning is cheap. Several threads may use it for different containers. ADDs and DELs of one container wait for each other, in all processes.
/// The caller must not run CHECK of a container at the same time (SPEC.md, section 3, "Lifecycle & Ordering").
#[derive(Clone, Debug)]
pub struct Runtime {
    path: Vec<PathBuf>,
    pub(crate) cache: Cache,
    exec: Arc<dyn Exec>,
    timeout: Option<Duration>,
    pub(crate) interrupted: Arc<AtomicBool>,
    is_required: fn(&PluginType) -> bool,
}

impl Runtime {
    /// Creates a runtime that finds plugins in these directories. Caches results in [`Cache::DEFAULT_DIR`], and runs plugins with [`Processes`]; their logs go to stderr.
    pub fn new<P: Into<PathBuf>>(path: impl IntoIterator<Item = P>) -> Self {
        let path = path.into_iter().map(Into::into).collect();
        let exec = Arc::new(Processes::default());
        let (cache, interrupted) = (Cache::default(), Arc::default());
        Self { path, cache, exec, timeout: None, interrupted, is_required: |_| true }
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

    /// Deletes incomplete files in the cache that are older than five minutes. Killed processes have left them.
    ///
    /// # Errors
    /// Code 5 if the directory cannot be read, or a file cannot be deleted.
    pub fn remove_incomplete(&self) -> Result<()> {
        self.cache.remove_incomplete()
    }

    /// Sets how plugins are run.
    #[must_use]
    pub fn exec(mut self, exec: impl Exec + 'static) -> Self {
        self.exec = Arc::new(exec);
        self
    }

    /// Sets the timeout for one run of a plugin, after which the [`Exec`] kills the plugin. Default: [`Processes::timeout`].
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets a flag that interrupts an ADD, for example from a signal handler. ADD and DEL stop waiting for other processes, and fail. ADD
    /// waits until the running plugin exits, runs no other plugin, and fails. A running DEL and other commands ignore the flag, because they
    /// can be repeated.
    #[must_use]
    pub fn interrupted_by(mut self, flag: Arc<AtomicBool>) -> Self {
        self.interrupted = flag;
        self
    }

    /// For the DEL after a failed or interrupted ADD: no flag interrupts it.
    #[must_use]
    pub fn uninterrupted(self) -> Self {
        Self { interrupted: Arc::default(), ..self }
    }

    /// Sets which plugins [`Runtime::survey`], [`Runtime::collect`] and [`Runtime::repair`] require. Another plugin that is not installed is
    /// treated as one of another vendor, which does not support their requests anyway. Default: all.
    #[must_use]
    pub fn requiring(mut self, is_required: fn(&PluginType) -> bool) -> Self {
        self.is_required = is_required;
        self
    }

    /// The cache of results.
    pub fn results(&self) -> &Cache {
        &self.cache
    }

    /// ADD: runs the plugins in order, each with the previous one's result, and caches the last result. Waits for other ADDs and DELs of the
    /// same container, in all processes.
    ///
    /// After a failure, call [`Runtime::del`], or use [`Runtime::add_or_roll_back`] instead.
    ///
    /// # Errors
    /// The failure of the first plugin that failed; code 4 if the cache file has a too long name or belongs to another attachment that is
    /// alive, 5 if the cache cannot be locked or written, 7 if the network has no plugins, 11 if a GC runs for more than five minutes, 999 if
    /// ADD was interrupted.
    pub fn add(&self, network: &Network, attach: &AttachmentParameters) -> Result<AddResult> {
        self.cache.require_writable(&network.name, &attach.attachment)?;
        let _own = self.lock_container(attach)?;
        let _lock = Lock::shared_unless(self.cache.dir(), &self.interrupted)?;
        self.add_plugins(network, attach, &mut false)
    }

    /// ADD of the plugins. Sets `has_begun` if one of them succeeded.
    pub(crate) fn add_plugins(
        &self,
        network: &Network,
        attach: &AttachmentParameters,
        has_begun: &mut bool,
    ) -> Result<AddResult> {
        let mut last: Option<Value> = None;
        let interruption = |when: &str, plugin: &PluginConf| {
            let is_interrupted = self.interrupted.load(Ordering::Relaxed);
            let text = || format!("ADD was interrupted {when} plugin {}", plugin.kind);
            is_interrupted.then(|| Error::own(Code::Internal, text()))
        };
        let interrupted = |when: &str, plugin: &PluginConf| interruption(when, plugin).map_or(Ok(()), Err);
        for plugin in &network.plugins {
            // The flag may have been set while ADD waited for the lock.
            interrupted("before", plugin)?;
            let extras = Extras { attach: Some(attach), prev: last.as_ref(), valid: None };
            let out = self.call(Command::Add, network, plugin, &extras);
            // A signal may have killed the plugin, which would then be called broken.
            let out = out.map_err(|failed| match interruption("during", plugin) {
                Some(interruption) => interruption.detail(failed.to_string()),
                None => failed,
            })?;
            *has_begun = true;
            last = Some(parse_result(network, plugin, &out)?);
            interrupted("after", plugin)?;
        }
        let last = last.ok_or_else(|| network.no_plugins())?;
        self.cache.write(network, attach, &last)?;
        Ok(result::read(&last, network.version)?)
    }

    /// CHECK of every plugin. Uses the configuration of the cached ADD: the plugins of today's may never have been called. If `args` is
    /// empty, those of the ADD are used, and the same for capability arguments. Returns whether it has run the plugins: false if either
    /// configuration has `disableCheck`.
    ///
    /// # Errors
    /// The failure of the first plugin that failed; code 1 if the network's version (before 0.4.0) has no CHECK; 3 if no ADD is cached.
    pub fn check(&self, network: &Network, attach: &AttachmentParameters) -> Result<bool> {
        if network.disable_check {
            return require_version_for(network, Command::Check).map(|()| false);
        }
        let entry = self.cache.load(&network.name, &attach.attachment)?;
        let added = entry.as_ref().and_then(|entry| entry.network_at_add(network));
        let Some(entry) = entry else {
            require_version_for(network, Command::Check)?;
            return Err(self.not_added(network, &attach.attachment).into());
        };
        let used = added.as_ref().unwrap_or(network);
        let is_other = added.is_some() && entry.differs_from(network);
        let checked = require_version_for(used, Command::Check).and_then(|()| {
            self.check_plugins(used, &attach.clone().completed_from(Some(&entry.attach)), &entry)
        });
        checked.map_err(|failed| match is_other {
            true => failed.detail(format!(
                "CHECK used the configuration of the ADD, which differs from today's configuration of network {}",
                network.name
            )),
            false => failed,
        })
    }

    /// CHECK of the plugins of exactly this network, unless it has `disableCheck`. Returns whether it has not.
    fn check_plugins(&self, network: &Network, attach: &AttachmentParameters, entry: &Entry) -> Result<bool> {
        if network.disable_check {
            return Ok(false);
        }
        let prev = entry.result_in(network.version)?;
        let extras = Extras { attach: Some(attach), prev: Some(&prev), valid: None };
        let check = |plugin| self.call(Command::Check, network, plugin, &extras).map(drop);
        network.plugins.iter().try_for_each(check).map(|()| true)
    }

    /// CHECK of every plugin with the configuration, the result and the arguments of a cached attachment. The entry may be from another
    /// runtime's cache. Returns whether it has run the plugins: false if the network has `disableCheck`.
    ///
    /// # Errors
    /// The failure of the first plugin that failed; code 1 if the network's version (before 0.4.0) has no CHECK; the error of
    /// [`Entry::network`] if the configuration is invalid.
    pub fn check_entry(&self, entry: &Entry) -> Result<bool> {
        let network = &entry.network()?;
        require_version_for(network, Command::Check)?;
        self.check_plugins(network, &entry.attach, entry)
    }

    /// The error of CHECK for an attachment without a cached result.
    fn not_added(&self, network: &Network, at: &Attachment) -> cni::Error {
        let Attachment { container, ifname } = at;
        let text = format!(
            "interface {ifname} of container {container} was not added to network {}, or its result is lost",
            network.name
        );
        let file = self.cache.path(&network.name, at);
        cni::Error::new(Code::UnknownContainer, text).detail(format!(
            "the result was expected in {}. If ADD used another cache directory, use that one",
            file.display()
        ))
    }

    /// DEL: runs the plugins in reverse order, continues after failures, and deletes the cached result if none failed. May be called
    /// repeatedly, without an ADD, and without a valid cached result. Uses the configuration of the cached ADD, and `network` only if there
    /// is none. If `args` is empty, those of the cached ADD are used, and the same for capability arguments. Waits for other ADDs and DELs of
    /// the same container, in all processes.
    ///
    /// # Errors
    /// All failures; code 7 if the network has no plugins; code 999 if DEL was interrupted while it waited.
    pub fn del(&self, network: &Network, attach: &AttachmentParameters) -> Result<()> {
        let _own = Lock::for_del(self.lock_container(attach))?;
        let _lock = Lock::for_del(Lock::shared_unless(self.cache.dir(), &self.interrupted))?;
        self.del_unlocked(network, attach)
    }

    /// Excludes other ADDs and DELs of a container. They would delete or create parts of its attachments meanwhile. Taken before the lock that
    /// excludes GC. GC does not take it: a second descriptor of one process would wait for the first.
    pub(crate) fn lock_container(&self, attach: &AttachmentParameters) -> Result<Lock> {
        Lock::of_container(self.cache.dir(), &attach.attachment.container, &self.interrupted)
    }

    pub(crate) fn del_unlocked(&self, network: &Network, attach: &AttachmentParameters) -> Result<()> {
        self.del_while(network, attach, || true).map(drop)
    }

    /// Like [`Runtime::del`], without its locks. Calls `may_continue` before each plugin, and before it deletes the cached result. If that
    /// returns false, stops, and returns the failures of earlier plugins, or else `Ok(false)`. Returns `Ok(true)` after a complete DEL.
    pub(crate) fn del_while(
        &self,
        network: &Network,
        attach: &AttachmentParameters,
        mut may_continue: impl FnMut() -> bool,
    ) -> Result<bool> {
        let entry = self.cache.load(&network.name, &attach.attachment).ok().flatten();
        let added = entry.as_ref().and_then(|entry| entry.network_at_add(network));
        let completed = attach.clone().completed_from(entry.as_ref().map(|entry| &entry.attach));
        let is_other = added.is_some() && entry.as_ref().is_some_and(|entry| entry.differs_from(network));
        let used = added.as_ref().unwrap_or(network);
        let file = self.cache.path(&network.name, &attach.attachment);
        let done = self.del_plugins(used, &completed, entry.as_ref(), &mut may_continue);
        let done = done.map_err(|failed| match is_other {
            _ if used.plugins.is_empty() => failed.detail(format!(
                "restore the plugins in the directory {}, or delete {} if nothing is left of the attachment",
                network.directory().display(),
                file.display()
            )),
            true => failed.detail(format!(
                "DEL used the configuration of the ADD; to use today's configuration of network {}, delete {} and repeat the DEL",
                network.name,
                file.display()
            )),
            false => failed,
        })?;
        if !done || !may_continue() {
            return Ok(false);
        }
        self.cache.remove(&network.name, &attach.attachment).map(|()| true)
    }

    /// DEL of the plugins of exactly this network. Returns whether all were called.
    pub(crate) fn del_plugins(
        &self,
        network: &Network,
        attach: &AttachmentParameters,
        entry: Option<&Entry>,
        mut may_continue: impl FnMut() -> bool,
    ) -> Result<bool> {
        network.require_plugins()?;
        // DEL receives the result only since version 0.4.0.
        let prev = entry.filter(|_| network.version >= Version::V0_4_0);
        let prev = prev.and_then(|entry| entry.result_in(network.version).ok());
        let extras = Extras { attach: Some(attach), prev: prev.as_ref(), valid: None };
        let mut failures = Failures::default();
        for plugin in network.plugins.iter().rev() {
            if !may_continue() {
                return failures.into_result().map(|()| false);
            }
            failures.note(self.call(Command::Del, network, plugin, &extras));
        }
        failures.into_result().map(|()| true)
    }

    /// STATUS of every plugin. A network with a version before 1.1.0 is assumed to be ready.
    ///
    /// # Errors
    /// The failure of the first plugin that failed. Codes 50 and 51 mean that the network is not ready.
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

    /// Runs one executable with this environment and stdin. [`Runtime::call`] builds both for a plugin of a network.
    pub(crate) fn run(
        &self,
        command: Command,
        kind: &PluginType,
        mut env: Vec<(&'static str, OsString)>,
        stdin: &[u8],
    ) -> cni::Result<Vec<u8>> {
        let program = self.exec.find(kind, &self.path)?;
        // REPAIR and COLLECT are not in the specification. They are sent as an argument, with an empty CNI_COMMAND: plugins that use
        // the reference's package skel ignore arguments, and without CNI_COMMAND only print their version.
        let (variable, args) = match command {
            Command::Repair => ("", &[cni::repair::ARGUMENT][..]),
            Command::Collect => ("", &[cni::collect::ARGUMENT][..]),
            command => (command.as_str(), &[][..]),
        };
        env.push(("CNI_COMMAND", variable.into()));
        env.push(("CNI_PATH", self.search_path()));
        let timeout = self.timeout;
        let invocation = Invocation { kind, program: &program, command, args, env: &env, stdin, timeout };
        Ok(self.exec.run(&invocation)?.stdout)
    }

    /// Whether the plugin is in one of the directories.
    pub fn is_installed(&self, kind: &PluginType) -> bool {
        self.exec.find(kind, &self.path).is_ok()
    }

    /// Whether to treat a plugin that is not installed as one of another vendor.
    pub(crate) fn may_lack(&self, kind: &PluginType) -> bool {
        !(self.is_required)(kind) && !self.is_installed(kind)
    }

    fn search_path(&self) -> OsString {
        let dirs: Vec<_> = self.path.iter().map(|dir| dir.as_os_str()).collect();
        dirs.join(":".as_ref())
    }
}

/// Parses a plugin's result, in the network's version.
fn parse_result(network: &Network, plugin: &PluginConf, out: &[u8]) -> Result<Value> {
    let read = json::parse(out, "the result");
    let read = read.and_then(|value| result::in_version(&value, network.version, network.version));
    read.map_err(|e| Error::of_plugin(&plugin.kind, Command::Add, e.detail(cni::exec::excerpt(out))))
}

/// Variables of the attachment. Without an attachment they are empty, because the plugin would otherwise inherit values from this process's
/// environment.
fn attachment_env(attach: Option<&AttachmentParameters>) -> Vec<(&'static str, OsString)> {
    let text = |get: fn(&AttachmentParameters) -> OsString| attach.map(get).unwrap_or_default();
    vec![
        ("CNI_CONTAINERID", text(|a| a.attachment.container.as_str().into())),
        ("CNI_NETNS", text(|a| a.netns.clone().unwrap_or_default().into())),
        ("CNI_IFNAME", text(|a| a.attachment.ifname.as_str().into())),
        ("CNI_ARGS", text(|a| a.args.to_string().into())),
    ]
}

fn require_version_for(network: &Network, command: Command) -> Result<()> {
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
