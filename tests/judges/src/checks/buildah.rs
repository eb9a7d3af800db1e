//! Buildah: the network of the steps of a build.

use crate::check::Check;
use crate::host::{CLIENT, HOST, Host, IMAGE};
use crate::podman::Podman;

pub fn checks() -> Vec<Check> {
    let check = |name, ask| Check::new("buildah", name, ask);
    vec![
        check("RUN reaches other hosts, masqueraded", run),
        check("a build whose step fails leaves nothing", nothing_left),
    ]
}

/// Builds an image with one RUN instruction, and returns the output.
fn build(host: &Host, instruction: &str) -> String {
    host.lab.host().sh("mkdir -p /run/lab/build");
    std::fs::write("/run/lab/build/Dockerfile", format!("FROM {IMAGE}\nRUN {instruction}\n"))
        .expect("write a Dockerfile");
    let line =
        "timeout 300 buildah bud --isolation oci --runtime /usr/sbin/runc --layers=false /run/lab/build 2>&1";
    host.lab.host().sh(&format!("{line} || true"))
}

fn run(host: &Host) {
    Podman::new(host);
    let _far = host.client.serve_tcp("far", "198.51.100.2:7");
    let said = build(host, &format!("nc -w 60 {CLIENT} 7 | grep 'far {HOST}' && echo heard"));
    assert!(said.lines().any(|line| line == "heard"), "{said}");
}

fn nothing_left(host: &Host) {
    Podman::new(host);
    host.leaves_nothing(|| {
        let said = build(host, "ip addr show dev eth0; echo seen; false");
        assert!(said.contains("10.88.0.") && said.contains("seen"), "{said}");
    });
}
