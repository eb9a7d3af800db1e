//! COLLECT: GC of named attachments, and its dry run.
//!
//! The specification's GC names the attachments to keep, so an attachment that is created while it runs loses its resources. Ferrule's
//! plugins have the command line `bridge collect`, without `CNI_COMMAND`; other plugins only print their version, or fail. The request on stdin
//! names the stale attachments. It works with any `cniVersion`. The plugin does not call its IPAM plugin: the caller calls both.

use std::env;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::call::{Document, Environment};
use crate::plugin::guarded;
use crate::{
    Attachment, Attachments, Code, Command, ContainerId, Error, Gc, IfName, Plugin, Resource, Result, Scope,
    Version, json as decoder,
};

/// The command line argument.
pub const ARGUMENT: &str = "collect";

/// Request to a plugin.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Whether to list resources without deleting them.
    pub dry_run: bool,
    /// The stale attachments. `None` means all attachments, in a dry run only.
    pub stale: Option<Vec<Stale>>,
    /// Containers with other attachments: the resources of theirs whose interface is unknown are kept.
    #[serde(default)]
    pub kept_containers: Vec<String>,
    /// Names of resources to delete that have no attachment.
    #[serde(default)]
    pub names: Vec<String>,
    /// Configuration of the plugin.
    pub config: Value,
}

/// An attachment in a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stale {
    /// Container id.
    #[serde(rename = "containerID")]
    pub container: String,
    /// Interface in the container.
    pub ifname: String,
}

/// Answer of a plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Resources that the plugin found stale and deleted, or tried to delete. In a dry run, those that it would delete.
    #[serde(rename = "things")]
    pub resources: Vec<Resource>,
    /// Failures. Some of the resources may still exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<Error>,
}

impl Request {
    /// The request for a scope and a plugin's configuration.
    ///
    /// # Errors
    /// Code 6 if the configuration is not JSON.
    pub fn new(scope: &Scope, config: &[u8]) -> Result<Self> {
        let name =
            |at: &Attachment| Stale { container: at.container.to_string(), ifname: at.ifname.to_string() };
        Ok(Self {
            dry_run: scope.is_dry(),
            stale: scope.stale().map(|stale| stale.iter().map(name).collect()),
            kept_containers: scope.kept_containers().cloned().collect(),
            names: scope.names().cloned().collect(),
            config: decoder::parse(config, "the configuration")?,
        })
    }

    fn scope(&self) -> Result<Scope> {
        let scope = match &self.stale {
            // A missing list must not make all attachments stale.
            None if !self.dry_run => {
                return Err(Error::config("stale is missing: the list of attachments to remove"));
            }
            None => Scope::all_but(Attachments::default()),
            Some(stale) => Scope::only(stale.iter().map(Stale::attachment).collect::<Result<_>>()?),
        };
        let scope = scope.except_unknown_of(self.kept_containers.iter().cloned());
        let scope = scope.and_named(self.names.iter().cloned());
        Ok(if self.dry_run { scope.dry() } else { scope })
    }
}

impl Stale {
    fn attachment(&self) -> Result<Attachment> {
        let wrong = |what: &str, e: String| Error::config(format!("stale: {what} {e}"));
        Ok(Attachment {
            container: ContainerId::parse(&self.container)
                .map_err(|e| wrong("containerID", e.to_string()))?,
            ifname: IfName::parse(&self.ifname).map_err(|e| wrong("ifname", e.to_string()))?,
        })
    }
}

impl Answer {
    /// Parses a plugin's output. `None` for another vendor's plugin, which did nothing.
    pub fn read(out: &[u8]) -> Option<Self> {
        // Without the limit for configurations: a range may have tens of thousands of leases.
        serde_json::from_slice(out).ok()
    }

    /// The resources, or the failure.
    ///
    /// # Errors
    /// The plugin's error.
    pub fn outcome(self) -> (Vec<Resource>, Result<()>) {
        (self.resources, self.failed.map_or(Ok(()), Err))
    }
}

/// Answers a request.
///
/// # Errors
/// Code 6 or 7 for an invalid request. Failures to delete are in the answer.
pub(crate) fn answer<P: Plugin>(request: &[u8]) -> Result<String> {
    let request: Request = serde_json::from_slice(request)
        .map_err(|e| Error::new(Code::Decoding, format!("the request on stdin: {e}")))?;
    let scope = request.scope()?;
    let env = Environment::of(Command::Gc, &|name| env::var_os(name), P::READS_ARGS)?;
    let document = Document::parse(serde_json::to_vec(&request.config)?)?;
    let mut net = document.net(P::ROLE, &env)?;
    net.ipam = None;
    let call = Gc { scope, net, conf: document.as_written() };
    let failed = guarded(|| P::gc(&call)).err();
    let mut answer = serde_json::to_value(Answer { resources: call.scope.taken(), failed })?;
    answer["cniVersion"] = json!(Version::LATEST.as_str());
    Ok(answer.to_string())
}

/// The error for a plugin without an answer.
pub(crate) fn foreign(kind: &str) -> Error {
    Error::new(
        Code::UnsupportedField,
        format!("plugin {kind} is not Ferrule's: it does not support `{ARGUMENT}`"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_deleted_resources_and_the_failure() {
        let deleted = Resource::new("link", "veth0");
        let failed = Error::new(Code::TryAgainLater, "delete link veth1").detail("busy");
        for failed in [None, Some(failed)] {
            let answer = Answer { resources: vec![deleted.clone()], failed: failed.clone() };
            let read = Answer::read(&serde_json::to_vec(&answer).unwrap()).unwrap();
            let (resources, outcome) = read.outcome();
            assert_eq!(resources, std::slice::from_ref(&deleted));
            assert_eq!(outcome.err(), failed);
        }
    }
}
