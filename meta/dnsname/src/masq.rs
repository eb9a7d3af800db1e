//! dnsmasq's configuration, `dnsmasq.conf`, in the format of dnsmasq(8).
//!
//! If the file exists, the original plugin does not change it. So Ferrule's file also contains the settings that the
//! original plugin needs.

use std::fmt::{self, Write};
use std::net::IpAddr;
use std::path::Path;

use cni::IfName;

use crate::name::HostName;

/// The key of a resolv.conf in place of the host's.
const RESOLV_FILE: &str = "resolv-file";

/// The interface or addresses on which the server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// All addresses of an interface that all containers share, for packets that arrive on it.
    Interface(IfName),
    /// Addresses that several interfaces have, one for each container.
    Addresses(Vec<IpAddr>),
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interface(name) => write!(f, "interface {name}"),
            Self::Addresses(ips) => {
                f.write_str(&ips.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(" and "))
            }
        }
    }
}

/// The user and the group of the server process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The user's name.
    pub name: String,
    /// The group's name. None: dnsmasq's default.
    pub group: Option<String>,
}

/// The settings of a network's server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The domain of all names.
    pub domain: Option<HostName>,
    /// The interface or addresses on which it listens.
    pub listen: Listen,
    /// Whether it forwards queries for names outside the network to the host's resolvers.
    pub forwards: bool,
}

impl Service {
    /// The text of the configuration, for files in a directory. If the host's resolv.conf cannot be used
    /// (`has_resolvers`), the server waits for a file that never exists, and forwards nothing.
    pub fn text(&self, dir: &Path, user: &User, has_resolvers: bool) -> String {
        let dir = dir.display();
        let mut text = String::from(
            "# Written by Ferrule's CNI plugin dnsname. It writes the file again when it starts the server.\n",
        );
        let mut add = |key: &str, value: &str| {
            let _ = writeln!(text, "{key}{}{value}", if value.is_empty() { "" } else { "=" });
        };
        add("user", &user.name);
        user.group.iter().for_each(|group| add("group", group));
        add("pid-file", &format!("{dir}/{}", crate::network::PID));
        add("no-hosts", "");
        add("addn-hosts", &format!("{dir}/{}", crate::network::HOSTS));
        match &self.domain {
            Some(domain) => {
                add("domain", domain.as_str());
                add("local", &format!("/{domain}/"));
                add("expand-hosts", "");
            }
            None => add("local", "//"),
        }
        add("except-interface", "lo");
        // Interfaces and addresses may appear later: the kernel first tests the bridge's IPv6 address for duplicates.
        add("bind-dynamic", "");
        match &self.listen {
            Listen::Interface(name) => add("interface", name),
            Listen::Addresses(ips) => ips.iter().for_each(|ip| add("listen-address", &ip.to_string())),
        }
        // Query the servers in the order of resolv.conf, as a resolver on the host does.
        add(if self.forwards { "strict-order" } else { "no-resolv" }, "");
        if self.forwards && !has_resolvers {
            add(RESOLV_FILE, &format!("{dir}/resolv.conf"));
        }
        text
    }

    /// Parses a configuration of this plugin or of the original one. None: it does not contain where the server
    /// listens.
    pub fn parse(text: &str) -> Option<Self> {
        let pairs = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
        let pairs: Vec<_> = pairs.map(|line| line.split_once('=').unwrap_or((line, ""))).collect();
        let values = |key: &'static str| {
            pairs.iter().filter(move |(name, _)| name.trim() == key).map(|(_, value)| value.trim())
        };
        let listen = match values("interface").next() {
            Some(name) => Listen::Interface(IfName::parse(name).ok()?),
            None => Listen::Addresses(values("listen-address").filter_map(|ip| ip.parse().ok()).collect()),
        };
        if listen == Listen::Addresses(Vec::new()) {
            return None;
        }
        Some(Self {
            domain: values("domain").next().and_then(|name| HostName::parse(name).ok()),
            listen,
            forwards: values("no-resolv").next().is_none(),
        })
    }

    /// The names of a container for the hosts file. dnsmasq adds the domain to names without a dot. Names with a dot are
    /// also in the file with the domain.
    pub fn in_hosts_file(&self, names: &[HostName]) -> Vec<HostName> {
        let mut all: Vec<HostName> = names.to_vec();
        let dotted = names.iter().filter(|name| name.as_str().contains('.'));
        for whole in dotted.filter_map(|name| name.within(self.domain.as_ref()?)) {
            if !all.iter().any(|earlier| earlier.is(&whole)) {
                all.push(whole);
            }
        }
        all
    }

    /// Whether a running server with these settings can also serve others. The domain must be equal, and all
    /// requested addresses must be included. Whether outside names are resolved depends on the first attachment only.
    pub fn serves(&self, other: &Self) -> bool {
        let listens = match (&self.listen, &other.listen) {
            (Listen::Addresses(has), Listen::Addresses(other)) => other.iter().all(|ip| has.contains(ip)),
            (has, other) => has == other,
        };
        self.domain == other.domain && listens
    }

    /// The settings for a server that replaces this one, for an ADD. Each range of a network has its own gateway, and
    /// the addresses for earlier containers stay. Whether outside names are resolved changes only with the domain or
    /// the interface.
    pub fn extended(&self, other: &Self) -> Self {
        let kept = (self.domain == other.domain).then(|| self.with_listen_of(other)).flatten();
        kept.unwrap_or_else(|| other.clone())
    }

    /// These settings, for the interface or the addresses of an attachment, too. None: it needs another interface.
    pub fn with_listen_of(&self, other: &Self) -> Option<Self> {
        match (&self.listen, &other.listen) {
            (Listen::Addresses(has), Listen::Addresses(more)) => {
                let missing = more.iter().filter(|ip| !has.contains(ip));
                let listen = Listen::Addresses(has.iter().chain(missing).copied().collect());
                Some(Self { listen, ..self.clone() })
            }
            (has, other) => (has == other).then(|| self.clone()),
        }
    }
}

