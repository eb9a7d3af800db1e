//! Whether Podman and Buildah run CNI plugins or netavark.

use std::path::Path;

use serde_json::Value;
use system::file;
use system::host_path::below;

/// File in which Podman stores the backend that it selected at its first start.
const CHOSEN: &str = "/var/lib/containers/storage/defaultNetworkBackend";

const NETAVARK: &[&str] = &[
    "/usr/local/libexec/podman/netavark",
    "/usr/local/lib/podman/netavark",
    "/usr/libexec/podman/netavark",
    "/usr/lib/podman/netavark",
];

/// Podman's decision: its configuration, then its stored selection, then whether netavark is installed.
pub fn runs_plugins(configs: &[Value], root: &Path) -> bool {
    let configured =
        configs.iter().rev().find_map(|config| config.pointer("/network/network_backend")?.as_str());
    let chosen = file::read(&below(root, Path::new(CHOSEN)), 64).unwrap_or_default();
    let chosen = String::from_utf8_lossy(&chosen);
    match configured.filter(|backend| !backend.is_empty()).unwrap_or(chosen.trim()) {
        "" => !NETAVARK.iter().any(|path| below(root, Path::new(path)).exists()),
        backend => backend == "cni",
    }
}
