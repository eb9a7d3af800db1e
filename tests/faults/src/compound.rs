//! Two faults in one run: a system call of an ADD fails, and then one of the rollback.

use std::time::SystemTime;
use std::{env, fmt};

use crate::case::{Case, Syscall, calls_after_fault, faults};
use crate::fixture::Fixture;
use crate::pool::{self, Job, Outcomes};
use crate::target::{Hit, Target};
use crate::verify::{self, Cleanup, Verdict};

/// A sample of all pairs, because there are too many.
#[derive(Clone, Debug)]
pub struct CompoundSweep {
    pub targets: Vec<Target>,
    /// The number of pairs for each target.
    pub pairs: u64,
    /// The same seed selects the same pairs.
    pub seed: u64,
    pub workers: usize,
}

/// `FERRULE_SEED`.
pub fn given_seed() -> Option<u64> {
    env::var("FERRULE_SEED").ok()?.parse().ok()
}

/// `FERRULE_SEED`, or a random seed. Print it: it selects the same pairs, or the same sample, again.
pub fn any_seed() -> u64 {
    if let Some(seed) = given_seed() {
        return seed;
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    mix(u64::from(now.subsec_nanos()) ^ now.as_secs()) >> 32
}

/// How many first faults are tried until an ADD fails and both calls of a pair are reached. A pair that is not reached then is
/// counted as such.
const TRIES: usize = 30;

/// Two faults of one run.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub first: Case,
    pub second: Case,
}

impl CompoundSweep {
    /// Whether a target's rollback can be hit. The caller of a delegate or a tool does the rollback for it.
    pub fn fits(target: &Target) -> bool {
        matches!(target.hit, Hit::Plugin | Hit::Runtime)
    }

    /// Runs all pairs. Calls `report` with each finding. The counts are by target.
    pub fn run(&self, report: impl Fn(&str) + Sync) -> Outcomes<usize> {
        let targets = self.targets.iter().enumerate();
        let jobs = targets.flat_map(|(index, target)| {
            (0..self.pairs).map(move |number| Attempt { index, target, number, seed: self.seed })
        });
        pool::run(self.workers, &jobs.collect::<Vec<_>>(), report)
    }
}

/// One pair. It is selected when the calls are known.
struct Attempt<'a> {
    index: usize,
    target: &'a Target,
    number: u64,
    seed: u64,
}

impl Attempt<'_> {
    fn random(&self) -> u64 {
        let name = self.target.title().bytes().fold(self.seed, |hash, byte| mix(hash ^ u64::from(byte)));
        mix(name ^ self.number)
    }

    /// Selects a fault of the following rollback. None: the ADD succeeded nevertheless, or had nothing to roll back.
    fn second(&self, fixture: &Fixture, first: Case, random: &mut u64) -> Option<Pair> {
        let failed = !fixture.trace_all(&first).succeeded();
        let stderr = self.target.is_runtime();
        let after = calls_after_fault(&fixture.trace(), if stderr { 2 } else { 1 });
        fixture.del().ok();
        let second = pick(faults(&after).into_iter().filter(|second| fits(second, &first)).collect(), random);
        second.filter(|_| failed).map(|second| Pair { first, second })
    }
}

/// strace can inject only one kind of failure into calls of the same name.
fn fits(second: &Case, first: &Case) -> bool {
    second.at.name != first.at.name || second.fault == first.fault
}

fn pick(mut cases: Vec<Case>, random: &mut u64) -> Option<Case> {
    *random = mix(*random);
    let count = u64::try_from(cases.len()).ok().filter(|count| *count > 0)?;
    Some(cases.swap_remove(usize::try_from(*random % count).ok()?))
}

/// A step of SplitMix64.
pub(crate) fn mix(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Pair {
    /// The values of strace's `-e`.
    pub(crate) fn injection(&self) -> String {
        let Syscall { name, nth } = &self.first.at;
        let second = self.second.at.nth;
        if *name != self.second.at.name {
            return format!("{} -e {}", self.first.injection(), self.second.injection());
        }
        let once = self.first.injection();
        let call = once.rsplit_once('=').map_or("", |(call, _)| call);
        format!("{call}={nth}..{second}+{}", second - nth)
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, then {} in the roll-back", self.first, self.second)
    }
}

impl Job for Attempt<'_> {
    type Row = usize;

    fn row(&self) -> usize {
        self.index
    }

    fn fixture_index(&self) -> usize {
        self.index
    }

    fn fixture(&self) -> Fixture {
        Fixture::new(self.target)
    }

    fn verify(&self, fixture: &Fixture) -> Option<Verdict> {
        // cnitool's GC looks for dead containers, and those of the sweeps are alive.
        let cleanup = if self.number.is_multiple_of(2) || self.target.is_runtime() {
            Cleanup::Del
        } else {
            Cleanup::Gc
        };
        let firsts = faults(&fixture.calls_of("ADD"));
        let mut random = self.random();
        (0..TRIES).find_map(|_| {
            let first = pick(firsts.clone(), &mut random)?;
            let pair = self.second(fixture, first, &mut random)?;
            verify::pair(fixture, &pair, cleanup)
        })
    }

    fn title(&self) -> String {
        format!("{} ADD, pair {} of seed {}", self.target.title(), self.number, self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Fault;

    fn case(name: &str, nth: u32, errno: &'static str) -> Case {
        Case { at: Syscall { name: name.to_owned(), nth }, fault: Fault::Error(errno) }
    }

    #[test]
    fn two_calls_of_one_name_fail_and_none_between_them() {
        let pair = |first, second| Pair { first, second }.injection();
        let (one, other) = (case("sendto", 3, "EPERM"), case("sendto", 7, "EPERM"));
        assert_eq!(pair(one.clone(), other), "inject=sendto:error=EPERM:when=3..7+4");
        let other = case("unlinkat", 1, "EIO");
        assert_eq!(pair(one, other), "inject=sendto:error=EPERM:when=3 -e inject=unlinkat:error=EIO:when=1");
    }

    #[test]
    fn a_seed_chooses_the_same_again_and_another_one_chooses_otherwise() {
        let cases = || (0..50).map(|nth| case("sendto", nth, "EPERM")).collect::<Vec<_>>();
        let chosen = |seed| pick(cases(), &mut { seed });
        assert_eq!(chosen(1), chosen(1));
        assert!((2..20).any(|seed| chosen(seed) != chosen(1)));
    }
}
