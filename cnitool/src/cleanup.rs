//! Decides which resources a GC of a network removes and which it keeps. To decide, this module finds the container of
//! each resource, and whether the container is alive.
//!
//! It uses the attachments in caches (cnitool's own cache, and the caches of the host's runtimes), the resources that
//! the plugins list, and the host's network namespaces and processes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use cni::{Attachment, Attachments, ContainerId, IfName, PluginType, Thing};
use liveness::{Calls, Namespaces};
use runtime::{Cache, Decision, Entry, Network, Result};

use self::caches::CachedAttachments;
use crate::settings::Settings;

mod caches;
mod orphaned;

/// Timeout for the kernel to remove the links of a namespace that has no users any more.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between two plans while the kernel removes these links.
const PAUSE: Duration = Duration::from_millis(20);

/// The kind of the [`Thing`] for a cache file that a power failure has truncated. cnitool itself removes such files.
const TORN: &str = "torn result";

/// The options of `cnitool gc`.
#[derive(Clone, Debug, Default)]
pub struct PlanOptions {
    /// Also removes live attachments in cnitool's own cache.
    pub detach_running: bool,
    /// Ids of containers whose resources are removed, and names of resources to remove, even if the container may be
    /// alive. Names of other vendors' plugins, which then receive GC.
    pub force: BTreeSet<String>,
    /// Keeps attachments that are younger than this, if a cache contains their age.
    pub older_than: Option<Duration>,
}

/// Why GC keeps a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepReason {
    /// The resource's container is alive. (If a cache contains the live attachment, the resource is kept too, but not
    /// listed.)
    Alive,
    /// A plugin is running ADD for the container. Its runtime has not written its cache yet.
    Starting,
    /// The container may be alive.
    Unsure,
    /// The resource does not contain the id of its container.
    NoOwner,
}

impl KeepReason {
    /// Whether the container is certainly alive.
    pub fn is_alive(self) -> bool {
        matches!(self, Self::Alive | Self::Starting)
    }

    pub fn text(self) -> &'static str {
        match self {
            Self::Alive => "kept: alive",
            Self::Starting => "kept: is being started",
            Self::Unsure => "kept: may be alive",
            Self::NoOwner => "kept: owner unknown",
        }
    }
}

/// The decisions of a GC of one network, before anything is removed.
#[derive(Debug, Default)]
pub struct Plan {
    /// Attachments in cnitool's own cache for which cnitool calls DEL.
    pub delete: Vec<Entry>,
    /// Live attachments in `delete`, because of `--detach-running`.
    pub alive: Attachments,
    /// Attachments in other caches whose namespaces have been deleted.
    pub stale_elsewhere: Vec<Entry>,
    /// The resources to remove.
    pub removed: Vec<Thing>,
    /// The resources that are kept although no cache contains a live attachment for them.
    pub kept: Vec<(Thing, KeepReason)>,
    /// Plugins of other vendors. They receive DEL. They receive GC only if they are also in `gc_plugins`.
    pub foreign: BTreeSet<PluginType>,
    /// Plugins in `foreign` that receive GC because of `--force`.
    gc_plugins: BTreeSet<PluginType>,
    /// Attachments whose resources are removed.
    stale: Attachments,
    /// Names of resources to remove because of `--force`.
    names: BTreeSet<String>,
    /// Truncated cache files to remove.
    torn: Vec<PathBuf>,
    /// All attachments to keep.
    valid: Attachments,
}

