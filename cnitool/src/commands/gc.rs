//! `gc`.

use std::collections::{BTreeMap, BTreeSet};
use std::slice;
use std::thread;
use std::time::{Duration, Instant};

use cni::{Attachment, Attachments, Code, Command, NetworkName};
use runtime::{Cache, Entry, GcPlan, Network, Result, Valid};
use serde_json::{Value, json};

use crate::cli::GcOptions;
use crate::known;
use crate::maker;
use crate::places;
use crate::settings::Settings;
use crate::strangers::{self, Stranger};
use crate::table::Table;
use crate::ui::{Style, Ui};

/// How long the kernel may take to remove the links of a namespace that nobody holds any more.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// Removes stale attachments of a network, or all. Without a network, only tells of all networks.
pub fn run(network: Option<&str>, options: &GcOptions, settings: &Settings, ui: &Ui) -> Result<()> {
    let Some(network) = network else { return tell_all(options, settings, ui) };
    let network = settings.network_or_cached(network, ui)?;
    if has_no_gc(&network, ui) {
        return Ok(());
    }
    let caches = Cache::of_host();
    let valid = valid(options, &caches);
    let preview = Preview::of(&network, valid, settings)?;
    if options.dry_run {
        preview.warn(ui);
        return ui.either(|| preview.json(), || table(slice::from_ref(&preview), false, ui));
    }
    if !options.force {
        refuse_live(&network, options.all, &preview.strangers, &caches, settings)?;
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

fn has_no_gc(network: &Network, ui: &Ui) -> bool {
    if network.disable_gc {
        ui.warn(&format!("the configuration of network {} has disableGC: nothing is done", network.name));
    }
    network.disable_gc
}

fn valid<'a>(options: &GcOptions, caches: &'a [Cache]) -> Valid<'a> {
    if options.all { Valid::Only(&[]) } else { Valid::Alive(caches) }
}

/// What would be removed of every network of every runtime.
fn tell_all(options: &GcOptions, settings: &Settings, ui: &Ui) -> Result<()> {
    let caches = Cache::of_host();
    let mut previews = Vec::new();
    for network in networks(settings, ui)?.values().filter(|network| !has_no_gc(network, ui)) {
        let preview = Preview::of(network, valid(options, &caches), settings)?;
        preview.warn(ui);
        previews.push(preview);
    }
    ui.either(|| previews.iter().map(Preview::json).collect(), || table(&previews, true, ui))
}

/// The networks of all directories, cnitool's own first, and those that only attachments tell of any more.
fn networks(settings: &Settings, ui: &Ui) -> Result<BTreeMap<NetworkName, Network>> {
    let (places, problems) = places::all();
    problems.iter().for_each(|problem| ui.warn(problem));
    let mut networks = BTreeMap::new();
    for conf in [&settings.conf].into_iter().chain(places.iter().map(|place| &place.conf)) {
        for network in conf.load()?.into_iter().filter_map(|file| file.network.ok()) {
            networks.entry(network.name.clone()).or_insert(network);
        }
    }
    for network in known::of_all_caches(settings, ui)?.iter().filter_map(|entry| entry.network().ok()) {
        networks.entry(network.name.clone()).or_insert(network);
    }
    Ok(networks)
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

/// What would be removed of a network.
struct Preview {
    network: NetworkName,
    plan: GcPlan,
    strangers: Vec<Stranger>,
}

impl Preview {
    fn of(network: &Network, valid: Valid<'_>, settings: &Settings) -> Result<Self> {
        let plan = settings.runtime.plan_gc(network, valid)?;
        let strangers = settled(network, &plan)?;
        Ok(Self { network: network.name.clone(), plan, strangers })
    }

    fn warn(&self, ui: &Ui) {
        if let Some(path) = &self.plan.unsure {
            let path = path.display();
            ui.warn(&format!(
                "{path} cannot be read, and its container may be alive: no plugin would be asked"
            ));
        }
    }

    /// Whose a link or a lease is, as a cache tells of its attachment.
    fn runtime_of(&self, one: &Stranger) -> Option<&'static str> {
        let mut known = self.plan.stale.iter().chain(&self.plan.stale_elsewhere);
        maker::of_attachment(known.find(|entry| one.is_among(&attachments([*entry])))?)
    }

    fn json(&self) -> Value {
        let stale = self.plan.stale.iter().map(|entry| {
            let Attachment { container, ifname } = &entry.attach.attachment;
            json!({
                "kind": "attachment", "containerID": container.as_str(), "ifname": ifname.as_str(),
                "runtime": maker::of_attachment(entry),
            })
        });
        let strangers = self.strangers.iter().map(|one| {
            let mut json = one.json();
            json["runtime"] = self.runtime_of(one).into();
            json
        });
        let all: Vec<Value> = stale.chain(strangers).collect();
        json!({"network": self.network.as_str(), "wouldRemove": all})
    }

    /// WHAT, NAME, CONTAINER, INTERFACE, RUNTIME, and whether it is alive.
    fn rows(&self) -> Vec<[(String, Style); 6]> {
        let plain = |text: &str| (text.to_owned(), Style::Plain);
        let stale = self.plan.stale.iter().map(|entry| {
            let Attachment { container, ifname } = &entry.attach.attachment;
            let runtime = maker::name(maker::of_attachment(entry));
            [plain("attachment"), plain(""), plain(container), plain(ifname), plain(runtime), plain("")]
        });
        let strangers = self.strangers.iter().map(|one| {
            let Stranger { kind, name, container, ifname, alive } = one;
            let state = if *alive { ("alive".to_owned(), Style::Bad) } else { plain("") };
            let runtime = maker::name(self.runtime_of(one));
            [plain(kind), plain(name), plain(container), plain(ifname), plain(runtime), state]
        });
        stale.chain(strangers).collect()
    }
}

/// With a column for the network, if there are several.
fn table(previews: &[Preview], several: bool, ui: &Ui) -> String {
    const HEAD: [&str; 7] = ["NETWORK", "WHAT", "NAME", "CONTAINER", "INTERFACE", "RUNTIME", ""];
    let first = usize::from(!several);
    let mut table = Table::new(HEAD.into_iter().skip(first));
    for preview in previews {
        let network = (preview.network.to_string(), Style::Name);
        for row in preview.rows() {
            table.row([network.clone()].into_iter().chain(row).skip(first));
        }
    }
    if table.is_empty() { "nothing would be removed\n".to_owned() } else { table.render(ui, "") }
}
