//! Kea's servers and udhcpd from Debian. scripts/test unpacks them without installing them.

use std::fs;
use std::path::PathBuf;

use serde_json::json;

use super::{DhcpSite, started_by};
use crate::release::target;
use crate::skip;

/// A server with only one address, so that a second container gets it only after a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OneAddress {
    Kea4,
    Kea6,
    Udhcpd,
}

impl OneAddress {
    /// The address.
    pub fn address(self) -> &'static str {
        if self == Self::Kea6 { "fd00::10" } else { "10.9.0.100" }
    }

    /// The family in dhcp's configuration.
    pub fn family(self) -> &'static str {
        if self == Self::Kea6 { "ipv6" } else { "ipv4" }
    }

    /// None: it is missing, and the test counts as skipped.
    fn program(self) -> Option<PathBuf> {
        let path = target().join(match self {
            Self::Kea4 => "kea/usr/sbin/kea-dhcp4",
            Self::Kea6 => "kea/usr/sbin/kea-dhcp6",
            Self::Udhcpd => "udhcpd/bin/busybox",
        });
        if !path.exists() {
            skip(&format!("{self:?}'s {} is missing", path.display()));
            return None;
        }
        Some(path)
    }

    fn configuration(self) -> String {
        let address = self.address();
        let kea = |n: u8, subnet: &str| {
            let subnet = json!({"subnet": subnet, "interface": "eth0", "pools": [{"pool": format!("{address} - {address}")}]});
            let log = json!({"name": format!("kea-dhcp{n}"), "severity": "INFO", "output_options": [{"output": "stdout"}]});
            let leases =
                json!({"type": "memfile", "name": format!("/run/lab/kea{n}.csv"), "lfc-interval": 0});
            let mut conf = json!({
                "interfaces-config": {"interfaces": ["eth0"]},
                "lease-database": leases,
                "valid-lifetime": 600,
                "loggers": [log],
            });
            if n == 6 {
                // The directory for its DUID. Its default preferred lifetime would be longer than the valid lifetime.
                (conf["data-directory"], conf["preferred-lifetime"]) = (json!("/run/lab"), json!(300));
            }
            conf[format!("subnet{n}")] = json!([subnet]);
            let mut all = json!({});
            all[format!("Dhcp{n}")] = conf;
            all.to_string()
        };
        match self {
            Self::Kea4 => kea(4, "10.9.0.0/24"),
            Self::Kea6 => kea(6, "fd00::/64"),
            Self::Udhcpd => format!(
                "start {address}\nend {address}\ninterface eth0\nlease_file /run/lab/udhcpd.leases\npidfile /run/lab/udhcpd.pid\n
                 option subnet 255.255.255.0\noption lease 600\n"
            ),
        }
    }
}

impl DhcpSite {
    /// Starts the server. False: it is missing, and the test counts as skipped.
    #[must_use]
    pub fn serve_one_address(&mut self, server: OneAddress) -> bool {
        let Some(program) = server.program() else { return false };
        let conf = "/run/lab/server.conf";
        fs::write(conf, server.configuration()).expect("configure a server");
        fs::write("/run/lab/udhcpd.leases", "").expect("create udhcpd's file of leases");
        let libraries = target().join("kea/usr/lib/x86_64-linux-gnu");
        let (mut command, ready) = match server {
            OneAddress::Udhcpd => (started_by(program, &format!("udhcpd -f {conf}")), "started"),
            _ => (started_by(program, &format!("-c {conf}")), "_STARTED"),
        };
        if server != OneAddress::Udhcpd {
            command.env("LD_LIBRARY_PATH", libraries);
            command.envs(["KEA_PIDFILE_DIR", "KEA_LOCKFILE_DIR"].map(|name| (name, "/run/lab")));
        }
        let (machine, log) = (self.server.netns.clone(), self.server_log_path());
        self.serve_by(&machine, command, &log, || {
            fs::read_to_string(&log).unwrap_or_default().contains(ready)
        });
        true
    }
}
