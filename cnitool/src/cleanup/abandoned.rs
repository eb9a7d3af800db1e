//! Namespaces that Podman has abandoned: it was killed in the middle of an ADD, and makes another one when it starts the container
//! again.
//!
//! Podman has the namespace open while the ADD runs, and once the ADD is done, libcni's cache knows the attachment. So if no process has
//! the namespace and no cache has the attachment, the ADD was broken off.
//!
//! Only the host's own PID namespace shows all processes. In another one, such as a container's, such namespaces count as used.

use std::env;
use std::path::Path;
use std::time::{Duration, SystemTime};

use cni::Result;
use liveness::{Namespaces, Unused};

use super::Wishes;

/// How old such a namespace is at least. The command line can only raise it.
const AGE: Duration = Duration::from_secs(600);

/// For tests in a PID namespace of their own: the one that counts as the host's. There, the command line can lower [`AGE`].
const TEST_HOST: &str = "CNITOOL_TEST_PID_NAMESPACE";

/// The name that Podman gives: `netns-`, and a UUID.
const PREFIX: &str = "netns-";
const UUID: [usize; 5] = [8, 4, 4, 4, 12];

/// The host's namespaces without abandoned ones.
///
/// # Errors
/// If the kernel does not list the host's links.
pub fn look(wishes: &Wishes) -> Result<Namespaces> {
    let (mut namespaces, now) = (Namespaces::look()?, SystemTime::now());
    let is_test = env::var_os(TEST_HOST).is_some_and(|host| liveness::pid_namespace() == Some(host.into()));
    if !is_test && !liveness::is_in_host_pid_namespace() {
        return Ok(namespaces);
    }
    let least = least_age(wishes.older_than, is_test);
    let is_old = |unused: &Unused| now.duration_since(unused.since).is_ok_and(|age| age >= least);
    namespaces.forget_unused(|unused| is_old(unused) && unused.paths.iter().all(|path| is_podmans(path)));
    Ok(namespaces)
}

fn least_age(older_than: Option<Duration>, is_test: bool) -> Duration {
    let least = older_than.unwrap_or(AGE);
    if is_test { least } else { least.max(AGE) }
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
        let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
        assert_eq!(least_age(None, false), AGE);
        assert_eq!((least_age(Some(second), false), least_age(Some(hour), false)), (AGE, hour));
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
