//! GC of stale attachments: DEL for those in the runtime's own cache, then the requests of [`cni::collect`] to Ferrule's
//! plugins, which delete the remaining resources.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use cni::collect::{Answer, Request};
use cni::exec::refused_request;
use cni::{Attachment, Attachments, Command, PluginType, Resource, Scope};

use crate::error::Failures;
use crate::lock::{LONGEST_WAIT, Lock};
use crate::request::Extras;
use crate::{Entry, Error, Network, PluginConf, Result, Runtime};

/// The resources that the plugins of a network have listed, or deleted in a GC.
#[derive(Debug)]
#[non_exhaustive]
pub struct CollectResult {
    /// After a list: all resources of Ferrule's plugins on the network. After a GC: the resources that they have deleted.
    pub resources: Vec<Resource>,
    /// Other vendors' plugins, whose resources are unknown.
    pub foreign: BTreeSet<PluginType>,
    /// Attachments of the decision that the GC has kept, because they were deleted or created again after the decision.
    pub kept: Attachments,
    /// Attachments in `kept` whose DEL was not called, or was stopped before its last plugin.
    pub not_deleted: Attachments,
    /// The failures of all plugins, and of the functions that the caller has passed.
    pub outcome: Result<()>,
}

/// Resources of a network to delete.
#[derive(Clone, Debug, Default)]
pub struct Decision {
    /// Attachments in the runtime's own cache to detach with DEL.
    pub delete: Vec<Entry>,
    /// Stale attachments in other caches. Plugins delete their resources; the runtime that owns the cache sends the DEL.
    pub elsewhere: Vec<Entry>,
    /// Attachments whose resources are deleted.
    pub stale: Attachments,
    /// Names of resources without an attachment that are deleted too.
    pub names: BTreeSet<String>,
    /// Other vendors' plugins to call with the specification's GC, if the network has GC ([`Network::has_gc`]).
    pub foreign: BTreeSet<PluginType>,
    /// Attachments that this GC keeps.
    pub valid: Attachments,
    /// An unreadable cache file that may belong to a running container. In this case, no `foreign` plugin is called with GC.
    pub unreadable: Option<PathBuf>,
}

impl Runtime {
    /// Lists the resources of Ferrule's plugins on a network, whatever its version is. Changes nothing.
    pub fn survey(&self, network: &Network) -> CollectResult {
        self.ask_all(network, |_| Scope::default().dry())
    }