impl Plan {
    /// Makes a plan. After a namespace is deleted, its links exist for some milliseconds. If the kernel is still
    /// removing such links, waits and makes the plan again.
    ///
    /// # Errors
    /// If a cache cannot be read, or a plugin cannot list its resources.
    pub fn make(network: &Network, options: &PlanOptions, settings: &Settings) -> Result<Self> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let (plan, is_settled) = Self::examine(network, options, settings)?;
            if is_settled || Instant::now() > deadline {
                return Ok(plan);
            }
            thread::sleep(PAUSE);
        }
    }

    /// The decisions for the runtime library.
    pub fn decision(&self) -> Decision {
        Decision {
            delete: self.delete.clone(),
            elsewhere: self.stale_elsewhere.clone(),
            stale: self.stale.clone(),
            names: self.names.clone(),
            foreign: self.gc_plugins.clone(),
            valid: self.valid.clone(),
        }
    }

    /// Whether an attachment in `delete` is still not alive: its namespace's path does not exist again, no plugin is
    /// running for its container, and no other cache contains it. Called before each plugin's DEL, so it looks at nothing
    /// else.
    pub fn is_still_stale(
        &self,
        entry: &Entry,
        network: &Network,
        options: &PlanOptions,
        own: &Cache,
    ) -> bool {
        let at = &entry.attach.attachment;
        if options.detach_running || options.force.contains(&*at.container) {
            return true;
        }
        let was_stale = |entry: &Entry| {
            let mut stale = self.stale_elsewhere.iter().filter(|other| other.attach.attachment == *at);
            stale.any(|other| other.added == entry.added)
        };
        // libcni may just be writing an unreadable file.
        let has_it = |cache: &Cache| {
            let found = cache.load(&network.name, at);
            found.map_or(true, |found| found.is_some_and(|entry| entry.is_alive() && !was_stale(&entry)))
        };
        // The plan has cleared the path if it leads to another container's namespace.
        if entry.attach.netns.is_some() && entry.is_alive() {
            return false;
        }
        !Calls::scan().has(&at.container) && !own.with_others_of_host()[1..].iter().any(has_it)
    }

    /// Moves the resources of attachments that a GC has kept after all to the kept ones: their containers have been
    /// started again since the plan was made. `not_deleted`: those of them
    /// whose DEL was not completed.
    pub fn keep(&mut self, kept: &Attachments, not_deleted: &Attachments) {
        let is_kept = |container: &str, ifname: &str| match ifname {
            "" => kept.has_container(container),
            ifname => kept.contains(container, ifname),
        };
        self.delete.retain(|entry| {
            let at = &entry.attach.attachment;
            !not_deleted.contains(&at.container, &at.ifname)
        });
        let things = self.removed.extract_if(.., |thing| is_kept(&thing.container, &thing.ifname));
        self.kept.extend(things.map(|thing| (thing, KeepReason::Starting)));
    }

    /// Adds a resource to the removed or to the kept ones.
    fn decide(&mut self, thing: &Thing, verdict: Option<KeepReason>, options: &PlanOptions) {
        let is_named = options.force.contains(&thing.name) && !thing.name.is_empty();
        if is_named {
            self.names.insert(thing.name.clone());
        }
        match verdict.filter(|_| !is_named) {
            None => self.removed.push(thing.clone()),
            Some(why) => self.kept.push((thing.clone(), why)),
        }
    }

    /// Reads the caches again, and no longer lists attachments that a runtime has written to its cache since the first
    /// reading.
    fn omit_cached(&mut self, network: &Network, options: &PlanOptions, settings: &Settings) -> Result<()> {
        if !self.kept.is_empty() {
            let cached = CachedAttachments::of(network, options, settings)?;
            self.kept.retain(|(thing, _)| !cached.is_alive(&thing.container, &thing.ifname));
        }
        Ok(())
    }

    /// Removes truncated cache files. While such a file exists, libcni cannot delete its attachment.
    ///
    /// # Errors
    /// Code 5 if a file cannot be removed.
    pub fn remove_torn(&self) -> cni::Result<()> {
        self.torn.iter().map(|path| caches::remove_torn(path)).fold(Ok(()), cni::Result::and)
    }

    /// Returns the attachments of `stale` whose containers are not alive now. After the plan was made, a container with
    /// the same id may have been started.
    ///
    /// # Errors
    /// If a cache or the host's namespaces cannot be read.
    pub fn still_stale(
        &self,
        network: &Network,
        options: &PlanOptions,
        settings: &Settings,
    ) -> Result<Attachments> {
        let mut cached = CachedAttachments::of(network, options, settings)?;
        let namespaces = orphaned::scan(options)?;
        // The cache does not contain these attachments any more: DEL has removed them.
        cached.stale.extend(self.delete.iter().cloned());
        let (calls, namespaces) = (Calls::scan(), &namespaces);
        // `caches_are_complete` only decides whether a container is dead or may be alive. Both are still stale here.
        let host = Host { cached: &cached, namespaces, calls: &calls, caches_are_complete: false };
        let containers = by_container(&self.removed);
        let is_stale = |at: &&Attachment| {
            let things = containers.get(&*at.container).map(Vec::as_slice).unwrap_or_default();
            let is_forced = options.force.contains(&*at.container)
                || options.detach_running && self.delete.iter().any(|entry| entry.attach.attachment == **at);
            is_forced || host.verdict(&at.container, &at.ifname, things).is_none_or(|why| !why.is_alive())
        };
        Ok(self.stale.iter().filter(is_stale).cloned().collect())
    }

    fn examine(network: &Network, options: &PlanOptions, settings: &Settings) -> Result<(Self, bool)> {
        let calls = Calls::scan();
        let cached = CachedAttachments::of(network, options, settings)?;
        let listed =
            settings.runtime.survey_with(network, cached.stale.iter().chain(&cached.stale_elsewhere));
        listed.outcome?;
        // A plugin may have ended, or have been started, while the others listed their resources.
        let (namespaces, calls) = (orphaned::scan(options)?, calls.and(Calls::scan()));
        let paths = cached.alive.iter().filter_map(|entry| entry.attach.netns.as_deref());
        let caches_are_complete = namespaces.are_all_at(paths);
        let host = Host { cached: &cached, namespaces: &namespaces, calls: &calls, caches_are_complete };
        let mut plan = Self::default();
        let mut stale: Vec<Attachment> =
            cached.stale.iter().map(|entry| entry.attach.attachment.clone()).collect();
        let mut is_settled = true;
        let containers = by_container(&listed.things);
        for ((container, ifname), things) in by_owner(&listed.things) {
            let forced = options.force.contains(container);
            let all = containers.get(container).map(Vec::as_slice).unwrap_or_default();
            let verdict = if forced { None } else { host.verdict(container, ifname, all) };
            // Resources of an attachment whose namespace was just deleted may only seem alive: its links still exist.
            is_settled &= verdict.is_none_or(|why| !why.is_alive())
                || !host.is_being_deleted(container, ifname)
                || host.calls.has(container);
            if cached.is_alive(container, ifname) && !forced {
                continue;
            }
            things.iter().for_each(|thing| plan.decide(thing, verdict, options));
            if verdict.is_none() {
                stale.extend(attachment(container, ifname));
            }
        }
        plan.foreign = listed.foreign;
        plan.gc_plugins =
            plan.foreign.iter().filter(|kind| options.force.contains(&***kind)).cloned().collect();
        // If the path of a namespace was deleted, the cache's entry looks stale. But the attachment is alive if a
        // process is still in the namespace, or a plugin is running for it.
        let is_alive = |at: &Attachment| {
            let mut alive = plan.kept.iter().filter(|(_, why)| why.is_alive());
            alive.any(|(thing, _)| *thing.container == *at.container && *thing.ifname == *at.ifname)
                || host.is_called(at, options)
        };
        stale.retain(|at| !is_alive(at));
        let (alive, delete): (Vec<_>, Vec<_>) =
            cached.stale.iter().cloned().partition(|entry| is_alive(&entry.attach.attachment));
        let alive = alive.iter().chain(&cached.alive).map(|entry| entry.attach.attachment.clone());
        let kept = plan.kept.iter().filter_map(|(thing, _)| attachment(&thing.container, &thing.ifname));
        plan.valid = alive.chain(kept).collect();
        plan.delete = delete;
        let torn = cached.torn.iter().map(|path| Thing::new(TORN, path.display().to_string()));
        plan.removed.extend(torn);
        plan.torn = cached.torn;
        plan.alive = cached.unwanted_alive;
        plan.stale = stale.into_iter().collect();
        plan.stale_elsewhere = cached.stale_elsewhere;
        plan.omit_cached(network, options, settings)?;
        Ok((plan, is_settled))
    }
}

