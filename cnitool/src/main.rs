//! `cnitool`: runs CNI plugins from the command line, and checks, repairs and cleans up hosts.

mod again;
mod arguments;
mod attach_args;
mod cleanup;
mod cli;
mod codes;
mod commands;
mod connectivity;
mod doctor;
mod exit;
mod graph;
mod known;
mod leases;
mod limits;
mod live;
mod metrics;
mod named;
mod network_dirs;
mod ports;
mod programs;
mod runtimes;
mod settings;
mod signals;
mod sysdump;
mod table;
mod trace;
mod ui;
mod watch;

use std::process::ExitCode;
use std::thread;

use clap::Parser;

use crate::cli::Cli;
use crate::settings::Settings;
use crate::ui::Ui;

#[global_allocator]
static HEAP: heap::Arena = heap::Arena::new();

fn main() -> ExitCode {
    // std allocates a thread's handle from the system, not from HEAP, and aborts without memory. From here on, there is room for more handles.
    let _ = thread::current();
    system::size_limit::block_sigxfsz();
    let cli = Cli::parse();
    let ui = Ui::new(&cli.common);
    match commands::run(cli.command, &Settings::new(&cli.common), &ui) {
        Ok(code) => code,
        Err(error) => {
            ui.fail(&error);
            exit::code(&error)
        }
    }
}
