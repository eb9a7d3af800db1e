//! Directory of network configurations.

use std::path::{Path, PathBuf};

use cni::Code;

use crate::files::files;
use crate::{Error, Network, Result};

/// A directory with one file for each network: `*.conflist`, or the older `*.conf` and `*.json`.
#[derive(Clone, Debug)]
pub struct ConfDir {
    path: PathBuf,
}

/// A file and the network in it.
#[derive(Clone, Debug)]
pub struct ConfFile {
    /// The file.
    pub file: PathBuf,
    /// The network, or the error.
    pub network: Result<Network>,
}

impl ConfDir {
    /// Default directory.
    pub const DEFAULT: &'static str = "/etc/cni/net.d";

    /// The directory at a path. Every call reads it again.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Loads all files, sorted. A missing directory counts as empty.
    ///
    /// # Errors
    /// Code 5 if the directory cannot be read.
    pub fn load(&self) -> Result<Vec<ConfFile>> {
        let files = files(&self.path, &["conflist", "conf", "json"])?;
        let load = |file: PathBuf| ConfFile { network: Network::from_file(&file), file };
        Ok(files.into_iter().map(load).collect())
    }

    /// The default network: that of the first valid file.
    ///
    /// # Errors
    /// Code 7 if there is none; the details list problems of the files.
    pub fn default_network(&self) -> Result<Network> {
        let mut files = self.load()?;
        match files.iter().position(|file| file.network.is_ok()) {
            Some(first) => files.swap_remove(first).network,
            None => Err(self.none("no network configuration", &files)),
        }
    }

    /// Finds a network by its name. If several files have it, the first `.conflist` is used, or else the first file. Invalid files are skipped.
    ///
    /// # Errors
    /// Code 7 if there is none; the details list the existing names, and problems of other files.
    pub fn find(&self, name: &str) -> Result<Network> {
        let files = self.load()?;
        let networks = files.iter().filter_map(|file| file.network.as_ref().ok());
        let found = find(networks, name).cloned();
        found.ok_or_else(|| self.none(&format!("no network {name:?}"), &files))
    }

    /// The networks that [`ConfDir::find`] finds, one for each name.
    ///
    /// # Errors
    /// Code 5 if the directory cannot be read.
    pub fn networks(&self) -> Result<Vec<Network>> {
        let networks: Vec<Network> = self.load()?.into_iter().filter_map(|file| file.network.ok()).collect();
        let is_found =
            |network: &&Network| find(&networks, &network.name).is_some_and(|it| it.file == network.file);
        Ok(networks.iter().filter(is_found).cloned().collect())
    }

    /// Adds the plugins in the directory with the network's name, which no cache contains. For a network whose file no longer exists.
    ///
    /// # Errors
    /// Code 5 if a file cannot be read, 6 if it is not JSON, 7 for an invalid value.
    pub fn complete(&self, mut network: Network) -> Result<Network> {
        network.load_directory(&self.path.join(network.name.as_str()))?;
        Ok(network)
    }

    fn none(&self, what: &str, files: &[ConfFile]) -> Error {
        let mut error = cni::Error::new(Code::InvalidConfig, format!("{what} in {}", self.path.display()));
        let names: Vec<&str> =
            files.iter().filter_map(|file| Some(file.network.as_ref().ok()?.name.as_str())).collect();
        if !names.is_empty() {
            error = error.detail(format!("networks there: {}", names.join(", ")));
        }
        let invalid = files.iter().filter_map(|file| file.network.as_ref().err());
        invalid.fold(error, |error, why| error.detail(why.to_string())).into()
    }
}

