//! Decides which resources a GC of a network removes and which it keeps. To decide, this module finds the container of
//! each resource, and whether the container is alive.
//!
//! It uses the attachments in caches (cnitool's own cache, and the caches of the host's runtimes), the resources that
//! the plugins list, and the host's network namespaces and processes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use cni::{Attachment, Attachments, ContainerId, IfName, PluginType, Resource};
use liveness::{Namespaces, RunningPlugins};
use runtime::{Cache, Decision, Entry, Network, Result, not_called};

use self::caches::CachedAttachments;
use crate::settings::Settings;

mod caches;
mod orphaned;

/// Timeout for the kernel to remove the links of a namespace that has no users any more.
const LINK_REMOVAL_TIMEOUT: Duration = Duration::from_secs(10);
/// The first pause between two plans while the kernel removes these links. Each pause is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// The kind of the [`Resource`] for a cache file that a power failure has truncated. cnitool itself removes such files.
const TRUNCATED: &str = "truncated result";

/// The options of `cnitool gc`.
#[derive(Clone, Debug, Default)]
pub struct PlanOptions {
    /// Also removes live attachments in cnitool's own cache.
    pub detach_running: bool,
    /// The values of `--force`:
    ///
    /// - a container id: all resources of the container are removed, even if it is alive;
    /// - the name of a resource: the resource is removed, even if its container is alive;
    /// - the type of another vendor's plugin: it receives GC.
    pub force: BTreeSet<String>,
    /// Keeps attachments that were added less than this time ago, according to the time of their cache file. Does not apply
    /// to attachments from before the host was started.
    pub older_than: Option<Duration>,
}

impl PlanOptions {
    /// Whether `--force` contains the resource's name.
    fn names(&self, resource: &Resource) -> bool {
        !resource.name.is_empty() && self.force.contains(&resource.name)
    }
}

/// Why GC keeps a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepReason {
    /// The resource's container is alive. (If a cache contains the live attachment, the resource is kept too, but not
    /// listed.)
    Alive,
    /// A plugin is running ADD for the container. A runtime writes its cache only after ADD.
    Starting,
    /// The attachment changed after the plan was made: its container was started again, or another program is deleting
    /// or has deleted the attachment.
    Changed,
    /// The container may be alive: a process, the addresses of a namespace or a cache file could not be read.
    Unexamined,
    /// The container may be alive: the resource has neither an address nor a namespace path to look for. Or there is no container: a lease
    /// without interface may be an administrator's.
    Untraceable,
    /// The resource does not contain the id of its container.
    NoOwner,
}

impl KeepReason {
    /// Whether the host or a cache shows that the container is alive, or that the attachment is changing.
    pub fn is_alive(self) -> bool {
        matches!(self, Self::Alive | Self::Starting | Self::Changed)
    }

    /// Whether a GC that has already decided to remove the resource must keep it.
    fn stops_removal(self) -> bool {
        self.is_alive() || self == Self::Unexamined
    }

    /// The text in tables and messages.
    pub fn text(self) -> &'static str {
        match self {
            Self::Alive => "kept: alive",
            Self::Starting => "kept: is being started",
            Self::Changed => "kept: changed during this GC",
            Self::Unexamined | Self::Untraceable => "kept: may be alive",
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
    /// Attachments in other caches whose namespaces have been deleted, or whose namespace path now belongs to another
    /// process.
    pub stale_elsewhere: Vec<Entry>,
    /// The resources to remove.
    pub removed: Vec<Resource>,
    /// The resources that are kept although no cache contains a live attachment for them.
    pub kept: Vec<(Resource, KeepReason)>,
    /// Plugins of other vendors. They receive DEL.
    pub foreign: BTreeSet<PluginType>,
    /// Plugins of other vendors that are not installed, so they cannot receive DEL.
    pub missing: BTreeSet<PluginType>,
    /// Plugins in `foreign` that receive the specification's GC because of `--force`.
    pub gc_plugins: BTreeSet<PluginType>,
    /// Whether plugins may receive the specification's GC.
    pub has_gc: bool,
    /// A cache file of a container that may be alive, so that `gc_plugins` receive no GC.
    unreadable: Option<PathBuf>,
    /// Attachments whose resources are removed.
    stale: Attachments,
    /// Names of resources to remove because of `--force`.
    names: BTreeSet<String>,
    /// Truncated cache files to remove.
    truncated: Vec<PathBuf>,
    /// All attachments to keep.
    pub valid: Attachments,
}

impl Plan {
    /// Makes a plan. After a namespace is deleted, its links exist for some milliseconds. If the kernel may still be
    /// removing such links, waits and makes the plan again, for at most 10 seconds.
    ///
    /// # Errors
    /// If a cache cannot be read, or a plugin cannot list its resources.
    pub fn make(network: &Network, options: &PlanOptions, settings: &Settings) -> Result<Self> {
        let deadline = Instant::now() + LINK_REMOVAL_TIMEOUT;
        let mut pause = FIRST_PAUSE;
        loop {
            let (plan, is_settled) = Self::examine(network, options, settings)?;
            if is_settled || Instant::now() > deadline {
                return Ok(plan);
            }
            thread::sleep(pause.min(deadline.saturating_duration_since(Instant::now())));
            pause *= 2;
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
            unreadable: self.unreadable.clone(),
        }
    }

