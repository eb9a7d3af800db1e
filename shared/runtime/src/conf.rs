//! Configuration of a network (SPEC.md, section 1).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use cni::{Code, Command, NetworkName, PluginType, Version, json};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::files::files;
use crate::request::Extras;
use crate::{ConfDir, Error, Result, text};

/// An object with undecoded values.
pub(crate) type Raw = BTreeMap<String, Box<RawValue>>;

/// Maximum size of a file in bytes.
const MAX_BYTES: u64 = json::MAX_BYTES;

/// A network: a name and the plugins that attach containers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Network {
    /// Its name.
    pub name: NetworkName,
    /// Version for the plugins: the highest supported one of `cniVersion` and `cniVersions`.
    pub version: Version,
    /// All supported versions of the configuration, lowest first.
    pub versions: Vec<Version>,
    /// Whether CHECK succeeds without calling plugins. Default: false.
    pub disable_check: bool,
    /// Whether GC does nothing. Default: false.
    pub disable_gc: bool,
    /// Whether to ignore plugins in the directory with the network's name. Default: false.
    pub load_only_inlined_plugins: bool,
    /// Plugins in the order of ADD. Never empty if loaded from a file.
    pub plugins: Vec<PluginConf>,
    /// Its file, if it was loaded from one.
    pub file: Option<PathBuf>,
    /// The configuration list as cached. A single plugin's configuration is converted to a list.
    pub(crate) bytes: Vec<u8>,
    /// Number of plugins from the list. The others are from the directory.
    inlined: usize,
    /// Whether the document has a `type`, and whether it has `plugins`. Runtimes read only the one or the other, by the file's name.
    has_type: bool,
    has_plugins: bool,
}

/// A single plugin's configuration as a list.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListOfOne<'a> {
    cni_version: Version,
    name: &'a str,
    plugins: [&'a RawValue; 1],
}

