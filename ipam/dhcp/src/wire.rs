//! The protocol between plugin and daemon: one line of JSON in each direction (docs/dhcp.md, "The socket's protocol").

use std::path::PathBuf;

use cni::{Code, Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::key::Family;

/// The protocol's version.
pub const VERSION: u32 = 1;
/// The version of a request for IPv6. A daemon that supports only IPv4 must refuse it.
const VERSION_V6: u32 = 2;
/// The version of a gc, which names the stale attachments. A daemon that expects the valid ones must refuse it.
const VERSION_GC: u32 = 3;

/// Maximum size of a request in bytes. A GC of ten thousand attachments has two million.
pub const LARGEST_REQUEST: usize = 4 << 20;

/// The operation of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// Obtain a lease for an attachment, and renew it.
    Acquire,
    /// Check that the attachment has a lease, and that its address is on the link.
    Check,
    /// Release the attachment's leases.
    Release,
    /// Release the leases of a network's stale attachments.
    Gc,
    /// Check whether the daemon can obtain leases.
    Status,
    /// List all leases.
    #[default]
    List,
}

fn is_default(family: &Family) -> bool {
    *family == Family::default()
}

/// A request.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// The protocol's version.
    pub v: u32,
    /// What to do.
    pub op: Op,
    /// The address family, with acquire and check.
    #[serde(default, skip_serializing_if = "is_default")]
    pub family: Family,
    /// The random number of an ADD, with acquire. With release: release only the leases of this ADD, so that a lease of
    /// an earlier ADD stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub add: Option<u64>,
    /// The network's name.
    #[serde(default)]
    pub network: String,
    /// The container's id, in operations on one attachment.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub container_id: String,
    /// The interface in the container.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub if_name: String,
    /// The path of the container's namespace. With acquire, the request also carries an open descriptor of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<PathBuf>,
    /// `CNI_ARGS`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub args: String,
    /// The configuration on the plugin's stdin, with acquire.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub config: Value,
    /// The stale attachments, as container and interface, with gc.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stale: Vec<(String, String)>,
}

impl Request {
    /// A request about a network.
    pub fn new(op: Op, network: &str) -> Self {
        let v = if op == Op::Gc { VERSION_GC } else { VERSION };
        Self { v, op, network: network.to_owned(), ..Self::default() }
    }

    /// A request about an attachment.
    pub fn about(op: Op, network: &str, at: &cni::Attachment) -> Self {
        Self {
            container_id: at.container.to_string(),
            if_name: at.ifname.to_string(),
            ..Self::new(op, network)
        }
    }

    /// The same request for a family.
    #[must_use]
    pub fn of(self, family: Family) -> Self {
        let v = if family == Family::V6 { VERSION_V6 } else { VERSION };
        Self { v, family, ..self }
    }

    /// Parses a plugin's line.
    ///
    /// # Errors
    /// Code 6 if it is not a request. Code 11 if it has another version.
    pub fn read(line: &[u8]) -> Result<Self> {
        let value = cni::json::parse(line, "the request")?;
        let expected = match (value["op"].as_str(), value["family"].as_str()) {
            (Some("gc"), _) => VERSION_GC,
            (_, Some("ipv6")) => VERSION_V6,
            _ => VERSION,
        };
        refuse_other_version(&value, "the plugin", expected)?;
        serde_json::from_value(value).map_err(|e| Error::new(Code::Decoding, format!("the request: {e}")))
    }

    /// The request as a line.
    ///
    /// # Errors
    /// If serde_json fails, which no request causes.
    pub fn line(&self) -> Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }
}

/// The daemon's answer as a line.
pub fn reply(outcome: &Result<Value>) -> Vec<u8> {
    let value = match outcome {
        Ok(result) => json!({"v": VERSION, "result": result}),
        Err(e) => json!({"v": VERSION, "error": e}),
    };
    format!("{value}\n").into_bytes()
}

/// The daemon's answer when it closes a connection without a complete request, because others wait to be accepted.
pub fn busy() -> Vec<u8> {
    let error = Error::new(Code::TryAgainLater, "the DHCP daemon has too many connections")
        .detail("it closed this one: it did not receive a complete request in time");
    reply(&Err(error))
}

#[derive(Deserialize)]
struct Reply {
    #[serde(default)]
    result: Option<Value>,
    #[serde(default)]
    error: Option<Error>,
}

