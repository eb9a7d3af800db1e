//! The state of the host that the checks examine. It is read once, before the first check.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use runtime::{Entry, Error, Network, PluginConf, Result};
use serde_json::Value;

use crate::known::{self, Caches, Known};
use crate::live::Live;
use crate::network_dirs::{self, DriverNetworks, NetworkDir};
use crate::settings::Settings;

/// This host, as the caches, the configurations and the kernel describe it.
#[derive(Debug)]
pub struct Host<'a> {
    pub settings: &'a Settings,
    /// The network directories. cnitool's own directory is the first.
    pub network_dirs: Vec<NetworkDir>,
    /// The runtimes' configuration files and network directories that cannot be read, each with the cause.
    pub unread: Vec<String>,
    pub networks: Vec<Configured>,
    /// The networks that GC examines: also those that only Podman's driver or a cache has.
    pub known: Vec<Configured>,
    /// The attachments of all caches.
    pub entries: Vec<Entry>,
    /// Files of the caches that are not results of ADD.
    pub damaged: Vec<PathBuf>,
    /// The errors of directories of networks that cannot be read.
    pub unread_dirs: Vec<Error>,
    /// The errors of caches that cannot be read.
    pub unread_caches: Vec<Error>,
    live: cni::Result<Live>,
}

/// A network with the settings that its runtime uses.
#[derive(Debug)]
pub struct Configured {
    pub network: Network,
    pub settings: Settings,
    /// The plugin directories of its runtimes alone.
    pub plugins: Vec<PathBuf>,
}

impl Configured {
    fn of(known: Known, settings: &Settings) -> Self {
        Self { settings: known.settings(settings), network: known.network, plugins: known.plugins }
    }
}

impl<'a> Host<'a> {
    /// Reads the state. What cannot be read is a finding of a check, so that the other checks run.
    pub fn examine(settings: &'a Settings) -> Self {
        let (mut network_dirs, unread) = network_dirs::own_and_all(&settings.conf);
        let of_podman = DriverNetworks::read();
        let (mut networks, mut unread_dirs) = (BTreeMap::new(), Vec::new());
        network_dirs.retain(|dir| match dir.conf.networks() {
            Ok(found) => {
                for network in found {
                    let known = Known::of_file(network, dir, &of_podman);
                    let name = known.network.name.clone();
                    networks.entry(name).or_insert_with(|| Configured::of(known, settings));
                }
                true
            }
            Err(error) => {
                unread_dirs.push(error);
                false
            }
        });
        let Caches { entries, damaged, unread: unread_caches } = Caches::read(settings);
        let known = known::networks(&network_dirs, &entries).unwrap_or_else(|error| {
            unread_dirs.push(error);
            BTreeMap::new()
        });
        let known = known.into_values().map(|known| Configured::of(known, settings)).collect();
        let live = Live::host();
        let networks = networks.into_values().collect();
        Self {
            settings,
            network_dirs,
            unread,
            networks,
            known,
            entries,
            damaged,
            unread_dirs,
            unread_caches,
            live,
        }
    }

    /// # Errors
    /// If a directory or a cache could not be read.
    pub fn complete(mut self) -> Result<Self> {
        let unread = self.unread_dirs.pop().or_else(|| self.unread_caches.pop());
        unread.map_or(Ok(self), Err)
    }

    /// The attachments whose namespaces exist.
    pub fn alive(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.is_alive())
    }

    /// The links, addresses and routes of the host's namespace.
    ///
    /// # Errors
    /// If the kernel does not list them.
    pub fn live(&self) -> Result<&Live> {
        self.live.as_ref().map_err(|e| e.clone().into())
    }

    /// A setting below /proc/sys. None: this kernel does not have it.
    ///
    /// # Errors
    /// Code 5 if the setting cannot be read.
    pub fn sysctl(&self, key: &str) -> Result<Option<String>> {
        let path = format!("/proc/sys/{key}");
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(cni::Error::io(format!("read {path}"), &e).into()),
        }
    }
}

/// A network's plugins, each with its configuration.
pub fn requests(network: &Network) -> impl Iterator<Item = (&PluginConf, Value)> {
    network.plugins.iter().filter_map(|plugin| {
        let request = network.request(plugin).ok()?;
        Some((plugin, cni::json::parse(&request, "the request").ok()?))
    })
}

/// The label of an attachment's rules: network, container and interface.
pub fn label(entry: &Entry) -> String {
    let at = &entry.attach.attachment;
    format!("attachment {}/{}/{}", entry.network, at.container, at.ifname)
}