/// The resources of each attachment, by container id and interface name. If a resource has no interface name, the name
/// in its key is empty.
fn by_owner(things: &[Thing]) -> BTreeMap<(&str, &str), Vec<&Thing>> {
    let mut by_owner: BTreeMap<(&str, &str), Vec<&Thing>> = BTreeMap::new();
    for thing in things {
        by_owner.entry((&thing.container, &thing.ifname)).or_default().push(thing);
    }
    by_owner
}

/// The resources of each container, by container id.
fn by_container(things: &[Thing]) -> BTreeMap<&str, Vec<&Thing>> {
    let mut by_container: BTreeMap<&str, Vec<&Thing>> = BTreeMap::new();
    for thing in things {
        by_container.entry(&thing.container).or_default().push(thing);
    }
    by_container
}

/// The attachment with these names. `None` if a name is not valid.
fn attachment(container: &str, ifname: &str) -> Option<Attachment> {
    // If a resource has no interface name, plugins compare only its container. So use any valid name.
    let ifname = if ifname.is_empty() { "eth0" } else { ifname };
    Some(Attachment { container: ContainerId::parse(container).ok()?, ifname: IfName::parse(ifname).ok()? })
}

/// The state of the host and of its caches, for decisions about one network.
struct Host<'a> {
    cached: &'a CachedAttachments,
    namespaces: &'a Namespaces,
    calls: &'a Calls,
    /// Whether the live attachments in the caches have all namespaces of the host. If so, every container without a
    /// live attachment in the caches is dead.
    caches_are_complete: bool,
}

