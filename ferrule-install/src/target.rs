//! Selects the directories for the plugins: those in which the runtimes of the host look for plugins.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cni::{Code, Error, Result};
use host_runtimes::Runtime;
use rustix::fs::Mode;
use rustix::process::umask;
use system::file::{self, AtomicFile};
use system::host_path::below;
use system::lock::Lock;

use crate::placed::STATE;
use crate::{divert, files, say, warn};

/// Default plugin directories of distributions, for hosts without a known runtime.
pub const PLACES: [&str; 3] = ["/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"];

/// The list of directories with installed plugins as paths of the host, one on each line. The deb and the rpm create its
/// parent directory. Without the parent directory, the list is not written, and a later run finds only directories that
/// a runtime searches.
const REGISTRY: &str = "/var/lib/ferrule/directories";

/// How long to wait for other runs that change the list.
const LOCK_TIMEOUT: Duration = Duration::from_secs(20);

/// The options that select directories.
#[derive(Debug)]
pub struct Wish<'a> {
    pub dirs: &'a [PathBuf],
    pub runtimes: &'a [String],
    /// The root directory of the host, as seen by this process.
    pub root: &'a Path,
}

/// The runtimes of the host, and the directories to install into.
#[derive(Debug)]
pub struct Targets {
    runtimes: Vec<Runtime>,
    /// The directories as paths of the host.
    dirs: Vec<PathBuf>,
    root: PathBuf,
}

impl Targets {
    /// Selects the directories, and prints the reasons. `names` are the names of the plugins.
    pub fn find(wish: &Wish<'_>, names: &BTreeSet<String>) -> Result<Self> {
        let (runtimes, problems) = host_runtimes::of_host(wish.root);
        problems.iter().for_each(|problem| say(&format!("warning: {problem}")));
        let runtimes = runtimes.into_iter().filter(|runtime| runtime.is_present).collect();
        let mut targets = Self { runtimes, dirs: Vec::new(), root: wish.root.to_owned() };
        targets.dirs = match wish.dirs {
            [] => targets.choose(wish.runtimes, names)?,
            dirs => dirs.to_vec(),
        };
        targets.print(names);
        Ok(targets)
    }

    /// The directories as seen by this process.
    pub fn dirs(&self) -> impl Iterator<Item = PathBuf> {
        self.dirs.iter().map(|dir| below(&self.root, dir))
    }

    /// Selects one directory for each runtime that runs CNI plugins.
    fn choose(&self, wanted: &[String], names: &BTreeSet<String>) -> Result<Vec<PathBuf>> {
        let is_named = |runtime: &&Runtime| {
            wanted.is_empty() || wanted.iter().any(|name| name.eq_ignore_ascii_case(runtime.name))
        };
        for name in wanted {
            if !self.runtimes.iter().any(|runtime| runtime.name.eq_ignore_ascii_case(name)) {
                let found: BTreeSet<&str> = self.runtimes.iter().map(|runtime| runtime.name).collect();
                let found = found.into_iter().collect::<Vec<_>>().join(", ");
                let found = if found.is_empty() { "no runtime that is known".to_owned() } else { found };
                return Err(Error::new(Code::InvalidConfig, format!("this host has no runtime {name:?}"))
                    .detail(format!("it has {found}; name a directory with --dir")));
            }
        }
        let mut runtimes: Vec<_> =
            self.runtimes.iter().filter(|runtime| runtime.runs_plugins).filter(is_named).collect();
        // First use the directories of runtimes that search only one. Other runtimes often search them, too.
        runtimes.sort_by_key(|runtime| runtime.plugins.len());
        let mut dirs: Vec<PathBuf> = Vec::new();
        for runtime in runtimes {
            let dir = self.of_list(&runtime.plugins, names, &dirs);
            if !dirs.iter().any(|one| self.is_same(one, &dir)) {
                dirs.push(dir);
            }
        }
        if dirs.is_empty() {
            dirs.push(self.of_list(&PLACES.map(PathBuf::from), names, &[]));
        }
        Ok(dirs)
    }

