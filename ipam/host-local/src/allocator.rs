//! Which addresses an attachment gets: one of each range set. Decided here, on a view of the leases, before any is
//! written.

use std::net::IpAddr;

use cni::{Code, Error, Result};

use crate::range::RangeSet;

/// What must be known of the leases to choose an address.
pub trait Leases {
    /// The address that was last given out of a range set, if that is known.
    fn last_reserved(&self, set: usize) -> Option<IpAddr>;

    /// Whether an address is leased.
    ///
    /// # Errors
    /// What kept the answer from being found.
    fn is_taken(&self, ip: IpAddr) -> Result<bool>;

    /// Who holds the lease of an address, in words.
    fn holder(&self, ip: IpAddr) -> String;
}

/// Finds the address that is asked for in each range set. The sources come with the weakest first: where two ask for
/// an address of the same range set, the later one wins.
///
/// # Errors
/// Code 7 for an address that no range set can give, and for two of one range set in the same source.
pub fn requests(sets: &[RangeSet], sources: &[&[IpAddr]]) -> Result<Vec<Option<IpAddr>>> {
    let mut wanted = vec![None; sets.len()];
    for source in sources {
        let mut here: Vec<Option<IpAddr>> = vec![None; sets.len()];
        for &ip in *source {
            let set = set_of(sets, ip)?;
            match here[set].replace(ip) {
                Some(other) if other != ip => return Err(both_asked(other, ip, &sets[set])),
                _ => {}
            }
        }
        for (wanted, here) in wanted.iter_mut().zip(here) {
            *wanted = here.or(*wanted);
        }
    }
    Ok(wanted)
}

fn set_of(sets: &[RangeSet], ip: IpAddr) -> Result<usize> {
    let found = sets.iter().enumerate().find_map(|(i, set)| Some((i, set.range_of(ip)?)));
    let Some((set, range)) = found else {
        let all: Vec<String> = sets.iter().map(ToString::to_string).collect();
        return Err(Error::config(format!("requested address {ip} is in none of the ranges"))
            .detail(format!("ranges: {}", all.join(", "))));
    };
    if ip == range.gateway {
        return Err(Error::config(format!("requested address {ip} is the gateway of {}", range.subnet)));
    }
    if !range.may_lease(ip) {
        return Err(Error::config(format!(
            "requested address {ip} is excluded or reserved in {}",
            range.subnet
        )));
    }
    Ok(set)
}

fn both_asked(one: IpAddr, other: IpAddr, set: &RangeSet) -> Error {
    Error::config(format!("requested addresses {one} and {other} are of the same range set {set}"))
        .detail("an attachment gets one address of each range set")
}

/// Chooses an address of each range set: the requested one, else the next free one after the last given out.
///
/// # Errors
/// Code 999 if a requested address is taken, or a range set is exhausted.
pub fn choose(sets: &[RangeSet], wanted: &[Option<IpAddr>], leases: &impl Leases) -> Result<Vec<IpAddr>> {
    let each = sets.iter().zip(wanted).enumerate();
    each.map(|(index, (set, wanted))| match wanted {
        Some(ip) => take(*ip, leases),
        None => next_free(set, leases.last_reserved(index), leases),
    })
    .collect()
}

fn take(ip: IpAddr, leases: &impl Leases) -> Result<IpAddr> {
    if leases.is_taken(ip)? {
        let text = format!("requested address {ip} is taken by {}", leases.holder(ip));
        return Err(Error::new(Code::Internal, text));
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

/// The error of a range set without a free address.
pub fn exhausted(set: &RangeSet) -> Error {
    Error::new(Code::Internal, format!("no free address in range set {set}"))
        .detail(format!("all {} are leased", set.capacity()))
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
    fn each_range_set_gives_the_next_free_address_after_its_last() {
        let sets = sets(&["10.0.0.0/24", "fd00::/64"]);
        let mut leases = Fake::default();
        assert_eq!(choose(&sets, &[None; 2], &leases).unwrap(), [ip("10.0.0.2"), ip("fd00::2")]);
        leases.last = [(0, ip("10.0.0.7")), (1, ip("fd00::5"))].into();
        leases.taken = [ip("10.0.0.8"), ip("fd00::6"), ip("fd00::7")].into();
        assert_eq!(choose(&sets, &[None; 2], &leases).unwrap(), [ip("10.0.0.10"), ip("fd00::8")]);
    }

    #[test]
    fn a_full_range_set_is_named() {
        let sets = sets(&["10.0.0.0/30"]);
        let leases = Fake { taken: [ip("10.0.0.2")].into(), ..Fake::default() };
        let error = choose(&sets, &[None], &leases).unwrap_err();
        assert_eq!((error.code(), error.msg()), (999, "no free address in range set 10.0.0.0/30"));
    }

    #[test]
    fn a_requested_address_is_given_from_its_own_set_and_the_others_choose() {
        let sets = sets(&["10.0.0.0/24", "fd00::/64"]);
        let wanted = requests(&sets, &[&[ip("fd00::77")]]).unwrap();
        assert_eq!(choose(&sets, &wanted, &Fake::default()).unwrap(), [ip("10.0.0.2"), ip("fd00::77")]);
    }

    #[test]
    fn a_later_source_wins_within_a_range_set_and_leaves_the_others_alone() {
        let sets = sets(&["10.0.0.0/24", "fd00::/64"]);
        let sources: [&[IpAddr]; 3] =
            [&[ip("10.0.0.5"), ip("fd00::5")], &[ip("10.0.0.6")], &[ip("10.0.0.7"), ip("10.0.0.7")]];
        assert_eq!(requests(&sets, &sources).unwrap(), [Some(ip("10.0.0.7")), Some(ip("fd00::5"))]);
        let both = requests(&sets, &[&[ip("10.0.0.5"), ip("10.0.0.6")]]).unwrap_err();
        assert!(both.msg().contains("10.0.0.5 and 10.0.0.6"), "{both}");
    }

    #[test]
    fn a_requested_address_that_cannot_be_given_is_refused_by_name() {
        let sets = sets(&["10.0.0.0/24"]);
        for (bad, why) in [
            ("10.0.1.5", "10.0.1.5 is in none"),
            ("10.0.0.0", "10.0.0.0 is in none"),
            ("10.0.0.1", "10.0.0.1 is the gateway"),
            ("10.0.0.9", "10.0.0.9 is excluded"),
            ("fd00::5", "fd00::5 is in none"),
        ] {
            let error = requests(&sets, &[&[ip(bad)]]).unwrap_err();
            assert_eq!(error.code(), 7);
            assert!(error.msg().contains(why), "{error}");
        }
        let leases = Fake { taken: [ip("10.0.0.5")].into(), ..Fake::default() };
        let error = choose(&sets, &[Some(ip("10.0.0.5"))], &leases).unwrap_err();
        assert!(error.msg().ends_with("10.0.0.5 is taken by container c, interface eth0"), "{error}");
    }

    proptest! {
        /// Given out and taken back at random: no address is given twice, and none is refused while one is free.
        #[test]
        fn a_pool_gives_each_address_once_and_is_exhausted_only_when_all_are_taken(
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
