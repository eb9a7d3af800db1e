//! `add --create`: a network namespace with a name, as `ip netns add` makes one.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use cni::{Code, Error, Result};
use netns::NetNs;
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::settings::NETNS_DIR;

const NONE: Option<&str> = None;

/// A namespace that was made, and goes again unless it is kept.
#[derive(Debug)]
pub struct Created(Option<PathBuf>);

impl Created {
    /// Makes the namespace of that name, if there is none.
    ///
    /// # Errors
    /// If that is no name, or the namespace cannot be made.
    pub fn named(name: &str) -> Result<Self> {
        if name.is_empty() || name.starts_with('.') || name.contains('/') {
            let wrong = Error::new(
                Code::InvalidEnvironment,
                format!(
                    "{name:?} is not a valid name of a \
             namespace"
                ),
            );
            return Err(wrong.detail(format!(
                "--create creates namespaces in {NETNS_DIR}; give a name \
             without a directory"
            )));
        }
        let path = Path::new(NETNS_DIR).join(name);
        let failed = |e: &io::Error| Error::io(format!("create network namespace {}", path.display()), e);
        share_directory().map_err(|e| failed(&e))?;
        match File::create_new(&path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(Self(None)),
            other => other.map_err(|e| failed(&e))?,
        };
        // From here on the file goes if something fails.
        let this = Self(Some(path.clone()));
        let bind = || mount(Some("/proc/thread-self/ns/net"), &path, NONE, MsFlags::MS_BIND, NONE);
        let bound = NetNs::scratch(bind).map_err(|e| Error::new(Code::Internal, e.to_string()))?;
        bound.map_err(|e| failed(&e.into()))?;
        Ok(this)
    }

    /// Leaves it there.
    pub fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Created {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // What cannot be removed stays as an empty file, or as a namespace without interfaces.
            let _ = umount2(path, MntFlags::MNT_DETACH);
            let _ = fs::remove_file(path);
        }
    }
}

/// What is mounted in the directory is seen in all mount namespaces, and so removed in all.
fn share_directory() -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(NETNS_DIR)?;
    let share = || mount(NONE, NETNS_DIR, NONE, MsFlags::MS_SHARED | MsFlags::MS_REC, NONE);
    match share() {
        // It is no mount point yet.
        Err(Errno::EINVAL) => {
            mount(Some(NETNS_DIR), NETNS_DIR, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE)?;
            Ok(share()?)
        }
        other => Ok(other?),
    }
}
