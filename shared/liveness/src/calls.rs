//! Running plugin calls, whose containers are being created or deleted.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;

use crate::{ancestors, processes};

/// Containers with a running plugin call.
#[derive(Debug, Default)]
pub struct Calls {
    containers: BTreeSet<Vec<u8>>,
    blind: bool,
}

impl Calls {
    /// Reads `CNI_CONTAINERID` from the environment of every process.
    pub fn scan() -> Self {
        let (mut this, ancestors) = (Self::default(), ancestors());
        for process in processes() {
            match fs::read(process.join("environ")) {
                Ok(environment) => this.containers.extend(container(&environment)),
                Err(e) => {
                    this.blind |= e.kind() == ErrorKind::PermissionDenied && !ancestors.contains(&process);
                }
            }
        }
        this
    }

    /// Whether a plugin is running for a container. Processes that may not be examined do not count.
    pub fn has(&self, container: &str) -> bool {
        self.containers.contains(container.as_bytes())
    }

    /// Whether a plugin is, or may be, running for a container.
    pub fn may_be_for(&self, container: &str) -> bool {
        self.blind || self.has(container)
    }
}

fn container(environment: &[u8]) -> Option<Vec<u8>> {
    let mut variables = environment.split(|&byte| byte == 0);
    variables.find_map(|variable| variable.strip_prefix(b"CNI_CONTAINERID=")).map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_found_among_others() {
        let container = |text: &[u8]| container(text).map(|id| String::from_utf8(id).unwrap());
        assert_eq!(container(b"PATH=/bin\0CNI_CONTAINERID=c1\0CNI_IFNAME=eth0\0").as_deref(), Some("c1"));
        assert_eq!(container(b"XCNI_CONTAINERID=c1\0").as_deref(), None);
    }
}
