//! Cache of ADD's results until DEL, in libcni's format (`cniCacheV1`) and directory: libcni and this crate read each other's entries.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::prelude::{BASE64_STANDARD, Engine};
use cni::{
    AddResult, Attachment, Attachments, CniArgs, Code, ContainerId, NetworkName, ResultExt, Version, json,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use system::file::{self, AtomicFile};

use crate::{AttachmentParameters, Network, PluginConf, Result, result};

const KIND: &str = "cniCacheV1";

/// Maximum length of a file's name in bytes (NAME_MAX in linux/limits.h).
const LONGEST_NAME: usize = 255;

/// An incomplete file of this age is stale: its writer was killed.
const INCOMPLETE_AGE: Duration = Duration::from_secs(300);

/// Directory of the cache: `DIR/results/NETWORK-CONTAINER-IFNAME`, one file for each attachment.
#[derive(Clone, Debug)]
pub struct Cache {
    dir: PathBuf,
}

impl Default for Cache {
    fn default() -> Self {
        Self::new(Self::DEFAULT_DIR)
    }
}

/// A cached attachment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Entry {
    /// The attachment's network.
    pub network: NetworkName,
    /// The parameters of ADD.
    pub attach: AttachmentParameters,
    /// The network's configuration list at ADD. Empty in libcni's earliest format.
    pub config: Vec<u8>,
    /// Result of ADD, as the plugin printed it.
    pub result: Value,
    /// Time of ADD: the file's modification time. None if it cannot be read.
    pub added: Option<SystemTime>,
    /// The plugins of the network's directory ([`Entry::with_directory_of`]).
    directory: Arc<[PluginConf]>,
}

/// The files of a network in a cache.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct NetworkEntries {
    /// The network's attachments.
    pub entries: Vec<Entry>,
    /// The attachments that files of libcni before 0.8 may have: the names of the files show neither the network nor the container for
    /// certain. They may be attachments of another network, so they must not be detached.
    pub ambiguous: Vec<Entry>,
    /// Files that cannot be read.
    pub unreadable: Vec<PathBuf>,
}

impl Entry {
    /// The result of ADD.
    ///
    /// # Errors
    /// Code 1 or 6 if it is not a result.
    pub fn result(&self) -> Result<AddResult> {
        Ok(result::read(&self.result, Version::WHEN_ABSENT)?)
    }

    /// The result of ADD in the version of a network.
    pub(crate) fn result_in(&self, version: Version) -> cni::Result<Value> {
        result::in_version(&self.result, Version::WHEN_ABSENT, version)
    }

    /// The network's configuration at ADD, with the plugins of [`Entry::with_directory_of`]. Its version is that of the result, if the
    /// configuration lists it: ADD may have used a lower version than the highest one ([`Runtime::negotiate`](crate::Runtime::negotiate)).
    ///
    /// # Errors
    /// Like [`Network::from_bytes`].
    pub fn network(&self) -> Result<Network> {
        self.network_with(&self.directory)
    }

    fn network_with(&self, directory: &[PluginConf]) -> Result<Network> {
        let mut network = Network::from_bytes(&self.config)?;
        network.version =
            self.version().filter(|it| network.versions.contains(it)).unwrap_or(network.version);
        Ok(network.with_directory(directory))
    }

    /// The version of the result.
    pub(crate) fn version(&self) -> Option<Version> {
        result::version(&self.result, Version::WHEN_ABSENT).ok()
    }

    /// Adds the plugins that `today`, the network's present configuration, has read from the directory with the network's name. No cache
    /// contains these plugins.
    #[must_use]
    pub fn with_directory_of(mut self, today: &Network) -> Self {
        self.directory = today.directory_plugins().into();
        self
    }

    fn is_of(&self, network: &NetworkName, at: &Attachment) -> bool {
        self.network == *network && self.attach.attachment == *at
    }

