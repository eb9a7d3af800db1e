//! A lease in CNI's terms.

use std::net::{IpAddr, Ipv4Addr};

use cni::{AddResult, Dns, IpConfig, Route};
use ipnetwork::{IpNetwork, Ipv4Network};

use crate::options::{self, ClasslessRoute};
use crate::{Lease, Options};

/// The scope of a route whose destination is on the link (`RT_SCOPE_LINK` in linux/rtnetlink.h).
const SCOPE_LINK: u8 = 253;
/// The smallest MTU of IPv4 in bytes (RFC 2132, section 5.1).
const SMALLEST_MTU: u16 = 68;

/// The result of an ADD: the address, its gateway (the first router), routes, and what is for the resolver. The priority is the metric
/// of all routes; the lowest wins.
///
/// Routes are those of option 121 alone, if there are any (RFC 3442). Else they are those of option 33, and a default route by the first router.
pub fn of_lease(lease: &Lease, priority: Option<u32>) -> AddResult {
    let gateway = first_router(&lease.options);
    let address = network(lease.address, lease.prefix);
    let routes = routes(&lease.options).into_iter().filter_map(|route| in_cni(route, priority)).collect();
    AddResult {
        ips: address.map(|address| IpConfig::new(address, gateway.map(IpAddr::V4))).into_iter().collect(),
        routes,
        dns: dns(&lease.options),
        ..AddResult::default()
    }
}

/// The MTU that the server gives the link, in bytes (option 26). One that IPv4 does not permit is none.
pub fn mtu(lease: &Lease) -> Option<u32> {
    let value = lease.options.get(options::INTERFACE_MTU)?;
    let mtu = u16::from_be_bytes(value.try_into().ok()?);
    (mtu >= SMALLEST_MTU).then_some(mtu.into())
}

/// The first router that a host can be.
fn first_router(options: &Options) -> Option<Ipv4Addr> {
    options.addresses(options::ROUTERS).into_iter().find(|router| options::is_unicast(*router))
}

fn network(address: Ipv4Addr, prefix: u8) -> Option<IpNetwork> {
    Ipv4Network::new(address, prefix).ok().map(IpNetwork::V4)
}

fn routes(options: &Options) -> Vec<ClasslessRoute> {
    let of = |number| options.get(number).unwrap_or_default();
    let classless = options::classless_routes(of(options::CLASSLESS_ROUTES));
    if !classless.is_empty() {
        return classless;
    }
    let mut routes = options::classful_routes(of(options::STATIC_ROUTES));
    let default = |router| ClasslessRoute { destination: Ipv4Addr::UNSPECIFIED, prefix: 0, router };
    routes.extend(first_router(options).map(default));
    routes
}

/// A route that the kernel can take: no group and no loopback is a destination, and no next hop.
fn in_cni(route: ClasslessRoute, priority: Option<u32>) -> Option<Route> {
    let ClasslessRoute { destination, prefix, router } = route;
    let on_link = router.is_unspecified();
    let is_destination = prefix == 0 || options::is_unicast(destination);
    if !is_destination || !(on_link || options::is_unicast(router)) {
        return None;
    }
    let gw = (!on_link).then_some(IpAddr::V4(router));
    let scope = on_link.then_some(SCOPE_LINK);
    Some(Route { gw, scope, priority, ..Route::to(network(destination, prefix)?) })
}

/// Name servers (option 6), the domain (15), and where short names are searched (119). What is no name does not get into a resolver's file.
fn dns(options: &Options) -> Dns {
    let servers =
        options.addresses(options::DNS_SERVERS).into_iter().filter(|server| !server.is_unspecified());
    let domain = options::text(options.get(options::DOMAIN_NAME).unwrap_or_default());
    // Many servers give a list of domains there, since there was no other option for it.
    let is_name = |word: &&str| word.bytes().all(options::is_of_a_name);
    let mut domains = domain.split_ascii_whitespace().filter(is_name).map(str::to_owned);
    let mut search = options::domains(options.get(options::DOMAIN_SEARCH).unwrap_or_default());
    let domain = domains.next().unwrap_or_default();
    if search.is_empty() {
        let others: Vec<String> = domains.collect();
        if !others.is_empty() {
            search = [vec![domain.clone()], others].concat();
        }
    }
    Dns {
        nameservers: servers.map(|server| server.to_string()).collect(),
        domain,
        search,
        options: Vec::new(),
    }
}
