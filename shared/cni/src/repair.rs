//! REPAIR: installs missing rules of many attachments in one run.
//!
//! The command is not in the specification. Ferrule's plugins have the command line `bridge repair`, without `CNI_COMMAND`; other plugins
//! only print their version, or fail. Stdin has the attachments, each with the request of a CHECK. Stdout has the results, in the same order.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::call::{Document, Environment};
use crate::plugin::{check_call, guarded};
use crate::{Check, Code, Command, Error, Plugin, Repair, Result, Version, json as decoder};

/// The command line argument.
pub const ARGUMENT: &str = "repair";

/// Names of resources that only one attachment can have at a time. A name may continue a more general one after a space: the host port
/// `tcp 8080` of all addresses and the port `tcp 8080 192.0.2.1` of one address exclude each other.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Claims(BTreeSet<String>);

impl Claims {
    /// Whether one of these claims excludes another one.
    pub fn exclude(&self, claim: &str) -> bool {
        let is_more_general = |(end, _)| self.0.contains(&claim[..end]);
        let start = format!("{claim} ");
        let next = self.0.range(start.clone()..).next();
        let is_more_specific = next.is_some_and(|next| next.starts_with(&start));
        self.0.contains(claim) || is_more_specific || claim.match_indices(' ').any(is_more_general)
    }
}

impl Extend<String> for Claims {
    fn extend<I: IntoIterator<Item = String>>(&mut self, claims: I) {
        self.0.extend(claims);
    }
}

#[derive(Deserialize)]
struct Request<'a> {
    /// Claims of attachments whose rules an earlier run installed again.
    #[serde(default)]
    claimed: Claims,
    /// The oldest first.
    #[serde(borrow)]
    attachments: Vec<Item<'a>>,
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(rename = "containerID")]
    container: String,
    ifname: String,
    netns: String,
    #[serde(default)]
    args: String,
    /// See [`Claims`].
    #[serde(default)]
    claims: Vec<String>,
    /// Parsed later, like any configuration: together, they may have more values than one document.
    #[serde(borrow)]
    config: &'a RawValue,
}