    /// The network as it was at ADD, if it was another one than today's: CHECK and DEL need the configuration of ADD (SPEC.md, sections 2 and
    /// 3). No cache contains the plugins of the network's directory, so they come from `today`. `None` if the cached configuration is
    /// unusable.
    pub(crate) fn network_at_add(&self, today: &Network) -> Option<Network> {
        let added = self.network_with(today.directory_plugins()).ok()?;
        let is_other = self.differs_from(today) || added.version != today.version;
        Some(added).filter(|added| added.name == today.name && is_other)
    }

    /// Whether the configuration of the ADD has another text than today's. If not, [`Entry::network_at_add`] may still have another version.
    pub(crate) fn differs_from(&self, today: &Network) -> bool {
        self.config != today.bytes
    }
}

/// A file of the cache, as read.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct CacheFile {
    kind: String,
    container_id: String,
    config: String,
    if_name: String,
    network_name: String,
    netns: String,
    cni_args: Vec<(String, String)>,
    capability_args: Map<String, Value>,
    result: Map<String, Value>,
}

/// A file of the cache, as written.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NewCacheFile<'a> {
    kind: &'static str,
    container_id: &'a str,
    config: String,
    if_name: &'a str,
    network_name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    netns: Option<&'a Path>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cni_args: Vec<(&'a str, &'a str)>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    capability_args: &'a Map<String, Value>,
    result: Value,
}

impl Cache {
    /// libcni's default directory.
    pub const DEFAULT_DIR: &'static str = "/var/lib/cni";

    /// The cache in a directory, which the first ADD creates.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Path of an attachment's file.
    pub fn path(&self, network: &NetworkName, at: &Attachment) -> PathBuf {
        self.results_dir().join(file_name(network, at))
    }

    /// Checks that an ADD can write the attachment's file.
    ///
    /// # Errors
    /// Code 4 if the file's name is too long, or if it is also the name of another attachment's file, and that attachment is alive: networks
    /// and container ids may contain hyphens.
    pub(crate) fn require_writable(&self, network: &NetworkName, at: &Attachment) -> Result<()> {
        let length = file_name(network, at).len();
        if length > LONGEST_NAME {
            let text = format!(
                "the cache file {} would have a name of {length} bytes; file systems accept {LONGEST_NAME}",
                self.path(network, at).display()
            );
            let error = cni::Error::new(Code::InvalidEnvironment, text);
            return Err(error.detail("use a shorter container id or network name").into());
        }
        let path = self.path(network, at);
        let Some(other) = read_entry(&path).filter(|entry| !entry.is_of(network, at) && entry.is_alive())
        else {
            return Ok(());
        };
        let Attachment { container, ifname } = other.attach.attachment;
        let text = format!(
            "the cache file {} belongs to another attachment: {ifname} of container {container} on network {}",
            path.display(),
            other.network
        );
        let error = cni::Error::new(Code::InvalidEnvironment, text);
        Err(error.detail("use another container id, or detach the other container first").into())
    }

    /// Writes the result of an ADD, as the plugin printed it. The file is written atomically.
    ///
    /// # Errors
    /// Code 5 if it cannot be written, 1 or 6 if it is not a result.
    pub fn write(&self, network: &Network, attach: &AttachmentParameters, result: &Value) -> Result<()> {
        let content = NewCacheFile {
            kind: KIND,
            container_id: &attach.attachment.container,
            config: BASE64_STANDARD.encode(network.bytes()),
            if_name: &attach.attachment.ifname,
            network_name: &network.name,
            netns: attach.netns.as_deref(),
            cni_args: attach.args.iter().collect(),
            capability_args: &attach.capability_args,
            result: result::in_version(result, network.version, network.version)?,
        };
        let text = serde_json::to_vec(&content).map_err(cni::Error::from)?;
        let name = file_name(&network.name, &attach.attachment);
        let written = self.open_results_dir().and_then(|dir| {
            // The label lets a DEL find stale temporary files.
            AtomicFile { dir: &dir, name: &name, label: &name }.replace(&text)
        });
        let path = self.results_dir().join(&name);
        Ok(written.map_err(|e| cni::Error::io(format!("write the result to {}", path.display()), &e))?)
    }

