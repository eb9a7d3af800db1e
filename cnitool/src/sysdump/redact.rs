//! Removes secrets, which are recognised by their names and by their format.
//!
//! - In JSON the value of a key that is named like a secret, and everything below `env`.
//! - In text `NAME=value` with an environment variable's name, `name: value` with a name like a secret's, tokens, keys in PEM, and
//!   passwords in URLs.

use std::sync::LazyLock;

use regex_lite::{Captures, Regex};
use serde_json::{Map, Value};

const REMOVED: &str = "[removed]";

/// Parts of names of secrets, in lower case.
const NAMES: &[&str] = &[
    "passw",
    "passphrase",
    "token",
    "secret",
    "credential",
    "auth",
    "kubeconfig",
    "private",
    "psk",
    "cookie",
];

/// Ends of names of secrets.
const ENDS: &[&str] = &["key", "keys", "key-data", "key_data", "keydata", "pass", "pwd"];

/// A value: quoted (also with escaped quotes, as in a JSON string in a log), or up to the next separator.
const VALUE: &str = r#"\\+"[^"\\]*\\+"|"(?:[^"\\]|\\.)*"|'[^']*'|[^\s,;}\]"'\\\[]+"#;

/// Variables and CNI arguments whose values are needed to understand a report.
const KEPT: &[&str] = &[
    "CNI_COMMAND",
    "CNI_CONTAINERID",
    "CNI_IFNAME",
    "CNI_NETNS",
    "CNI_PATH",
    "CNI_ARGS",
    "NETCONFPATH",
    "IgnoreUnknown",
    "IP",
    "MAC",
    "GATEWAY",
    "K8S_POD_NAME",
    "K8S_POD_NAMESPACE",
    "K8S_POD_INFRA_CONTAINER_ID",
    "K8S_POD_UID",
    "NOMAD_ALLOC_ID",
];

/// A JSON document without secrets, and how many values were removed.
pub fn json(value: Value) -> (Value, usize) {
    let mut removed = 0;
    let value = member("", value, &mut removed);
    (value, removed)
}

/// A text without secrets, and how many values were removed.
pub fn text(text: &str) -> (String, usize) {
    let mut removed = 0;
    let mut clean = text.to_owned();
    for (pattern, keep) in PATTERNS.iter() {
        let replaced = pattern.replace_all(&clean, |found: &Captures<'_>| match keep(found) {
            Some(kept) if kept == found[0] => kept,
            Some(kept) => {
                removed += 1;
                kept
            }
            None => {
                removed += 1;
                REMOVED.to_owned()
            }
        });
        clean = replaced.into_owned();
    }
    (clean, removed)
}

fn member(key: &str, value: Value, removed: &mut usize) -> Value {
    // A path or a switch is not a secret, but a path cannot be distinguished from a password.
    let is_secret = is_secret(key) && !matches!(value, Value::Null | Value::Bool(_));
    if is_secret || ["env", "environment"].contains(&key.to_ascii_lowercase().as_str()) {
        *removed += 1;
        return REMOVED.into();
    }
    match value {
        Value::Object(members) => object(members, removed),
        Value::Array(items) => items.into_iter().map(|item| member("", item, removed)).collect(),
        Value::String(string) => {
            let (clean, more) = text(&string);
            *removed += more;
            clean.into()
        }
        other => other,
    }
}

fn object(members: Map<String, Value>, removed: &mut usize) -> Value {
    // kubectl's configuration, whatever the file's name.
    if members.contains_key("clusters") && members.contains_key("users") {
        *removed += 1;
        return REMOVED.into();
    }
    members
        .into_iter()
        .map(|(key, value)| (key.clone(), member(&key, value, removed)))
        .collect::<Map<_, _>>()
        .into()
}

fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    NAMES.iter().any(|name| key.contains(name)) || ENDS.iter().any(|end| key.ends_with(end))
}

