//! One call of a plugin, as a runtime makes it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::netns::{PATH, start_by_path};
use crate::{Container, Lab, Outcome, Release, names, under_test};

/// Timeout for a hanging plugin. No plugin waits that long, and no machine is that slow.
const DEADLINE: Duration = Duration::from_secs(900);

/// If set, ferrule starts a process for a plugin that it delegates to, instead of calling it in its own process. The
/// plugins inherit it.
pub const SEPARATE_DELEGATES: &str = "FERRULE_SEPARATE_DELEGATES";

/// The input of a plugin. It is a value: clone it, change it, run it as often as needed.
#[derive(Clone, Debug)]
pub struct Call {
    dir: PathBuf,
    plugin: String,
    config: Value,
    stdin: Option<Vec<u8>>,
    env: BTreeMap<String, String>,
    under: Vec<String>,
}

impl Call {
    pub fn new(plugin: &str) -> Self {
        let config = json!({"cniVersion": "1.0.0", "name": "net", "type": plugin});
        let env = [("PATH", PATH), ("CNI_IFNAME", "eth0")];
        let mut env: BTreeMap<_, _> = env.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        env.extend(
            std::env::var(SEPARATE_DELEGATES).map(|separate| (SEPARATE_DELEGATES.to_owned(), separate)),
        );
        let call = Self {
            dir: PathBuf::new(),
            plugin: plugin.to_owned(),
            config,
            stdin: None,
            env,
            under: Vec::new(),
        };
        call.in_dir(&under_test().dir)
    }

    /// Uses the executable of another directory, which is also searched for delegates.
    pub fn in_dir(mut self, dir: &Path) -> Self {
        self.dir = dir.to_owned();
        self.env("CNI_PATH", &format!("{}:{}", dir.display(), Lab::plugin_dir().display()))
    }

    /// Uses a directory in which one executable may be replaced, also for plugins that the plugin calls: each is a
    /// process.
    pub fn with_each_in(self, dir: &Path) -> Self {
        self.in_dir(dir).env(SEPARATE_DELEGATES, "1")
    }

    /// Also searches a directory for delegates, after the others.
    pub fn also_in_dir(mut self, dir: &Path) -> Self {
        let path = self.env.entry("CNI_PATH".to_owned()).or_default();
        path.push_str(&format!(":{}", dir.display()));
        self
    }

    /// Uses the reference's plugin of the same name, of its latest release on this machine, whatever is under test.
    pub fn by_the_reference(self) -> Self {
        self.in_dir(&Release::latest().place())
    }

    /// Uses a release's plugin of the same name. [`Release::with`] lists the releases on this machine.
    pub fn by_release(self, release: Release) -> Self {
        let dir = release.dir().unwrap_or_else(|| panic!("the reference {release} is not on this machine"));
        self.in_dir(&dir)
    }

    /// Adds keys to the configuration, or replaces them. null removes one.
    pub fn config(mut self, keys: Value) -> Self {
        let target = self.config.as_object_mut().expect("a configuration is an object");
        for (key, value) in keys.as_object().expect("keys of a configuration") {
            match value {
                Value::Null => target.remove(key),
                value => target.insert(key.clone(), value.clone()),
            };
        }
        self
    }

    pub fn version(self, version: &str) -> Self {
        self.config(json!({"cniVersion": version}))
    }

    /// Uses an executable with another name. The configuration's type stays.
    pub fn called(mut self, name: &str) -> Self {
        self.plugin = name.to_owned();
        self
    }

    /// Uses this text as stdin instead of the configuration.
    pub fn stdin(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(text.into());
        self
    }

    /// Sets the container to attach.
    pub fn on(self, container: &Container) -> Self {
        let netns = container.netns.path().to_str().expect("an ASCII path");
        self.env("CNI_CONTAINERID", &container.id).env("CNI_NETNS", netns)
    }

