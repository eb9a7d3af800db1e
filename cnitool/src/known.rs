//! Attachments in the caches of this host.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cni::NetworkName;
use runtime::{Cache, ConfDir, Entry, Error, Network, Result};

use crate::network_dirs::{self, DriverNetworks, NetworkDir};
use crate::settings::Settings;
use crate::ui::Ui;

/// The attachments of cnitool's own cache, or of all, sorted by network, container and interface. Each has the plugins
/// of its network's directory. Warns of files that are not results.
///
/// # Errors
/// If a cache cannot be read.
pub fn attachments(all: bool, settings: &Settings, ui: &Ui) -> Result<Vec<Entry>> {
    if all {
        return of_all_caches(settings, ui);
    }
    let (entries, unreadable) = settings.runtime.results().survey()?;
    warn_of(&unreadable, ui);
    Ok(with_directories(entries, settings))
}

/// The attachments of all caches. If two caches contain the same attachment, the newer entry counts. Warns of files
/// that are not results.
///
/// # Errors
/// If a cache cannot be read.
pub fn of_all_caches(settings: &Settings, ui: &Ui) -> Result<Vec<Entry>> {
    let (entries, unreadable) = read_caches(settings)?;
    warn_of(&unreadable, ui);
    Ok(entries)
}

fn warn_of(unreadable: &[PathBuf], ui: &Ui) {
    for path in unreadable {
        let why = if Cache::is_bare(path) {
            "it has the format of libcni before 0.8, which does not contain the network"
        } else {
            "it is damaged, or not a result of ADD"
        };
        ui.warn(&format!("file {} is skipped: {why}", path.display()));
    }
}

/// A network, and the plugin directories of its runtimes.
#[derive(Debug)]
pub struct Known {
    pub network: Network,
    pub plugins: Vec<PathBuf>,
    /// Whether Podman's driver attaches containers to the network.
    is_of_driver: bool,
    /// Whether the runtime looks for plugins in `plugins` before the default directories.
    is_first: bool,
}

impl Known {
    /// A network whose runtime is unknown.
    fn unknown(network: Network) -> Self {
        Self { network, plugins: Vec::new(), is_of_driver: false, is_first: false }
    }

    /// A network that Podman's driver has written, for the plugins of its own directory.
    fn by_options(network: Network, dir: &NetworkDir, driver: &DriverNetworks) -> Self {
        let given = driver.by_options(&network.name).and_then(network_dirs::plugin_path);
        let plugins = given.unwrap_or_else(|| dir.plugins.clone());
        Self { network, plugins, is_of_driver: true, is_first: true }
    }

    /// A network of a file, which also Podman's driver may use.
    pub fn of_file(network: Network, dir: &NetworkDir, driver: &DriverNetworks) -> Self {
        let of_driver = network.file.as_deref().and_then(|file| driver.by_file(file));
        let given = of_driver.and_then(network_dirs::plugin_path);
        let is_first = given.is_some();
        let own = of_driver.map(|_| DriverNetworks::own_plugins()).unwrap_or_default();
        let plugins = given.unwrap_or_else(|| [dir.plugins.clone(), own].concat());
        Self { network, plugins, is_of_driver: of_driver.is_some(), is_first }
    }

    /// A network that the user has named. Only a network of Podman's driver has other plugin directories than those of
    /// the settings: a plugin of another vendor in a runtime's directory would hide that Ferrule's plugin is missing.
    pub fn of(network: Network, settings: &Settings) -> Self {
        let (dirs, _) = network_dirs::own_and_all(&settings.conf);
        let known = networks(&dirs, &[]).unwrap_or_default().remove(&network.name);
        match known.filter(|known| known.is_of_driver) {
            Some(known) => Self { network, ..known },
            None => Self::unknown(network),
        }
    }

    /// The settings, which also look for plugins where the network's runtime does.
    pub fn settings(&self, settings: &Settings) -> Settings {
        match self.is_first {
            true => settings.with_plugins_first(&self.plugins),
            false => settings.with_plugins(&self.plugins),
        }
    }
}

