//! Attachments: whether the host still has the interfaces, addresses and rules that ADD created.

use std::path::PathBuf;

use cni::{Code, Command, PluginType, exec};
use runtime::{Cache, Entry, Error, Network, Result};

use super::host::label;
use super::{Finding, Host, RECREATE, plugins};
use crate::settings::Settings;

/// Attachments for which CHECK reports an error, and attachments for which CHECK cannot be called.
pub fn check(host: &Host<'_>) -> Result<Vec<Finding>> {
    let check = |entry: &Entry| match entry.exists() {
        Ok(true) => check_entry(host, entry),
        Ok(false) => None,
        Err(e) => Some(Finding::unread(label(entry), format!("its namespace cannot be read: {e}"))),
    };
    Ok(host.entries.iter().filter_map(check).collect())
}

fn check_entry(host: &Host<'_>, entry: &Entry) -> Option<Finding> {
    let network = match entry.network() {
        Ok(network) => network,
        Err(e) => {
            let cause = format!("CHECK was not called: the cached configuration cannot be read: {e}");
            return Some(Finding::warning(label(entry), cause, writes_cache()));
        }
    };
    // The specification has no CHECK for older versions.
    if network.version < Command::Check.since() || network.disable_check {
        return None;
    }
    let known = host.known.iter().find(|one| one.network.name == network.name);
    let settings = known.map_or(host.settings, |one| &one.settings);
    if let Some(finding) = obstacle(entry, &network, settings) {
        return Some(finding);
    }
    let error = settings.runtime.check_entry(entry).err()?;
    let text = error.to_string();
    let details: Vec<&str> = error.failures().map(|failure| failure.error.details()).collect();
    // The plugin knows a command that is enough.
    let order = details.iter().find(|text| ["run `", "install "].iter().any(|verb| text.starts_with(*verb)));
    let is_rules = format!("{text} {}", details.join(" ")).contains("cnitool repair");
    // A broken plugin also fails in DEL and ADD: a restart would leave the container without network.
    let is_broken = |kind: &PluginType| settings.runtime.versions(kind).is_err();
    let broken = known.and_then(|one| plugins::kinds(one).into_iter().find(is_broken));
    let remedy = match (broken, order) {
        (Some(kind), _) => {
            format!("install the plugin {kind} again: `ferrule-install` replaces Ferrule's plugins")
        }
        (None, Some(order)) => (*order).to_owned(),
        (None, None) if is_temporary(&error) => "run `cnitool doctor` again later".to_owned(),
        (None, None) if is_rules => format!("run `cnitool repair {}`", entry.network),
        (None, None) => format!("{RECREATE}, so that its runtime calls DEL and ADD"),
    };
    Some(Finding::error(label(entry), format!("CHECK failed: {text}"), remedy))
}

/// Whether CHECK found no difference, but could not check: for example, another program holds a lock.
fn is_temporary(error: &Error) -> bool {
    error.failures().any(|failure| failure.error.code() == Code::TryAgainLater as u32)
}

fn writes_cache() -> String {
    format!("{RECREATE}: ADD writes the cache again")
}

/// Why CHECK cannot be called, although the attachment may be complete.
fn obstacle(entry: &Entry, network: &Network, settings: &Settings) -> Option<Finding> {
    if entry.attach.netns.is_none() {
        let cause = "CHECK was not called: the cache does not contain the path of the container's namespace";
        return Some(Finding::note(label(entry), cause, format!("to check the attachment, {RECREATE}")));
    }
    let missing = network.plugins.iter().find_map(|plugin| exec::find(&plugin.kind, &settings.path).err())?;
    let remedy = "set CNI_PATH to the plugin directories of the container's runtime";
    Some(Finding::warning(label(entry), format!("CHECK was not called: {missing}"), remedy))
}

/// Caches that cannot be read, files of caches that are not results of ADD, and results that cannot be read.
pub fn results(host: &Host<'_>) -> Result<Vec<Finding>> {
    let damaged = |path: &PathBuf| {
        let file = format!("file {}", path.display());
        if Cache::is_bare(path) {
            let cause = "the file has the format of libcni before 0.8, which does not contain the network's configuration, so its \
                         attachment cannot be checked or repaired";
            return Finding::note(file, cause, writes_cache());
        }
        Finding::warning(
            file,
            "the file is damaged, or it is not a result of ADD, so its attachment cannot be checked, repaired or deleted",
            "stop the container and delete the file. `cnitool gc --dry-run` then lists the container's resources",
        )
    };
    let unread = |entry: &Entry| {
        let error = entry.result().err()?;
        let cause = format!("the cached result cannot be read: {error}");
        Some(Finding::warning(label(entry), cause, writes_cache()))
    };
    let cache = |error: &Error| {
        Finding::unread("cache", format!("attachments cannot be listed, checked or repaired: {error}"))
    };
    let caches = host.unread_caches.iter().map(cache);
    Ok(caches.chain(host.damaged.iter().map(damaged)).chain(host.entries.iter().filter_map(unread)).collect())
}
