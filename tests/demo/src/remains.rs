//! Checks that nothing is left.

use lab::{Lab, Snapshot};

use crate::network::CACHE;
use crate::show::{bad, good};

/// The state outside of the containers. The rest is deleted with their namespaces.
pub fn of_the_machine(lab: &Lab) -> Snapshot {
    lab.snapshot().without("web").without("db")
}

/// The network itself stays after its last container: a bridge without ports, and a directory without leases. Without
/// these, the machine must be as it was before.
pub fn none(lab: &Lab, before: &Snapshot) -> bool {
    let host = lab.host();
    let count = |what: &str, command: &str| {
        let found = host.sh(&format!("{command} | wc -l"));
        let found = found.trim();
        let text = if found == "0" { good(found) } else { bad(found) };
        println!("  {what:<28} {text}");
        found == "0"
    };
    let nothing = [
        count("bridge ports", "ip -o link show master cni0"),
        count("rules and map elements", "nft list ruleset | grep -e demo/ -e 10.88. -e fd00:88:"),
        count("iptables rules", "for t in ip ip6; do ${t}tables-save; done | grep -e demo -e CNI"),
        // Other connections end by themselves. A client that continues to send to such a port would keep its flow
        // alive.
        count(
            "UDP flows through host ports",
            "for f in ipv4 ipv6; do conntrack --dump --family $f --proto udp --dst-nat 2>/dev/null; done",
        ),
        count("leases", "ls /var/lib/cni/networks/demo | grep -e '^10\\.' -e '^fd'"),
        count("tuning's backup files", "ls /run/cni/tuning 2>/dev/null"),
        count("results in the cache", &format!("ls -A {CACHE}/results")),
    ];
    host.sh(&format!("ip link del cni0; rm -r /var/lib/cni/networks {CACHE}; rm -rf /run/cni"));
    let left = of_the_machine(lab).since(before);
    let rest = if left.is_empty() { good("nothing") } else { bad(&format!("\n{left}")) };
    println!("  {:<28} {rest}", "anything else");
    left.is_empty() && !nothing.contains(&false)
}
