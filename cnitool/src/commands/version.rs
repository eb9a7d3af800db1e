//! `version`.

use cni::{PluginType, REFERENCE_RELEASE, Version};
use runtime::{PluginConf, Result};
use serde_json::{Value, json};

use crate::settings::Settings;
use crate::table::Table;
use crate::ui::{Style, Ui};

/// Prints the protocol versions of cnitool, of plugins by their names, or of the plugins of networks.
pub fn run(names: &[String], settings: &Settings, ui: &Ui) -> Result<()> {
    if names.is_empty() {
        let own = env!("CARGO_PKG_VERSION");
        let spoken: Vec<&str> = Version::ALL.map(Version::as_str).to_vec();
        return ui.either(
            || json!({"cnitool": own, "referenceRelease": REFERENCE_RELEASE, "supportedVersions": spoken}),
            || {
                format!(
                    "cnitool {own} (Ferrule, in place of containernetworking/plugins v{REFERENCE_RELEASE})\n\
                     CNI protocol versions supported: {}\n",
                    Version::list()
                )
            },
        );
    }
    let kinds = kinds(names, settings)?;
    let answers: Vec<(PluginType, Result<Vec<String>>)> =
        kinds.into_iter().map(|kind| (kind.clone(), settings.runtime.versions(&kind))).collect();
    ui.either(
        || answers.iter().map(|(kind, versions)| json(kind, versions)).collect(),
        || table(&answers, ui),
    )?;
    answers.into_iter().find_map(|(_, versions)| versions.err()).map_or(Ok(()), Err)
}

/// Finds a name: a network's, or else a plugin's.
fn kinds(names: &[String], settings: &Settings) -> Result<Vec<PluginType>> {
    let mut kinds = Vec::new();
    for name in names {
        match settings.network(name) {
            Err(error) if name.contains('/') => return Err(error),
            Ok(network) => kinds.extend(network.plugins.iter().flat_map(PluginConf::kinds)),
            Err(_) => kinds.push(plugin(name)?),
        }
    }
    Ok(kinds)
}

fn plugin(name: &str) -> Result<PluginType> {
    Ok(PluginType::parse(name).map_err(|e| cni::Error::config(format!("the plugin's name {e}")))?)
}

fn json(kind: &PluginType, versions: &Result<Vec<String>>) -> Value {
    json!({
        "plugin": kind.as_str(),
        "supportedVersions": versions.as_ref().ok(),
        "error": versions.as_ref().err().map(ToString::to_string),
    })
}

fn table(answers: &[(PluginType, Result<Vec<String>>)], ui: &Ui) -> String {
    let mut table = Table::new(["PLUGIN", "VERSIONS"]);
    for (kind, versions) in answers {
        let spoken = match versions {
            Ok(versions) => (versions.join(", "), Style::Plain),
            Err(_) => ("does not answer".to_owned(), Style::Bad),
        };
        table.row([(kind.to_string(), Style::Name), spoken]);
    }
    table.render(ui, "")
}
