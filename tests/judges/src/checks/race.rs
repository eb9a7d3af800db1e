//! Containers of Podman and of ctr, and some that a program attaches with libcni, start and stop while GC runs in a loop.
//!
//! `JUDGES_RACE_SECONDS=120` runs the whole test, with at least a hundred containers. Otherwise, a few containers run once.

use lab::{Feature, Netns, Race};

use crate::check::Check;
use crate::containerd::{Containerd, ctr};
use crate::host::{CNITOOL, HOST, Host, IMAGE};
use crate::libcni::{self, Pod};
use crate::podman::Podman;
use crate::soon::{soon, tcp_says_soon};

const SECONDS: &str = "JUDGES_RACE_SECONDS";
const WORKERS: usize = 4;
const SAMPLE: usize = 12;

pub fn checks() -> Vec<Check> {
    vec![
        Check::new(
            "cni-gc.service",
            "containers of Podman, ctr and libcni come and go while GC runs in a loop: none loses anything, and nothing is left",
            race,
        )
        // With the reference, the check would take minutes, and the rules that stay are different in each run. The check of
        // a kill in the middle of an ADD shows the same difference.
        .ours_alone(super::cleanup::WHY)
        .needs(Feature::Ipv6)
        .unless(libcni::lacks),
    ]
}

fn networks(podman: &Podman<'_>) -> Vec<&'static str> {
    let mut networks = vec!["net"];
    podman.does("network create net");
    for (driver, feature) in [("macvlan", Feature::Macvlan), ("ipvlan", Feature::Ipvlan)] {
        if feature.is_there() {
            podman.does(&format!(
                "network create --driver {driver} --opt parent=uplink --subnet 10.95.{}.0/24 {driver}",
                networks.len()
            ));
            networks.push(driver);
        }
    }
    networks
}

fn race(host: &Host) {
    let podman = Podman::new(host);
    // ctr calls the plugins of this network.
    let _containerd = Containerd::start(host);
    let runtimes = Runtimes { machine: host.lab.host(), client: &host.client, networks: networks(&podman) };
    // The first containers create the shared objects of the networks.
    runtimes.race(Race { containers: SAMPLE, workers: WORKERS, least: None });
    let before = host.snapshot();
    runtimes.race(Race::of(SECONDS, SAMPLE, WORKERS));
    host.snapshot().assert_same(&before);
}

struct Runtimes<'a> {
    machine: &'a Netns,
    client: &'a Netns,
    networks: Vec<&'static str>,
}

impl Runtimes<'_> {
    /// Runs a command line in a shell, and returns its output. It is killed after five minutes.
    fn does(&self, line: &str) -> String {
        self.machine.sh(&format!("timeout --kill-after=5 300 {line}"))
    }

    fn race(&self, race: Race) {
        let collect = || {
            self.does(&format!("{CNITOOL} gc --all"));
        };
        race.run(collect, |i, round| self.live(i, round));
        collect();
    }

    /// Starts a container, checks its network twice, and removes it.
    fn live(&self, i: usize, round: usize) {
        let name = format!("race{i}x{round}");
        match i % WORKERS {
            0 => self.live_by_ctr(&name),
            1 => self.live_by_libcni(i, &name),
            _ => self.live_by_podman(i, &name),
        }
    }

    /// Half of these containers end without a DEL.
    fn live_by_libcni(&self, i: usize, name: &str) {
        let port = 20_000 + i;
        let pod = Pod::start(self.machine, "net", name, port);
        for _ in 0..2 {
            let seen = pod.prints("ip addr show eth0");
            assert!(seen.contains("inet 10."), "{name}: {seen}");
            tcp_says_soon(self.client, &format!("{HOST}:{port}"), name);
            pod.is_checked();
        }
        if i % (2 * WORKERS) == 1 { pod.vanish() } else { pod.stop() }
    }

    fn live_by_ctr(&self, name: &str) {
        let look = "/bin/busybox ip addr show eth0";
        let options = "run --rm --cni --snapshotter native --cpu-shares 0";
        let twice = format!("/bin/sh -c '{look}; /bin/busybox sleep 1; {look}'");
        let seen = self.does(&ctr(&format!("{options} {IMAGE} {name} {twice}")));
        assert_eq!(seen.matches("inet 10.90.0.").count(), 2, "{seen}");
    }

    fn live_by_podman(&self, i: usize, name: &str) {
        let network = self.networks[i % self.networks.len()];
        let (port, has_port) = (20_000 + i, network == "net");
        let publish = if has_port { format!("--publish {port}:80") } else { String::new() };
        let options = format!("--name {name} --hostname {name} --network {network} {publish}");
        self.does(&format!("podman run --detach {options} {IMAGE}"));
        for _ in 0..2 {
            let seen = self.does(&format!("podman exec {name} /bin/busybox ip addr show eth0"));
            assert!(seen.contains("inet 10."), "{name} on {network}: {seen}");
            if has_port {
                tcp_says_soon(self.client, &format!("{HOST}:{port}"), name);
            }
        }
        if i % (2 * WORKERS) == 2 {
            // Kills the monitor too, so that no Podman cleans up immediately.
            let format = "{{.State.ConmonPid}} {{.State.Pid}}";
            let pids = self.does(&format!("podman inspect --format '{format}' {name}"));
            self.does(&format!("kill -9 {}", pids.trim()));
        }
        // If the container exits between two steps of Podman's, this fails, and the next one succeeds.
        let remove = format!("timeout --kill-after=5 300 podman rm --force --time 0 {name}");
        let remove: Vec<_> = remove.split(' ').collect();
        soon("Podman removes a container", &true, || self.machine.try_exec(&remove).status.success());
    }
}