impl Network {
    /// Parses a list of plugins, or a single plugin's configuration (the form before 1.0.0), which becomes a list of one. Does not read the
    /// directory with further plugins.
    ///
    /// ```
    /// let network = runtime::Network::from_bytes(br#"{
    ///     "cniVersion": "0.4.0", "cniVersions": ["1.0.0", "1.1.0", "9.0.0"], "name": "pods",
    ///     "disableCheck": "true",
    ///     "plugins": [{"type": "bridge"}, {"type": "portmap", "capabilities": {"portMappings": true}}]
    /// }"#)?;
    /// assert_eq!(network.version.as_str(), "1.1.0");
    /// assert_eq!(network.plugins[1].kind.as_str(), "portmap");
    /// assert!(network.disable_check);
    /// # Ok::<(), runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Code 6 with line and column if it is not JSON, 1 if none of its versions is supported, 7 for an invalid value.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Ok(Self::parse(bytes)?)
    }

    /// Loads a file, and the `*.conf` files in the directory next to it with the network's name (unless `loadOnlyInlinedPlugins`).
    ///
    /// # Errors
    /// Code 5 if a file cannot be read; the codes of [`Network::from_bytes`]; 7 if no plugin is configured.
    pub fn from_file(file: impl AsRef<Path>) -> Result<Self> {
        let file = file.as_ref();
        let mut this =
            read(file).and_then(|bytes| Self::parse(&bytes)).map_err(|e| e.context(file.display()))?;
        this.check_file_name(file).map_err(|e| e.context(file.display()))?;
        this.load_directory(file)?;
        if this.plugins.is_empty() {
            let error = cni::Error::config("it has no plugins").context(file.display());
            return Err(error.detail(r#"set "plugins": [{"type": "bridge", ...}]"#).into());
        }
        this.file = Some(file.to_owned());
        Ok(this)
    }

    /// Refuses a document that runtimes refuse, or of which they ignore a part: from a `*.conflist`, they read only `plugins`, and from a
    /// `*.conf` or `*.json` only a single plugin.
    ///
    /// # Errors
    /// Code 7 if the network is such a document.
    pub fn check_file_name(&self, file: &Path) -> cni::Result<()> {
        let renamed =
            |extension: &str| format!("rename the file to {}", file.with_extension(extension).display());
        let extension = file.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        let (text, remedy) = match (extension, self.has_type, self.has_plugins) {
            ("conflist", true, false) => (
                "runtimes read a single plugin only from *.conf and *.json",
                format!("move the plugin into \"plugins\": [ ], or {}", renamed("conf")),
            ),
            ("conf" | "json", false, _) => {
                ("runtimes read a list of plugins only from *.conflist", renamed("conflist"))
            }
            ("conf" | "json", true, true) => (
                "runtimes read a single plugin from *.conf and *.json, and ignore `plugins` there",
                format!("remove `plugins`, or remove `type` and {}", renamed("conflist")),
            ),
            _ => return Ok(()),
        };
        Err(cni::Error::config(text).detail(remedy))
    }

    /// Capabilities that any of the plugins declares.
    pub fn capabilities(&self) -> BTreeSet<&str> {
        self.plugins.iter().flat_map(|plugin| &plugin.capabilities).map(String::as_str).collect()
    }

    /// Whether plugins may be called with the specification's GC: the network's version has GC, and the configuration has no `disableGC`.
    pub fn has_gc(&self) -> bool {
        self.version >= Command::Gc.since() && !self.disable_gc
    }

    /// Refuses a network without plugins, such as one from a cache: no cache contains the plugins of the network's directory.
    ///
    /// # Errors
    /// Code 7 if the network has no plugins.
    pub(crate) fn require_plugins(&self) -> Result<()> {
        if self.plugins.is_empty() { Err(self.no_plugins()) } else { Ok(()) }
    }

    /// The error of a network without plugins.
    pub(crate) fn no_plugins(&self) -> Error {
        Error::own(Code::InvalidConfig, format!("network {} has no plugins", self.name))
    }

    /// Configuration of a plugin as passed on stdin, without the keys of a call (`prevResult`, `runtimeConfig`).
    ///
    /// # Errors
    /// Code 6 if it cannot be written as JSON.
    pub fn request(&self, plugin: &PluginConf) -> Result<Vec<u8>> {
        Extras::default().request(self, plugin)
    }

    /// The configuration list as libcni would cache it, without plugins of a directory.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The plugins from the directory with the network's name.
    pub fn directory_plugins(&self) -> &[PluginConf] {
        self.plugins.get(self.inlined..).unwrap_or_default()
    }

    /// Appends plugins of the directory with the network's name.
    pub(crate) fn with_directory(mut self, plugins: &[PluginConf]) -> Self {
        if !self.load_only_inlined_plugins {
            self.plugins.extend_from_slice(plugins);
        }
        self
    }

    /// Appends each plugin of another configuration that this one lacks.
    pub(crate) fn add_plugins_of(&mut self, other: &Self) {
        for plugin in &other.plugins {
            if !self.plugins.iter().any(|own| own.is_same_as(plugin)) {
                self.plugins.push(plugin.clone());
            }
        }
    }

    /// The files with further plugins: the `*.conf` in the directory with the network's name next to the network's file, sorted. Empty if
    /// the network has `loadOnlyInlinedPlugins`.
    ///
    /// # Errors
    /// Code 5 if the directory cannot be read.
    pub fn plugin_files(&self, file: &Path) -> Result<Vec<PathBuf>> {
        if self.load_only_inlined_plugins {
            return Ok(Vec::new());
        }
        Ok(files(&file.with_file_name(self.name.as_str()), &["conf"])?)
    }

    /// The directory with further plugins. If the network's file is unknown, this is the one in the default directory.
    pub(crate) fn directory(&self) -> PathBuf {
        let default = || Path::new(ConfDir::DEFAULT).join(self.name.as_str());
        self.file.as_deref().map_or_else(default, |file| file.with_file_name(self.name.as_str()))
    }

    /// Appends the plugin in the text of such a file.
    ///
    /// # Errors
    /// Code 6 with line and column if it is not JSON, 7 for an invalid value.
    pub fn push_plugin(&mut self, bytes: &[u8]) -> Result<()> {
        self.plugins.push(PluginConf::parse(document(bytes)?)?);
        Ok(())
    }

    /// Appends the plugins in the directory with the network's name next to a file.
    ///
    /// # Errors
    /// The codes of [`Network::plugin_files`] and [`Network::push_plugin`].
    pub(crate) fn load_directory(&mut self, of: &Path) -> Result<()> {
        for file in self.plugin_files(of)? {
            let pushed = read(&file).map_err(Error::from).and_then(|bytes| self.push_plugin(&bytes));
            pushed.map_err(|e| e.context(file.display()))?;
        }
        Ok(())
    }

    fn parse(bytes: &[u8]) -> cni::Result<Self> {
        let mut list: Raw = document(bytes)?;
        let inlined = take(&mut list, "plugins");
        let (has_type, has_plugins) = (peek(&list, "type").is_some(), inlined.is_some());
        let (versions, version) = versions(&list)?;
        let mut this = Self {
            name: name(&list)?,
            version,
            versions,
            disable_check: flag(&list, "disableCheck")?,
            disable_gc: flag(&list, "disableGC")?,
            load_only_inlined_plugins: flag(&list, "loadOnlyInlinedPlugins")?,
            plugins: Vec::new(),
            file: None,
            bytes: bytes.to_owned(),
            inlined: 0,
            has_type,
            has_plugins,
        };
        if has_type && !has_plugins {
            this.bytes = this.wrapped(bytes)?;
            this.plugins.push(PluginConf::parse(list)?);
            this.load_only_inlined_plugins = true;
        } else if let Some(inlined) = inlined {
            this.plugins = plugins(&inlined)?;
        } else if this.load_only_inlined_plugins {
            return Err(cni::Error::config(
                "loadOnlyInlinedPlugins is true, but there is no list of plugins",
            ));
        }
        this.inlined = this.plugins.len();
        Ok(this)
    }

    fn wrapped(&self, single: &[u8]) -> cni::Result<Vec<u8>> {
        let plugin: Box<RawValue> = document(single)?;
        let list = ListOfOne { cni_version: self.version, name: &self.name, plugins: [&plugin] };
        Ok(serde_json::to_vec(&list)?)
    }
}

/// A plugin of a network. Its own keys are kept undecoded.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PluginConf {
    /// Name of its executable.
    pub kind: PluginType,
    /// Capability arguments that it accepts (SPEC.md, section 3, "Deriving `runtimeConfig`").
    pub capabilities: BTreeSet<String>,
    pub(crate) keys: Raw,
}

