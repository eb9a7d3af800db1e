//! REPAIR: restores flushed rules. The command is not in the specification: Ferrule's plugins support it, and others are skipped (see
//! [`cni::repair`]).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::thread;

use cni::exec::refused_request;
use cni::repair::Claims;
use cni::{Code, Command, NetworkName, PluginType, Version, addr, json};
use liveness::RunningPlugins;
use netns::NetNs;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::cache::sandbox;
use crate::conf::Network;
use crate::lock::Lock;
use crate::request::Extras;
use crate::rollback::has_interface;
use crate::{Cache, Entry, Error, Result, Runtime};

/// Maximum number of attachments in one request; plugins accept documents of 4 MiB.
const BATCH: usize = 2_000;
const BATCH_BYTES: usize = 3 << 20;

/// Result of a repair.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Repaired {
    /// For each entry: whether a rule was missing, why it was skipped (see [`Repaired::is_skipped`]), or the failure.
    pub attachments: Vec<Result<bool>>,
    /// Plugins that do not support the command. Their rules are not restored.
    pub foreign: BTreeSet<PluginType>,
}

impl Repaired {
    /// Whether an error means that there is nothing to repair: the attachment no longer exists, or the cache has no valid entry.
    pub fn is_skipped(error: &Error) -> bool {
        let codes = [Code::UnknownContainer, Code::InvalidEnvironment, Code::InvalidNetns];
        error.failures().all(|failure| codes.iter().any(|code| failure.error.code() == *code as u32))
    }
}

/// A plugin's part of an attachment.
struct Part {
    /// Index of the attachment.
    of: usize,
    /// Index of the plugin in the chain.
    place: usize,
    /// The [`Item`] as JSON. It is serialized only once, because a host has thousands.
    item: String,
    claims: Vec<String>,
    /// Whether the cache contains the path of the attachment's namespace.
    has_netns: bool,
}

/// An attachment in a request.
#[derive(Serialize)]
struct Item<'a> {
    #[serde(rename = "containerID")]
    container: &'a str,
    ifname: &'a str,
    /// Empty: the cache does not contain it. Plugins that install rules refuse that.
    netns: &'a Path,
    args: String,
    claims: &'a [String],
    config: &'a RawValue,
}

/// A plugin's answer.
#[derive(Deserialize)]
struct Answer {
    repairs: Vec<Reply>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Reply {
    repaired: bool,
    /// `None` for success.
    code: Option<u32>,
    msg: String,
    details: String,
}

impl Runtime {
    /// Asks the plugins of each attachment to install missing rules, from the cached configuration and result. Changes nothing else. If two
    /// attachments claim the same host port, the later one in `entries` gets it: pass the oldest first. Blocks GC, unless a GC has
    /// run for five minutes already, for example because it is suspended.
    ///
    /// Other runtimes do not wait for a repair. If the DEL of an attachment runs at the same time, what the repair has restored after the DEL
    /// of the same plugin is removed again, by that plugin's DEL, and the attachment is skipped. This is not done if a new ADD of the container
    /// runs or has run: it has installed its own.
    pub fn repair(&self, entries: &[Entry]) -> Repaired {
        // A read-only cache must not prevent a repair.
        let _lock = Lock::shared(self.cache.dir()).ok();
        let mut repaired = Repaired::default();
        let mut parts: BTreeMap<PluginType, Vec<Part>> = BTreeMap::new();
        // Most attachments share a configuration, which is parsed once.
        let mut networks = BTreeMap::new();
        let here = NetNs::current().ok();
        for (of, entry) in entries.iter().enumerate() {
            let claims = entry.host_ports();
            let network = networks.entry(key(entry)).or_insert_with(|| entry.network());
            let known = items(entry, network, &claims, here.as_ref());
            repaired.attachments.push(known.as_ref().map(|_| false).map_err(Clone::clone));
            for (place, (kind, item)) in known.unwrap_or_default().into_iter().enumerate() {
                let (claims, has_netns) = (claims.clone(), entry.attach.netns.is_some());
                parts.entry(kind).or_default().push(Part { of, place, item, claims, has_netns });
            }
        }
        let (answers, before) = thread::scope(|scope| {
            let scan = scope.spawn(RunningPlugins::scan_in_time);
            let start = |(kind, parts)| (kind, parts, scope.spawn(move || self.repair_by(kind, parts)));
            let runs: Vec<_> = parts.iter().map(|(kind, parts)| start((kind, &parts[..]))).collect();
            let join = |run: thread::ScopedJoinHandle<'_, _>| run.join().unwrap_or_default();
            let answers: Vec<_> =
                runs.into_iter().map(|(kind, parts, run)| (kind, parts, join(run))).collect();
            (answers, scan.join().unwrap_or_default())
        });
        let mut restored = Vec::new();
        for (kind, parts, answers) in answers {
            match answers {
                // A plugin without anything to repair answers with an empty list.
                Some(reply) => parts.iter().zip(reply).for_each(|(part, reply)| {
                    restored.extend(reply.repaired.then_some(part));
                    repaired.note(part, kind, reply);
                }),
                None => drop(repaired.foreign.insert(kind.clone())),
            }
        }
        // The DEL of the first plugin runs last. It also removes what a repair has restored in the meantime.
        restored.retain(|part| part.place > 0);
        if !restored.is_empty() {
            let now = RunningPlugins::scan_in_time();
            for part in restored {
                let entry = &entries[part.of];
                let at = &entry.attach.attachment;
                let has_del = before.has_del(at) || now.has_del(at);
                let is_ending = has_del || exists(entry, here.as_ref()).is_err();
                if is_ending
                    && !now.has_add(&at.container)
                    && !self.has_newer(entry)
                    && let Some(Ok(network)) = networks.get(&key(entry))
                {
                    let removed = self.remove_restored(entry, network, part.place);
                    repaired.note_removal(part.of, removed);
                }
            }
        }
        repaired
    }

