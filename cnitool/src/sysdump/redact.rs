//! Removes secrets, which are recognised by their names and by their format.
//!
//! - In JSON the value of a key that is named like a secret, everything below `env`, `value` next to `name`, and capability arguments
//!   that are not of CNI's conventions. Strings that contain JSON are handled like JSON.
//! - In text `NAME=value` with an environment variable's name, `name: value` and `--name value` with a name like a secret's, CNI
//!   arguments, tokens, keys in PEM, and passwords in URLs.

use std::mem;
use std::sync::LazyLock;

use regex_lite::{Captures, Regex};
use serde_json::{Map, Value};
use validate::schema::{CAPABILITIES, find};

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
        Value::Object(members) if ["capabilityArgs", "runtimeConfig"].contains(&key) => {
            // containerd passes all annotations of the pod, also when no plugin declares this capability.
            object(members, |name| find(CAPABILITIES, name).is_none(), removed)
        }
        // kubectl's configuration, whatever the file's name.
        Value::Object(members) if members.contains_key("clusters") && members.contains_key("users") => {
            *removed += 1;
            REMOVED.into()
        }
        Value::Object(members) => {
            // An environment variable of a Kubernetes object.
            let is_pair = members.contains_key("name") && members.contains_key("value");
            object(members, |key| is_pair && key == "value", removed)
        }
        Value::Array(items) => list(items, removed),
        Value::String(text) => string(text, removed),
        other => other,
    }
}

/// An object without the members that `is_removed` selects, and without secrets in the others.
fn object(members: Map<String, Value>, is_removed: impl Fn(&str) -> bool, removed: &mut usize) -> Value {
    let clean = |(key, value): (String, Value)| {
        let value = if is_removed(&key) {
            *removed += 1;
            REMOVED.into()
        } else {
            member(&key, value, removed)
        };
        (key, value)
    };
    members.into_iter().map(clean).collect::<Map<_, _>>().into()
}

/// In a list of arguments, a secret follows its name: `["--token", "..."]`.
fn list(items: Vec<Value>, removed: &mut usize) -> Value {
    let is_name =
        |item: &Value| item.as_str().is_some_and(|name| !name.contains(['=', ':']) && is_secret(name));
    let mut follows_name = false;
    let clean = |item: Value| {
        if mem::replace(&mut follows_name, is_name(&item)) && (item.is_string() || item.is_number()) {
            *removed += 1;
            return REMOVED.into();
        }
        member("", item, removed)
    };
    items.into_iter().map(clean).collect()
}

