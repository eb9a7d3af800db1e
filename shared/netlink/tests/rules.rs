//! Rules, compared with `ip rule`.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "tests")]

mod common;

use common::{lab, sh};
use netlink::Rule;

fn rule(source: &str, table: u32) -> Rule {
    Rule::from_source(source.parse().unwrap(), table)
}

#[test]
fn a_rule_of_each_family_is_created_listed_and_deleted() {
    lab(|lab| {
        let before = lab.host.rules().unwrap();
        for (family, one, shown) in [
            ("4", rule("10.0.0.2/32", 100), "from 10.0.0.2 lookup 100"),
            (
                "6",
                Rule { protocol: 230, ..rule("fd00::2/128", 4_000_000_000) },
                "from fd00::2 lookup 4000000000 proto 230",
            ),
        ] {
            lab.host.add_rule(&one).unwrap();
            assert!(sh(&format!("ip -{family} rule")).contains(shown));
            let listed = lab.host.rules().unwrap();
            let found = listed.iter().find(|rule| rule.source == one.source).unwrap();
            assert_eq!((found.table, found.protocol, found.has_more), (one.table, one.protocol, false));
            assert!(found.priority.is_some());
            lab.host.delete_rule(&one).unwrap();
            lab.host.delete_rule(&one).unwrap();
        }
        assert_eq!(lab.host.rules().unwrap(), before);
    });
}

#[test]
fn other_conditions_of_a_rule_are_noticed() {
    lab(|lab| {
        sh("ip rule add from 10.0.0.2 lookup 100 priority 7");
        sh("ip rule add from 10.0.0.3 to 10.9.0.0/16 lookup 101");
        sh("ip rule add from 10.0.0.3 fwmark 1 lookup 101");
        sh("ip rule add from 10.0.0.3 iif lo lookup 101");
        sh("ip rule add not from 10.0.0.3 lookup 101");
        sh("ip rule add from 10.0.0.3 blackhole");
        sh("ip rule add from 10.0.0.3 lookup 101 suppress_prefixlength 0");
        let rules = lab.host.rules().unwrap();
        let of = |source: &str| {
            let source = Some(source.parse().unwrap());
            rules.iter().filter(move |rule| rule.source == source).copied().collect::<Vec<_>>()
        };
        assert_eq!(of("10.0.0.2/32"), [Rule { priority: Some(7), ..rule("10.0.0.2/32", 100) }]);
        let others = of("10.0.0.3/32");
        assert!(others.len() == 6 && others.iter().all(|rule| rule.has_more), "{others:?}");
    });
}
