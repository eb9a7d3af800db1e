//! Where the runtimes of this host keep their networks, as their own configuration says.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use cni::json::MAX_BYTES;
use runtime::{ConfDir, Network};
use serde_json::Value;
use system::file;

use crate::maker::{self, BUILDKIT, CONTAINERD, CRI_O, NERDCTL, NOMAD, PODMAN};

/// A directory of networks.
#[derive(Debug)]
pub struct Place {
    pub conf: ConfDir,
    /// The runtimes that read it. Several share /etc/cni/net.d.
    pub runtimes: Vec<&'static str>,
    /// Where these look for plugins.
    pub plugins: Vec<PathBuf>,
}

/// A runtime, or a product with one in it.
struct Reader {
    runtime: &'static str,
    /// Files of its configuration (TOML), the last one that says something wins. `*` at the end: all files of a
    /// directory with this extension, in lexical order. `~`: the user's directory of configurations.
    files: &'static [&'static str],
    /// The keys of the directories: of networks, of plugins. `*`: any table.
    keys: [&'static [&'static str]; 2],
    dir: &'static str,
    plugins: &'static [&'static str],
}

const PLUGINS: &[&str] = &["/opt/cni/bin"];
const PODMANS_PLUGINS: &[&str] =
    &["/usr/local/libexec/cni", "/usr/libexec/cni", "/usr/local/lib/cni", "/usr/lib/cni", "/opt/cni/bin"];
const OF_CONTAINERD: [&[&str]; 2] =
    [&["plugins.*.cni.conf_dir"], &["plugins.*.cni.bin_dir", "plugins.*.cni.bin_dirs"]];
const OF_PODMAN: [&[&str]; 2] = [&["network.network_config_dir"], &["network.cni_plugin_dirs"]];
const OF_NERDCTL: [&[&str]; 2] = [&["cni_netconfpath"], &["cni_path"]];

const READERS: &[Reader] = &[
    Reader {
        runtime: PODMAN,
        files: &[
            "/usr/share/containers/containers.conf",
            "/etc/containers/containers.conf",
            "/etc/containers/containers.conf.d/*.conf",
        ],
        keys: OF_PODMAN,
        dir: ConfDir::DEFAULT,
        plugins: PODMANS_PLUGINS,
    },
    Reader {
        runtime: PODMAN,
        files: &["~/containers/containers.conf", "~/containers/containers.conf.d/*.conf"],
        keys: OF_PODMAN,
        dir: "~/cni/net.d",
        plugins: PODMANS_PLUGINS,
    },
    Reader {
        runtime: CONTAINERD,
        files: &["/etc/containerd/config.toml", "/etc/containerd/conf.d/*.toml"],
        keys: OF_CONTAINERD,
        dir: ConfDir::DEFAULT,
        plugins: PLUGINS,
    },
    Reader {
        runtime: "k3s",
        files: &["/var/lib/rancher/k3s/agent/etc/containerd/config.toml"],
        keys: OF_CONTAINERD,
        dir: "/var/lib/rancher/k3s/agent/etc/cni/net.d",
        plugins: &["/var/lib/rancher/k3s/data/cni", "/var/lib/rancher/k3s/data/current/bin"],
    },
    Reader {
        runtime: "RKE2",
        files: &["/var/lib/rancher/rke2/agent/etc/containerd/config.toml"],
        keys: OF_CONTAINERD,
        dir: ConfDir::DEFAULT,
        plugins: PLUGINS,
    },
    Reader {
        runtime: "MicroK8s",
        files: &["/var/snap/microk8s/current/args/containerd.toml"],
        keys: OF_CONTAINERD,
        dir: "/var/snap/microk8s/current/args/cni-network",
        plugins: &["/var/snap/microk8s/current/opt/cni/bin"],
    },
    Reader {
        runtime: CRI_O,
        files: &["/etc/crio/crio.conf", "/etc/crio/crio.conf.d/*"],
        keys: [&["crio.network.network_dir"], &["crio.network.plugin_dirs", "crio.network.plugin_dir"]],
        dir: ConfDir::DEFAULT,
        plugins: PLUGINS,
    },
    Reader {
        runtime: NERDCTL,
        files: &["/etc/nerdctl/nerdctl.toml"],
        keys: OF_NERDCTL,
        dir: ConfDir::DEFAULT,
        plugins: PLUGINS,
    },
    Reader {
        runtime: NERDCTL,
        files: &["~/nerdctl/nerdctl.toml"],
        keys: OF_NERDCTL,
        dir: "~/cni/net.d",
        plugins: PLUGINS,
    },
    // Its own configuration is in another language (HCL), in files of any name.
    Reader { runtime: NOMAD, files: &[], keys: [&[], &[]], dir: "/opt/cni/config", plugins: PLUGINS },
    // A single file, cni.json.
    Reader { runtime: BUILDKIT, files: &[], keys: [&[], &[]], dir: "/etc/buildkit", plugins: PLUGINS },
];

