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
        let before = rules(&lab);
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
        assert_eq!(rules(&lab), before, "{policy}");
    }
}

/// All rules of the host, without counters and the date.
fn rules(lab: &Lab) -> Vec<String> {
    let text = lab.host().sh("iptables-save; iptables-legacy-save; nft list ruleset | sed 's/packets.*//'");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(" [").next().unwrap().to_owned()).collect()
}

/// A network of ptp: each container is behind its own interface of the host.
fn on_ptp() -> Value {
    let mut ipam = host_local(&[&["10.1.2.0/24"]]);
    ipam["routes"] = json!([{"dst": "0.0.0.0/0"}]);
    chained("net", &json!({"type": "ptp", "ipam": ipam}), &json!({}))
}

#[test]
fn if_input_drops_each_container_of_ptp_can_query_until_its_own_del() {
    beyond_reference!("dnsname");
    needs!(Nftables);
    let Some(dig) = Dig::here() else { return };
    for policy in POLICIES {
        let lab = Lab::new();
        lab.host().sh(policy);
        let networks = Networks::new(&lab, &[on_ptp()]);
        let before = rules(&lab);
        let [(web, of_web), (db, of_db)] = ["web", "db"].map(|name| networks.attach(&lab, name, &[]));
        for way in ["+notcp", "+tcp"] {
            for (pod, name, result) in [(&web, "db", &of_db), (&db, "web", &of_web)] {
                let found = dig.ask(pod, SERVERS[0], &format!("{way} {name} A"));
                assert_eq!(found, bare(result), "{policy}: {way} for {name}");
            }
        }
        for name in ["web", "db"] {
            let tool = networks.tool_for(name, &[]);
            tool.says(&format!("check net {name} --container-id {name}"));
        }
        networks.del("net", &web);
        for way in ["+notcp", "+tcp"] {
            assert_eq!(dig.ask(&db, SERVERS[0], &format!("{way} db A")), bare(&of_db), "{policy}: {way}");
        }
        networks.tool_for("db", &[]).says("check net db --container-id db");
        networks.del("net", &db);
        assert_eq!(rules(&lab), before, "{policy}");
    }
}

#[test]
fn a_flush_of_input_is_noticed_and_repaired_on_bridge_and_on_ptp() {
    beyond_reference!("dnsname");
    needs!(Nftables);
    let Some(dig) = Dig::here() else { return };
    // After the second loss, the host's own queries still pass.
    let losses = ["iptables -F; ip6tables -F INPUT", "nft flush set inet ferrule dns"];
    for network in [network(&json!({})), on_ptp()] {
        for loss in losses {
            let lab = Lab::new();
            lab.host().sh(POLICIES[0]);
            let networks = Networks::new(&lab, std::slice::from_ref(&network));
            let (pod, _) = networks.attach(&lab, "pod", &[]);
            lab.host().sh(loss);
            let tool = networks.tool_for("pod", &[]);
            let checked = tool.run("check net pod --container-id pod");
            assert!(!checked.succeeded(), "{loss}: {network}");
            tool.says("repair net");
            tool.says("check net pod --container-id pod");
            assert_eq!(dig.ask(&pod, SERVERS[0], "pod A").len(), 1, "{loss}: {network}");
            networks.del("net", &pod);
        }
    }
}