/// Finds a network by its name. As for libcni, the first `.conflist` with the name takes precedence over other files.
pub(crate) fn find<'a>(networks: impl IntoIterator<Item = &'a Network>, name: &str) -> Option<&'a Network> {
    let is_list = |network: &Network| {
        network
            .file
            .as_ref()
            .and_then(|file| file.extension())
            .is_some_and(|extension| extension == "conflist")
    };
    let named = networks.into_iter().filter(|network| network.name.as_str() == name);
    // Of several equal ones, this is the first.
    named.min_by_key(|network| !is_list(network))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn dir(files: &[(&str, &str)]) -> (tempfile::TempDir, ConfDir) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = dir.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let conf = ConfDir::new(dir.path());
        (dir, conf)
    }

    fn kinds(network: &Network) -> Vec<&str> {
        network.plugins.iter().map(|plugin| plugin.kind.as_str()).collect()
    }

    #[test]
    fn the_first_valid_file_is_the_default_network() {
        let (_guard, conf) = dir(&[
            ("00-broken.conflist", "{"),
            ("05-readme.txt", "{}"),
            ("10-b.conf", r#"{"name": "b", "type": "x"}"#),
            ("20-a.conflist", r#"{"name": "a", "plugins": [{"type": "y"}]}"#),
        ]);
        assert_eq!(conf.default_network().unwrap().name.as_str(), "b");
        assert_eq!(conf.load().unwrap().len(), 3);
    }

    #[test]
    fn a_network_is_found_by_name_despite_an_invalid_file_and_a_list_takes_precedence() {
        let (_guard, conf) = dir(&[
            ("00-broken.conflist", "{"),
            ("10-n.conf", r#"{"name": "n", "type": "single"}"#),
            ("20-n.conflist", r#"{"name": "n", "plugins": [{"type": "list"}]}"#),
        ]);
        assert_eq!(kinds(&conf.find("n").unwrap()), ["list"]);
        let all = conf.networks().unwrap();
        assert_eq!(all.iter().map(kinds).collect::<Vec<_>>(), [["list"]]);
        let error = conf.find("m").unwrap_err();
        assert!(
            error.to_string().contains("no network \"m\"") && error.to_string().contains("00-broken"),
            "{error}"
        );
        assert!(error.to_string().contains("networks there: n"), "{error}");
    }

    #[test]
    fn a_conf_or_json_file_has_a_single_plugin_and_a_conflist_has_a_list_as_for_runtimes() {
        let (_guard, conf) = dir(&[
            ("00-a.conf", r#"{"name": "a", "plugins": [{"type": "x"}]}"#),
            ("01-b.json", r#"{"name": "b", "plugins": [{"type": "x"}]}"#),
            ("02-c.conflist", r#"{"name": "c", "type": "x"}"#),
            ("03-c.conf", r#"{"name": "c", "type": "x", "plugins": [{"type": "y"}]}"#),
            ("04-c.conf", r#"{"name": "c"}"#),
            ("c/10.conf", r#"{"type": "x"}"#),
            ("05-d.conf", r#"{"name": "d", "type": "x"}"#),
        ]);
        assert_eq!(conf.default_network().unwrap().name.as_str(), "d");
        assert!(conf.load().unwrap()[..5].iter().all(|file| file.network.is_err()));
        let error = conf.find("a").unwrap_err().to_string();
        assert!(error.contains("only from *.conflist") && error.contains("00-a.conflist"), "{error}");
        assert!(error.contains("01-b.conflist"), "{error}");
    }

    #[test]
    fn plugins_from_the_directory_of_the_networks_name_follow_the_inlined_ones() {
        let (_guard, conf) = dir(&[
            ("10-n.conflist", r#"{"name": "n", "plugins": [{"type": "first"}]}"#),
            ("n/20.conf", r#"{"type": "third"}"#),
            ("n/10.conf", r#"{"type": "second"}"#),
            ("n/notes.txt", "x"),
            (
                "11-m.conflist",
                r#"{"name": "m", "loadOnlyInlinedPlugins": true, "plugins": [{"type": "only"}]}"#,
            ),
            ("m/10.conf", r#"{"type": "never"}"#),
            ("12-o.conflist", r#"{"name": "o"}"#),
        ]);
        assert_eq!(kinds(&conf.find("n").unwrap()), ["first", "second", "third"]);
        assert_eq!(kinds(&conf.find("m").unwrap()), ["only"]);
        assert!(conf.find("o").unwrap_err().to_string().contains("12-o.conflist: it has no plugins"));
    }

    #[test]
    fn a_device_is_not_read() {
        let (guard, dir) = dir(&[]);
        std::os::unix::fs::symlink("/dev/zero", guard.path().join("a.conflist")).unwrap();
        let error = dir.default_network().unwrap_err();
        assert!(error.to_string().contains("regular file"), "{error}");
    }

    #[test]
    fn a_missing_directory_has_no_networks() {
        let conf = ConfDir::new("/no/such/directory");
        assert!(conf.load().unwrap().is_empty());
        assert_eq!(conf.default_network().unwrap_err().code(), 7);
    }
}
