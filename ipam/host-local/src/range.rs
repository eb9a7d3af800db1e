//! Address ranges, and sets of them. They know nothing about leases.

use std::fmt;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

/// Consecutive addresses of one family, as numbers. Both ends are included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    first: u128,
    last: u128,
}

impl Span {
    fn of(net: IpNetwork) -> Self {
        Self { first: number(net.network()), last: number(net.broadcast()) }
    }

    fn single(n: u128) -> Self {
        Self { first: n, last: n }
    }

    fn contains(&self, n: u128) -> bool {
        (self.first..=self.last).contains(&n)
    }

    fn len(&self) -> u128 {
        (self.last - self.first).saturating_add(1)
    }

    /// The part above a number.
    fn above(self, n: u128) -> Option<Self> {
        (self.last > n).then(|| Self { first: self.first.max(n + 1), last: self.last })
    }

    /// The part up to and including a number.
    fn up_to(self, n: u128) -> Option<Self> {
        (self.first <= n).then(|| Self { first: self.first, last: self.last.min(n) })
    }

    /// The parts that remain without the holes, ascending.
    fn without(self, mut holes: Vec<Span>) -> Vec<Self> {
        holes.sort_unstable_by_key(|hole| hole.first);
        let (mut pieces, mut rest) = (Vec::new(), Some(self));
        for hole in holes {
            let Some(span) = rest else { break };
            pieces.extend(hole.first.checked_sub(1).and_then(|n| span.up_to(n)));
            rest = span.above(hole.last);
        }
        pieces.extend(rest);
        pieces
    }
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u32::from(ip).into(),
        IpAddr::V6(ip) => ip.into(),
    }
}

/// The address with this number, in the family of `like`.
fn address(n: u128, like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4((n as u32).into()),
        IpAddr::V6(_) => IpAddr::V6(n.into()),
    }
}

/// A range as written in the configuration.
#[derive(Clone, Debug)]
pub struct Spec {
    pub subnet: IpNetwork,
    pub first: Option<IpAddr>,
    pub last: Option<IpAddr>,
    pub gateway: Option<IpAddr>,
    pub exclude: Vec<IpNetwork>,
}

/// A part of a subnet, from which addresses are allocated.
#[derive(Clone, Debug)]
pub struct Range {
    pub subnet: IpNetwork,
    pub gateway: IpAddr,
    whole: Span,
    /// The addresses that may be allocated, ascending: without the gateway and excluded addresses.
    usable: Vec<Span>,
}

impl Range {
    /// Checks a range and sets the defaults. It starts at the subnet's first address and ends at its last one (IPv4:
    /// before the broadcast address). As with the reference, only a `first` and a `last` that are written include the network address and
    /// the broadcast address. The gateway is the subnet's first address.
    ///
    /// # Errors
    /// The reason why it is invalid.
    pub fn new(spec: &Spec) -> Result<Self, String> {
        let subnet = spec.subnet;
        if Span::of(subnet).len() < 4 {
            return Err(format!("subnet {subnet} is too small, it needs at least 4 addresses"));
        }
        if subnet.ip() != subnet.network() {
            let right = format!("{}/{}", subnet.network(), subnet.prefix());
            return Err(format!("subnet {subnet} has host bits set, the network is {right}"));
        }
        let default = default_span(subnet);
        let first = spec.first.map_or(Ok(default.first), |ip| inside(subnet, "rangeStart", ip))?;
        let last = spec.last.map_or(Ok(default.last), |ip| inside(subnet, "rangeEnd", ip))?;
        if first > last {
            let (first, last) = (address(first, subnet.ip()), address(last, subnet.ip()));
            return Err(format!("rangeStart {first} comes after rangeEnd {last}"));
        }
        let gateway = spec.gateway.unwrap_or(address(default.first, subnet.ip()));
        let mut range = Self { subnet, gateway, whole: Span { first, last }, usable: Vec::new() };
        range.usable = range.find_usable(&spec.exclude);
        Ok(range)
    }

