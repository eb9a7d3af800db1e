//! All checks, by the program under test.

mod buildah;
mod cleanup;
mod containerd;
mod cri;
mod firewalld;
mod libcni;
mod podman;
mod podman5;
mod race;
mod stale;

use crate::check::Check;

pub fn all() -> Vec<Check> {
    [
        podman::checks(),
        podman5::checks(),
        containerd::checks(),
        cri::checks(),
        buildah::checks(),
        firewalld::checks(),
        libcni::checks(),
        cleanup::checks(),
        race::checks(),
        stale::checks(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