/// What replaces a match. None: [`REMOVED`].
type Replacement = fn(&Captures<'_>) -> Option<String>;
type Pattern = (Regex, Replacement);

static PATTERNS: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    // Only for names of secrets: a quoted text that follows another name may contain a secret.
    let named = format!(
        r#"(?i)([A-Za-z0-9_.-]*(?:(?:{})[A-Za-z0-9_.-]*|(?:{})))(\\*["']?\s*[:=]\s*)({VALUE})"#,
        NAMES.join("|"),
        ENDS.join("|")
    );
    let variables = r#"\b([A-Z][A-Z0-9_]*)=("(?:[^"\\]|\\.)*"|'[^']*'|[^\s;]+)"#;
    let patterns: [(&str, Replacement); 6] = [
        (r"(?s)-----BEGIN [^-]*-----.*?(-----END [^-]*-----|\z)", |_| None),
        (r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]*)?", |_| None),
        (r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{4,}", |found| Some(format!("{} {REMOVED}", &found[1]))),
        (r"://[^/\s@]+@", |_| Some(format!("://{REMOVED}@"))),
        (&named, |found| Some(format!("{}{}{REMOVED}", &found[1], &found[2]))),
        (variables, variable),
    ];
    patterns.into_iter().filter_map(|(pattern, keep)| Some((Regex::new(pattern).ok()?, keep))).collect()
});

/// `NAME=value`.
fn variable(found: &Captures<'_>) -> Option<String> {
    let (name, value) = (&found[1], &found[2]);
    let is_kept = KEPT.contains(&name) || value == REMOVED;
    Some(if is_kept { format!("{name}={}", arguments(value)) } else { format!("{name}={REMOVED}") })
}

/// The value of CNI_ARGS is a list of variables itself.
fn arguments(value: &str) -> String {
    match value.split_once('=') {
        Some((name, _)) if !KEPT.contains(&name) && !name.starts_with('"') => format!("{name}={REMOVED}"),
        _ => value.to_owned(),
    }
}

/// CNI arguments `NAME=value;NAME=value`, of which only known ones keep their values.
pub fn cni_args(args: &str) -> String {
    let kept = |pair: &str| match pair.split_once('=') {
        Some((name, _)) if !KEPT.contains(&name) => format!("{name}={REMOVED}"),
        _ => pair.to_owned(),
    };
    args.split(';').map(kept).collect::<Vec<_>>().join(";")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_removed_by_name_and_by_form_and_the_rest_stays() {
        for (secret, rest) in [
            ("password: hunter2 user=bob", "user=bob"),
            (r#"msg="token=\"hunter2\" of pod web""#, "of pod web"),
            (r#"{\"apiKey\":\"hunter2\",\"bridge\":\"br0\"}"#, r#"\"bridge\":\"br0\""#),
            ("GET https://bob:hunter2@example.com/v1", "example.com/v1"),
            ("Authorization: Bearer hunter2-abc.def x", " x"),
            ("-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY----- tail", "tail"),
            ("-----BEGIN EC PRIVATE KEY-----\nhunter2", ""),
            (r#"{"token": "a\"hunter2", "bridge": "br0"}"#, r#""bridge": "br0""#),
            (r#"X="a\"hunter2" MTU"#, "MTU"),
            ("DB_HOST=hunter2 CNI_IFNAME=eth0", "CNI_IFNAME=eth0"),
            ("CNI_ARGS=MINE=hunter2;K8S_POD_NAME=web", "K8S_POD_NAME=web"),
            ("CNI_ARGS=IgnoreUnknown=1;MINE=hunter2", "IgnoreUnknown=1"),
            ("jwt eyJhbGciOiJI.hunter2.x end", "end"),
        ] {
            let (clean, removed) = text(secret);
            assert!(!clean.contains("hunter2") && clean.contains(rest) && removed > 0, "{secret}: {clean}");
        }
        let plain = "table ip nat { chain x { ip saddr 10.0.0.1 masquerade comment \"net/pod/eth0\" } }";
        assert_eq!(text(plain), (plain.to_owned(), 0));
    }

    #[test]
    fn json_loses_secrets_environments_and_kubeconfigs() {
        let (clean, removed) = json(json!({
            "bridge": "br0", "k8s_auth_token": "hunter2", "deep": [{"clientSecret": {"a": "hunter2"}}],
            "env": {"A": "hunter2"}, "kubernetes": {"kubeconfig": "hunter2"}, "note": "password=hunter2",
            "file": {"clusters": [], "users": [{"user": {"x": "hunter2"}}]}, "mtu": 1500,
        }));
        assert!(!clean.to_string().contains("hunter2"), "{clean}");
        assert_eq!((&clean["bridge"], &clean["mtu"], removed), (&json!("br0"), &json!(1500), 6));
    }

    #[test]
    fn cni_arguments_keep_the_values_of_known_names() {
        assert_eq!(
            cni_args("IgnoreUnknown=1;X=hunter2;IP=10.0.0.2"),
            "IgnoreUnknown=1;X=[removed];IP=10.0.0.2"
        );
    }
}
