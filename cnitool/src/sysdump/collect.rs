//! Collects the files of a report: versions, configurations, results, links, routes, rules, settings, findings and
//! logs.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;
use std::path::Path;

use cni::Version;
use cni::json::MAX_BYTES;
use runtime::{Entry, Result};
use serde_json::{Value, json};

use super::Content;
use super::redact::cni_args;
use crate::doctor::{self, Host, installed};
use crate::live::Live;
use crate::programs::{legacy_saves, output};
use crate::settings::{Settings, absolute};

/// Prints the rules of nf_tables.
const NFT: (&str, &[&str]) = ("nft", &["list", "ruleset"]);

/// The journal's entries about CNI.
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
/// If a directory of networks cannot be read.
pub fn all(settings: &Settings) -> Result<Vec<(String, Content)>> {
    let host = Host::examine(settings);
    let mut files = vec![
        ("versions.json".to_owned(), Content::Json(versions(&host))),
        ("runtimes.txt".to_owned(), Content::Text(lines(&host_runtimes::of_host(Path::new("/")).0))),
        ("doctor.json".to_owned(), Content::Json(findings(&host))),
        ("settings.json".to_owned(), Content::Json(sysctls(&host))),
        ("host/links.txt".to_owned(), Content::Text(host.live().map_or_else(unread, state))),
    ];
    files.extend(configurations(&host)?);
    for entry in &host.entries {
        let at = &entry.attach.attachment;
        let name = format!("{}-{}-{}", entry.network, at.container, at.ifname);
        files.push((format!("results/{name}.json"), Content::Json(result(entry))));
        let inside = entry.attach.netns.as_deref().map_or(Ok(None), Live::at);
        let inside = inside.map_or_else(|e| Some(unread(e.into())), |live| live.as_ref().map(state));
        files.extend(inside.map(|text| (format!("containers/{name}.txt"), Content::Text(text))));
    }
    files.extend(rules());
    files.extend(journal().map(|text| ("logs/journal.txt".to_owned(), Content::Text(text))));
    Ok(files)
}

fn versions(host: &Host<'_>) -> Value {
    let plugins: BTreeMap<String, _> =
        installed(host).into_iter().map(|(dir, banners)| (dir.display().to_string(), banners)).collect();
    json!({
        "cnitool": env!("CARGO_PKG_VERSION"),
        "protocol": Version::list(),
        "kernel": fs::read_to_string("/proc/version").unwrap_or_default().trim(),
        "system": system(&fs::read_to_string("/etc/os-release").unwrap_or_default()),
        "plugins": plugins,
    })
}

/// The assignments of os-release(5). As text, they would be removed like environment variables.
fn system(text: &str) -> BTreeMap<&str, &str> {
    let assignments = text.lines().filter_map(|line| line.split_once('='));
    assignments.map(|(key, value)| (key, value.trim_matches(['"', '\'']))).collect()
}

fn findings(host: &Host<'_>) -> Value {
    doctor::examine(host).iter().map(|(check, finding)| finding.json(check)).collect()
}

fn sysctls(host: &Host<'_>) -> Value {
    SETTINGS
        .iter()
        .map(|key| ((*key).to_owned(), host.sysctl(key).ok().flatten().into()))
        .collect::<serde_json::Map<_, Value>>()
        .into()
}

/// Configurations that are JSON. For other files, only the name and the error: secrets cannot be recognised in them.
fn configurations(host: &Host<'_>) -> Result<Vec<(String, Content)>> {
    let mut files = Vec::new();
    for dir in &host.network_dirs {
        for file in dir.conf.load()? {
            let name = format!("configurations{}", absolute(&file.file).display());
            let read = system::file::read(&file.file, MAX_BYTES);
            let read = read.map_err(|e| cni::Error::io("cannot be read", &e).msg().to_owned() + "\n");
            let json = read.and_then(|text| {
                let invalid = |e| format!("{} bytes, not JSON: {e}\n", text.len());
                serde_json::from_slice::<Value>(&text).map_err(invalid)
            });
            files.push(match json {
                Ok(json) => (name, Content::Json(json)),
                Err(why) => (name + ".error", Content::Text(why)),
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

fn unread(error: runtime::Error) -> String {
    format!("cannot be read: {error}\n")
}

fn lines(items: &[impl Debug]) -> String {
    items.iter().map(|item| format!("{item:?}\n")).collect()
}

fn rules() -> Vec<(String, Content)> {
    let programs = [NFT].into_iter().chain(legacy_saves().map(|program| (program, &[][..])));
    let printed = programs.filter_map(|(program, args)| Some((program, output(program, args)?)));
    printed.map(|(program, text)| (format!("rules/{program}.txt"), Content::Text(text))).collect()
}

/// Lines that contain CNI or Ferrule.
fn journal() -> Option<String> {
    let text = output("journalctl", JOURNAL)?;
    let is_ours = |line: &&str| {
        let line = line.to_ascii_lowercase();
        line.contains("cni") || line.contains("ferrule")
    };
    Some(text.lines().filter(is_ours).map(|line| format!("{line}\n")).collect())
}