    fn find_usable(&self, exclude: &[IpNetwork]) -> Vec<Span> {
        let gateway = self.subnet.contains(self.gateway).then(|| Span::single(number(self.gateway)));
        let excluded = exclude.iter().filter(|net| net.is_ipv4() == self.subnet.is_ipv4());
        self.whole.without(gateway.into_iter().chain(excluded.map(|&net| Span::of(net))).collect())
    }

    /// Whether the gateway is on the container's link: in the subnet, or link-local. Otherwise it cannot be a next hop.
    pub fn reaches_gateway(&self) -> bool {
        let link_local = match self.gateway {
            IpAddr::V4(ip) => ip.is_link_local(),
            IpAddr::V6(ip) => ip.is_unicast_link_local(),
        };
        self.subnet.contains(self.gateway) || (link_local && self.gateway.is_ipv4() == self.subnet.is_ipv4())
    }

    /// Whether the address is in the range, even if it is never allocated.
    pub fn contains(&self, ip: IpAddr) -> bool {
        ip.is_ipv4() == self.subnet.is_ipv4() && self.whole.contains(number(ip))
    }

    /// Whether the address may be allocated.
    pub fn may_lease(&self, ip: IpAddr) -> bool {
        self.contains(ip) && self.usable.iter().any(|span| span.contains(number(ip)))
    }

    /// Whether the ranges have an address in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.subnet.is_ipv4() == other.subnet.is_ipv4()
            && self.whole.first <= other.whole.last
            && other.whole.first <= self.whole.last
    }
}

/// `10.0.0.50-10.0.0.99 of 10.0.0.0/24`, or only the subnet if the range is all of it.
impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.whole != default_span(self.subnet) {
            let end = |n| address(n, self.subnet.ip());
            write!(f, "{}-{} of ", end(self.whole.first), end(self.whole.last))?;
        }
        write!(f, "{}", self.subnet)
    }
}

/// All addresses but the network address and, for IPv4, the broadcast address.
fn default_span(subnet: IpNetwork) -> Span {
    let Span { first, last } = Span::of(subnet);
    Span { first: first + 1, last: if subnet.is_ipv4() { last - 1 } else { last } }
}

fn inside(subnet: IpNetwork, key: &str, ip: IpAddr) -> Result<u128, String> {
    if subnet.contains(ip) { Ok(number(ip)) } else { Err(format!("{key} {ip} is not in subnet {subnet}")) }
}

/// Ranges of one family, from which one address is allocated. Never empty.
#[derive(Clone, Debug)]
pub struct RangeSet(Vec<Range>);

impl RangeSet {
    /// A set of ranges.
    ///
    /// # Errors
    /// The reason why they cannot be a set.
    pub fn new(ranges: Vec<Range>) -> Result<Self, String> {
        let Some(first) = ranges.first() else { return Err("the range set is empty".into()) };
        if let Some(other) = ranges.iter().find(|r| r.subnet.is_ipv4() != first.subnet.is_ipv4()) {
            let (a, b) = (first.subnet, other.subnet);
            return Err(format!("{a} and {b} are of different families; give each a range set of its own"));
        }
        let pairs = (1..ranges.len()).flat_map(|j| (0..j).map(move |i| (i, j)));
        if let Some((i, j)) = pairs.into_iter().find(|&(i, j)| ranges[i].overlaps(&ranges[j])) {
            return Err(format!("ranges {} and {} overlap", ranges[i], ranges[j]));
        }
        let set = Self(ranges);
        if set.capacity() == 0 {
            return Err(format!("range set {set} has no usable address: all are reserved or excluded"));
        }
        Ok(set)
    }

    /// Its ranges, in the order of the configuration.
    pub fn ranges(&self) -> &[Range] {
        &self.0
    }

    #[cfg(test)]
    pub fn into_ranges(self) -> Vec<Range> {
        self.0
    }

    /// The range that contains the address.
    pub fn range_of(&self, ip: IpAddr) -> Option<&Range> {
        self.0.iter().find(|r| r.contains(ip))
    }

    /// Whether the address may be allocated.
    pub fn may_lease(&self, ip: IpAddr) -> bool {
        self.range_of(ip).is_some_and(|range| range.may_lease(ip))
    }