    /// The directory in a runtime's search list for Ferrule's plugins. A runtime uses the first directory that
    /// contains a plugin of the name, so Ferrule's directory must not come after one with other plugins of these
    /// names.
    fn of_list(&self, list: &[PathBuf], names: &BTreeSet<String>, chosen: &[PathBuf]) -> PathBuf {
        let usual = Path::new(PLACES[0]);
        let has_plugins = |dir: &&PathBuf| {
            let dir = below(&self.root, dir);
            dir.join(STATE).is_dir() || names.iter().any(|name| dir.join(name).exists())
        };
        let mut found = list.iter().find(has_plugins);
        found = found.or_else(|| list.iter().find(|dir| chosen.contains(dir)));
        found = found.or_else(|| list.iter().find(|dir| below(&self.root, dir).is_dir()));
        found = found.or_else(|| list.iter().find(|dir| *dir == usual));
        found.or(list.first()).cloned().unwrap_or_else(|| usual.to_owned())
    }

    /// Prints the table of runtimes, and a warning for each directory that no runtime searches.
    fn print(&self, names: &BTreeSet<String>) {
        let width = self.runtimes.iter().map(|runtime| runtime.name.len()).max().unwrap_or_default().max(7);
        if !self.runtimes.is_empty() {
            say(&format!("{:width$}  LOOKS IN", "RUNTIME"));
        }
        for runtime in &self.runtimes {
            let dirs = runtime.plugins.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>();
            let source =
                runtime.source.as_ref().map_or("by default".into(), |file| file.display().to_string());
            let looks = match runtime.runs_plugins {
                true => format!("{}  ({source})", dirs.join(":")),
                false => "nowhere: its configuration does not use CNI plugins".to_owned(),
            };
            say(&format!("{:width$}  {looks}", runtime.name));
        }
        for dir in &self.dirs {
            say(&format!("directory {}", dir.display()));
            if let Some(warning) = self.warning(dir, names) {
                say(&format!("warning: {warning}"));
            }
        }
    }

    /// Whether two paths lead to one directory. Runtimes may search it by different names.
    fn is_same(&self, one: &Path, other: &Path) -> bool {
        let real = |dir: &Path| below(&self.root, dir).canonicalize().unwrap_or_else(|_| dir.to_owned());
        real(one) == real(other)
    }

    /// The reason why an installation into a directory does not do what it should: no runtime searches it, a runtime
    /// finds (or may find) plugins of the same names in an earlier directory, or the new directory hides other plugins.
    fn warning(&self, dir: &Path, names: &BTreeSet<String>) -> Option<String> {
        let is_it = |one: &PathBuf| self.is_same(one, dir);
        let mut users = self.runtimes.iter().filter(|runtime| runtime.runs_plugins).peekable();
        users.peek()?;
        if let Some(runtime) = users.clone().find(|runtime| runtime.preferred.iter().any(is_it)) {
            return Some(format!(
                "{} looks in {} as soon as it exists, and no longer in {}",
                runtime.name,
                dir.display(),
                runtime.plugins[0].display()
            ));
        }
        if users.clone().all(|runtime| !runtime.plugins.iter().any(is_it)) {
            let listed: BTreeSet<_> = users
                .flat_map(|runtime| runtime.plugins.first())
                .map(|dir| dir.display().to_string())
                .collect();
            let listed = listed.into_iter().collect::<Vec<_>>().join(", ");
            return Some(format!(
                "no runtime of this host looks in {}; they look in {listed}",
                dir.display()
            ));
        }
        users.filter(|runtime| runtime.plugins.iter().any(is_it)).find_map(|runtime| {
            let mut before = runtime.plugins.iter().take_while(|one| !is_it(one));
            let hides = |one: &&PathBuf| names.iter().any(|name| below(&self.root, one).join(name).exists());
            // Every host has /usr, so without it only some of the host's directories are mounted here.
            let is_partial = !is_own(&self.root) && !below(&self.root, Path::new("/usr")).exists();
            let is_unseen = |one: &&PathBuf| is_partial && !below(&self.root, one).exists();
            if let Some(before) = before.clone().find(hides) {
                let (before, dir) = (before.display(), dir.display());
                return Some(format!("{} finds the plugins of {before} before those of {dir}", runtime.name));
            }
            let before = before.find(is_unseen)?.display();
            Some(format!(
                "{} looks in {before} before {}, and the host's {before} is not mounted here: plugins in it would hide these",
                runtime.name,
                dir.display()
            ))
        })
    }
}

