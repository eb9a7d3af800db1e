//! `ferrule-install`: places the plugins where runtimes look for them, all or none, and takes them away again.

mod files;
mod placed;
mod record;
mod source;
mod target;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use cni::{Code, Error, Result};

use crate::placed::Placed;

/// Place the CNI plugins where runtimes look for them, all or none, and take them away again.
///
/// Each plugin is copied, written to the disk and asked for its VERSION. Only when all have answered are they renamed into
/// place, so runtimes may start and stop containers meanwhile. Files of the same names are kept in DIR/.ferrule/kept, and
/// --uninstall puts them back. A run that was interrupted is taken back by the next one.
#[derive(Debug, Parser)]
#[command(name = "ferrule-install", version, max_term_width = 100, after_help = EXIT_CODES)]
struct Cli {
    /// Directory of the plugins [default: the first of /opt/cni/bin, /usr/lib/cni and /usr/libexec/cni that has plugins; else the
    /// first that is there; else /opt/cni/bin is made]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Directory to take the plugins from [default: where ferrule-install is, or /usr/lib/ferrule/cni]
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
    /// These plugins only
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    only: Vec<String>,
    /// One executable, `ferrule`, with a hard link for each plugin
    #[arg(long)]
    link: bool,
    /// Put back what was there before
    #[arg(long, conflicts_with_all = ["from", "link"])]
    uninstall: bool,
}

const EXIT_CODES: &str = "Exit codes: 0 done; 1 it failed, and the message says why; 2 wrong usage; \
    11 another ferrule-install is at work in DIR.";

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::from(if error.code() == Code::TryAgainLater as u32 { 11 } else { 1 })
        }
    }
}

#[expect(clippy::print_stderr, reason = "someone looks at the terminal")]
fn complain(error: &Error) {
    eprintln!("ferrule-install: error {}: {error}", error.code());
}

/// What is done stays done, whether or not someone listens.
fn say(line: &str) {
    writeln!(io::stdout(), "{line}").ok();
}

fn run(cli: &Cli) -> Result<()> {
    let only: BTreeSet<String> = cli.only.iter().cloned().collect();
    if cli.uninstall {
        let dir = target::find(cli.dir.as_deref(), &BTreeSet::new())?;
        return Placed::open(&dir)?.uninstall(&only);
    }
    let from = cli.from.clone().map_or_else(source::find, Ok)?;
    let sources = source::plugins(&from, cli.link, &only)?;
    let names = sources.keys().cloned().collect();
    let dir = target::make(target::find(cli.dir.as_deref(), &names)?)?;
    if from.canonicalize().is_ok_and(|from| from == dir) {
        return Err(Error::new(
            Code::InvalidConfig,
            format!("{} cannot be installed into itself", from.display()),
        )
        .detail("name another directory with --dir or --from"));
    }
    Placed::open(&dir)?.install(&sources)
}
