//! Namespaces that Podman no longer uses. If Podman is killed during an ADD, it creates another namespace when it
//! starts the container again.
//!
//! Podman keeps the namespace open while the ADD runs, and libcni's cache contains the attachment after the ADD. So
//! an ADD was interrupted if no process has the namespace open and no cache contains the attachment.
//!
//! Only the host's own PID namespace shows all processes. In another PID namespace, such as a container's, no
//! namespace counts as orphaned.

use std::path::Path;
use std::time::{Duration, SystemTime};

use cni::Result;
use liveness::Namespaces;

use super::PlanOptions;

/// Minimum age of an orphaned namespace. The option `--older-than` can only raise it.
const AGE: Duration = Duration::from_secs(600);

/// Podman's names of namespaces: `netns-` and a UUID.
const PREFIX: &str = "netns-";
const UUID: [usize; 5] = [8, 4, 4, 4, 12];

/// The host's namespaces without orphaned ones.
///
/// # Errors
/// If the kernel does not list the host's links, or after 30 seconds.
pub fn scan(options: &PlanOptions) -> Result<Namespaces> {
    let mut namespaces = Namespaces::scan_in_time()?;
    let sees_all = liveness::is_in_host_pid_namespace();
    if let Some(newest) = newest(sees_all, SystemTime::now(), options.older_than) {
        namespaces.ignore_unused(|unused| {
            unused.since <= newest && unused.paths.iter().all(|path| is_podmans(path))
        });
    }
    Ok(namespaces)
}

/// The creation time of the youngest namespace that may count as orphaned. `None`: no namespace counts as orphaned.
fn newest(sees_all: bool, now: SystemTime, older_than: Option<Duration>) -> Option<SystemTime> {
    let least = older_than.unwrap_or(AGE).max(AGE);
    now.checked_sub(least).filter(|_| sees_all)
}

fn is_podmans(path: &Path) -> bool {
    let uuid = path.file_name().and_then(|name| name.to_str()?.strip_prefix(PREFIX));
    let is_hexadecimal = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    uuid.is_some_and(|uuid| uuid.split('-').map(str::len).eq(UUID) && uuid.split('-').all(is_hexadecimal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_than_can_only_raise_the_age() {
        let (now, second, hour) = (SystemTime::now(), Duration::from_secs(1), Duration::from_secs(3600));
        assert_eq!(newest(true, now, None), Some(now - AGE));
        assert_eq!(newest(true, now, Some(second)), Some(now - AGE));
        assert_eq!(newest(true, now, Some(hour)), Some(now - hour));
    }

    #[test]
    fn none_is_orphaned_for_a_gc_that_does_not_see_all_processes() {
        assert_eq!(newest(false, SystemTime::now(), None), None);
    }

    #[test]
    fn podmans_namespaces_are_known_by_their_names() {
        assert!(is_podmans(Path::new("/run/netns/netns-55527acc-8557-0ebb-3b81-9a7e8210eda4")));
        for other in [
            "/run/netns/cni-55527acc-8557-0ebb-3b81-9a7e8210eda4",
            "/run/netns/55527acc-8557-0ebb-3b81-9a7e8210eda4",
            "/run/netns/netns-55527acc-8557-0ebb-3b81",
            "/run/netns/netns-web",
            "/run/netns/netns-55527acc-8557-0ebb-3b81-9a7e8210edag",
        ] {
            assert!(!is_podmans(Path::new(other)), "{other}");
        }
    }
}
