//! The DHCP server and the daemon of a target.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fmt, fs, thread};

use lab::dhcp::DhcpSite;
use lab::{Container, Lab};

/// Containers and the addresses that the server reserves for them. The addresses are known, so they are on the
/// interfaces from the start. No interface plugin adds them.
const ADDRESSES: [(&str, &str); 3] = [("stays", "10.9.0.10"), ("victim", "10.9.0.11"), ("pod", "10.9.0.12")];

/// Longer than any sweep.
const RANGE: &str = "--dhcp-range=10.9.0.10,10.9.0.250,255.255.255.0,86400";

/// Timeout for the daemon and the server to reach a final state.
const TIMEOUT: Duration = Duration::from_secs(600);

/// A server, and a daemon of Ferrule.
#[derive(Debug)]
pub struct Dhcp {
    site: DhcpSite,
    /// The containers with a link to the server, and their addresses.
    plugged: RefCell<Vec<(Container, &'static str)>>,
}

impl Dhcp {
    /// Starts both.
    pub fn start(lab: &Lab, directory: &Path) -> Self {
        let mut site = DhcpSite::new(lab, directory);
        let kept = ADDRESSES.map(|(id, address)| format!("--dhcp-host=id:{},{address}", client(id)));
        site.serve(&format!("{RANGE} {}", kept.join(" ")));
        site.start_daemon("");
        Self { site, plugged: RefCell::default() }
    }

    /// Gives a container a link to the server, with the address that it will lease.
    pub fn plug(&self, container: &Container) {
        self.site.plug(&container.id);
        let address = ADDRESSES.iter().find(|(id, _)| *id == container.id);
        let (_, address) = address.expect("a container with an address");
        container.sh("ip link set lo up; ip link set eth0 up");
        self.plugged.borrow_mut().push((container.clone(), address));
        self.restore_addresses();
    }

    /// Puts the addresses on the interfaces again that DEL or GC has removed.
    pub fn restore_addresses(&self) {
        for (container, address) in self.plugged.borrow().iter().filter(|(one, _)| one.path().exists()) {
            container.sh(&format!(
                "! ip link show dev eth0 >/dev/null 2>&1 || ip -4 addr show dev eth0 | grep -q {address}/ ||
                 ip addr add {address}/24 dev eth0"
            ));
        }
    }

    /// The containers with a lease, except the one that stays, as lines of a snapshot. Waits, because the server is
    /// informed a moment after the daemon, and a failed request of the daemon ends a moment after the plugin.
    pub fn changes(&self) -> String {
        let (start, mut leases) = (Instant::now(), self.leases());
        while !leases.agree() && start.elapsed() < TIMEOUT {
            thread::sleep(Duration::from_millis(5));
            leases = self.leases();
        }
        self.restore_addresses();
        leases.to_string()
    }

    fn leases(&self) -> Leases {
        let listed = self.site.list();
        let at_server = fs::read_to_string("/run/lab/server.leases").unwrap_or_default();
        let has_one = |id: &&str| at_server.contains(&client(id));
        Leases {
            unanswered: listed.iter().filter(|one| one["address"].is_null()).count(),
            at_daemon: listed
                .iter()
                .filter_map(|one| Some(one["containerId"].as_str()?.to_owned()))
                .collect(),
            at_server: ADDRESSES.iter().map(|(id, _)| *id).filter(has_one).map(str::to_owned).collect(),
        }
    }
}

/// Containers with leases, by their names.
struct Leases {
    /// The number of containers without an address yet.
    unanswered: usize,
    at_daemon: BTreeSet<String>,
    at_server: BTreeSet<String>,
}

impl Leases {
    fn agree(&self) -> bool {
        self.unanswered == 0 && self.at_daemon == self.at_server
    }
}

impl fmt::Display for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (whose, leases) in [("daemon", &self.at_daemon), ("server", &self.at_server)] {
            if !leases.contains("stays") {
                writeln!(f, "host: leases of the DHCP {whose}\n  - stays")?;
            }
            for name in leases.iter().filter(|name| *name != "stays") {
                writeln!(f, "host: leases of the DHCP {whose}\n  + {name}")?;
            }
        }
        Ok(())
    }
}

/// The client identifier of a container, in dnsmasq's format.
fn client(id: &str) -> String {
    let text = format!("\0{id}/net/eth0");
    text.bytes().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}
