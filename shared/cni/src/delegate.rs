//! Delegation to another plugin (SPEC.md, section 4).

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::rc::Rc;

use system::child::{self, Outcome, Stopped};

use crate::call::Environment;
use crate::exec::{self, LIMITS, error_object, excerpt, failure};
use crate::{
    AddResult, Code, Command, Error, Failures, PluginType, Repair, Result, ResultExt, Scope, Undo, Version,
    collect, json, multicall, repair,
};

/// Another plugin with its configuration. It gets this plugin's environment.
///
/// It is a separate process, unless it is part of this executable ([`multicall`]).
#[derive(Clone)]
pub struct Delegate {
    kind: String,
    label: Label,
    path: Vec<PathBuf>,
    stdin: Rc<[u8]>,
    version: Version,
}

/// How errors name it.
#[derive(Clone, Copy, Debug)]
struct Label {
    name: &'static str,
    key: &'static str,
}

impl Delegate {
    /// A plugin of a type in the directories of `CNI_PATH`, with a configuration in a version.
    pub fn new(kind: String, path: Vec<PathBuf>, stdin: Rc<[u8]>, version: Version) -> Self {
        Self { kind, label: Label { name: "plugin", key: "delegate" }, path, stdin, version }
    }

    /// Runs its ADD. `undo` runs its DEL, also after a failed ADD, unless the plugin has refused the request.
    ///
    /// # Errors
    /// The plugin's error, with its code; 7 if the plugin does not exist; 6 for an invalid result.
    pub fn add(&self, undo: &mut Undo) -> Result<AddResult> {
        self.add_if(undo, |_| Ok(()))
    }

    /// Runs its ADD. The caller runs its DEL, even if its ADD fails.
    ///
    /// # Errors
    /// The plugin's error, with its code; 7 if the plugin does not exist; 6 for an invalid result.
    pub fn add_for_caller(&self) -> Result<AddResult> {
        self.run(Command::Add)?.into_result().and_then(|out| self.parse(&out))
    }

    /// Checks that the plugin exists.
    ///
    /// # Errors
    /// Code 7, naming the directories.
    pub fn require(&self) -> Result<()> {
        self.find().map(drop)
    }

    fn add_if(&self, undo: &mut Undo, suits: impl FnOnce(&AddResult) -> Result<()>) -> Result<AddResult> {
        self.require()?;
        let result = match self.run(Command::Add) {
            // It has changed nothing. Its DEL would release what an earlier ADD has allocated to the attachment, which may be running.
            Ok(Ended::Failed(refusal)) if refusal.refuses_the_request() => return Err(refusal),
            ended => ended.and_then(Ended::into_result),
        };
        let result = result.and_then(|out| {
            let result = self.parse(&out)?;
            suits(&result).map_err(|e| self.named(e))?;
            Ok(result)
        });
        let this = self.clone();
        match result {
            Ok(result) => {
                undo.push(move || this.call(Command::Del));
                Ok(result)
            }
            Err(error) => Err(match this.call(Command::Del) {
                Err(rollback) => error.and_rollback(rollback),
                Ok(()) => error,
            }),
        }
    }

    /// Runs a command without a result.
    ///
    /// # Errors
    /// The plugin's error, with its code; 7 if the plugin does not exist.
    pub fn call(&self, command: Command) -> Result<()> {
        self.run(command)?.into_result().map(drop)
    }

    /// Runs its REPAIR for an attachment. Returns whether a rule was missing. A plugin that does not know the command has nothing to
    /// repair.
    ///
    /// # Errors
    /// The plugin's error.
    pub fn repair<C>(&self, call: &Repair<C>) -> Result<bool> {
        let request = repair::request(call, &self.stdin)?;
        repair::outcome(&self.run_own(repair::ARGUMENT, Command::Repair, &request)?)
    }

    /// Runs its GC, in the form in which this plugin was called ([`collect`]). In Ferrule's own form, also calls the delegate's IPAM
    /// plugin.
    ///
    /// # Errors
    /// The plugins' errors.
    pub fn collect(&self, scope: &Scope) -> Result<()> {
        if scope.stale().is_none() && !scope.is_dry() {
            return self.call(Command::Gc);
        }
        let request = serde_json::to_vec(&collect::Request::new(scope, &self.stdin)?)?;
        let config = json::parse(&self.stdin, "the configuration")?;
        let ipam: String = json::lenient(&config, &["ipam", "type"]).unwrap_or_default();
        let mut failures = Failures::new();
        for kind in [self.kind.clone(), ipam].into_iter().filter(|kind| !kind.is_empty()) {
            failures.note(Self { kind, ..self.clone() }.collect_one(scope, &request));
        }
        failures.into_result()
    }

    fn collect_one(&self, scope: &Scope, request: &[u8]) -> Result<()> {
        let out = self.run_own(collect::ARGUMENT, Command::Gc, request)?;
        let answer = collect::Answer::read(&out).ok_or_else(|| collect::foreign(&self.kind))?;
        let (resources, outcome) = answer.outcome();
        scope.add(resources);
        outcome.map_err(|e| self.named(e))
    }

