//! `ferrule-install`: places the plugins where runtimes look for them, all or none, and takes them away again.

mod check;
mod files;
mod placed;
mod record;
mod source;
mod target;

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Parser};
use cni::{Code, Error, Result};
use nix::sys::signal::{SigSet, Signal};

use crate::placed::Placed;
use crate::source::{Selection, Sources};

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
    /// Not these plugins
    #[arg(long, env = "SKIP_CNI_BINARIES", value_name = "NAME,...", value_delimiter = ',')]
    skip: Vec<String>,
    /// Whether files that are there already are replaced
    #[arg(
        long, env = "UPDATE_CNI_BINARIES", value_name = "BOOL", action = ArgAction::Set, default_value = "true",
        value_parser = BoolishValueParser::new(),
    )]
    update: bool,
    /// One executable, `ferrule`, with a hard link for each plugin
    #[arg(long)]
    link: bool,
    /// Put back what was there before
    #[arg(long, conflicts_with_all = ["from", "link"])]
    uninstall: bool,
    /// Change nothing, and see whether each plugin is there as it would be installed, and answers VERSION
    #[arg(long, conflicts_with = "uninstall")]
    check: bool,
    /// Install, then wait for SIGTERM or SIGINT: for a container that is to stay
    #[arg(long, conflicts_with_all = ["uninstall", "check"])]
    stay: bool,
    /// With --stay: at the end, put back what was there before, unless another ferrule-install has been at work there since
    #[arg(
        long, env = "ROLLBACK_ON_EXIT", value_name = "BOOL", action = ArgAction::Set, default_value = "false",
        num_args = 0..=1, require_equals = true, default_missing_value = "true",
        value_parser = BoolishValueParser::new(),
    )]
    rollback_on_exit: bool,
    /// How long to wait for another ferrule-install that is at work in DIR [default: 0; with --stay 20]
    #[arg(long, value_name = "SECONDS", conflicts_with = "check")]
    wait: Option<u64>,
}

/// Of a run that stays. Kubernetes gives a pod 30 seconds to end.
const PATIENCE: u64 = 20;

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
    let patience = Duration::from_secs(cli.wait.unwrap_or(if cli.stay { PATIENCE } else { 0 }));
    let selection = Selection { only: names(&cli.only), skip: names(&cli.skip) };
    if cli.uninstall {
        let dir = target::find(cli.dir.as_deref(), &BTreeSet::new())?;
        return patiently(patience, || Placed::open(&dir)?.uninstall(&selection));
    }
    let from = cli.from.clone().map_or_else(source::find, Ok)?;
    let sources = source::plugins(&from, cli.link, &selection)?;
    let dir = target::find(cli.dir.as_deref(), &sources.keys().cloned().collect())?;
    if cli.check {
        return check::all(&dir, &sources, cli.update);
    }
    // Before anything is done: a signal that comes meanwhile is not lost.
    let ends: SigSet = [Signal::SIGTERM, Signal::SIGINT].into_iter().collect();
    if cli.stay {
        ends.thread_block().map_err(Error::from)?;
    }
    let dir = target::make(dir)?;
    // Tells this run from others.
    let run = RandomState::new().build_hasher().finish();
    patiently(patience, || install(&from, &dir, sources.clone(), cli.update, run))?;
    if cli.stay {
        say("waiting for SIGTERM");
        ends.wait().map_err(Error::from)?;
        if cli.rollback_on_exit {
            patiently(patience, || Placed::open(&dir)?.uninstall_own(run))?;
        }
    }
    Ok(())
}

/// Tries again while another ferrule-install is at work.
fn patiently(patience: Duration, work: impl Fn() -> Result<()>) -> Result<()> {
    let begin = Instant::now();
    let mut waits = false;
    loop {
        match work() {
            Err(error) if error.code() == Code::TryAgainLater as u32 && begin.elapsed() < patience => {
                if !waits {
                    say(&format!("waiting: {}", error.msg()));
                }
                waits = true;
                thread::sleep(Duration::from_millis(100));
            }
            outcome => return outcome,
        }
    }
}

fn install(from: &Path, dir: &Path, mut sources: Sources, update: bool, run: u64) -> Result<()> {
    if from.canonicalize().is_ok_and(|from| from == dir) {
        return Err(Error::new(
            Code::InvalidConfig,
            format!("{} cannot be installed into itself", from.display()),
        )
        .detail("name another directory with --dir or --from"));
    }
    let placed = Placed::open(dir)?;
    if !update {
        sources.retain(|name, _| {
            let there = dir.join(name).symlink_metadata().is_ok();
            if there {
                say(&format!("left {}: it was there", dir.join(name).display()));
            }
            !there
        });
    }
    placed.install(&sources, run)
}

/// An empty variable of the environment names none.
fn names(given: &[String]) -> BTreeSet<String> {
    given.iter().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
}
