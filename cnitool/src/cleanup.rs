//! Decides what a GC of a network removes and keeps. It finds the container of each resource, and whether it is alive.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use cni::{Attachment, Attachments, ContainerId, IfName, PluginType, Thing};
use liveness::{Calls, Namespaces};
use runtime::{Decision, Entry, Network, Result};

use self::caches::Known;
use crate::settings::Settings;

mod abandoned;
mod caches;

/// How long the kernel may take to remove the links of a namespace that nobody holds any more.
const TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// A cache's file that a loss of power has torn. cnitool removes it, not a plugin.
const TORN: &str = "torn result";

/// What the command line says.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// Also attachments in cnitool's own cache that are alive.
    pub all: bool,
    /// Containers and things that are removed though they may be alive.
    pub force: BTreeSet<String>,
    /// Attachments that are younger stay, as far as a cache knows their age.
    pub older_than: Option<Duration>,
}

/// Why GC keeps a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepReason {
    /// Its container is alive, and no cache knows it.
    Alive,
    /// Unknown whether its container is alive.
    Unsure,
    /// The resource does not contain the id of its container.
    NoOwner,
}

impl KeepReason {
    pub fn text(self) -> &'static str {
        match self {
            Self::Alive => "kept: alive",
            Self::Unsure => "kept: may be alive",
            Self::NoOwner => "kept: owner unknown",
        }
    }
}

/// A GC of one network, before it is run.
#[derive(Debug, Default)]
pub struct Plan {
    /// Attachments in cnitool's own cache that get their DEL.
    pub delete: Vec<Entry>,
    /// Those of them that are alive: `--all` asks for them, too.
    pub alive: Attachments,
    /// Attachments in other caches whose namespaces have been deleted.
    pub stale_elsewhere: Vec<Entry>,
    /// What is removed.
    pub removed: Vec<Thing>,
    /// What no cache knows, and is kept.
    pub kept: Vec<(Thing, KeepReason)>,
    /// Plugins of others: only DEL is asked of them.
    pub foreign: BTreeSet<PluginType>,
    /// Those of them that are asked for GC, by `--force`.
    gc_plugins: BTreeSet<PluginType>,
    stale: Attachments,
    names: BTreeSet<String>,
    torn: Vec<PathBuf>,
    /// All that is kept.
    valid: Attachments,
}

impl Plan {
    /// Looks at the host until the kernel is done with namespaces that were just given up: their links outlive them for some
    /// milliseconds.
    ///
    /// # Errors
    /// If the caches or what plugins have cannot be read.
    pub fn make(network: &Network, wishes: &Wishes, settings: &Settings) -> Result<Self> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let (plan, is_settled) = Self::look(network, wishes, settings)?;
            if is_settled || Instant::now() > deadline {
                return Ok(plan);
            }
            thread::sleep(PAUSE);
        }
    }

    /// What the runtime is to do.
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

    /// Removes files that tell nothing. libcni cannot delete their attachments while they are there.
    ///
    /// # Errors
    /// Code 5 if one cannot be removed.
    pub fn remove_torn(&self) -> cni::Result<()> {
        self.torn.iter().map(|path| caches::remove_torn(path)).fold(Ok(()), cni::Result::and)
    }

    /// Those of the plan's attachments that are still stale: a container of the same name may have been started meanwhile.
    pub fn still_stale(&self, network: &Network, wishes: &Wishes, settings: &Settings) -> Attachments {
        let (Ok(mut known), Ok(namespaces)) = (Known::of(network, wishes, settings), abandoned::look(wishes))
        else {
            return Attachments::default();
        };
        // DEL has removed them from the cache.
        known.stale.extend(self.delete.iter().cloned());
        let (calls, namespaces) = (Calls::look(), &namespaces);
        let host = Host { known: &known, namespaces, calls: &calls, is_whole: false };
        let containers = by_container(&self.removed);
        let is_stale = |at: &&Attachment| {
            let things = containers.get(&*at.container).map(Vec::as_slice).unwrap_or_default();
            let is_forced = wishes.force.contains(&*at.container);
            is_forced || host.verdict(&at.container, &at.ifname, things) != Some(KeepReason::Alive)
        };
        self.stale.iter().filter(is_stale).cloned().collect()
    }

    fn look(network: &Network, wishes: &Wishes, settings: &Settings) -> Result<(Self, bool)> {
        let known = Known::of(network, wishes, settings)?;
        let survey = settings.runtime.survey_with(network, known.stale.iter().chain(&known.stale_elsewhere));
        survey.outcome?;
        let (namespaces, calls) = (abandoned::look(wishes)?, Calls::look());
        let paths = known.alive.iter().filter_map(|entry| entry.attach.netns.as_deref());
        let is_whole = namespaces.are_all_at(paths);
        let host = Host { known: &known, namespaces: &namespaces, calls: &calls, is_whole };
        let mut plan = Self::default();
        let mut stale: Vec<Attachment> =
            known.stale.iter().map(|entry| entry.attach.attachment.clone()).collect();
        let mut is_settled = true;
        let containers = by_container(&survey.things);
        for ((container, ifname), things) in by_owner(&survey.things) {
            let forced = wishes.force.contains(container);
            let all = containers.get(container).map(Vec::as_slice).unwrap_or_default();
            let verdict = if forced { None } else { host.verdict(container, ifname, all) };
            is_settled &= verdict != Some(KeepReason::Alive) || !host.is_going(container, ifname);
            if known.is_alive(container, ifname) && !forced {
                continue;
            }
            for thing in things {
                let is_named = wishes.force.contains(&thing.name) && !thing.name.is_empty();
                match verdict.filter(|_| !is_named) {
                    None if is_named => {
                        plan.names.insert(thing.name.clone());
                        plan.removed.push(thing.clone());
                    }
                    None => plan.removed.push(thing.clone()),
                    Some(why) => plan.kept.push((thing.clone(), why)),
                }
            }
            if verdict.is_none() {
                stale.extend(attachment(container, ifname));
            }
        }
        let kept = plan.kept.iter().filter_map(|(thing, _)| attachment(&thing.container, &thing.ifname));
        let alive = known.alive.iter().map(|entry| entry.attach.attachment.clone());
        plan.valid = alive.chain(kept).collect();
        plan.foreign = survey.foreign;
        plan.gc_plugins =
            plan.foreign.iter().filter(|kind| wishes.force.contains(&***kind)).cloned().collect();
        // The path of the namespace has been deleted, but a process is still in it.
        let is_alive = |at: &Attachment| {
            let mut alive = plan.kept.iter().filter(|(_, why)| *why == KeepReason::Alive);
            alive.any(|(thing, _)| *thing.container == *at.container && *thing.ifname == *at.ifname)
        };
        stale.retain(|at| !is_alive(at));
        let mut delete = known.stale;
        delete.retain(|entry| !is_alive(&entry.attach.attachment));
        plan.delete = delete;
        let torn = known.torn.iter().map(|path| Thing::new(TORN, path.display().to_string()));
        plan.removed.extend(torn);
        plan.torn = known.torn;
        plan.alive = known.unwanted_alive;
        plan.stale = stale.into_iter().collect();
        plan.stale_elsewhere = known.stale_elsewhere;
        Ok((plan, is_settled))
    }
}

