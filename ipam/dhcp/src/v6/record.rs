//! What is known of an attachment that has a lease for IPv6, as it is kept on disk.

use std::fs;
use std::net::Ipv6Addr;
use std::path::Path;

use dhcp_client::v6::{Duid, Identity, Lease};
use serde::{Deserialize, Serialize};

use sha2::{Digest, Sha256};

use crate::record::{Key, Place, below};
use crate::store::Kept;

/// The version of the file.
const VERSION: u32 = 1;

/// The number of the one address that a client asks for (IAID): the DUID is the attachment's own already.
const IAID: u32 = 1;

/// The hexadecimal digits of a machine-id(5).
const MACHINE_ID: usize = 32;

/// An attachment and its lease.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The version of the file.
    v: u32,
    /// The network's name.
    pub network: String,
    /// The container's id.
    pub container_id: String,
    /// The interface's name.
    pub if_name: String,
    /// Where the container is.
    pub place: Place,
    /// Who asks. It is on disk so that another release of the daemon asks as the same client.
    pub identity: Identity,
    /// The lease is being given back: who finds it so after a kill gives it back once more, and never uses it.
    #[serde(default)]
    pub leaves: bool,
    /// The link has had the address. Until then the plugin that asked is to put it there.
    #[serde(default)]
    pub seen: bool,
    /// None: it was lost, and another one is being asked for.
    pub lease: Option<Lease>,
    /// The address that the link has by this lease. It differs from the lease's while that is put on the link.
    pub on_link: Option<Ipv6Addr>,
}

impl Record {
    /// One of an attachment that has no lease yet. The client is the attachment on its host: container, network and interface. So a restart of the daemon,
    /// or another ADD for the same, asks as the same client; containers that share a hardware address (ipvlan), or have the same name on two hosts, do not.
    pub fn new(network: &str, container: &str, ifname: &str, place: Place, identity: Identity) -> Self {
        Self {
            v: VERSION,
            network: network.to_owned(),
            container_id: container.to_owned(),
            if_name: ifname.to_owned(),
            place,
            identity,
            leaves: false,
            seen: false,
            lease: None,
            on_link: None,
        }
    }
}

/// Who asks for an attachment, on a host.
pub fn identity(key: &Key, host: &str) -> Identity {
    let digest: [u8; 32] = Sha256::digest(format!("{host}/{key}")).into();
    let (half, _) = digest.as_chunks::<16>();
    Identity { duid: Duid::of_digest(half[0]), iaid: IAID }
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

impl Kept for Record {
    const END: &str = ".v6.json";

    fn key(&self) -> Option<Key> {
        Key::parse(&self.network, &self.container_id, &self.if_name).ok().filter(|_| self.v == VERSION)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_container_of_the_same_name_on_another_host_is_another_client() {
        let key = Key::parse("net", "pod", "eth0").unwrap();
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        let host = |machine: &str| {
            fs::write(root.path().join("etc/machine-id"), machine).unwrap();
            host_id(root.path())
        };
        let (one, other) = (host(&format!("{}\n", "1".repeat(32))), host(&"2".repeat(32)));
        assert_eq!(identity(&key, &one), identity(&key, &"1".repeat(32)));
        assert_ne!(identity(&key, &one), identity(&key, &other));
        // A host that has no id yet.
        let started = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        assert_eq!([host("uninitialized\n"), host("")], [started.trim(), started.trim()]);
    }
}
