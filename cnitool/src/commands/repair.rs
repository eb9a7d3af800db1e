//! `repair`.

use std::collections::{BTreeMap, BTreeSet};

use cni::NetworkName;
use runtime::{Cache, Entry, Error, Repaired, Result};
use serde_json::json;

use crate::settings::Settings;
use crate::ui::{Style, Ui};

/// Repairs a network's attachments, or all.
pub fn run(network: Option<&str>, settings: &Settings, ui: &Ui) -> Result<()> {
    let mut entries = known(settings, ui)?;
    if let Some(name) = network {
        entries.retain(|entry| entry.network.as_str() == name);
        if entries.is_empty() {
            settings.conf.find(name)?;
        }
    }
    let repaired = settings.runtime.repair(&entries);
    tell(&entries, &repaired, ui)
}

/// What the caches know, the oldest first. Of an attachment that two of them have, the newer one.
fn known(settings: &Settings, ui: &Ui) -> Result<Vec<Entry>> {
    let own = settings.runtime.results().clone();
    let others = Cache::of_host().into_iter().filter(|cache| cache.dir() != own.dir());
    let mut known: BTreeMap<(NetworkName, cni::Attachment), Entry> = BTreeMap::new();
    for cache in [own.clone()].into_iter().chain(others) {
        let (entries, unreadable) = cache.survey()?;
        for path in unreadable {
            ui.warn(&format!("{} is passed over: it is no result of an ADD, or damaged", path.display()));
        }
        for entry in entries {
            let key = (entry.network.clone(), entry.attach.at.clone());
            if known.get(&key).is_none_or(|earlier| earlier.added < entry.added) {
                known.insert(key, entry);
            }
        }
    }
    let mut entries: Vec<Entry> = known.into_values().collect();
    entries.sort_by_key(|entry| entry.added);
    Ok(entries)
}

/// What was repaired, and what was passed over. Failures are the error.
fn tell(entries: &[Entry], repaired: &Repaired, ui: &Ui) -> Result<()> {
    let (mut done, mut gone, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for (entry, outcome) in entries.iter().zip(&repaired.attachments) {
        match outcome {
            Ok(true) => done.push(entry),
            Ok(false) => {}
            Err(e) if Repaired::is_passed_over(e) => gone.push((entry, e)),
            Err(e) => failed.push(e.clone().context(name(entry))),
        }
    }
    for (entry, why) in &gone {
        ui.warn(&format!("{} is passed over: {why}", name(entry)));
    }
    let foreign: BTreeSet<&str> = repaired.foreign.iter().map(|kind| kind.as_str()).collect();
    if !foreign.is_empty() {
        let names = foreign.iter().copied().collect::<Vec<_>>().join(", ");
        ui.warn(&format!("not Ferrule's, so what may be missing of their rules stays so: {names}"));
    }
    let json = || {
        let names = |entries: &[&Entry]| entries.iter().map(|entry| name(entry)).collect::<Vec<_>>();
        let gone: Vec<&Entry> = gone.iter().map(|(entry, _)| *entry).collect();
        let whole = entries.len() - done.len() - gone.len() - failed.len();
        json!({"repaired": names(&done), "whole": whole, "passedOver": names(&gone), "foreignPlugins": foreign})
    };
    ui.either(json, || text(&done, entries.len(), ui))?;
    failed.into_iter().reduce(Error::and).map_or(Ok(()), Err)
}

fn text(done: &[&Entry], of: usize, ui: &Ui) -> String {
    let mut text: String = done.iter().map(|entry| format!("{} repaired\n", name(entry))).collect();
    if ui.is_seen() {
        let ok = ui.styled(Style::Good, "✓");
        text += &format!("{ok} {} of {of} attachments repaired\n", done.len());
    }
    text
}

/// As rules are labelled.
fn name(entry: &Entry) -> String {
    format!("{}/{}/{}", entry.network, entry.attach.at.container, entry.attach.at.ifname)
}
