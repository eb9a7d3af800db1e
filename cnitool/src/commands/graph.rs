//! `graph`.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use runtime::Result;

use crate::cli::Picture;
use crate::graph::{Graph, dot, svg, text};
use crate::known;
use crate::live::Live;
use crate::settings::Settings;
use crate::ui::Ui;

/// Draws the graph to a file or to stdout.
pub fn run(
    network: Option<&str>,
    all: bool,
    picture: Option<Picture>,
    to: Option<&Path>,
    settings: &Settings,
    ui: &Ui,
) -> Result<()> {
    let by_extension = to.filter(|_| picture.is_none()).map(by_extension).transpose()?;
    let mut entries = known::attachments(all, settings, ui)?;
    if let Some(text) = network {
        let of_file = text.contains('/').then(|| settings.network(text)).transpose()?;
        let name = of_file.as_ref().map_or(text, |network| network.name.as_str());
        entries.retain(|entry| entry.network.as_str() == name);
        // A network without attachments must at least be configured.
        if entries.is_empty() {
            settings.network(text)?;
        }
    }
    let host = Live::host().unwrap_or_else(|e| {
        ui.warn(&format!("the host's links cannot be read: {e}"));
        Live::default()
    });
    let graph = Graph::of(&entries, &host);
    let drawn = || match picture.or(by_extension).unwrap_or(Picture::Text) {
        Picture::Text => text(&graph, ui),
        Picture::Dot => dot(&graph),
        Picture::Svg => svg(&graph),
    };
    if let Some(file) = to {
        fs::write(file, drawn()).map_err(|e| cni::Error::io(format!("write {}", file.display()), &e))?;
    }
    match to {
        _ if ui.json() => ui.print_json(&graph.json()),
        Some(_) => Ok(()),
        None => ui.print(&drawn()),
    }
}

/// The format that a file's extension selects.
fn by_extension(file: &Path) -> Result<Picture> {
    match file.extension().and_then(OsStr::to_str) {
        Some("svg") => Ok(Picture::Svg),
        Some("dot" | "gv") => Ok(Picture::Dot),
        Some("txt") => Ok(Picture::Text),
        _ => {
            let text = format!("{}: unknown extension for a graph", file.display());
            let error = cni::Error::new(cni::Code::InvalidEnvironment, text);
            Err(error.detail("use .svg, .dot, .gv or .txt").into())
        }
    }
}
