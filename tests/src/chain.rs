//! The smallest runner of a list of plugins: what libcni does with a conflist, without its cache.

use serde_json::{Value, json};

use crate::{Call, Container, Outcome};

/// A network of several plugins.
#[derive(Clone, Debug)]
pub struct Chain {
    conflist: Value,
    edit: fn(Call) -> Call,
}

impl Chain {
    pub(crate) fn new(conflist: Value) -> Self {
        Self { conflist, edit: |call| call }
    }

    /// Changes every call before it is run, to vary the environment.
    pub fn each(mut self, edit: fn(Call) -> Call) -> Self {
        self.edit = edit;
        self
    }

    /// ADD from first to last, each given the result of the one before. The last result, or the first failure.
    pub fn add(&self, container: &Container, ifname: &str) -> Outcome {
        let mut outcome = None;
        let mut prev = Value::Null;
        for call in self.calls(container, ifname) {
            let run = call.config(json!({"prevResult": prev})).add();
            if !run.succeeded() {
                return run;
            }
            prev = run.ok_result();
            outcome = Some(run);
        }
        outcome.expect("a chain of at least one plugin")
    }

    /// CHECK of every plugin against the last result.
    pub fn check(&self, container: &Container, ifname: &str, result: &Value) -> Vec<Outcome> {
        self.calls(container, ifname).iter().map(|call| call.check(result)).collect()
    }

    /// DEL from last to first.
    pub fn del(&self, container: &Container, ifname: &str, result: &Value) -> Vec<Outcome> {
        let calls = self.calls(container, ifname);
        calls.into_iter().rev().map(|call| call.config(json!({"prevResult": result})).del()).collect()
    }

    fn calls(&self, container: &Container, ifname: &str) -> Vec<Call> {
        let plugins = self.conflist["plugins"].as_array().expect("plugins in the conflist");
        let shared = json!({"cniVersion": self.conflist["cniVersion"], "name": self.conflist["name"]});
        let call = |plugin: &Value| {
            let name = plugin["type"].as_str().expect("a plugin's type");
            let call = Call::new(name).config(plugin.clone()).config(shared.clone());
            (self.edit)(call.on(container).ifname(ifname))
        };
        plugins.iter().map(call).collect()
    }
}
