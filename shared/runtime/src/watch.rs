//! Watches the configuration directory for changes (inotify(7)).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::io::Errno;

use crate::{ConfDir, ConfFile, Error, Network, Result, conf_dir};

/// The kernel follows this many symbolic links in a path (`MAXSYMLINKS`).
const LINKS_MAX: usize = 40;

/// The networks of a directory at one moment.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Networks {
    /// One for each file, sorted: the current one, or, if the file is invalid, the last valid one.
    pub networks: Vec<Network>,
    /// Invalid files and their errors.
    pub problems: Vec<(PathBuf, Error)>,
}

impl Networks {
    /// Network of the first file.
    pub fn default_network(&self) -> Option<&Network> {
        self.networks.first()
    }

    /// Finds a network by its name, as [`ConfDir::find`] does.
    pub fn find(&self, name: &str) -> Option<&Network> {
        conf_dir::find(&self.networks, name)
    }

    /// The current files. For invalid files, the network of `last` is kept.
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

    /// Equal for equal networks.
    fn fingerprint(&self) -> String {
        let Self { networks, problems } = self;
        format!("{networks:?}{problems:?}")
    }
}

/// Access to the networks of a [`Watcher`], from any number of threads.
#[derive(Clone, Debug)]
pub struct Current(Arc<RwLock<Arc<Networks>>>);

impl Current {
    /// The current networks. A returned value does not change.
    pub fn get(&self) -> Arc<Networks> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn set(&self, networks: Arc<Networks>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = networks;
    }
}

/// Watches a configuration directory, and loads valid files when they change. If a file becomes invalid, its last valid network is kept until
/// the file is removed. The directory may be created, deleted and replaced meanwhile.
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
    /// Starts watching, and loads the directory.
    ///
    /// # Errors
    /// Code 5 if the directory cannot be watched or read.
    pub fn new(dir: ConfDir) -> Result<Self> {
        let events =
            inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(|e| failed(&dir, e))?;
        let this = Self { dir, events, current: Current(Arc::default()) };
        this.follow()?;
        this.reload()?;
        Ok(this)
    }

    /// Access for other threads.
    pub fn current(&self) -> Current {
        self.current.clone()
    }

    /// Waits for a change and loads it. `None` on timeout.
    ///
    /// # Errors
    /// Code 5 if the directory can no longer be watched or read. The last valid networks are kept.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<Arc<Networks>>> {
        // A timeout that ends after all times of the clock does not end.
        let deadline = Instant::now().checked_add(timeout);
        while self.next_event(deadline)? {
            self.drain()?;
            // Watch new directories before reading them.
            self.follow()?;
            if let Some(changed) = self.reload()? {
                return Ok(Some(changed));
            }
        }
        Ok(None)
    }

    /// The networks, if they changed.
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

    /// Watches the directory, its subdirectories (they may have the name of a network), and the nearest existing parent, because the
    /// directory may be created or replaced. The same for the target of each symbolic link in its path. Watching twice has no effect.
    fn follow(&self) -> Result<()> {
        let path = self.dir.path();
        let targets = std::iter::successors(Some(path.to_owned()), |path| target(path));
        targets.take(LINKS_MAX).try_for_each(|path| self.follow_parent(&path))?;
        if self.add(path)? {
            let dirs = std::fs::read_dir(path).into_iter().flatten().flatten();
            for dir in dirs.filter(|entry| entry.path().is_dir()) {
                self.add(&dir.path())?;
            }
        }
        Ok(())
    }

    /// Watches the nearest existing parent of a path.
    fn follow_parent(&self, path: &Path) -> Result<()> {
        let mut nearest = None;
        // Repeats until nothing changes, because a nearer parent may be created before the one above it is watched.
        loop {
            let last = nearest;
            for above in path.ancestors().skip(1).map(or_here) {
                if self.add(above)? {
                    nearest = Some(above);
                    break;
                }
            }
            if nearest == last {
                return Ok(());
            }
        }
    }

    /// Watches a directory. Returns whether it exists.
    fn add(&self, dir: &Path) -> Result<bool> {
        // Without MASK_ADD, the kernel replaces the mask of an existing watch: it removes the old mask for a moment, and loses events.
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

    fn next_event(&self, deadline: Option<Instant>) -> Result<bool> {
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut [PollFd::new(&self.events, PollFlags::IN)], left.as_ref()) {
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::INTR) => {}
                Err(e) => return Err(failed(&self.dir, e)),
            }
        }
    }

    /// Discards all events, because `reload` reads the whole directory.
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

/// The parent of a relative path with one component is the working directory.
fn or_here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

/// The path to which the last symbolic link in a path leads. `None` if it contains no link.
fn target(path: &Path) -> Option<PathBuf> {
    path.ancestors().find_map(|link| {
        let parent = or_here(link.parent()?);
        Some(parent.join(std::fs::read_link(link).ok()?).join(path.strip_prefix(link).ok()?))
    })
}

fn failed(dir: &ConfDir, cause: Errno) -> Error {
    cni::Error::io(format!("watch the directory {}", dir.path().display()), &io::Error::from(cause)).into()
}

#[cfg(test)]
mod tests;