/// The places that there are, and what cannot be read: of a runtime without its configuration, the defaults count.
pub fn all() -> (Vec<Place>, Vec<String>) {
    let mut places: BTreeMap<PathBuf, Place> = BTreeMap::new();
    let mut problems = Vec::new();
    for reader in READERS {
        let (dir, plugins) = reader.dirs(&mut problems);
        let mut dirs = vec![dir];
        if reader.runtime == NERDCTL {
            dirs.extend(of_namespaces(&dirs[0]));
        }
        for dir in dirs {
            // One may be a link to another.
            let real = match fs::canonicalize(&dir).and_then(|real| fs::read_dir(&real).map(|_| real)) {
                Ok(real) => real,
                Err(e) => {
                    let is_none = matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
                    problems.extend((!is_none).then(|| format!("{} is not used: {e}", dir.display())));
                    continue;
                }
            };
            let new = || Place { conf: ConfDir::new(dir), runtimes: Vec::new(), plugins: Vec::new() };
            let place = places.entry(real).or_insert_with(new);
            place.add(reader.runtime, &plugins);
        }
    }
    (places.into_values().collect(), problems)
}

/// The place that has a network of this name.
pub fn with_network(name: &str) -> Option<Place> {
    all().0.into_iter().find(|place| place.conf.find(name).is_ok())
}

impl Place {
    /// A directory that no runtime is known to read.
    pub fn unknown(conf: &ConfDir) -> Self {
        Self { conf: conf.clone(), runtimes: Vec::new(), plugins: Vec::new() }
    }

    /// Whose a network of this place is. None: it cannot be told.
    pub fn runtime_of(&self, network: &Network) -> Option<&'static str> {
        maker::of_config(network.bytes()).or_else(|| match self.runtimes[..] {
            [only] => Some(only),
            _ => None,
        })
    }

    /// How to name the directories to cnitool.
    pub fn advice(&self, network: &str) -> String {
        let (runtimes, dir) = (self.runtimes.join(", "), self.conf.path().display());
        let plugins: Vec<String> = self.plugins.iter().map(|dir| dir.display().to_string()).collect();
        format!("{runtimes} has {network}: --conf-dir {dir} --plugin-path {}", plugins.join(":"))
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

impl Reader {
    /// The directory of networks, and those of plugins.
    fn dirs(&self, problems: &mut Vec<String>) -> (PathBuf, Vec<PathBuf>) {
        let (mut dir, mut plugins) = (in_home(self.dir), self.plugins.iter().map(PathBuf::from).collect());
        for file in self.files.iter().flat_map(|pattern| files(pattern)) {
            match read(&file) {
                Ok(None) => {}
                Err(why) => {
                    problems.push(format!("{}'s {} is not used: {why}", self.runtime, file.display()));
                }
                Ok(Some(config)) => {
                    let said =
                        self.keys.map(|keys| keys.iter().flat_map(|key| strings(&config, key)).collect());
                    let [dirs, said_plugins]: [Vec<PathBuf>; 2] = said;
                    dir = dirs.into_iter().next().unwrap_or(dir);
                    if !said_plugins.is_empty() {
                        plugins = said_plugins;
                    }
                }
            }
        }
        (dir, plugins)
    }
}

/// nerdctl has networks of one containerd namespace in a directory of that name. Other directories have plugins of the network
/// whose name they have.
fn of_namespaces(dir: &Path) -> Vec<PathBuf> {
    let inside = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten().map(|file| file.path());
    let is_network = |file: PathBuf| {
        let name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
        name.starts_with("nerdctl-") && name.ends_with(".conflist")
    };
    inside(dir).filter(|sub| inside(sub).any(is_network)).collect()
}

/// The files that a pattern of [`Reader::files`] means.
fn files(pattern: &str) -> Vec<PathBuf> {
    let Some((dir, extension)) = pattern.split_once('*') else { return vec![in_home(pattern)] };
    let all = fs::read_dir(in_home(dir)).into_iter().flatten().flatten().map(|file| file.path());
    let has_it = |file: &PathBuf| file.as_os_str().as_encoded_bytes().ends_with(extension.as_bytes());
    let mut files: Vec<PathBuf> = all.filter(has_it).collect();
    files.sort_unstable();
    files
}

/// A path that may begin with `~`.
fn in_home(path: &str) -> PathBuf {
    let Some(rest) = path.strip_prefix("~/") else { return path.into() };
    let set = |key| env::var_os(key).filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let config = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
    // Nobody's home: no such file.
    config.unwrap_or_else(|| "/nonexistent".into()).join(rest)
}

/// None if there is no such file.
fn read(path: &Path) -> Result<Option<Value>, String> {
    let text = match file::read(path, MAX_BYTES) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        text => text.map_err(|e| e.to_string())?,
    };
    toml::from_slice(&text).map(Some).map_err(|e| format!("it is not TOML: {}", e.message()))
}