    /// Reads an attachment. `None` if the file does not exist or belongs to another attachment.
    ///
    /// # Errors
    /// Code 5 if the file cannot be read, 6 if it is not JSON or a value has the wrong type, 7 if it is not in libcni's format.
    pub fn load(&self, network: &NetworkName, at: &Attachment) -> Result<Option<Entry>> {
        let path = self.path(network, at);
        let text = file::missing_is_fine(file::read_own(&path, json::MAX_BYTES).map(Some));
        let text = text.map_err(|e| cni::Error::io(format!("read {}", path.display()), &e))?;
        let Some(text) = text else { return Ok(None) };
        let value = json::parse(&text, "the cached result").context(|| path.display())?;
        let added = mtime(&path);
        if json::member(&value, "kind").is_some() {
            let entry = entry(&value, added).context(|| path.display())?;
            return Ok(Some(entry).filter(|entry| entry.is_of(network, at)));
        }
        // libcni's earliest format contains only the result.
        let attach = AttachmentParameters { netns: sandbox(&value, &at.ifname), ..at.clone().into() };
        Ok(Some(Entry {
            network: network.clone(),
            attach,
            config: Vec::new(),
            result: value,
            added,
            directory: Arc::default(),
        }))
    }

    /// Whether an attachment's file is unchanged since the entry was read. If not, another program has deleted the attachment or added it
    /// again.
    pub(crate) fn is_unchanged(&self, entry: &Entry) -> bool {
        let now = self.load(&entry.network, &entry.attach.attachment).ok().flatten();
        now.is_some_and(|now| now.added == entry.added && now.result == entry.result)
    }

    /// Deletes an attachment's file. Succeeds if it does not exist or belongs to another attachment.
    ///
    /// # Errors
    /// Code 5 if its file cannot be deleted.
    pub fn remove(&self, network: &NetworkName, at: &Attachment) -> Result<()> {
        let path = self.path(network, at);
        if read_entry(&path).is_some_and(|entry| !entry.is_of(network, at)) {
            return Ok(());
        }
        let removed = match file::missing_is_fine(fs::remove_file(&path)) {
            // A read-only file system refuses the removal even if there is no file.
            Err(_) if is_missing(&path) => Ok(()),
            removed => removed,
        };
        let all = removed.and_then(|()| file::remove_temporary(&self.results_dir(), &file_name(network, at)));
        Ok(all.map_err(|e| cni::Error::io(format!("remove {}", path.display()), &e))?)
    }

    /// Deletes incomplete files that are older than five minutes: the processes that wrote them were killed.
    ///
    /// # Errors
    /// Code 5 if the directory cannot be read or a file not be deleted.
    pub fn remove_incomplete(&self) -> Result<()> {
        let Some(time) = SystemTime::now().checked_sub(INCOMPLETE_AGE) else { return Ok(()) };
        let removed = file::remove_temporary_before(&self.results_dir(), time);
        let failed =
            |e| cni::Error::io(format!("remove incomplete files in {}", self.results_dir().display()), &e);
        Ok(removed.map_err(failed)?)
    }

    /// All attachments, sorted by network, container and interface. As libcni does, skips truncated files and files
    /// of other formats.
    ///
    /// # Errors
    /// Code 5 if the directory cannot be read.
    pub fn list(&self) -> Result<Vec<Entry>> {
        self.survey().map(|(entries, _)| entries)
    }

    /// Caches of this host's runtimes. containerd, CRI-O, Podman, nerdctl and Nomad use libcni's directory. Other runtimes use subdirectories
    /// with results: Multus `multus`, the kubelet before 1.24 `cache`, Firecracker one for each virtual machine.
    ///
    /// # Errors
    /// Code 5 if libcni's directory cannot be read.
    pub fn of_host() -> Result<Vec<Self>> {
        Self::all_in(Self::DEFAULT_DIR)
    }

