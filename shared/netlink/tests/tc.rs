//! Queueing disciplines and filters.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "tests")]

mod common;

use common::{lab, pair, sh};
use netlink::tc::{Redirect, Tbf};
use netlink::{LinkKind, NewLink};

const HANDLE: u32 = 0xc41_0000;

#[test]
fn a_bucket_is_set_once_replaced_and_put_back() {
    lab(|lab| {
        let (link, _) = pair(&lab.host, "veth0", "veth1");
        assert_eq!(lab.host.root_qdisc(&link).unwrap(), None);
        let tbf = |rate| Tbf { rate, limit: 10_000, ticks: 1_562_500, burst: None };
        lab.host.add_tbf(&link, HANDLE, &tbf(1_000_000)).unwrap();
        assert!(lab.host.add_tbf(&link, HANDLE, &tbf(2_000_000)).unwrap_err().is_exists());
        let first = lab.host.root_qdisc(&link).unwrap().unwrap();
        assert_eq!((first.handle, first.tbf()), (HANDLE, Some(tbf(1_000_000))));
        lab.host.replace_tbf(&link, HANDLE, &tbf(10_000_000_000)).unwrap();
        let shown = sh("tc qdisc show dev veth0");
        assert!(shown.contains("tbf c41: root") && shown.contains("rate 80Gbit"), "{shown}");
        lab.host.restore_qdisc(&link, &first).unwrap();
        assert_eq!(lab.host.root_qdisc(&link).unwrap(), Some(first));
        lab.host.delete_tbf(&link, HANDLE + 0x1_0000).unwrap();
        assert!(lab.host.root_qdisc(&link).unwrap().is_some());
        for _ in 0..2 {
            lab.host.delete_tbf(&link, HANDLE).unwrap();
            assert_eq!(lab.host.root_qdisc(&link).unwrap(), None);
        }
    });
}

/// The time to fill it would be 33 554 431 875 ticks.
#[test]
fn a_bucket_with_a_fill_time_over_32_bits_keeps_its_size() {
    lab(|lab| {
        let (link, _) = pair(&lab.host, "veth0", "veth1");
        let burst = (1 << 28) - 1;
        let tbf = Tbf { rate: 125_000, limit: u32::MAX, ticks: 0, burst: Some(burst) };
        lab.host.add_tbf(&link, HANDLE, &tbf).unwrap();
        let read = lab.host.root_qdisc(&link).unwrap().and_then(|qdisc| qdisc.tbf()).unwrap();
        let lost = (Tbf::ticks_of(125_000, burst) as u32).abs_diff(read.ticks);
        assert!(lost < 128, "{lost} ticks");
    });
}

#[test]
fn received_packets_are_redirected_and_other_filters_are_kept() {
    lab(|lab| {
        let (link, _) = pair(&lab.host, "veth0", "veth1");
        assert_eq!(lab.host.filters(&link, false).unwrap(), []);
        assert_eq!(lab.host.filters(&link, true).unwrap(), []);
        let made = lab.host.create_link(&NewLink::new("ifb7", LinkKind::Ifb)).unwrap();
        assert_eq!(made.kind, Some(LinkKind::Ifb));
        sh("tc qdisc add dev veth0 ingress");
        assert!(lab.host.add_clsact(&link).unwrap_err().is_exists());
        lab.host.delete_clsact(&link).unwrap();
        assert!(sh("tc qdisc show dev veth0").contains("ingress"));
        sh("tc qdisc del dev veth0 ingress");
        lab.host.add_clsact(&link).unwrap();
        assert!(lab.host.add_clsact(&link).unwrap_err().is_exists());
        sh("tc filter add dev veth0 egress u32 match u32 0 0 flowid 1:7");
        sh("tc filter add dev veth0 ingress prio 49152 protocol all u32 match u32 0 0 flowid 1:7");
        let before = lab.host.filters(&link, false).unwrap();
        let redirect = Redirect { precedence: 49153, class: 0xc41_0001, to: made.index };
        lab.host.add_redirect(&link, &redirect).unwrap();
        let is_own = |filter: &&netlink::tc::Filter| filter.class == Some(0xc41_0001);
        let all = lab.host.filters(&link, false).unwrap();
        let own = all.iter().find(is_own).unwrap();
        assert_eq!((own.precedence, &own.redirects[..]), (49153, &[made.index][..]));
        lab.host.delete_link(&made).unwrap();
        let all = lab.host.filters(&link, false).unwrap();
        assert_eq!(all.iter().find(is_own).unwrap().redirects, [0]);
        assert!(own.decides() && all.iter().filter(|filter| filter.decides()).count() == 3);
        lab.host.delete_filter(own).unwrap();
        assert!(!lab.host.filters(&link, false).unwrap().iter().any(|filter| is_own(&filter)));
        let precedence = netlink::tc::Filter { handle: 0, ..own.clone() };
        for _ in 0..2 {
            lab.host.delete_filter(own).unwrap();
            lab.host.delete_filter(&precedence).unwrap();
        }
        assert_eq!(lab.host.filters(&link, false).unwrap(), before);
        assert!(!lab.host.filters(&link, true).unwrap().is_empty());
        lab.host.delete_clsact(&link).unwrap();
        lab.host.delete_clsact(&link).unwrap();
        assert_eq!(lab.host.filters(&link, false).unwrap(), []);
    });
}
