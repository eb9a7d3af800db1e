//! Settings from the command line and the environment.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use clap::CommandFactory;
use clap::error::ErrorKind as ArgumentError;
use cni::{CniArgs, Code, Error};
use runtime::{AttachmentParameters, Cache, ConfDir, Entry, Network, Processes, Runtime};
use serde_json::{Map, Value};
use sha2::{Digest, Sha512};
use validate::schema;

use crate::cli::{Cli, Common, Names};
use crate::trace::Traced;
use crate::ui::Ui;
use crate::{known, network_dirs};

/// The default of CNI_PATH: the directories in which ferrule-install and packages of the reference place plugins.
const PLUGIN_PATH: &str = "/opt/cni/bin:/usr/lib/cni:/usr/libexec/cni";
/// The directory of named namespaces (ip-netns(8)).
pub const NETNS_DIR: &str = "/run/netns";

/// Settings: the configuration directory, the runtime library, and the plugin directories.
#[derive(Debug)]
pub struct Settings {
    pub conf: ConfDir,
    pub runtime: Runtime,
    pub path: Vec<PathBuf>,
    /// `--ifname`. None: the variable or the default.
    pub ifname: Option<String>,
    /// Whether the user has named the plugin directories.
    is_path_given: bool,
}

impl Settings {
    /// Reads the settings.
    pub fn new(common: &Common) -> Self {
        let conf_dir = or_variable(common.conf_dir.clone().map(PathBuf::into_os_string), "NETCONFPATH");
        let path = or_variable(common.plugin_path.clone(), "CNI_PATH");
        let is_path_given = path.is_some();
        let path: Vec<PathBuf> = env::split_paths(path.as_deref().unwrap_or(PLUGIN_PATH.as_ref()))
            .filter(|dir| !dir.as_os_str().is_empty())
            .map(|dir| absolute(&dir))
            .collect();
        let plugins = Processes {
            timeout: Duration::from_secs(common.timeout),
            late_advice: "allow more seconds with --timeout",
            ..Processes::default()
        };
        let cache = common.cache_dir.as_ref().map_or_else(Cache::default, Cache::new);
        let mut runtime = Runtime::new(path.clone()).cache(cache);
        runtime = runtime.requiring(|kind| schema::plugin(kind).is_some());
        runtime = if common.verbose { runtime.exec(Traced(plugins)) } else { runtime.exec(plugins) };
        let conf = ConfDir::new(conf_dir.unwrap_or_else(|| ConfDir::DEFAULT.into()));
        Self { conf, runtime, path, ifname: common.ifname.clone(), is_path_given }
    }

    /// Also looks for plugins in these directories: those of the network's runtime.
    pub fn with_plugins(&self, dirs: &[PathBuf]) -> Self {
        self.with_path(self.path.iter().chain(dirs))
    }

    /// Also looks for plugins in these directories of runtimes, unless the user has named directories: a plugin of another
    /// vendor there would hide that Ferrule's is missing.
    pub fn with_plugins_of_runtimes(&self, dirs: &[PathBuf]) -> Self {
        self.with_plugins(if self.is_path_given { &[] } else { dirs })
    }

    /// First looks for plugins in these directories, unless the user has named others.
    pub fn with_plugins_first(&self, dirs: &[PathBuf]) -> Self {
        if self.is_path_given {
            self.with_plugins(dirs)
        } else {
            self.with_path(dirs.iter().chain(&self.path))
        }
    }