    /// Whether the attachment was added again since the entry was read, or may have been.
    fn has_newer(&self, entry: &Entry) -> bool {
        let is_newer = |cache: &Cache| {
            let now = cache.load(&entry.network, &entry.attach.attachment);
            now.map_or(true, |now| now.is_some_and(|now| now.added > entry.added))
        };
        self.cache.with_others_of_host().map_or(true, |caches| caches.iter().any(is_newer))
    }

    /// Calls the DEL of a plugin that has restored something while the DEL of the attachment ran.
    fn remove_restored(&self, entry: &Entry, network: &Network, place: usize) -> Result<()> {
        let prev = entry.result_in(network.version).ok();
        let extras = Extras { attach: Some(&entry.attach), prev: prev.as_ref(), valid: None };
        self.call(Command::Del, network, &network.plugins[place], &extras).map(drop)
    }

    /// A plugin's answer for each attachment. `None` if it does not support the command.
    fn repair_by(&self, kind: &PluginType, mut parts: &[Part]) -> Option<Vec<Reply>> {
        let (mut claimed, mut answers) = (Claims::default(), Vec::new());
        while !parts.is_empty() {
            let (batch, rest) = parts.split_at(batch(parts));
            parts = rest;
            let items: Vec<&str> = batch.iter().map(|part| part.item.as_str()).collect();
            let claimed_json = json!(claimed);
            let request = format!(r#"{{"claimed":{claimed_json},"attachments":[{}]}}"#, items.join(","));
            let answer = match self.run_repair(kind, request.as_bytes()) {
                Ok(answer) => answer?.repairs,
                Err(e) => batch.iter().map(|_| Reply::from(&e)).collect(),
            };
            if answer.is_empty() {
                break;
            }
            for (part, _) in batch.iter().zip(&answer).filter(|(_, reply)| reply.repaired) {
                claimed.extend(part.claims.iter().cloned());
            }
            answers.extend(answer);
        }
        Some(answers)
    }

    /// `None` if the plugin does not support the command.
    fn run_repair(&self, kind: &PluginType, request: &[u8]) -> cni::Result<Option<Answer>> {
        if self.may_lack(kind) {
            return Ok(None);
        }
        let out = match self.run(Command::Repair, kind, Vec::new(), request) {
            // Another vendor's plugin does not know the command.
            Err(e) if refused_request(&e) => return Ok(None),
            out => out?,
        };
        let answer = json::parse(&out, "its answer").and_then(|value| json::decode(&value));
        Ok(answer.ok())
    }
}

impl Repaired {
    /// Notes that what was restored for an attachment has been removed again, or the failure.
    fn note_removal(&mut self, of: usize, removed: Result<()>) {
        let so_far = &mut self.attachments[of];
        match (removed, so_far.clone()) {
            (Ok(()), Err(_)) => {}
            (Ok(()), Ok(_)) => *so_far = Err(unknown("its DEL runs, or has run".into())),
            (Err(failed), Ok(_)) => *so_far = Err(failed),
            (Err(failed), Err(earlier)) => *so_far = Err(earlier.and(failed)),
        }
    }

