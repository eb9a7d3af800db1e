//! Result of an ADD (SPEC.md, section 5, "Success"), in the newest version.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Deserializer, Serialize};

use crate::addr;

/// The internal result type. It is converted only when parsed ([`AddResult::from_json`]) and printed ([`AddResult::to_json`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddResult {
    /// Interfaces on the host and in the container.
    pub interfaces: Vec<Interface>,
    /// Addresses.
    pub ips: Vec<IpConfig>,
    /// Routes in the container.
    pub routes: Vec<Route>,
    /// Resolver settings.
    pub dns: Dns,
}

impl AddResult {
    /// Adds the IPAM plugin's result for an interface, which is added if it is not listed. Addresses and routes come before those of
    /// earlier plugins, because many callers use the first address only.
    pub fn put_first(&mut self, leases: AddResult, interface: &Interface) {
        let listed = self.interfaces.iter().position(|one| one.is(interface));
        let interface = listed.unwrap_or_else(|| {
            self.interfaces.push(interface.clone());
            self.interfaces.len() - 1
        });
        let own = leases.ips.into_iter().map(|ip| IpConfig { interface: Some(interface), ..ip });
        self.ips.splice(0..0, own);
        self.routes.splice(0..0, leases.routes);
        self.dns = leases.dns;
    }

    /// The addresses with prefix lengths.
    pub fn addresses(&self) -> impl Iterator<Item = IpNetwork> {
        self.ips.iter().map(|ip| ip.address)
    }

    /// The interface of that name in the container.
    pub fn container_interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.is_in_container(name))
    }

    /// The interface of an address. `None` if the plugin does not name it.
    pub fn interface_of(&self, ip: &IpConfig) -> Option<&Interface> {
        self.interfaces.get(ip.interface?)
    }

    /// Addresses of the container's interface of that name. An address without an interface, or with one that is not listed, is the
    /// container's.
    pub fn ips_of(&self, name: &str) -> impl Iterator<Item = &IpConfig> {
        let is_own = |interface: &Interface| interface.is_in_container(name);
        self.ips.iter().filter(move |ip| self.interface_of(ip).is_none_or(is_own))
    }

    /// Like [`AddResult::ips_of`], also if the interface's `sandbox` is missing and no interface in a container has the name: some plugins
    /// do not write it.
    pub fn ips_of_name(&self, name: &str) -> impl Iterator<Item = &IpConfig> {
        let is_listed = self.container_interface(name).is_some();
        let is_own = move |interface: &Interface| {
            interface.name == name && (interface.sandbox.is_some() || !is_listed)
        };
        self.ips.iter().filter(move |ip| self.interface_of(ip).is_none_or(is_own))
    }

    /// Interfaces on the host.
    pub fn host_interfaces(&self) -> impl DoubleEndedIterator<Item = &Interface> {
        self.interfaces.iter().filter(|interface| interface.sandbox.is_none())
    }
}

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Interface {
    /// Name.
    pub name: String,
    /// Hardware address.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "unless_empty")]
    pub mac: Option<String>,
    /// MTU in bytes. Since 1.1.0.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "unless_zero")]
    pub mtu: Option<u32>,
    /// Path of its namespace. `None`: the host's, or unknown.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "unless_empty")]
    pub sandbox: Option<String>,
    /// Path of a socket. Since 1.1.0.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "unless_empty")]
    pub socket_path: Option<String>,
    /// PCI address. Since 1.1.0.
    #[serde(rename = "pciID", skip_serializing_if = "Option::is_none", deserialize_with = "unless_empty")]
    pub pci_id: Option<String>,
}

impl Interface {
    /// Whether both are the same interface: names are unique in a namespace.
    fn is(&self, other: &Self) -> bool {
        (&self.name, &self.sandbox) == (&other.name, &other.sandbox)
    }

    /// Whether it is the container's interface of that name.
    pub fn is_in_container(&self, name: &str) -> bool {
        self.name == name && self.sandbox.is_some()
    }
}

/// Plugins in Go write unset values as an empty string or zero.
fn unless_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.filter(|text| !text.is_empty()))
}

fn unless_zero<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    Ok(Option::<u32>::deserialize(deserializer)?.filter(|number| *number != 0))
}

fn without_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    Ok(texts.into_iter().filter(|text| !text.is_empty()).collect())
}

/// An address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpConfig {
    /// Address with prefix length.
    pub address: IpNetwork,
    /// Gateway of the subnet.
    pub gateway: Option<IpAddr>,
    /// Index of its interface in [`AddResult::interfaces`], always valid. See [`AddResult::interface_of`].
    pub(crate) interface: Option<usize>,
}

impl IpConfig {
    /// An address without an interface.
    pub fn new(address: IpNetwork, gateway: Option<IpAddr>) -> Self {
        Self { address, gateway, interface: None }
    }
}

/// A route in the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Destination.
    #[serde(with = "addr::cidr")]
    pub dst: IpNetwork,
    /// Next hop. `None`: the gateway of the destination's family, else the link itself.
    #[serde(default, with = "addr::optional_ip", skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
    /// Path MTU in bytes. Since 1.1.0.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "unless_zero")]
    pub mtu: Option<u32>,
    /// MSS to advertise in bytes. Since 1.1.0.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "unless_zero")]
    pub advmss: Option<u32>,
    /// Metric; the lowest wins. Since 1.1.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// Routing table. `None`: main. Since 1.1.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// Scope, as in rtnetlink(7): 0 global, 253 link, 254 host. Since 1.1.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<u8>,
}

impl Route {
    /// A route to a destination without other attributes.
    pub fn to(dst: IpNetwork) -> Self {
        Self { dst, gw: None, mtu: None, advmss: None, priority: None, table: None, scope: None }
    }
}

/// Resolver settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dns {
    /// Name servers, by preference.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "without_empty")]
    pub nameservers: Vec<String>,
    /// Local domain.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub domain: String,
    /// Domains to search for short names.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "without_empty")]
    pub search: Vec<String>,
    /// Options, see resolv.conf(5).
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "without_empty")]
    pub options: Vec<String>,
}

impl Dns {
    /// Whether no setting is present.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