/// Parses the daemon's answer.
///
/// # Errors
/// The daemon's error, or code 11 if the answer is not from a daemon of this version.
pub fn read_reply(line: &[u8]) -> Result<Value> {
    if is_http(line) {
        return Err(Error::new(
            Code::TryAgainLater,
            "the DHCP daemon on the socket is not Ferrule's: it \
         speaks HTTP",
        )
        .detail(
            "restart cni-dhcp.socket and cni-dhcp.service with the daemon's flag -adopt, so that running \
             containers keep their addresses; if the daemon is not a service, stop it and start `dhcp daemon -adopt` of \
             this directory; if a Kubernetes DaemonSet runs it, see docs/kubernetes.md",
        ));
    }
    let no_answer = |what: String| {
        Error::new(Code::TryAgainLater, format!("cannot decode the answer of the DHCP daemon: {what}"))
            .detail("read its log: journalctl -u cni-dhcp.service")
    };
    if line.is_empty() {
        return Err(no_answer("it closed the connection without an answer".to_owned()));
    }
    let value: Value = serde_json::from_slice(line).map_err(|e| no_answer(e.to_string()))?;
    refuse_other_version(&value, "the DHCP daemon", VERSION)?;
    match serde_json::from_value(value).map_err(|e| no_answer(e.to_string()))? {
        Reply { error: Some(error), .. } => Err(error),
        Reply { result: Some(result), .. } => Ok(result),
        Reply { .. } => Ok(Value::Null),
    }
}

fn refuse_other_version(value: &Value, whose: &str, expected: u32) -> Result<()> {
    match value["v"].as_u64() {
        Some(v) if v == u64::from(expected) => Ok(()),
        Some(v) => Err(Error::new(
            Code::TryAgainLater,
            format!(
                "{whose} uses version {v} of the protocol between plugin and daemon, expected {expected}"
            ),
        )
        .detail("restart cni-dhcp.service, so that daemon and plugin have the same version")),
        None => Err(Error::new(
            Code::Decoding,
            format!("{whose} did not send the version of the protocol between plugin and daemon"),
        )
        .detail("restart cni-dhcp.service, so that daemon and plugin have the same version")),
    }
}

/// Start of a request by the reference's plugin: `CONNECT /_goRPC_ HTTP/1.0`.
const GO_PLUGIN: &[u8] = b"CONNECT ";

/// The answer to the reference's plugin, which prints it without the protocol.
pub const TO_GO_PLUGIN: &[u8] = b"HTTP/1.0 426 Ferrule daemon\r\n\r\n";

/// Whether the received bytes are from the reference's plugin, which waits for an answer.
pub fn is_go_plugin(received: &[u8]) -> bool {
    received.starts_with(GO_PLUGIN)
}

/// Whether the answer is from the reference's daemon.
fn is_http(line: &[u8]) -> bool {
    line.starts_with(b"HTTP/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_contains_the_result_or_the_error() {
        let error = Error::new(Code::TryAgainLater, "no answer").detail("later");
        assert_eq!(read_reply(&reply(&Ok(json!({"a": 1})))).unwrap(), json!({"a": 1}));
        assert_eq!(read_reply(&reply(&Ok(Value::Null))).unwrap(), Value::Null);
        assert_eq!(read_reply(&reply(&Err(error.clone()))).unwrap_err(), error);
    }

    #[test]
    fn the_error_for_an_invalid_answer_says_what_to_restart() {
        for (line, code, culprit) in [
            ("HTTP/1.1 400 Bad Request\r\n", 11, "cni-dhcp.service"),
            ("", 11, "closed the connection"),
            ("{", 11, "journalctl"),
            ("{\"v\": 2, \"result\": {}}", 11, "version 2"),
            ("{}", 6, "version"),
            ("[1]", 6, "version"),
            ("{\"v\": 1, \"error\": {}}", 11, "code"),
        ] {
            let error = read_reply(line.as_bytes()).unwrap_err();
            assert!(error.code() == code && error.to_string().contains(culprit), "{line}: {error}");
        }
    }

    #[test]
    fn a_request_is_parsed_as_it_was_sent_and_anything_else_is_refused() {
        let mut request = Request::new(Op::Gc, "net");
        request.stale.push(("a".to_owned(), "eth0".to_owned()));
        let read = Request::read(&request.line().unwrap()).unwrap();
        assert_eq!((read.op, read.network, read.stale), (Op::Gc, request.network, request.stale));
        for (line, code) in [
            ("", 6),
            ("x", 6),
            ("{}", 6),
            ("{\"v\": 1}", 6),
            ("{\"v\": 7, \"op\": \"acquire\"}", 11),
            // Of an earlier plugin, which names the attachments to keep.
            ("{\"v\": 1, \"op\": \"gc\", \"network\": \"net\", \"valid\": [[\"a\", \"eth0\"]]}", 11),
            ("{\"v\": 1, \"op\": \"dance\"}", 6),
            ("{\"v\": 1, \"op\": \"list\", \"network\": 5}", 6),
        ] {
            assert_eq!(Request::read(line.as_bytes()).unwrap_err().code(), code, "{line}");
        }
    }

    #[test]
    fn the_references_plugin_is_known_by_its_first_word() {
        assert!(is_go_plugin(b"CONNECT /_goRPC_ HTTP/1.0\n\n"));
        assert!(!is_go_plugin(b"{\"v\":1}") && !is_go_plugin(b"CONN"));
    }
}
