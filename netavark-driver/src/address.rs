//! The IPAM plugin of a chain that the driver writes, and the subnets that Podman displays.

use std::net::IpAddr;

use cni::{Error, Result, json};
use host_local::Range;
use ipnetwork::IpNetwork;
use runtime::{Network as Chain, PluginConf};
use serde_json::{Map, Value, json as value};
use validate::ranges;
use validate::schema::{self, Plugin, Role};

use crate::document::{LeaseRange, Network, Route, Subnet};

/// The name of an IPAM plugin of the suite, or `none`.
#[derive(Debug, PartialEq, Eq)]
pub struct Ipam(&'static str);

const NONE: &str = "none";

impl Ipam {
    /// Selects the IPAM plugin: from the option `ipam`, from `--ipam-driver`, or else a plugin that suits the type.
    ///
    /// # Errors
    /// Code 7 if the two options contradict each other, if the plugin is unknown, or if the plugin needs a subnet and
    /// there is none.
    pub fn of(network: &Network, kind: &str, option: Option<&str>) -> Result<Self> {
        let driver = network.ipam_options.get("driver").map(String::as_str).filter(|name| !name.is_empty());
        // The answer of `create` contains the driver "none", so that Podman allocates no addresses. If the option is
        // set too, ignore this driver.
        let driver = driver.filter(|driver| option.is_none() || *driver != NONE);
        let named = match (option, driver) {
            (Some(option), Some(driver)) if option != driver => return Err(contradicting(option, driver)),
            (option, driver) => option.or(driver),
        };
        let this = match named {
            None => Self::fitting(network, kind)?,
            Some(NONE) => Self(NONE),
            Some(name) => Self::called(name)?,
        };
        this.check(network)?;
        Ok(this)
    }

    fn fitting(network: &Network, kind: &str) -> Result<Self> {
        match (network.subnets.is_empty(), kind) {
            (false, _) => Ok(Self("host-local")),
            (true, "macvlan" | "vlan" | "host-device") => Ok(Self("dhcp")),
            (true, "dummy" | "tap" | "loopback") => Ok(Self(NONE)),
            (true, _) => Err(no_subnet()),
        }
    }

    fn called(name: &str) -> Result<Self> {
        let all = || schema::plugins().filter(|plugin| plugin.role == Role::Ipam).map(|plugin| plugin.name);
        let unknown = || {
            let near = schema::nearest(name, all()).map(|near| format!("did you mean {near:?}? "));
            let known = all().collect::<Vec<_>>().join(", ");
            Error::config(format!("option ipam: {name:?} is not an IPAM plugin of Ferrule"))
                .detail(format!("{}ipam is one of {known} and none", near.unwrap_or_default()))
        };
        all().find(|known| *known == name).map(Self).ok_or_else(unknown)
    }

    fn check(&self, network: &Network) -> Result<()> {
        let has_v6 = network.subnets.iter().any(|subnet| subnet.subnet.is_ipv6());
        match self.0 {
            "host-local" if network.subnets.is_empty() => Err(no_subnet()),
            "host-local" | "static" if network.ipv6_enabled && !has_v6 => {
                Err(Error::config("--ipv6 is set, but there is no IPv6 subnet")
                    .detail("add one, such as --subnet fd00:1::/64"))
            }
            name @ ("dhcp" | NONE) if !network.subnets.is_empty() => {
                Err(Error::config(format!("ipam is {name}, but subnets are given"))
                    .detail("remove --subnet, or choose --opt ipam=host-local"))
            }
            name @ ("dhcp" | NONE) if !network.routes.is_empty() => {
                Err(Error::config(format!("--route has no effect with ipam {name}"))
                    .detail("remove --route, or choose --opt ipam=host-local"))
            }
            _ => Ok(()),
        }
    }

    pub fn is_none(&self) -> bool {
        self.0 == NONE
    }

    /// Whether containers can request addresses.
    pub fn takes_addresses(&self) -> bool {
        ["host-local", "static"].contains(&self.0)
    }

    /// Whether the network's containers have a gateway.
    pub fn has_gateway(&self, network: &Network) -> bool {
        self.takes_addresses() && !network.subnets.is_empty()
    }

    pub fn described(&self) -> Result<&'static Plugin> {
        schema::plugin(self.0).ok_or_else(|| Error::config(format!("{} is not described", self.0)))
    }

    /// The value of the key `ipam` of the main plugin.
    ///
    /// # Errors
    /// Code 7 if a route is not unicast.
    pub fn object(&self, network: &Network, has_default_route: bool) -> Result<Map<String, Value>> {
        let mut object = Map::new();
        object.insert("type".to_owned(), self.0.into());
        match self.0 {
            "host-local" => {
                let ranges: Vec<Value> =
                    network.subnets.iter().map(|subnet| value!([range(subnet)])).collect();
                object.insert("ranges".to_owned(), ranges.into());
            }
            "static" => {
                let gateways = network.subnets.iter().filter_map(|subnet| subnet.gateway);
                let gateways: Vec<Value> = gateways.map(|gateway| value!({"gateway": gateway})).collect();
                object.insert("addresses".to_owned(), gateways.into());
            }
            _ => return Ok(object),
        }
        let mut routes: Vec<Value> = network.routes.iter().map(route).collect::<Result<_>>()?;
        if has_default_route && !network.internal {
            routes.extend(default_routes(&network.subnets));
        }
        object.insert("routes".to_owned(), routes.into());
        Ok(object)
    }
}

