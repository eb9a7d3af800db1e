//! `doctor`.

use std::process::ExitCode;

use runtime::Result;
use serde_json::{Value, json};

use crate::doctor::{self, Finding, Host, Severity};
use crate::settings::Settings;
use crate::ui::{Style, Ui, plural};

/// The exit code if there are warnings and no errors.
const WARNINGS: u8 = 4;

/// Runs all checks, and prints the findings.
pub fn run(settings: &Settings, ui: &Ui) -> Result<ExitCode> {
    let host = Host::examine(settings);
    let found = doctor::examine(&host);
    let worst = found.first().map(|(_, finding)| finding.severity);
    ui.either(
        || {
            let findings: Vec<Value> = found.iter().map(|(check, finding)| finding.json(check)).collect();
            json!({"checks": doctor::count(), "networks": host.networks.len(),
                "attachments": host.entries.len(), "findings": findings})
        },
        || text(&host, &found, ui),
    )?;
    Ok(match worst {
        Some(Severity::Error) => ExitCode::FAILURE,
        Some(Severity::Warning) => ExitCode::from(WARNINGS),
        Some(Severity::Note) | None => ExitCode::SUCCESS,
    })
}

fn text(host: &Host<'_>, found: &[(&str, Finding)], ui: &Ui) -> String {
    let mut text: String = found.iter().map(|(_, finding)| shown(finding, ui)).collect();
    let count = |severity| found.iter().filter(|(_, finding)| finding.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let scope = format!(
        "{} and {} checked",
        plural(host.networks.len(), "network"),
        plural(host.entries.len(), "attachment")
    );
    text += &match (errors, warnings) {
        (0, 0) => format!("{} {scope}: nothing is wrong\n", ui.styled(Style::Good, "✓")),
        _ => format!("{} {scope}: errors: {errors}, warnings: {warnings}\n", ui.styled(Style::Bad, "✗")),
    };
    text
}

/// The finding as text: the object and the cause, and below it the remedy.
fn shown(finding: &Finding, ui: &Ui) -> String {
    let style = match finding.severity {
        Severity::Error => Style::Bad,
        Severity::Warning => Style::Warning,
        Severity::Note => Style::Dim,
    };
    let head = ui.styled(style, &format!("{}:", finding.severity.name()));
    let Finding { object, cause, remedy, .. } = finding;
    format!("{head} {}: {cause}\n  {} {remedy}\n", ui.styled(Style::Bold, object), ui.styled(Style::Dim, "→"))
}
