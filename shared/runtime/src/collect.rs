//! GC of exactly the attachments that are stale, by plugins of ours: see [`cni::collect`].

use std::collections::BTreeSet;

use cni::collect::{Answer, Request};
use cni::{Attachment, Attachments, Command, PluginType, Scope, Thing, json};

use crate::error::Failures;
use crate::lock::Lock;
use crate::request::Extras;
use crate::{Entry, Error, Network, PluginConf, Result, Runtime};

/// What the plugins of a network have on this host.
#[derive(Debug)]
#[non_exhaustive]
pub struct Survey {
    /// All that plugins of ours would remove by a GC without valid attachments.
    pub things: Vec<Thing>,
    /// Plugins of others: what they have is not known.
    pub foreign: BTreeSet<PluginType>,
    /// What could not be looked at.
    pub outcome: Result<()>,
}

/// What is removed of a network.
#[derive(Clone, Debug, Default)]
pub struct Decision {
    /// Attachments in the runtime's own cache that get their DEL.
    pub delete: Vec<Entry>,
    /// Attachments whose things are removed.
    pub stale: Attachments,
    /// Names of things that do not tell their attachment, and are removed, too.
    pub names: BTreeSet<String>,
    /// Plugins of others that are asked for the specification's GC, if the network's version has it.
    pub foreign: BTreeSet<PluginType>,
    /// The attachments that these are to keep.
    pub valid: Attachments,
}

impl Runtime {
    /// Lists what plugins of ours have of a network. Nothing is changed. It works with any version of the protocol.
    pub fn survey(&self, network: &Network) -> Survey {
        self.ask_all(network, |_| Scope::default().dry())
    }

    /// Removes the attachments in the decision: runs DEL for those in the cache, then Ferrule's plugins remove the remaining
    /// resources of the stale ones. All other attachments are kept, also those that are created meanwhile.
    ///
    /// `look_again` is called right before each plugin, and returns the attachments that are still stale. `report` is called before
    /// each DEL with the number of finished DELs, the total, and the attachment. Waits until all ADD and DEL calls of this library
    /// have ended, and blocks new ones.
    pub fn collect(
        &self,
        network: &Network,
        decide: impl FnOnce() -> Result<Decision>,
        mut look_again: impl FnMut(&Attachments) -> Attachments,
        mut report: impl FnMut(usize, usize, &Attachment),
    ) -> Result<Survey> {
        let _lock = Lock::exclusive(self.cache.dir())?;
        let Decision { delete, stale, names, foreign, valid } = decide()?;
        let mut failures = Failures::default();
        for (done, entry) in delete.iter().enumerate() {
            let at = &entry.attach.attachment;
            report(done, delete.len(), at);
            let outcome = self.del_unlocked(network, &entry.attach);
            let context = format!("{} of container {}", at.ifname, at.container);
            failures.note(outcome.map_err(|e| e.context(context)));
        }
        let only = |_: &PluginConf| Scope::only(look_again(&stale)).and_named(names.iter().cloned());
        let collected = self.ask_all(network, only);
        failures.note(collected.outcome);
        if network.version >= Command::Gc.since() {
            let extras = Extras { valid: Some(&valid), ..Extras::default() };
            for plugin in network.plugins.iter().filter(|plugin| foreign.contains(&plugin.kind)) {
                failures.note(self.call(Command::Gc, network, plugin, &extras));
            }
        }
        Ok(Survey { outcome: failures.into_result(), ..collected })
    }

    fn ask_all(&self, network: &Network, mut scope: impl FnMut(&PluginConf) -> Scope) -> Survey {
        let mut survey = Survey { things: Vec::new(), foreign: BTreeSet::new(), outcome: Ok(()) };
        let mut failures = Failures::default();
        for plugin in &network.plugins {
            for kind in [Some(plugin.kind.clone()), ipam(plugin)].into_iter().flatten() {
                match self.ask(network, plugin, &kind, &scope(plugin)) {
                    Ok(Some(answer)) => {
                        let (things, outcome) = answer.outcome();
                        survey.things.extend(things);
                        failures.note(outcome.map_err(|e| Error::of_plugin(&kind, Command::Collect, e)));
                    }
                    Ok(None) => drop(survey.foreign.insert(kind)),
                    Err(e) => drop(failures.note::<()>(Err(e))),
                }
            }
        }
        survey.things.sort();
        survey.things.dedup();
        survey.outcome = failures.into_result();
        survey
    }

    /// None from a plugin of others.
    fn ask(
        &self,
        network: &Network,
        plugin: &PluginConf,
        kind: &PluginType,
        scope: &Scope,
    ) -> Result<Option<Answer>> {
        let config = Extras::default().request(network, plugin)?;
        let request = Request::new(scope, &config)?;
        let request = serde_json::to_vec(&request).map_err(cni::Error::from)?;
        let env = ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS"].map(|name| (name, "".into()));
        let out = self.run(Command::Collect, kind, env.into(), &request);
        let out = out.map_err(|e| Error::of_plugin(kind, Command::Collect, e))?;
        Ok(Answer::read(&out))
    }
}

/// The IPAM plugin of a configuration. It is asked apart from the plugin that uses it.
fn ipam(plugin: &PluginConf) -> Option<PluginType> {
    let (_, ipam) = plugin.keys.iter().find(|(key, _)| key.eq_ignore_ascii_case("ipam"))?;
    let ipam = json::parse(ipam.get().as_bytes(), "ipam").ok()?;
    PluginType::parse(json::member(&ipam, "type")?.as_str()?).ok()
}
