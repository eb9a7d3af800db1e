//! Watches the directory of configurations for changes.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::io::Errno;

use crate::{ConfDir, ConfFile, Error, Network, Result};

/// The networks of a directory at a moment.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Networks {
    /// One for each file, in lexical order: as it is, or, if it is not valid now, as it was when it last was.
    pub networks: Vec<Network>,
    /// Files that are not valid, and why.
    pub problems: Vec<(PathBuf, Error)>,
}

impl Networks {
    /// That of the first file.
    pub fn default_network(&self) -> Option<&Network> {
        self.networks.first()
    }

    /// The network of that name.
    pub fn find(&self, name: &str) -> Option<&Network> {
        self.networks.iter().find(|network| network.name.as_str() == name)
    }

    /// What the files say now; what was good of `last` stays for those that are not valid.
    fn next(files: Vec<ConfFile>, last: &Self) -> Self {
        let mut this = Self::default();
        for ConfFile { file, network } in files {
            match network {
                Ok(network) => this.networks.push(network),
                Err(error) => {
                    let good = last.networks.iter().find(|network| network.file.as_ref() == Some(&file));
                    this.networks.extend(good.cloned());
                    this.problems.push((file, error));
                }
            }
        }
        this
    }

    /// Two that are alike have the same one.
    fn fingerprint(&self) -> String {
        let Self { networks, problems } = self;
        format!("{networks:?}{problems:?}")
    }
}

/// Where the networks of a [`Watcher`] are read, by any number of threads.
#[derive(Clone, Debug)]
pub struct Current(Arc<RwLock<Arc<Networks>>>);

impl Current {
    /// The networks as they are now. What was taken stays as it is while newer ones are swapped in.
    pub fn get(&self) -> Arc<Networks> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn set(&self, networks: Arc<Networks>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = networks;
    }
}

/// Follows a directory (inotify(7)) and swaps in what is valid. A file that becomes invalid keeps its last good state
/// until it is removed. The directory itself may come and go.
///
/// ```no_run
/// # use std::{thread, time::Duration};
/// use runtime::{ConfDir, Watcher};
///
/// let mut watcher = Watcher::new(ConfDir::new("/etc/cni/net.d"))?;
/// let current = watcher.current();
/// thread::spawn(move || {
///     while let Ok(changed) = watcher.wait(Duration::from_secs(3600)) {
///         for (file, why) in changed.iter().flat_map(|networks| &networks.problems) {
///             eprintln!("{}: {why}", file.display());
///         }
///     }
/// });
/// let network = current.get().find("pods").cloned();
/// # Ok::<(), runtime::Error>(())
/// ```
#[derive(Debug)]
pub struct Watcher {
    dir: ConfDir,
    events: OwnedFd,
    current: Current,
}

impl Watcher {
    /// Starts to watch the directory, and reads it.
    ///
    /// # Errors
    /// Code 5 if the directory cannot be followed or read.
    pub fn new(dir: ConfDir) -> Result<Self> {
        let events =
            inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(|e| failed(&dir, e))?;
        let this = Self { dir, events, current: Current(Arc::default()) };
        this.follow()?;
        this.reload()?;
        Ok(this)
    }

    /// Where other threads read the networks.
    pub fn current(&self) -> Current {
        self.current.clone()
    }

    /// Waits for a change and swaps it in. None if there was none in time.
    ///
    /// # Errors
    /// Code 5 if the directory cannot be followed or read any more. What was good stays.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<Arc<Networks>>> {
        let deadline = Instant::now() + timeout;
        while self.next_event(deadline)? {
            self.drain()?;
            // A directory may be new, and not followed yet: what is in it is read after it is.
            self.follow()?;
            if let Some(changed) = self.reload()? {
                return Ok(Some(changed));
            }
        }
        Ok(None)
    }

    /// The networks, if they are others than before.
    fn reload(&self) -> Result<Option<Arc<Networks>>> {
        let last = self.current.get();
        let next = Networks::next(self.dir.load()?, &last);
        if next.fingerprint() == last.fingerprint() {
            return Ok(None);
        }
        let next = Arc::new(next);
        self.current.set(Arc::clone(&next));
        Ok(Some(next))
    }

    /// Follows the directory, its subdirectories (they may have the name of a network), and the nearest directory above that
    /// there is: the directory may be made, or replaced. Following twice is following once.
    fn follow(&self) -> Result<()> {
        let path = self.dir.path();
        let mut nearest = None;
        // Until it is the same twice: a nearer one may be made after it was looked for and before the one above it is followed.
        loop {
            let last = nearest;
            for above in path.ancestors().skip(1).map(or_here) {
                if self.add(above)? {
                    nearest = Some(above);
                    break;
                }
            }
            if nearest == last {
                break;
            }
        }
        if self.add(path)? {
            let dirs = std::fs::read_dir(path).into_iter().flatten().flatten();
            for dir in dirs.filter(|entry| entry.path().is_dir()) {
                self.add(&dir.path())?;
            }
        }
        Ok(())
    }

    /// Follows a directory; says whether there is one.
    fn add(&self, dir: &Path) -> Result<bool> {
        // To replace a watch, the kernel takes its mask away for a moment, and an event of that moment is lost: inotify(7) has
        // MASK_ADD for one that may be there already.
        let changes = WatchFlags::MASK_ADD
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::ONLYDIR;
        match inotify::add_watch(&self.events, dir, changes) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(e) => Err(failed(&self.dir, e)),
        }
    }

    fn next_event(&self, deadline: Instant) -> Result<bool> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).ok();
            match poll(&mut [PollFd::new(&self.events, PollFlags::IN)], left.as_ref()) {
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::INTR) => {}
                Err(e) => return Err(failed(&self.dir, e)),
            }
        }
    }

    /// Takes all events: what they say is read from the directory itself.
    fn drain(&self) -> Result<()> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(&self.events, &mut buffer);
        loop {
            match events.next() {
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(e) => return Err(failed(&self.dir, e)),
            }
        }
    }
}

/// The directory above a relative name is the working directory.
fn or_here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

fn failed(dir: &ConfDir, cause: Errno) -> Error {
    cni::Error::io(format!("watch the directory {}", dir.path().display()), &io::Error::from(cause)).into()
}

#[cfg(test)]
mod tests;
