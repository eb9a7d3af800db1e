//! Random numbers. A test can repeat them.

use std::time::Duration;

use rustix::rand::{GetRandomFlags, getrandom};

/// A small generator (SplitMix64) for retransmission intervals and transaction ids. No secret depends on it.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator with a fixed seed.
    pub const fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator that the kernel seeds.
    pub fn from_kernel() -> Self {
        let mut seed = [0; 8];
        // If the kernel has no entropy early at boot, the clock and the process id are the seed.
        if getrandom(&mut seed, GetRandomFlags::NONBLOCK).is_err() {
            let clock = crate::Time::now().since(crate::Time::default()).as_nanos().to_ne_bytes();
            seed.copy_from_slice(&clock[..8]);
        }
        Self(u64::from_ne_bytes(seed))
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next transaction id.
    pub fn xid(&mut self) -> u32 {
        (self.number() >> 32) as u32
    }

    /// A duration ±1 s.
    pub fn around(&mut self, span: Duration) -> Duration {
        (span + Duration::from_millis(self.number() % 2001)).saturating_sub(Duration::from_secs(1))
    }
}