    fn with_path<'a>(&self, path: impl Iterator<Item = &'a PathBuf>) -> Self {
        let mut seen = BTreeSet::new();
        let path: Vec<PathBuf> = path.filter(|dir| seen.insert(*dir)).cloned().collect();
        let runtime = self.runtime.clone().path(path.clone());
        Self {
            runtime,
            path,
            conf: self.conf.clone(),
            ifname: self.ifname.clone(),
            is_path_given: self.is_path_given,
        }
    }

    /// Finds a network by its name, or by the path of its file (a name contains no slash). If only another runtime's
    /// directory contains the name, the error names that directory.
    pub fn network(&self, text: &str) -> runtime::Result<Network> {
        if text.contains('/') {
            return Network::from_file(text).map_err(|error| match fs::metadata(text) {
                Err(e) if e.kind() == ErrorKind::NotFound => missing_file(text),
                _ => error,
            });
        }
        self.conf.find(text).map_err(|missing| match network_dirs::with_network(text) {
            Some(dir) => missing.detail(dir.advice(text)),
            None if Path::new(text).is_file() => {
                missing.detail(format!("to use the file {text} in the working directory, pass ./{text}"))
            }
            None => missing,
        })
    }

    /// Finds a network of a file, of this or of Podman's driver.
    fn network_of_file(&self, name: &str) -> runtime::Result<Network> {
        self.network(name).or_else(|missing| network_dirs::of_driver().conf.find(name).map_err(|_| missing))
    }

    /// Finds a network to detach containers from it. If its file was deleted, uses the configuration in the cache of one of its
    /// attachments, and the plugins in the directory with the network's name.
    pub fn network_or_cached(&self, name: &str, ui: &Ui) -> runtime::Result<Network> {
        self.network_of_file(name)
            .or_else(|missing| self.network_among(&self.runtime.results().list()?, name, missing, ui))
    }

    /// Like [`Settings::network_or_cached`], for a GC, which collects the attachments of all caches. Fails if a runtime's directory contains the
    /// network, or an invalid file: it may be this network's, and disable GC.
    pub fn network_to_collect(&self, name: &str, ui: &Ui) -> runtime::Result<Network> {
        self.network_of_file(name).or_else(|missing| {
            let dirs = network_dirs::own_and_all(&self.conf).0;
            let is_uncertain = || {
                let invalid = known::invalid_files(dirs.iter().map(|dir| &dir.conf))?;
                let has_network = || dirs.iter().any(|dir| dir.conf.find(name).is_ok());
                Ok::<_, runtime::Error>(!invalid.is_empty() || has_network())
            };
            if name.contains('/') || is_uncertain()? {
                return Err(missing);
            }
            let known = [self.runtime.results().list()?, known::read_caches(self)?.0].concat();
            self.network_among(&known, name, missing, ui)
        })
    }

    /// The network of one of these attachments. `missing` is the error if there is none.
    fn network_among(
        &self,
        known: &[Entry],
        name: &str,
        missing: runtime::Error,
        ui: &Ui,
    ) -> runtime::Result<Network> {
        let cached = known.iter().find(|entry| entry.network.as_str() == name);
        let network = cached.and_then(|entry| entry.network().ok()).ok_or(missing)?;
        let network = self.conf.complete(network)?;
        // The error of an unreadable directory would only explain the warning.
        let files = self.conf.load().unwrap_or_default();
        let invalid = files.into_iter().filter_map(|file| file.network.err());
        let invalid: Vec<String> = invalid.map(|error| error.to_string()).collect();
        // An invalid file may be this network's.
        let why = if invalid.is_empty() { String::new() } else { format!(" ({})", invalid.join("; ")) };
        ui.warn(&format!(
            "network {name} has no valid configuration file{why}: using the configuration of the ADD"
        ));
        Ok(network)
    }

    /// The attachment that the command line names.
    pub fn attach(&self, netns: &str, names: &Names) -> runtime::Result<AttachmentParameters> {
        let invalid = |what: String| Error::new(Code::InvalidEnvironment, what);
        let said = |value: &Option<String>, variable: &str| {
            let value = or_variable(value.as_ref().map(OsString::from), variable);
            let text = value.map(|value| {
                value.into_string().map_err(|_| invalid(format!("{variable} is not UTF-8 text")))
            });
            text.transpose()
        };
        let netns = netns_path(netns);
        let container =
            names.container_id.clone().filter(|id| !id.is_empty()).unwrap_or_else(|| container_id(&netns));
        let ifname = said(&self.ifname, "CNI_IFNAME")?.unwrap_or_else(|| "eth0".to_owned());
        let args = CniArgs::parse(&said(&names.args, "CNI_ARGS")?.unwrap_or_default());
        let capabilities: Map<String, Value> = match said(&names.cap_args, "CAP_ARGS")? {
            None => Map::new(),
            Some(text) => serde_json::from_str(&text)
                .map_err(|e| if e.is_data() { cni::json::in_words(&e) } else { e.to_string() })
                .map_err(|what| invalid(format!("--cap-args (or CAP_ARGS) {text:?} is not a JSON object: {what}")))
                .map_err(|e| e.detail(r#"pass an object such as {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}"#))?,
        };
        let mut attach = AttachmentParameters::new(&container, &ifname)?.netns(&netns);
        attach = attach.args(args.map_err(|e| invalid(format!("--args (or CNI_ARGS) {e}")))?);
        Ok(capabilities.into_iter().fold(attach, |attach, (name, value)| attach.capability(&name, value)))
    }
}

/// Refuses `--ifname`, which selects one attachment, together with an option that means several. clap itself would accept
/// `--ifname` before the command.
pub fn refuse_ifname(option: &str, settings: &Settings) {
    if settings.ifname.is_some() {
        let text = format!("the argument '{option}' cannot be used with '--ifname <NAME>'");
        Cli::command().error(ArgumentError::ArgumentConflict, text).exit()
    }
}

/// The value of an option, or else of its environment variable. An empty one is treated as unset.
fn or_variable(option: Option<OsString>, variable: &str) -> Option<OsString> {
    option.or_else(|| env::var_os(variable)).filter(|value| !value.is_empty())
}

/// The error of a network whose file does not exist. It has the code of a network name that does not exist.
fn missing_file(path: &str) -> runtime::Error {
    let error = Error::config(format!("the network's file {path} does not exist"));
    error
        .detail("correct the path, or give the network's name: `cnitool list networks` lists the names")
        .into()
}

/// The default container id, equal to the one of the reference's cnitool, so that both tools find each other's
/// attachments.
fn container_id(netns: &Path) -> String {
    let hash = Sha512::digest(netns.as_os_str().as_encoded_bytes());
    hash[..10].iter().fold("cnitool-".to_owned(), |id, byte| format!("{id}{byte:02x}"))
}

/// The path of a namespace. A name without a slash is a name of `ip netns list`, also if the namespace was deleted, so
/// that DEL has the container id of the ADD. If no such namespace exists, the name may be that of one in the working
/// directory, as for the reference's cnitool.
fn netns_path(text: &str) -> PathBuf {
    let (named, here) = (Path::new(NETNS_DIR).join(text), absolute(Path::new(text)));
    let is_here = text.contains('/') || !runtime::is_namespace(&named) && runtime::is_namespace(&here);
    if is_here { here } else { named }
}

/// Makes a path absolute, and removes `.` and `..`.
pub fn absolute(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    whole.components().fold(PathBuf::new(), |mut clean, component| {
        match component {
            Component::ParentDir => drop(clean.pop()),
            Component::CurDir => {}
            other => clean.push(other),
        }
        clean
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn by_default_an_add_of_dhcp_without_a_server_reports_its_own_error() {
        let cli = Cli::parse_from(["cnitool", "status", "net"]);
        let slowest = dhcp_client::Timing::default().resend_timeout.as_secs();
        assert!(cli.common.timeout >= slowest + 30, "{}", cli.common.timeout);
    }

    #[test]
    fn the_container_id_is_the_same_as_that_of_the_references_cnitool() {
        // printf /run/netns/testing | sha512sum | cut -c-20
        assert_eq!(container_id(Path::new("/run/netns/testing")), "cnitool-43057b9dcc39fe733071");
    }

    #[test]
    fn a_name_without_a_slash_is_below_the_directory_of_named_namespaces() {
        assert_eq!(netns_path("no-such-namespace"), Path::new("/run/netns/no-such-namespace"));
        assert_eq!(netns_path("./blue"), absolute(Path::new("blue")));
        assert_eq!(netns_path("/proc/4711/ns/net"), Path::new("/proc/4711/ns/net"));
    }

    #[test]
    fn a_path_is_made_absolute_and_clean() {
        assert_eq!(absolute(Path::new("/run/./netns//../netns/x")), Path::new("/run/netns/x"));
        assert!(absolute(Path::new("x")).is_absolute());
    }
}
