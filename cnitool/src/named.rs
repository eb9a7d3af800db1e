//! `add --create`: creates a named network namespace, as `ip netns add` does.

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

/// A namespace that was created. Dropping this deletes it, unless [`Created::keep`] was called.
#[derive(Debug)]
pub struct Created(Option<PathBuf>);

impl Created {
    /// Creates a namespace with this name if it does not exist.
    ///
    /// # Errors
    /// If the name is not valid, or the namespace cannot be created.
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
        // From here on, dropping `this` removes the file if a step fails.
        let this = Self(Some(path.clone()));
        let bind = || mount(Some("/proc/thread-self/ns/net"), &path, NONE, MsFlags::MS_BIND, NONE);
        let bound = NetNs::scratch(bind).map_err(|e| Error::new(Code::Internal, e.to_string()))?;
        bound.map_err(|e| failed(&e.into()))?;
        Ok(this)
    }

    /// Keeps the namespace.
    pub fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Created {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // If removing fails, an empty file or a namespace without interfaces stays.
            let _ = umount2(path, MntFlags::MNT_DETACH);
            let _ = fs::remove_file(path);
        }
    }
}

/// Makes the directory a shared mount, so that namespaces are mounted and unmounted in all mount namespaces.
fn share_directory() -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(NETNS_DIR)?;
    let share = || mount(NONE, NETNS_DIR, NONE, MsFlags::MS_SHARED | MsFlags::MS_REC, NONE);
    match share() {
        // The directory is not a mount point yet.
        Err(Errno::EINVAL) => {
            mount(Some(NETNS_DIR), NETNS_DIR, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE)?;
            Ok(share()?)
        }
        other => Ok(other?),
    }
}
