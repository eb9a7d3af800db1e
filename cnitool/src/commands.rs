//! One module for each group of commands.

mod attachment;
mod completion;
mod connectivity;
mod doctor;
mod explain;
mod gc;
mod graph;
mod list;
mod manual;
mod metrics;
mod repair;
mod schema;
mod show;
pub mod status;
mod sysdump;
pub mod validate;
mod version;

use std::process::ExitCode;

use runtime::{Result, ended_by_signals};

use crate::cli::Command;
use crate::settings::Settings;
use crate::ui::Ui;

/// Runs a command. If the failure is the answer of the command (a network that is not ready), the result is an exit
/// code, not an error.
pub fn run(command: Command, settings: &Settings, ui: &Ui) -> Result<ExitCode> {
    if let ignored @ [_, ..] = command.ignored() {
        ui.warn(&format!(
            "ignored, because the command works on one network or attachment: {}",
            ignored.join(" ")
        ));
    }
    if !command.handles_signals() {
        ended_by_signals()?;
    }
    match command {
        Command::Add { target, attach_args, options } => {
            attachment::add(&target, &attach_args, options, settings, ui)?
        }
        Command::Check { target } => attachment::check(&target, settings, ui)?,
        Command::Del { target } => attachment::del(&target, settings, ui)?,
        Command::Gc { network, options, .. } => return gc::run(network.as_deref(), &options, settings, ui),
        Command::Repair { watch: true, network, .. } => {
            return repair::watch(network.is_some(), settings, ui);
        }
        Command::Repair { network, .. } => repair::run(network.as_deref(), settings, ui)?,
        Command::TestConnectivity { network, outside } => {
            return connectivity::run(&network, outside, settings, ui);
        }
        Command::Metrics { to } => metrics::run(to.as_deref(), settings, ui)?,
        Command::Doctor => return doctor::run(settings, ui),
        Command::Sysdump { to, list } => sysdump::run(to.as_deref(), list, settings, ui)?,
        Command::Status { network, .. } => return status::run(network.as_deref(), settings, ui),
        Command::Version { names } => version::run(&names, settings, ui)?,
        Command::List { what, all } => list::run(what, all, settings, ui)?,
        Command::Show { words, all } => return show::run(&words, all, settings, ui),
        Command::Completion { shell } => completion::run(shell, ui)?,
        Command::Man => manual::run(ui)?,
        Command::Validate { files } => return validate::run(&files, settings, ui),
        Command::Explain { topic } => explain::run(topic.as_deref(), settings, ui)?,
        Command::Schema { of, to } => schema::run(&of, to.as_deref(), ui)?,
        Command::Graph { network, all, format, to } => {
            graph::run(network.as_deref(), all, format, to.as_deref(), settings, ui)?
        }
    }
    Ok(ExitCode::SUCCESS)
}