impl PluginConf {
    /// The plugin's executable, and that of its IPAM plugin.
    pub fn kinds(&self) -> impl Iterator<Item = PluginType> {
        [Some(self.kind.clone()), self.ipam()].into_iter().flatten()
    }

    /// The IPAM plugin: the `type` in `ipam`. It is called separately from the interface plugin. `None` if there is none, or if its name is
    /// invalid.
    pub fn ipam(&self) -> Option<PluginType> {
        let ipam = json::parse(peek(&self.keys, "ipam")?.get().as_bytes(), "ipam").ok()?;
        PluginType::parse(json::member(&ipam, "type")?.as_str()?).ok()
    }

    /// Whether both have the same keys with the same text.
    fn is_same_as(&self, other: &Self) -> bool {
        let texts = |plugin: &Self| -> Vec<(String, String)> {
            plugin.keys.iter().map(|(key, value)| (key.clone(), value.get().to_owned())).collect()
        };
        texts(self) == texts(other)
    }

    fn parse(keys: Raw) -> cni::Result<Self> {
        let kind = match peek(&keys, "type") {
            None => return Err(cni::Error::config("type is missing: the name of a plugin")),
            Some(kind) => decode::<String>("type", kind)?,
        };
        let kind = PluginType::parse(&kind).map_err(|e| cni::Error::config(format!("type {e}")))?;
        let declared: BTreeMap<String, bool> =
            peek(&keys, "capabilities").map_or(Ok(BTreeMap::new()), |raw| decode("capabilities", raw))?;
        let capabilities = declared.into_iter().filter(|(_, on)| *on).map(|(name, _)| name).collect();
        Ok(Self { kind, capabilities, keys })
    }
}

/// Reads a regular file of limited size.
fn read(file: &Path) -> cni::Result<Vec<u8>> {
    system::file::read(file, MAX_BYTES).map_err(|e| cni::Error::io("cannot be read", &e))
}

