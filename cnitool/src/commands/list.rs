//! `list`.

use std::time::SystemTime;

use runtime::{ConfFile, Entry, Network, Result};
use serde_json::{Value, json};

use crate::cli::Listed;
use crate::settings::Settings;
use crate::table::Table;
use crate::ui::{Style, Ui};

/// Networks, attachments, or both.
pub fn run(what: Option<Listed>, settings: &Settings, ui: &Ui) -> Result<()> {
    let wants = |listed| what.is_none_or(|what| what == listed);
    let files = if wants(Listed::Networks) { settings.conf.load()? } else { Vec::new() };
    let entries = if wants(Listed::Attachments) { settings.runtime.results().list()? } else { Vec::new() };
    if ui.json() {
        let networks: Vec<Value> =
            files.iter().enumerate().map(|(i, file)| network_json(i, file, &files)).collect();
        let attachments: Vec<Value> = entries.iter().map(attachment_json).collect();
        return ui.print_json(&match what {
            None => json!({"networks": networks, "attachments": attachments}),
            Some(Listed::Networks) => json!(networks),
            Some(Listed::Attachments) => json!(attachments),
        });
    }
    let mut parts = Vec::new();
    if wants(Listed::Networks) {
        parts.push(networks_table(&files).render(ui, ""));
    }
    if wants(Listed::Attachments) {
        parts.push(attachments_table(&entries).render(ui, ""));
    }
    ui.print(&parts.join("\n"))
}

/// What a file is to a runtime.
fn role(index: usize, files: &[ConfFile]) -> &'static str {
    let name = |file: &ConfFile| file.network.as_ref().ok().map(|network| network.name.clone());
    let Some(own) = name(&files[index]) else { return "invalid" };
    let first_valid = files.iter().position(|file| file.network.is_ok());
    if first_valid == Some(index) {
        "default"
    } else if files[..index].iter().any(|file| name(file).as_ref() == Some(&own)) {
        "name taken"
    } else {
        ""
    }
}

fn kinds(network: &Network) -> Vec<&str> {
    network.plugins.iter().map(|plugin| plugin.kind.as_str()).collect()
}

fn networks_table(files: &[ConfFile]) -> Table {
    let mut table = Table::new(["NETWORK", "VERSION", "PLUGINS", "", "FILE"]);
    for (i, file) in files.iter().enumerate() {
        let path = (file.file.display().to_string(), Style::Dim);
        table.row(match &file.network {
            Ok(network) => [
                (network.name.to_string(), Style::Name),
                (network.version.to_string(), Style::Plain),
                (kinds(network).join(", "), Style::Plain),
                (role(i, files).to_owned(), Style::Good),
                path,
            ],
            Err(_) => {
                let blank = || (String::new(), Style::Plain);
                [("-".to_owned(), Style::Dim), blank(), blank(), ("invalid".to_owned(), Style::Bad), path]
            }
        });
    }
    table
}

fn network_json(index: usize, file: &ConfFile, files: &[ConfFile]) -> Value {
    let network = file.network.as_ref().ok();
    json!({
        "file": file.file,
        "name": network.map(|network| network.name.as_str()),
        "cniVersion": network.map(|network| network.version),
        "plugins": network.map(kinds),
        "default": role(index, files) == "default",
        "error": file.network.as_ref().err().map(ToString::to_string),
    })
}

fn attachments_table(entries: &[Entry]) -> Table {
    let mut table = Table::new(["NETWORK", "INTERFACE", "CONTAINER", "ADDRESSES", "NAMESPACE", "AGE"]);
    for entry in entries {
        let netns = entry.attach.netns.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        let style = if entry.is_alive() { Style::Plain } else { Style::Bad };
        let gone = if entry.is_alive() { "" } else { " (gone)" };
        table.row([
            (entry.network.to_string(), Style::Name),
            (entry.attach.attachment.ifname.to_string(), Style::Plain),
            (entry.attach.attachment.container.to_string(), Style::Plain),
            (addresses(entry).join("\n"), Style::Plain),
            (format!("{netns}{gone}"), style),
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
        "alive": entry.is_alive(),
        "addresses": addresses(entry),
    })
}

/// The addresses that the container got.
pub fn addresses(entry: &Entry) -> Vec<String> {
    entry.result().map(|result| result.addresses().map(|net| net.to_string()).collect()).unwrap_or_default()
}

/// Roughly, as people say it.
fn age(added: Option<SystemTime>) -> String {
    let Some(age) = added.and_then(|added| added.elapsed().ok()) else { return String::new() };
    match age.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} d", seconds / 86400),
    }
}
