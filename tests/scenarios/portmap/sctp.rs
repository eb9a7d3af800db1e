//! The peers of an SCTP association have fixed ports, so a new association has the connection tracking entry of an earlier one.

use std::fs;
use std::thread;

use lab::{Outcome, beyond_reference};
use serde_json::json;

use super::*;

/// Whether a packet from the other machine to the host's port reaches a container.
fn reaches(lab: &Lab, far: &Netns, pod: &Container) -> bool {
    fs::write(lab.dir().join("sctp.py"), include_str!("sctp.py")).unwrap();
    let (program, file) = ("/run/lab/sctp.py", format!("/run/lab/{}.received", pod.id));
    thread::scope(|scope| {
        scope.spawn(|| pod.try_exec(&["python3", program, "receive", &file]));
        far.try_exec(&["python3", program, "send", HOST[0], "2905", &file]).status.success()
    })
}

#[test]
fn an_sctp_peer_reaches_the_new_container_after_the_old_one_was_deleted() {
    beyond_reference!("conntrack-on-del");
    with_each_backend(|lab, keys| {
        // Without an answer, the entry would end by itself after 3 seconds.
        lab.host().sh("sysctl -qw net.netfilter.nf_conntrack_sctp_timeout_cookie_wait=86400");
        let ([old, new], far) = (["old", "new"].map(|id| lab.container(id)), lab.machine("far"));
        let network = network(lab, keys, json!([port("sctp", 2905, 2905)]));
        let result = network.add(&old, "eth0").ok_result();
        let is_tracked = || lab.host().sh("cat /proc/net/nf_conntrack").contains("dport=2905 ");
        assert!(reaches(lab, &far, &old) && is_tracked());
        network.del(&old, "eth0", &result).iter().for_each(Outcome::ok);
        assert!(!is_tracked());
        network.add(&new, "eth0").ok_result();
        assert!(reaches(lab, &far, &new));
    });
}
