//! The attachments that need `route_localnet` on a link, and the value before the first one: the last one restores it.
//!
//! `/run/ferrule/localnet/LINK` contains an empty file for each attachment, `NETWORK:CONTAINER:INTERFACE`, and a file
//! with the earlier value. They are not in the ruleset, because they must outlive a flush of it: that is when the
//! setting is dangerous.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use system::file::{self, AtomicFile, missing_is_fine};

/// The directory of [`Users`].
pub const DIRECTORY: &str = "/run/ferrule/localnet";

/// The file with the earlier value.
const EARLIER_VALUE: &str = "before";

/// Maximum size of this file in bytes: a number and a line end.
const LONGEST_VALUE: u64 = 100;

/// The users of the setting, by link. They are read and changed under a lock.
#[derive(Debug)]
pub struct Users {
    dir: PathBuf,
}

/// A link without users.
#[derive(Debug, PartialEq, Eq)]
pub struct Unused {
    pub link: String,
    /// The value to restore. None: it was never stored, so the setting was not changed either.
    pub earlier_value: Option<i32>,
}

impl Users {
    pub fn of_host() -> Self {
        Self { dir: DIRECTORY.into() }
    }

    /// Whether there may be any users: whether the directory exists.
    pub fn may_exist(&self) -> io::Result<bool> {
        self.dir.try_exists()
    }

