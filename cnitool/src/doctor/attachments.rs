//! Attachments: whether the host still has the interfaces, addresses and rules that ADD created.

use runtime::Result;

use super::host::label;
use super::{Finding, Host};

/// Attachments for which CHECK reports an error.
pub fn check(host: &Host<'_>) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for entry in host.alive() {
        let Ok(network) = entry.network() else { continue };
        let configured = host.networks.iter().find(|one| one.network.name == network.name);
        let settings = configured.map_or(host.settings, |one| &one.settings);
        let Err(error) = settings.runtime.check(&network, &entry.attach) else { continue };
        let text = error.to_string();
        let details: Vec<&str> = error.failures().map(|failure| failure.error.details()).collect();
        let is_rules = format!("{text} {}", details.join(" ")).contains("cnitool repair");
        let remedy = if is_rules {
            format!("run `cnitool repair {}`", entry.network)
        } else {
            "restart the container, so that its runtime calls DEL and ADD".to_owned()
        };
        findings.push(Finding::error(label(entry), format!("CHECK failed: {text}"), remedy));
    }
    Ok(findings)
}

/// Files of caches that are not results of ADD.
pub fn results(host: &Host<'_>) -> Result<Vec<Finding>> {
    let finding = |path: &std::path::PathBuf| {
        Finding::warning(
            format!("file {}", path.display()),
            "the file is damaged, or it is not a result of ADD, so its attachment cannot be checked, repaired or deleted",
            "stop the container and delete the file. `cnitool gc --dry-run` then lists the container's resources",
        )
    };
    Ok(host.damaged.iter().map(finding).collect())
}
