//! Releases in the log of a DHCP server.

use std::collections::BTreeSet;

/// The releases that have ended a lease, without repeated messages. Servers also log releases of leases that they do not
/// have.
pub(super) fn effective(log: &str) -> BTreeSet<&str> {
    log.lines().filter(|line| !names_no_lease(log, line)).filter_map(release).collect()
}

fn release(line: &str) -> Option<&str> {
    Some(line.split_once("DHCPRELEASE")?.1)
}

/// Whether the server reports that it has no such lease: on the same line, or, dnsmasq for IPv6, in its answer, which has
/// the same transaction number.
fn names_no_lease(log: &str, line: &str) -> bool {
    let is_unknown = ["unknown lease", "(not found)"].iter().any(|words| line.contains(words));
    let transaction = line.split_once("]: ").and_then(|(_, text)| text.split_once(" DHCPRELEASE"));
    let is_of_the_answer = |answer: &str, number: &str| {
        answer.contains(&format!("]: {number} ")) && answer.contains("no binding found")
    };
    is_unknown
        || transaction.is_some_and(|(number, _)| log.lines().any(|other| is_of_the_answer(other, number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_counts_once_and_only_if_the_server_has_the_lease() {
        let log = "Nov 27 16:24:46 dnsmasq-dhcp[14]: 7 DHCPRELEASE(eth0) 10.9.0.105 02:00:00:00:00:01\n\
                   Nov 27 16:24:46 dnsmasq-dhcp[14]: 7 DHCPRELEASE(eth0) 10.9.0.105 02:00:00:00:00:01 unknown lease\n\
                   Nov 27 16:24:47 dnsmasq-dhcp[14]: 2 DHCPRELEASE(eth0) 00:03:00:01:02:00:00:00:aa:bb \n\
                   Nov 27 16:24:47 dnsmasq-dhcp[14]: 2 nest size: 18 option: 13 status  3 no binding found\n\
                   Nov 27 16:24:47 dnsmasq-dhcp[14]: 2 sent size: 18 option: 13 status  0 release received\n\
                   Nov 27 16:24:48 dnsmasq-dhcp[14]: 3 DHCPRELEASE(eth0) 00:03:00:01:02:00:00:00:aa:cc \n\
                   Nov 27 16:24:48 dnsmasq-dhcp[14]: 3 sent size: 18 option: 13 status  0 release received\n\
                   DHCPRELEASE of 10.9.0.10 from 02:00:00:00:00:01 via eth0 (found)\n\
                   DHCPRELEASE of 10.9.0.11 from 02:00:00:00:00:02 via eth0 (not found)\n";
        let expected = [
            " of 10.9.0.10 from 02:00:00:00:00:01 via eth0 (found)",
            "(eth0) 00:03:00:01:02:00:00:00:aa:cc ",
            "(eth0) 10.9.0.105 02:00:00:00:00:01",
        ];
        assert_eq!(effective(log).into_iter().collect::<Vec<_>>(), expected);
    }
}
