//! `gc`.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use cni::{Attachment, Attachments, Code, Command};
use runtime::{Cache, Entry, GcPlan, Network, Result, Valid};
use serde_json::{Value, json};

use crate::cli::GcOptions;
use crate::settings::Settings;
use crate::strangers::{self, Stranger};
use crate::table::Table;
use crate::ui::{Style, Ui};

/// How long the kernel may take to remove the links of a namespace that nobody holds any more.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// Removes stale attachments, or all.
pub fn run(network: &str, options: &GcOptions, settings: &Settings, ui: &Ui) -> Result<()> {
    let network = settings.network_or_cached(network, ui)?;
    if network.disable_gc {
        ui.warn(&format!("the configuration of network {} has disableGC: nothing is done", network.name));
        return Ok(());
    }
    let caches = Cache::of_host();
    let valid = if options.all { Valid::Only(&[]) } else { Valid::Alive(&caches) };
    let plan = settings.runtime.plan_gc(&network, valid)?;
    let strangers = settled(&network, &plan)?;
    if options.dry_run {
        return tell(&network, &plan, &strangers, ui);
    }
    if !options.force {
        refuse_live(&network, options.all, &strangers, &caches, settings)?;
    }
    let mut removed = 0;
    let outcome = settings.runtime.gc_telling(&network, valid, |done, of, at| {
        removed = of;
        ui.progress(&format!("removing {} of {of}: {} of container {}", done + 1, at.ifname, at.container));
    });
    if removed > 0 {
        ui.progress("");
    }
    outcome?;
    if ui.json() {
        ui.print_json(&json!({"network": network.name.as_str(), "removed": removed}))?;
    } else if ui.is_seen() {
        let ok = ui.styled(Style::Good, "✓");
        ui.print(&format!("{ok} network {}: {removed} stale attachments removed\n", network.name))?;
    }
    Ok(())
}

/// What links and leases would go, once the kernel is done with namespaces that were just given up: their links outlive
/// them for some milliseconds.
fn settled(network: &Network, plan: &GcPlan) -> Result<Vec<Stranger>> {
    let deadline = Instant::now() + PATIENCE;
    let known = plan.stale.iter().chain(&plan.stale_elsewhere);
    let gone = attachments(known.filter(|entry| !entry.is_alive()));
    loop {
        let found = strangers(network, plan)?;
        let is_going = |one: &Stranger| one.alive && one.is_among(&gone);
        if !found.iter().any(is_going) || Instant::now() > deadline {
            return Ok(found);
        }
        thread::sleep(PAUSE);
    }
}

/// What links and leases would go. Before 1.1.0 plugins are not asked for GC: then only known attachments get their DEL.
fn strangers(network: &Network, plan: &GcPlan) -> Result<Vec<Stranger>> {
    let mut strangers = strangers::of(network, &plan.valid)?;
    if network.version < Command::Gc.since() || plan.unsure.is_some() {
        let known = attachments(&plan.stale);
        strangers.retain(|stranger| stranger.is_among(&known));
    }
    Ok(strangers)
}

fn attachments<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Attachments {
    entries.into_iter().map(|entry| entry.attach.attachment.clone()).collect()
}

/// A container that is alive, and is not to be removed on purpose, is in the way.
fn refuse_live(
    network: &Network,
    all: bool,
    strangers: &[Stranger],
    caches: &[Cache],
    settings: &Settings,
) -> Result<()> {
    let own = if all { settings.runtime.results().list()? } else { Vec::new() };
    let own = attachments(own.iter().filter(|entry| entry.network == network.name));
    let live: Vec<String> =
        strangers.iter().filter(|one| one.alive && !one.is_among(&own)).map(Stranger::text).collect();
    if live.is_empty() {
        return Ok(());
    }
    let known = if all { "cnitool's own cache" } else { "any cache" };
    let text =
        format!("containers of network {} are alive and not in {known}: nothing is removed", network.name);
    let searched = [settings.runtime.results()].into_iter().chain(caches);
    let searched: BTreeSet<String> = searched.map(|cache| cache.dir().display().to_string()).collect();
    let error = cni::Error::new(Code::Internal, text)
        .detail(format!("it would remove {}", live.join("; ")))
        .detail(format!("known caches: {}", searched.into_iter().collect::<Vec<_>>().join(", ")))
        .detail("name the cache of their runtime by --cache-dir, or use --force to remove them");
    Err(error.into())
}

fn tell(network: &Network, plan: &GcPlan, strangers: &[Stranger], ui: &Ui) -> Result<()> {
    if let Some(path) = &plan.unsure {
        let path = path.display();
        ui.warn(&format!("{path} cannot be read, and its container may be alive: no plugin would be asked"));
    }
    let stale: Vec<&Attachment> = plan.stale.iter().map(|entry| &entry.attach.attachment).collect();
    let json = || {
        let attachments = stale.iter().map(|at| {
            json!({"kind": "attachment", "containerID": at.container.as_str(), "ifname": at.ifname.as_str()})
        });
        let all: Vec<Value> = attachments.chain(strangers.iter().map(Stranger::json)).collect();
        json!({"network": network.name.as_str(), "wouldRemove": all})
    };
    let text = || {
        let mut table = Table::new(["WHAT", "NAME", "CONTAINER", "INTERFACE", ""]);
        let plain = |text: &str| (text.to_owned(), Style::Plain);
        for at in &stale {
            table.row([plain("attachment"), plain(""), plain(&at.container), plain(&at.ifname), plain("")]);
        }
        for Stranger { kind, name, container, ifname, alive } in strangers {
            let state = if *alive { ("alive".to_owned(), Style::Bad) } else { plain("") };
            table.row([plain(kind), plain(name), plain(container), plain(ifname), state]);
        }
        if table.is_empty() { "nothing would be removed\n".to_owned() } else { table.render(ui, "") }
    };
    ui.either(json, text)
}
