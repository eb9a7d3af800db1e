//! Changes the plugins of a directory: either all or none.
//!
//! The state is in `.ferrule` in the same directory, so that all moves are renames:
//!
//! | name | content |
//! |---|---|
//! | `record` | the installed plugins |
//! | `kept/` | the files of others with the same names, from before the installation |
//! | `kept.N/` | the files for `kept/` of the installation with number N |
//! | `new/` | the files to install |
//! | `before/` | the current files of the names that will change |
//! | `record.new` | the plugins after the change. This file exists only during a change |
//!
//! A change prepares `new/` and `before/`, and then writes `record.new`. Then it renames each file into place.
//! Finally it renames `record.new` to `record`. If a run finds `record.new`, a change was interrupted, and the run
//! restores `before/`, except over files that other programs have installed since. Neither restoring nor the final step
//! needs disk space. Only when `record` has the number N, the files in `kept.N/` replace those in `kept/`: an
//! installation that fails does not change `kept/`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cni::{Code, Error, Failures, Result};

use crate::files::Sums;
use crate::record::{self, Record};
use crate::source::{self, Selection, Sources};
use crate::{divert, files, say, target, warn};

/// The state directory.
pub const STATE: &str = ".ferrule";

/// A plugin directory, locked against other runs of ferrule-install.
#[derive(Debug)]
pub struct Placed {
    dir: PathBuf,
    /// Whether the packages of this machine may contain plugins of this directory.
    diverts: bool,
    record: Record,
    /// The files in `kept/` that the next change makes obsolete: other programs have removed theirs.
    obsolete: Vec<PathBuf>,
    /// Whether the next change installs plugins again that others have replaced.
    is_repair: bool,
    /// Held until the end of the change. None if the state directory does not exist yet.
    lock: Option<File>,
}

impl Placed {
    /// Opens a directory, and undoes an interrupted change. `root` is the host's root directory, as seen by this process.
    pub fn open(dir: &Path, root: &Path) -> Result<Self> {
        let mut placed = Self {
            dir: dir.to_owned(),
            diverts: target::is_own(root),
            record: Record::default(),
            obsolete: Vec::new(),
            is_repair: false,
            lock: None,
        };
        if is_dir(&placed.state(""))? {
            placed.enter()?;
        }
        Ok(placed)
    }

    fn enter(&mut self) -> Result<()> {
        let state = self.state("");
        self.lock = Some(lock(&state)?);
        match Record::read(&self.dir, "record")? {
            Some(record) => self.record = record,
            None => self.check_unrecorded()?,
        }
        let undone = self.roll_back().map_err(|error| {
            error.detail("the change of an interrupted run is not undone yet; the next run of ferrule-install tries again")
        });
        if undone? {
            say("an earlier run was interrupted: restored the files from before it");
        }
        self.complete()?;
        self.tidy();
        Ok(())
    }

    /// Fails if the record was lost, and files of others may exist only in `kept/`.
    fn check_unrecorded(&self) -> Result<()> {
        if files::exists(&self.state("record.new"))? {
            return Ok(());
        }
        let kept = self.state("kept");
        for name in files::names(&kept)? {
            // A file that is still in its place is not lost.
            if !files::same(&kept.join(&name), &self.dir.join(&name))? {
                let record = self.state("record");
                let lost = format!("{} is missing, but {} contains files", record.display(), kept.display());
                return Err(Error::new(Code::Io, lost).detail(record::remedy(&self.dir)));
            }
        }
        Ok(())
    }

    fn state(&self, name: &str) -> PathBuf {
        self.dir.join(STATE).join(name)
    }

