//! dnsmasq's configuration, `dnsmasq.conf`, in the form of dnsmasq(8).
//!
//! The original plugin leaves the file as it is while there is one, so what it needs of the file is in ours as well.

use std::fmt::Write;
use std::net::IpAddr;
use std::path::Path;

use cni::IfName;

use crate::name::HostName;

/// Where the server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// On all addresses of an interface that all containers share, for packets that come by it.
    Interface(IfName),
    /// On addresses that several interfaces have, one for each container.
    Addresses(Vec<IpAddr>),
}

/// The user and the group that the server runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The user's name.
    pub name: String,
    /// The group's name. None: dnsmasq's default.
    pub group: Option<String>,
}

/// What a network's server does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The domain of all names.
    pub domain: Option<HostName>,
    /// Where it listens.
    pub listen: Listen,
    /// Whether it asks the host's resolvers for names outside of the network.
    pub forwards: bool,
}

impl Service {
    /// The configuration, for files in a directory.
    pub fn text(&self, dir: &Path, user: &User) -> String {
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
        // Interfaces and addresses may come later: the bridge's IPv6 address is tested for duplicates first.
        add("bind-dynamic", "");
        match &self.listen {
            Listen::Interface(name) => add("interface", name),
            Listen::Addresses(ips) => ips.iter().for_each(|ip| add("listen-address", &ip.to_string())),
        }
        // In the order of resolv.conf, as a resolver on the host asks them.
        add(if self.forwards { "strict-order" } else { "no-resolv" }, "");
        text
    }

    /// Reads a configuration, also one of the original plugin. None: it does not say where the server listens.
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

    /// Whether the server need not be started again to do what another configuration says. The addresses that containers share may
    /// become more; and whichever attachment was first says whether names outside are resolved.
    pub fn serves(&self, wanted: &Self) -> bool {
        let listens = match (&self.listen, &wanted.listen) {
            (Listen::Addresses(has), Listen::Addresses(wanted)) => wanted.iter().all(|ip| has.contains(ip)),
            (has, wanted) => has == wanted,
        };
        self.domain == wanted.domain && listens
    }

    /// What a server has to do that is started in place of this one. Each range of a network has a gateway of its own, and the addresses of
    /// earlier containers stay.
    pub fn extended(&self, wanted: &Self) -> Self {
        match (&self.listen, &wanted.listen) {
            (Listen::Addresses(has), Listen::Addresses(more)) if self.domain == wanted.domain => {
                let missing = more.iter().filter(|ip| !has.contains(ip));
                let listen = Listen::Addresses(has.iter().chain(missing).copied().collect());
                Self { listen, ..self.clone() }
            }
            _ => wanted.clone(),
        }
    }
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
    fn what_is_written_is_read_again() {
        let user = User { name: "nobody".into(), group: Some("nogroup".into()) };
        let ips = ["10.1.2.1", "fd00::1"].map(|ip| ip.parse().unwrap()).to_vec();
        for listen in [bridge(), Listen::Addresses(ips)] {
            for (forwards, domain) in [(true, "dns.podman"), (false, "")] {
                let service =
                    Service { domain: HostName::parse(domain).ok(), listen: listen.clone(), forwards };
                let text = service.text(Path::new("/run/x"), &user);
                assert_eq!(Service::parse(&text), Some(service), "{text}");
                assert!(text.contains("\nuser=nobody\ngroup=nogroup\n"), "{text}");
            }
        }
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
        assert!(!Service { domain: None, ..one.clone() }.serves(&one));
        assert_eq!(Service::parse("listen-address=nowhere\n"), None);
    }
}