    pub fn ifname(self, name: &str) -> Self {
        self.env("CNI_IFNAME", name)
    }

    pub fn args(self, args: &str) -> Self {
        self.env("CNI_ARGS", args)
    }

    pub fn env(mut self, key: &str, value: &str) -> Self {
        if key == "CNI_CONTAINERID" {
            names::record(value, names::current_test().as_deref());
        }
        self.env.insert(key.to_owned(), value.to_owned());
        self
    }

    pub fn without(mut self, key: &str) -> Self {
        self.env.remove(key);
        self
    }

    /// A command that starts the plugin. The plugin's path is its last argument. Empty: none.
    pub fn under(mut self, argv: &[String]) -> Self {
        self.under = argv.to_vec();
        self
    }

    pub fn add(&self) -> Outcome {
        self.run("ADD")
    }

    pub fn del(&self) -> Outcome {
        self.run("DEL")
    }

    /// CHECK with the result of an ADD.
    pub fn check(&self, prev: &Value) -> Outcome {
        self.clone().config(json!({"prevResult": prev})).run("CHECK")
    }

    /// GC with these valid pairs of container and interface.
    pub fn gc(&self, valid: &[(&str, &str)]) -> Outcome {
        let valid: Vec<_> =
            valid.iter().map(|(id, ifname)| json!({"containerID": id, "ifname": ifname})).collect();
        self.clone().version("1.1.0").config(json!({"cni.dev/valid-attachments": valid})).run("GC")
    }

    pub fn status(&self) -> Outcome {
        self.clone().version("1.1.0").run("STATUS")
    }

    /// Runs the plugin with any command.
    pub fn run(&self, command: &str) -> Outcome {
        self.clone().env("CNI_COMMAND", command).run_as_is()
    }

    /// Runs the plugin without CNI_COMMAND, unless the environment has it.
    pub fn run_as_is(&self) -> Outcome {
        let what = format!("{} {}", self.plugin, self.env.get("CNI_COMMAND").map_or("", String::as_str));
        let child = self
            .process()
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("start {}: {e}", self.executable().display()));
        Outcome::new(what, &finish(child, self.input()))
    }

    /// The plugin's name.
    pub fn plugin(&self) -> &str {
        &self.plugin
    }

    /// The process, for callers that start it themselves. stdin and stdout are pipes.
    pub fn process(&self) -> Command {
        let mut process = command(&self.under, &self.executable());
        process.env_clear().envs(&self.env).stdin(Stdio::piped()).stdout(Stdio::piped());
        process
    }

    /// The input on stdin.
    pub fn input(&self) -> Vec<u8> {
        self.stdin.clone().unwrap_or_else(|| self.config.to_string().into_bytes())
    }

    fn executable(&self) -> PathBuf {
        let installed = self.dir.join(&self.plugin);
        if installed.exists() { installed } else { Lab::plugin_dir().join(&self.plugin) }
    }
}

/// A program, or the command that starts it, with its path as the last argument.
pub(crate) fn command(under: &[String], program: &Path) -> Command {
    let mut argv = under.iter().map(OsStr::new).chain([program.as_os_str()]);
    let mut command = start_by_path(argv.next().expect("a program"));
    command.args(argv);
    command
}

/// Writes the input, and waits for the exit until the deadline.
fn finish(mut child: Child, input: Vec<u8>) -> std::process::Output {
    let pid = Pid::from_raw(child.id().cast_signed());
    let mut stdin = child.stdin.take().expect("a piped stdin");
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        // A plugin need not read all of its input.
        let _ = stdin.write_all(&input);
        drop(stdin);
        sender.send(child.wait_with_output())
    });
    let Ok(output) = receiver.recv_timeout(DEADLINE) else {
        kill(pid, Signal::SIGKILL).expect("kill a plugin that hangs");
        panic!("the plugin did not finish within {DEADLINE:?}");
    };
    output.expect("collect the plugin's output")
}
