//! A rate limit and its token bucket filter (tc-tbf(8)).

use std::ops::RangeInclusive;

use cni::Result;
use iface::verify;
use netlink::Link;
use netlink::tc::Tbf;

/// Handle of Ferrule's filters: `tc` shows `c41:`. The reference's is 1.
pub const HANDLE: u32 = 0xc41_0000;

/// Length of an Ethernet header in bytes, which the kernel counts.
const ETHERNET: u32 = 14;

/// Rate and burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Bytes per second, at least 1.
    pub rate: u64,
    /// In bytes.
    pub burst: u32,
}

impl Limit {
    /// The limit for an MTU: a burst without room for the largest packet would never let one pass, so it is raised.
    pub fn of(&self, mtu: u32) -> Self {
        Self { burst: self.burst.max(mtu.saturating_add(ETHERNET)), ..*self }
    }

    /// Bytes that may wait while the bucket is empty.
    fn waiting(&self, latency_ms: u32) -> u128 {
        u128::from(self.rate) * u128::from(latency_ms) / 1000
    }

    /// The filter. Packets that arrive while the bucket is empty wait at most `latency_ms`.
    pub fn tbf(&self, latency_ms: u32) -> Tbf {
        let limit = u32::try_from(self.waiting(latency_ms) + u128::from(self.burst)).unwrap_or(u32::MAX);
        // The time to fill the bucket in whole microseconds, as the reference passes it, because its CHECK compares the numbers. The number
        // holds at most 275 seconds, and on fast links rounding makes the burst smaller; the bytes are then passed instead.
        let microseconds = self.microseconds();
        let ticks = u32::try_from(microseconds * 1000 / 64).ok();
        let held = ticks.map(|ticks| Tbf::burst_of(self.rate, ticks));
        match ticks.filter(|_| held == Some(u128::from(self.burst))) {
            Some(ticks) => Tbf { rate: self.rate, limit, ticks, burst: None },
            None => Tbf { rate: self.rate, limit, ticks: 0, burst: Some(self.burst) },
        }
    }

    /// The time to fill the bucket.
    fn microseconds(&self) -> u128 {
        u128::from(self.burst) * 1_000_000 / u128::from(self.rate.max(1))
    }

    /// Checks a filter's parameters. `earlier`: MTUs that ADD may have found. Larger ones than the present one leave room for its packets.
    ///
    /// # Errors
    /// If they differ.
    pub fn verify(
        &self,
        link: &Link,
        mtu: u32,
        earlier: &[RangeInclusive<u32>],
        latency_ms: u32,
        found: &Tbf,
    ) -> Result<()> {
        verify::same(link, "rate (bytes per second)", self.rate, found.rate)?;
        let now = self.of(mtu);
        let larger = self
            .mtu_of(latency_ms, found)
            .filter(|of_filter| *of_filter > mtu && earlier.iter().any(|mtus| mtus.contains(of_filter)));
        let larger = larger.map(|mtu| self.of(mtu));
        // The reference does not raise a burst.
        let mut all = [now].into_iter().chain(larger).chain([*self]);
        let limit = all.find(|limit| limit.tbf(latency_ms).limit == found.limit).unwrap_or(now);
        let bytes = limit.tbf(latency_ms).limit;
        // Larger numbers than the kernel's become the largest one. The reference cuts them, depending on the processor.
        if bytes < u32::MAX {
            verify::same(link, "queue limit (bytes)", bytes, found.limit)?;
        }
        if limit.has_ticks(found.ticks) {
            return Ok(());
        }
        let burst = u64::try_from(Tbf::burst_of(self.rate, found.ticks)).unwrap_or(u64::MAX);
        Err(verify::differs(link, "burst (bytes)", &limit.burst.to_string(), &burst.to_string()))
    }

    /// The MTU for which a burst was raised, according to a filter's parameters.
    fn mtu_of(&self, latency_ms: u32, found: &Tbf) -> Option<u32> {
        let burst = u128::from(found.limit).checked_sub(self.waiting(latency_ms))?;
        u32::try_from(burst).ok()?.checked_sub(ETHERNET)
    }

    /// Whether the kernel's number is that of the burst. The kernel reports the lower 32 bits and rounds. The reference rounds to
    /// microseconds, and passes the lower 32 bits of them.
    fn has_ticks(&self, found: u32) -> bool {
        let all = Tbf::ticks_of(self.rate, self.burst);
        let of_reference = u128::from(self.microseconds() as u32) * 1000 / 64;
        let tolerated = 16 + (all >> 24);
        [all, of_reference].into_iter().any(|expected| {
            let lost = (expected as u32).wrapping_sub(found);
            u128::from(lost.min(lost.wrapping_neg())) <= tolerated
        })
    }
}

#[cfg(test)]
mod tests {
    use iface::conf::MTUS;

    use super::*;

    fn link() -> Link {
        Link { name: "veth0".into(), ..Link::default() }
    }

