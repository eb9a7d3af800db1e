//! `ferrule-install`: places the plugins where runtimes look for them, all or none, and takes them away again.

mod check;
mod divert;
mod files;
mod placed;
mod record;
mod source;
mod stay;
mod target;

use std::collections::BTreeSet;
use std::env;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::builder::{BoolishValueParser, Resettable};
use clap::{ArgAction, CommandFactory, FromArgMatches, Parser};
use cni::{Code, Error, Failures, Result};

use crate::placed::Placed;
use crate::source::{Selection, Sources};
use crate::stay::Stay;
use crate::target::{Target, Targets, Wish};

/// Install the CNI plugins where the container runtimes of this host look for them, and uninstall them again.
///
/// The directories come from the configuration of containerd, CRI-O, Podman, Nomad, nerdctl, BuildKit, k3s, RKE2, MicroK8s and the
/// kubelet. All plugins of a directory are replaced, or none: each is copied, written to the disk and started before the first
/// one is renamed into place. Containers may start and stop meanwhile. Files of the same names are kept in DIR/.ferrule/kept, and
/// --uninstall puts them back. If a run is interrupted, the next run undoes it.
#[derive(Debug, Parser)]
#[command(name = "ferrule-install", version, max_term_width = 100, after_help = EXIT_CODES)]
struct Cli {
    /// Install into this directory. Can be repeated [default: one directory for each runtime]
    #[arg(long, value_name = "DIR")]
    dir: Vec<PathBuf>,
    /// Install for these runtimes only, such as containerd,podman
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', conflicts_with = "dir")]
    runtime: Vec<String>,
    /// Root directory of the host, for a container in which it is mounted elsewhere
    #[arg(long, value_name = "DIR", default_value = "/", hide_default_value = true)]
    root: PathBuf,
    /// Print where the runtimes look and which directories would be used, and change nothing
    #[arg(long, conflicts_with_all = ["uninstall", "check", "stay"])]
    list: bool,
    /// Directory to take the plugins from [default: where ferrule-install is, or /usr/lib/ferrule/cni]
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
    /// Only these plugins
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    only: Vec<String>,
    /// All plugins except these
    #[arg(long, env = "SKIP_CNI_BINARIES", value_name = "NAME,...", value_delimiter = ',')]
    skip: Vec<String>,
    /// Whether to replace files that exist
    #[arg(
        long, env = "UPDATE_CNI_BINARIES", value_name = "BOOL", action = ArgAction::Set, default_value = "true",
        value_parser = BoolishValueParser::new(),
    )]
    update: bool,
    /// One executable, `ferrule`, with a hard link for each plugin
    #[arg(long)]
    link: bool,
    /// Restore the files from before the installation. Without --dir: in all directories
    #[arg(long, conflicts_with_all = ["from", "link", "runtime"])]
    uninstall: bool,
    /// Replace the plugins that an earlier run installed, in all directories. Files that other programs have written since stay
    #[arg(long, conflicts_with_all = ["uninstall", "check", "stay", "list", "runtime"])]
    upgrade: bool,
    /// With --upgrade: also replace files that other programs have written since
    #[arg(long, requires = "upgrade")]
    reclaim: bool,
    /// Print the directories that plugins are installed in
    #[arg(long, conflicts_with_all = ["uninstall", "upgrade", "check", "stay", "list", "runtime"])]
    installed: bool,
    /// Change nothing, and check that each plugin is installed, is the same file, and answers VERSION
    #[arg(long, conflicts_with = "uninstall")]
    check: bool,
    /// Install, then wait for SIGTERM or SIGINT, and install again if somebody replaces a plugin: for a DaemonSet
    #[arg(long, conflicts_with_all = ["uninstall", "check"])]
    stay: bool,
    /// With --stay: at the end, restore the files from before the installation, unless another run has
    /// installed since
    #[arg(
        long, env = "ROLLBACK_ON_EXIT", value_name = "BOOL", action = ArgAction::Set, default_value = "false",
        num_args = 0..=1, require_equals = true, default_missing_value = "true",
        value_parser = BoolishValueParser::new(),
    )]
    rollback_on_exit: bool,
    /// How long to wait for another ferrule-install that is running in DIR [default: 0; with --stay 20]
    #[arg(long, value_name = "SECONDS", conflicts_with = "check")]
    wait: Option<u64>,
}

/// The default of `--wait` with `--stay`, in seconds. Kubernetes kills a pod 30 seconds after it asked the pod to end.
const WAIT_TIMEOUT: u64 = 20;

const EXIT_CODES: &str = "Exit codes: 0 done; 1 it failed, and the message says why; 2 wrong usage; \
    11 another ferrule-install is running in DIR.";

