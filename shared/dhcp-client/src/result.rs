//! Converts a lease to a CNI result.

use std::net::{IpAddr, Ipv4Addr};

use cni::{AddResult, Dns, IpConfig, Route};
use ipnetwork::{IpNetwork, Ipv4Network};

use crate::options::{self, ClasslessRoute};
use crate::{Lease, Options};

/// The scope of a route to a destination on the link (`RT_SCOPE_LINK` in linux/rtnetlink.h).
const SCOPE_LINK: u8 = 253;
/// The minimum MTU of IPv4 in bytes (RFC 2132, section 5.1).
const SMALLEST_MTU: u16 = 68;

/// The result of an ADD: the address, its gateway (the first router), routes and DNS. `priority` is the metric of all
/// routes.
///
/// The routes are those of option 121, if there are any (RFC 3442). Otherwise they are those of option 33, and a
/// default route to the first router.
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

/// The link's MTU in bytes (option 26). Invalid values are ignored.
pub fn mtu(lease: &Lease) -> Option<u32> {
    let value = lease.options.get(options::INTERFACE_MTU)?;
    let mtu = u16::from_be_bytes(value.try_into().ok()?);
    (mtu >= SMALLEST_MTU).then_some(mtu.into())
}

/// The first router with an address that a host can have.
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

/// A route that the kernel accepts. A destination in 127.0.0.0/8 or 224.0.0.0/4, or the broadcast address, is not, and
/// the next hop must be a host.
fn in_cni(route: ClasslessRoute, priority: Option<u32>) -> Option<Route> {
    let ClasslessRoute { destination, prefix, router } = route;
    let on_link = router.is_unspecified();
    let is_loopback = prefix >= 8 && destination.is_loopback();
    let is_group = prefix >= 4 && destination.is_multicast();
    if is_loopback || is_group || destination.is_broadcast() || !(on_link || options::is_unicast(router)) {
        return None;
    }
    let gw = (!on_link).then_some(IpAddr::V4(router));
    let scope = on_link.then_some(SCOPE_LINK);
    Some(Route { gw, scope, priority, ..Route::to(network(destination, prefix)?) })
}

/// Name servers (option 6), domain (15) and search domains (119). Invalid names are left out of the resolver's file.
fn dns(options: &Options) -> Dns {
    let servers =
        options.addresses(options::DNS_SERVERS).into_iter().filter(|server| !server.is_unspecified());
    let domain = options::text(options.get(options::DOMAIN_NAME).unwrap_or_default());
    // Many servers send several domains there, because there used to be no option for it.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;

    fn lease(options: &[(u8, &[u8])]) -> Lease {
        let mut all = Options::default();
        options.iter().for_each(|(number, value)| all.set(*number, *value));
        let never = None;
        Lease {
            address: Ipv4Addr::new(10, 0, 0, 7),
            prefix: 24,
            server: Ipv4Addr::new(10, 0, 0, 1),
            since: Time::default(),
            renew: never,
            rebind: never,
            expiry: never,
            options: all,
        }
    }

    /// `DESTINATION via ROUTER`, or `on link`.
    fn routes_of(options: &[(u8, &[u8])]) -> Vec<String> {
        let result = of_lease(&lease(options), Some(5));
        let text = |route: &Route| match (route.gw, route.scope) {
            (Some(gw), None) => format!("{} via {gw}", route.dst),
            (None, Some(SCOPE_LINK)) => format!("{} on link", route.dst),
            other => panic!("{other:?}"),
        };
        assert!(result.routes.iter().all(|route| route.priority == Some(5)));
        result.routes.iter().map(text).collect()
    }

    const ROUTER: (u8, &[u8]) = (3, &[10, 0, 0, 1, 10, 0, 0, 2]);
    const CLASSFUL: (u8, &[u8]) = (33, &[192, 168, 1, 0, 10, 0, 0, 3]);

    #[test]
    fn the_gateway_is_the_first_router_and_the_default_routes_next_hop() {
        let result = of_lease(&lease(&[(3, &[0, 0, 0, 0, 10, 0, 0, 1])]), None);
        assert_eq!(result.ips[0].address.to_string(), "10.0.0.7/24");
        assert_eq!(result.ips[0].gateway, Some(Ipv4Addr::new(10, 0, 0, 1).into()));
        assert_eq!(routes_of(&[ROUTER, CLASSFUL]), ["192.168.1.0/24 via 10.0.0.3", "0.0.0.0/0 via 10.0.0.1"]);
        assert_eq!(of_lease(&lease(&[]), None).ips[0].gateway, None);
        assert!(routes_of(&[(3, &[10, 0, 0])]).is_empty());
    }

    #[test]
    fn classless_routes_take_the_place_of_all_others() {
        let classless =
            [24, 10, 1, 1, 10, 0, 0, 9, 16, 10, 2, 0, 0, 0, 0, 4, 224, 10, 0, 0, 1, 0, 127, 0, 0, 1];
        let expected = ["10.1.1.0/24 via 10.0.0.9", "10.2.0.0/16 on link"];
        assert_eq!(routes_of(&[ROUTER, CLASSFUL, (121, &classless)]), expected);
        // A malformed option is treated as missing.
        assert_eq!(routes_of(&[ROUTER, (121, &[99])]), ["0.0.0.0/0 via 10.0.0.1"]);
    }

    /// VPNs replace the default route by routes to the two halves of IPv4.
    #[test]
    fn classless_routes_may_be_wider_than_any_class() {
        let halves = [1, 0, 10, 0, 0, 1, 1, 128, 10, 0, 0, 1, 8, 0, 10, 0, 0, 1, 4, 240, 10, 0, 0, 1];
        let expected = ["0.0.0.0/1", "128.0.0.0/1", "0.0.0.0/8", "240.0.0.0/4"];
        assert_eq!(routes_of(&[(121, &halves)]), expected.map(|route| format!("{route} via 10.0.0.1")));
        let nowhere = [
            8, 127, 10, 0, 0, 1, 4, 224, 10, 0, 0, 1, 32, 255, 255, 255, 255, 10, 0, 0, 1, 8, 10, 224, 0, 0,
            1,
        ];
        assert!(routes_of(&[(121, &nowhere)]).is_empty());
    }

    #[test]
    fn a_resolver_gets_names_and_addresses_and_nothing_else() {
        let dns = |options: &[(u8, &[u8])]| of_lease(&lease(options), None).dns;
        let full =
            dns(&[(6, &[10, 0, 0, 1, 0, 0, 0, 0]), (15, b"example.org\0"), (119, b"\x01a\x03org\x00")]);
        assert_eq!(
            (full.nameservers, full.domain, full.search),
            (vec!["10.0.0.1".to_owned()], "example.org".to_owned(), vec!["a.org".to_owned()],)
        );
        let listed = dns(&[(15, b"a.org b.org")]);
        assert_eq!(
            (listed.domain.as_str(), listed.search),
            ("a.org", vec!["a.org".to_owned(), "b.org".to_owned()])
        );
        assert!(dns(&[(15, b"a;rm"), (6, &[1, 2, 3]), (119, b"\xc0\x00")]).is_empty());
        assert_eq!(dns(&[(15, b"x\nnameserver")]).domain, "");
    }

    #[test]
    fn the_mtu_is_one_that_ipv4_permits() {
        let values: [(&[u8], _); 4] =
            [(&[5, 120], Some(1400)), (&[0, 67], None), (&[1], None), (&[0, 68], Some(68))];
        for (value, expected) in values {
            assert_eq!(mtu(&lease(&[(26, value)])), expected);
        }
        assert_eq!(mtu(&lease(&[])), None);
    }
}
