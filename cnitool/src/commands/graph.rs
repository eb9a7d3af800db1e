//! `graph`.

use std::fs;
use std::path::Path;

use runtime::Result;

use crate::cli::Picture;
use crate::graph::{Graph, dot, svg, text};
use crate::known;
use crate::live::Live;
use crate::settings::Settings;
use crate::ui::Ui;

/// Draws to a file, or to stdout.
pub fn run(
    network: Option<&str>,
    all: bool,
    picture: Option<Picture>,
    to: Option<&Path>,
    settings: &Settings,
    ui: &Ui,
) -> Result<()> {
    let mut entries = known::attachments(all, settings, ui)?;
    entries.retain(|entry| network.is_none_or(|network| entry.network.as_str() == network));
    let graph = Graph::of(&entries, &Live::host().unwrap_or_default());
    if ui.json() {
        return ui.print_json(&graph.json());
    }
    let drawn = match picture.or_else(|| to.and_then(by_extension)).unwrap_or(Picture::Text) {
        Picture::Text => text(&graph, ui),
        Picture::Dot => dot(&graph),
        Picture::Svg => svg(&graph),
    };
    match to {
        Some(file) => {
            fs::write(file, drawn).map_err(|e| cni::Error::io(format!("write {}", file.display()), &e))?
        }
        None => ui.print(&drawn)?,
    }
    Ok(())
}

fn by_extension(file: &Path) -> Option<Picture> {
    match file.extension()?.to_str()? {
        "svg" => Some(Picture::Svg),
        "dot" | "gv" => Some(Picture::Dot),
        _ => None,
    }
}