    /// The failure of a GC that cannot be sent to the plugins in `gc_plugins`.
    ///
    /// # Errors
    /// Code 5 if a cache file cannot be read.
    pub fn may_call_gc(&self) -> Result<()> {
        match &self.unreadable {
            Some(path) if !self.gc_plugins.is_empty() => Err(not_called(path)),
            _ => Ok(()),
        }
    }

    /// Whether an attachment in `delete` is still not alive: its namespace path has not been created again, no plugin is
    /// running for its container, and no other cache contains it as a live attachment. Always true if `--detach-running`
    /// or `--force` removes the attachment. It is called before each plugin's DEL, so it must be fast: it checks nothing
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
        // A file that cannot be read counts as a live attachment: libcni may be writing it now.
        let has_live_attachment = |cache: &Cache| {
            let found = cache.load(&network.name, at);
            found.map_or(true, |found| found.is_some_and(|entry| entry.is_alive() && !was_stale(&entry)))
        };
        // `is_alive` returns true for an entry without a path, so check the path first. `CachedAttachments` has cleared a
        // path that now leads to another container's namespace.
        if entry.attach.netns.is_some() && entry.is_alive() {
            return false;
        }
        let has_other = || own.others_of_host().map_or(true, |others| others.iter().any(has_live_attachment));
        !RunningPlugins::scan_in_time().has(&at.container) && !has_other()
    }

    /// Updates the plan after a GC. `kept` are the attachments that the GC did not remove, because they have changed
    /// since the plan was made. Their resources move from `removed` to `kept`. `not_deleted` are the attachments in
    /// `kept` whose DEL was not completed. They are removed from `delete`.
    pub fn keep(&mut self, kept: &Attachments, not_deleted: &Attachments) {
        self.delete.retain(|entry| {
            let at = &entry.attach.attachment;
            !not_deleted.contains(&at.container, &at.ifname)
        });
        let resources = self.removed.extract_if(.., |resource| resource.is_of(kept));
        self.kept.extend(resources.map(|resource| (resource, KeepReason::Changed)));
    }

    /// Notes the plugins of other vendors: which are installed, and which receive GC.
    fn note_foreign(
        &mut self,
        kinds: BTreeSet<PluginType>,
        network: &Network,
        options: &PlanOptions,
        settings: &Settings,
    ) {
        (self.foreign, self.missing) =
            kinds.into_iter().partition(|kind| settings.runtime.is_installed(kind));
        self.has_gc = network.has_gc();
        if self.has_gc {
            let is_forced = |kind: &&PluginType| options.force.contains(&***kind);
            self.gc_plugins = self.foreign.iter().filter(is_forced).cloned().collect();
        }
    }

    /// Adds a resource to `removed` or to `kept`.
    fn decide(&mut self, resource: &Resource, keep_reason: Option<KeepReason>, options: &PlanOptions) {
        let is_named = options.names(resource);
        if is_named {
            self.names.insert(resource.name.clone());
        }
        match keep_reason.filter(|_| !is_named) {
            None => self.removed.push(resource.clone()),
            Some(why) => self.kept.push((resource.clone(), why)),
        }
    }

