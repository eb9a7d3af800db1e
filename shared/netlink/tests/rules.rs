//! Policy rules, as `ip rule` sees them.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "tests")]

mod common;

use common::{lab, sh};
use netlink::Rule;

#[test]
fn a_fresh_namespace_has_the_kernels_rules() {
    lab(|lab| {
        let tables: Vec<_> =
            lab.host.rules().unwrap().iter().map(|r| (r.ipv6, r.priority, r.table)).collect();
        let v4 = [(false, Some(0), 255), (false, Some(32766), 254), (false, Some(32767), 253)];
        assert_eq!(tables[..3], v4);
        assert_eq!(tables[3..], [(true, Some(0), 255), (true, Some(32766), 254)]);
    });
}

#[test]
fn a_rule_has_all_that_was_asked_for() {
    lab(|lab| {
        let rule = Rule {
            priority: Some(100),
            dst: Some("198.51.100.0/24".parse().unwrap()),
            input: Some("lo".into()),
            mark: Some(7),
            ..Rule::from_source("192.0.2.7/32".parse().unwrap(), 1000)
        };
        lab.host.add_rule(&rule).unwrap();
        let shown = sh("ip rule show priority 100");
        assert_eq!(shown.trim(), "100:\tfrom 192.0.2.7 to 198.51.100.0/24 fwmark 0x7 iif lo lookup 1000");
        assert!(lab.host.rules().unwrap().contains(&rule));
        let error = lab.host.add_rule(&rule).unwrap_err();
        assert!(error.is_exists());
        assert_eq!(
            error.to_string(),
            "add policy rule from 192.0.2.7/32 to 198.51.100.0/24 fwmark 0x7 iif lo lookup 1000: File exists"
        );
        lab.host.delete_rule(&rule).unwrap();
        lab.host.delete_rule(&rule).unwrap();
        assert_eq!(sh("ip rule show priority 100"), "");
    });
}

#[test]
fn a_rule_is_deleted_whatever_its_priority() {
    lab(|lab| {
        let rule = Rule::from_source("2001:db8::7/128".parse().unwrap(), 1000);
        lab.host.add_rule(&rule).unwrap();
        let listed = lab.host.rules().unwrap();
        let found = listed.iter().find(|r| r.table == 1000).unwrap();
        assert_eq!((found.ipv6, found.src, found.priority), (true, rule.src, Some(32765)));
        lab.host.delete_rule(&rule).unwrap();
        assert!(lab.host.rules().unwrap().iter().all(|r| r.table != 1000));
    });
}