    /// Like [`Runtime::survey`]. Also asks plugins that are only in the configurations of these attachments.
    ///
    /// Some resources contain only a hash of their attachment, such as rules of a container with a very long id. If there are any, asks again,
    /// for the `known` attachments and those of the other resources.
    pub fn survey_with<'a>(
        &self,
        network: &Network,
        entries: impl IntoIterator<Item = &'a Entry>,
        known: impl IntoIterator<Item = &'a Entry>,
    ) -> CollectResult {
        let network = &self.with_plugins_of(network, entries);
        let mut listed = self.ask_all(network, |_| Scope::default().dry());
        let is_hashed = |resource: &Resource| resource.container.is_empty() && !resource.name.is_empty();
        if !listed.resources.iter().any(is_hashed) {
            return listed;
        }
        let owners = listed.resources.iter().filter_map(Resource::attachment);
        let known = known.into_iter().map(|entry| entry.attach.attachment.clone()).chain(owners);
        let known: Attachments = known.collect();
        let of_known = self.ask_all(network, |_| Scope::only(known.clone()).dry());
        let key = |resource: &Resource| (resource.kind.clone(), resource.name.clone());
        let owners: BTreeMap<_, _> = of_known.resources.iter().map(|owned| (key(owned), owned)).collect();
        for resource in listed.resources.iter_mut().filter(|resource| is_hashed(resource)) {
            if let Some(owned) = owners.get(&key(resource)) {
                *resource = resource.clone().of(&owned.container, &owned.ifname);
            }
        }
        listed.resources.sort();
        listed.outcome = listed.outcome.and(of_known.outcome);
        listed
    }

    /// The network, with the plugins that it no longer has but that created one of its attachments. Plugins that are no longer installed
    /// are left out.
    fn with_plugins_of<'a>(
        &self,
        network: &Network,
        entries: impl IntoIterator<Item = &'a Entry>,
    ) -> Network {
        let mut all = network.clone();
        let mut seen = BTreeSet::from([network.bytes()]);
        // Most attachments share a configuration.
        let earlier = entries.into_iter().filter(|entry| seen.insert(&entry.config));
        for mut network in earlier.filter_map(|entry| entry.network().ok()) {
            network.plugins.retain(|plugin| plugin.kinds().all(|kind| self.is_installed(&kind)));
            all.add_plugins_of(&network);
        }
        all
    }

    /// Deletes resources: sends DEL for cached attachments, then lets Ferrule's plugins delete the remaining resources of stale ones. All
    /// other attachments keep their resources, also attachments that are created meanwhile. So does a stale attachment whose container is
    /// started again under its old id: libcni does not take this library's lock.
    ///
    /// `is_still_stale` is called before each plugin's DEL. `look_again` is called before each plugin's removal of the remaining resources,
    /// and returns the attachments that are still stale. If it fails for a plugin, this plugin deletes only the resources in `names`.
    /// `report` is called before each DEL with the number done, the total, and the attachment. Waits for running ADDs and DELs of this
    /// library, and blocks new ones. Between two DELs and before each plugin's removal, it lets waiting ones run, because it judges each
    /// attachment again, unless the decision contains `names` or `foreign` plugins.
    pub fn collect(
        &self,
        network: &Network,
        decide: impl FnOnce() -> Result<Decision>,
        mut is_still_stale: impl FnMut(&Entry) -> bool,
        mut look_again: impl FnMut(&Attachments) -> Result<Attachments>,
        mut report: impl FnMut(usize, usize, &Attachment),
    ) -> Result<CollectResult> {
        let lock = Lock::exclusive(self.cache.dir(), LONGEST_WAIT)?;
        let Decision { delete, elsewhere, stale, names, foreign, valid, unreadable } = decide()?;
        // The names and the list of valid attachments are not judged again.
        let let_others_in =
            || if names.is_empty() && foreign.is_empty() { lock.let_others_in() } else { Ok(()) };
        let mut failures = Failures::default();
        let mut kept = BTreeSet::new();
        for (done, entry) in delete.iter().enumerate() {
            let at = &entry.attach.attachment;
            // An ADD that is not running any more has written the cache. So look at the cache last.
            let may_continue = || is_still_stale(entry) && self.cache.is_unchanged(entry);
            report(done, delete.len(), at);
            if done > 0
                && let Err(e) = let_others_in()
            {
                return Err(match failures.into_result() {
                    Ok(()) => e,
                    Err(earlier) => earlier.and(e),
                });
            }
            match self.del_while(network, &entry.attach, may_continue) {
                Ok(true) => {}
                Ok(false) => drop(kept.insert(at.clone())),
                Err(e) => {
                    failures
                        .note::<()>(Err(e.context(format!("{} of container {}", at.ifname, at.container))));
                }
            }
        }
        let not_deleted = kept.iter().cloned().collect();
        let network = &self.with_plugins_of(network, delete.iter().chain(&elsewhere));
        let only = |_: &PluginConf| {
            let stale: Attachments = stale.iter().filter(|at| !kept.contains(at)).cloned().collect();
            let still = match let_others_in().and_then(|()| look_again(&stale)) {
                Ok(still) => still,
                Err(e) => {
                    failures.note::<()>(Err(e));
                    Attachments::default()
                }
            };
            kept.extend(stale.iter().filter(|at| !still.contains(&at.container, &at.ifname)).cloned());
            let others = valid.iter().chain(&kept).map(|at| at.container.to_string());
            Scope::only(still).except_unknown_of(others).and_named(names.iter().cloned())
        };
        let collected = self.ask_all(network, only);
        failures.note(collected.outcome);
        if !foreign.is_empty() && network.has_gc() {
            let valid = valid.iter().chain(&kept).cloned().collect();
            let is_forced = |plugin: &&PluginConf| foreign.contains(&plugin.kind);
            failures.note(self.call_gc(network, is_forced, &valid, unreadable.as_deref()));
        }
        let kept = kept.into_iter().collect();
        Ok(CollectResult { kept, not_deleted, outcome: failures.into_result(), ..collected })
    }

    fn ask_all(&self, network: &Network, mut scope: impl FnMut(&PluginConf) -> Scope) -> CollectResult {
        let (foreign, kept, not_deleted) = (BTreeSet::new(), Attachments::default(), Attachments::default());
        let mut collected =
            CollectResult { resources: Vec::new(), foreign, kept, not_deleted, outcome: Ok(()) };
        let mut failures = Failures::default();
        for plugin in &network.plugins {
            for kind in plugin.kinds() {
                match self.ask(network, plugin, &kind, &scope(plugin)) {
                    Ok(Some(answer)) => {
                        let (resources, outcome) = answer.outcome();
                        collected.resources.extend(resources);
                        failures.note(outcome.map_err(|e| Error::of_plugin(&kind, Command::Collect, e)));
                    }
                    Ok(None) => drop(collected.foreign.insert(kind)),
                    Err(e) => drop(failures.note::<()>(Err(e))),
                }
            }
        }
        collected.resources.sort();
        collected.resources.dedup();
        collected.outcome = failures.into_result();
        collected
    }

    /// Returns `None` for another vendor's plugin.
    fn ask(
        &self,
        network: &Network,
        plugin: &PluginConf,
        kind: &PluginType,
        scope: &Scope,
    ) -> Result<Option<Answer>> {
        if self.may_lack(kind) {
            return Ok(None);
        }
        let config = Extras::default().request(network, plugin)?;
        let request = Request::new(scope, &config)?;
        let request = serde_json::to_vec(&request).map_err(cni::Error::from)?;
        let env = ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS"].map(|name| (name, "".into()));
        match self.run(Command::Collect, kind, env.into(), &request) {
            Ok(out) => Ok(Answer::read(&out)),
            Err(e) if refused_request(&e) => Ok(None),
            Err(e) => Err(Error::of_plugin(kind, Command::Collect, e)),
        }
    }
}
