//! Networks: whether a container can be attached now, and how many addresses are free.

use cni::json;
use host_local::NEARLY_FULL;
use runtime::{Network, Result};

use super::{Finding, Host, plugins};
use crate::codes;
use crate::commands::status::{Answer, fill};

/// Networks whose plugins report in STATUS that they are not ready. Without root, plugins would fail for that reason alone.
pub fn status(host: &Host<'_>) -> Result<Vec<Finding>> {
    if !host.networks.is_empty() && !system::is_root() {
        let cause = "STATUS was not called: plugins need root";
        return Ok(vec![Finding::warning("networks", cause, "run `cnitool doctor` as root")]);
    }
    let mut findings = Vec::new();
    for one in &host.networks {
        let answer = Answer::of(one.network.clone(), &one.settings);
        let Err(error) = answer.status else { continue };
        findings.push(Finding::error(
            format!("network {}", one.network.name),
            format!("no container can be attached: {error}"),
            codes::remedy(&error),
        ));
    }
    Ok(findings)
}

/// Plugins that do not support the version of their network. They refuse ADD with code 1, and no runtime tries an earlier version. But older
/// runtimes ignore `cniVersions`.
pub fn version(host: &Host<'_>) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for one in &host.networks {
        let Network { name, version, .. } = &one.network;
        let runtime = one.settings.with_plugins_first(&one.plugins).runtime;
        // `networks.status` reports a plugin that is not installed, and `plugins.answer` one that does not answer.
        let kinds = plugins::kinds(one).into_iter();
        let answers: Vec<_> = kinds.filter_map(|kind| Some((runtime.versions(&kind).ok()?, kind))).collect();
        let lacks = |supported: &[String], version: &str| !supported.iter().any(|one| one == version);
        let older = cni_version(&one.network);
        let older = older.filter(|older| !answers.iter().any(|(supported, _)| lacks(supported, older)));
        for (supported, kind) in answers.iter().filter(|(supported, _)| lacks(supported, version.as_str())) {
            let why = format!(
                "the network has version {version}, but {kind} supports only {}",
                supported.join(", ")
            );
            let remedy = format!(
                "set `cniVersion` to a version that all plugins support (`cnitool version {name}` lists them), and remove newer \
                 ones from `cniVersions`"
            );
            let of = format!("network {name}");
            findings.push(match &older {
                None => Finding::error(of, format!("no container can be attached: {why}"), remedy),
                Some(older) => Finding::warning(
                    of,
                    format!(
                        "only a runtime that ignores `cniVersions`, and uses version {older}, can attach containers: {why}"
                    ),
                    remedy,
                ),
            });
        }
    }
    Ok(findings)
}

/// `cniVersion` of a network, without `cniVersions`.
fn cni_version(network: &Network) -> Option<String> {
    let config = json::parse(network.bytes(), "the network").ok()?;
    json::member(&config, "cniVersion")?.as_str().map(str::to_owned)
}

/// Range sets of host-local with few free addresses.
pub fn nearly_full(host: &Host<'_>) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for one in &host.networks {
        let full = fill(&one.network).into_iter();
        for fill in full.filter(|fill| fill.leased as u128 * 100 >= fill.capacity.saturating_mul(NEARLY_FULL))
        {
            let name = &one.network.name;
            findings.push(Finding::warning(
                format!("network {name}"),
                fill.text(),
                format!("remove stale leases (`cnitool gc {name} --dry-run` lists them), or add a range"),
            ));
        }
    }
    Ok(findings)
}
