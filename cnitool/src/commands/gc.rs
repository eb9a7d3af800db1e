//! `gc`.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::CommandFactory;
use clap::error::ErrorKind;
use cni::{Attachment, Attachments, NetworkName, PluginType, Resource};
use runtime::{Entry, Error, Network, Result};
use serde_json::{Value, json};

use crate::again::again;
use crate::cleanup::{KeepReason, Plan, PlanOptions};
use crate::cli::{Cli, GcOptions};
use crate::known::{self, Known};
use crate::network_dirs::{self, NetworkDir};
use crate::runtimes;
use crate::settings::{Settings, refuse_ifname};
use crate::signals::Signals;
use crate::table::Table;
use crate::ui::{Style, Ui, plural};

/// Removes stale attachments of a network (with `--detach-running` also live ones), or stale ones of all networks. Or
/// lists them.
pub fn run(network: Option<&str>, options: &GcOptions, settings: &Settings, ui: &Ui) -> Result<ExitCode> {
    refuse_wrong_usage(network, options, settings);
    if let Some(pause) = options.every {
        return repeat(pause, network.is_some(), ui);
    }
    Signals::unblock();
    let plan_options = PlanOptions {
        detach_running: options.detach_running,
        force: options.force.iter().cloned().collect(),
        older_than: options.older_than,
    };
    let mut failed = Vec::new();
    let networks = match network {
        Some(name) => vec![Known::of(settings.network_to_collect(name, ui)?, settings)],
        None => all_networks(settings, ui, &mut failed)?,
    };
    let mut done = Vec::new();
    for known in &networks {
        let (network, settings) = (&known.network, &known.settings(settings));
        let planned = |plan| Gc { network: network.name.clone(), plan, is_complete: true };
        let outcome = if network.disable_gc {
            ui.warn(&format!(
                "the configuration of network {} has disableGC: GC removes nothing",
                network.name
            ));
            Ok(planned(Plan::default()))
        } else if options.dry_run {
            Plan::make(network, &plan_options, settings).map(|plan| {
                let refused = plan.may_call_gc().err();
                failed.extend(refused.map(|e| e.context(format_args!("network {}", network.name))));
                planned(plan)
            })
        } else {
            collect(network, &plan_options, settings, ui, &mut failed)
        };
        match outcome {
            Ok(gc) => done.push(gc),
            Err(e) => failed.push(e.context(format_args!("network {}", network.name))),
        }
    }
    for value in plan_options.force.iter().filter(|_| failed.is_empty()) {
        if !done.iter().any(|gc| gc.plan.has_named(value)) {
            ui.warn(&format!(
                "--force {value}: no container, resource or other vendor's plugin has this name"
            ));
        }
    }
    if !options.dry_run {
        failed.extend(settings.runtime.remove_incomplete().err());
    }
    match done[..] {
        // The error says all.
        [] if !failed.is_empty() => {}
        _ if options.dry_run => preview(&done, network.is_none(), failed.is_empty(), ui)?,
        _ => report(&done, network.is_none(), ui)?,
    }
    failed.into_iter().reduce(Error::and).map_or(Ok(ExitCode::SUCCESS), Err)
}

/// Refuses combinations of arguments that would detach more than the caller may mean.
fn refuse_wrong_usage(network: Option<&str>, options: &GcOptions, settings: &Settings) {
    if options.all
        && let Some(network) = network
    {
        refuse_all_of(network);
    }
    // `gc` would also remove other interfaces of running containers.
    if options.detach_running {
        refuse_ifname("--detach-running", settings);
    }
    if !options.force.is_empty() {
        refuse_ifname("--force <NAME>", settings);
    }
}

/// `--all` means all networks. With a network, the caller may mean either.
fn refuse_all_of(network: &str) -> ! {
    let text = format!(
        "--all means all networks, so it cannot be used with network {network}. To remove stale resources, run `cnitool \
         gc {network}` or `cnitool gc --all`. To also detach running containers of --cache-dir, run `cnitool gc {network} \
         --detach-running`"
    );
    Cli::command().error(ErrorKind::ArgumentConflict, text).exit()
}

