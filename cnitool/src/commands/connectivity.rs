//! `test-connectivity`.

use std::net::IpAddr;
use std::process::ExitCode;

use runtime::{Result, interrupted_by_signals};
use serde_json::{Value, json};

use crate::connectivity::{Outcome, Row, Test};
use crate::settings::Settings;
use crate::table::Table;
use crate::ui::{Style, Ui};

/// Runs all checks of a network, and prints a table.
pub fn run(network: &str, outside: Vec<IpAddr>, settings: &Settings, ui: &Ui) -> Result<ExitCode> {
    let network = settings.network(network)?;
    let test = Test { network: &network, settings, outside, stopped: interrupted_by_signals()? };
    let rows = test.run();
    let failed = rows.iter().filter(|row| row.is_failed()).count();
    let is_stopped = test.stopped.load(std::sync::atomic::Ordering::Relaxed);
    let passed = failed == 0 && !is_stopped && rows.iter().any(Row::is_passed);
    ui.either(
        || {
            let checks: Vec<Value> = rows.iter().map(Row::json).collect();
            json!({"network": network.name.as_str(), "passed": passed, "checks": checks})
        },
        || text(&network.name, &rows, failed, is_stopped, ui),
    )?;
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn text(network: &str, rows: &[Row], failed: usize, is_stopped: bool, ui: &Ui) -> String {
    let mut table = Table::new(["CHECK", "FROM", "TO", "RESULT", ""]);
    for Row { promise, from, to, outcome } in rows {
        let (result, style, details) = match outcome {
            Outcome::Passed(details) => ("passed", Style::Good, details.clone()),
            Outcome::Failed { cause, remedy } => ("failed", Style::Bad, format!("{cause}\n→ {remedy}")),
            Outcome::Skipped(why) => ("skipped", Style::Warning, why.clone()),
        };
        let plain = |text: &str| (text.to_owned(), Style::Plain);
        table.row([
            plain(promise),
            plain(from),
            plain(to),
            (result.to_owned(), style),
            (details, Style::Plain),
        ]);
    }
    let verdict = match failed {
        0 if is_stopped => {
            format!("{} network {network}: a signal ended the test\n", ui.styled(Style::Bad, "✗"))
        }
        0 if !rows.iter().any(Row::is_passed) => {
            format!("{} network {network}: nothing was tested\n", ui.styled(Style::Bad, "✗"))
        }
        0 => format!(
            "{} network {network}: all checks passed with new containers\n",
            ui.styled(Style::Good, "✓")
        ),
        _ => format!(
            "{} network {network}: {failed} of {} checks failed\n",
            ui.styled(Style::Bad, "✗"),
            rows.len()
        ),
    };
    table.render(ui, "") + &verdict
}
