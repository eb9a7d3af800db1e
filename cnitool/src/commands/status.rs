//! `status`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cni::{Code, Command, PluginType, Version};
use runtime::{ConfDir, ConfFile, Error, Network, PluginConf, Result};
use serde_json::{Value, json};
use validate::ranges;

use crate::exit;
use crate::leases;
use crate::settings::Settings;
use crate::table::Table;
use crate::ui::{Style, Ui};

/// Runs STATUS of one network, or of all.
///
/// # Errors
/// Without root: plugins would fail for that reason alone.
pub fn run(name: Option<&str>, settings: &Settings, ui: &Ui) -> Result<ExitCode> {
    let (networks, invalid) = match name {
        Some(name) => (vec![settings.network(name)?], Vec::new()),
        None => configured(&settings.conf)?,
    };
    if !system::is_root() {
        let error = cni::Error::new(Code::Internal, "STATUS was not called: plugins need root");
        return Err(error.detail("run `cnitool status` as root").into());
    }
    let answers: Vec<Answer> = networks.into_iter().map(|network| Answer::of(network, settings)).collect();
    let json = || answers.iter().map(Answer::json).chain(invalid.iter().map(Invalid::json)).collect();
    ui.either(json, || table(&answers, &invalid).render(ui, ""))?;
    // `min_by_key` returns the first of equally severe failures.
    let worst = answers.into_iter().filter_map(|answer| answer.status.err()).min_by_key(severity);
    Ok(match worst {
        Some(error) => {
            // A script may discard stdout. If it has named a network, stderr also says why it is not ready.
            if name.is_some() && !ui.is_seen() {
                ui.fail(&error);
            }
            exit::code(&error)
        }
        None if invalid.is_empty() => ExitCode::SUCCESS,
        None => ExitCode::from(3),
    })
}

/// The order of failures by severity. The smallest is the worst: running containers may have lost their network.
fn severity(error: &Error) -> u8 {
    match error.code() {
        51 => 0,
        50 => 1,
        _ => 2,
    }
}

/// The networks of the directory, and its invalid files.
///
/// # Errors
/// Code 7 if the directory contains no file, because no container can be attached then.
fn configured(dir: &ConfDir) -> Result<(Vec<Network>, Vec<Invalid>)> {
    let (mut networks, mut invalid) = (Vec::new(), Vec::new());
    for ConfFile { file, network } in dir.load()? {
        match network {
            Ok(network) => networks.push(network),
            Err(error) => invalid.push(Invalid { file, error }),
        }
    }
    if networks.is_empty() && invalid.is_empty() {
        let text = format!("no network configuration in {}", dir.path().display());
        return Err(cni::Error::config(text).into());
    }
    Ok((networks, invalid))
}

/// A file that is not a valid network.
struct Invalid {
    file: PathBuf,
    error: Error,
}

impl Invalid {
    fn json(&self) -> Value {
        json!({
            "file": self.file.to_string_lossy(), "network": null, "ready": false, "notAsked": [], "leased": 0, "ranges": [],
            "code": self.error.code(), "msg": self.error.to_string(),
        })
    }
}

/// The answers of a network's plugins to STATUS.
pub struct Answer {
    network: Network,
    pub status: Result<()>,
    /// Plugins that do not support STATUS, and why.
    unsupported: Vec<(PluginType, String)>,
}

impl Answer {
    /// STATUS exists since version 1.1.0. A plugin that supports 1.1.0 receives STATUS in this version, whatever
    /// version the network has, because configurations of both versions mean the same.
    pub fn of(network: Network, settings: &Settings) -> Self {
        let mut answers = network.clone();
        answers.version = network.version.max(Command::Status.since());
        let (mut unsupported, mut missing) = (Vec::new(), None);
        answers.plugins.retain(|plugin| match why_unsupported(plugin, settings) {
            Ok(None) => true,
            Ok(Some(why)) => {
                unsupported.push((plugin.kind.clone(), why));
                false
            }
            Err(error) => {
                missing.get_or_insert(error);
                false
            }
        });
        let status = missing.map_or_else(|| settings.runtime.status(&answers), Err);
        Self { network, status, unsupported }
    }

