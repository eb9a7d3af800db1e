//! The driver's options of `podman network create --opt KEY=VALUE`.

use std::env;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use cni::{Error, Result};

use crate::document::Words;

/// The directories in which `ferrule-install`, Podman's packages and the reference's packages place plugins.
const PLUGIN_PATH: &str =
    "/opt/cni/bin:/usr/local/libexec/cni:/usr/libexec/cni:/usr/local/lib/cni:/usr/lib/cni";

/// The source of the network's configuration.
#[derive(Debug, PartialEq, Eq)]
pub enum Kind {
    /// `conflist`: a file of the administrator.
    File(PathBuf),
    /// `type`: the plugin that creates the interface. The driver writes the chain.
    Type(String),
}

#[derive(Debug)]
pub struct Options<'a> {
    pub kind: Kind,
    /// `plugin-path`: the plugin directories.
    pub plugin_path: Vec<PathBuf>,
    /// `dns`: name servers for the containers.
    pub dns: Vec<IpAddr>,
    /// `default-route`.
    pub has_default_route: bool,
    /// All other options.
    pub keys: Vec<(&'a str, &'a str)>,
}

impl<'a> Options<'a> {
    /// Parses the options.
    ///
    /// # Errors
    /// Code 7 for options that contradict each other, and for unknown options.
    pub fn read(words: &'a Words) -> Result<Self> {
        let get = |key: &str| words.get(key).map(String::as_str).filter(|text| !text.is_empty());
        let kind = match (get("conflist"), get("type")) {
            (Some(file), None) => Kind::File(absolute(file)?),
            (None, Some(kind)) => Kind::Type(kind.to_owned()),
            (Some(_), Some(_)) => {
                return Err(Error::config("options conflist and type exclude each other")
                    .detail("with conflist=, the file says what the network is; remove one of the two"));
            }
            (None, None) => {
                return Err(Error::config("neither option conflist nor option type is given").detail(
                    "add --opt conflist=FILE for a network that a file describes, or --opt type=PLUGIN, such as type=macvlan",
                ));
            }
        };
        let dns = get("dns").into_iter().flat_map(|list| list.split(',')).map(server);
        let this = Self {
            kind,
            plugin_path: plugin_path(words),
            dns: dns.collect::<Result<_>>()?,
            has_default_route: default_route(get("default-route"))?,
            keys: words
                .iter()
                .filter(|(key, _)| !is_own(key))
                .map(|(k, v)| (k.as_str(), v.as_str()))
                .collect(),
        };
        if let Some(relative) = get("plugin-path").and_then(relative_dir) {
            return Err(Error::config(format!("option plugin-path: {relative:?} is not an absolute path"))
                .detail("name each directory by its absolute path, and separate them by colons"));
        }
        match (&this.kind, this.keys.first()) {
            (Kind::File(_), Some((key, _))) => Err(with_conflist(key)),
            (Kind::File(_), None) if words.contains_key("default-route") => {
                Err(with_conflist("default-route"))
            }
            _ => Ok(this),
        }
    }
}

/// A directory of the option `plugin-path` that depends on the working directory, which is another one in each call.
fn relative_dir(text: &str) -> Option<&str> {
    text.split(':').find(|dir| !Path::new(dir).is_absolute())
}

/// The absolute directories of the option `plugin-path`, even if it or another option is invalid.
pub fn plugin_path(words: &Words) -> Vec<PathBuf> {
    let given = words.get("plugin-path").filter(|text| !text.is_empty());
    let all = given.map_or(PLUGIN_PATH, String::as_str);
    let mut dirs: Vec<PathBuf> = env::split_paths(all).filter(|dir| dir.is_absolute()).collect();
    let Some(own) = own_dir().filter(|_| given.is_none()) else { return dirs };
    dirs.retain(|dir| *dir != own);
    // The driver writes a chain for the plugins of its own version. Older plugins in another directory, such as those
    // of a distribution, may not support the chain's CNI version. A file has been written for the host's plugins.
    let is_written = words.get("type").is_some_and(|kind| !kind.is_empty());
    dirs.insert(if is_written { 0 } else { dirs.len() }, own);
    dirs
}

