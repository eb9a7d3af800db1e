//! Checks by echo requests: between containers, to the gateway, to the outside, and with packets as large as the MTU.

use std::net::IpAddr;

use cni::json;
use netlink::{Netlink, RouteFilter, uapi};
use netns::NetNs;
use serde_json::Value;

use super::echo::echo;
use super::pods::Pod;
use super::{Outcome, Row, Test};

/// Containers of one network reach each other, unless the network isolates them.
pub fn between(test: &Test<'_>, a: &Pod, b: &Pod, rows: &mut Vec<Row>) {
    let apart = keeps_apart(test);
    let address_of = |is_v4: bool| a.address(is_v4).filter(|_| b.address(is_v4).is_some());
    let addresses: Vec<IpAddr> = [true, false].into_iter().filter_map(address_of).collect();
    if addresses.is_empty() {
        let why = "the containers have no addresses";
        rows.push(Row::skipped("container to container", &b.label(), &a.label(), why));
    }
    for to in addresses {
        let reached = echo(test, &b.netns, to, None);
        let (promise, outcome) = match (&apart, reached) {
            (None, Ok(())) => ("container to container", Outcome::Passed(String::new())),
            (None, Err(e)) => {
                let remedy = "run `cnitool doctor`: it lists firewalls that drop packets; with br_netfilter \
                 they also filter packets within a bridge";
                ("container to container", Outcome::failed(e.to_string(), remedy))
            }
            (Some(_), Err(_)) => ("isolation of containers", Outcome::Passed(String::new())),
            (Some(key), Ok(())) => {
                let remedy = format!("run `cnitool repair {}`; the network has {key}", test.network.name);
                ("isolation of containers", Outcome::failed("the echo request is answered", remedy))
            }
        };
        rows.push(Row::new(promise, b.label(), format!("{} {to}", a.label()), outcome));
    }
}

/// The key with which a network isolates its containers.
fn keeps_apart(test: &Test<'_>) -> Option<&'static str> {
    requests(test).find_map(|request| {
        let is = |key: &str, value: Value| json::member(&request, key) == Some(&value);
        match () {
            () if is("portIsolation", true.into()) => Some("portIsolation"),
            () if is("ingressPolicy", "isolated".into()) => Some("ingressPolicy isolated"),
            () => None,
        }
    })
}

/// The configuration of each plugin of the network.
pub fn requests(test: &Test<'_>) -> impl Iterator<Item = Value> {
    let requests = test.network.plugins.iter().filter_map(|plugin| test.network.request(plugin).ok());
    requests.filter_map(|request| json::parse(&request, "the request").ok())
}

/// Each gateway that ADD reported answers.
pub fn gateway(test: &Test<'_>, a: &Pod, _: &Pod, rows: &mut Vec<Row>) {
    for gateway in a.result.ips.iter().filter_map(|ip| ip.gateway) {
        let outcome = match echo(test, &a.netns, gateway, None) {
            Ok(()) => Outcome::Passed(String::new()),
            Err(e) => Outcome::failed(
                e.to_string(),
                "assign the gateway's address to the host or the router, and accept ICMP from containers; with `isGateway`, bridge assigns the address to the host",
            ),
        };
        rows.push(Row::new("gateway", a.label(), gateway.to_string(), outcome));
    }
}

/// Packets as large as the interface's MTU arrive unfragmented where small packets arrive: at the other container, or
/// else at the gateway.
pub fn mtu(test: &Test<'_>, a: &Pod, b: &Pod, rows: &mut Vec<Row>) {
    let Some(mtu) = b.link().map(|link| link.mtu) else { return };
    let gateways = a.result.ips.iter().filter_map(|ip| ip.gateway);
    let targets: Vec<IpAddr> = a.addresses().chain(gateways).collect();
    for is_v4 in [true, false] {
        let mut of_family = targets.iter().filter(|to| to.is_ipv4() == is_v4);
        let Some(to) = of_family.find(|to| echo(test, &b.netns, **to, None).is_ok()) else { continue };
        let outcome = match echo(test, &b.netns, *to, Some(mtu)) {
            Ok(()) => Outcome::Passed(format!("{mtu} bytes")),
            Err(e) => Outcome::failed(
                format!("packets of {mtu} bytes with DF are lost: {e}"),
                "give all links between the containers the same MTU, or set `mtu` of the network to the smallest; `cnitool doctor` compares them",
            ),
        };
        rows.push(Row::new("MTU", b.label(), to.to_string(), outcome));
    }
}

/// Addresses beyond the host answer, in each address family of the container's default routes.
pub fn outside(test: &Test<'_>, a: &Pod, _: &Pod, rows: &mut Vec<Row>) {
    const PROMISE: &str = "outside";
    for is_v4 in [true, false] {
        let is_default = |route: &&cni::Route| route.dst.prefix() == 0 && route.dst.is_ipv4() == is_v4;
        if a.address(is_v4).is_none() || !a.result.routes.iter().any(|route| is_default(&route)) {
            continue;
        }
        let named = test.outside.iter().copied().filter(|ip| ip.is_ipv4() == is_v4);
        let mut targets: Vec<IpAddr> = named.collect();
        targets.extend(host_gateway(is_v4).filter(|_| targets.is_empty()));
        if targets.is_empty() {
            let why = "the host has no default route: set an address with --outside";
            rows.push(Row::skipped(PROMISE, &a.label(), family(is_v4), why));
        }
        for to in targets {
            let outcome = match echo(test, &a.netns, to, None) {
                Ok(()) => Outcome::Passed(String::new()),
                // If an address does not answer the host either, the network is not the cause.
                Err(_) if host_reaches(test, to).is_err() => Outcome::Skipped(
                    "it does not answer the host either: set another address with --outside".to_owned(),
                ),
                Err(e) => Outcome::failed(
                    format!("{e}, but it answers the host"),
                    "run `cnitool doctor`: it checks forwarding and firewalls; without `ipMasq` the routers \
                     need a route to the container",
                ),
            };
            rows.push(Row::new(PROMISE, a.label(), to.to_string(), outcome));
        }
    }
}

pub fn family(is_v4: bool) -> &'static str {
    if is_v4 { "IPv4" } else { "IPv6" }
}

fn host_reaches(test: &Test<'_>, to: IpAddr) -> std::io::Result<()> {
    echo(test, &NetNs::current().map_err(std::io::Error::other)?, to, None)
}

/// The router of the host's default route.
fn host_gateway(is_v4: bool) -> Option<IpAddr> {
    let main = RouteFilter { table: Some(uapi::RT_TABLE_MAIN), ..RouteFilter::default() };
    let routes = Netlink::open().ok()?.routes(main).ok()?;
    let defaults = routes.into_iter().filter(|route| route.dst.prefix() == 0 && route.dst.is_ipv4() == is_v4);
    defaults.min_by_key(|route| route.priority)?.gateway
}
