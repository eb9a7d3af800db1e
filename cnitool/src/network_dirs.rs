//! Directories of network configurations, from the configurations of this host's runtimes.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use cni::json;
use host_runtimes::names::{NERDCTL, PODMAN};
use runtime::{ConfDir, Network};
use serde_json::Value;
use system::file;

use crate::runtimes;

/// The directory in which Podman's network driver `cni` keeps the networks of `podman network create --opt type=`
/// while they have containers or resources.
const OF_DRIVER: &str = "/var/lib/cni/netavark";

/// Podman's network driver `cni`, where `make install` and the packages install it. It is a link to an executable in a
/// directory with all plugins.
const DRIVERS: [&str; 2] = ["/usr/local/libexec/netavark/cni", "/usr/libexec/netavark/cni"];

/// The directory in which Podman with netavark stores its networks.
const PODMANS_NETWORKS: &str = "/etc/containers/networks";

/// A directory of networks.
#[derive(Debug)]
pub struct NetworkDir {
    pub conf: ConfDir,
    /// The runtimes that read the directory. Several runtimes share /etc/cni/net.d.
    pub runtimes: Vec<&'static str>,
    /// The plugin directories of these runtimes.
    pub plugins: Vec<PathBuf>,
}

/// The existing network directories, and the configurations of runtimes that cannot be read. A runtime without a
/// configuration uses its defaults.
pub fn all() -> (Vec<NetworkDir>, Vec<String>) {
    let mut network_dirs: BTreeMap<PathBuf, NetworkDir> = BTreeMap::new();
    let (runtimes, mut problems) = host_runtimes::of_host(Path::new("/"));
    for runtime in runtimes {
        let mut dirs = vec![runtime.networks];
        if runtime.name == NERDCTL {
            dirs.extend(of_namespaces(&dirs[0]));
        }
        for dir in dirs {
            // A directory may be a link to another one.
            let real = match fs::canonicalize(&dir).and_then(|real| fs::read_dir(&real).map(|_| real)) {
                Ok(real) => real,
                Err(e) => {
                    let is_none = matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
                    problems.extend((!is_none).then(|| format!("{} is not used: {e}", dir.display())));
                    continue;
                }
            };
            let new = || NetworkDir { conf: ConfDir::new(dir), runtimes: Vec::new(), plugins: Vec::new() };
            let dir = network_dirs.entry(real).or_insert_with(new);
            dir.add(runtime.name, &runtime.plugins);
            if runtime.name == PODMAN && !runtime.runs_plugins {
                dir.add(PODMAN, &DriverNetworks::own_plugins());
            }
        }
    }
    (network_dirs.into_values().collect(), problems)
}

/// Like [`all`], with cnitool's own directory first, even if no runtime reads it.
pub fn own_and_all(own: &ConfDir) -> (Vec<NetworkDir>, Vec<String>) {
    let (mut network_dirs, problems) = all();
    let at = network_dirs.iter().position(|dir| dir.is(own)).map(|at| network_dirs.remove(at));
    network_dirs.insert(0, at.unwrap_or_else(|| NetworkDir::unknown(own)));
    (network_dirs, problems)
}

/// The directory of Podman's network driver `cni`. Podman itself reads no networks there.
pub fn of_driver() -> NetworkDir {
    let (runtimes, _) = host_runtimes::of_host(Path::new("/"));
    let podmans = runtimes.into_iter().filter(|runtime| runtime.name == PODMAN);
    let mut dir = NetworkDir::unknown(&ConfDir::new(OF_DRIVER));
    dir.add(PODMAN, &DriverNetworks::own_plugins());
    podmans.for_each(|podman| dir.add(podman.name, &podman.plugins));
    dir
}

/// The networks of Podman's network driver `cni`, as Podman stores them.
#[derive(Debug)]
pub struct DriverNetworks(Vec<Value>);

