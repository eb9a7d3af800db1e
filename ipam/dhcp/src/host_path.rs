//! Paths of the host, for a daemon whose root directory is not the host's (`-hostprefix`).

use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Maximum number of symbolic links in a path, as in the kernel (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// The path in the daemon's file system of a path of the host. `host_prefix` is the host's root directory there. A symbolic
/// link leads to a path of the host too: Debian's /var/run is a link to /run, where the daemon's own file system may have
/// another directory.
pub fn below(host_prefix: &Path, path: &Path) -> PathBuf {
    match host_prefix.as_os_str().is_empty() {
        true => path.to_owned(),
        // The kernel reports the error of an endless link.
        false => host_prefix.join(resolved(host_prefix, path).unwrap_or_else(|| relative(path))),
    }
}

/// The path without symbolic links, relative to the host's root directory. None: it has too many.
fn resolved(host_prefix: &Path, path: &Path) -> Option<PathBuf> {
    let (mut done, mut links) = (PathBuf::new(), 0);
    let mut rest = names(path);
    while let Some(name) = rest.pop() {
        if name == ".." {
            done.pop();
            continue;
        }
        done.push(name);
        // The kernel does not follow links such as /proc/PID/ns/net by their text.
        if done == Path::new("proc") {
            done.extend(rest.drain(..).rev());
        } else if let Ok(target) = fs::read_link(host_prefix.join(&done)) {
            links += 1;
            done = if target.is_absolute() { PathBuf::new() } else { done.parent()?.to_owned() };
            rest.extend(names(&target));
        }
        if links > MOST_LINKS {
            return None;
        }
    }
    Some(done)
}

/// The names in a path, the last one first.
fn names(path: &Path) -> Vec<OsString> {
    let is_name = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().rev().filter(is_name).map(|part| part.as_os_str().to_owned()).collect()
}

fn relative(path: &Path) -> PathBuf {
    path.strip_prefix("/").unwrap_or(path).to_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_of_the_host_is_found_below_the_prefix() {
        let run = Path::new("/run/netns/a");
        assert_eq!(below(Path::new(""), run), run);
        assert_eq!(below(Path::new("/nowhere"), run), Path::new("/nowhere/run/netns/a"));
    }

    #[test]
    fn links_of_the_host_lead_to_paths_of_the_host() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for name in ["run/netns", "var", "a/b", "proc/7/ns"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        for (target, link) in [
            ("/run", "var/run"),
            ("../../run", "a/b/up"),
            ("../../../../../run", "a/out"),
            ("/var/run/netns", "a/two"),
            ("endless", "endless"),
            ("net:[7]", "proc/7/ns/net"),
        ] {
            symlink(target, root.join(link)).unwrap();
        }
        for (path, expected) in [
            ("/var/run/netns/pod", "run/netns/pod"),
            ("/a/b/up/netns/pod", "run/netns/pod"),
            ("/a/out/pod", "run/pod"),
            ("/a/two/../x", "run/x"),
            ("/../run/./x", "run/x"),
            ("/endless/x", "endless/x"),
            ("/proc/7/ns/net", "proc/7/ns/net"),
        ] {
            assert_eq!(below(root, Path::new(path)), root.join(expected), "{path}");
        }
    }
}
