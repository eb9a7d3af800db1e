//! Configuration and lease of a client, by address family.

use std::fs;
use std::path::Path;

use cni::{CniArgs, Result};
use dhcp_client::Lease;
use dhcp_client::options::{self, Number};
use dhcp_client::v6::{self, Duid, Identity};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use system::boot;
use system::host_path::below;

use crate::conf::Conf;
use crate::key::Key;

/// The IAID of the only requested address. It is constant, because each attachment has its own DUID.
const IAID: u32 = 1;

/// The number of hexadecimal digits in machine-id(5).
const MACHINE_ID: usize = 32;

/// A client's configuration and lease. Without a lease, it was lost, and the client requests a new one.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "family")]
pub enum LeaseParameters {
    #[serde(rename = "ipv4")]
    V4(V4),
    #[serde(rename = "ipv6")]
    V6(V6),
}

/// Configuration and lease of a client for IPv4.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct V4 {
    /// The metric of all routes. None: the kernel's.
    pub priority: Option<u32>,
    /// Whether the server's MTU is set on the link.
    pub sets_mtu: bool,
    /// The client's configuration.
    pub asks: ClientConf,
    /// None: the lease was lost, and the client requests a new one.
    pub lease: Option<Lease>,
    /// The lease that is on the link until the daemon has put `lease` there. If the daemon is killed meanwhile, the next
    /// one finishes this. None: `lease` is on the link, or a plugin is about to put it there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<Lease>,
}

impl V4 {
    /// Configuration for an attachment without a lease.
    ///
    /// # Errors
    /// Code 4 if an argument is not a valid value of its option.
    pub fn new(key: &Key, conf: &Conf, args: &CniArgs, broadcast: bool) -> Result<Self> {
        let asks = ClientConf {
            client_id: key.client_id(),
            broadcast,
            provide: conf.provided(args)?,
            request: conf.request.clone(),
            required: conf.required.clone(),
        };
        let sets_mtu = conf.request.contains(&options::INTERFACE_MTU);
        Ok(Self { priority: conf.priority, sets_mtu, asks, lease: None, replaced: None })
    }
}

/// [`dhcp_client::Identity`] without the hardware address, which is read from the link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientConf {
    /// Option 61.
    pub client_id: Vec<u8>,
    /// Whether servers should answer by broadcast.
    pub broadcast: bool,
    /// Options to send.
    pub provide: Vec<(Number, Vec<u8>)>,
    /// Options to request.
    pub request: Vec<Number>,
    /// Options that are required.
    pub required: Vec<Number>,
}

/// Configuration and lease of a client for IPv6.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct V6 {
    /// Stored, so that later releases of the daemon use the same identifiers.
    pub identity: Identity,
    /// None: the lease was lost, and the client requests a new one.
    pub lease: Option<v6::Lease>,
}

impl V6 {
    /// The client is the attachment on its host: container, network and interface. After a restart of the daemon, or
    /// with another ADD for the same attachment, it is the same client. Containers that share a hardware address
    /// (ipvlan), or have the same id on two hosts, are different clients.
    pub fn new(key: &Key, host: &str) -> Self {
        let digest: [u8; 32] = Sha256::digest(format!("{host}/{key}")).into();
        let (half, _) = digest.as_chunks::<16>();
        Self { identity: Identity { duid: Duid::of_digest(half[0]), iaid: IAID }, lease: None }
    }
}

/// Identifies this host: its machine-id(5), otherwise its boot id. No lease on disk outlives a boot.
pub fn host_id(host_prefix: &Path) -> String {
    let machine = fs::read_to_string(below(host_prefix, Path::new("/etc/machine-id"))).unwrap_or_default();
    let machine = machine.trim();
    match machine.len() == MACHINE_ID && machine.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => machine.to_owned(),
        false => boot_id().unwrap_or_default(),
    }
}

/// The id of this boot. None: it cannot be read, for example without /proc.
pub fn boot_id() -> Option<String> {
    boot::id().ok().map(|id| String::from_utf8_lossy(&id).into_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::key::Family;

    #[test]
    fn a_container_of_the_same_name_on_another_host_is_another_client() {
        let key = Key::parse("net", "pod", "eth0", Family::V6).unwrap();
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        let host = |machine: &str| {
            fs::write(root.path().join("etc/machine-id"), machine).unwrap();
            host_id(root.path())
        };
        let (one, other) = (host(&format!("{}\n", "1".repeat(32))), host(&"2".repeat(32)));
        assert_eq!(V6::new(&key, &one), V6::new(&key, &"1".repeat(32)));
        assert_ne!(V6::new(&key, &one), V6::new(&key, &other));
        // A host without a machine-id.
        let started = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        assert_eq!([host("uninitialized\n"), host("")], [started.trim(), started.trim()]);
    }
}
