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
use crate::{Command, Plugin, Repair, Result, Version, json as decoder};

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
        let anew = item.claims.iter().any(|claim| claimed.contains(claim));
        let outcome = repair::<P>(item, anew);
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

fn repair<P: Plugin>(item: &Item, anew: bool) -> Result<bool> {
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
    let call = Repair { check: check_call::<P>(&env, &document, "it tells what was attached", true)?, anew };
    guarded(|| P::repair(&call))
}
