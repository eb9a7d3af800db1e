//! Chooses an attachment's addresses, one of each range set, from a view of the leases, before any lease is written.

use std::net::IpAddr;

use cni::{Code, Error, Result, ResultExt};

use crate::range::RangeSet;

/// The view of the leases that is needed to choose an address.
pub trait Leases {
    /// The last address allocated from a range set, if known.
    fn last_reserved(&self, set: usize) -> Option<IpAddr>;

    /// Whether an address is leased.
    ///
    /// # Errors
    /// The reason why it is unknown.
    fn is_taken(&self, ip: IpAddr) -> Result<bool>;

    /// The holder of an address, for messages.
    fn holder(&self, ip: IpAddr) -> String;
}

/// Finds the requested address of each range set. If two sources request an address of the same range set, the later
/// source has precedence.
///
/// # Errors
/// Code 7 for an address that is in no range set, and for two addresses of one range set in the same source.
pub fn requests(sets: &[RangeSet], sources: &[&[IpAddr]]) -> Result<Vec<Option<IpAddr>>> {
    let mut requested = vec![None; sets.len()];
    let mut outside = Vec::new();
    for source in sources {
        let mut here: Vec<Option<IpAddr>> = vec![None; sets.len()];
        for &ip in *source {
            match set_of(sets, ip)? {
                None => outside.push(ip),
                Some(set) => match here[set].replace(ip) {
                    Some(other) if other != ip => return Err(both_requested(other, ip, &sets[set])),
                    _ => {}
                },
            }
        }
        for (requested, here) in requested.iter_mut().zip(here) {
            *requested = here.or(*requested);
        }
    }
    if outside.is_empty() { Ok(requested) } else { Err(all_outside(&outside, sets)) }
}

/// The range set that contains a requested address.
fn set_of(sets: &[RangeSet], ip: IpAddr) -> Result<Option<usize>> {
    let found = sets.iter().enumerate().find_map(|(i, set)| Some((i, set.range_of(ip)?)));
    let Some((index, range)) = found else { return Ok(None) };
    if range.may_lease(ip) {
        return Ok(Some(index));
    }
    let error = if ip == range.gateway {
        Error::config(format!("requested ip {ip} is subnet's gateway"))
            .detail(format!("the subnet is {}", range.subnet))
    } else {
        Error::config(unavailable(ip, &sets[index]))
            .detail(format!("the address is excluded, or subnet {} reserves it", range.subnet))
    };
    Err(error.context(failed_for(index)))
}

// The reference's words, because monitoring, scripts and the tests of other projects search for them:
// docs/errors.md#words.

fn failed_for(set: usize) -> String {
    format!("failed to allocate for range {set}")
}

fn unavailable(ip: IpAddr, set: &RangeSet) -> String {
    format!("requested IP address {ip} is not available in range set {set}")
}

fn not_all(ips: &[IpAddr]) -> Error {
    let ips: Vec<String> = ips.iter().map(ToString::to_string).collect();
    Error::config(format!("failed to allocate all requested IPs: {}", ips.join(" ")))
}

fn all_outside(ips: &[IpAddr], sets: &[RangeSet]) -> Error {
    let all: Vec<String> = sets.iter().map(ToString::to_string).collect();
    not_all(ips).detail(format!("none of the ranges contains them: {}", all.join("; ")))
}

fn both_requested(one: IpAddr, other: IpAddr, set: &RangeSet) -> Error {
    not_all(&[other]).detail(format!(
        "{one} and {other} are in the same range set {set}; an attachment gets one address from each range set"
    ))
}

/// The error for a second address, if the attachment already has one of this range set.
pub fn duplicate(set: usize, ip: IpAddr, container: &str) -> Error {
    Error::config(format!("{ip} has been allocated to {container}, duplicate allocation is not allowed"))
        .context(failed_for(set))
}

