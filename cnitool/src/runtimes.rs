//! Detects the runtime that owns an attachment or a network. No file names it: each runtime has typical
//! container ids, paths of namespaces, CNI_ARGS or configurations.

use std::path::Path;

use cni::json;
use host_runtimes::names::{BUILDKIT, CONTAINERD, CRI_O, NERDCTL, NOMAD, PODMAN};
use runtime::Entry;
use serde_json::Value;

pub const CNITOOL: &str = "cnitool";
pub const DOCKER: &str = "Docker";
pub const FIRECRACKER: &str = "Firecracker";

/// The runtime in a table.
pub fn name(runtime: Option<&'static str>) -> &'static str {
    runtime.unwrap_or("unknown")
}

/// The runtime, for a table that also shows the container id. Empty for cnitool, whose ids contain its name.
pub fn beyond_id(runtime: Option<&'static str>) -> Option<&'static str> {
    runtime.filter(|runtime| *runtime != CNITOOL)
}

/// The runtime that created an attachment. None: unknown.
pub fn of_attachment(entry: &Entry) -> Option<&'static str> {
    let (id, args) = (entry.attach.attachment.container.as_str(), &entry.attach.args);
    let path = entry.attach.netns.as_deref().unwrap_or(Path::new(""));
    let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_uuid_after = |prefix| file.strip_prefix(prefix).is_some_and(is_uuid);
    let of_process = path.starts_with("/proc") && path.ends_with("ns/net");
    let has = |key| args.get(key).is_some();
    let is_pod = has("K8S_POD_INFRA_CONTAINER_ID");
    // Podman 2 used the container's name for both.
    let is_maybe_no_pod = !has("K8S_POD_UID") && args.get("K8S_POD_NAMESPACE") == args.get("K8S_POD_NAME");
    match () {
        () if is_own(id) => Some(CNITOOL),
        () if has("NOMAD_ALLOC_ID") || is_uuid(id) && id == file => Some(NOMAD),
        () if has("NERDCTL_CNI_DHCP_HOSTNAME") || of_process && ends_with_hash(id) => Some(NERDCTL),
        () if is_uuid_after("netns-") => Some(PODMAN),
        // Podman 3 passes only the name.
        () if is_uuid_after("cni-") && !is_pod => has("K8S_POD_NAME").then_some(PODMAN),
        () if is_uuid_after("cni-") => (!is_maybe_no_pod).then_some(CONTAINERD),
        () if is_uuid(file) && is_pod => Some(CRI_O),
        // The kubelet before version 1.24, and cri-dockerd.
        () if of_process && is_pod => Some(DOCKER),
        // `ctr run --cni` with an id that the user chooses, in containerd's default namespace.
        () if of_process && id.starts_with("default-") => Some(CONTAINERD),
        () if path.ends_with(Path::new("net/cni").join(id)) => Some(BUILDKIT),
        () => {
            of_config(&entry.config).filter(|runtime| path.as_os_str().is_empty() || *runtime == FIRECRACKER)
        }
    }
}

/// The runtime that has written a network's configuration, or the only one that can use it. None: unknown.
pub fn of_config(config: &[u8]) -> Option<&'static str> {
    let config: Value = serde_json::from_slice(config).ok()?;
    let args = json::member(&config, "args");
    if json::member(&config, "nerdctlID").is_some() {
        return Some(NERDCTL);
    }
    if ["podman_labels", "podman_options"].iter().any(|key| args.and_then(|args| args.get(key)).is_some()) {
        return Some(PODMAN);
    }
    let plugins = json::member(&config, "plugins").and_then(Value::as_array);
    plugins.into_iter().flatten().find_map(of_plugin)
}

fn of_plugin(plugin: &Value) -> Option<&'static str> {
    let text = |key| json::member(plugin, key).and_then(Value::as_str).unwrap_or_default();
    match text("type") {
        "tc-redirect-tap" => Some(FIRECRACKER),
        kind if kind.starts_with("buildkit-cni-") => Some(BUILDKIT),
        _ if text("iptablesAdminChainName") == "NOMAD-ADMIN" => Some(NOMAD),
        _ if text("bridge").starts_with("cni-podman") => Some(PODMAN),
        _ => None,
    }
}

/// Whether cnitool made the id from a namespace's path.
fn is_own(id: &str) -> bool {
    id.strip_prefix("cnitool-").is_some_and(|hash| hash.len() == 20 && is_hex(hash))
}

/// `NAMESPACE-ID`, the id as nerdctl makes it.
fn ends_with_hash(id: &str) -> bool {
    id.rsplit_once('-').is_some_and(|(_, hash)| hash.len() == 64 && is_hex(hash))
}

fn is_uuid(text: &str) -> bool {
    text.split('-').map(str::len).eq([8, 4, 4, 4, 12]) && text.split('-').all(is_hex)
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests;
