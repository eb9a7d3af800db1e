//! What a report needs: versions, configurations, results, links, routes, rules, settings, findings and logs.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use cni::Version;
use runtime::{Entry, Result};
use serde_json::{Value, json};
use system::child::{self, Limits};

use super::Content;
use super::redact::cni_args;
use crate::doctor::{self, Host, banner};
use crate::live::Live;
use crate::schema;
use crate::settings::Settings;

/// How long a program may take, and how much it may print.
const TIMEOUT: Duration = Duration::from_secs(20);
const BYTES: u64 = 1 << 24;

/// Programs that print rules. The legacy variant would make tables that do not exist.
const RULES: &[(&str, &[&str])] = &[("nft", &["list", "ruleset"])];
const LEGACY: &[(&str, &str)] = &[
    ("iptables-legacy-save", "/proc/net/ip_tables_names"),
    ("ip6tables-legacy-save", "/proc/net/ip6_tables_names"),
];

/// The journal of what has to do with CNI.
const JOURNAL: &[&str] = &["--no-pager", "--lines=20000", "--output=short-iso", "--boot"];

const SETTINGS: &[&str] = &[
    "net/ipv4/ip_forward",
    "net/ipv4/conf/all/rp_filter",
    "net/ipv6/conf/all/forwarding",
    "net/ipv6/conf/all/disable_ipv6",
    "net/bridge/bridge-nf-call-iptables",
    "net/bridge/bridge-nf-call-ip6tables",
    "net/netfilter/nf_conntrack_max",
    "net/netfilter/nf_conntrack_count",
];

/// The names of the archive's files, with what they contain.
///
/// # Errors
/// If the directories of networks or the caches cannot be read.
pub fn all(settings: &Settings) -> Result<Vec<(String, Content)>> {
    let host = Host::look(settings)?;
    let mut files = vec![
        ("versions.json".to_owned(), Content::Json(versions(&host))),
        ("runtimes.txt".to_owned(), Content::Text(lines(&host_runtimes::of_host(Path::new("/")).0))),
        ("doctor.json".to_owned(), Content::Json(findings(&host))),
        ("settings.json".to_owned(), Content::Json(sysctls(&host))),
        ("host/links.txt".to_owned(), Content::Text(state(&host.live))),
    ];
    files.extend(configurations(&host)?);
    for entry in &host.entries {
        let at = &entry.attach.attachment;
        let name = format!("{}-{}-{}", entry.network, at.container, at.ifname);
        files.push((format!("results/{name}.json"), Content::Json(result(entry))));
        if let Some(live) = entry.attach.netns.as_deref().and_then(Live::at) {
            files.push((format!("containers/{name}.txt"), Content::Text(state(&live))));
        }
    }
    files.extend(rules());
    files.extend(journal().map(|text| ("logs/journal.txt".to_owned(), Content::Text(text))));
    Ok(files)
}

fn versions(host: &Host<'_>) -> Value {
    let dirs = host.networks.iter().flat_map(|one| &one.settings.path).chain(&host.settings.path);
    let dirs: BTreeSet<PathBuf> = dirs.filter_map(|dir| dir.canonicalize().ok()).collect();
    let plugins = |dir: &PathBuf| {
        let names = schema::plugins().map(|plugin| plugin.name);
        let found = names.filter_map(|name| Some((name.to_owned(), banner(&dir.join(name))?.into())));
        (dir.display().to_string(), found.collect::<serde_json::Map<_, Value>>().into())
    };
    json!({
        "cnitool": env!("CARGO_PKG_VERSION"),
        "protocol": Version::list(),
        "kernel": fs::read_to_string("/proc/version").unwrap_or_default().trim(),
        "system": fs::read_to_string("/etc/os-release").unwrap_or_default(),
        "plugins": dirs.iter().map(plugins).collect::<serde_json::Map<_, Value>>(),
    })
}

fn findings(host: &Host<'_>) -> Value {
    doctor::examine(host).iter().map(|(check, finding)| finding.json(check)).collect()
}

fn sysctls(host: &Host<'_>) -> Value {
    SETTINGS
        .iter()
        .map(|key| ((*key).to_owned(), host.sysctl(key).into()))
        .collect::<serde_json::Map<_, Value>>()
        .into()
}

/// Configurations that are JSON. Of other files there is the name and the error only: nobody can tell what is secret in them.
fn configurations(host: &Host<'_>) -> Result<Vec<(String, Content)>> {
    let mut files = Vec::new();
    for place in &host.places {
        for file in place.conf.load()? {
            let name = format!("configurations{}", file.file.display());
            let text = fs::read(&file.file).unwrap_or_default();
            files.push(match serde_json::from_slice::<Value>(&text) {
                Ok(json) => (name, Content::Json(json)),
                Err(e) => (name + ".error", Content::Text(format!("{} bytes, not JSON: {e}\n", text.len()))),
            });
        }
    }
    Ok(files)
}

fn result(entry: &Entry) -> Value {
    let at = &entry.attach.attachment;
    json!({
        "network": entry.network.as_str(),
        "containerID": at.container.as_str(),
        "ifname": at.ifname.as_str(),
        "netns": entry.attach.netns,
        "alive": entry.is_alive(),
        "args": cni_args(&entry.attach.args.to_string()),
        "capabilityArgs": entry.attach.capability_args,
        "configuration": serde_json::from_slice::<Value>(&entry.config).ok(),
        "result": entry.result,
    })
}

fn state(live: &Live) -> String {
    let parts = [lines(&live.links), lines(&live.addresses), lines(&live.routes), lines(&live.qdiscs)];
    parts.join("\n")
}

fn lines(items: &[impl Debug]) -> String {
    items.iter().map(|item| format!("{item:?}\n")).collect()
}

fn rules() -> Vec<(String, Content)> {
    let legacy =
        LEGACY.iter().filter(|(_, tables)| fs::read_to_string(tables).is_ok_and(|names| !names.is_empty()));
    let programs = RULES.iter().copied().chain(legacy.map(|(program, _)| (*program, &[][..])));
    let printed = programs.filter_map(|(program, args)| Some((program, output(program, args)?)));
    printed.map(|(program, text)| (format!("rules/{program}.txt"), Content::Text(text))).collect()
}

/// Lines that name CNI or Ferrule.
fn journal() -> Option<String> {
    let text = output("journalctl", JOURNAL)?;
    let is_ours = |line: &&str| {
        let line = line.to_ascii_lowercase();
        line.contains("cni") || line.contains("ferrule")
    };
    Some(text.lines().filter(is_ours).map(|line| format!("{line}\n")).collect())
}

/// What a program prints. None: it is not installed, or fails.
fn output(program: &str, args: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(args).stderr(Stdio::null());
    let limits = Limits { bytes: BYTES, time: Some(TIMEOUT), group: true };
    let outcome = child::run(&mut command, b"", limits).ok().filter(|outcome| outcome.status.success())?;
    Some(String::from_utf8_lossy(&outcome.out).into_owned())
}
