//! A network of several plugins, run by cnitool's library. The outcome of every plugin is recorded.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};

use runtime::{AttachmentParameters, Cache, Exec, Invocation, Network, Output, Runtime};
use serde_json::Value;

use crate::{Call, Container, Lab, Outcome, Release};

/// A network of several plugins.
#[derive(Clone, Debug)]
pub struct Chain {
    network: Network,
    edit: fn(Call) -> Call,
    release: Option<Release>,
}

impl Chain {
    pub(crate) fn new(conflist: &Value) -> Self {
        let network = Network::from_bytes(conflist.to_string().as_bytes());
        Self { network: network.expect("a network's configuration"), edit: |call| call, release: None }
    }

    /// Changes every call before it runs, to vary the environment.
    pub fn each(mut self, edit: fn(Call) -> Call) -> Self {
        self.edit = edit;
        self
    }

    /// Runs the plugins of a release.
    pub fn by_release(self, release: Release) -> Self {
        Self { release: Some(release), ..self }
    }

    /// ADD from first to last, each with the previous result. Returns the last result, or the first failure.
    pub fn add(&self, container: &Container, ifname: &str) -> Outcome {
        let attach = container.attach(ifname);
        self.watched(|runtime| runtime.add(&self.network, &attach)).pop().expect("a plugin was run")
    }

    /// CHECK of the plugins with the last result, up to the first failure.
    pub fn check(&self, container: &Container, ifname: &str, result: &Value) -> Vec<Outcome> {
        let attach = container.attach(ifname);
        self.keep(&attach, result);
        self.watched(|runtime| runtime.check(&self.network, &attach))
    }

    /// DEL from last to first. `null`: without a result, as after an ADD that failed.
    pub fn del(&self, container: &Container, ifname: &str, result: &Value) -> Vec<Outcome> {
        let attach = container.attach(ifname);
        self.keep(&attach, result);
        self.watched(|runtime| runtime.del(&self.network, &attach))
    }

    /// A scenario may pass a different result.
    fn keep(&self, attach: &AttachmentParameters, result: &Value) {
        if result.is_null() {
            return;
        }
        cache().write(&self.network, attach, result).expect("keep a result");
    }

    /// The outcomes of all plugins in a run. If none failed, the runtime must not fail either, and must have run all.
    fn watched<T>(&self, run: impl FnOnce(&Runtime) -> runtime::Result<T>) -> Vec<Outcome> {
        let outcomes = Arc::default();
        let witness = Witness { edit: self.edit, release: self.release, outcomes: Arc::clone(&outcomes) };
        let done = run(&Runtime::new([Lab::plugin_dir()]).cache(cache()).exec(witness));
        let outcomes = std::mem::take(&mut *outcomes.lock().unwrap_or_else(PoisonError::into_inner));
        if outcomes.iter().all(Outcome::succeeded) {
            done.map(drop).expect("the runtime succeeds with its plugins");
            assert_eq!(outcomes.len(), self.network.plugins.len(), "each plugin is run");
        }
        outcomes
    }
}

fn cache() -> Cache {
    Cache::new("/run/lab/cache")
}

/// Runs plugins as calls of the suite, and records their outcomes.
#[derive(Debug)]
struct Witness {
    edit: fn(Call) -> Call,
    release: Option<Release>,
    outcomes: Arc<Mutex<Vec<Outcome>>>,
}

impl Exec for Witness {
    /// A call finds its executable itself.
    fn find(&self, kind: &cni::PluginType, _: &[std::path::PathBuf]) -> cni::Result<std::path::PathBuf> {
        Ok(kind.as_str().into())
    }

    fn run(&self, invocation: &Invocation<'_>) -> cni::Result<Output> {
        let own = invocation.env.iter().filter(|(key, _)| *key != "CNI_PATH");
        let call = Call::new(invocation.kind).stdin(invocation.stdin);
        let call = own.fold(call, |call, (key, value)| call.env(key, value.to_str().expect("UTF-8")));
        let call = self.release.into_iter().fold(call, Call::by_release);
        let outcome = (self.edit)(call).run_as_is();
        let stdout = outcome.stdout.clone().into_bytes();
        let status = ExitStatus::from_raw(outcome.exit.map_or(9, |code| code << 8));
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
        if status.success() {
            return Ok(Output { stdout, stderr: Vec::new() });
        }
        Err(cni::exec::failure(invocation.command, status, &stdout))
    }
}
