//! firewalld, which takes away what it does not know when it is reloaded.

use lab::firewalld::{self, Firewalld};

use crate::check::Check;
use crate::host::{CLIENT, CNITOOL, HOST, Host};
use crate::podman::Podman;
use crate::process::Daemon;
use crate::soon::soon;

/// The message of a check that cannot reach its host port after a reload. Before the reload, the message is different.
const NOT_REACHED: &str = r#"after the reload, TCP from client to 198.51.100.1:8080: Some("web") is wanted"#;

/// The message of a check after a DEL of the reference's bridge that has failed: Podman keeps the result. The error itself is printed by either of
/// two processes, `podman rm` or the one that cleans up after the exit of the container.
const RESULT_STAYS: &str = "files of the plugins\n  left: [\"/var/lib/cni/results/net-";

pub fn checks() -> Vec<Check> {
    let check = |name, ask| Check::new("firewalld", name, ask).unless(firewalld::lacks);
    vec![
        check(
            "while it runs, a container's port is reached, and a container reaches other hosts",
            while_it_runs,
        ),
        check("after a reload, the container's port is reached", port_after_reload).reference_fails(
            NOT_REACHED,
            "its host ports are iptables rules, which firewalld flushes; Ferrule's are in a separate table",
        ),
        check("after a reload with cni-repair running, everything works", repaired)
            .reference_fails(NOT_REACHED, "it has no program that restores rules"),
        check("after a reload and podman network reload, everything works", after_both),
        check("a container that is removed after a reload leaves nothing", nothing_left).reference_fails(
            RESULT_STAYS,
            "bridge's DEL fails because the chain of its masquerade rule was flushed",
        ),
    ]
}

/// A container with a host port, on a host with firewalld, which by default accepts and forwards no connections.
fn with_a_container(host: &Host) -> (Podman<'_>, Firewalld) {
    let firewalld = Firewalld::start(&host.lab, "nftables", "public");
    // Plugins look for firewalld on the host's system bus.
    host.lab.host().sh("mkdir /run/dbus; ln -s /run/lab/firewalld/bus /run/dbus/system_bus_socket");
    let podman = Podman::new(host);
    podman.does("network create net");
    podman.starts("web", "--network net --publish 8080:80");
    (podman, firewalld)
}

#[track_caller]
fn works(podman: &Podman) {
    podman.is_reached(&format!("{HOST}:8080"), "web");
    let _far = podman.0.client.serve_tcp("far", "198.51.100.2:7");
    podman.hears("web", CLIENT, 7, &format!("far {HOST}"));
}

/// The host port is reached after a reload.
#[track_caller]
fn is_reached_again(podman: &Podman) {
    let (client, port) = (&podman.0.client, format!("{HOST}:8080"));
    soon(&format!("after the reload, TCP from {} to {port}", client.name()), &Some("web".to_owned()), || {
        lab::tcp_says(client, &port).map(|said| said.trim().to_owned())
    });
}

fn while_it_runs(host: &Host) {
    let (podman, _firewalld) = with_a_container(host);
    works(&podman);
}

fn port_after_reload(host: &Host) {
    let (podman, _firewalld) = with_a_container(host);
    works(&podman);
    firewalld::reload();
    is_reached_again(&podman);
}

fn repaired(host: &Host) {
    let (podman, _firewalld) = with_a_container(host);
    works(&podman);
    let _repair = Daemon::start(&[CNITOOL, "repair", "--all", "--watch"]);
    firewalld::reload();
    is_reached_again(&podman);
    works(&podman);
    host.run("nft flush ruleset");
    works(&podman);
}

fn after_both(host: &Host) {
    let (podman, _firewalld) = with_a_container(host);
    works(&podman);
    firewalld::reload();
    podman.does("network reload --all");
    works(&podman);
}

fn nothing_left(host: &Host) {
    let (podman, _firewalld) = with_a_container(host);
    works(&podman);
    podman.removes("web");
    firewalld::reload();
    let before = host.snapshot();
    podman.starts("web", "--network net --publish 8080:80");
    works(&podman);
    firewalld::reload();
    podman.removes("web");
    host.snapshot().assert_same(&before);
}
