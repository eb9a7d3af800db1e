//! Stale leases of host-local (docs/host-local.md), with containers of real runtimes. On a network with two addresses, host-local allocates
//! neither to a third container while both containers run, and both after a loss of power.

use lab::Feature;

use crate::check::Check;
use crate::containerd::Containerd;
use crate::cri::Cri;
use crate::host::{Host, IMAGE};
use crate::podman::Podman;
use crate::soon::soon;

/// Each check uses different addresses, because host-local looks for an address on the whole machine, and shims may keep namespaces of an
/// earlier check.
fn network(net: u8) -> String {
    const NETWORK: &str = r#"{"cniVersion": "1.0.0", "name": "small", "plugins": [
        {"type": "bridge", "bridge": "small0", "isGateway": true, "ipam": {"type": "host-local", "staleLeaseAge": 0,
         "ranges": [[{"subnet": "10.94.N.0/24", "rangeStart": "10.94.N.2", "rangeEnd": "10.94.N.3"}]]}},
        {"type": "portmap", "capabilities": {"portMappings": true}}]}"#;
    NETWORK.replace(".N.", &format!(".{net}."))
}

/// The message of the reference's host-local if the leases of a range set stay.
macro_rules! full {
    ($range:literal) => {
        concat!("failed to allocate for range 0: no IP addresses available in range set: ", $range)
    };
}

pub fn checks() -> Vec<Check> {
    let check = |name, ask, full| {
        Check::new("host-local", name, ask)
            .reference_fails(full, "it keeps leases until somebody deletes their files")
    };
    vec![
        check(
            "Podman's containers keep their addresses while they live, and lose them with the power",
            podman,
            full!("10.94.1.2-10.94.1.3"),
        ),
        check(
            "pods of containerd keep their addresses while they live, and lose them with the power",
            cri,
            full!("10.94.2.2-10.94.2.3"),
        )
        .needs(Feature::Ipv6),
        check(
            "containers of ctr keep their addresses while they live, and lose them when they are killed",
            ctr,
            full!("10.94.3.2-10.94.3.3"),
        ),
    ]
}

/// No address is allocated again, with and without the runtime's cache. `starts` tries to start a container of that name.
fn keeps_all(host: &Host, net: u8, starts: impl Fn(&str) -> bool) {
    assert!(!starts("c"), "the address of a living container was given away");
    host.run("mv /var/lib/cni/results /var/lib/cni/lost");
    assert!(!starts("d"), "the address of a living container without a record was given away");
    host.run("rm -rf /var/lib/cni/results");
    host.run("mv /var/lib/cni/lost /var/lib/cni/results");
    for address in [2, 3].map(|last| format!("10.94.{net}.{last}")) {
        assert!(host.lab.host().reaches(&address), "{address}");
    }
}

/// Ends what a loss of power would end: processes, and the namespaces that a runtime has mounted.
fn power_is_lost(host: &Host, processes: &[String], namespaces: &str) {
    host.run(&format!("kill -9 {}", processes.join(" ")));
    let unmount = format!("for file in /run/netns/{namespaces}; do umount $file; rm $file; done");
    host.run_words(&["sh", "-ec", &unmount]);
    no_port_is_left(host);
}

fn no_port_is_left(host: &Host) {
    soon("the pairs are gone", &true, || host.lab.host().ip("link show master small0").is_empty());
}

fn podman(host: &Host) {
    std::fs::create_dir_all("/etc/cni/net.d").expect("create the directory of networks");
    std::fs::write("/etc/cni/net.d/small.conflist", network(1)).expect("configure a network");
    let podman = Podman::new(host);
    ["a", "b"].iter().for_each(|name| podman.starts(name, "--network small"));
    keeps_all(host, 1, |name| {
        host.succeeds(&format!("podman run --rm --name {name} --network small {IMAGE} /bin/busybox true"))
    });
    let pids = podman.does("inspect --format {{.State.ConmonPid}},{{.State.Pid}} a b");
    let pids: Vec<String> = pids.split([',', '\n']).map(str::to_owned).collect();
    power_is_lost(host, &pids, "netns-*");
    ["e", "f"].iter().for_each(|name| podman.starts(name, "--network small"));
}

fn cri(host: &Host) {
    let mut containerd = Containerd::with_network(host, &network(2));
    let cri = Cri::of(host);
    soon("containerd has a network", &true, || cri.has_a_network());
    let pods = [cri.runs_pod("a", 8080), cri.runs_pod("b", 8081)];
    keeps_all(host, 2, |name| cri.try_run_pod(name, 8082).is_ok());
    let pids = pods.map(|pod| containerd.pid("k8s.io", pod.id()));
    containerd.is_killed();
    power_is_lost(host, &pids, "cni-*");
    containerd.is_started_again();
    soon("containerd has a network", &true, || cri.has_a_network());
    for (name, port) in [("e", 8083), ("f", 8084)] {
        cri.runs_pod(name, port);
    }
}

/// ctr passes the path of the process's namespace, and calls DEL only for a container that it waits for.
fn ctr(host: &Host) {
    let containerd = Containerd::with_network(host, &network(3));
    ["a", "b"].iter().for_each(|name| containerd.runs(name));
    let starts = |name: &str| {
        let options = "run --cni --rm --snapshotter native --cpu-shares 0";
        host.try_run(&crate::containerd::ctr(&format!("{options} {IMAGE} {name} /bin/busybox true")))
    };
    keeps_all(host, 3, |name| starts(name).is_ok());
    host.run(&format!("kill -9 {}", containerd.pid("default", "a")));
    // While a process exits, host-local may be unable to inspect it, and then releases no lease. So the check repeats.
    let tries = std::cell::Cell::new(0);
    soon("the address is given to another container", &Ok(()), || {
        tries.set(tries.get() + 1);
        starts(&format!("next{}", tries.get()))
    });
    assert!(host.lab.host().reaches("10.94.3.3"), "the other container has lost its address");
}