/// The error of an IPAM plugin in the options and another one in `--ipam-driver`.
pub fn contradicting(option: &str, driver: &str) -> Error {
    Error::config(format!("option ipam={option} and --ipam-driver {driver} contradict each other"))
        .detail("remove one of the two")
}

fn no_subnet() -> Error {
    Error::config("the network has no subnet")
        .detail("add --subnet, such as --subnet 10.1.0.0/24, or --opt ipam=dhcp, or --opt ipam=none")
}

fn range(subnet: &Subnet) -> Value {
    let mut range = value!({"subnet": subnet.subnet.to_string()});
    let bounds = subnet.lease_range.clone().unwrap_or_default();
    let members = [("gateway", subnet.gateway), ("rangeStart", bounds.start_ip), ("rangeEnd", bounds.end_ip)];
    for (key, address) in members {
        if let Some(address) = address {
            range[key] = value!(address);
        }
    }
    range
}

fn route(route: &Route) -> Result<Value> {
    if let Some(kind) = route.route_type.as_deref().filter(|kind| !["", "unicast"].contains(kind)) {
        return Err(Error::config(format!("route to {}: type {kind} is not supported", route.destination))
            .detail("plugins make unicast routes only"));
    }
    let mut object = value!({"dst": route.destination.to_string()});
    if let Some(gateway) = route.gateway {
        object["gw"] = value!(gateway);
    }
    if let Some(metric) = route.metric {
        object["priority"] = value!(metric);
    }
    Ok(object)
}

/// A default route for each address family that has a subnet.
fn default_routes(subnets: &[Subnet]) -> impl Iterator<Item = Value> {
    let has = |is_ipv6| subnets.iter().any(|subnet| subnet.subnet.is_ipv6() == is_ipv6);
    let of = [("0.0.0.0/0", has(false)), ("::/0", has(true))];
    of.into_iter().filter(|(_, has)| *has).map(|(dst, _)| value!({"dst": dst}))
}

/// The network, without the `--ip-range` of a subnet that contains a requested address outside the range. As with
/// Podman's own drivers, the range limits only the addresses that the network chooses.
pub fn allowing(network: &Network, requested: &[IpAddr]) -> Network {
    let mut network = network.clone();
    for Subnet { subnet, lease_range, .. } in &mut network.subnets {
        let is_outside = |range: &LeaseRange, ip: IpAddr| {
            range.start_ip.is_some_and(|start| ip < start) || range.end_ip.is_some_and(|end| ip > end)
        };
        lease_range
            .take_if(|range| requested.iter().any(|ip| subnet.contains(*ip) && is_outside(range, *ip)));
    }
    network
}

/// The subnets that a chain's configuration contains: ranges of host-local, and addresses of static.
pub fn subnets(chain: &Chain) -> Vec<Subnet> {
    let of_ranges = ranges::sets(chain).into_iter().flat_map(|set| {
        let subnet = |range: &Range| shown(range.subnet, Some(range.gateway));
        set.ranges().iter().map(subnet).collect::<Vec<_>>()
    });
    let of_static = chain.plugins.iter().flat_map(|plugin| static_ones(chain, plugin));
    let mut all: Vec<Subnet> = Vec::new();
    for one in of_ranges.chain(of_static) {
        if !all.iter().any(|known| known.subnet == one.subnet) {
            all.push(one);
        }
    }
    all
}

fn static_ones(chain: &Chain, plugin: &PluginConf) -> Vec<Subnet> {
    let request = chain.request(plugin).ok().and_then(|request| json::parse(&request, "the request").ok());
    let ipam = request.as_ref().and_then(|request| json::member(request, "ipam"));
    let ipam = ipam.filter(|ipam| json::member(ipam, "type").and_then(Value::as_str) == Some("static"));
    let addresses = ipam.and_then(|ipam| json::member(ipam, "addresses")?.as_array());
    let subnet = |entry: &Value| {
        let text = |key| json::member(entry, key).and_then(Value::as_str);
        let address = cni::addr::parse_cidr(text("address")?).ok()?;
        let subnet = IpNetwork::new(address.network(), address.prefix()).ok()?;
        let gateway: Option<IpAddr> = text("gateway").and_then(|text| text.parse().ok());
        Some(shown(subnet, gateway))
    };
    addresses.into_iter().flatten().filter_map(subnet).collect()
}

/// A subnet for Podman, which refuses a gateway outside of it.
fn shown(subnet: IpNetwork, gateway: Option<IpAddr>) -> Subnet {
    Subnet { subnet, gateway: gateway.filter(|gateway| subnet.contains(*gateway)), lease_range: None }
}