impl Host<'_> {
    /// Why an attachment's resources are kept. `None` if the container is dead, or if `--detach-running` removes the attachment.
    /// `things` are all resources of the container.
    fn verdict(&self, container: &str, ifname: &str, things: &[&Thing]) -> Option<KeepReason> {
        if container.is_empty() {
            return Some(KeepReason::NoOwner);
        }
        let leads_to_namespace = |thing: &&Thing| {
            thing.kind == "link" && self.namespaces.leads_to_namespace(&thing.name) == Some(true)
        };
        if self.cached.is_unwanted(container, ifname) {
            return None;
        }
        // A runtime starts a container, perhaps again under its id.
        if self.calls.has_add(container) {
            return Some(KeepReason::Starting);
        }
        if self.cached.is_alive(container, ifname) || things.iter().any(leads_to_namespace) {
            return Some(KeepReason::Alive);
        }
        // A plugin deletes or checks the attachment.
        if self.calls.has(container) {
            return Some(KeepReason::Alive);
        }
        // The runtime has removed the namespace. Do not search the host for the attachment's addresses: another
        // container may have them by now.
        if self.cached.is_stale(container, ifname) {
            return None;
        }
        // If a process could not be examined, it may belong to this container.
        let may_miss_processes = self.namespaces.may_miss_processes();
        let has_address = |thing: &&Thing| thing.address.is_some_and(|ip| self.namespaces.may_have(ip));
        let has_path = |thing: &&Thing| thing.netns.as_deref().is_some_and(|path| self.is_at(path));
        if things.iter().any(|thing| has_address(thing) || has_path(thing))
            || self.namespaces.has_container(container)
            || !may_miss_processes && self.calls.may_be_for(container)
        {
            return Some(KeepReason::Alive);
        }
        // The evidence that a container is dead: the searches above did not find the resource's address or namespace
        // path, or the resource is a link whose namespace was deleted.
        let is_traceable = |thing: &&Thing| {
            thing.address.is_some()
                || thing.netns.is_some()
                || self.namespaces.leads_to_namespace(&thing.name) == Some(false)
        };
        let is_dead = !may_miss_processes && (self.caches_are_complete || things.iter().any(is_traceable));
        (!is_dead || self.cached.is_unreadable(container, ifname)).then_some(KeepReason::Unsure)
    }

    /// Whether a plugin is running for an attachment that neither `--detach-running` nor `--force` removes.
    fn is_called(&self, at: &Attachment, options: &PlanOptions) -> bool {
        let is_removed = self.cached.is_unwanted(&at.container, &at.ifname);
        self.calls.has(&at.container) && !is_removed && !options.force.contains(&*at.container)
    }

    fn is_at(&self, path: &Path) -> bool {
        !path.as_os_str().is_empty() && self.namespaces.is_at(path)
    }

    /// Whether the attachment's namespace was deleted according to the caches. The kernel may not have removed its
    /// links yet.
    fn is_being_deleted(&self, container: &str, ifname: &str) -> bool {
        !self.cached.is_alive(container, ifname) && self.cached.is_stale(container, ifname)
    }
}