/// Runs GC now and after each pause, until a signal arrives. If the first run refuses the network's name, no later run is started.
fn repeat(pause: Duration, of_one: bool, ui: &Ui) -> Result<ExitCode> {
    let signals = Signals::block()?;
    let mut may_refuse = of_one;
    loop {
        if let Some(code) = again(without_every(env::args_os().skip(1)).into_iter(), "GC", may_refuse, ui)? {
            return Ok(code);
        }
        may_refuse = false;
        if signals.wait(pause)? {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// The arguments of one run. The value of `--every` is the next argument, or follows a `=`.
fn without_every(mut arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut kept = Vec::new();
    while let Some(argument) = arguments.next() {
        if argument == "--every" {
            arguments.next();
        } else if !argument.as_encoded_bytes().starts_with(b"--every=") {
            kept.push(argument);
        }
    }
    kept
}

/// The result of a GC of one network, or of a dry run.
struct Gc {
    network: NetworkName,
    plan: Plan,
    /// False if an operation has failed, for example a plugin's. The error names it.
    is_complete: bool,
}

fn collect(
    network: &Network,
    plan_options: &PlanOptions,
    settings: &Settings,
    ui: &Ui,
    failed: &mut Vec<Error>,
) -> Result<Gc> {
    let plan = std::cell::OnceCell::new();
    let mut deleted = 0;
    // Plan under the lock, with the same function as a dry run.
    let decide = || {
        let made = Plan::make(network, plan_options, settings)?;
        Ok(plan.get_or_init(|| made).decision())
    };
    let is_still_stale = |entry: &_| {
        let own = settings.runtime.results();
        plan.get().is_some_and(|plan: &Plan| plan.is_still_stale(entry, network, plan_options, own))
    };
    let look_again = |_: &_| match plan.get() {
        Some(plan) => plan.still_stale(network, plan_options, settings),
        None => Ok(Attachments::default()),
    };
    let collected =
        settings.runtime.collect(network, decide, is_still_stale, look_again, |done, of, at| {
            deleted = of;
            ui.progress(&format!(
                "removing {} of {of}: {} of container {}",
                done + 1,
                at.ifname,
                at.container
            ));
        })?;
    if deleted > 0 {
        ui.progress("");
    }
    let mut plan = plan.into_inner().unwrap_or_default();
    plan.keep(&collected.kept, &collected.not_deleted);
    let outcome = collected.outcome.and(plan.remove_truncated().map_err(Error::from));
    let is_complete = outcome.is_ok();
    if let Err(e) = outcome {
        failed.push(e.context(format_args!("network {}", network.name)));
        // Only what plugins deleted, or tried to delete, is reported as removed.
        plan.removed = collected.resources;
        // If a DEL has failed, the cache still contains the attachment.
        let left = settings.runtime.results().of_network(&network.name)?.entries;
        plan.delete
            .retain(|entry| !left.iter().any(|other| other.attach.attachment == entry.attach.attachment));
    }
    Ok(Gc { network: network.name.clone(), plan, is_complete })
}

/// All networks of this host. Notes the errors of networks that only a cache contains, and whose directory has an invalid file: a DEL would
/// not call the plugin in this file, and would delete the record of the attachment.
fn all_networks(settings: &Settings, ui: &Ui, failed: &mut Vec<Error>) -> Result<Vec<Known>> {
    let entries = known::of_all_caches(settings, ui)?;
    let (network_dirs, problems) = network_dirs::own_and_all(&settings.conf);
    let mut networks = known::networks(&network_dirs, &entries)?;
    problems.iter().for_each(|problem| ui.warn(problem));
    let of_files = known::networks(&network_dirs, &[])?;
    // An invalid file may be that of a network which seems to have none, and may disable its GC.
    if let Some(file) = known::invalid_files(network_dirs.iter().map(|dir| &dir.conf))?.first() {
        networks.retain(|name, _| {
            let has_file = of_files.contains_key(name);
            if !has_file {
                ui.warn(&format!(
                    "network {name}: GC is skipped, because its configuration may be in {}, which is invalid",
                    file.display()
                ));
            }
            has_file
        });
    }
    networks.retain(|name, known| {
        let complete = |dir: &NetworkDir| dir.conf.complete(known.network.clone()).err();
        let is_of_cache = !of_files.contains_key(name);
        let invalid = is_of_cache.then(|| network_dirs.iter().find_map(complete)).flatten();
        let is_complete = invalid.is_none();
        failed.extend(invalid.map(|error| error.context(format_args!("network {name}: GC is skipped"))));
        is_complete
    });
    Ok(networks.into_values().collect())
}

/// Prints what a GC would remove. `is_complete` is false if the resources of some networks, which are not in `all`, could not be listed.
fn preview(all: &[Gc], several: bool, is_complete: bool, ui: &Ui) -> Result<()> {
    for gc in all {
        gc.warn_of_foreign(ui);
        gc.announce_requests(ui);
    }
    let json = || match (several, all) {
        (false, [one]) => one.preview(),
        _ => all.iter().map(Gc::preview).collect(),
    };
    ui.either(json, || match table(all, several) {
        table if !table.is_empty() => table.render(ui, ""),
        _ if is_complete => "nothing would be removed\n".to_owned(),
        _ => String::new(),
    })
}

fn report(all: &[Gc], several: bool, ui: &Ui) -> Result<()> {
    for gc in all {
        gc.warn_of_foreign(ui);
        for (resource, why) in &gc.plan.kept {
            ui.warn(&format!("network {}: {}: {}", gc.network, text(resource), why.text()));
        }
        let has = |reasons: &[KeepReason]| gc.plan.kept.iter().any(|(_, why)| reasons.contains(why));
        if has(&[KeepReason::Alive, KeepReason::Unexamined, KeepReason::Untraceable]) {
            ui.warn(&format!(
                "network {}: if a runtime has the attachments of the kept resources in a cache, pass its directory \
                 with --cache-dir. To remove the resources anyway, pass --force CONTAINER",
                gc.network
            ));
        }
        if has(&[KeepReason::NoOwner]) {
            ui.warn(&format!(
                "network {}: to remove resources of unknown containers, pass --force NAME with the resource's name",
                gc.network
            ));
        }
    }
    if ui.json() {
        let reports: Vec<Value> = all.iter().map(Gc::report).collect();
        return match (several, reports.as_slice()) {
            (false, [one]) => ui.print_json(one),
            _ => ui.print_json(&reports.into()),
        };
    }
    // The journal of a timer that cleans up all networks has no line for a network without stale resources.
    for gc in all.iter().filter(|gc| ui.is_seen() || !several || gc.is_something()) {
        // In a timer's run, the journal shows each removed resource.
        for resource in gc.plan.removed.iter().filter(|_| several && gc.is_complete) {
            ui.print(&format!("network {}: {} removed\n", gc.network, text(resource)))?;
        }
        ui.print(&format!("{}\n", gc.summary(ui)))?;
    }
    Ok(())
}

impl Gc {
    fn is_something(&self) -> bool {
        !self.plan.delete.is_empty() || !self.plan.removed.is_empty()
    }

    fn summary(&self, ui: &Ui) -> String {
        let (alive, stale): (Vec<_>, Vec<_>) =
            self.plan.delete.iter().partition(|entry| self.is_alive(entry));
        let resources = if self.is_complete { self.plan.removed.len() } else { 0 };
        let counts =
            [(alive.len(), "live attachment"), (stale.len(), "stale attachment"), (resources, "resource")];
        let counts = counts.into_iter().filter(|(count, _)| *count > 0);
        let counts: Vec<String> = counts.map(|(count, what)| plural(count, what)).collect();
        let removed = if counts.is_empty() { "nothing".to_owned() } else { counts.join(", ") };
        if self.is_complete {
            return format!("{} network {}: {removed} removed", ui.styled(Style::Good, "✓"), self.network);
        }
        // A plugin that has failed may have removed some resources.
        let removed = if counts.is_empty() { String::new() } else { format!("{removed} removed; ") };
        let mark = ui.styled(Style::Bad, "✗");
        format!("{mark} network {}: GC failed: {removed}other resources may have been removed", self.network)
    }

    /// Whether a deleted attachment was alive, because of `--detach-running`.
    fn is_alive(&self, entry: &Entry) -> bool {
        let Attachment { container, ifname } = &entry.attach.attachment;
        self.plan.alive.contains(container, ifname)
    }

    fn warn_of_foreign(&self, ui: &Ui) {
        let without_gc = &self.plan.foreign - &self.plan.gc_plugins;
        if !without_gc.is_empty() {
            let advice = if self.plan.has_gc { ". To also call their GC, pass --force PLUGIN" } else { "" };
            ui.warn(&format!(
                "network {}: plugins of other vendors cannot list their resources: {}. GC only deletes their \
                 attachments in --cache-dir{advice}",
                self.network,
                names(&without_gc)
            ));
        }
        if !self.plan.missing.is_empty() {
            ui.warn(&format!(
                "network {}: plugins of other vendors are in no directory of CNI_PATH: {}. GC deletes the resources of \
                 Ferrule's plugins, but cannot detach attachments in --cache-dir without these plugins",
                self.network,
                names(&self.plan.missing)
            ));
        }
    }

    /// For a dry run: says which plugins of other vendors would receive the specification's GC.
    fn announce_requests(&self, ui: &Ui) {
        if !self.plan.gc_plugins.is_empty() && self.plan.may_call_gc().is_ok() {
            ui.warn(&format!(
                "network {}: because of --force, GC would be sent to plugins of other vendors: {}. They would remove \
                 the resources of all attachments except {} valid ones",
                self.network,
                names(&self.plan.gc_plugins),
                self.plan.valid.iter().count()
            ));
        }
    }

    /// The runtime that owns a resource, from the cache entry of its attachment.
    fn runtime_of(&self, resource: &Resource) -> Option<&'static str> {
        let mut known = self.plan.delete.iter().chain(&self.plan.stale_elsewhere);
        let is_of = |entry: &&Entry| {
            let Attachment { container, ifname } = &entry.attach.attachment;
            **container == *resource.container && (resource.ifname.is_empty() || **ifname == *resource.ifname)
        };
        runtimes::of_attachment(known.find(is_of)?)
    }

    fn attachments(&self) -> impl Iterator<Item = Value> {
        self.plan.delete.iter().map(|entry| {
            let Attachment { container, ifname } = &entry.attach.attachment;
            json!({
                "kind": "attachment", "containerID": container.as_str(), "ifname": ifname.as_str(),
                "runtime": runtimes::of_attachment(entry), "alive": self.is_alive(entry),
            })
        })
    }

    fn removed(&self) -> Vec<Value> {
        self.attachments().chain(self.plan.removed.iter().map(|resource| self.json(resource))).collect()
    }

    fn json(&self, resource: &Resource) -> Value {
        json!({
            "kind": resource.kind, "name": resource.name, "containerID": resource.container, "ifname": resource.ifname,
            "runtime": self.runtime_of(resource),
        })
    }

    fn kept(&self) -> Vec<Value> {
        let kept = |(resource, why): &(Resource, KeepReason)| {
            let mut json = self.json(resource);
            json["why"] = why.text().into();
            json
        };
        self.plan.kept.iter().map(kept).collect()
    }

    fn preview(&self) -> Value {
        json!({"network": self.network.as_str(), "wouldRemove": self.removed(), "kept": self.kept()})
    }

    fn report(&self) -> Value {
        json!({
            "network": self.network.as_str(), "removed": self.plan.delete.len(), "things": self.removed(),
            "kept": self.kept(),
        })
    }

    /// The columns WHAT, NAME, CONTAINER, INTERFACE, RUNTIME, and the state: why the resource is kept, or that it is
    /// alive.
    fn rows(&self) -> Vec<[(String, Style); 6]> {
        let plain = |text: &str| (text.to_owned(), Style::Plain);
        let attachments = self.plan.delete.iter().map(|entry| {
            let Attachment { container, ifname } = &entry.attach.attachment;
            let runtime = runtimes::name(runtimes::of_attachment(entry));
            let state = if self.is_alive(entry) { ("alive".to_owned(), Style::Warning) } else { plain("") };
            [plain("attachment"), plain(""), plain(container), plain(ifname), plain(runtime), state]
        });
        let row = |resource: &Resource, state: (String, Style)| {
            let runtime = runtimes::name(self.runtime_of(resource));
            let Resource { kind, name, container, ifname, .. } = resource;
            [plain(kind), plain(name), plain(container), plain(ifname), plain(runtime), state]
        };
        let removed = self.plan.removed.iter().map(|resource| row(resource, plain("")));
        let kept = self
            .plan
            .kept
            .iter()
            .map(|(resource, why)| row(resource, (why.text().to_owned(), Style::Warning)));
        attachments.chain(removed).chain(kept).collect()
    }
}

fn names(kinds: &BTreeSet<PluginType>) -> String {
    kinds.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", ")
}

/// Describes a resource in words.
fn text(resource: &Resource) -> String {
    let of = if resource.container.is_empty() { "an unknown container" } else { &resource.container };
    let what = format!("{} {}", resource.kind, resource.name);
    format!("{} of {of} {}", what.trim_end(), resource.ifname).trim_end().to_owned()
}

/// The table. With several networks, it has a column for the network.
fn table(all: &[Gc], several: bool) -> Table {
    const HEAD: [&str; 7] = ["NETWORK", "WHAT", "NAME", "CONTAINER", "INTERFACE", "RUNTIME", ""];
    let first = usize::from(!several);
    let mut table = Table::new(HEAD.into_iter().skip(first));
    for gc in all {
        let network = (gc.network.to_string(), Style::Name);
        for row in gc.rows() {
            table.row([network.clone()].into_iter().chain(row).skip(first));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_run_has_all_arguments_but_the_pause() {
        for line in ["gc --all --every 1h --older-than 1h", "gc --all --older-than 1h --every=1h"] {
            let arguments = without_every(line.split(' ').map(OsString::from));
            assert_eq!(arguments, ["gc", "--all", "--older-than", "1h"], "{line}");
        }
    }
}
