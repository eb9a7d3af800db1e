//! `list`.

use std::time::SystemTime;

use runtime::{ConfFile, Entry, Network, Result};
use serde_json::{Value, json};

use crate::cli::Listed;
use crate::known;
use crate::network_dirs;
use crate::runtimes;
use crate::settings::Settings;
use crate::table::Table;
use crate::ui::{Style, Ui};

/// Lists networks, attachments, or both.
pub fn run(what: Option<Listed>, all: bool, settings: &Settings, ui: &Ui) -> Result<()> {
    let wants = |listed| what.is_none_or(|what| what == listed);
    let networks = if wants(Listed::Networks) { networks(all, settings, ui)? } else { Vec::new() };
    let entries =
        if wants(Listed::Attachments) { known::attachments(all, settings, ui)? } else { Vec::new() };
    if ui.json() {
        let networks: Vec<Value> = networks.iter().map(Listing::json).collect();
        let attachments: Vec<Value> = entries.iter().map(attachment_json).collect();
        return ui.print_json(&match what {
            None => json!({"networks": networks, "attachments": attachments}),
            Some(Listed::Networks) => json!(networks),
            Some(Listed::Attachments) => json!(attachments),
        });
    }
    let mut parts = Vec::new();
    if wants(Listed::Networks) {
        parts.push(networks_table(&networks).render(ui, ""));
    }
    if wants(Listed::Attachments) {
        parts.push(attachments_table(&entries).render(ui, ""));
    }
    ui.print(&parts.join("\n"))
}

/// A file in a network directory.
struct Listing {
    file: ConfFile,
    /// How a runtime that reads the directory uses the file.
    role: &'static str,
    /// The runtime that owns the file, if known.
    runtime: Option<&'static str>,
}

/// The files of cnitool's own directory, or of all directories.
fn networks(all: bool, settings: &Settings, ui: &Ui) -> Result<Vec<Listing>> {
    let (mut network_dirs, problems) = network_dirs::own_and_all(&settings.conf);
    if all {
        problems.iter().for_each(|problem| ui.warn(problem));
    } else {
        network_dirs.truncate(1);
    }
    let mut listings = Vec::new();
    for dir in network_dirs {
        let files = dir.conf.load()?;
        let used = dir.conf.networks()?;
        let roles: Vec<_> = (0..files.len()).map(|i| role(i, &files, &used)).collect();
        let whose = |file: &ConfFile| dir.runtime_of(file.network.as_ref().ok()?);
        listings.extend(files.into_iter().zip(roles).map(|(file, role)| {
            let runtime = whose(&file);
            Listing { file, role, runtime }
        }));
    }
    Ok(listings)
}

/// How a runtime uses a file. `used` are the networks that runtimes find by their names.
fn role(index: usize, files: &[ConfFile], used: &[Network]) -> &'static str {
    let Ok(own) = &files[index].network else { return "invalid" };
    let first_valid = files.iter().position(|file| file.network.is_ok());
    if first_valid == Some(index) {
        "default"
    } else if used.iter().any(|other| other.name == own.name && other.file != own.file) {
        "name taken"
    } else {
        ""
    }
}

fn kinds(network: &Network) -> Vec<&str> {
    network.plugins.iter().map(|plugin| plugin.kind.as_str()).collect()
}

fn networks_table(listings: &[Listing]) -> Table {
    let mut table = Table::new(["NETWORK", "RUNTIME", "VERSION", "PLUGINS", "", "FILE"]);
    for Listing { file, role, runtime } in listings {
        let path = (file.file.display().to_string(), Style::Dim);
        table.row(match &file.network {
            Ok(network) => [
                (network.name.to_string(), Style::Name),
                (runtimes::name(*runtime).to_owned(), Style::Plain),
                (network.version.to_string(), Style::Plain),
                (kinds(network).join(", "), Style::Plain),
                ((*role).to_owned(), Style::Good),
                path,
            ],
            Err(_) => {
                let blank = || (String::new(), Style::Plain);
                let invalid = (role.to_string(), Style::Bad);
                [("-".to_owned(), Style::Dim), blank(), blank(), blank(), invalid, path]
            }
        });
    }
    table
}

impl Listing {
    fn json(&self) -> Value {
        let network = self.file.network.as_ref().ok();
        json!({
            "file": self.file.file.to_string_lossy(),
            "name": network.map(|network| network.name.as_str()),
            "runtime": self.runtime,
            "cniVersion": network.map(|network| network.version),
            "plugins": network.map(kinds),
            "default": self.role == "default",
            "error": self.file.network.as_ref().err().map(ToString::to_string),
        })
    }
}

fn attachments_table(entries: &[Entry]) -> Table {
    let mut table =
        Table::new(["NETWORK", "INTERFACE", "RUNTIME", "CONTAINER", "ADDRESSES", "NAMESPACE", "AGE"]);
    for entry in entries {
        let netns = entry.attach.netns.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        let (style, state) = match entry.exists() {
            Ok(true) => (Style::Plain, String::new()),
            Ok(false) => (Style::Bad, " (gone)".to_owned()),
            Err(e) => (Style::Warning, format!(" (cannot be read: {e})")),
        };
        table.row([
            (entry.network.to_string(), Style::Name),
            (entry.attach.attachment.ifname.to_string(), Style::Plain),
            (runtimes::name(runtimes::of_attachment(entry)).to_owned(), Style::Plain),
            (entry.attach.attachment.container.to_string(), Style::Plain),
            (addresses(entry).join("\n"), Style::Plain),
            (format!("{netns}{state}"), style),
            (age(entry.added), Style::Dim),
        ]);
    }
    table
}

fn attachment_json(entry: &Entry) -> Value {
    json!({
        "network": entry.network.as_str(),
        "containerID": entry.attach.attachment.container.as_str(),
        "ifname": entry.attach.attachment.ifname.as_str(),
        "netns": entry.attach.netns,
        "alive": entry.exists().ok(),
        "runtime": runtimes::of_attachment(entry),
        "addresses": addresses(entry),
    })
}

/// The addresses of the container.
pub fn addresses(entry: &Entry) -> Vec<String> {
    entry.result().map(|result| result.addresses().map(|net| net.to_string()).collect()).unwrap_or_default()
}

/// An age in one unit, rounded down.
fn age(added: Option<SystemTime>) -> String {
    let Some(age) = added.and_then(|added| added.elapsed().ok()) else { return String::new() };
    match age.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} d", seconds / 86400),
    }
}
