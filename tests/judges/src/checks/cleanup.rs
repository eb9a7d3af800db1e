//! Killed runtimes and containers, and `cni-gc.service`, which removes their stale resources.

use crate::check::Check;
use crate::gate::Gate;
use crate::host::{CNITOOL, Host, IMAGE};
use crate::podman::Podman;
use crate::process::Daemon;
use crate::soon::soon;

/// The message of a check at whose end the second container's rules stay.
const RULES_STAY: &str =
    "the lab's state changed:\nhost: nftables\n  + ip saddr 10.89.0.3  counter jump CNI-";

/// Why GC removes nothing of the reference's.
pub const WHY: &str = "its plugins do not list what they have, so cnitool cannot collect it";

pub fn checks() -> Vec<Check> {
    let check = |name, ask| Check::new("cni-gc.service", name, ask);
    vec![
        check(
            "kill -9 of Podman in the middle of an ADD: GC removes nothing while the ADD runs, and everything after the kill",
            killed_in_add,
        )
        .reference_fails(RULES_STAY, WHY),
        check("kill -9 of Podman in the middle of a DEL: nothing is left", killed_in_del),
    ]
}

/// Runs the timer's command, with an age of one second instead of one hour.
pub fn collects(host: &Host) {
    host.run("sleep 2");
    host.run(&format!("{CNITOOL} gc --all --older-than 1s"));
}

/// Podman with a network whose bridge and tables exist already, because a first container has created them.
fn podman(host: &Host) -> Podman<'_> {
    let podman = Podman::new(host);
    podman.does("network create net");
    podman.starts("first", "--network net --publish 8080:80");
    podman.removes("first");
    podman
}

fn killed_in_add(host: &Host) {
    let podman = podman(host);
    let before = host.snapshot();
    let pairs = || host.lab.host().ip("link show type veth").len();
    let pairs_before = pairs();
    let gate = Gate::before(host, "portmap", "ADD");
    let words = format!("podman run --detach --name victim --network net --publish 8081:80 {IMAGE}");
    let mut victim = Daemon::start(&words.split(' ').collect::<Vec<_>>());
    let waiting = gate.reached();
    let half_way = host.snapshot();
    collects(host);
    host.snapshot().assert_same(&half_way);
    victim.kill();
    gate.open(&waiting);
    // GC treats the namespace as deleted only after ten minutes, and only in the host's PID namespace. Here, the check removes it, as an
    // administrator or a reboot would.
    collects(host);
    host.run_words(&["sh", "-ec", "for file in /run/netns/netns-*; do umount $file; rm $file; done"]);
    soon("the veth pairs, after the namespace was deleted", &pairs_before, pairs);
    collects(host);
    host.snapshot().assert_same(&before);
    podman.does("start victim");
    podman.is_reached(&format!("{}:8081", crate::host::HOST), &podman.inside("victim", "hostname"));
}

/// Podman's monitor, conmon, starts another Podman that cleans up.
fn killed_in_del(host: &Host) {
    let podman = podman(host);
    let before = host.snapshot();
    podman.starts("victim", "--network net --publish 8081:80");
    let gate = Gate::before(host, "portmap", "DEL");
    let mut removal = Daemon::start(&["podman", "rm", "--force", "--time", "0", "victim"]);
    let waiting = gate.reached();
    removal.kill();
    gate.open(&waiting);
    // If the kill came between two steps of Podman's, conmon's Podman does nothing, and the next removal completes this one.
    host.run("podman rm --force --ignore --time 0 victim");
    soon("Podman has ended the attachment", &true, || {
        host.run("find /var/lib/cni/results -type f").is_empty()
    });
    collects(host);
    host.snapshot().assert_same(&before);
}