    /// Runs a request that is not in the specification.
    fn run_own(&self, argument: &str, command: Command, request: &[u8]) -> Result<Vec<u8>> {
        let file = self.find()?;
        if let Some(plugin) = multicall::here(&file) {
            return Ok(plugin.run_own(argument, request)?.into_bytes());
        }
        let ended = child::run(Process::new(&file).arg(argument).env_remove("CNI_COMMAND"), request, LIMITS);
        let ended = ended.map_err(|stopped| self.named(exec::unfinished(&stopped, command, LIMITS)))?;
        let failure = (!ended.status.success()).then(|| failure(command, ended.status, &ended.out));
        match failure.filter(|failure| !exec::refused_request(failure)) {
            Some(failure) => Err(self.named(failure)),
            None => Ok(ended.out),
        }
    }

    fn parse(&self, out: &[u8]) -> Result<AddResult> {
        let parsed =
            json::parse(out, "the result").and_then(|value| AddResult::from_delegate(&value, self.version));
        parsed.map_err(|e| self.named(e).detail(excerpt(out)))
    }

    /// Runs a command.
    ///
    /// # Errors
    /// If the plugin did not run to its end, or failed without an error object.
    fn run(&self, command: Command) -> Result<Ended> {
        let file = self.find()?;
        let ended = match multicall::here(&file) {
            Some(plugin) => plugin.run(command, &self.stdin),
            None => start(&file, command, &self.stdin),
        };
        let Outcome { status, out, .. } =
            ended.map_err(|stopped| self.named(exec::unfinished(&stopped, command, LIMITS)))?;
        if status.success() {
            return Ok(Ended::Succeeded(out));
        }
        // The plugin's words are not changed: callers compare some of them.
        error_object(&out).map(Ended::Failed).ok_or_else(|| self.named(failure(command, status, &out)))
    }

    fn find(&self) -> Result<PathBuf> {
        let key = self.label.key;
        let name = PluginType::parse(&self.kind).map_err(|e| Error::config(format!("{key}.type {e}")))?;
        exec::find(&name, &self.path).context(|| format!("{key}.type"))
    }

    fn named(&self, error: Error) -> Error {
        error.context(format_args!("{} {}", self.label.name, self.kind))
    }
}

/// How a plugin has ended by itself.
enum Ended {
    /// With this output.
    Succeeded(Vec<u8>),
    /// With this error object.
    Failed(Error),
}

impl Ended {
    fn into_result(self) -> Result<Vec<u8>> {
        match self {
            Self::Succeeded(out) => Ok(out),
            Self::Failed(error) => Err(error),
        }
    }
}

/// Without the configuration, which may be large or contain secrets.
impl fmt::Debug for Delegate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Delegate({} {})", self.label.name, self.kind)
    }
}

fn start(file: &Path, command: Command, stdin: &[u8]) -> Result<Outcome, Stopped> {
    let mut process = Process::new(file);
    // Avoids copying the environment.
    if env::var_os("CNI_COMMAND").is_none_or(|own| own != command.as_str()) {
        process.env("CNI_COMMAND", command.as_str());
    }
    // Plugins of other vendors would fail with code 8.
    if command == Command::Del
        && Environment::of(command, &|name| env::var_os(name), false).is_ok_and(|env| env.is_in_own_netns())
    {
        process.env_remove("CNI_NETNS");
    }
    child::run(&mut process, stdin, LIMITS)
}

/// The configuration's IPAM plugin. It gets this plugin's stdin, byte for byte.
#[derive(Clone, Debug)]
pub struct Ipam(Delegate);

impl Ipam {
    pub(crate) fn new(kind: String, path: Vec<PathBuf>, stdin: Rc<[u8]>, version: Version) -> Self {
        let label = Label { name: "IPAM plugin", key: "ipam" };
        Self(Delegate { label, ..Delegate::new(kind, path, stdin, version) })
    }

    /// Whether the plugin uses the interface, which must then be up before its ADD and exist until its DEL.
    pub fn needs_link(&self) -> bool {
        self.0.kind == "dhcp"
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn find(&self) -> Result<PathBuf> {
        self.0.find()
    }

    /// Runs its ADD. `undo` runs its DEL, also after a failed ADD, unless the plugin has refused the request.
    ///
    /// # Errors
    /// The plugin's error, with its code; 7 if the plugin does not exist; 6 for a result without an address.
    pub fn add(&self, undo: &mut Undo) -> Result<AddResult> {
        self.0.add_if(undo, |leases| match leases.ips.as_slice() {
            [] => Err(Error::new(Code::Decoding, "the result contains no address")),
            _ => Ok(()),
        })
    }

    /// Runs a command without a result.
    ///
    /// # Errors
    /// The plugin's error, with its code; 7 if the plugin does not exist.
    pub fn call(&self, command: Command) -> Result<()> {
        self.0.call(command)
    }
}
