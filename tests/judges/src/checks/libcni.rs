//! libcni itself. It is the only implementation of the runtime's side that sends GC: Debian's runtimes do not.

use std::fs;

use crate::check::Check;
use crate::containerd::NETWORK;
use crate::host::{HOST, Host};
use crate::libcni::{Pod, collects, lacks};
use crate::soon::tcp_says_soon;

pub fn checks() -> Vec<Check> {
    let check = |name, ask| Check::new("libcni", name, ask).unless(lacks);
    vec![
        check("a container that is attached, checked and detached leaves nothing", comes_and_goes),
        check(
            "GC removes what lost containers have left, with and without a cached result, and nothing of a running one",
            lost,
        )
        .reference_fails(
            "+ ip saddr 10.90.0.3  counter jump CNI-",
            "a DEL after the namespace was deleted leaves its masquerade rules (containernetworking/plugins#810), and GC does not remove them",
        ),
    ]
}

/// The network of containerd's checks, in the first version that has GC.
fn configure() {
    fs::create_dir_all("/etc/cni/net.d").expect("create the directory of networks");
    let network = NETWORK.replace("1.0.0", "1.1.0");
    assert!(network.contains(r#""cniVersion": "1.1.0""#), "{network}");
    fs::write("/etc/cni/net.d/10-pods.conflist", network).expect("configure a network");
}

fn comes_and_goes(host: &Host) {
    configure();
    host.leaves_nothing(|| {
        let pod = Pod::start(host.lab.host(), "pods", "pod", 8080);
        tcp_says_soon(&host.client, &format!("{HOST}:8080"), "pod");
        pod.is_checked();
        pod.stop();
    });
}

fn lost(host: &Host) {
    configure();
    let machine = host.lab.host();
    let running = Pod::start(machine, "pods", "running", 8080);
    let before = host.snapshot();
    Pod::start(machine, "pods", "lost", 8081).vanish();
    Pod::start(machine, "pods", "uncached", 8082).vanish();
    machine.sh("rm /var/lib/cni/results/pods-uncached-eth0");
    collects(machine, "pods", &[&running]);
    host.snapshot().assert_same(&before);
    tcp_says_soon(&host.client, &format!("{HOST}:8080"), "running");
    running.is_checked();
    running.stop();
}
