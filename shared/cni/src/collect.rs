//! COLLECT: GC of exactly the attachments that are named, and a dry run of it.
//!
//! GC of the specification names the attachments that stay, so one that is made while it runs loses what it has. A plugin
//! of ours is asked by its command line instead, `bridge collect`, without `CNI_COMMAND`: plugins of others only print
//! who they are. The request on stdin names the attachments that are stale. It works with any `cniVersion`. The
//! plugin does not call its IPAM plugin: whoever asks calls both.

use std::env;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::call::{Document, Environment};
use crate::plugin::guarded;
use crate::{
    Attachment, Attachments, Code, Command, ContainerId, Error, Gc, IfName, Plugin, Result, Scope, Thing,
    Version, json as decoder,
};

/// The argument that asks for it.
pub const ARGUMENT: &str = "collect";

/// What a plugin is asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Only list what would be removed.
    pub dry_run: bool,
    /// The attachments that lose their things. None, with a dry run only: all attachments.
    pub stale: Option<Vec<Stale>>,
    /// Names of things that do not tell their attachment, and go, too.
    #[serde(default)]
    pub names: Vec<String>,
    /// The plugin's configuration.
    pub config: Value,
}

/// An attachment, as a request names it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stale {
    /// The container's id.
    #[serde(rename = "containerID")]
    pub container: String,
    /// The container's interface.
    pub ifname: String,
}

/// What a plugin answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The resources that were removed, or would be removed.
    pub things: Vec<Thing>,
    /// What failed. The rest was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<Failed>,
}

/// An error object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// The specification's code.
    pub code: u32,
    /// What failed, on which object.
    pub msg: String,
    /// Why, and what to do.
    #[serde(default)]
    pub details: String,
}

impl Request {
    /// About a scope, for a plugin's configuration.
    ///
    /// # Errors
    /// Code 6 if the configuration is none.
    pub fn new(scope: &Scope, config: &[u8]) -> Result<Self> {
        let name =
            |at: &Attachment| Stale { container: at.container.to_string(), ifname: at.ifname.to_string() };
        Ok(Self {
            dry_run: scope.is_dry(),
            stale: scope.stale().map(|stale| stale.iter().map(name).collect()),
            names: scope.names().cloned().collect(),
            config: decoder::parse(config, "the configuration")?,
        })
    }

    fn scope(&self) -> Result<Scope> {
        let scope = match &self.stale {
            // A list that got lost must not make everything stale.
            None if !self.dry_run => {
                return Err(Error::config("stale is missing: the list of attachments to remove"));
            }
            None => Scope::all_but(Attachments::default()),
            Some(stale) => Scope::only(stale.iter().map(Stale::attachment).collect::<Result<_>>()?),
        };
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
    /// What a plugin printed. None: it is another maker's, and did nothing.
    pub fn read(out: &[u8]) -> Option<Self> {
        decoder::parse(out, "its answer").and_then(|value| decoder::decode(&value)).ok()
    }

    /// The things, or what failed.
    ///
    /// # Errors
    /// The plugin's error, with its code.
    pub fn outcome(self) -> (Vec<Thing>, Result<()>) {
        let failed = self.failed.map(|e| Error::foreign(e.code, e.msg, e.details));
        (self.things, failed.map_or(Ok(()), Err))
    }
}

/// Answers a request.
///
/// # Errors
/// Code 6 or 7 for what is no request. What could not be removed is in the answer.
pub(crate) fn answer<P: Plugin>(request: &[u8]) -> Result<String> {
    let request: Request = decoder::decode(&decoder::parse(request, "the request on stdin")?)?;
    let scope = request.scope()?;
    let env = Environment::of(Command::Gc, &|name| env::var_os(name), P::READS_ARGS)?;
    let document = Document::parse(serde_json::to_vec(&request.config)?)?;
    let mut net = document.net(P::ROLE, &env, None)?;
    net.ipam = None;
    let call = Gc { scope, net, conf: document.as_written() };
    let failed = guarded(|| P::gc(&call)).err();
    let failed = failed.map(|e| Failed { code: e.code(), msg: e.msg().into(), details: e.details().into() });
    let mut answer = serde_json::to_value(Answer { things: call.scope.taken(), failed })?;
    answer["cniVersion"] = json!(Version::LATEST.as_str());
    Ok(answer.to_string())
}

/// The error if a plugin printed no answer.
pub(crate) fn foreign(kind: &str) -> Error {
    Error::new(
        Code::UnsupportedField,
        format!("plugin {kind} is not Ferrule's: it does not support `{ARGUMENT}`"),
    )
}
