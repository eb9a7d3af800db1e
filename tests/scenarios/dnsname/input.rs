//! Hosts whose firewall drops packets to the host itself.

use lab::{Lab, beyond_reference, needs};
use serde_json::json;

use super::*;

/// Drops all packets to the host: queries of containers, and those of the host itself.
const POLICIES: [&str; 2] = [
    "iptables -P INPUT DROP; ip6tables -P INPUT DROP; ip6tables -A INPUT -p icmpv6 -j ACCEPT",
    "iptables-legacy -P INPUT DROP; ip6tables-legacy -P INPUT DROP; ip6tables-legacy -A INPUT -p icmpv6 -j ACCEPT",
];

#[test]
fn if_input_drops_containers_can_query_over_udp_and_tcp_until_the_last_one_is_deleted() {
    beyond_reference!("dnsname");
    needs!(Nftables);
    let Some(dig) = Dig::here() else { return };
    for policy in POLICIES {
        let lab = Lab::new();
        with_parents();
        lab.host().sh(policy);
        let networks = Networks::new(&lab, &[network(&json!({}))]);
        let before =
            lab.host().sh("iptables-save; iptables-legacy-save; nft list ruleset | sed 's/packets.*//'");
        let (web, own) = networks.attach(&lab, "web", &[]);
        let (db, _) = networks.attach(&lab, "db", &[]);
        for server in SERVERS {
            for way in ["+notcp", "+tcp"] {
                let found = dig.ask(&db, server, &format!("{way} web A"));
                assert_eq!(found, [bare(&own)[0].as_str()], "{policy}: {way} at {server}");
            }
        }
        let closed = db.try_exec(&["ping", "-c", "1", "-W", "1", SERVERS[0]]);
        assert!(!closed.status.success(), "nothing else is let in");
        networks.del("net", &web);
        assert_eq!(dig.ask(&db, SERVERS[0], "db A").len(), 1, "{policy}: it stays open for the other one");
        networks.tool_for("db", &[]).says("check net db --container-id db");
        networks.del("net", &db);
        let after =
            lab.host().sh("iptables-save; iptables-legacy-save; nft list ruleset | sed 's/packets.*//'");
        assert_eq!(without_counts(&after), without_counts(&before), "{policy}");
    }
}

/// A ruleset without counters and the date.
fn without_counts(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(" [").next().unwrap().to_owned()).collect()
}

#[test]
fn a_flush_of_input_is_noticed_and_repaired() {
    beyond_reference!("dnsname");
    needs!(Nftables);
    let Some(dig) = Dig::here() else { return };
    let lab = Lab::new();
    lab.host().sh(POLICIES[0]);
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let (pod, _) = networks.attach(&lab, "pod", &[]);
    lab.host().sh("iptables -F; ip6tables -F INPUT");
    let tool = networks.tool_for("pod", &[]);
    assert!(!tool.run("check net pod --container-id pod").succeeded());
    tool.says("repair net");
    tool.says("check net pod --container-id pod");
    assert_eq!(dig.ask(&pod, SERVERS[0], "pod A").len(), 1);
    networks.del("net", &pod);
}
