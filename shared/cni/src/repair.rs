//! REPAIR: rules that somebody removed are installed again, of many attachments in one run.
//!
//! The specification has no such command. A plugin of ours is asked for it by its command line, `bridge repair`, without
//! `CNI_COMMAND`: plugins of others say no more then than who they are. On stdin are the attachments, each with the
//! request that a CHECK would have; on stdout, in their order, what came of each.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::call::{Document, Environment};
use crate::plugin::{check_call, guarded};
use crate::{Check, Command, Error, Plugin, Repair, Result, Version, json as decoder};

/// The argument that asks for it.
pub const ARGUMENT: &str = "repair";

#[derive(Deserialize)]
struct Request {
    /// What attachments claim whose rules were installed again in an earlier run.
    #[serde(default)]
    claimed: BTreeSet<String>,
    /// The oldest first.
    attachments: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    #[serde(rename = "containerID")]
    container: String,
    ifname: String,
    netns: String,
    #[serde(default)]
    args: String,
    /// What only one attachment can have at a time, such as a host port: names that mean nothing here.
    #[serde(default)]
    claims: Vec<String>,
    config: Value,
}

/// Answers a request.
///
/// # Errors
/// Code 6 for what is no request. What fails of a single attachment is in the answer.
pub(crate) fn answer<P: Plugin>(request: &[u8]) -> Result<String> {
    let request = decoder::parse(request, "the request on stdin")?;
    // Most plugins have no rules, and need not carry what reads the rest.
    if !P::REPAIRS {
        return Ok(answered(&[]));
    }
    let Request { mut claimed, attachments } = decoder::decode(&request)?;
    let mut repairs = Vec::new();
    for item in &attachments {
        let reinstall = item.claims.iter().any(|claim| claimed.contains(claim));
        let outcome = repair::<P>(item, reinstall);
        if matches!(outcome, Ok(true)) {
            claimed.extend(item.claims.iter().cloned());
        }
        repairs.push(told(outcome));
    }
    Ok(answered(&repairs))
}

fn answered(repairs: &[Value]) -> String {
    json!({"cniVersion": Version::LATEST.as_str(), "repairs": repairs}).to_string()
}

fn told(outcome: Result<bool>) -> Value {
    match outcome {
        Ok(repaired) => json!({"repaired": repaired}),
        Err(e) => json!({"code": e.code(), "msg": e.msg(), "details": e.details()}),
    }
}

/// The request for one attachment, which a plugin hands on to another one.
///
/// # Errors
/// Code 6 if the configuration is none.
pub(crate) fn request<C>(call: &Repair<C>, config: &[u8]) -> Result<Vec<u8>> {
    let Check { attachment, netns, args, .. } = &call.check;
    // A name that means nothing: it says that the rules are to be installed again.
    let claims: &[&str] = if call.reinstall { &["anew"] } else { &[] };
    let item = json!({
        "containerID": attachment.container.as_str(),
        "ifname": attachment.ifname.as_str(),
        "netns": netns.display().to_string(),
        "args": args.to_string(),
        "claims": claims,
        "config": decoder::parse(config, "the configuration")?,
    });
    Ok(serde_json::to_vec(&json!({"claimed": claims, "attachments": [item]}))?)
}

/// What came of such a request. A plugin of others says nothing: then nothing was repaired.
///
/// # Errors
/// The plugin's own error.
pub(crate) fn outcome(out: &[u8]) -> Result<bool> {
    let answer = decoder::parse(out, "its answer").unwrap_or_default();
    let Some(told) = answer["repairs"].get(0) else { return Ok(false) };
    match told["code"].as_u64() {
        None => Ok(told["repaired"] == true),
        Some(code) => {
            let text = |key: &str| told[key].as_str().unwrap_or_default();
            Err(Error::foreign(u32::try_from(code).unwrap_or(u32::MAX), text("msg"), text("details")))
        }
    }
}

fn repair<P: Plugin>(item: &Item, reinstall: bool) -> Result<bool> {
    let variable = |name: &str| match name {
        "CNI_CONTAINERID" => Some(OsString::from(&item.container)),
        "CNI_IFNAME" => Some(OsString::from(&item.ifname)),
        "CNI_NETNS" => Some(OsString::from(&item.netns)),
        "CNI_ARGS" => Some(OsString::from(&item.args)),
        other => env::var_os(other),
    };
    let env = Environment::of(Command::Repair, &variable, P::READS_ARGS)?;
    let document = Document::parse(serde_json::to_vec(&item.config)?)?;
    // A rule must not lead to the next container with this address: so even plugins that work without a namespace need it here.
    let check = check_call::<P>(&env, &document, "it tells what was attached", true)?;
    let call = Repair { check, reinstall };
    guarded(|| P::repair(&call))
}
