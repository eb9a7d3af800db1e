//! Recognizes `podman network reload`, which detaches and attaches a running container. Podman does not say so.

use std::path::Path;

use crate::document::ContainerOptions;

/// Whether a call of `setup` is a reload. A reload requests the MAC address and all addresses that the container has,
/// and repeats those that the user has requested. A start can request an address and a MAC address, too, but then no
/// process is in the namespace yet.
pub fn is_reload(netns: &Path, options: &ContainerOptions) -> bool {
    let ips = &options.static_ips;
    let is_repeated = |ip| ips.iter().filter(|other| *other == ip).count() > 1;
    if ips.is_empty() {
        return false;
    }
    ips.iter().all(is_repeated) || (!options.static_mac.is_empty() && liveness::has_process(netns))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_start_with_an_address_and_a_mac_address_is_no_reload() {
        let mac = "02:00:00:00:00:07";
        // This process is in the first one.
        for (netns, is_running) in [("/proc/self/ns/net", true), ("/dev/null", false), ("/missing", false)] {
            for (options, expected) in [
                (json!({}), false),
                (json!({"static_mac": mac}), false),
                (json!({"static_ips": ["10.1.0.7"]}), false),
                (json!({"static_ips": ["10.1.0.7"], "static_mac": mac}), is_running),
                (json!({"static_ips": ["10.1.0.7", "10.1.0.7"]}), true),
                (json!({"static_ips": ["10.1.0.7", "10.1.0.7", "fd00::7"], "static_mac": mac}), is_running),
            ] {
                let options_read = serde_json::from_value(options.clone()).unwrap();
                assert_eq!(is_reload(Path::new(netns), &options_read), expected, "{netns} {options}");
            }
        }
    }
}