fn string(string: String, removed: &mut usize) -> Value {
    // For instance, kubectl writes the specification of a pod into an annotation.
    if let Ok(inner @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str(&string) {
        let before = *removed;
        let clean = member("", inner, removed);
        return if *removed == before { string.into() } else { clean.to_string().into() };
    }
    let (clean, more) = text(&string);
    *removed += more;
    clean.into()
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
    let name = format!(r#"[A-Za-z0-9_.-]*(?:(?:{})[A-Za-z0-9_.-]*|(?:{}))"#, NAMES.join("|"), ENDS.join("|"));
    let named = format!(r#"(?i)({name})(\\*["']?\s*[:=]\s*|\\*["']\s*,\s*)({VALUE})"#);
    let option = format!(r#"(?im)((?:^|[\s"'\[(])-{name})(\\*["']?\s+)({VALUE})"#);
    let pair = r#"(?i)(\\*"name\\*"\s*:\s*\\*"[^"\\]*)(\\*"\s*,\s*\\*"value\\*"\s*:\s*)"#;
    let pair = format!("{pair}({VALUE})");
    let arguments = r#"(?i)((?:\b|_)args\\*["']?(?:\s*[:=]\s*|\s+))(\\*"[^"\\]*|'[^']*|[^\s"'\\]+)"#;
    let variables = r#"\b([A-Z][A-Z0-9_]*)=("(?:[^"\\]|\\.)*"|'[^']*'|[^\s;]+)"#;
    let patterns: [(&str, Replacement); 9] = [
        (r"(?s)-----BEGIN [^-]*-----.*?(-----END [^-]*-----|\z)", |_| None),
        (r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]*)?", |_| None),
        (r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{4,}", |found| Some(format!("{} {REMOVED}", &found[1]))),
        (r"://[^/\s@]+@", |_| Some(format!("://{REMOVED}@"))),
        (&pair, value_removed),
        (&named, value_removed),
        (&option, value_removed),
        (arguments, known_arguments),
        (variables, variable),
    ];
    patterns.into_iter().filter_map(|(pattern, keep)| Some((Regex::new(pattern).ok()?, keep))).collect()
});

/// A name, the separator, and instead of the value that it was removed.
fn value_removed(found: &Captures<'_>) -> Option<String> {
    Some(format!("{}{}{REMOVED}", &found[1], &found[2]))
}

/// `CNI_ARGS=`, `--args` or `Args:`, with CNI arguments that may be quoted.
fn known_arguments(found: &Captures<'_>) -> Option<String> {
    let list = found[2].trim_start_matches(['\\', '"', '\'']);
    let quotes = found[2].strip_suffix(list).unwrap_or_default();
    Some(format!("{}{quotes}{}", &found[1], cni_args(list)))
}

/// `NAME=value`.
fn variable(found: &Captures<'_>) -> Option<String> {
    let (name, value) = (&found[1], &found[2]);
    let is_kept = KEPT.contains(&name) || value == REMOVED;
    Some(if is_kept { found[0].to_owned() } else { format!("{name}={REMOVED}") })
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
            ("CNI_ARGS=IgnoreUnknown=1;api_pin=hunter2 end", "IgnoreUnknown=1;api_pin=[removed] end"),
            (
                "--args \"IgnoreUnknown=1;note=is hunter2;IP=10.0.0.2\"",
                "IgnoreUnknown=1;note=[removed];IP=10.0.0.2\"",
            ),
            (r#"Args:\"MINE=hunter2;K8S_POD_NAME=web\","#, "K8S_POD_NAME=web"),
            ("jwt eyJhbGciOiJI.hunter2.x end", "end"),
            ("run --password hunter2 --mtu 1500", "--password [removed] --mtu 1500"),
            (r#"exec "--api-token" 'hunter2' end"#, "end"),
            (r#"["DB_PASSWORD","hunter2"] end"#, "] end"),
            (r#"{"env_from":[{"name":"X","value":"hunter2"}],"mtu":1500}"#, r#""mtu":1500"#),
            (r#"[{\"name\":\"X_TOKEN\", \"value\":\"hunter2\"}],\"mtu\":1500"#, r#"\"mtu\":1500"#),
        ] {
            let (clean, removed) = text(secret);
            assert!(!clean.contains("hunter2") && clean.contains(rest) && removed > 0, "{secret}: {clean}");
        }
        for plain in [
            "table ip nat { chain x { ip saddr 10.0.0.1 masquerade comment \"net/pod/eth0\" } }",
            "-A CNI-X -m comment --comment \"name: net\" -j MARK --set-xmark 0x2000/0x2000",
            "cnitool --args IgnoreUnknown=1;K8S_POD_NAME=web add net",
            r#""args": {"cni": {"ips": ["10.0.0.2"]}}, "name": "net", "type": "bridge""#,
        ] {
            assert_eq!(text(plain), (plain.to_owned(), 0));
        }
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
    fn json_loses_values_of_variables_arguments_and_unknown_capabilities() {
        let pod = json!({"spec": {"containers": [{"env": [{"name": "DB", "value": "hunter2"}]}]}});
        let (clean, removed) = json(json!({
            "capabilityArgs": {
                "ips": ["10.0.0.2/24"], "portMappings": [{"hostPort": 80}],
                "io.kubernetes.cri.pod-annotations": {"note": "hunter2"},
            },
            "runtimeConfig": {"mac": "0a:58:0a:00:00:05", "example": "hunter2"},
            "envs": [{"name": "X_TOKEN", "value": "hunter2"}, {"name": "Y", "valueFrom": "field"}],
            "command": ["run", "--token", "hunter2", "--mtu", "1500"],
            "annotation": pod.to_string(), "document": "{\"mtu\":  1500}",
        }));
        assert!(!clean.to_string().contains("hunter2"), "{clean}");
        let capabilities = json!({
            "ips": ["10.0.0.2/24"], "portMappings": [{"hostPort": 80}],
            "io.kubernetes.cri.pod-annotations": REMOVED,
        });
        assert_eq!((&clean["capabilityArgs"], removed), (&capabilities, 5));
        assert_eq!(clean["runtimeConfig"]["mac"], "0a:58:0a:00:00:05");
        assert_eq!(clean["envs"][0]["name"], "X_TOKEN");
        assert_eq!(clean["command"], json!(["run", "--token", REMOVED, "--mtu", "1500"]));
        assert_eq!(clean["document"], "{\"mtu\":  1500}", "a text without secrets is unchanged");
    }

    #[test]
    fn cni_arguments_keep_the_values_of_known_names() {
        assert_eq!(
            cni_args("IgnoreUnknown=1;X=hunter2;IP=10.0.0.2"),
            "IgnoreUnknown=1;X=[removed];IP=10.0.0.2"
        );
    }
}
