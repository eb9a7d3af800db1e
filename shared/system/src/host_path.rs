//! Paths of the host, for a process whose root directory is not the host's, such as one in a container.

use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Maximum number of symbolic links in a path, as in the kernel (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// In place of a path with too many links. It never exists, because /dev/null is no directory.
const TOO_MANY_LINKS: &str = "/dev/null/too-many-symbolic-links";

/// The path in the process's file system of a path of the host. `root` is the host's root directory there: empty or `/` if it is the
/// process's own. Symbolic links, also absolute ones, lead to paths of the host: Debian's /var/run is a link to /run, where the process's own
/// file system may have another directory. `openat2` does this only since Linux 5.6. With too many links, the returned path does not exist.
pub fn below(root: &Path, path: &Path) -> PathBuf {
    if root.as_os_str().is_empty() || root == Path::new("/") {
        return path.to_owned();
    }
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
        } else if let Ok(target) = fs::read_link(root.join(&done)) {
            if links == MOST_LINKS {
                return TOO_MANY_LINKS.into();
            }
            links += 1;
            if target.is_absolute() {
                done.clear();
            } else {
                done.pop();
            }
            rest.extend(names(&target));
        }
    }
    root.join(done)
}

/// The names in a path, the last one first.
fn names(path: &Path) -> Vec<OsString> {
    let is_name = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().rev().filter(is_name).map(|part| part.as_os_str().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_of_the_host_is_found_below_the_prefix() {
        let run = Path::new("/run/netns/a");
        for own in ["", "/"] {
            assert_eq!(below(Path::new(own), run), run);
        }
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
            ("/proc/7/ns/net", "proc/7/ns/net"),
        ] {
            assert_eq!(below(root, Path::new(path)), root.join(expected), "{path}");
        }
    }

    #[test]
    fn a_loop_of_links_ends_and_does_not_lead_to_files_outside_of_the_hosts_root() {
        let [root, outside] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let name = outside.path();
        fs::write(name.join("file"), "").unwrap();
        let link = below(root.path(), name);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(name, link).unwrap();
        for path in [name, &name.join("file")] {
            assert!(!below(root.path(), path).exists(), "{}", path.display());
        }
    }
}
