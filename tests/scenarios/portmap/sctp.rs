//! The peers of an SCTP association have fixed ports, so a new association has the connection tracking entry of an earlier one.

use std::fs;
use std::thread;

use lab::{Outcome, beyond_reference};
use serde_json::json;

use super::*;

const PROGRAM: &str = "/run/lab/sctp.py";

/// Whether packets with a chunk from the other machine to the host's port reach a container.
fn reaches(lab: &Lab, far: &Netns, pod: &Container, (host, chunk): (&str, &str)) -> bool {
    fs::write(lab.dir().join("sctp.py"), include_str!("sctp.py")).unwrap();
    let file = format!("/run/lab/{}-{chunk}.received", pod.id);
    thread::scope(|scope| {
        scope.spawn(|| pod.try_exec(&["python3", PROGRAM, "receive", &file]));
        far.try_exec(&["python3", PROGRAM, "send", host, "2905", chunk, &file]).status.success()
    })
}

/// Opens an association from the other machine to a container.
fn associate(lab: &Lab, far: &Netns, pod: &Container, host: &str) {
    assert!(reaches(lab, far, pod, (host, "init")));
    pod.exec(&["python3", PROGRAM, "send", FAR[0], "2905", "init-ack"]);
    far.exec(&["python3", PROGRAM, "send", host, "2905", "cookie-echo"]);
    pod.exec(&["python3", PROGRAM, "send", FAR[0], "2905", "cookie-ack"]);
    assert!(lab.host().sh("cat /proc/net/nf_conntrack").contains("ESTABLISHED"));
}

/// The packets of a flushed association have no mapping: only an INIT would create a new one.
#[test]
fn an_association_to_a_container_that_keeps_its_port_survives_another_add() {
    with_each_backend(|lab, keys| {
        let (pod, far) = (lab.container("pod"), lab.machine("far"));
        let ports = || json!([port("sctp", 2905, 2905)]);
        network(lab, keys, ports()).add(&pod, "eth0").ok_result();
        associate(lab, &far, &pod, HOST[0]);
        // As `podman network connect`: the container keeps the port on its first network.
        second_network(lab, keys, ports()).add(&pod, "eth1").ok_result();
        assert!(reaches(lab, &far, &pod, (HOST[0], "data")), "{keys}");
    });
}

#[test]
fn an_association_to_one_address_survives_a_mapping_of_all_addresses() {
    beyond_reference!("newest-wins");
    let (lab, keys) = (&Lab::new(), by("nftables"));
    let ([pod, other], far) = (["pod", "other"].map(|id| lab.container(id)), lab.machine("far"));
    lab.host().sh("ip addr add 198.51.100.9/32 dev lo");
    let mut of_one = port("sctp", 2905, 2905);
    of_one["hostIP"] = json!("198.51.100.9");
    network(lab, &keys, json!([of_one])).add(&pod, "eth0").ok_result();
    associate(lab, &far, &pod, "198.51.100.9");
    network(lab, &keys, json!([port("sctp", 2905, 2905)])).add(&other, "eth0").ok_result();
    assert!(reaches(lab, &far, &pod, ("198.51.100.9", "data")));
    assert!(reaches(lab, &far, &other, (HOST[0], "init")));
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
        assert!(reaches(lab, &far, &old, (HOST[0], "init")) && is_tracked());
        network.del(&old, "eth0", &result).iter().for_each(Outcome::ok);
        assert!(!is_tracked());
        network.add(&new, "eth0").ok_result();
        assert!(reaches(lab, &far, &new, (HOST[0], "init")));
    });
}