/// The strings at a path of keys: one, or a list.
fn strings(config: &Value, path: &str) -> Vec<PathBuf> {
    let (key, rest) = path.split_once('.').map_or((path, None), |(key, rest)| (key, Some(rest)));
    let table = config.as_object().into_iter().flatten();
    let values = table.filter(|(name, _)| key == "*" || *name == key).map(|(_, value)| value);
    let found = values.flat_map(|value| match (rest, value) {
        (Some(rest), table) => strings(table, rest),
        (None, Value::Array(all)) => all.iter().filter_map(Value::as_str).map(PathBuf::from).collect(),
        (None, value) => value.as_str().map(PathBuf::from).into_iter().collect(),
    });
    found.filter(|dir| !dir.as_os_str().is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(config: &str, reader: &str) -> [Vec<PathBuf>; 2] {
        let config = toml::from_str(config).unwrap();
        let reader = READERS.iter().find(|one| one.runtime == reader).unwrap();
        reader.keys.map(|keys| keys.iter().flat_map(|key| strings(&config, key)).collect())
    }

    fn paths<const N: usize>(paths: [&str; N]) -> Vec<PathBuf> {
        paths.map(PathBuf::from).to_vec()
    }

    /// Debian's of 1.6, and what `containerd config default` of 2.1 prints.
    #[test]
    fn containerds_directories_are_found_in_every_version_of_its_configuration() {
        let debian = r#"
version = 2

[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    [plugins."io.containerd.grpc.v1.cri".cni]
      bin_dir = "/usr/lib/cni"
      conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.internal.v1.opt"]
    path = "/var/lib/containerd/opt"
"#;
        assert_eq!(said(debian, CONTAINERD), [paths(["/etc/cni/net.d"]), paths(["/usr/lib/cni"])]);
        let version_3 = r#"
version = 3
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dir = ''
  bin_dirs = ['/opt/cni/bin', '/usr/lib/cni']
  conf_dir = '/srv/net.d'
  max_conf_num = 1
"#;
        let expected = [paths(["/srv/net.d"]), paths(["/opt/cni/bin", "/usr/lib/cni"])];
        assert_eq!(said(version_3, CONTAINERD), expected);
        let version_1 = "[plugins.cri.cni]\nconf_dir = \"/srv/net.d\"";
        assert_eq!(said(version_1, CONTAINERD)[0], paths(["/srv/net.d"]));
    }

    #[test]
    fn lists_and_comments_of_the_other_configurations_are_read() {
        let crio = "[crio.network]\n# network_dir = \"/etc/cni/net.d/\"\nnetwork_dir = \"/srv/crio\"\nplugin_dirs = [\n\t\"/a\",\n\t\"/b\",\n]";
        assert_eq!(said(crio, CRI_O), [paths(["/srv/crio"]), paths(["/a", "/b"])]);
        let podman = "[network]\nnetwork_config_dir = \"/srv/podman\"\ncni_plugin_dirs = [\"/a\", {append=true}]\n[engine]\nnum_locks = 1";
        assert_eq!(said(podman, PODMAN), [paths(["/srv/podman"]), paths(["/a"])]);
        let nerdctl = "debug = true\ncni_netconfpath = \"/srv/nerdctl\"\ncni_path = \"/a\"";
        assert_eq!(said(nerdctl, NERDCTL), [paths(["/srv/nerdctl"]), paths(["/a"])]);
        assert_eq!(said("[network]\nnetwork_config_dir = \"\"", PODMAN), [paths([]), paths([])]);
    }
}
