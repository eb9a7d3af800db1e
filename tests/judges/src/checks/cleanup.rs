//! Runtimes and containers that are killed, and `cni-gc.service`, which removes what they leave.

use crate::check::Check;
use crate::gate::Gate;
use crate::host::{CNITOOL, Host, IMAGE};
use crate::podman::Podman;
use crate::process::Daemon;

/// Why the reference is not asked.
pub const WHY: &str = "its plugins do not list what they have, so cnitool cannot collect it";

pub fn checks() -> Vec<Check> {
    let check = |name, ask| Check::new("cni-gc.service", name, ask).ours_alone(WHY);
    vec![
        check(
            "kill -9 of Podman in the middle of an ADD: nothing is taken before, and all is removed after",
            killed_in_add,
        ),
        check("kill -9 of Podman in the middle of a DEL: nothing is left", killed_in_del),
    ]
}

/// What the timer starts, once a container is older than a second in place of an hour.
pub fn collects(host: &Host) {
    host.run("sleep 2");
    host.run(&format!("{CNITOOL} gc --all --older-than 1s"));
}

/// Podman, whose network's own things have come with a first container.
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
    let gate = Gate::before(host, "portmap", "ADD");
    let words = format!("podman run --detach --name victim --network net --publish 8081:80 {IMAGE}");
    let mut victim = Daemon::start(&words.split(' ').collect::<Vec<_>>());
    let waiting = gate.reached();
    let half_way = host.snapshot();
    collects(host);
    host.snapshot().assert_same(&half_way);
    victim.kill();
    gate.open(&waiting);
    // GC waits for ten minutes until it takes the namespace for abandoned, in the host's PID namespace only. A
    // reboot or an administrator removes it earlier.
    collects(host);
    host.run_words(&["sh", "-ec", "for file in /run/netns/netns-*; do umount $file; rm $file; done"]);
    collects(host);
    host.snapshot().assert_same(&before);
    podman.does("start victim");
    podman.is_reached(&format!("{}:8081", crate::host::HOST), &podman.inside("victim", "hostname"));
}

/// Its monitor, conmon, starts a Podman that cleans up.
fn killed_in_del(host: &Host) {
    let podman = podman(host);
    let before = host.snapshot();
    podman.starts("victim", "--network net --publish 8081:80");
    let gate = Gate::before(host, "portmap", "DEL");
    let mut removal = Daemon::start(&["podman", "rm", "--force", "--time", "0", "victim"]);
    let waiting = gate.reached();
    removal.kill();
    gate.open(&waiting);
    crate::soon::soon("Podman has ended the attachment", &true, || {
        host.run("find /var/lib/cni/results -type f").is_empty()
    });
    collects(host);
    host.snapshot().assert_same(&before);
}