/// Decodes an object. Errors contain line and column.
fn document<T: DeserializeOwned>(bytes: &[u8]) -> cni::Result<T> {
    json::refuse_many_values(bytes, "it")?;
    serde_json::from_slice(bytes).map_err(|e| not_json(bytes, &e))
}

fn not_json(bytes: &[u8], error: &serde_json::Error) -> cni::Error {
    let decoding = |what: String| cni::Error::new(Code::Decoding, what);
    let source = match std::str::from_utf8(bytes) {
        Ok(source) => source,
        Err(e) => {
            return decoding(format!("it is not UTF-8 text: invalid byte at position {}", e.valid_up_to()));
        }
    };
    match text::parse(source).1.into_iter().next() {
        Some(problem) => decoding(format!("{}: {}", problem.at, problem.text))
            .detail(format!("the line is: {}", text::line(source, problem.at.line))),
        None => decoding(format!("it is not a JSON object: {}", json::in_words(error))),
    }
}

/// A member with a case-insensitive key. An exact match takes precedence. null counts as unset.
fn peek<'a>(object: &'a Raw, key: &str) -> Option<&'a RawValue> {
    let same = || object.iter().find(|(k, _)| k.eq_ignore_ascii_case(key)).map(|(_, v)| v);
    object.get(key).or_else(same).map(|raw| &**raw).filter(|raw| raw.get() != "null")
}

fn take(object: &mut Raw, key: &str) -> Option<Box<RawValue>> {
    let value = peek(object, key).map(ToOwned::to_owned);
    object.retain(|k, _| !k.eq_ignore_ascii_case(key));
    value
}

fn decode<'de, T: Deserialize<'de>>(key: &str, raw: &'de RawValue) -> cni::Result<T> {
    serde_json::from_str(raw.get()).map_err(|e| cni::Error::config(format!("{key}: {}", json::in_words(&e))))
}

fn name(list: &Raw) -> cni::Result<NetworkName> {
    let Some(raw) = peek(list, "name") else {
        return Err(cni::Error::config("name is missing: the network's name"));
    };
    NetworkName::parse(&decode::<String>("name", raw)?).map_err(|e| cni::Error::config(format!("name {e}")))
}

fn plugins(inlined: &RawValue) -> cni::Result<Vec<PluginConf>> {
    let objects: Vec<Raw> = decode("plugins", inlined)?;
    if objects.is_empty() {
        return Err(cni::Error::config("plugins: the list is empty"));
    }
    let parse = |(i, keys)| PluginConf::parse(keys).map_err(|e| e.context(format_args!("plugins[{i}]")));
    objects.into_iter().enumerate().map(parse).collect()
}

/// The supported versions, and the highest of them. Newer versions are ignored.
fn versions(list: &Raw) -> cni::Result<(Vec<Version>, Version)> {
    let one: Option<String> = peek(list, "cniVersion").map(|raw| decode("cniVersion", raw)).transpose()?;
    let many: Option<Vec<String>> =
        peek(list, "cniVersions").map(|raw| decode("cniVersions", raw)).transpose()?;
    let said = || many.iter().flatten().chain(&one).filter(|version| !version.is_empty());
    let mut known: Vec<Version> = said().filter_map(|version| Version::parse(version).ok()).collect();
    known.sort_unstable();
    known.dedup();
    let highest = match (known.last(), said().next()) {
        (Some(highest), _) => *highest,
        (None, Some(unknown)) => Version::parse(unknown)?,
        (None, None) => Version::WHEN_ABSENT,
    };
    Ok((known, highest))
}

/// A boolean, which some tools write as a string.
fn flag(list: &Raw, key: &str) -> cni::Result<bool> {
    let Some(raw) = peek(list, key) else { return Ok(false) };
    match decode::<Value>(key, raw)? {
        Value::Bool(value) => Ok(value),
        Value::String(text) if text.eq_ignore_ascii_case("true") => Ok(true),
        Value::String(text) if text.eq_ignore_ascii_case("false") => Ok(false),
        other => Err(cni::Error::config(format!("{key}: {other} is neither true nor false"))),
    }
}

#[cfg(test)]
mod tests;
