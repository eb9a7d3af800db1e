//! `status`.

use std::process::ExitCode;

use runtime::{Error, Network, Result};
use serde_json::{Value, json};

use crate::exit;
use crate::settings::Settings;
use crate::strangers;
use crate::table::Table;
use crate::ui::{Style, Ui};

/// Asks one network, or all.
pub fn run(name: Option<&str>, settings: &Settings, ui: &Ui) -> Result<ExitCode> {
    let networks = match name {
        Some(name) => vec![settings.network(name)?],
        None => settings.conf.load()?.into_iter().filter_map(|file| file.network.ok()).collect(),
    };
    let ask = |network: Network| {
        let status = settings.runtime.status(&network);
        (network, status)
    };
    let asked: Vec<(Network, Result<()>)> = networks.into_iter().map(ask).collect();
    if ui.json() {
        ui.print_json(&asked.iter().map(|(network, status)| json(network, status)).collect())?;
    } else if name.is_none() || ui.is_seen() {
        ui.print(&table(&asked).render(ui, ""))?;
    }
    let failed = asked.into_iter().find_map(|(_, status)| status.err());
    Ok(failed.map_or(ExitCode::SUCCESS, |error| {
        // Of one network, why it is not ready is what was asked for.
        if name.is_some() && !ui.is_seen() {
            ui.fail(&error);
        }
        exit::code(&error)
    }))
}

fn json(network: &Network, status: &Result<()>) -> Value {
    let error = status.as_ref().err();
    json!({
        "network": network.name.as_str(),
        "ready": error.is_none(),
        "leased": strangers::leased(network),
        "code": error.map(Error::code),
        "msg": error.map(ToString::to_string),
    })
}

/// How many addresses are given out. From which number on they are few, the plugin itself says on stderr.
fn fill(network: &Network) -> String {
    match strangers::leased(network) {
        0 => String::new(),
        1 => "1 address is leased".to_owned(),
        leased => format!("{leased} addresses are leased"),
    }
}

fn table(asked: &[(Network, Result<()>)]) -> Table {
    let mut table = Table::new(["NETWORK", "STATUS", "WHY"]);
    for (network, status) in asked {
        let name = (network.name.to_string(), Style::Name);
        table.row(match status {
            Ok(()) if network.version < cni::Command::Status.since() => {
                let why = format!("version {} has no STATUS", network.version);
                [name, ("ready".to_owned(), Style::Good), (why, Style::Dim)]
            }
            Ok(()) => [name, ("ready".to_owned(), Style::Good), (fill(network), Style::Dim)],
            Err(error) => {
                let code = format!("not ready ({})", error.code());
                [name, (code, Style::Bad), (error.to_string(), Style::Plain)]
            }
        });
    }
    table
}
