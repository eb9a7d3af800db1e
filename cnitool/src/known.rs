//! Attachments in the caches of this host.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cni::NetworkName;
use runtime::{Cache, Entry, Result};

use crate::settings::Settings;
use crate::ui::Ui;

/// The attachments of cnitool's own cache, or of all, sorted by network, container and interface.
///
/// # Errors
/// If a cache cannot be read.
pub fn attachments(all: bool, settings: &Settings, ui: &Ui) -> Result<Vec<Entry>> {
    if all { of_all_caches(settings, ui) } else { settings.runtime.results().list() }
}

/// The attachments of all caches. If two caches contain the same attachment, the newer entry counts. Warns of files
/// that are not results.
///
/// # Errors
/// If a cache cannot be read.
pub fn of_all_caches(settings: &Settings, ui: &Ui) -> Result<Vec<Entry>> {
    let (entries, unreadable) = survey(settings)?;
    for path in unreadable {
        ui.warn(&format!("{} is skipped: it is damaged, or not a result of ADD", path.display()));
    }
    Ok(entries)
}

/// The attachments of all caches, and the files that are not results.
///
/// # Errors
/// If a cache cannot be read.
pub fn survey(settings: &Settings) -> Result<(Vec<Entry>, Vec<PathBuf>)> {
    let own = settings.runtime.results().clone();
    let others = Cache::of_host().into_iter().filter(|cache| cache.dir() != own.dir());
    let mut known: BTreeMap<(NetworkName, cni::Attachment), Entry> = BTreeMap::new();
    let mut all_unreadable = Vec::new();
    for cache in [own.clone()].into_iter().chain(others) {
        let (entries, unreadable) = cache.survey()?;
        all_unreadable.extend(unreadable);
        for entry in entries {
            let key = (entry.network.clone(), entry.attach.attachment.clone());
            if known.get(&key).is_none_or(|earlier| earlier.added < entry.added) {
                known.insert(key, entry);
            }
        }
    }
    Ok((known.into_values().collect(), all_unreadable))
}