    /// Whether it is a set of IPv4 ranges. Otherwise it is of IPv6.
    pub fn is_ipv4(&self) -> bool {
        self.0.iter().all(|r| r.subnet.is_ipv4())
    }

    /// A range of this set and a range of the other set that overlap.
    pub fn overlap<'a>(&'a self, other: &'a Self) -> Option<(&'a Range, &'a Range)> {
        self.0.iter().find_map(|a| other.0.iter().find(|b| a.overlaps(b)).map(|b| (a, b)))
    }

    /// The number of addresses that may be allocated.
    pub fn capacity(&self) -> u128 {
        self.0.iter().flat_map(|r| &r.usable).fold(0, |sum: u128, span| sum.saturating_add(span.len()))
    }

    /// All addresses that may be allocated, starting after the given one and wrapping around to it. Without one, or if
    /// it is in no range, they start with the first.
    pub fn candidates(&self, after: Option<IpAddr>) -> impl Iterator<Item = IpAddr> {
        let start = after.and_then(|ip| Some((self.0.iter().position(|r| r.contains(ip))?, number(ip))));
        let (mut soon, mut late) = (Vec::new(), Vec::new());
        for (index, range) in self.0.iter().enumerate() {
            for &span in &range.usable {
                match start {
                    Some((at, last)) if index == at => {
                        soon.extend(span.above(last));
                        late.extend(span.up_to(last));
                    }
                    Some((at, _)) if index < at => late.push(span),
                    _ => soon.push(span),
                }
            }
        }
        let like = self.0[0].subnet.ip();
        let numbers = soon.into_iter().chain(late).flat_map(|span| span.first..=span.last);
        numbers.map(move |n| address(n, like))
    }
}

