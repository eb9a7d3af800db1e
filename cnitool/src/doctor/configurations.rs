//! Configurations: what `cnitool validate` reports.

use runtime::Result;
use validate::Level;

use super::{Finding, Host};
use crate::commands::validate::{Judged, on_this_host};
use crate::network_dirs::{self, DriverNetworks};

/// Errors and warnings of all configurations on this host.
pub fn valid(host: &Host<'_>) -> Result<Vec<Finding>> {
    let others = on_this_host(host.settings);
    let of_podman = DriverNetworks::read();
    let mut findings = Vec::new();
    for dir in &host.network_dirs {
        let files: Vec<_> = dir.conf.load()?.into_iter().map(|file| file.file).collect();
        for file in &files {
            let given = of_podman.by_file(file).and_then(network_dirs::plugin_path).unwrap_or_default();
            let settings = host.settings.with_plugins(&[&dir.plugins[..], &given].concat());
            for judged in Judged::with_directory(file, &files, &others, &settings) {
                findings.extend(judged.findings.iter().map(|found| {
                    let object = format!("{}:{}:{}", judged.file.display(), found.at.line, found.at.column);
                    let whole =
                        format!("correct the file: `cnitool validate {}` shows the line", file.display());
                    let remedy = found.help.clone().unwrap_or(whole);
                    match found.level {
                        Level::Error => Finding::error(object, &found.text, remedy),
                        Level::Warning => Finding::warning(object, &found.text, remedy),
                    }
                }));
            }
        }
    }
    Ok(findings)
}

/// A host without a network.
pub fn any(host: &Host<'_>) -> Result<Vec<Finding>> {
    // `plugins.path` reports directories that cannot be read.
    if !host.networks.is_empty() || !host.unread_dirs.is_empty() {
        return Ok(Vec::new());
    }
    let dirs: Vec<String> =
        host.network_dirs.iter().map(|dir| dir.conf.path().display().to_string()).collect();
    Ok(vec![Finding::warning(
        format!("directory {}", dirs.join(", ")),
        "no network is configured, so runtimes report that the host's network is not ready",
        "write a network's configuration into one of these directories; `cnitool explain bridge` lists the keys",
    )])
}
