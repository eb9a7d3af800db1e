//! `cnitool`: CNI plugins, driven by hand.

mod checks;
mod cli;
mod codes;
mod commands;
mod graph;
mod live;
mod schema;
mod settings;
mod strangers;
mod table;
mod trace;
mod ui;
mod watch;

use std::process::ExitCode;

use clap::Parser;
use cni::Code;
use runtime::Error;

use crate::cli::Cli;
use crate::settings::Settings;
use crate::ui::Ui;

#[global_allocator]
static HEAP: heap::Arena = heap::Arena::new();

fn main() -> ExitCode {
    cni::file::outlive_size_limit();
    let cli = Cli::parse();
    let ui = Ui::new(&cli.common);
    match commands::run(cli.command, &Settings::new(&cli.common), &ui) {
        Ok(code) => code,
        Err(error) => {
            ui.fail(&error);
            exit_code(&error)
        }
    }
}

/// See `cnitool --help`.
fn exit_code(error: &Error) -> ExitCode {
    let is = |code: Code| error.code() == code as u32;
    let of_plugin = error.failures().next().is_some_and(|failure| failure.plugin.is_some());
    let mistaken =
        [Code::IncompatibleVersion, Code::UnknownContainer, Code::InvalidEnvironment, Code::Decoding];
    ExitCode::from(match error.code() {
        code @ (11 | 50 | 51) => u8::try_from(code).unwrap_or(1),
        _ if !of_plugin && (is(Code::InvalidConfig) || mistaken.into_iter().any(is)) => 3,
        _ => 1,
    })
}