    /// The names of the installed plugins.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.record.installed.keys()
    }

    /// Records that ferrule-install created the directory, and how many directories at the end of its path.
    pub fn with_made(mut self, made: usize) -> Self {
        self.record.made = self.record.made.max(made);
        self
    }

    /// Installs plugins. `run` identifies this run.
    pub fn install(mut self, sources: &Sources, run: u64) -> Result<()> {
        if sources.is_empty() {
            return self.install_nothing(run);
        }
        if self.lock.is_none() {
            let state = self.state("");
            // The end of another run may have removed the directory itself.
            let made = files::make_dir(&state).map_err(|e| if self.dir.exists() { e } else { busy(&state) });
            if let Err(error) = made.and_then(|()| self.enter()) {
                // Another run may already use the state directory.
                if error.code() != Code::TryAgainLater as u32 {
                    fs::remove_dir(&state).ok();
                    self.remove_made();
                }
                return Err(error);
            }
        }
        let outcome = self.try_install(sources, run);
        self.end(outcome)
    }

    /// Installs the plugins that an earlier run installed. Without `reclaim`, keeps files that others have replaced
    /// since. With `reclaim`, the latest files of others are those to restore: none if others have removed theirs. dpkg itself removes a diverted
    /// file with its package, so a missing plugin does not mean that its file in `kept/` is obsolete.
    pub fn upgrade(mut self, sources: &Sources, reclaim: bool, run: u64) -> Result<()> {
        let mut new = sources.clone();
        new.retain(|name, _| self.record.installed.contains_key(name));
        let diverted = if self.diverts { divert::kept(&self.dir) } else { BTreeSet::new() };
        for name in new.keys().cloned().collect::<Vec<_>>() {
            let at = self.dir.join(&name);
            let is_missing = !files::exists(&at)?;
            if reclaim {
                let is_obsolete = is_missing && !diverted.contains(&name);
                self.obsolete.extend(is_obsolete.then(|| self.state("kept").join(&name)));
            } else if is_missing {
                say(&format!(
                    "skipped {}: another program has removed it; --upgrade --reclaim installs it",
                    at.display()
                ));
                new.remove(&name);
            } else if !self.is_ours(&name)? {
                say(&format!(
                    "kept {}: another program has written it since; --upgrade --reclaim replaces it",
                    at.display()
                ));
                new.remove(&name);
            }
        }
        self.install(&new, run)
    }

    /// Installs plugins again that others have replaced.
    pub fn repair(mut self, sources: &Sources, run: u64) -> Result<()> {
        self.is_repair = true;
        self.install(sources, run)
    }

    /// The plugins that this run has installed, and that others have replaced, overwritten or removed. Empty if another
    /// run has installed since.
    pub fn replaced(&self, run: u64) -> BTreeSet<String> {
        if self.record.run != Some(run) {
            return BTreeSet::new();
        }
        // Unlike in `is_ours`, the content counts: cp(1) over one plugin overwrites all that share its file.
        let mut sums = Sums::default();
        let mut is_replaced = |name: &str, expected: &String| {
            sums.get(&self.dir.join(name)).is_ok_and(|found| found.as_ref() != Some(expected))
        };
        let installed = self.record.installed.iter();
        installed.filter(|(name, sum)| is_replaced(name, sum)).map(|(name, _)| name.clone()).collect()
    }

    /// Takes over the plugins of an earlier run if this run has nothing to install. The end of the earlier run then
    /// keeps them.
    fn install_nothing(mut self, run: u64) -> Result<()> {
        say(&format!("nothing to install in {}", self.dir.display()));
        if self.record.installed.is_empty() {
            return self.end(Ok(()));
        }
        let outcome = self.try_install(&Sources::new(), run);
        // If the record cannot be written, the plugins stay the earlier run's.
        self.end(outcome).or_else(|error| {
            say(&format!("the record was not updated, so an earlier run with --stay may uninstall these plugins when it ends: {error}"));
            Ok(())
        })
    }

    fn try_install(&mut self, sources: &Sources, run: u64) -> Result<()> {
        self.make_ready()?;
        // From now on, only a lost record is missing. Otherwise a kill before the first change would look the same.
        if !files::exists(&self.state("record"))? {
            self.write_record(&self.record, "record")?;
        }
        let placed = self.stage(sources)?;
        let links = self.links_of(placed.keys())?;
        let mut next = Record { run: Some(run), number: self.record.number + 1, ..self.record.clone() };
        next.changed.clear();
        let (mut kept, to_keep) = (BTreeSet::new(), self.to_keep(next.number));
        // An earlier run may have failed to remove it.
        files::remove_dir(&to_keep)?;
        files::make_dir(&to_keep)?;
        for name in sources.keys() {
            let foreign = !self.is_ours(name)?;
            let was_there = self.look_at(name, &mut next)?;
            if foreign && was_there && !self.keeps_original(name)? {
                files::keep(&self.dir.join(name), &to_keep.join(name), &self.state("temporary"))?;
                kept.insert(name);
            }
        }
        files::sync_dir(&to_keep)?;
        for name in placed.keys() {
            next.drop(name);
        }
        for (name, inode) in links {
            next.births
                .extend(files::birth(&self.state("new").join(&name)).map(|birth| (name.clone(), birth)));
            next.links.insert(name, inode);
        }
        next.installed.extend(placed);
        self.change(next)?;
        self.complete()
            .unwrap_or_else(|error| warn(&format!("{error}. The next run of ferrule-install tries again")));
        for kept in &self.obsolete {
            files::remove(kept).unwrap_or_else(|error| warn(&error.to_string()));
        }
        for name in sources.keys() {
            let to = self.dir.join(name);
            match kept.contains(name) {
                true => say(&format!("installed {}; the replaced files are in {STATE}/kept", to.display())),
                false => say(&format!("installed {}", to.display())),
            }
        }
        Ok(())
    }

    /// Copies each file once into `new/`, with a link for each further name, and checks that the plugins start.
    /// Returns the SHA-256 sums.
    fn stage(&self, sources: &Sources) -> Result<BTreeMap<String, String>> {
        let mut copies: BTreeMap<(u64, u64), (PathBuf, String)> = BTreeMap::new();
        let (mut sums, mut has_links) = (BTreeMap::new(), true);
        for (name, from) in sources {
            let open = |e| Error::io(format!("open {}", from.display()), &e);
            let mut file = File::open(from).map_err(open)?;
            let meta = file.metadata().map_err(open)?;
            let to = self.state("new").join(name);
            let id = (meta.dev(), meta.ino());
            let sum = if let Some((copy, sum)) = copies.get(&id) {
                if files::keep(copy, &to, &self.state("temporary"))? && has_links {
                    has_links = false;
                    say(&format!(
                        "{} is on a file system without hard links: each plugin is a copy",
                        self.dir.display()
                    ));
                }
                sum.clone()
            } else {
                let sum = files::write(&to, &mut file, 0o755)?;
                copies.insert(id, (to.clone(), sum.clone()));
                sum
            };
            source::ask_version(&to)?;
            sums.insert(name.clone(), sum);
        }
        Ok(sums)
    }

    /// The inodes of the staged plugins that share a file with others.
    fn links_of<'a>(&self, names: impl Iterator<Item = &'a String>) -> Result<BTreeMap<String, u64>> {
        let mut links = BTreeMap::new();
        for name in names {
            let path = self.state("new").join(name);
            let meta =
                fs::metadata(&path).map_err(|e| Error::io(format!("look at {}", path.display()), &e))?;
            links.extend((meta.nlink() > 1).then(|| (name.clone(), meta.ino())));
        }
        Ok(links)
    }

    /// Restores the files from before the first installation, for all selected names.
    pub fn uninstall(mut self, selection: &Selection) -> Result<()> {
        let outcome = self.try_uninstall(selection);
        self.end(outcome)
    }

    /// Uninstalls at the end of a run with `--stay`, unless another run has installed since.
    pub fn uninstall_own(self, run: u64) -> Result<()> {
        let others = if self.is_diverted_elsewhere() {
            "dpkg of the host diverts files of packages there"
        } else if self.record.installed.is_empty() || self.record.run == Some(run) {
            return self.uninstall(&Selection::default());
        } else {
            "another run has installed there since"
        };
        say(&format!("kept {}: {others}", self.dir.display()));
        self.end(Ok(()))
    }

    fn try_uninstall(&mut self, selection: &Selection) -> Result<()> {
        let names: Vec<String> =
            self.record.installed.keys().filter(|name| selection.has(name)).cloned().collect();
        if names.is_empty() {
            say(&format!("nothing is installed in {}", self.dir.display()));
            return Ok(());
        }
        if self.is_diverted_elsewhere() {
            let text = format!("dpkg of the host diverts files to {}", self.state("kept").display());
            return Err(Error::new(Code::Internal, text).detail(
                "without this directory, dpkg could not install packages with plugins: run `ferrule-install --uninstall` on the host \
                 itself, which ends the diversions",
            ));
        }
        self.make_ready()?;
        let (mut next, mut said) = (self.record.clone(), Vec::new());
        next.changed.clear();
        for name in &names {
            let (at, kept) = (self.dir.join(name), self.state("kept").join(name));
            let has_earlier = files::exists(&kept)?;
            if files::exists(&at)? && !self.is_ours(name)? {
                let left = format!("kept {}: another program has written it since", at.display());
                // Keep the earlier file until an administrator has compared both.
                let is_kept = has_earlier && !files::same(&kept, &at)?;
                said.push(match is_kept {
                    true => {
                        format!("{left}; the files from before the installation stay in {}", kept.display())
                    }
                    false => left,
                });
                if !is_kept {
                    next.drop(name);
                }
                continue;
            }
            next.drop(name);
            self.look_at(name, &mut next)?;
            if has_earlier {
                files::keep(&kept, &self.state("new").join(name), &self.state("temporary"))?;
                said.push(format!("put back {}", at.display()));
            } else {
                said.push(format!("removed {}", at.display()));
            }
        }
        // Change the diversions first. If the change is then interrupted, a package may replace Ferrule's plugins,
        // but never loses its own.
        self.divert(&next)?;
        self.change(next)?;
        said.iter().for_each(|line| say(line));
        Ok(())
    }

    /// Whether the file in `kept/` stays, although the next change replaces another program's file: a repair does not
    /// keep a broken file in place of an original.
    fn keeps_original(&self, name: &str) -> Result<bool> {
        let has_original = self.is_repair && files::exists(&self.state("kept").join(name))?;
        Ok(has_original && source::ask_version(&self.dir.join(name)).is_err())
    }

    /// The directory with the files for `kept/` of an installation.
    fn to_keep(&self, number: u64) -> PathBuf {
        self.state(&format!("kept.{number}"))
    }

    /// Moves the files that the last installation has replaced to `kept/`.
    fn complete(&self) -> Result<()> {
        let (from, kept) = (self.to_keep(self.record.number), self.state("kept"));
        if !is_dir(&from)? {
            return Ok(());
        }
        // If a power failure reverted the record, the next run would undo the installation, and need the files in `kept/`.
        files::sync_dir(&self.state(""))?;
        for name in files::names(&from)? {
            files::rename(&from.join(&name), &kept.join(&name))?;
        }
        files::sync_dir(&kept)?;
        files::remove_dir(&from)
    }

    fn make_ready(&self) -> Result<()> {
        ["kept", "new", "before"].iter().try_for_each(|name| files::make_dir(&self.state(name)))
    }

    /// Sets the diversions to the plugins of a record. Before that, records that there may be diversions.
    fn divert(&mut self, record: &Record) -> Result<()> {
        if !self.diverts {
            return Ok(());
        }
        if !self.record.diverted && !self.record.installed.is_empty() && divert::applies(&self.dir) {
            self.record.diverted = true;
            self.write_record(&self.record, "record")?;
        }
        divert::set(&self.dir, &record.installed.keys().map(String::as_str).collect())
    }

    /// Whether dpkg of the host may have diversions into this state that this run cannot end: it has another root, or runs in an image
    /// without dpkg.
    fn is_diverted_elsewhere(&self) -> bool {
        self.record.diverted && !(self.diverts && divert::has_dpkg())
    }

    /// Whether a file is unchanged since the installation.
    fn is_ours(&self, name: &str) -> Result<bool> {
        self.is_of(&self.record, name)
    }

    /// Whether a file is unchanged since the installation of a record, or is still the shared file of several plugins,
    /// even if its content was changed.
    fn is_of(&self, record: &Record, name: &str) -> Result<bool> {
        let Some(expected) = record.installed.get(name) else { return Ok(false) };
        let at = self.dir.join(name);
        let has_birth = || record.births.get(name).is_none_or(|birth| files::birth(&at) == Some(*birth));
        let is_shared = |inode: &u64| {
            let found = at.symlink_metadata();
            found.is_ok_and(|found| found.is_file() && found.nlink() > 1 && found.ino() == *inode)
                && has_birth()
        };
        if record.links.get(name).is_some_and(is_shared) {
            return Ok(true);
        }
        Ok(files::sum(&at)?.as_ref() == Some(expected))
    }

    /// Records whether a file of this name exists, and links it into `before/`.
    fn look_at(&self, name: &str, next: &mut Record) -> Result<bool> {
        let at = self.dir.join(name);
        let found = files::stat(&at)?;
        if found.as_ref().is_some_and(fs::Metadata::is_dir) {
            return Err(Error::new(Code::Io, format!("{} is a directory", at.display()))
                .detail("move it away, or name the plugins to install with --only"));
        }
        if found.is_some() {
            files::keep(&at, &self.state("before").join(name), &self.state("temporary"))?;
        }
        next.changed.insert(name.to_owned(), found.is_some());
        Ok(found.is_some())
    }

    /// Writes a record under a name that it has only when it is complete.
    fn write_record(&self, record: &Record, name: &str) -> Result<()> {
        record.write(&self.state("record.part"))?;
        files::rename(&self.state("record.part"), &self.state(name))
    }

    /// Applies a change: moves the files in `new/` into place, and removes the other names that change.
    fn change(&mut self, next: Record) -> Result<()> {
        for name in ["new", "before", "kept"] {
            files::sync_dir(&self.state(name))?;
        }
        self.write_record(&next, "record.new")?;
        files::sync_dir(&self.state(""))?;
        for name in next.changed.keys() {
            let (new, at) = (self.state("new").join(name), self.dir.join(name));
            if files::exists(&new)? {
                files::rename(&new, &at)?;
            } else {
                files::remove(&at)?;
            }
        }
        files::sync_dir(&self.dir)?;
        files::rename(&self.state("record.new"), &self.state("record"))?;
        // The change is complete. If a power failure reverts this rename, the next run undoes the change.
        files::sync_dir(&self.state("")).ok();
        self.record = next;
        Ok(())
    }

    /// Restores `before/` if `record.new` exists, and returns whether it does. If this is interrupted, the next run
    /// repeats it.
    fn roll_back(&self) -> Result<bool> {
        let Some(next) = Record::read(&self.dir, "record.new")? else { return Ok(false) };
        let mut failures = Failures::new();
        for (name, was_there) in &next.changed {
            failures.note(self.restore(name, *was_there, &next));
        }
        failures.note(files::sync_dir(&self.dir));
        failures.into_result()?;
        files::remove(&self.state("record.new"))?;
        files::sync_dir(&self.state(""))?;
        Ok(true)
    }

    /// Undoes the change to `next` for one name, unless another program has installed its own file since.
    fn restore(&self, name: &str, was_there: bool, next: &Record) -> Result<()> {
        let (before, at) = (self.state("before").join(name), self.dir.join(name));
        if was_there && !files::exists(&before)? {
            // An earlier attempt has restored it.
            return Ok(());
        }
        let is_unchanged = files::same(&before, &at)?;
        if !is_unchanged && self.is_foreign(name, next)? {
            warn(&format!("kept {}: another program has written it since the change began", at.display()));
            return Ok(());
        }
        if !was_there {
            return files::remove(&at);
        }
        // If the rename to the new file has failed, the old file still exists.
        files::rename(&before, &at).or_else(|e| if is_unchanged { Ok(()) } else { Err(e) })
    }

    /// Whether a file is neither of the installed plugins nor one that the change to `next` has put into place.
    fn is_foreign(&self, name: &str, next: &Record) -> Result<bool> {
        let at = self.dir.join(name);
        let is_of_change = match next.installed.contains_key(name) {
            true => self.is_of(next, name)?,
            false => files::same(&self.state("kept").join(name), &at)?,
        };
        Ok(!is_of_change && !self.is_ours(name)? && files::exists(&at)?)
    }

    /// Ends a change. After a failure, restores all files. If no plugin is installed, removes the state.
    fn end(mut self, outcome: Result<()>) -> Result<()> {
        let outcome = match outcome.map_err(|error| (error, self.roll_back())) {
            Ok(()) => Ok(()),
            Err((error, Ok(_))) => {
                Err(error.detail(format!("nothing was changed in {}", self.dir.display())))
            }
            // The next run needs the state.
            Err((error, Err(failure))) => {
                return Err(error
                    .and_rollback(failure)
                    .detail("the next run of ferrule-install, also with --uninstall, tries again"));
            }
        };
        // Without the lock, the state may be that of another run.
        if self.lock.is_some() {
            self.tidy();
        }
        let record = self.record.clone();
        divert::warn(self.divert(&record), &self.dir);
        if self.record.installed.is_empty() && self.lock.is_some() {
            files::remove(&self.state("record")).ok();
            fs::remove_dir(self.state("kept")).ok();
            fs::remove_dir(self.state("")).ok();
        }
        if self.record.installed.is_empty() {
            self.remove_made();
        }
        self.lock = None;
        outcome
    }

    /// Removes the directory and its parents if they are empty and ferrule-install created them.
    fn remove_made(&self) {
        files::remove_empty_dirs(&self.dir, self.record.made);
    }

    /// Removes files that no record contains. Failures are ignored, because the next run tries again.
    fn tidy(&self) {
        for dir in [self.state("new"), self.state("before"), self.to_keep(self.record.number + 1)] {
            fs::remove_dir_all(dir).ok();
        }
        for name in ["temporary", "record.part"] {
            files::remove(&self.state(name)).ok();
        }
        for entry in fs::read_dir(self.state("kept")).into_iter().flatten().flatten() {
            // dpkg first writes a diverted file under such a temporary name.
            let known = |name: &str| {
                let name = name.strip_suffix(".dpkg-new").or(name.strip_suffix(".dpkg-tmp")).unwrap_or(name);
                self.record.installed.contains_key(name)
            };
            if !entry.file_name().to_str().is_some_and(known) {
                files::remove(&entry.path()).ok();
            }
        }
    }
}

/// Whether a directory exists.
fn is_dir(path: &Path) -> Result<bool> {
    match fs::metadata(path) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
        found => {
            found.map(|meta| meta.is_dir()).map_err(|e| Error::io(format!("look at {}", path.display()), &e))
        }
    }
}

/// Locks the state directory. Only its owner can open the directory, so no other user can hold the lock.
fn lock(state: &Path) -> Result<File> {
    // The previous holder may have removed the directory when it ended.
    let open = |e: io::Error| match e.kind() {
        ErrorKind::NotFound => busy(state),
        _ => files::failed(format!("open {}", state.display()), &e),
    };
    let file = File::open(state).map_err(open)?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => return Err(busy(state)),
        Err(TryLockError::Error(e)) => return Err(Error::io(format!("lock {}", state.display()), &e)),
        Ok(()) => {}
    }
    let is_still = system::file::is_still(&file, fs::symlink_metadata(state)).map_err(open)?;
    if is_still { Ok(file) } else { Err(busy(state)) }
}

fn busy(state: &Path) -> Error {
    Error::new(Code::TryAgainLater, format!("another ferrule-install is running in {}", state.display()))
        .detail("run ferrule-install again later, or with --wait SECONDS")
}
