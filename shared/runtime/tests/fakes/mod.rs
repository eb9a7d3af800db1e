//! A directory with plugins of our own making: shell scripts that note each of their calls.
#![allow(clippy::unwrap_used, reason = "a failure of the stage is a failure of the test")]
#![allow(dead_code, reason = "no test file needs all of it")]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use runtime::{AttachmentParameters, Cache, Network, Processes, Runtime, Stderr};
use serde_json::Value;
use tempfile::TempDir;

/// Plugins, a cache, and a log of calls, gone when dropped.
#[derive(Debug)]
pub struct Stage {
    dir: TempDir,
}

impl Stage {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("bin")).unwrap();
        Self { dir }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A plugin that notes its request and its variables, and then does what the script says.
    pub fn plugin(&self, name: &str, script: &str) {
        let dir = self.dir.path().display();
        let text = format!(
            "#!/bin/sh\nstdin=$(cat)\nprintf '%s\\t%s\\t%s\\t%s\\n' {name} $CNI_COMMAND \
             \"$CNI_CONTAINERID $CNI_NETNS $CNI_IFNAME $CNI_ARGS\" \"$stdin\" >>{dir}/calls\n{script}\n"
        );
        self.program(name, &text);
    }

    /// Any program.
    pub fn program(&self, name: &str, text: &str) {
        // By a process of its own: what another test starts meanwhile would inherit a file that is open for writing here, and
        // until it is closed everywhere nobody can start it (ETXTBSY).
        let file = self.dir.path().join("bin").join(name);
        let mut install = Command::new("install");
        install.args(["-m", "755", "/dev/stdin"]).arg(file).stdin(Stdio::piped());
        let mut install = install.spawn().unwrap();
        install.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(install.wait().unwrap().success());
    }

    pub fn runtime(&self) -> Runtime {
        let plugins = Processes { stderr: Stderr::Capture, ..Processes::default() };
        let cache = Cache::new(self.dir.path().join("cache"));
        Runtime::new([self.dir.path().join("bin")])
            .exec(plugins)
            .cache(cache)
            .timeout(Duration::from_secs(600))
    }

    /// What was called, oldest first, each as `PLUGIN COMMAND`.
    pub fn calls(&self) -> Vec<String> {
        self.log().iter().map(|call| format!("{} {}", call.plugin, call.command)).collect()
    }

    pub fn log(&self) -> Vec<Noted> {
        let text = fs::read_to_string(self.dir.path().join("calls")).unwrap_or_default();
        text.lines().map(Noted::parse).collect()
    }

    pub fn forget_calls(&self) {
        fs::remove_file(self.dir.path().join("calls")).unwrap();
    }
}

/// A call that a plugin has noted.
#[derive(Debug)]
pub struct Noted {
    pub plugin: String,
    pub command: String,
    /// Container, namespace, interface and arguments.
    pub variables: String,
    pub request: Value,
}

impl Noted {
    fn parse(line: &str) -> Self {
        let fields: Vec<&str> = line.splitn(4, '\t').collect();
        let [plugin, command, variables, request] = fields[..] else { panic!("a call's line: {line}") };
        let request = serde_json::from_str(request).unwrap_or_default();
        Self { plugin: plugin.into(), command: command.into(), variables: variables.into(), request }
    }
}

/// Prints a result with this address when asked for ADD.
pub fn gives(address: &str) -> String {
    format!(
        "[ $CNI_COMMAND != ADD ] || echo '{{\"cniVersion\": \"1.1.0\", \"ips\": [{{\"address\": \"{address}\"}}]}}'"
    )
}

/// A network of these plugins.
pub fn network(version: &str, plugins: &str) -> Network {
    let text = format!(r#"{{"cniVersion": "{version}", "name": "net", "plugins": [{plugins}]}}"#);
    Network::from_bytes(text.as_bytes()).unwrap()
}

pub fn attach(container: &str) -> AttachmentParameters {
    AttachmentParameters::new(container, "eth0").unwrap().netns("/proc/self/ns/net")
}
