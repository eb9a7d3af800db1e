//! The documents of netavark's plugin protocol (plugin-API.md). Members that Podman omits are missing or null.

use std::collections::BTreeMap;
use std::net::IpAddr;

use cni::addr;
use ipnetwork::IpNetwork;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

/// Options of a network or a container.
pub type Words = BTreeMap<String, String>;

/// A network as Podman stores it. Only the members that the driver reads.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Network {
    pub name: String,
    pub id: String,
    #[serde(deserialize_with = "or_default")]
    pub network_interface: String,
    #[serde(deserialize_with = "or_default")]
    pub subnets: Vec<Subnet>,
    #[serde(deserialize_with = "or_default")]
    pub routes: Vec<Route>,
    pub ipv6_enabled: bool,
    pub internal: bool,
    #[serde(deserialize_with = "or_default")]
    pub options: Words,
    #[serde(deserialize_with = "or_default")]
    pub ipam_options: Words,
    #[serde(deserialize_with = "or_default")]
    pub network_dns_servers: Vec<String>,
}

#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub struct Subnet {
    /// Without host bits. Podman passes on those that the user has written.
    #[serde(serialize_with = "addr::cidr::serialize", deserialize_with = "masked")]
    pub subnet: IpNetwork,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_range: Option<LeaseRange>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(default)]
pub struct LeaseRange {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_ip: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_ip: Option<IpAddr>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Route {
    #[serde(with = "addr::cidr")]
    pub destination: IpNetwork,
    #[serde(default)]
    pub gateway: Option<IpAddr>,
    #[serde(default)]
    pub metric: Option<u32>,
    #[serde(default)]
    pub route_type: Option<String>,
}

/// The input of `setup` and `teardown`.
#[derive(Clone, Debug, Deserialize)]
pub struct Call {
    pub container_id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub container_name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub port_mappings: Vec<PortMapping>,
    pub network: Network,
    pub network_options: ContainerOptions,
}

/// The options of one container for one network.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ContainerOptions {
    #[serde(deserialize_with = "or_default")]
    pub aliases: Vec<String>,
    pub interface_name: String,
    #[serde(deserialize_with = "or_default")]
    pub static_ips: Vec<IpAddr>,
    #[serde(deserialize_with = "or_default")]
    pub static_mac: String,
    #[serde(deserialize_with = "or_default")]
    pub options: Words,
}

/// One or more host ports that are forwarded to the container.
#[derive(Clone, Debug, Deserialize)]
pub struct PortMapping {
    pub container_port: u16,
    pub host_port: u16,
    #[serde(default)]
    pub host_ip: String,
    /// `tcp`, `udp` and `sctp`, separated by commas. Empty: `tcp`.
    #[serde(default)]
    pub protocol: String,
    /// The number of consecutive ports. 0 means 1.
    #[serde(default)]
    pub range: u16,
}

/// The output of `setup`.
#[derive(Debug, Serialize, PartialEq)]
pub struct StatusBlock {
    pub dns_search_domains: Vec<String>,
    pub dns_server_ips: Vec<IpAddr>,
    pub interfaces: BTreeMap<String, NetInterface>,
}

#[derive(Debug, Serialize, PartialEq)]
pub struct NetInterface {
    pub mac_address: String,
    pub subnets: Vec<NetAddress>,
}

#[derive(Debug, Serialize, PartialEq)]
pub struct NetAddress {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    #[serde(with = "addr::cidr")]
    pub ipnet: IpNetwork,
}

fn masked<'de, D: Deserializer<'de>>(from: D) -> Result<IpNetwork, D::Error> {
    let net = addr::cidr::deserialize(from)?;
    IpNetwork::new(net.network(), net.prefix()).map_err(D::Error::custom)
}

fn or_default<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}
