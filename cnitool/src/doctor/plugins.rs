//! Plugins: whether they answer, their suite and version, and whether each runtime finds them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use cni::{PluginType, exec};
use runtime::{PluginConf, Result};
use system::child::{self, Limits};
use validate::schema;

use super::host::Configured;
use super::{Finding, Host};

/// Timeout and maximum output of a plugin that prints its version.
const TIMEOUT: Duration = Duration::from_secs(5);
const BYTES: u64 = 1 << 16;

/// The text that the version of each of Ferrule's plugins contains.
const MARK: &str = "+ferrule.";

/// Plugins of networks that do not answer to VERSION.
pub fn answer(host: &Host<'_>) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut checked = BTreeSet::new();
    for configured in &host.networks {
        for kind in kinds(configured) {
            let Ok(program) = exec::find(&kind, &configured.settings.path) else { continue };
            if !checked.insert(program.clone()) {
                continue;
            }
            if let Err(e) = configured.settings.runtime.versions(&kind) {
                findings.push(Finding::error(
                    format!("plugin {}", program.display()),
                    format!("the plugin does not answer VERSION: {e}"),
                    "install it again: `ferrule-install` replaces Ferrule's plugins",
                ));
            }
        }
    }
    Ok(findings)
}

/// Directories that contain plugins of Ferrule and of another vendor for the same task.
pub fn suite(host: &Host<'_>) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for (dir, banners) in installed(host) {
        let (ours, others): (Vec<_>, Vec<_>) = banners.iter().partition(|(_, banner)| banner.contains(MARK));
        if ours.is_empty() || others.is_empty() {
            continue;
        }
        let names: Vec<&str> = others.iter().map(|(name, _)| **name).collect();
        findings.push(Finding::warning(
            format!("directory {}", dir.display()),
            format!(
                "{} of {} plugins are Ferrule's; not Ferrule's: {}",
                ours.len(),
                banners.len(),
                names.join(", ")
            ),
            format!(
                "run `ferrule-install --dir {}`: it installs all plugins there, and keeps the replaced files",
                dir.display()
            ),
        ));
    }
    Ok(findings)
}

/// Plugins of Ferrule whose version differs from this cnitool's.
pub fn version(host: &Host<'_>) -> Result<Vec<Finding>> {
    let own = concat!("+ferrule.", env!("CARGO_PKG_VERSION"));
    let mut findings = Vec::new();
    for (dir, banners) in installed(host) {
        let mut old: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, banner) in banners.iter().filter(|(_, banner)| banner.contains(MARK)) {
            if let Some(version) = banner.split_whitespace().last().filter(|version| !version.ends_with(own))
            {
                old.entry(version).or_default().push(name);
            }
        }
        findings.extend(old.into_iter().map(|(version, names)| {
            let cause = format!(
                "{} has version {version}, but cnitool has {}",
                names.join(", "),
                env!("CARGO_PKG_VERSION")
            );
            Finding::warning(
                format!("directory {}", dir.display()),
                cause,
                "use one release for both: run its `ferrule-install`, and copy its `cnitool` or upgrade its package",
            )
        }));
    }
    Ok(findings)
}

/// Runtimes whose plugin directories do not contain the plugins of their networks. Configurations and network directories
/// of runtimes that cannot be read.
pub fn path(host: &Host<'_>) -> Result<Vec<Finding>> {
    let (runtimes, _) = host_runtimes::of_host(Path::new("/"));
    let remedy =
        "correct the file or the directory: without it, doctor does not examine all networks of the runtime";
    let dirs = host.unread_dirs.iter().map(ToString::to_string);
    let unread = host.unread.iter().cloned().chain(dirs);
    let mut findings: Vec<Finding> =
        unread.map(|problem| Finding::warning("runtimes", problem, remedy)).collect();
    for runtime in runtimes.into_iter().filter(|runtime| runtime.is_present && runtime.runs_plugins) {
        for configured in host.networks.iter().filter(|one| is_in(one, &runtime.networks)) {
            let missing: Vec<String> =
                kinds(configured).iter().filter_map(|kind| missing(kind, &runtime.plugins)).collect();
            if missing.is_empty() {
                continue;
            }
            let dirs: Vec<String> = runtime.plugins.iter().map(|dir| dir.display().to_string()).collect();
            let from = runtime
                .source
                .as_ref()
                .map_or_else(|| "by default".to_owned(), |file| format!("according to {}", file.display()));
            findings.push(Finding::error(
                format!("runtime {}", runtime.name),
                format!(
                    "{} searches for plugins in {} ({from}). Plugins of network {} are missing there: {}",
                    runtime.name,
                    dirs.join(", "),
                    configured.network.name,
                    missing.join(", ")
                ),
                "run `ferrule-install`, or correct the runtime's configuration",
            ));
        }
    }
    Ok(findings)
}

/// The plugin's name if it is missing, with the reason if a file of this name cannot be executed.
fn missing(kind: &PluginType, path: &[PathBuf]) -> Option<String> {
    let error = exec::find(kind, path).err()?;
    let unusable = path.iter().any(|dir| dir.join(kind.as_str()).exists());
    Some(if unusable { format!("{kind} ({})", error.details()) } else { kind.to_string() })
}

fn is_in(configured: &Configured, dir: &Path) -> bool {
    let parent = configured.network.file.as_deref().and_then(Path::parent);
    parent.is_some_and(|parent| parent.canonicalize().ok() == dir.canonicalize().ok())
}

/// The plugins of a network, and their IPAM plugins.
pub fn kinds(configured: &Configured) -> BTreeSet<PluginType> {
    configured.network.plugins.iter().flat_map(PluginConf::kinds).collect()
}

/// The directories that contain plugins with names of the suite, and the version that each plugin prints.
pub fn installed(host: &Host<'_>) -> BTreeMap<PathBuf, BTreeMap<&'static str, String>> {
    let dirs = host.networks.iter().flat_map(|one| &one.settings.path).chain(&host.settings.path);
    let dirs: BTreeSet<PathBuf> = dirs.filter_map(|dir| dir.canonicalize().ok()).collect();
    let banners = |dir: &Path| {
        let names = schema::plugins().map(|plugin| plugin.name);
        names.filter_map(|name| Some((name, banner(&dir.join(name))?))).collect()
    };
    dirs.into_iter().map(|dir| (dir.clone(), banners(&dir))).collect()
}

/// The first line that a plugin prints without CNI_COMMAND: its name and version. None: it does not exist or prints nothing.
fn banner(program: &Path) -> Option<String> {
    let limits = Limits { bytes: BYTES, time: Some(TIMEOUT), group: true, ..Limits::NONE };
    let mut command =
        Command::new(program.canonicalize().ok().filter(|file| file.is_file()).map(|_| program)?);
    command.env_clear().stderr(Stdio::piped());
    let outcome = child::run(&mut command, b"", limits).ok()?;
    let text = String::from_utf8_lossy(&outcome.log).into_owned() + &String::from_utf8_lossy(&outcome.out);
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}
