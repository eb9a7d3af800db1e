//! What the caches of this host know.

use std::collections::BTreeMap;

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

/// The attachments of all caches. Of one that two of them have, the newer one.
///
/// # Errors
/// If a cache cannot be read.
pub fn of_all_caches(settings: &Settings, ui: &Ui) -> Result<Vec<Entry>> {
    let own = settings.runtime.results().clone();
    let others = Cache::of_host().into_iter().filter(|cache| cache.dir() != own.dir());
    let mut known: BTreeMap<(NetworkName, cni::Attachment), Entry> = BTreeMap::new();
    for cache in [own.clone()].into_iter().chain(others) {
        let (entries, unreadable) = cache.survey()?;
        for path in unreadable {
            ui.warn(&format!("{} is skipped: it is no result of an ADD, or damaged", path.display()));
        }
        for entry in entries {
            let key = (entry.network.clone(), entry.attach.attachment.clone());
            if known.get(&key).is_none_or(|earlier| earlier.added < entry.added) {
                known.insert(key, entry);
            }
        }
    }
    Ok(known.into_values().collect())
}