fn main() -> ExitCode {
    match run(&command_line()) {
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

/// Prints a line. A closed stdout is ignored: it must not interrupt an installation.
fn say(line: &str) {
    writeln!(io::stdout(), "{line}").ok();
}

/// Prints a warning to stderr, because scripts often discard stdout.
fn warn(line: &str) {
    writeln!(io::stderr(), "ferrule-install: warning: {line}").ok();
}

fn run(cli: &Cli) -> Result<()> {
    let timeout = Duration::from_secs(cli.wait.unwrap_or(if cli.stay { WAIT_TIMEOUT } else { 0 }));
    let selection = Selection { only: names(&cli.only), skip: names(&cli.skip) };
    let wish = Wish { dirs: &cli.dir, runtimes: &cli.runtime, root: &cli.root };
    if cli.installed {
        let dirs = target::installed(&wish)?;
        let dirs = dirs.iter().filter(|dir| dir.join(placed::STATE).is_dir());
        dirs.for_each(|dir| say(&dir.display().to_string()));
        return Ok(());
    }
    if cli.uninstall {
        return uninstall(&wish, &selection, timeout);
    }
    let from = cli.from.clone().map_or_else(source::find, Ok)?;
    let sources = source::plugins(&from, cli.from.is_some(), cli.link, &selection)?;
    // Identifies this run in the records.
    let run = RandomState::new().build_hasher().finish();
    if cli.upgrade {
        let dirs = target::installed(&wish)?;
        return each(&dirs, |dir| {
            with_retries(timeout, || Placed::open(dir, wish.root)?.upgrade(&sources, cli.reclaim, run))
        });
    }
    // Block the signals before the first change, so that no signal is lost.
    let stay = if cli.stay { Some(Stay::begin(&cli.root, run, cli.update)?) } else { None };
    let targets = Targets::find(&wish, &sources.keys().cloned().collect())?;
    if cli.list {
        return Ok(());
    }
    let dirs: Vec<PathBuf> = targets.dirs().collect();
    if cli.check {
        return each(&dirs, |dir| check::all(dir, &sources, cli.update));
    }
    dirs.iter().try_for_each(|dir| target::check(dir, &cli.root))?;
    let mut installed = Vec::new();
    each(&dirs, |dir| {
        let mut made = 0;
        let dir = with_retries(timeout, || {
            // An uninstallation removes the directory, and an earlier attempt may have created it.
            let mut target = target::make(dir, &cli.root)?;
            made = target.made.max(made);
            target.made = made;
            install(&from, &target, &cli.root, sources.clone(), cli.update, run).map(|()| target.dir)
        })?;
        target::register(&dir, &cli.root, true);
        installed.push(dir);
        Ok(())
    })?;
    if let Some(stay) = stay {
        let dirs = installed;
        stay.watch(&dirs, &sources)?;
        if cli.rollback_on_exit {
            return each(&dirs, |dir| {
                with_retries(timeout, || Placed::open(dir, &cli.root)?.uninstall_own(run))
            });
        }
    }
    Ok(())
}

fn uninstall(wish: &Wish<'_>, selection: &Selection, timeout: Duration) -> Result<()> {
    let dirs = target::installed(wish)?;
    if dirs.is_empty() {
        say("nothing is installed in any directory where runtimes look for plugins");
    }
    let mut known = BTreeSet::new();
    each(&dirs, |dir| {
        known.extend(with_retries(timeout, || {
            let placed = Placed::open(dir, wish.root)?;
            let names: Vec<String> = placed.names().cloned().collect();
            placed.uninstall(selection).map(|()| names)
        })?);
        // If this check fails, some plugins may still be installed.
        target::register(dir, wish.root, dir.join(placed::STATE).try_exists().unwrap_or(true));
        Ok(())
    })?;
    match selection.only.iter().find(|name| !known.contains(*name)) {
        Some(name) => {
            let error = Error::new(Code::InvalidConfig, format!("no plugin {name:?} is installed"));
            Err(error.detail("`ferrule-install --installed` lists the directories with plugins"))
        }
        None => Ok(()),
    }
}

/// Works on each directory, and continues after failures.
fn each<T>(dirs: &[T], mut work: impl FnMut(&T) -> Result<()>) -> Result<()> {
    let mut failures = Failures::new();
    for dir in dirs {
        failures.note(work(dir));
    }
    failures.into_result()
}

/// Retries until the timeout while another ferrule-install is running.
fn with_retries<T>(timeout: Duration, mut work: impl FnMut() -> Result<T>) -> Result<T> {
    let begin = Instant::now();
    let mut waits = false;
    loop {
        match work() {
            Err(error) if error.code() == Code::TryAgainLater as u32 && begin.elapsed() < timeout => {
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

fn install(
    from: &Path,
    target: &Target,
    root: &Path,
    mut sources: Sources,
    update: bool,
    run: u64,
) -> Result<()> {
    let dir = &target.dir;
    if from.canonicalize().is_ok_and(|from| from == *dir) {
        return Err(Error::new(
            Code::InvalidConfig,
            format!("{} cannot be installed into itself", from.display()),
        )
        .detail("name another directory with --dir or --from"));
    }
    let placed = Placed::open(dir, root)?.with_made(target.made);
    if !update {
        for name in sources.keys().cloned().collect::<Vec<_>>() {
            let at = dir.join(&name);
            if files::exists(&at)? {
                say(&format!("kept {}: it existed before", at.display()));
                sources.remove(&name);
            }
        }
    }
    placed.install(&sources, run)
}

/// The names of an option, separated by commas or blanks. An empty environment variable is treated as unset.
fn names(given: &[String]) -> BTreeSet<String> {
    given.iter().flat_map(|names| names.split_whitespace()).map(str::to_owned).collect()
}

/// The command line. An empty variable of a boolean is treated as unset.
fn command_line() -> Cli {
    let mut command = Cli::command();
    for (option, variable) in [("update", "UPDATE_CNI_BINARIES"), ("rollback_on_exit", "ROLLBACK_ON_EXIT")] {
        if env::var_os(variable).is_some_and(|value| value.is_empty()) {
            command = command.mut_arg(option, |argument| argument.env(Resettable::Reset));
        }
    }
    Cli::from_arg_matches(&command.get_matches()).unwrap_or_else(|e| e.exit())
}