    /// This cache, and then the other caches of the host.
    ///
    /// # Errors
    /// Like [`Cache::of_host`].
    pub fn with_others_of_host(&self) -> Result<Vec<Self>> {
        Ok(std::iter::once(self.clone()).chain(self.others_of_host()?).collect())
    }

    /// The caches of [`Cache::of_host`], without this one.
    ///
    /// # Errors
    /// Like [`Cache::of_host`].
    pub fn others_of_host(&self) -> Result<Vec<Self>> {
        let mut others = Self::of_host()?;
        others.retain(|cache| !cache.is_same_as(self));
        Ok(others)
    }

    /// Whether both are the cache in one directory, which may have several paths.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        let inode = |cache: &Self| fs::metadata(&cache.dir).ok().map(|dir| (dir.dev(), dir.ino()));
        self.dir == other.dir || inode(self).is_some_and(|own| inode(other) == Some(own))
    }

    /// Like [`Cache::of_host`], for another path of libcni's directory.
    ///
    /// # Errors
    /// Code 5 if the directory cannot be read.
    pub fn all_in(default: impl Into<PathBuf>) -> Result<Vec<Self>> {
        let default = Self::new(default);
        let mut inner: Vec<Self> = read_directory(&default.dir)?.into_iter().map(Self::new).collect();
        // `DIR/results` belongs to the cache in DIR: it is not itself a cache.
        inner.retain(|cache| cache.dir.file_name().is_some_and(|name| name != "results"));
        inner.retain(Self::may_exist);
        inner.sort_by(|a, b| a.dir.cmp(&b.dir));
        inner.insert(0, default);
        Ok(inner)
    }

    /// The attachments of a network, and other files that, by their name, may belong to it.
    ///
    /// # Errors
    /// Code 5 if the directory cannot be read.
    pub fn of_network(&self, network: &NetworkName) -> Result<NetworkEntries> {
        let (mut entries, not_entries) = self.survey()?;
        entries.retain(|entry| entry.network == *network);
        let mut all = NetworkEntries { entries, ..NetworkEntries::default() };
        for path in not_entries.into_iter().filter(|path| may_be_of(path, network)) {
            match read_bare_entries(&path, network) {
                None => all.unreadable.push(path),
                Some(readings) if Self::attachment_named(&path).is_some() => all.entries.extend(readings),
                Some(readings) => all.ambiguous.extend(readings),
            }
        }
        Ok(all)
    }

    /// The attachments of these containers to a network. A file without the attachment's names (a truncated one, or one in libcni's earliest
    /// format) counts as every attachment that it may be, by its name.
    ///
    /// # Errors
    /// Code 5 if the directory cannot be read.
    pub(crate) fn attachments_of(
        &self,
        network: &NetworkName,
        containers: &[ContainerId],
    ) -> Result<Attachments> {
        let containers: BTreeSet<&ContainerId> = containers.iter().collect();
        let (entries, nameless) = self.survey()?;
        let named = entries.into_iter().filter(|entry| entry.network == *network);
        let named = named.map(|entry| entry.attach.attachment);
        let possible = nameless.iter().flat_map(|path| attachments_named(path, network));
        Ok(named.chain(possible).filter(|at| containers.contains(&at.container)).collect())
    }

    /// Like [`Cache::list`]. Also returns the files that are not in the format `cniCacheV1`, such as truncated ones and those of libcni
    /// before 0.8.
    ///
    /// # Errors
    /// Code 5 if the directory cannot be read.
    pub fn survey(&self) -> Result<(Vec<Entry>, Vec<PathBuf>)> {
        let (mut entries, mut unreadable) = (Vec::new(), Vec::new());
        for path in self.files()? {
            match read_entry(&path) {
                Some(entry) => entries.push(entry),
                None => unreadable.push(path),
            }
        }
        entries.sort_by(|a, b| (&a.network, &a.attach.attachment).cmp(&(&b.network, &b.attach.attachment)));
        Ok((entries, unreadable))
    }

    /// Whether a file of [`Cache::survey`] has libcni's earliest format: only the result.
    pub fn is_bare(file: &Path) -> bool {
        read_bare(file).is_some()
    }

    /// The attachment that a file's name shows. `None` if that is uncertain, or if the names are not valid. The file of container `b-c` on
    /// network `a` has the same name as the file of container `c` on network `a-b`.
    pub fn attachment_named(file: &Path) -> Option<Attachment> {
        let names: Vec<&str> = file.file_name()?.to_str()?.split('-').collect();
        let [_network, container, ifname] = names[..] else { return None };
        Some(AttachmentParameters::new(container, ifname).ok()?.attachment)
    }

    /// The networks of an attachment's files, by the names of the files.
    ///
    /// # Errors
    /// Code 5 if the directory cannot be read.
    pub(crate) fn networks_of(&self, at: &Attachment) -> Result<Vec<NetworkName>> {
        let end = format!("-{}-{}", at.container, at.ifname);
        let network =
            |file: &PathBuf| NetworkName::parse(file.file_name()?.to_str()?.strip_suffix(&end)?).ok();
        Ok(self.files()?.iter().filter_map(network).collect())
    }

    fn files(&self) -> Result<Vec<PathBuf>> {
        let mut files = read_directory(&self.results_dir())?;
        files.retain(|file| file.file_name().is_some_and(is_of_attachment));
        Ok(files)
    }

    /// Whether the directory has results. A directory that cannot be examined counts as a cache: reading it fails, too.
    fn may_exist(&self) -> bool {
        let is_none =
            |e: &io::Error| matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
        fs::metadata(self.results_dir()).map_or_else(|e| !is_none(&e), |results| results.is_dir())
    }

    fn results_dir(&self) -> PathBuf {
        self.dir.join("results")
    }

    fn open_results_dir(&self) -> io::Result<File> {
        let open = || file::open_directory(&self.results_dir());
        open().or_else(|_| self.create_results_dir().and_then(|()| open()))
    }

    fn create_results_dir(&self) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(self.results_dir())
    }
}