/// The directories with installed plugins or their diversions, or the directories that the options name. All are real
/// paths: the records, dpkg's diversions and the list of directories contain real paths.
pub fn installed(wish: &Wish<'_>) -> Result<Vec<PathBuf>> {
    if !wish.dirs.is_empty() {
        return Ok(wish.dirs.iter().map(|dir| real(&seen_below(wish.root, dir))).collect());
    }
    let registered = read_list(&below(wish.root, Path::new(REGISTRY)))
        .map_err(|error| error.detail("name the directories with --dir"))?;
    let mut dirs: Vec<PathBuf> = registered.into_iter().collect();
    dirs.extend(PLACES.map(PathBuf::from));
    dirs.extend(host_runtimes::of_host(wish.root).0.into_iter().flat_map(|runtime| runtime.plugins));
    // Diversions remain if somebody has removed the state directory. dpkg then fails until they end.
    let diverted = if is_own(wish.root) { divert::dirs() } else { Vec::new() };
    let placed = dirs.iter().map(|dir| below(wish.root, dir)).filter(|dir| dir.join(STATE).is_dir());
    let mut found = Vec::new();
    for dir in diverted.into_iter().chain(placed) {
        let dir = real(&dir);
        if !found.contains(&dir) {
            found.push(dir);
        }
    }
    Ok(found)
}

/// Whether the host's root directory is this process's own.
pub fn is_own(root: &Path) -> bool {
    root == Path::new("/")
}

/// A directory of the host, as seen by this process. Without another root, it may be a relative path.
fn seen_below(root: &Path, dir: &Path) -> PathBuf {
    if is_own(root) { dir.to_owned() } else { below(root, dir) }
}

/// The real path of a directory. An absolute path if it does not exist.
fn real(dir: &Path) -> PathBuf {
    dir.canonicalize().or_else(|_| std::path::absolute(dir)).unwrap_or_else(|_| dir.to_owned())
}

/// Reads the list of directories. A missing list is empty.
fn read_list(path: &Path) -> Result<BTreeSet<PathBuf>> {
    let text = match fs::read(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(BTreeSet::new()),
        read => read.map_err(|e| Error::io(format!("read {}", path.display()), &e))?,
    };
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    Ok(lines.map(|line| PathBuf::from(OsStr::from_bytes(line))).collect())
}

/// Adds a directory to the list of its host for `--uninstall` and `--upgrade`, or removes it. `dir` is the real path.
/// Does nothing if no package has created the list's parent directory.
pub fn register(dir: &Path, root: &Path, is_installed: bool) {
    if let Err(error) = try_register(dir, root, is_installed) {
        let action = if is_installed { "added to" } else { "removed from" };
        warn(&format!("{} was not {action} the list of directories: {error}", dir.display()));
    }
}

