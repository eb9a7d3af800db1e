//! Port mappings, in words.

use cni::json;
use runtime::Entry;
use serde_json::Value;

/// `hostIP:hostPort/protocol → containerPort`, for each mapping that an ADD asked for.
pub fn mapped_ports(entry: &Entry) -> Vec<String> {
    let mappings = entry.attach.capability_args.get("portMappings").and_then(Value::as_array);
    mappings
        .into_iter()
        .flatten()
        .map(|mapping| {
            let number = |key| json::member(mapping, key).and_then(Value::as_u64).unwrap_or_default();
            let text =
                |key| json::member(mapping, key).and_then(Value::as_str).filter(|text| !text.is_empty());
            let protocol = text("protocol").unwrap_or("tcp");
            let host_ip = text("hostIP").unwrap_or("*");
            format!("{host_ip}:{}/{protocol} → {}", number("hostPort"), number("containerPort"))
        })
        .collect()
}
