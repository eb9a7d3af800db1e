//! All checks, by the program that is asked.

mod buildah;
mod containerd;
mod cri;
mod firewalld;
mod podman;

use crate::check::Check;

pub fn all() -> Vec<Check> {
    [podman::checks(), containerd::checks(), cri::checks(), buildah::checks(), firewalld::checks()]
        .into_iter()
        .flatten()
        .collect()
}
