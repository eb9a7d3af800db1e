//! `cnitool`, called as an operator or a script does. It is always Ferrule's.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::call::{SEPARATE_DELEGATES, command};
use crate::netns::PATH;
use crate::under_test::ours;
use crate::{Lab, Outcome, Release, names, under_test};

/// The environment of cnitool. The configuration directory is the lab's /etc/cni/net.d.
#[derive(Clone, Debug)]
pub struct Tool {
    dir: PathBuf,
    env: BTreeMap<String, String>,
    under: Vec<String>,
}

impl Tool {
    pub(crate) fn new() -> Self {
        let env = BTreeMap::from([("PATH".to_owned(), PATH.to_owned())]);
        Self { dir: ours(), env, under: Vec::new() }.with_plugins_in(&under_test().dir)
    }

    fn with_plugins_in(self, dir: &Path) -> Self {
        self.env("CNI_PATH", &format!("{}:{}", dir.display(), Lab::plugin_dir().display()))
    }

    /// Uses the executable and the plugins of another directory.
    pub fn in_dir(self, dir: &Path) -> Self {
        Self { dir: dir.to_owned(), ..self }.with_plugins_in(dir)
    }

    /// Like [`crate::Call::with_each_in`].
    pub fn with_each_in(self, dir: &Path) -> Self {
        self.with_plugins_in(dir).env(SEPARATE_DELEGATES, "1")
    }

    /// Uses the plugins of a release. cnitool itself is always Ferrule's.
    pub fn by_release(self, release: Release) -> Self {
        self.with_plugins_in(&release.place())
    }

    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.env.insert(key.to_owned(), value.to_owned());
        self
    }

    /// A command that starts cnitool with its arguments. Empty: none.
    pub fn under(mut self, argv: &[String]) -> Self {
        self.under = argv.to_vec();
        self
    }

    /// Starts a command line, split at spaces, without waiting for its end.
    pub fn spawn(&self, line: &str) -> Child {
        // A program that reads the tests' output must not wait for it.
        self.command(line)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|e| panic!("start cnitool: {e}"))
    }

    /// Runs a command line, split at spaces.
    pub fn run(&self, line: &str) -> Outcome {
        let output = self.command(line).output().unwrap_or_else(|e| panic!("start cnitool: {e}"));
        Outcome::new(format!("cnitool {line}"), &output)
    }

    fn command(&self, line: &str) -> Command {
        let mut words = line.split_whitespace().skip_while(|word| *word != "--container-id").skip(1);
        words.next().into_iter().for_each(|id| names::record(id, names::current_test().as_deref()));
        let mut command = command(&self.under, &self.dir.join("cnitool"));
        command.args(line.split_whitespace()).env_clear().envs(&self.env).stdin(Stdio::null());
        command
    }

    /// The output of a command line that must succeed.
    #[track_caller]
    pub fn says(&self, line: &str) -> String {
        let outcome = self.run(line);
        assert!(outcome.succeeded(), "{outcome:#?}");
        outcome.stdout
    }

    /// The same, as JSON.
    #[track_caller]
    pub fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.says(&format!("{line} --output json"))).expect("JSON")
    }
}