/// Answers a request.
///
/// # Errors
/// Code 6 for an invalid request. Failures of single attachments are in the answer.
pub(crate) fn answer<P: Plugin>(request: &[u8]) -> Result<String> {
    // Most plugins have no rules, and need no code for the rest.
    if !P::REPAIRS {
        return serde_json::from_slice(request).map(|IgnoredAny| answered(&[])).map_err(not_a_request);
    }
    let Request { claimed, attachments } = serde_json::from_slice(request).map_err(not_a_request)?;
    let decoded: Vec<_> = attachments.into_iter().map(|item| call_of::<P>(item, &claimed)).collect();
    let (mut calls, mut places) = (Vec::new(), Vec::new());
    for call in decoded {
        places.push(call.map(|call| calls.push(call)));
    }
    let mut outcomes = guarded(|| Ok(P::repair(&calls))).map(Vec::into_iter);
    let repairs = places.into_iter().map(|place| match &mut outcomes {
        Ok(outcomes) => place.and_then(|()| outcomes.next().unwrap_or(Ok(false))),
        Err(panic) => Err(panic.clone()),
    });
    Ok(answered(&repairs.map(report).collect::<Vec<_>>()))
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn not_a_request(e: serde_json::Error) -> Error {
    Error::new(Code::Decoding, format!("the request on stdin cannot be read: {e}"))
}

fn answered(repairs: &[Value]) -> String {
    json!({"cniVersion": Version::LATEST.as_str(), "repairs": repairs}).to_string()
}

fn report(outcome: Result<bool>) -> Value {
    match outcome {
        Ok(repaired) => json!({"repaired": repaired}),
        Err(e) => json!(e),
    }
}

/// The request for one attachment, to pass to another plugin.
///
/// # Errors
/// Code 6 if the configuration is not JSON.
pub(crate) fn request<C>(call: &Repair<C>, config: &[u8]) -> Result<Vec<u8>> {
    let Check { attachment, netns, args, .. } = &call.check;
    let claimed: &[String] = if call.reinstall { &call.claims } else { &[] };
    let item = json!({
        "containerID": attachment.container.as_str(),
        "ifname": attachment.ifname.as_str(),
        "netns": netns.display().to_string(),
        "args": args.to_string(),
        "claims": call.claims,
        "config": decoder::parse(config, "the configuration")?,
    });
    Ok(serde_json::to_vec(&json!({"claimed": claimed, "attachments": [item]}))?)
}

/// Parses the result of such a request. Other vendors' plugins print nothing: nothing was repaired.
///
/// # Errors
/// The plugin's error.
pub(crate) fn outcome(out: &[u8]) -> Result<bool> {
    let answer = decoder::parse(out, "its answer").unwrap_or_default();
    let Some(outcome) = answer["repairs"].get(0) else { return Ok(false) };
    match outcome.get("code") {
        None => Ok(outcome["repaired"] == true),
        Some(_) => Err(decoder::decode(outcome).unwrap_or_else(|malformed| malformed)),
    }
}

fn call_of<P: Plugin>(item: Item<'_>, claimed: &Claims) -> Result<Repair<P::Conf>> {
    let variable = |name: &str| match name {
        "CNI_CONTAINERID" => Some(OsString::from(&item.container)),
        "CNI_IFNAME" => Some(OsString::from(&item.ifname)),
        "CNI_NETNS" => Some(OsString::from(&item.netns)),
        "CNI_ARGS" => Some(OsString::from(&item.args)),
        other => env::var_os(other),
    };
    let env = Environment::of(Command::Repair, &variable, P::READS_ARGS)?;
    let document = Document::parse(item.config.get().into())?;
    // A rule must not lead to the next container with this address, so the namespace is required even for plugins that work without one.
    let check =
        check_call::<P>(&env, &document, "it lists the interfaces and addresses of the attachment", true)?;
    let reinstall = item.claims.iter().any(|claim| claimed.exclude(claim));
    Ok(Repair { check, claims: item.claims, reinstall })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Key;
    use crate::{Add, AddResult, AsWritten, Code, Del, Role, Undo};

    struct Repairing;

    impl Plugin for Repairing {
        const NAME: &'static str = "repairing";
        const ABOUT: &'static str = "";
        const KEYS: &'static [Key] = &[];
        const ROLE: Role = Role::Chained;
        const REPAIRS: bool = true;
        type Conf = AsWritten;
        fn add(_: &Add<AsWritten>, _: &mut Undo) -> Result<AddResult> {
            Ok(AddResult::default())
        }
        fn del(_: &Del) -> Result<()> {
            Ok(())
        }
        fn check(_: &Check<AsWritten>) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_port_of_all_addresses_excludes_that_of_each_and_ports_of_two_addresses_do_not_exclude_each_other() {
        let [all, one, other] = ["tcp 8080", "tcp 8080 192.0.2.1", "tcp 8080 192.0.2.2"];
        let excludes = |claim: &str, others: [&str; 3]| {
            let mut claims = Claims::default();
            claims.extend([claim, "tcp 808", "tcp 80801", "udp 8080"].map(str::to_owned));
            others.map(|other| claims.exclude(other))
        };
        assert_eq!(excludes(all, [all, one, other]), [true, true, true]);
        assert_eq!(excludes(one, [all, one, other]), [true, true, false]);
        assert_eq!(excludes(one, ["tcp 80", "tcp 8080 192.0.2.10", "sctp 8080"]), [false, false, false]);
    }

    #[test]
    fn the_attachments_of_a_request_together_may_have_more_values_than_a_single_configuration() {
        let config = json!({"cniVersion": "1.1.0", "name": "n", "type": "repairing", "prevResult": {}, "list": vec![0; 100]});
        let item =
            json!({"containerID": "c", "ifname": "eth0", "netns": "/no/such/namespace", "config": config});
        let request = json!({"claimed": [], "attachments": vec![item; 1_000]}).to_string();
        assert!(!decoder::have_few_values(&[request.as_bytes()]));
        // CNI_PATH is missing, which is reported for each attachment.
        let answer: Value = serde_json::from_str(&answer::<Repairing>(request.as_bytes()).unwrap()).unwrap();
        let outcome = answer["repairs"].as_array().unwrap();
        assert!(
            outcome.iter().all(|outcome| outcome["code"] == Code::InvalidEnvironment as u32),
            "{}",
            outcome[0]
        );
        assert_eq!(outcome.len(), 1_000);
    }
}
