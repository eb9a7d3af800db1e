//! REPAIR: restores flushed rules. The specification has no such command: only Ferrule's plugins support it,
//! and other plugins are skipped (see [`cni::repair`]).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::thread;

use cni::{Code, Command, PluginType, json};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::conf::Network;
use crate::lock::Lock;
use crate::request::Extras;
use crate::{Entry, Error, Result, Runtime};

/// How many attachments a plugin is asked about at once, and in how many bytes: it takes documents of 4 MiB.
const BATCH: usize = 2_000;
const BATCH_BYTES: usize = 3 << 20;

/// What came of a repair.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Repaired {
    /// For each attachment, in the order of the entries: whether any rule was missing; or why it was left out (see
    /// [`Repaired::is_skipped`]), or what failed.
    pub attachments: Vec<Result<bool>>,
    /// Plugins that do not know the command: what is missing of theirs stays so.
    pub foreign: BTreeSet<PluginType>,
}

impl Repaired {
    /// Whether an error says that there is nothing to repair: the attachment is gone, or the cache has never known it
    /// rightly.
    pub fn is_skipped(error: &Error) -> bool {
        let codes = [Code::UnknownContainer, Code::InvalidEnvironment, Code::InvalidNetns];
        error.failures().all(|failure| codes.iter().any(|code| failure.error.code() == *code as u32))
    }
}

/// A plugin's part of an attachment.
struct Part {
    /// The position of the attachment.
    of: usize,
    /// The [`Item`] as JSON. A host has thousands: each is written once.
    item: String,
    claims: Vec<String>,
}

/// An attachment as a plugin reads it.
#[derive(Serialize)]
struct Item<'a> {
    #[serde(rename = "containerID")]
    container: &'a str,
    ifname: &'a str,
    netns: Option<&'a Path>,
    args: String,
    claims: &'a [String],
    config: &'a RawValue,
}

/// What a plugin answers.
#[derive(Deserialize)]
struct Answer {
    repairs: Vec<RepairReport>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RepairReport {
    repaired: bool,
    code: u32,
    msg: String,
    details: String,
}

impl Runtime {
    /// Asks the plugins of each attachment to install what is missing of its rules, from its cached configuration and
    /// result. Nothing else of it is touched. Where two claim the same host port, the later one in `entries` has it
    /// afterwards: give the oldest first. GC is held up meanwhile.
    pub fn repair(&self, entries: &[Entry]) -> Repaired {
        // A cache that cannot be written must not keep rules from coming back.
        let _lock = Lock::shared(self.cache.dir()).ok();
        let mut repaired = Repaired::default();
        let mut parts: BTreeMap<PluginType, Vec<Part>> = BTreeMap::new();
        // Most attachments of a host have the same configuration: it is read once.
        let mut networks: BTreeMap<&[u8], Result<Network>> = BTreeMap::new();
        for (of, entry) in entries.iter().enumerate() {
            let claims = claims(entry);
            let network = networks.entry(&entry.config).or_insert_with(|| entry.network());
            let known = items(entry, network, &claims);
            repaired.attachments.push(known.as_ref().map(|_| false).map_err(Clone::clone));
            for (kind, item) in known.unwrap_or_default() {
                parts.entry(kind).or_default().push(Part { of, item, claims: claims.clone() });
            }
        }
        let answers: Vec<_> = thread::scope(|scope| {
            let start = |(kind, parts)| (kind, parts, scope.spawn(move || self.repair_by(kind, parts)));
            let runs: Vec<_> = parts.iter().map(|(kind, parts)| start((kind, &parts[..]))).collect();
            let join = |run: thread::ScopedJoinHandle<'_, _>| run.join().unwrap_or_default();
            runs.into_iter().map(|(kind, parts, run)| (kind, parts, join(run))).collect()
        });
        for (kind, parts, answers) in answers {
            match answers {
                // A plugin that has nothing to repair answers with an empty list.
                Some(report) => {
                    parts.iter().zip(report).for_each(|(part, report)| repaired.note(part.of, kind, report))
                }
                None => drop(repaired.foreign.insert(kind.clone())),
            }
        }
        repaired
    }

