//! Configuration and lease of a client, for each address family.

use std::fs;
use std::path::Path;

use cni::{CniArgs, Result};
use dhcp_client::Lease;
use dhcp_client::options::{self, Number};
use dhcp_client::v6::{self, Duid, Identity};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::args::below;
use crate::conf::Conf;
use crate::key::Key;

/// The number of the one address that a client asks for (IAID): the DUID is the attachment's own already.
const IAID: u32 = 1;

/// The hexadecimal digits of a machine-id(5).
const MACHINE_ID: usize = 32;

/// What a family knows of its client, with the lease. No lease: it was lost, and another one is being asked for.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "family")]
pub enum Terms {
    #[serde(rename = "ipv4")]
    V4(V4),
    #[serde(rename = "ipv6")]
    V6(V6),
}

/// The terms of a lease for IPv4.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct V4 {
    /// The metric of all routes. None: the kernel's.
    pub priority: Option<u32>,
    /// Whether the server's MTU is put on the link.
    pub sets_mtu: bool,
    /// What the client asks for.
    pub asks: Asks,
    /// None: it was lost, and another one is being asked for.
    pub lease: Option<Lease>,
}

impl V4 {
    /// Those of an attachment that has no lease yet.
    ///
    /// # Errors
    /// Code 4: an argument is no value of its option.
    pub fn new(key: &Key, conf: &Conf, args: &CniArgs, broadcast: bool) -> Result<Self> {
        let asks = Asks {
            client_id: key.client_id(),
            broadcast,
            provide: conf.provided(args)?,
            request: conf.request.clone(),
            required: conf.required.clone(),
        };
        let sets_mtu = conf.request.contains(&options::INTERFACE_MTU);
        Ok(Self { priority: conf.priority, sets_mtu, asks, lease: None })
    }
}

/// [`dhcp_client::Identity`] without the hardware address, which is the link's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Asks {
    /// Option 61.
    pub client_id: Vec<u8>,
    /// Whether servers are asked to answer by broadcast.
    pub broadcast: bool,
    /// Options to send.
    pub provide: Vec<(Number, Vec<u8>)>,
    /// Options to ask for.
    pub request: Vec<Number>,
    /// Those that have to come.
    pub required: Vec<Number>,
}

/// The terms of a lease for IPv6.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct V6 {
    /// It is on disk so that another release of the daemon asks as the same client.
    pub identity: Identity,
    /// None: it was lost, and another one is being asked for.
    pub lease: Option<v6::Lease>,
}

impl V6 {
    /// The client is the attachment on its host: container, network and interface. A restart of the daemon, or another ADD for the same attachment, asks
    /// as the same client. Containers that share a hardware address (ipvlan), or have the same name on two hosts, are other clients.
    pub fn new(key: &Key, host: &str) -> Self {
        let digest: [u8; 32] = Sha256::digest(format!("{host}/{key}")).into();
        let (half, _) = digest.as_chunks::<16>();
        Self { identity: Identity { duid: Duid::of_digest(half[0]), iaid: IAID }, lease: None }
    }
}

/// What tells this host from others. Where it has no machine-id(5), it is the number of its start: no lease on disk outlives that either.
pub fn host_id(host_prefix: &Path) -> String {
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let machine = read(&below(host_prefix, Path::new("/etc/machine-id")));
    match machine.len() == MACHINE_ID && machine.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => machine,
        false => read(Path::new("/proc/sys/kernel/random/boot_id")),
    }
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
        // A host that has no id yet.
        let started = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        assert_eq!([host("uninitialized\n"), host("")], [started.trim(), started.trim()]);
    }
}