    /// None if a plugin does not support STATUS.
    fn is_ready(&self) -> Option<bool> {
        match &self.status {
            Err(_) => Some(false),
            Ok(()) if self.unsupported.is_empty() => Some(true),
            Ok(()) => None,
        }
    }

    fn json(&self) -> Value {
        let error = self.status.as_ref().err();
        let unsupported =
            self.unsupported.iter().map(|(plugin, why)| json!({"plugin": plugin.as_str(), "why": why}));
        let leased = leases::of(&self.network);
        json!({
            "file": self.network.file.as_deref().map(Path::to_string_lossy),
            "network": self.network.name.as_str(),
            "ready": self.is_ready(),
            "notAsked": unsupported.collect::<Vec<_>>(),
            "leased": leased.len(),
            "ranges": fill(&self.network).iter().map(Fill::json).collect::<Vec<_>>(),
            "code": error.map(Error::code),
            "msg": error.map(ToString::to_string),
        })
    }
}

/// Why a plugin does not support STATUS. None if it does.
///
/// # Errors
/// If the plugin is not installed or does not answer.
fn why_unsupported(plugin: &PluginConf, settings: &Settings) -> Result<Option<String>> {
    let since = Command::Status.since();
    for kind in plugin.kinds() {
        let spoken = settings.runtime.versions(&kind)?;
        if !spoken.iter().any(|version| version == since.as_str()) {
            let newest = spoken.iter().filter_map(|version| Version::parse(version).ok()).max();
            let newest = newest.map_or("no known version".to_owned(), |version| format!("at most {version}"));
            return Ok(Some(format!("STATUS needs version {since}, but {kind} supports {newest}")));
        }
    }
    Ok(None)
}

/// How many addresses of a range set are leased.
pub struct Fill {
    pub range: String,
    pub leased: usize,
    pub capacity: u128,
}

/// The range sets of a network. If several of its plugins have the same set, they share its leases.
pub fn fill(network: &Network) -> Vec<Fill> {
    let leased = leases::of(network);
    let count = |set: &host_local::RangeSet| leased.iter().filter(|ip| set.range_of(**ip).is_some()).count();
    let fill = |set: host_local::RangeSet| Fill {
        range: set.to_string(),
        leased: count(&set),
        capacity: set.capacity(),
    };
    let mut fills: Vec<Fill> = ranges::sets(network).into_iter().map(fill).collect();
    let mut seen = BTreeSet::new();
    fills.retain(|fill| seen.insert(fill.range.clone()));
    fills
}

impl Fill {
    fn json(&self) -> Value {
        // A number that JSON cannot represent is null.
        json!({"range": self.range, "leased": self.leased, "capacity": u64::try_from(self.capacity).ok()})
    }

    pub fn text(&self) -> String {
        let Self { range, leased, capacity } = self;
        match u32::try_from(*capacity) {
            Ok(capacity) => format!("{leased} of {capacity} addresses of {range} are leased"),
            Err(_) => format!("{leased} addresses of {range} are leased"),
        }
    }
}

fn table(answers: &[Answer], invalid: &[Invalid]) -> Table {
    let mut table = Table::new(["NETWORK", "STATUS", "WHY"]);
    for answer in answers {
        let status = match (&answer.status, answer.is_ready()) {
            (Err(error), _) => (format!("not ready ({})", error.code()), Style::Bad),
            (_, Some(_)) => ("ready".to_owned(), Style::Good),
            _ => ("unknown".to_owned(), Style::Warning),
        };
        let mut lines: Vec<String> =
            answer.status.as_ref().err().map(ToString::to_string).into_iter().collect();
        lines.extend(answer.unsupported.iter().map(|(plugin, why)| format!("{plugin}: {why}")));
        lines.extend(fill(&answer.network).iter().map(Fill::text));
        table.row([(answer.network.name.to_string(), Style::Name), status, (lines.join("\n"), Style::Plain)]);
    }
    for Invalid { file, error } in invalid {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        table.row([
            (name, Style::Name),
            ("invalid".to_owned(), Style::Bad),
            (error.to_string(), Style::Plain),
        ]);
    }
    table
}
