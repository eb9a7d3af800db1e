//! Retransmission (RFC 8415, section 15).

use std::time::Duration;

use super::message::Kind;
use crate::{Random, Time};

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// The default of the maximum interval between two SOLICITs (SOL_MAX_RT).
pub const SOL_MAX_RT: Duration = seconds(3600);

/// The parameters of an exchange (RFC 8415, section 7.6), named as there.
#[derive(Clone, Copy, Debug)]
struct Parameters {
    /// The initial interval.
    irt: Duration,
    /// The maximum interval.
    mrt: Duration,
    /// The maximum number of messages.
    mrc: Option<u32>,
    /// The maximum duration of the exchange.
    mrd: Option<Duration>,
}

impl Parameters {
    /// RENEW and REBIND have no end of their own. They end with the lease's times.
    fn of(kind: Kind, sol_max_rt: Duration) -> Self {
        let (irt, mrt, mrc, mrd) = match kind {
            Kind::Request => (1, seconds(30), Some(10), None),
            Kind::Confirm => (1, seconds(4), None, Some(seconds(10))),
            Kind::Renew | Kind::Rebind => (10, seconds(600), None, None),
            Kind::Release | Kind::Decline => (1, Duration::MAX, Some(4), None),
            _ => (1, sol_max_rt, None, None),
        };
        Self { irt: seconds(irt), mrt, mrc, mrd }
    }
}

/// How late an answer may be.
const LATEST: Duration = seconds(15);

/// A message that is repeated until there is an answer, with one transaction id.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    /// The message type.
    pub kind: Kind,
    /// The transaction id.
    pub xid: u32,
    /// When it was first sent.
    pub began: Time,
    /// How many times it was sent.
    pub count: u32,
    /// When the oldest message was sent to which an answer could still arrive. All messages have one transaction id, so
    /// a lease is counted from the oldest.
    pub first_sent: Time,
    /// When the next message is due. After the last one: when the exchange has failed.
    pub due: Time,
    last: Duration,
}

impl Exchange {
    /// An exchange whose first message is due.
    pub fn begin(kind: Kind, now: Time, random: &mut Random) -> Self {
        let xid = random.xid() & 0x00ff_ffff;
        Self { kind, xid, began: now, count: 0, first_sent: now, due: now, last: Duration::ZERO }
    }

    /// Delays the first message by up to a second (CNF_MAX_DELAY).
    pub fn delay(&mut self, random: &mut Random) {
        self.due += Duration::from_millis(random.number() % 1000);
    }

    /// Whether the exchange has failed.
    pub fn is_over(&self, now: Time) -> bool {
        let Parameters { mrc, mrd, .. } = Parameters::of(self.kind, SOL_MAX_RT);
        mrc.is_some_and(|most| self.count >= most && now >= self.due)
            || mrd.is_some_and(|longest| self.count > 0 && now >= self.began + longest)
    }

    /// When [`Exchange::is_over`] may become true, if it is not by `due`.
    pub fn end(&self) -> Option<Time> {
        Parameters::of(self.kind, SOL_MAX_RT).mrd.map(|longest| self.began + longest)
    }

    /// Counts a message.
    pub fn sent(&mut self, now: Time, sol_max_rt: Duration, random: &mut Random) {
        let Parameters { irt, mrt, .. } = Parameters::of(self.kind, sol_max_rt);
        // Servers make their offers during the first interval, so it must not be shorter than defined.
        let only_longer = self.kind == Kind::Solicit && self.count == 0;
        let mut next = match self.count {
            0 => spread(irt, Duration::ZERO, only_longer, random),
            _ => spread(self.last, self.last, false, random),
        };
        if next > mrt {
            next = spread(mrt, Duration::ZERO, false, random);
        }
        if self.count == 0 || self.last > LATEST {
            self.first_sent = now;
        }
        self.count = self.count.saturating_add(1);
        (self.last, self.due) = (next, now + next);
    }
}

/// A time plus `more`, ±10%.
fn spread(time: Duration, more: Duration, only_longer: bool, random: &mut Random) -> Duration {
    let tenth = u64::try_from((time / 10).as_millis()).unwrap_or(u64::MAX);
    let around = random.number() % (2 * tenth + 1);
    let around = if only_longer { tenth + 1 + around % tenth.max(1) } else { around };
    (time + more + Duration::from_millis(around)).saturating_sub(Duration::from_millis(tenth))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The intervals between `count` messages, in seconds.
    fn gaps(kind: Kind, count: usize, seed: u64) -> Vec<f64> {
        let (mut now, mut random) = (Time::default(), Random::seeded(seed));
        let mut exchange = Exchange::begin(kind, now, &mut random);
        let mut gaps = Vec::new();
        for _ in 0..count {
            exchange.sent(now, SOL_MAX_RT, &mut random);
            gaps.push(exchange.due.since(now).as_secs_f64());
            now = exchange.due;
        }
        gaps
    }

    #[test]
    fn times_double_up_to_the_longest_and_are_spread_by_a_tenth() {
        for seed in 0..100 {
            for (kind, first, longest) in
                [(Kind::Solicit, 1.0, 3600.0), (Kind::Request, 1.0, 30.0), (Kind::Renew, 10.0, 600.0)]
            {
                let gaps = gaps(kind, 20, seed);
                assert!((gaps[0] - first).abs() <= first / 10.0 + 0.001, "{kind:?} {gaps:?}");
                assert!(kind != Kind::Solicit || gaps[0] > first, "{gaps:?}");
                assert!(gaps.iter().all(|gap| *gap <= longest * 1.1 + 0.001), "{kind:?} {gaps:?}");
                for pair in gaps.windows(2).filter(|pair| pair[0] < longest * 0.4) {
                    assert!((1.9..=2.1001).contains(&(pair[1] / pair[0])), "{kind:?} {gaps:?}");
                }
            }
        }
    }

    #[test]
    fn an_exchange_ends_by_count_or_by_time() {
        let (mut now, mut random) = (Time::default(), Random::seeded(1));
        for (kind, sends) in [(Kind::Request, 10), (Kind::Release, 4), (Kind::Decline, 4)] {
            let mut exchange = Exchange::begin(kind, now, &mut random);
            while !exchange.is_over(now) {
                exchange.sent(now, SOL_MAX_RT, &mut random);
                now = exchange.due;
            }
            assert_eq!(exchange.count, sends, "{kind:?}");
        }
        let mut confirm = Exchange::begin(Kind::Confirm, now, &mut random);
        confirm.sent(now, SOL_MAX_RT, &mut random);
        assert!(!confirm.is_over(now + seconds(9)) && confirm.is_over(now + seconds(10)));
    }
}