/// The directory of this executable. The packages install all plugins in it, so that they work before
/// `ferrule-install` has placed them.
fn own_dir() -> Option<PathBuf> {
    env::current_exe().ok()?.parent().map(Path::to_owned)
}

fn is_own(key: &str) -> bool {
    ["conflist", "type", "plugin-path", "dns", "default-route"].contains(&key)
}

fn with_conflist(key: &str) -> Error {
    Error::config(format!("option {key} has no effect together with conflist"))
        .detail("write it into the file, or use --opt type=PLUGIN in place of conflist")
}

fn default_route(text: Option<&str>) -> Result<bool> {
    let wrong = |_| {
        Error::config("option default-route is neither true nor false")
            .detail("with --opt default-route=false, the network's gateway is not the container's default")
    };
    text.map_or(Ok(true), |text| text.parse().map_err(wrong))
}

fn server(text: &str) -> Result<IpAddr> {
    cni::addr::parse_ip(text.trim()).map_err(|e| {
        Error::config(format!("option dns: {e}"))
            .detail("separate the addresses of several servers by commas")
    })
}

/// A relative path is relative to Podman's working directory.
fn absolute(file: &str) -> Result<PathBuf> {
    let path = std::path::absolute(Path::new(file));
    path.map_err(|e| Error::io(format!("make {file} an absolute path"), &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words<const N: usize>(pairs: [(&str, &str); N]) -> Words {
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    }

    #[test]
    fn either_conflist_or_type_configures_the_network() {
        let file = words([("conflist", "/etc/cni/net.d/pods.conflist"), ("dns", "10.0.0.1,fd00::1")]);
        let options = Options::read(&file).unwrap();
        assert_eq!(options.kind, Kind::File("/etc/cni/net.d/pods.conflist".into()));
        assert_eq!(options.dns.len(), 2);
        for wrong in [
            words([]),
            words([("conflist", "/a"), ("type", "bridge")]),
            words([("conflist", "/a"), ("mtu", "1400")]),
            words([("conflist", "/a"), ("default-route", "false")]),
            words([("type", "bridge"), ("dns", "one")]),
            words([("type", "bridge"), ("default-route", "perhaps")]),
        ] {
            let error = Options::read(&wrong).unwrap_err();
            assert!(!error.details().is_empty(), "{error} has no remedy");
        }
    }

    #[test]
    fn plugins_are_looked_for_in_absolute_directories_only() {
        let given = words([("type", "bridge"), ("plugin-path", "/a:b::/c")]);
        assert_eq!(plugin_path(&given), ["/a", "/c"].map(PathBuf::from), "for a teardown");
        for relative in ["plugins", "/a:b", "/a::/c", "/a:", "../bin"] {
            let error = Options::read(&words([("type", "bridge"), ("plugin-path", relative)])).unwrap_err();
            assert!(error.msg().starts_with("option plugin-path: "), "{relative}: {error}");
        }
    }

    /// Debian's plugins of the reference in /usr/lib/cni refuse the CNI version of the chains that the driver writes.
    #[test]
    fn the_drivers_own_plugins_come_first_for_its_own_chains_and_last_for_a_file() {
        let own = env::current_exe().unwrap().parent().map(Path::to_owned).unwrap();
        let of_host: Vec<PathBuf> = env::split_paths(PLUGIN_PATH).collect();
        let path = |key| Options::read(&words([(key, "/bridge")])).unwrap().plugin_path;
        assert_eq!(path("type"), [std::slice::from_ref(&own), &of_host[..]].concat());
        assert_eq!(path("conflist"), [&of_host[..], &[own]].concat());
    }
}