    fn note(&mut self, part: &Part, kind: &PluginType, reply: Reply) {
        let Some(so_far) = self.attachments.get_mut(part.of) else { return };
        let Some(code) = reply.code else {
            so_far.iter_mut().for_each(|repaired| *repaired |= reply.repaired);
            return;
        };
        let error = match part.has_netns {
            true => cni::Error::foreign(code, reply.msg, reply.details),
            // libcni before 1.2.0 does not write the path. The container may run, and lack its rules.
            false => cni::Error::new(
                Code::Internal,
                "its rules cannot be checked: the cache does not contain the path of its namespace",
            )
            .detail("if the container runs, delete its pod, or restart it: its runtime calls DEL and ADD"),
        };
        let error = Error::of_plugin(kind, Command::Repair, error);
        *so_far = Err(match so_far {
            Ok(_) => error,
            Err(earlier) => earlier.clone().and(error),
        });
    }
}

impl From<&cni::Error> for Reply {
    fn from(e: &cni::Error) -> Self {
        Self { repaired: false, code: Some(e.code()), msg: e.msg().into(), details: e.details().into() }
    }
}

/// Number of parts for one request, at least one.
fn batch(parts: &[Part]) -> usize {
    let mut bytes = 0;
    let fits = |part: &&Part| {
        bytes += part.item.len() + 1;
        bytes <= BATCH_BYTES
    };
    parts.iter().take(BATCH).take_while(fits).count().max(1)
}

/// What networks are parsed by: entries with the same key have the same network.
fn key(entry: &Entry) -> (&NetworkName, &[u8], Option<Version>) {
    (&entry.network, &entry.config, entry.version())
}

fn unknown(why: String) -> Error {
    Error::own(Code::UnknownContainer, why)
}

/// Fails if the attachment no longer exists. `here` is the thread's namespace.
fn exists(entry: &Entry, here: Option<&NetNs>) -> Result<()> {
    if let Some(path) = entry.attach.netns.as_deref().filter(|_| !entry.is_alive()) {
        return Err(unknown(format!("its namespace {} has been deleted", path.display())));
    }
    let ifname = &entry.attach.attachment.ifname;
    if let (Some(here), Some(netns)) = (here, &entry.attach.netns)
        && sandbox(&entry.result, ifname).is_some()
        && has_interface(here, netns, ifname).is_ok_and(|has| has == Some(false))
    {
        return Err(unknown(format!("interface {ifname} no longer exists in {}", netns.display())));
    }
    Ok(())
}

/// For each plugin of the attachment, the stdin of a CHECK. `here` is the thread's namespace.
fn items(
    entry: &Entry,
    network: &Result<Network>,
    claims: &[String],
    here: Option<&NetNs>,
) -> Result<Vec<(PluginType, String)>> {
    exists(entry, here)?;
    if entry.config.is_empty() {
        return Err(unknown(
            "the cache does not contain its configuration: libcni before 0.8 wrote the entry".into(),
        ));
    }
    let network = network.as_ref().map_err(|e| unknown(format!("its cached configuration: {e}")))?;
    let prev = entry.result_in(network.version);
    let prev = prev.map_err(|e| unknown(format!("its cached result: {e}")))?;
    if network.name != entry.network {
        return Err(unknown(format!(
            "its cached configuration belongs to another network, {}",
            network.name
        )));
    }
    let extras = Extras { attach: Some(&entry.attach), prev: Some(&prev), valid: None };
    let mut items = Vec::new();
    for plugin in &network.plugins {
        let config = extras.request(network, plugin)?;
        items.push((plugin.kind.clone(), item(entry, claims, &config).map_err(cni::Error::from)?));
    }
    Ok(items)
}

fn item(entry: &Entry, claims: &[String], config: &[u8]) -> serde_json::Result<String> {
    let attach = &entry.attach;
    serde_json::to_string(&Item {
        container: &attach.attachment.container,
        ifname: &attach.attachment.ifname,
        netns: attach.netns.as_deref().unwrap_or_else(|| Path::new("")),
        args: attach.args.to_string(),
        claims,
        config: serde_json::from_slice(config)?,
    })
}

impl Entry {
    /// The attachment's host ports, such as `tcp 8080`, or `tcp 8080 192.0.2.1` with an address of the host: of two attachments whose ports
    /// exclude each other, the newer one gets the port ([`Claims`]).
    pub fn host_ports(&self) -> Vec<String> {
        let mappings = self.attach.capability_args.get("portMappings").and_then(Value::as_array);
        // Keys are case-insensitive.
        let port = |mapping: &Value| {
            let text = |key| json::member(mapping, key).and_then(Value::as_str).unwrap_or_default();
            let port = json::member(mapping, "hostPort").map(Value::to_string).unwrap_or_default();
            let all_addresses = format!("{} {port}", text("protocol").to_ascii_lowercase());
            match addr::parse_host_ip(text("hostIP")) {
                Some(address) => format!("{all_addresses} {address}"),
                None => all_addresses,
            }
        };
        mappings.into_iter().flatten().map(port).collect()
    }
}
