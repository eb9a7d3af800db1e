//! `repair`.

use std::collections::BTreeSet;
use std::env;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cni::repair::Claims;
use netfilter::RulesetMonitor;
use runtime::{AttachmentParameters, Entry, Error, Repaired, Result};
use serde_json::json;

use crate::again::again;
use crate::known;
use crate::metrics::REPAIRS;
use crate::network_dirs::{self, DriverNetworks, NetworkDir};
use crate::settings::Settings;
use crate::signals::Signals;
use crate::ui::{Style, Ui};
use crate::watch::{Watch, Woken};

/// Repairs the attachments of a network, or of all networks.
pub fn run(network: Option<&str>, settings: &Settings, ui: &Ui) -> Result<()> {
    Signals::unblock();
    let mut entries = oldest_first(settings, ui)?;
    if let Some(name) = network {
        let of_file = name.contains('/').then(|| settings.network(name)).transpose()?;
        let name = of_file.as_ref().map_or(name, |network| network.name.as_str());
        retain_network(&mut entries, name);
        if entries.is_empty() && of_file.is_none() {
            settings.network(name)?;
        }
    }
    let (dirs, _) = network_dirs::own_and_all(&settings.conf);
    warn_of_invalid_files(&entries, &dirs, ui);
    let settings = settings.with_plugins(&DriverNetworks::read().plugins());
    let settings = settings.with_plugins_of_runtimes(&plugin_dirs(&entries, &dirs));
    let repaired = settings.runtime.repair(&entries);
    report(&entries, &repaired, network.is_none(), ui)
}

/// The plugin directories of the runtimes that have attached containers.
fn plugin_dirs(entries: &[Entry], dirs: &[NetworkDir]) -> Vec<PathBuf> {
    let names: BTreeSet<_> = entries.iter().map(|entry| &entry.network).collect();
    // `doctor` reports a directory that cannot be read.
    let is_used = |dir: &&NetworkDir| {
        dir.conf.networks().is_ok_and(|networks| networks.iter().any(|network| names.contains(&network.name)))
    };
    dirs.iter().filter(is_used).flat_map(|dir| dir.plugins.clone()).collect()
}

/// Warns if the plugins of a network's directory may be missing: the file of a network that seems to have none may be
/// an invalid one.
fn warn_of_invalid_files(entries: &[Entry], dirs: &[NetworkDir], ui: &Ui) {
    let invalid = known::invalid_files(dirs.iter().map(|dir| &dir.conf)).unwrap_or_default();
    let Some(file) = invalid.first() else { return };
    let of_files = known::networks(dirs, &[]).unwrap_or_default();
    let names: BTreeSet<_> = entries.iter().map(|entry| &entry.network).collect();
    for name in names.into_iter().filter(|name| !of_files.contains_key(*name)) {
        ui.warn(&format!(
            "network {name}: its configuration may be {file}, which is invalid. Then rules of plugins in the \
             directory {name} are not restored: `cnitool validate {file}` shows the mistake",
            file = file.display()
        ));
    }
}

/// Retains the attachments of a network, and newer ones of other networks with the same host ports: a repair of the
/// older ones would take the ports away from them.
fn retain_network(oldest_first: &mut Vec<Entry>, network: &str) {
    let mut claimed = Claims::default();
    oldest_first.retain(|entry| {
        let ports = entry.host_ports();
        let is_retained = entry.network.as_str() == network || ports.iter().any(|port| claimed.exclude(port));
        if is_retained {
            claimed.extend(ports);
        }
        is_retained
    });
}

/// A flush sends many events. A repair starts after this time without events, or after `AT_MOST` at the latest.
const QUIET: Duration = Duration::from_millis(50);
const AT_MOST: Duration = Duration::from_millis(200);

/// The longest pause after a repair.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// The interval of checks if the firewall sends no events.
const LOOK: Duration = Duration::from_secs(10);

/// Repairs now and after each loss, until a signal arrives. If the first run refuses the network's name, no later run is started.
pub fn watch(of_one: bool, settings: &Settings, ui: &Ui) -> Result<ExitCode> {
    let watch = Watch::start(settings.runtime.results())?;
    let (mut warned, mut may_refuse) = (false, of_one);
    loop {
        let started = Instant::now();
        let arguments = env::args_os().skip(1).filter(|argument| argument != "--watch");
        if let Some(code) = again(arguments, "repair", may_refuse, ui)? {
            return Ok(code);
        }
        may_refuse = false;
        // Another program may flush the rules again and again. Pause for four times the duration of the repair, so
        // that repairs do not use the whole processor. The pause is short, so that a flush right after a repair does
        // not wait long.
        if watch.wait(false, Some(PAUSE_MAX.min(started.elapsed() * 4)))? == Woken::Signal {
            return Ok(ExitCode::SUCCESS);
        }
        let silent = RulesetMonitor::may_be_silent();
        if silent && !warned {
            ui.warn("iptables-legacy sends no events: cnitool checks the rules every 10 seconds");
        }
        warned |= silent;
        loop {
            match watch.wait(true, silent.then_some(LOOK))? {
                Woken::Signal => return Ok(ExitCode::SUCCESS),
                Woken::Timeout => break,
                Woken::Removal => settle(&watch)?,
            }
            if watch.has_lost()? {
                break;
            }
        }
    }
}