/// Chooses an address of each range set: the requested one, otherwise the next free one after the last allocated one.
///
/// # Errors
/// Code 999 if a requested address is taken, or a range set is exhausted.
pub fn choose(sets: &[RangeSet], requested: &[Option<IpAddr>], leases: &impl Leases) -> Result<Vec<IpAddr>> {
    let each = sets.iter().zip(requested).enumerate();
    each.map(|(index, (set, requested))| {
        let chosen = match requested {
            Some(ip) => take(*ip, set, leases),
            None => next_free(set, leases.last_reserved(index), leases),
        };
        chosen.context(|| failed_for(index))
    })
    .collect()
}

fn take(ip: IpAddr, set: &RangeSet, leases: &impl Leases) -> Result<IpAddr> {
    if leases.is_taken(ip)? {
        let error = Error::new(Code::Internal, unavailable(ip, set));
        return Err(error.detail(format!("{ip} is leased to {}", leases.holder(ip))));
    }
    Ok(ip)
}

fn next_free(set: &RangeSet, last: Option<IpAddr>, leases: &impl Leases) -> Result<IpAddr> {
    for ip in set.candidates(last) {
        if !leases.is_taken(ip)? {
            return Ok(ip);
        }
    }
    Err(exhausted(set))
}

/// The error for a range set without a free address.
pub fn exhausted(set: &RangeSet) -> Error {
    Error::new(Code::Internal, format!("no IP addresses available in range set: {set}")).detail(format!(
        "all {} addresses are leased; widen the range, or run `cnitool gc NETWORK` to release stale leases",
        set.capacity()
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::range::{Range, Spec};

    #[derive(Default)]
    struct Fake {
        last: BTreeMap<usize, IpAddr>,
        taken: BTreeSet<IpAddr>,
    }

    impl Leases for Fake {
        fn last_reserved(&self, set: usize) -> Option<IpAddr> {
            self.last.get(&set).copied()
        }
        fn is_taken(&self, ip: IpAddr) -> Result<bool> {
            Ok(self.taken.contains(&ip))
        }
        fn holder(&self, _: IpAddr) -> String {
            "container c, interface eth0".into()
        }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn sets(subnets: &[&str]) -> Vec<RangeSet> {
        let of = |subnet: &&str| {
            let exclude = vec!["10.0.0.9/32".parse().unwrap()];
            let spec =
                Spec { subnet: subnet.parse().unwrap(), first: None, last: None, gateway: None, exclude };
            RangeSet::new(vec![Range::new(&spec).unwrap()]).unwrap()
        };
        subnets.iter().map(of).collect()
    }

    #[test]
    fn each_range_set_allocates_the_next_free_address_after_the_last_one() {
        let sets = sets(&["10.0.0.0/24", "fd00::/64"]);
        let mut leases = Fake::default();
        assert_eq!(choose(&sets, &[None; 2], &leases).unwrap(), [ip("10.0.0.2"), ip("fd00::2")]);
        leases.last = [(0, ip("10.0.0.7")), (1, ip("fd00::5"))].into();
        leases.taken = [ip("10.0.0.8"), ip("fd00::6"), ip("fd00::7")].into();
        assert_eq!(choose(&sets, &[None; 2], &leases).unwrap(), [ip("10.0.0.10"), ip("fd00::8")]);
    }

    #[test]
    fn a_full_range_set_is_reported_in_the_words_that_alerts_search_for() {
        let full = |sets: &[RangeSet]| {
            let taken = sets.iter().flat_map(|set| set.candidates(None)).collect();
            let error = choose(sets, &[None], &Fake { taken, ..Fake::default() }).unwrap_err();
            assert_eq!(error.code(), 999);
            error.msg().to_owned()
        };
        let words = "failed to allocate for range 0: no IP addresses available in range set: ";
        assert_eq!(full(&sets(&["10.0.0.0/30"])), format!("{words}10.0.0.1-10.0.0.2"));
        let joined = [sets(&["10.0.0.0/30"]), sets(&["10.0.1.0/29"])].concat();
        let both = RangeSet::new(joined.into_iter().flat_map(RangeSet::into_ranges).collect()).unwrap();
        assert_eq!(full(&[both]), format!("{words}10.0.0.1-10.0.0.2,10.0.1.1-10.0.1.6"));
    }

    #[test]
    fn a_requested_address_comes_from_its_range_set_and_other_range_sets_choose() {
        let sets = sets(&["10.0.0.0/24", "fd00::/64"]);
        let requested = requests(&sets, &[&[ip("fd00::77")]]).unwrap();
        assert_eq!(choose(&sets, &requested, &Fake::default()).unwrap(), [ip("10.0.0.2"), ip("fd00::77")]);
    }

    #[test]
    fn a_later_source_takes_precedence_within_its_range_set() {
        let sets = sets(&["10.0.0.0/24", "fd00::/64"]);
        let sources: [&[IpAddr]; 3] =
            [&[ip("10.0.0.5"), ip("fd00::5")], &[ip("10.0.0.6")], &[ip("10.0.0.7"), ip("10.0.0.7")]];
        assert_eq!(requests(&sets, &sources).unwrap(), [Some(ip("10.0.0.7")), Some(ip("fd00::5"))]);
        let both = requests(&sets, &[&[ip("10.0.0.5"), ip("10.0.0.6")]]).unwrap_err();
        assert_eq!(both.msg(), "failed to allocate all requested IPs: 10.0.0.6");
        assert!(both.details().contains("10.0.0.5 and 10.0.0.6"), "{both:?}");
    }

    #[test]
    fn an_unavailable_requested_address_is_refused_in_the_references_words() {
        let sets = sets(&["10.0.0.0/24", "fd00::/64"]);
        for (bad, words) in [
            ("10.0.1.5", "failed to allocate all requested IPs: 10.0.1.5"),
            ("10.0.0.0", "failed to allocate all requested IPs: 10.0.0.0"),
            ("fd01::5", "failed to allocate all requested IPs: fd01::5"),
            ("fd00::1", "failed to allocate for range 1: requested ip fd00::1 is subnet's gateway"),
            (
                "10.0.0.9",
                "failed to allocate for range 0: requested IP address 10.0.0.9 is not available in range set \
                 10.0.0.1-10.0.0.254",
            ),
        ] {
            let error = requests(&sets, &[&[ip(bad)]]).unwrap_err();
            assert_eq!((error.code(), error.msg()), (7, words));
        }
        let several = requests(&sets, &[&[ip("10.0.1.5")], &[ip("10.0.0.5"), ip("fd01::5")]]).unwrap_err();
        assert_eq!(several.msg(), "failed to allocate all requested IPs: 10.0.1.5 fd01::5");

        let leases = Fake { taken: [ip("10.0.0.5")].into(), ..Fake::default() };
        let error = choose(&sets, &[Some(ip("10.0.0.5")), None], &leases).unwrap_err();
        let words = "requested IP address 10.0.0.5 is not available in range set 10.0.0.1-10.0.0.254";
        assert_eq!(error.msg(), format!("failed to allocate for range 0: {words}"));
        assert_eq!(error.details(), "10.0.0.5 is leased to container c, interface eth0");
    }

    proptest! {
        /// Random allocations and releases. No address is allocated twice, and no request fails while an address is
        /// free.
        #[test]
        fn a_pool_allocates_each_address_once_and_is_exhausted_only_if_all_are_leased(
            steps in prop::collection::vec(0usize..20, 1..80),
        ) {
            let sets = sets(&["10.0.0.0/28"]);
            let mut leases = Fake::default();
            for step in steps {
                match choose(&sets, &[None], &leases) {
                    Ok(given) => {
                        prop_assert!(leases.taken.insert(given[0]));
                        leases.last.insert(0, given[0]);
                    }
                    Err(_) => prop_assert_eq!(leases.taken.len(), 12),
                }
                if let Some(&ip) = leases.taken.iter().nth(step) {
                    leases.taken.remove(&ip);
                }
            }
        }
    }
}