    /// Whether the network has something that a value of `--force` names.
    pub fn has_named(&self, value: &str) -> bool {
        let of_value = |resource: &Resource| resource.name == value || resource.container == value;
        self.removed.iter().any(of_value)
            || self.stale.has_container(value)
            || self.foreign.iter().any(|kind| **kind == *value)
    }

    /// Reads the caches again, and removes from `kept` the resources of attachments that a runtime has written to its cache
    /// since the first reading.
    fn omit_cached(&mut self, network: &Network, options: &PlanOptions, settings: &Settings) -> Result<()> {
        if !self.kept.is_empty() {
            let cached = CachedAttachments::of(network, options, settings)?;
            self.kept.retain(|(resource, _)| !cached.is_alive(&resource.container, &resource.ifname));
        }
        Ok(())
    }

    /// Removes truncated cache files. While such a file exists, libcni cannot delete its attachment.
    ///
    /// # Errors
    /// Code 5 if a file cannot be removed.
    pub fn remove_truncated(&self) -> cni::Result<()> {
        self.truncated.iter().map(|path| caches::remove_truncated(path)).fold(Ok(()), cni::Result::and)
    }

    /// Returns the attachments of `stale` whose containers are not alive now, or that `--force` or `--detach-running`
    /// removes. After the plan was made, a container with the same id may have been started.
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
        // A successful DEL has removed these attachments from the cache.
        cached.stale.extend(self.delete.iter().cloned());
        let (running, namespaces) = (RunningPlugins::scan_in_time(), &namespaces);
        cached.look_for_containers(namespaces, may_miss_processes(namespaces, &running));
        // With `caches_are_complete: false`, a container without evidence of its death is `Untraceable`. That does not stop
        // the removal, which the plan has already decided. This check only finds containers that are alive again.
        let host = Host { cached: &cached, namespaces, running: &running, caches_are_complete: false };
        let containers = by_container(&self.removed);
        let is_stale = |at: &&Attachment| {
            let resources = containers.get(&*at.container).map(Vec::as_slice).unwrap_or_default();
            let is_forced = options.force.contains(&*at.container)
                || options.detach_running && self.delete.iter().any(|entry| entry.attach.attachment == **at);
            is_forced
                || host
                    .keep_reason(&at.container, &at.ifname, resources)
                    .is_none_or(|why| !why.stops_removal())
        };
        Ok(self.stale.iter().filter(is_stale).cloned().collect())
    }

    /// Returns the plan, and whether it is settled: false while the kernel may still be removing links.
    fn examine(network: &Network, options: &PlanOptions, settings: &Settings) -> Result<(Self, bool)> {
        let running = RunningPlugins::scan_in_time();
        let mut cached = CachedAttachments::of(network, options, settings)?;
        let stale = || cached.stale.iter().chain(&cached.stale_elsewhere);
        let listed = settings.runtime.survey_with(network, stale(), stale().chain(&cached.alive));
        listed.outcome?;
        // A plugin may have ended, or have been started, while the plugins listed their resources.
        let (namespaces, running) = (orphaned::scan(options)?, running.and(RunningPlugins::scan_in_time()));
        cached.look_for_containers(&namespaces, may_miss_processes(&namespaces, &running));
        let paths = cached.alive.iter().filter_map(|entry| entry.attach.netns.as_deref());
        let caches_are_complete = namespaces.are_all_at(paths);
        let host = Host { cached: &cached, namespaces: &namespaces, running: &running, caches_are_complete };
        let mut plan = Self::default();
        let mut stale: Vec<Attachment> =
            cached.stale.iter().map(|entry| entry.attach.attachment.clone()).collect();
        let mut is_settled = true;
        let containers = by_container(&listed.resources);
        for ((container, ifname), resources) in by_owner(&listed.resources) {
            let forced = options.force.contains(container) && attachment(container, ifname).is_some();
            let all = containers.get(container).map(Vec::as_slice).unwrap_or_default();
            let keep_reason = if forced { None } else { host.keep_reason(container, ifname, all) };
            // The plan is not settled if an attachment looks alive only because the kernel has not removed the links of its
            // deleted namespace yet.
            is_settled &= keep_reason.is_none_or(|why| !why.stops_removal())
                || !host.is_being_deleted(container, ifname, all);
            let is_cached = cached.is_alive(container, ifname) && !forced;
            let decided = resources.iter().filter(|resource| !is_cached || options.names(resource));
            decided.for_each(|resource| plan.decide(resource, keep_reason, options));
            if keep_reason.is_none() && !is_cached {
                stale.extend(attachment(container, ifname));
            }
        }
        plan.note_foreign(listed.foreign, network, options, settings);
        // If the path of a namespace was deleted, the cache's entry looks stale. But the attachment is alive if the host
        // shows its container, a process is still in the namespace, or a plugin is running for it.
        let is_alive = |at: &Attachment| {
            let mut alive = plan.kept.iter().filter(|(_, why)| why.is_alive());
            alive.any(|(resource, _)| *resource.container == *at.container && *resource.ifname == *at.ifname)
                || host.is_shown(at, options)
                || host.has_running_plugin(at, options)
        };
        stale.retain(|at| !is_alive(at));
        let split = |entries: &[Entry]| -> (Vec<Entry>, Vec<Entry>) {
            entries.iter().cloned().partition(|entry| is_alive(&entry.attach.attachment))
        };
        let (alive, delete) = split(&cached.stale);
        let (alive_elsewhere, stale_elsewhere) = split(&cached.stale_elsewhere);
        let is_forced = |at: &Attachment| options.force.contains(&*at.container);
        let alive = [&alive[..], &alive_elsewhere, &cached.alive].concat();
        let alive = alive.into_iter().map(|entry| entry.attach.attachment);
        let alive = alive.filter(|at| !is_forced(at));
        let kept =
            plan.kept.iter().filter_map(|(resource, _)| attachment(&resource.container, &resource.ifname));
        plan.valid = alive.chain(kept).collect();
        plan.unreadable = cached.unreadable_file().map(Path::to_owned);
        plan.delete = delete;
        let truncated =
            cached.truncated.iter().map(|path| Resource::new(TRUNCATED, path.display().to_string()));
        plan.removed.extend(truncated);
        plan.truncated = cached.truncated;
        plan.alive = cached.unwanted_alive;
        plan.stale = stale.into_iter().collect();
        plan.stale_elsewhere = stale_elsewhere;
        plan.omit_cached(network, options, settings)?;
        Ok((plan, is_settled))
    }
}