/// The paths of the files in a directory. A missing directory counts as empty.
fn read_directory(dir: &Path) -> Result<Vec<PathBuf>> {
    let read = || fs::read_dir(dir)?.map(|file| Ok(file?.path())).collect::<io::Result<Vec<PathBuf>>>();
    match read() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        paths => Ok(paths.map_err(|e| cni::Error::io(format!("read the directory {}", dir.display()), &e))?),
    }
}

/// libcni's name of the file.
fn file_name(network: &NetworkName, at: &Attachment) -> String {
    format!("{network}-{}-{}", at.container, at.ifname)
}

/// Whether a file may have the result of an attachment, by its name: `NETWORK-CONTAINER-IFNAME`. If a network is named `results`, host-local's
/// directory of its leases looks like a cache. A file that is being written begins with a dot.
fn is_of_attachment(file: &OsStr) -> bool {
    let name = file.as_encoded_bytes();
    !name.starts_with(b".") && name.iter().filter(|byte| **byte == b'-').count() >= 2
}

/// Reads the earliest format (libcni before 0.8): only the result, in a file named after the attachment.
fn read_bare(path: &Path) -> Option<Value> {
    let result: Value = serde_json::from_slice(&file::read_own(path, json::MAX_BYTES).ok()?).ok()?;
    Some(result).filter(|result| result.is_object() && json::member(result, "kind").is_none())
}