/// `10.0.0.50-10.0.0.99,10.0.1.1-10.0.1.254`: the first and last address of each range, in the reference's format.
impl fmt::Display for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ends = |Range { subnet, whole, .. }: &Range| {
            format!("{}-{}", address(whole.first, subnet.ip()), address(whole.last, subnet.ip()))
        };
        f.write_str(&self.0.iter().map(ends).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spec(subnet: &str) -> Spec {
        let subnet = subnet.parse().unwrap();
        Spec { subnet, first: None, last: None, gateway: None, exclude: Vec::new() }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn set(specs: &[Spec]) -> RangeSet {
        RangeSet::new(specs.iter().map(|s| Range::new(s).unwrap()).collect()).unwrap()
    }

    fn addresses(set: &RangeSet, after: Option<&str>) -> Vec<String> {
        set.candidates(after.map(ip)).map(|ip| ip.to_string()).collect()
    }

    #[test]
    fn missing_keys_have_the_references_defaults() {
        let v4 = Range::new(&spec("10.1.2.0/24")).unwrap();
        assert_eq!(v4.whole, Span { first: number(ip("10.1.2.1")), last: number(ip("10.1.2.254")) });
        assert_eq!((v4.to_string().as_str(), v4.gateway), ("10.1.2.0/24", ip("10.1.2.1")));
        let v6 = Range::new(&spec("fd00:1::/64")).unwrap();
        let last = number(ip("fd00:1::ffff:ffff:ffff:ffff"));
        assert_eq!(v6.whole, Span { first: number(ip("fd00:1::1")), last });
        assert_eq!(v6.gateway, ip("fd00:1::1"));
    }

    #[test]
    fn the_gateway_is_never_allocated_and_network_and_broadcast_only_if_they_are_written() {
        assert_eq!(addresses(&set(&[spec("10.0.0.0/30")]), None), ["10.0.0.2"]);
        let first = Spec { first: Some(ip("10.0.0.0")), ..spec("10.0.0.0/30") };
        assert_eq!(addresses(&set(std::slice::from_ref(&first)), None), ["10.0.0.0", "10.0.0.2"]);
        let last = Spec { last: Some(ip("10.0.0.3")), ..spec("10.0.0.0/30") };
        assert_eq!(addresses(&set(&[last]), None), ["10.0.0.2", "10.0.0.3"]);
        let both = Spec { last: Some(ip("10.0.0.3")), gateway: Some(ip("10.0.0.2")), ..first };
        assert_eq!(addresses(&set(&[both]), None), ["10.0.0.0", "10.0.0.1", "10.0.0.3"]);
        assert_eq!(addresses(&set(&[spec("fd00::/126")]), None), ["fd00::2", "fd00::3"]);
        let first = Spec { first: Some(ip("fd00::")), ..spec("fd00::/126") };
        assert_eq!(addresses(&set(&[first]), None), ["fd00::", "fd00::2", "fd00::3"]);
    }

    #[test]
    fn any_number_of_excluded_addresses_is_skipped() {
        let mut most = spec("fd00::/64");
        most.exclude = vec!["fd00::/65".parse().unwrap(), "fd00::8000:0:0:0".parse().unwrap()];
        let set = set(&[most]);
        assert_eq!(set.candidates(None).next(), Some(ip("fd00::8000:0:0:1")));
        assert!(!set.may_lease(ip("fd00::7")));
        assert_eq!(set.capacity(), (1 << 63) - 1);
    }

    #[test]
    fn the_search_starts_after_the_last_address_and_wraps_through_all_ranges() {
        let narrow = |subnet: &str, first: &str, last: &str| Spec {
            first: Some(ip(first)),
            last: Some(ip(last)),
            ..spec(subnet)
        };
        let set = set(&[
            narrow("10.0.0.0/24", "10.0.0.4", "10.0.0.6"),
            narrow("10.9.0.0/24", "10.9.0.8", "10.9.0.9"),
        ]);
        let round = ["10.0.0.6", "10.9.0.8", "10.9.0.9", "10.0.0.4", "10.0.0.5"];
        assert_eq!(addresses(&set, Some("10.0.0.5")), round);
        let from_the_first = ["10.0.0.4", "10.0.0.5", "10.0.0.6", "10.9.0.8", "10.9.0.9"];
        for after in [None, Some("10.9.0.9"), Some("10.7.7.7"), Some("fd00::5")] {
            assert_eq!(addresses(&set, after), from_the_first, "{after:?}");
        }
    }

    #[test]
    fn the_ends_of_the_address_space_do_not_overflow() {
        let top = set(&[spec("ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff0/124")]);
        let last = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        assert_eq!(
            top.candidates(Some(ip(last))).next(),
            Some(ip("ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff2"))
        );
        let all = set(&[spec("::/0")]);
        assert_eq!(all.candidates(Some(ip(last))).next(), Some(ip("::2")));
        assert_eq!(all.capacity(), u128::MAX - 1);
        assert_eq!(set(&[spec("0.0.0.0/0")]).candidates(None).next(), Some(ip("0.0.0.2")));
    }

    #[test]
    fn an_invalid_range_is_refused_and_the_culprit_named() {
        let with = |change: fn(&mut Spec)| {
            let mut spec = spec("10.0.0.0/24");
            change(&mut spec);
            Range::new(&spec).unwrap_err()
        };
        let cases = [
            (with(|s| s.subnet = "10.0.0.0/31".parse().unwrap()), "10.0.0.0/31 is too small"),
            (with(|s| s.subnet = "fd00::/127".parse().unwrap()), "fd00::/127 is too small"),
            (with(|s| s.subnet = "10.0.0.9/24".parse().unwrap()), "the network is 10.0.0.0/24"),
            (with(|s| s.first = Some(ip("10.0.1.1"))), "rangeStart 10.0.1.1 is not in"),
            (with(|s| s.last = Some(ip("fd00::1"))), "rangeEnd fd00::1 is not in"),
            (
                with(|s| (s.first, s.last) = (Some(ip("10.0.0.9")), Some(ip("10.0.0.8")))),
                "10.0.0.9 comes after",
            ),
        ];
        for (error, culprit) in cases {
            assert!(error.contains(culprit), "{error}");
        }
    }

    #[test]
    fn a_link_local_gateway_serves_any_subnet_of_its_family() {
        let v6 = Spec { gateway: Some(ip("fe80::1")), ..spec("fd00::/64") };
        assert_eq!(set(&[v6]).candidates(None).next(), Some(ip("fd00::1")));
        let reaches = |gateway: &str, subnet: &str| {
            Range::new(&Spec { gateway: Some(ip(gateway)), ..spec(subnet) }).unwrap().reaches_gateway()
        };
        assert!(reaches("fe80::1", "fd00::/64") && reaches("169.254.1.1", "10.0.0.0/24"));
        assert!(!reaches("fe80::1", "10.0.0.0/24") && !reaches("10.0.1.1", "10.0.0.0/24"));
    }

    #[test]
    fn ranges_that_are_no_set_are_refused() {
        let of = |specs: &[Spec]| {
            RangeSet::new(specs.iter().map(|s| Range::new(s).unwrap()).collect()).unwrap_err()
        };
        assert!(of(&[]).contains("empty"));
        assert!(of(&[spec("10.0.0.0/24"), spec("fd00::/64")]).contains("different families"));
        assert!(of(&[spec("10.0.0.0/24"), spec("10.1.0.0/24"), spec("10.0.0.0/16")]).contains("overlap"));
        let empty = Spec { exclude: vec!["10.0.0.0/24".parse().unwrap()], ..spec("10.0.0.0/24") };
        assert!(of(&[empty]).contains("no usable address"));
    }

    #[test]
    fn parts_of_one_subnet_overlap_only_if_they_share_an_address() {
        let part = |first: &str, last: &str| {
            set(&[Spec { first: Some(ip(first)), last: Some(ip(last)), ..spec("10.0.0.0/24") }])
        };
        assert!(part("10.0.0.10", "10.0.0.20").overlap(&part("10.0.0.21", "10.0.0.30")).is_none());
        assert!(part("10.0.0.10", "10.0.0.20").overlap(&part("10.0.0.20", "10.0.0.30")).is_some());
        assert!(part("10.0.0.10", "10.0.0.20").overlap(&set(&[spec("10.0.0.0/24")])).is_some());
    }

    proptest! {
        /// The model: all addresses in order, filtered one by one, then rotated.
        #[test]
        fn candidates_are_those_of_a_simple_model(
            ends in prop::collection::vec((0u8..64, 0u8..64), 1..4),
            holes in prop::collection::vec((0u8..192, 28u8..=32), 0..6),
            gateway in 0u8..64,
            after in 0u8..200,
        ) {
            let exclude: Vec<IpNetwork> = holes
                .iter()
                .map(|(host, prefix)| format!("10.0.0.{host}/{prefix}").parse().unwrap())
                .collect();
            let at = |range: usize, n: u8| ip(&format!("10.0.0.{}", range * 64 + usize::from(n)));
            let ranges: Vec<Range> = ends.iter().enumerate().map(|(i, &(a, b))| {
                let (first, last) = (Some(at(i, a.min(b))), Some(at(i, a.max(b))));
                let subnet = format!("10.0.0.{}/26", i * 64).parse().unwrap();
                Range::new(&Spec { subnet, first, last, gateway: Some(at(i, gateway)), exclude: exclude.clone() })
                    .unwrap()
            }).collect();

            let allowed = |ip: &IpAddr| {
                let IpAddr::V4(v4) = ip else { unreachable!() };
                let host = v4.octets()[3] % 64;
                host != gateway && !exclude.iter().any(|net| net.contains(*ip))
            };
            let all: Vec<IpAddr> = ends.iter().enumerate()
                .flat_map(|(i, &(a, b))| (a.min(b)..=a.max(b)).map(move |n| at(i, n)))
                .collect();
            let after = ip(&format!("10.0.0.{after}"));
            let turn = all.iter().position(|&ip| ip == after).map_or(0, |p| p + 1);
            let model: Vec<IpAddr> =
                all[turn..].iter().chain(&all[..turn]).copied().filter(allowed).collect();

            match RangeSet::new(ranges) {
                Ok(set) => {
                    prop_assert_eq!(set.capacity(), model.len() as u128);
                    prop_assert_eq!(set.candidates(Some(after)).collect::<Vec<_>>(), model);
                }
                Err(_) => prop_assert!(model.is_empty()),
            }
        }
    }
}