    #[test]
    fn a_burst_has_room_for_a_packet() {
        let limit = Limit { rate: 1000, burst: 1513 };
        assert_eq!(limit.of(1500).burst, 1514);
        assert_eq!(limit.of(1400).burst, 1513);
        assert_eq!(limit.of(u32::MAX).burst, u32::MAX);
    }

    #[test]
    fn the_filter_has_the_references_numbers_where_they_are_right() {
        let tbf = Limit { rate: 1_000_000, burst: 100_000 }.tbf(25);
        assert_eq!(tbf, Tbf { rate: 1_000_000, limit: 125_000, ticks: 1_562_500, burst: None });
        let tbf = Limit { rate: 1_000_000, burst: 100_000 }.tbf(100);
        assert_eq!(tbf.limit, 200_000);
    }

    #[test]
    fn a_burst_that_does_not_fit_into_ticks_is_passed_in_bytes() {
        // kubelet's burst at 1 Mbit/s takes 2147 s; a packet at 1 Gbit/s takes 12.1 microseconds.
        for (rate, burst) in [(125_000, (1 << 28) - 1), (125_000_000, 1514), (u64::MAX / 8, 1514)] {
            let tbf = Limit { rate, burst }.tbf(25);
            assert_eq!((tbf.ticks, tbf.burst), (0, Some(burst)));
        }
        assert_eq!(Limit { rate: u64::MAX / 8, burst: 1 }.tbf(10_000).limit, u32::MAX);
    }

    #[test]
    fn check_accepts_rounded_and_truncated_values_of_the_kernel() {
        let (rate, burst) = (125_000, (1 << 28) - 1);
        let limit = Limit { rate, burst };
        let all = Tbf::ticks_of(rate, burst);
        let found = |ticks| Tbf { ticks, ..limit.tbf(25) };
        let verify = |ticks| limit.verify(&link(), 1500, &[], 25, &found(ticks));
        assert!(
            verify(all as u32).is_ok() && verify(all as u32 - 15).is_ok() && verify(all as u32 + 100).is_ok()
        );
        let error = verify((all as u32).wrapping_sub(1 << 20)).unwrap_err();
        assert!(error.msg().contains("link veth0: burst (bytes) is"), "{error}");
    }

    #[test]
    fn check_accepts_a_burst_that_add_has_raised_for_a_larger_mtu_and_no_other() {
        let limit = Limit { rate: 125_000, burst: 1000 };
        let verify_with = |earlier: &[_], burst, mtu| {
            let made = Limit { burst, ..limit };
            let ticks = Tbf::ticks_of(made.rate, made.burst) as u32;
            limit.verify(&link(), mtu, earlier, 25, &Tbf { ticks, ..made.tbf(25) })
        };
        let verify = |burst, mtu| verify_with(&[1400..=1400, 1500..=1500], burst, mtu);
        verify(1514, 1400).unwrap();
        // The packets of the link would not pass.
        verify(1414, 1500).unwrap_err();
        verify(1515, 1400).unwrap_err();
        verify(60_000, 1500).unwrap_err();
        // With any MTU.
        let verify = |burst, mtu| verify_with(&[MTUS], burst, mtu);
        verify(1515, 1400).unwrap();
        verify(65_549, 1400).unwrap();
        verify(65_550, 1400).unwrap_err();
        verify(1413, 1400).unwrap_err();
        let large = Limit { burst: 100_000, ..limit };
        assert!(large.verify(&link(), 1500, &[MTUS], 25, &Limit { burst: 60_000, ..limit }.tbf(25)).is_err());
    }

    #[test]
    fn check_accepts_a_burst_that_the_reference_did_not_raise() {
        let limit = Limit { rate: 125_000, burst: 1000 };
        for made in [limit, limit.of(1500)] {
            let ticks = Tbf::ticks_of(made.rate, made.burst) as u32;
            limit.verify(&link(), 1500, &[], 25, &Tbf { ticks, ..made.tbf(25) }).unwrap();
        }
        // kubelet's burst at 100 kbit/s takes more than 32 bits of microseconds.
        let slow = Limit { rate: 12_500, burst: (1 << 28) - 1 };
        slow.verify(&link(), 1500, &[], 25, &Tbf { ticks: 2_684_353_310, ..slow.tbf(25) }).unwrap();
        let fast = Limit { rate: 1_250_000_000_000, burst: (1 << 28) - 1 };
        let ticks = Tbf::ticks_of(fast.rate, fast.burst) as u32;
        fast.verify(&link(), 1500, &[], 25, &Tbf { limit: 1_453_664_383, ticks, ..fast.tbf(25) }).unwrap();
        let other = Tbf { limit: 1, ..limit.tbf(25) };
        assert!(limit.verify(&link(), 1500, &[], 25, &other).is_err());
        let slower = Tbf { rate: 1, ..limit.tbf(25) };
        assert!(limit.verify(&link(), 1500, &[], 25, &slower).unwrap_err().msg().contains("rate"));
    }
}