fn settle(watch: &Watch) -> Result<()> {
    let end = Instant::now() + AT_MOST;
    while Instant::now() < end && watch.wait(true, Some(QUIET))? == Woken::Removal {}
    Ok(())
}

/// The attachments of all caches, the oldest first.
fn oldest_first(settings: &Settings, ui: &Ui) -> Result<Vec<Entry>> {
    let mut entries = known::of_all_caches(settings, ui)?;
    // libcni before 1.2.0 writes the path of the namespace only if the result of ADD contains it.
    for AttachmentParameters { attachment, netns, .. } in entries.iter_mut().map(|entry| &mut entry.attach) {
        *netns = netns.take().or_else(|| liveness::netns_of(&attachment.container));
    }
    entries.sort_by_key(|entry| entry.added);
    Ok(entries)
}

/// Reports repaired and skipped attachments. Returns the failures as an error.
fn report(entries: &[Entry], repaired: &Repaired, several: bool, ui: &Ui) -> Result<()> {
    let (mut done, mut gone, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for (entry, outcome) in entries.iter().zip(&repaired.attachments) {
        match outcome {
            Ok(true) => done.push(entry),
            Ok(false) => {}
            Err(e) if Repaired::is_skipped(e) => gone.push((entry, e)),
            Err(e) => failed.push(e.clone().context(name(entry))),
        }
    }
    count(done.len());
    for (entry, why) in &gone {
        ui.warn(&format!("{} is skipped: {why}", name(entry)));
    }
    let foreign: BTreeSet<&str> = repaired.foreign.iter().map(|kind| kind.as_str()).collect();
    if !foreign.is_empty() {
        let names = foreign.iter().copied().collect::<Vec<_>>().join(", ");
        ui.warn(&format!("not Ferrule's, so cnitool cannot restore their rules: {names}"));
    }
    let json = || {
        let names = |entries: &[&Entry]| entries.iter().map(|entry| name(entry)).collect::<Vec<_>>();
        let gone: Vec<&Entry> = gone.iter().map(|(entry, _)| *entry).collect();
        let whole = entries.len() - done.len() - gone.len() - failed.len();
        json!({"repaired": names(&done), "whole": whole, "passedOver": names(&gone), "foreignPlugins": foreign})
    };
    let counts = Counts { of: entries.len(), skipped: gone.len(), failed: failed.len() };
    // The journal of `repair --all --watch` has no line for a run that finds all rules complete.
    let is_summarized = ui.is_seen() || !several || done.len() + failed.len() > 0;
    ui.either(json, || text(&done, is_summarized.then_some(&counts), ui))?;
    failed.into_iter().reduce(Error::and).map_or(Ok(()), Err)
}

/// Counts repairs for `cnitool metrics`. Without a directory in /run, they are not counted.
fn count(repaired: usize) {
    if repaired > 0 {
        let sum = |before: Option<String>| {
            let before: usize = before.and_then(|count| count.parse().ok()).unwrap_or_default();
            (before + repaired).to_string()
        };
        system::boot::update(REPAIRS, sum).ok();
    }
}

struct Counts {
    of: usize,
    skipped: usize,
    failed: usize,
}

fn text(done: &[&Entry], counts: Option<&Counts>, ui: &Ui) -> String {
    let repaired = done.iter().map(|entry| format!("{} repaired\n", name(entry)));
    let summary = counts.map(|counts| format!("{}\n", counts.summary(done.len(), ui)));
    repaired.chain(summary).collect()
}

/// The name of an attachment as in the labels of rules.
fn name(entry: &Entry) -> String {
    format!("{}/{}/{}", entry.network, entry.attach.attachment.container, entry.attach.attachment.ifname)
}

impl Counts {
    fn summary(&self, repaired: usize, ui: &Ui) -> String {
        if self.of == 0 {
            return "no attachments".to_owned();
        }
        let whole = self.of - repaired - self.skipped - self.failed;
        let counts =
            [(repaired, "repaired"), (whole, "complete"), (self.skipped, "skipped"), (self.failed, "failed")];
        let counts: Vec<String> = counts
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        let mark = if self.failed > 0 { ui.styled(Style::Bad, "✗") } else { ui.styled(Style::Good, "✓") };
        format!("{mark} attachments: {}", counts.join(", "))
    }
}
