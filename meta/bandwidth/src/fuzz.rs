//! Fuzz target of this plugin and its conditions.

#![allow(clippy::unwrap_used, reason = "a fuzz target ends with a panic")]

use cni::{AsWritten, json};
use netlink::Link;

use crate::conf::Conf;

/// The filter of an accepted limit has room for the largest packet, and CHECK accepts it.
pub fn configuration(input: &[u8]) {
    let Ok(document) = json::parse(input, "it") else { return };
    let Ok(conf) = Conf::try_from(AsWritten::from(document)) else { return };
    assert!((1..=10_000).contains(&conf.latency_ms));
    assert_eq!(conf.is_unlimited(), conf.ingress.is_none() && conf.egress.is_none());
    let link = Link { name: "veth0".to_owned(), ..Link::default() };
    for limit in [conf.ingress, conf.egress].into_iter().flatten() {
        assert!(limit.rate > 0);
        for mtu in [0, 68, 1500, 65_535, u32::MAX] {
            let raised = limit.of(mtu);
            assert!(raised.rate == limit.rate && raised.burst >= limit.burst.max(mtu));
            let tbf = raised.tbf(conf.latency_ms);
            assert!(tbf.limit >= raised.burst && (tbf.ticks == 0 || tbf.burst.is_none()));
            let held = tbf.burst.map_or(netlink::tc::Tbf::burst_of(tbf.rate, tbf.ticks), u128::from);
            assert_eq!(held, u128::from(raised.burst));
            let ticks = netlink::tc::Tbf::ticks_of(raised.rate, raised.burst) as u32;
            limit.verify(&link, mtu, &[], conf.latency_ms, &netlink::tc::Tbf { ticks, ..tbf }).unwrap();
        }
    }
}

#[test]
fn every_seed_passes() {
    seeds::replay("bandwidth", configuration);
}
