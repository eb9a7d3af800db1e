//! VERSION: supported versions of plugins.

use std::collections::BTreeSet;

use cni::{Code, Command, PluginType, Version, json};
use serde_json::Value;

use crate::error::Failures;
use crate::{Error, Network, Result, Runtime};

impl Runtime {
    /// VERSION of every plugin: checks that it exists and supports the network's version. Returns the network's capabilities.
    ///
    /// # Errors
    /// All problems: code 7 for a missing plugin, 1 for one without the version.
    pub fn validate<'a>(&self, network: &'a Network) -> Result<BTreeSet<&'a str>> {
        let mut failures = Failures::default();
        for plugin in &network.plugins {
            failures.note(self.speaks(&plugin.kind, network.version));
        }
        failures.into_result().map(|()| network.capabilities())
    }

    /// Versions that a plugin lists.
    ///
    /// # Errors
    /// Code 7 if the plugin does not exist; 6 for an invalid answer.
    pub fn versions(&self, kind: &PluginType) -> Result<Vec<String>> {
        let said = || -> cni::Result<Vec<String>> {
            // Plugins that do not know VERSION check the other variables first.
            let env = [
                ("CNI_CONTAINERID", "dummy"),
                ("CNI_NETNS", "dummy"),
                ("CNI_IFNAME", "dummy"),
                ("CNI_ARGS", ""),
            ];
            let env = env.map(|(key, value)| (key, value.into())).to_vec();
            let stdin = format!(r#"{{"cniVersion":"{}"}}"#, Version::LATEST);
            match self.run(Command::Version, kind, env, stdin.as_bytes()) {
                Err(e) if e.msg() == "unknown CNI_COMMAND: VERSION" => Ok(vec![Version::V0_1_0.to_string()]),
                out => supported(&out?),
            }
        };
        said().map_err(|e| Error::of_plugin(kind, Command::Version, e))
    }

    /// The highest of the network's versions that all of its plugins support.
    ///
    /// # Errors
    /// Code 1 if there is none; 7 if a plugin does not exist; 6 for an invalid answer.
    pub fn negotiate(&self, network: &Network) -> Result<Version> {
        let mut common = network.versions.clone();
        if common.is_empty() {
            common.push(network.version);
        }
        for plugin in &network.plugins {
            let spoken = self.versions(&plugin.kind)?;
            common.retain(|version| spoken.iter().any(|s| s == version.as_str()));
        }
        let none = || {
            Error::own(
                Code::IncompatibleVersion,
                "no CNI version of the network is supported by all its plugins",
            )
        };
        common.last().copied().ok_or_else(none)
    }

    fn speaks(&self, kind: &PluginType, version: Version) -> Result<()> {
        let spoken = self.versions(kind)?;
        if spoken.iter().any(|s| s == version.as_str()) {
            return Ok(());
        }
        let error =
            cni::Error::new(Code::IncompatibleVersion, format!("it does not support version {version}"))
                .detail(format!("it supports {}", spoken.join(", ")));
        Err(Error::of_plugin(kind, Command::Version, error))
    }
}

fn supported(out: &[u8]) -> cni::Result<Vec<String>> {
    let value = json::parse(out, "its answer")?;
    let versions = json::member(&value, "supportedVersions").and_then(Value::as_array);
    let versions =
        versions.map(|list| list.iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect());
    versions.ok_or_else(|| {
        cni::Error::new(Code::Decoding, "its answer has no supportedVersions").detail(cni::exec::excerpt(out))
    })
}