    /// What a plugin answers of each attachment. None from one that does not know the command.
    fn repair_by(&self, kind: &PluginType, mut parts: &[Part]) -> Option<Vec<RepairReport>> {
        let (mut claimed, mut answers) = (BTreeSet::new(), Vec::new());
        while !parts.is_empty() {
            let (batch, rest) = parts.split_at(batch(parts));
            parts = rest;
            let items: Vec<&str> = batch.iter().map(|part| part.item.as_str()).collect();
            let claimed_json = Value::from_iter(claimed.iter().map(String::as_str));
            let request = format!(r#"{{"claimed":{claimed_json},"attachments":[{}]}}"#, items.join(","));
            let answer = match self.run_repair(kind, request.as_bytes()) {
                Ok(answer) => answer?.repairs,
                Err(e) => batch.iter().map(|_| RepairReport::from(&e)).collect(),
            };
            if answer.is_empty() {
                break;
            }
            for (part, _) in batch.iter().zip(&answer).filter(|(_, report)| report.repaired) {
                claimed.extend(part.claims.iter().cloned());
            }
            answers.extend(answer);
        }
        Some(answers)
    }

    /// None from a plugin that does not know the command.
    fn run_repair(&self, kind: &PluginType, request: &[u8]) -> cni::Result<Option<Answer>> {
        let out = self.run(Command::Repair, kind, Vec::new(), request)?;
        let answer = json::parse(&out, "its answer").and_then(|value| json::decode(&value));
        Ok(answer.ok())
    }
}

impl Repaired {
    fn note(&mut self, of: usize, kind: &PluginType, report: RepairReport) {
        let Some(so_far) = self.attachments.get_mut(of) else { return };
        if report.code == 0 {
            so_far.iter_mut().for_each(|repaired| *repaired |= report.repaired);
            return;
        }
        let error = cni::Error::foreign(report.code, report.msg, report.details);
        let error = Error::of_plugin(kind, Command::Repair, error);
        *so_far = Err(match so_far {
            Ok(_) => error,
            Err(earlier) => earlier.clone().and(error),
        });
    }
}

impl From<&cni::Error> for RepairReport {
    fn from(e: &cni::Error) -> Self {
        Self { repaired: false, code: e.code(), msg: e.msg().into(), details: e.details().into() }
    }
}

/// How many of the parts go into one request: at least one.
fn batch(parts: &[Part]) -> usize {
    let mut bytes = 0;
    let fits = |part: &&Part| {
        bytes += part.item.len() + 1;
        bytes <= BATCH_BYTES
    };
    parts.iter().take(BATCH).take_while(fits).count().max(1)
}

/// For each plugin of the attachment, the attachment with what the plugin would get on stdin of a CHECK.
fn items(entry: &Entry, network: &Result<Network>, claims: &[String]) -> Result<Vec<(PluginType, String)>> {
    let unknown = |why: String| Error::own(Code::UnknownContainer, why);
    if !entry.is_alive() || entry.attach.netns.is_none() {
        let path = entry.attach.netns.as_deref().unwrap_or("".as_ref()).display();
        return Err(unknown(format!("its namespace {path} has been deleted")));
    }
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
        netns: attach.netns.as_deref(),
        args: attach.args.to_string(),
        claims,
        config: serde_json::from_slice(config)?,
    })
}

/// The host ports that the attachment asks for. Keys match without regard to case.
fn claims(entry: &Entry) -> Vec<String> {
    let mappings = entry.attach.capability_args.get("portMappings").and_then(Value::as_array);
    let claim = |mapping: &Value| {
        let protocol = json::member(mapping, "protocol").and_then(Value::as_str).unwrap_or_default();
        let port = json::member(mapping, "hostPort").map(Value::to_string).unwrap_or_default();
        format!("{} {port}", protocol.to_ascii_lowercase())
    };
    mappings.into_iter().flatten().map(claim).collect()
}