/// The resources of each attachment, by container id and interface name. If a resource has no interface name, the name
/// in its key is empty.
fn by_owner(resources: &[Resource]) -> BTreeMap<(&str, &str), Vec<&Resource>> {
    let mut by_owner: BTreeMap<(&str, &str), Vec<&Resource>> = BTreeMap::new();
    for resource in resources {
        by_owner.entry((&resource.container, &resource.ifname)).or_default().push(resource);
    }
    by_owner
}

/// The resources of each container, by container id.
fn by_container(resources: &[Resource]) -> BTreeMap<&str, Vec<&Resource>> {
    let mut by_container: BTreeMap<&str, Vec<&Resource>> = BTreeMap::new();
    for resource in resources {
        by_container.entry(&resource.container).or_default().push(resource);
    }
    by_container
}

/// The attachment with these names. `None` if a name is not valid.
fn attachment(container: &str, ifname: &str) -> Option<Attachment> {
    // If a resource has no interface name, plugins compare only its container. So use any valid name.
    let ifname = if ifname.is_empty() { "eth0" } else { ifname };
    Some(Attachment { container: ContainerId::parse(container).ok()?, ifname: IfName::parse(ifname).ok()? })
}

/// Whether a process could not be examined, so that its container may have been missed.
fn may_miss_processes(namespaces: &Namespaces, running: &RunningPlugins) -> bool {
    namespaces.may_miss_processes() || running.may_miss_processes()
}

/// The state of the host and of its caches, for decisions about one network.
struct Host<'a> {
    cached: &'a CachedAttachments,
    namespaces: &'a Namespaces,
    running: &'a RunningPlugins,
    /// Whether each network namespace that could be examined belongs to a live attachment of this network in the caches.
    /// If so, a container without such an attachment is dead.
    caches_are_complete: bool,
}