/// The networks of these directories, of Podman's driver, and of these attachments, each with the plugin directories of
/// its runtime. If only an attachment contains a network, its runtime is unknown, and it has no plugin directories.
///
/// # Errors
/// If a directory cannot be read.
pub fn networks(dirs: &[NetworkDir], entries: &[Entry]) -> Result<BTreeMap<NetworkName, Known>> {
    let mut networks = BTreeMap::new();
    let (driver, of_podman) = (network_dirs::of_driver(), DriverNetworks::read());
    for dir in dirs {
        for network in dir.conf.networks()? {
            let known = |network| Known::of_file(network, dir, &of_podman);
            networks.entry(network.name.clone()).or_insert_with(|| known(network));
        }
    }
    for network in driver.conf.networks()? {
        let known = |network| Known::by_options(network, &driver, &of_podman);
        networks.entry(network.name.clone()).or_insert_with(|| known(network));
    }
    for network in entries.iter().filter_map(|entry| entry.network().ok()) {
        networks.entry(network.name.clone()).or_insert_with(|| Known::unknown(network));
    }
    Ok(networks)
}

/// The invalid files in these directories.
///
/// # Errors
/// If a directory cannot be read.
pub fn invalid_files<'a>(dirs: impl IntoIterator<Item = &'a ConfDir>) -> Result<Vec<PathBuf>> {
    let mut invalid = Vec::new();
    for dir in dirs {
        invalid.extend(dir.load()?.into_iter().filter(|file| file.network.is_err()).map(|file| file.file));
    }
    Ok(invalid)
}

/// The attachments of all caches, and the files that are not results.
///
/// # Errors
/// If a cache cannot be read.
pub fn read_caches(settings: &Settings) -> Result<(Vec<Entry>, Vec<PathBuf>)> {
    let Caches { entries, damaged, unread } = Caches::read(settings);
    unread.into_iter().next().map_or(Ok((entries, damaged)), Err)
}

/// Adds the plugins of each network's directory, because no cache contains them.
fn with_directories(entries: Vec<Entry>, settings: &Settings) -> Vec<Entry> {
    if entries.is_empty() {
        return entries;
    }
    let mut networks = BTreeMap::new();
    let dirs = network_dirs::own_and_all(&settings.conf).0;
    for dir in &dirs {
        // `doctor` reports a directory that cannot be read.
        for network in dir.conf.networks().unwrap_or_default() {
            networks.entry(network.name.clone()).or_insert(network);
        }
    }
    for entry in &entries {
        // The network's file was deleted, but its directory may still exist.
        if !networks.contains_key(&entry.network)
            && let Ok(network) = entry.network()
        {
            let mut completed = dirs.iter().filter_map(|dir| dir.conf.complete(network.clone()).ok());
            let completed = completed.find(|network| !network.directory_plugins().is_empty());
            networks.insert(entry.network.clone(), completed.unwrap_or(network));
        }
    }
    let complete = |entry: Entry| match networks.get(&entry.network) {
        Some(today) => entry.with_directory_of(today),
        None => entry,
    };
    entries.into_iter().map(complete).collect()
}

/// The contents of all caches.
#[derive(Debug)]
pub struct Caches {
    /// Attachments with the plugins of their network's directory.
    pub entries: Vec<Entry>,
    /// Files that are not results of ADD.
    pub damaged: Vec<PathBuf>,
    /// The errors of caches that cannot be read. They name the cache.
    pub unread: Vec<Error>,
}

impl Caches {
    pub fn read(settings: &Settings) -> Self {
        let mut known: BTreeMap<(NetworkName, cni::Attachment), Entry> = BTreeMap::new();
        let (mut damaged, mut unread) = (Vec::new(), Vec::new());
        let own = settings.runtime.results();
        let caches = own.with_others_of_host().unwrap_or_else(|error| {
            unread.push(error);
            vec![own.clone()]
        });
        for cache in caches {
            let entries = match cache.survey() {
                Ok((entries, files)) => {
                    damaged.extend(files);
                    entries
                }
                Err(error) => {
                    unread.push(error);
                    continue;
                }
            };
            for entry in entries {
                let key = (entry.network.clone(), entry.attach.attachment.clone());
                if known.get(&key).is_none_or(|earlier| earlier.added < entry.added) {
                    known.insert(key, entry);
                }
            }
        }
        let entries = with_directories(known.into_values().collect(), settings);
        Self { entries, damaged, unread }
    }
}