/// Whether a configuration was written without the host's resolv.conf.
pub fn lacks_resolvers(text: &str) -> bool {
    text.lines().any(|line| line.split_once('=').is_some_and(|(key, _)| key.trim() == RESOLV_FILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BY_THE_ORIGINAL: &str = "## WARNING: THIS IS AN AUTOGENERATED FILE\nstrict-order\nlocal=/dns.podman/\n\
        domain=dns.podman\nexpand-hosts\npid-file=/run/containers/cni/dnsname/podman/pidfile\nexcept-interface=lo\n\
        bind-dynamic\nno-hosts\ninterface=cni-podman0\naddn-hosts=/run/containers/cni/dnsname/podman/addnhosts\n";

    fn service(listen: Listen) -> Service {
        Service { domain: HostName::parse("dns.podman").ok(), listen, forwards: true }
    }

    fn bridge() -> Listen {
        Listen::Interface(IfName::parse("cni-podman0").unwrap())
    }

    #[test]
    fn a_server_of_the_original_serves_the_same_network() {
        let found = Service::parse(BY_THE_ORIGINAL).unwrap();
        assert_eq!(found, service(bridge()));
        assert!(found.serves(&service(bridge())));
        let internal = Service { forwards: false, ..service(bridge()) };
        assert!(found.serves(&internal));
    }

    #[test]
    fn a_written_configuration_parses_to_the_same_value() {
        let user = User { name: "nobody".into(), group: Some("nogroup".into()) };
        let ips = ["10.1.2.1", "fd00::1"].map(|ip| ip.parse().unwrap()).to_vec();
        for listen in [bridge(), Listen::Addresses(ips)] {
            for (forwards, domain) in [(true, "dns.podman"), (false, "")] {
                let service =
                    Service { domain: HostName::parse(domain).ok(), listen: listen.clone(), forwards };
                for has_resolvers in [true, false] {
                    let text = service.text(Path::new("/run/x"), &user, has_resolvers);
                    assert_eq!(Service::parse(&text).as_ref(), Some(&service), "{text}");
                    assert!(text.contains("\nuser=nobody\ngroup=nogroup\n"), "{text}");
                    assert_eq!(text.contains("\nstrict-order\n"), forwards, "{text}");
                    assert_eq!(lacks_resolvers(&text), forwards && !has_resolvers, "{text}");
                }
            }
        }
    }

    #[test]
    fn names_with_a_dot_are_in_the_hosts_file_with_the_domain_too() {
        let names =
            |names: &[&str]| names.iter().map(|name| HostName::parse(name).unwrap()).collect::<Vec<_>>();
        let with = service(bridge());
        let written = with.in_hosts_file(&names(&["web.one", "www", "db.Dns.Podman", "a.dns.podman.test"]));
        let expected = ["web.one", "www", "db.Dns.Podman", "a.dns.podman.test", "web.one.dns.podman"];
        assert_eq!(written, names(&[&expected[..], &["a.dns.podman.test.dns.podman"]].concat()));
        let given = names(&["web.one", "WEB.one.dns.podman"]);
        assert_eq!(with.in_hosts_file(&given), given);
        let without = Service { domain: None, ..with };
        assert_eq!(without.in_hosts_file(&given), given);
    }

    #[test]
    fn a_server_that_is_started_again_resolves_outside_names_as_before() {
        let first = service(bridge());
        let internal = Service { forwards: false, ..first.clone() };
        assert_eq!(first.extended(&internal), first);
        assert_eq!(internal.extended(&first), internal);
        let renamed = Service { domain: HostName::parse("other.test").ok(), ..internal.clone() };
        assert_eq!(first.extended(&renamed), renamed);
        // A repair keeps the domain, too.
        assert_eq!(first.with_listen_of(&renamed), Some(first));
    }

    #[test]
    fn another_interface_address_or_domain_needs_another_server() {
        let at =
            |ips: &[&str]| service(Listen::Addresses(ips.iter().map(|ip| ip.parse().unwrap()).collect()));
        let one = at(&["10.1.2.1"]);
        assert!(at(&["10.1.2.1", "fd00::1"]).serves(&one) && !one.serves(&at(&["10.1.2.1", "fd00::1"])));
        assert!(!one.serves(&service(bridge())));
        assert_eq!(at(&["10.1.2.1", "10.1.3.1"]), one.extended(&at(&["10.1.3.1", "10.1.2.1"])));
        assert_eq!(service(bridge()), one.extended(&service(bridge())));
        assert_eq!(one.with_listen_of(&service(bridge())), None);
        assert!(!Service { domain: None, ..one.clone() }.serves(&one));
        assert_eq!(Service::parse("listen-address=nowhere\n"), None);
    }
}