impl Host<'_> {
    /// Why an attachment's resources are kept. `None` if the container is dead, or if `--detach-running` removes the attachment.
    /// `resources` are all resources of the container.
    fn keep_reason(&self, container: &str, ifname: &str, resources: &[&Resource]) -> Option<KeepReason> {
        // An administrator may have written any text into a lease.
        if ContainerId::parse(container).is_err() {
            return Some(KeepReason::NoOwner);
        }
        let leads_to_namespace = |resource: &&Resource| {
            resource.kind == "link" && self.namespaces.leads_to_namespace(&resource.name) == Some(true)
        };
        if self.cached.is_unwanted(container, ifname) {
            return None;
        }
        // A plugin is running ADD: a runtime is starting the container, perhaps again under the same id.
        if self.running.has_add(container) {
            return Some(KeepReason::Starting);
        }
        if self.cached.is_alive(container, ifname) || resources.iter().any(leads_to_namespace) {
            return Some(KeepReason::Alive);
        }
        // A plugin is running DEL or CHECK.
        if self.running.has(container) {
            return Some(KeepReason::Alive);
        }
        // The runtime has removed the namespace. Do not search the host for the attachment's addresses alone: another
        // container may have them by now.
        if self.cached.is_stale(container, ifname) {
            return self.cached.is_shown(container, ifname).then_some(KeepReason::Alive);
        }
        let has_address = |resource: &&Resource| {
            resource.address.is_some_and(|ip| self.namespaces.has(ip) || self.namespaces.host_has(ip))
        };
        let has_path = |resource: &&Resource| resource.netns.as_deref().is_some_and(|path| self.is_at(path));
        if resources.iter().any(|resource| has_address(resource) || has_path(resource))
            || self.namespaces.has_container(container)
            || self.running.has_process(container)
        {
            return Some(KeepReason::Alive);
        }
        // A process that could not be examined may belong to this container. A namespace whose addresses could not be read
        // may have the resource's address.
        let has_unexamined_address = self.namespaces.may_miss_addresses()
            && resources.iter().any(|resource| resource.address.is_some());
        if may_miss_processes(self.namespaces, self.running)
            || has_unexamined_address
            || self.cached.is_unreadable(container, ifname)
        {
            return Some(KeepReason::Unexamined);
        }
        // An administrator reserves an address by a lease without interface. Old releases of the reference wrote such leases, too.
        if resources.iter().all(|resource| resource.kind == "lease" && resource.ifname.is_empty()) {
            return Some(KeepReason::Untraceable);
        }
        // The evidence that a container is dead: the searches above did not find the resource's address or namespace
        // path, or the resource is a link whose namespace was deleted.
        let is_traceable = |resource: &&Resource| {
            resource.address.is_some()
                || resource.netns.is_some()
                || resource.kind == "link"
                    && self.namespaces.leads_to_namespace(&resource.name) == Some(false)
        };
        let is_dead = self.caches_are_complete || resources.iter().any(is_traceable);
        (!is_dead).then_some(KeepReason::Untraceable)
    }

    /// Whether a running plugin protects the attachment. False if `--detach-running` or `--force` removes it anyway.
    fn has_running_plugin(&self, at: &Attachment, options: &PlanOptions) -> bool {
        let is_removed = self.cached.is_unwanted(&at.container, &at.ifname);
        self.running.has(&at.container) && !is_removed && !options.force.contains(&*at.container)
    }

    /// Whether the host shows the container of an attachment that looks stale. False if `--force` removes it anyway.
    fn is_shown(&self, at: &Attachment, options: &PlanOptions) -> bool {
        self.cached.is_shown(&at.container, &at.ifname) && !options.force.contains(&*at.container)
    }

    fn is_at(&self, path: &Path) -> bool {
        !path.as_os_str().is_empty() && self.namespaces.is_at(path)
    }

    /// Whether the kernel may still be removing the links of the attachment's namespace: the path was deleted according to
    /// the caches, no plugin is running, and no process is known to be in the namespace.
    fn is_being_deleted(&self, container: &str, ifname: &str, resources: &[&Resource]) -> bool {
        let has_process =
            |resource: &&Resource| resource.address.is_some_and(|ip| self.namespaces.is_used(ip));
        !self.cached.is_alive(container, ifname)
            && self.cached.is_stale(container, ifname)
            && !self.running.has(container)
            && !self.cached.is_shown(container, ifname)
            && !resources.iter().any(has_process)
    }
}