fn try_register(dir: &Path, root: &Path, is_installed: bool) -> Result<()> {
    let registry = &below(root, Path::new(REGISTRY));
    let of_host = Path::new("/").join(dir.strip_prefix(real(root)).unwrap_or(dir));
    let parent = match registry.parent().map(file::open_directory) {
        Some(Err(e)) if e.kind() != ErrorKind::NotFound => {
            return Err(Error::io(format!("open the directory of {}", registry.display()), &e));
        }
        Some(Ok(parent)) => parent,
        _ => return Ok(()),
    };
    // Another run may change the list for another directory.
    let _lock = Lock::acquire("ferrule-install", LOCK_TIMEOUT)?;
    let mut dirs = read_list(registry)?;
    let is_change = if is_installed { dirs.insert(of_host) } else { dirs.remove(&of_host) };
    if !is_change {
        return Ok(());
    }
    let lines = dirs.iter().flat_map(|dir| [dir.as_os_str().as_bytes(), b"\n"]);
    let file = AtomicFile { dir: &parent, name: "directories", label: "directories" };
    file.replace_for_all(&lines.collect::<Vec<_>>().concat())
        .map_err(|e| files::failed(format!("write {}", registry.display()), &e))
}

/// A directory to install into.
#[derive(Debug)]
pub struct Target {
    /// The real path.
    pub dir: PathBuf,
    /// How many directories at the end of the path did not exist before.
    pub made: usize,
}

/// Fails if a missing directory cannot be created: it is behind a dangling link, or it would exist only in this
/// container.
pub fn check(dir: &Path, root: &Path) -> Result<()> {
    if let Some(link) = dir.ancestors().find(|path| path.is_symlink() && !path.exists()) {
        return Err(Error::new(
            Code::Io,
            format!("{} is a symbolic link to a directory that does not exist", link.display()),
        )
        .detail("make or mount that directory, or remove the link"));
    }
    if !dir.exists() && !is_own(root) {
        let of_host = Path::new("/").join(dir.strip_prefix(root).unwrap_or(dir));
        return Err(Error::new(Code::InvalidConfig, format!("the host's {} is not mounted at {}", of_host.display(), dir.display()))
            .detail("a runtime of this host looks for plugins there: mount it (in a Kubernetes manifest: hostPath and mountPath)"));
    }
    Ok(())
}

/// Creates a directory if it is missing.
pub fn make(dir: &Path, root: &Path) -> Result<Target> {
    check(dir, root)?;
    let missing = dir.ancestors().take_while(|path| !path.exists());
    let made = missing.filter(|path| path.file_name().is_some()).count();
    if made > 0 {
        // Users without privileges also start plugins, whatever the umask is.
        umask(Mode::WGRP | Mode::WOTH);
        fs::create_dir_all(dir).map_err(|e| {
            files::remove_empty_dirs(dir, made);
            files::failed(format!("make the directory {}", dir.display()), &e)
        })?;
        say(&format!("made the directory {}", dir.display()));
    }
    let dir = dir.canonicalize().map_err(|e| Error::io(format!("open {}", dir.display()), &e))?;
    Ok(Target { dir, made })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(root: &Path) -> Targets {
        Targets { runtimes: Vec::new(), dirs: Vec::new(), root: root.to_owned() }
    }

    #[test]
    fn of_several_directories_the_first_with_plugins_is_used_then_one_in_use_then_one_that_exists() {
        let root = tempfile::tempdir().unwrap();
        let list = ["/a", "/b", "/c", "/d", "/opt/cni/bin"].map(PathBuf::from);
        let names = BTreeSet::from(["bridge".to_owned()]);
        let chosen = |others: &[PathBuf]| targets(root.path()).of_list(&list, &names, others);
        assert_eq!(chosen(&[]), list[4]);
        for dir in &list[1..4] {
            fs::create_dir(below(root.path(), dir)).unwrap();
        }
        assert_eq!(chosen(&[]), list[1]);
        assert_eq!(chosen(&list[2..3]), list[2]);
        fs::write(below(root.path(), &list[3]).join("bridge"), "").unwrap();
        assert_eq!(chosen(&list[2..3]), list[3]);
        fs::create_dir(below(root.path(), &list[1]).join(STATE)).unwrap();
        assert_eq!(chosen(&[]), list[1]);
    }
}