/// The things of each attachment. Those of a container whose interface they do not tell are apart.
fn by_owner(things: &[Thing]) -> BTreeMap<(&str, &str), Vec<&Thing>> {
    let mut by_owner: BTreeMap<(&str, &str), Vec<&Thing>> = BTreeMap::new();
    for thing in things {
        by_owner.entry((&thing.container, &thing.ifname)).or_default().push(thing);
    }
    by_owner
}

fn by_container(things: &[Thing]) -> BTreeMap<&str, Vec<&Thing>> {
    let mut by_container: BTreeMap<&str, Vec<&Thing>> = BTreeMap::new();
    for thing in things {
        by_container.entry(&thing.container).or_default().push(thing);
    }
    by_container
}

/// None for names that no attachment can have.
fn attachment(container: &str, ifname: &str) -> Option<Attachment> {
    // Things that do not tell the interface are found by any attachment of the container.
    let ifname = if ifname.is_empty() { "eth0" } else { ifname };
    Some(Attachment { container: ContainerId::parse(container).ok()?, ifname: IfName::parse(ifname).ok()? })
}

/// What is known of the containers of a network.
struct Host<'a> {
    known: &'a Known,
    namespaces: &'a Namespaces,
    calls: &'a Calls,
    /// The caches know all namespaces: what they do not know is not alive.
    is_whole: bool,
}

impl Host<'_> {
    /// Why an attachment is kept. None: its container is dead.
    fn verdict(&self, container: &str, ifname: &str, things: &[&Thing]) -> Option<KeepReason> {
        if container.is_empty() {
            return Some(KeepReason::NoOwner);
        }
        let leads_on =
            |thing: &&Thing| thing.kind == "link" && self.namespaces.leads_on(&thing.name) == Some(true);
        if self.known.is_unwanted(container, ifname) {
            return None;
        }
        if self.known.is_alive(container, ifname) || things.iter().any(leads_on) {
            return Some(KeepReason::Alive);
        }
        // The runtime has removed the namespace: another container may have the addresses by now.
        if self.known.is_stale(container, ifname) {
            return None;
        }
        let is_blind = self.namespaces.is_blind();
        let has_address = |thing: &&Thing| thing.address.is_some_and(|ip| self.namespaces.may_have(ip));
        let has_path = |thing: &&Thing| thing.netns.as_deref().is_some_and(|path| self.is_at(path));
        if things.iter().any(|thing| has_address(thing) || has_path(thing))
            || self.namespaces.has_container(container)
            || !is_blind && self.calls.may_be_for(container)
        {
            return Some(KeepReason::Alive);
        }
        let tells = |thing: &&Thing| {
            thing.address.is_some()
                || thing.netns.is_some()
                || self.namespaces.leads_on(&thing.name) == Some(false)
        };
        let is_dead = !is_blind && (self.is_whole || things.iter().any(tells));
        (!is_dead || self.known.is_unreadable(container, ifname)).then_some(KeepReason::Unsure)
    }

    fn is_at(&self, path: &Path) -> bool {
        !path.as_os_str().is_empty() && self.namespaces.is_at(path)
    }

    /// The namespace has been deleted, but the kernel may not have removed its links yet.
    fn is_going(&self, container: &str, ifname: &str) -> bool {
        !self.known.is_alive(container, ifname) && self.known.is_stale(container, ifname)
    }
}