/// The attachments to a network that a file in the earliest format may have. Since version 0.3.0 of the specification, the result lists the
/// interfaces, so their names show where the container id ends.
fn read_bare_entries(path: &Path, network: &NetworkName) -> Option<Vec<Entry>> {
    let result = read_bare(path)?;
    let interfaces = json::member(&result, "interfaces").and_then(Value::as_array);
    let names = || interfaces.into_iter().flatten().filter_map(|one| json::member(one, "name")?.as_str());
    let is_listed = |at: &Attachment| names().any(|name| name == at.ifname.as_str());
    let mut attachments = attachments_named(path, network);
    if attachments.iter().any(is_listed) {
        attachments.retain(is_listed);
    }
    let entry = |at: Attachment| Entry {
        network: network.clone(),
        attach: AttachmentParameters { netns: sandbox(&result, &at.ifname), ..at.into() },
        config: Vec::new(),
        result: result.clone(),
        added: mtime(path),
        directory: Arc::default(),
    };
    // A container id that is not valid today.
    if attachments.is_empty() {
        return None;
    }
    Some(attachments.into_iter().map(entry).collect())
}

/// The attachments to a network whose file may have this path: container ids and interface names may contain hyphens.
fn attachments_named(file: &Path, network: &NetworkName) -> Vec<Attachment> {
    let name = after_network(file, network).and_then(|name| str::from_utf8(name).ok()).unwrap_or_default();
    let split = |(hyphen, _)| AttachmentParameters::new(&name[..hyphen], &name[hyphen + 1..]).ok();
    name.match_indices('-').filter_map(split).map(|attach| attach.attachment).collect()
}

/// Whether a file may belong to the network, by its name.
fn may_be_of(file: &Path, network: &NetworkName) -> bool {
    after_network(file, network).is_some_and(|rest| rest.contains(&b'-'))
}

/// `CONTAINER-IFNAME` of a file of the network.
fn after_network<'a>(file: &'a Path, network: &NetworkName) -> Option<&'a [u8]> {
    file.file_name()?.as_encoded_bytes().strip_prefix(network.as_str().as_bytes())?.strip_prefix(b"-")
}

fn read_entry(path: &Path) -> Option<Entry> {
    let value: Value = serde_json::from_slice(&file::read_own(path, json::MAX_BYTES).ok()?).ok()?;
    entry(&value, mtime(path)).ok()
}

/// A file's modification time.
fn mtime(file: &Path) -> Option<SystemTime> {
    fs::metadata(file).and_then(|metadata| metadata.modified()).ok()
}

fn entry(value: &Value, added: Option<SystemTime>) -> cni::Result<Entry> {
    let stored: CacheFile = json::decode(value)?;
    if stored.kind != KIND {
        return Err(cni::Error::config(format!("kind: expected {KIND}, found {:?}", stored.kind)));
    }
    let network = NetworkName::parse(&stored.network_name)
        .map_err(|e| cni::Error::config(format!("networkName {e}")))?;
    let attach = AttachmentParameters::new(&stored.container_id, &stored.if_name)
        .map_err(|e| cni::Error::config(e.to_string()))?
        .netns(stored.netns)
        .args(stored.cni_args.into_iter().collect::<CniArgs>());
    let config = BASE64_STANDARD.decode(&stored.config);
    let config = config.map_err(|e| cni::Error::config(format!("config is not Base64: {e}")))?;
    let mut attach = AttachmentParameters { capability_args: stored.capability_args, ..attach };
    let result = Value::Object(stored.result);
    if attach.netns.is_none() {
        attach.netns = sandbox(&result, &attach.attachment.ifname);
    }
    Ok(Entry { network, attach, config, result, added, directory: Arc::default() })
}

/// The namespace of an interface in the result: libcni stores it separately only since 1.2.0.
pub(crate) fn sandbox(result: &Value, ifname: &str) -> Option<PathBuf> {
    let text = |interface, key| json::member(interface, key).and_then(Value::as_str);
    let interfaces = json::member(result, "interfaces")?.as_array()?;
    let of_name = interfaces.iter().filter(|interface| text(interface, "name") == Some(ifname));
    let mut paths = of_name.filter_map(|interface| text(interface, "sandbox"));
    paths.find(|path| !path.is_empty()).map(Into::into)
}

fn is_missing(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests;