    /// Whether an attachment is a user, of any link.
    pub fn has(&self, label: &str) -> io::Result<bool> {
        for link in names(&self.dir)? {
            if self.dir.join(link).join(file_name(label)).try_exists()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Adds a user. Stores the current value unless an earlier one is stored.
    pub fn join(&self, link: &str, label: &str, now: i32) -> io::Result<()> {
        let dir = self.dir.join(link);
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        if !dir.join(EARLIER_VALUE).try_exists()? {
            AtomicFile { dir: &file::open_directory(&dir)?, name: EARLIER_VALUE, label: EARLIER_VALUE }
                .replace(now.to_string().as_bytes())?;
        }
        let mut options = OpenOptions::new();
        file::open_own(options.create(true).write(true).truncate(true), &dir.join(file_name(label))).map(drop)
    }

    /// Removes a user. Returns the links without users, with the earlier value.
    pub fn remove(&self, label: &str) -> io::Result<Vec<Unused>> {
        let name = file_name(label);
        self.unused_after(|dir| missing_is_fine(fs::remove_file(dir.join(&name))))
    }

    /// Removes the users that `is_stale` selects by their labels. Returns the links without users, with the earlier
    /// value.
    pub fn remove_where(&self, is_stale: &dyn Fn(&str) -> bool) -> io::Result<Vec<Unused>> {
        self.unused_after(|dir| {
            for name in names(dir)? {
                let label =
                    name.to_str().filter(|name| name.contains(':')).map(|name| name.replace(':', "/"));
                if label.is_some_and(|label| is_stale(&label)) {
                    missing_is_fine(fs::remove_file(dir.join(&name)))?;
                }
            }
            Ok(())
        })
    }

    /// Includes links whose last user was removed by a process that was killed before it restored the value.
    fn unused_after(&self, remove: impl Fn(&Path) -> io::Result<()>) -> io::Result<Vec<Unused>> {
        let mut unused = Vec::new();
        for link in names(&self.dir)? {
            let dir = self.dir.join(&link);
            // Another program's file.
            if dir.is_file() {
                continue;
            }
            remove(&dir)?;
            if !is_used(&dir)? {
                unused.push(Unused {
                    link: link.to_string_lossy().into_owned(),
                    earlier_value: earlier_value(&dir)?,
                });
            }
        }
        Ok(unused)
    }

    /// Deletes a link's directory, after the value was restored.
    pub fn remove_link(&self, link: &str) -> io::Result<()> {
        missing_is_fine(fs::remove_dir_all(self.dir.join(link)))
    }
}

/// The name of a user's file. It contains `:`, so it differs from `before`. No label contains `:`.
fn file_name(label: &str) -> String {
    label.replace('/', ":")
}

fn is_used(dir: &Path) -> io::Result<bool> {
    Ok(names(dir)?.iter().any(|name| name.to_string_lossy().contains(':')))
}

/// The names in a directory. Empty if it does not exist: a dry run holds no lock, so another plugin may delete it meanwhile.
fn names(dir: &Path) -> io::Result<Vec<OsString>> {
    match fs::read_dir(dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries?.map(|entry| Ok(entry?.file_name())).collect(),
    }
}

/// The earlier value, if it is stored. If the file is not a number, the kernel's default.
fn earlier_value(dir: &Path) -> io::Result<Option<i32>> {
    let text = match file::read_own(&dir.join(EARLIER_VALUE), LONGEST_VALUE) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    Ok(Some(String::from_utf8_lossy(&text).trim().parse().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Runs a test with a temporary directory.
    fn on_disk(test: impl FnOnce(&Users)) {
        let dir = tempfile::tempdir().unwrap();
        test(&Users { dir: dir.path().to_owned() });
    }

    #[test]
    fn a_fifo_in_place_of_a_file_is_an_error() {
        // An open that waits for the FIFO would wait forever.
        let put = |path: &Path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
        on_disk(|users| {
            users.join("br0", "net/a/eth0", 0).unwrap();
            put(&users.dir.join("br0").join(file_name("net/b/eth0")));
            users.join("br0", "net/b/eth0", 1).unwrap_err();
            fs::remove_file(users.dir.join("br0").join(EARLIER_VALUE)).unwrap();
            put(&users.dir.join("br0").join(EARLIER_VALUE));
            fs::remove_file(users.dir.join("br0").join(file_name("net/b/eth0"))).unwrap();
            users.remove("net/a/eth0").unwrap_err();
        });
    }

    /// The ADD that could not be recorded fails, and its rollback changes nothing.
    #[test]
    fn an_earlier_value_that_was_not_stored_is_not_restored() {
        on_disk(|users| {
            fs::create_dir_all(users.dir.join("br0").join(".before.new")).unwrap();
            let left = Unused { link: "br0".to_owned(), earlier_value: None };
            assert_eq!(users.remove("net/a/eth0").unwrap(), [left]);
        });
    }

    fn unused(link: &str, before: i32) -> Vec<Unused> {
        vec![Unused { link: link.to_owned(), earlier_value: Some(before) }]
    }

    #[test]
    fn a_file_of_another_program_is_ignored() {
        on_disk(|users| {
            users.join("br0", "net/a/eth0", 0).unwrap();
            fs::write(users.dir.join("stray"), "").unwrap();
            assert_eq!(users.remove("net/a/eth0").unwrap(), unused("br0", 0));
            assert_eq!(users.remove_where(&|_| true).unwrap(), unused("br0", 0));
            assert!(users.dir.join("stray").exists());
        });
    }

    #[test]
    fn the_last_user_of_a_link_gets_the_value_that_the_first_one_found() {
        on_disk(|users| {
            users.join("br0", "net/a/eth0", 0).unwrap();
            users.join("br0", "net/b/eth0", 1).unwrap();
            users.join("br1", "net/a/eth1", 1).unwrap();
            assert_eq!(users.remove("net/a/eth0").unwrap(), []);
            assert_eq!(users.remove("net/a/eth1").unwrap(), unused("br1", 1));
            users.remove_link("br1").unwrap();
            assert_eq!(users.remove("net/b/eth0").unwrap(), unused("br0", 0));
            users.remove_link("br0").unwrap();
            assert_eq!(users.remove("net/b/eth0").unwrap(), []);
        });
    }

    #[test]
    fn a_setting_that_could_not_be_restored_is_restored_by_the_next_del() {
        on_disk(|users| {
            users.join("br0", "net/a/eth0", 0).unwrap();
            assert_eq!(users.remove("net/a/eth0").unwrap(), unused("br0", 0));
            assert_eq!(users.remove("net/other/eth0").unwrap(), unused("br0", 0));
            users.join("br0", "net/b/eth0", 1).unwrap();
            assert_eq!(users.remove_where(&|_| true).unwrap(), unused("br0", 0), "not what was left behind");
        });
    }

    #[test]
    fn leaving_attachments_are_identified_by_their_labels() {
        on_disk(|users| {
            users.join("br0", "net/a/eth0", 0).unwrap();
            users.join("br0", "other/a/eth0", 0).unwrap();
            assert_eq!(users.remove_where(&|label| label.starts_with("net/")).unwrap(), []);
            assert_eq!(users.remove_where(&|label| label == "other/a/eth0").unwrap(), unused("br0", 0));
        });
    }

    /// As another plugin's DEL does while GC lists.
    #[test]
    fn a_link_that_is_removed_meanwhile_is_no_error() {
        on_disk(|users| {
            users.join("br0", "net/a/eth0", 0).unwrap();
            let remove_link = |_: &str| {
                users.remove_link("br0").unwrap();
                true
            };
            users.remove_where(&remove_link).unwrap();
            fs::remove_dir_all(&users.dir).unwrap();
            assert_eq!(users.remove_where(&|_| true).unwrap(), []);
        });
    }

    #[test]
    fn an_unset_value_is_off() {
        on_disk(|users| {
            for torn in ["", "1\n2", "; reboot"] {
                users.join("br0", "net/a/eth0", 1).unwrap();
                fs::write(users.dir.join("br0").join(EARLIER_VALUE), torn).unwrap();
                assert_eq!(users.remove("net/a/eth0").unwrap(), unused("br0", 0));
                users.remove_link("br0").unwrap();
            }
        });
    }
}