impl DriverNetworks {
    /// Reads them. Podman reports an invalid file.
    pub fn read() -> Self {
        let files = fs::read_dir(PODMANS_NETWORKS).into_iter().flatten().flatten().map(|file| file.path());
        let read = |path: PathBuf| json::parse(&file::read(&path, json::MAX_BYTES).ok()?, "the network").ok();
        Self(files.filter_map(read).filter(|network| network["driver"] == "cni").collect())
    }

    /// The driver's own plugin directories.
    pub fn own_plugins() -> Vec<PathBuf> {
        let own =
            DRIVERS.iter().filter_map(|driver| Some(fs::canonicalize(driver).ok()?.parent()?.to_owned()));
        own.collect()
    }

    /// The plugin directories of all networks.
    pub fn plugins(&self) -> Vec<PathBuf> {
        Self::own_plugins().into_iter().chain(self.0.iter().filter_map(plugin_path).flatten()).collect()
    }

    /// The network whose list the driver has written.
    pub fn by_options(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|network| network["name"] == name && network.pointer("/options/type").is_some())
    }

    /// The network whose list is in this file.
    pub fn by_file(&self, file: &Path) -> Option<&Value> {
        let file = fs::canonicalize(file).ok()?;
        let conflist = |network: &Value| network.pointer("/options/conflist")?.as_str().map(PathBuf::from);
        let is_of = |network: &&Value| {
            conflist(network).is_some_and(|path| path.canonicalize().ok() == Some(file.clone()))
        };
        self.0.iter().find(is_of)
    }
}

/// The option `plugin-path` of a network as Podman stores it. The driver looks for plugins only there.
pub fn plugin_path(of_driver: &Value) -> Option<Vec<PathBuf>> {
    let path = of_driver.pointer("/options/plugin-path")?.as_str().filter(|path| !path.is_empty())?;
    Some(env::split_paths(path).filter(|dir| dir.is_absolute()).collect())
}

/// The directory that contains a network with this name.
pub fn with_network(name: &str) -> Option<NetworkDir> {
    all().0.into_iter().find(|dir| dir.conf.find(name).is_ok())
}

impl NetworkDir {
    /// A directory that no known runtime reads.
    pub fn unknown(conf: &ConfDir) -> Self {
        Self { conf: conf.clone(), runtimes: Vec::new(), plugins: Vec::new() }
    }

    /// The runtime that owns a network in this directory. None: unknown.
    pub fn runtime_of(&self, network: &Network) -> Option<&'static str> {
        runtimes::of_config(network.bytes()).or_else(|| match self.runtimes[..] {
            [only] => Some(only),
            _ => None,
        })
    }

    /// The options of cnitool that select the directories.
    pub fn advice(&self, network: &str) -> String {
        let (runtimes, dir) = (self.runtimes.join(", "), self.conf.path().display());
        let plugins: Vec<String> = self.plugins.iter().map(|dir| dir.display().to_string()).collect();
        format!(
            "network {network} is in a directory of {runtimes}: add --conf-dir {dir} --plugin-path {}",
            plugins.join(":")
        )
    }

    pub fn is(&self, dir: &ConfDir) -> bool {
        let real = |dir: &ConfDir| fs::canonicalize(dir.path()).ok();
        real(&self.conf).is_some() && real(&self.conf) == real(dir)
    }

    fn add(&mut self, runtime: &'static str, plugins: &[PathBuf]) {
        if !self.runtimes.contains(&runtime) {
            self.runtimes.push(runtime);
        }
        let new: Vec<_> = plugins.iter().filter(|dir| !self.plugins.contains(dir)).cloned().collect();
        self.plugins.extend(new);
    }
}

/// nerdctl keeps the networks of each containerd namespace in a directory with that name. Other directories contain
/// plugins of the network with the directory's name.
fn of_namespaces(dir: &Path) -> Vec<PathBuf> {
    let inside = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten().map(|file| file.path());
    let is_network = |file: PathBuf| {
        let name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
        name.starts_with("nerdctl-") && name.ends_with(".conflist")
    };
    inside(dir).filter(|sub| inside(sub).any(is_network)).collect()
}
