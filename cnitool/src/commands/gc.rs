//! `gc`.

use runtime::{Result, Valid};
use serde_json::json;

use crate::settings::Settings;
use crate::ui::{Style, Ui};

/// Removes stale attachments, or all.
pub fn run(network: &str, all: bool, settings: &Settings, ui: &Ui) -> Result<()> {
    let network = settings.network_or_cached(network, ui)?;
    let valid = if all { Valid::Only(&[]) } else { Valid::Alive };
    let mut removed = 0;
    let outcome = settings.runtime.gc_telling(&network, valid, |done, of, at| {
        removed = of;
        ui.progress(&format!("removing {} of {of}: {} of container {}", done + 1, at.ifname, at.container));
    });
    if removed > 0 {
        ui.progress("");
    }
    outcome?;
    if ui.json() {
        ui.print_json(&json!({"network": network.name.as_str(), "removed": removed}))?;
    } else if ui.is_seen() {
        let ok = ui.styled(Style::Good, "✓");
        ui.print(&format!("{ok} network {}: {removed} stale attachments removed\n", network.name))?;
    }
    Ok(())
}
