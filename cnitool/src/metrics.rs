//! Metrics of a host in Prometheus' text format (version 0.0.4).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::SystemTime;

use runtime::{Entry, Network};

use crate::cleanup::{Plan, PlanOptions};
use crate::commands::status::{Fill, fill};
use crate::doctor::Host;
use crate::ui::Ui;

mod sightings;

use sightings::Sightings;

/// The name of the note with the number of repairs since boot.
pub const REPAIRS: &str = "repairs";

/// A metric: its name, type and meaning.
type Metric = (&'static str, &'static str, &'static str);

const USED: Metric =
    ("cni_addresses_used", "gauge", "Addresses of a range set of host-local that are leased.");
const FREE: Metric =
    ("cni_addresses_free", "gauge", "Addresses of a range set of host-local that are not leased.");
const ATTACHMENTS: Metric = (
    "cni_attachments",
    "gauge",
    "Attachments in the caches of this host, once for each plugin of their network.",
);
const OLDEST: Metric =
    ("cni_attachment_oldest_age_seconds", "gauge", "Age of the oldest attachment of a network.");
const STALE: Metric = (
    "cni_stale_things",
    "gauge",
    "Attachments, leases, links and rules of exited containers, which gc would remove.",
);
const STALE_OLDEST: Metric = (
    "cni_stale_oldest_age_seconds",
    "gauge",
    "Age of the oldest stale attachment of a network; 0 if there is none.",
);
const STALE_KNOWN: Metric = (
    "cni_stale_known_age_seconds",
    "gauge",
    "Age of the oldest stale resource of a network, counted from the first run of cnitool metrics that found it; 0 if there is none.",
);
const UNKNOWN: Metric = (
    "cni_unattributed_things",
    "gauge",
    "Resources that gc keeps because it does not know whether their container is alive.",
);
const FAILED: Metric = (
    "cni_network_examined",
    "gauge",
    "1 if all Ferrule plugins of a network listed their resources, else 0. Other plugins do not count.",
);
const REPAIRED: Metric = (
    "cni_repairs_total",
    "counter",
    "Attachments whose rules cnitool repair has restored since the host was started.",
);

const ALL: [Metric; 10] =
    [USED, FREE, ATTACHMENTS, OLDEST, STALE, STALE_OLDEST, STALE_KNOWN, UNKNOWN, FAILED, REPAIRED];

/// Samples, by metric.
#[derive(Debug, Default)]
struct Samples(BTreeMap<&'static str, Vec<String>>);

/// Collects the metrics of the host. Stores when each stale resource was first found, and warns if that fails.
pub fn text(host: &Host<'_>, ui: &Ui) -> String {
    let mut samples = Samples::default();
    let mut sightings = Sightings::read();
    for one in &host.known {
        samples.addresses(&one.network);
        samples.attachments(&one.network, &host.entries);
        // GC does not touch such a network.
        if one.network.disable_gc {
            continue;
        }
        let plan = Plan::make(&one.network, &PlanOptions::default(), &one.settings).ok();
        let labels = [("network", one.network.name.as_str())];
        samples.put(FAILED, &labels, u128::from(plan.is_some()));
        if let Some(plan) = plan {
            samples.stale(&one.network, &plan);
            let age = sightings.note(&one.network.name, &plan);
            samples.put(STALE_KNOWN, &labels, u128::from(age));
        }
    }
    if let Err(e) = sightings.write() {
        ui.warn(&format!(
            "{} starts again at 0 in each run: write /run/ferrule/stale.boot: {e}",
            STALE_KNOWN.0
        ));
    }
    let repairs = system::boot::noted(REPAIRS).and_then(|count| count.parse().ok()).unwrap_or_default();
    samples.put(REPAIRED, &[], repairs);
    samples.render()
}

impl Samples {
    fn put(&mut self, metric: Metric, labels: &[(&str, &str)], value: u128) {
        let label = |(key, value): &(&str, &str)| format!("{key}=\"{}\"", escaped(value));
        let labels: Vec<String> = labels.iter().map(label).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        self.0.entry(metric.0).or_default().push(format!("{}{labels} {value}\n", metric.0));
    }

    fn addresses(&mut self, network: &Network) {
        for Fill { range, leased, capacity } in fill(network) {
            let (labels, used) = ([("network", network.name.as_str()), ("range", &range)], leased as u128);
            self.put(USED, &labels, used);
            self.put(FREE, &labels, capacity.saturating_sub(used));
        }
    }

    fn attachments(&mut self, network: &Network, entries: &[Entry]) {
        let own: Vec<&Entry> = entries.iter().filter(|entry| entry.network == network.name).collect();
        // A network may contain the same plugin twice.
        let plugins: BTreeSet<&str> = network.plugins.iter().map(|plugin| plugin.kind.as_str()).collect();
        for plugin in plugins {
            let labels = [("network", network.name.as_str()), ("plugin", plugin)];
            self.put(ATTACHMENTS, &labels, own.len() as u128);
        }
        if let Some(age) = own.iter().filter_map(|entry| age(entry)).max() {
            self.put(OLDEST, &[("network", network.name.as_str())], age);
        }
    }

    fn stale(&mut self, network: &Network, plan: &Plan) {
        let name = ("network", network.name.as_str());
        let mut kinds = BTreeMap::from([("attachment", plan.delete.len() as u128)]);
        plan.removed.iter().for_each(|resource| *kinds.entry(&resource.kind).or_default() += 1);
        for (kind, count) in kinds {
            self.put(STALE, &[name, ("kind", kind)], count);
        }
        let oldest = plan.delete.iter().chain(&plan.stale_elsewhere).filter_map(age).max();
        self.put(STALE_OLDEST, &[name], oldest.unwrap_or_default());
        let unknown = plan.kept.iter().filter(|(_, why)| !why.is_alive()).count();
        self.put(UNKNOWN, &[name], unknown as u128);
    }

    /// Metrics without samples are described too, so that alerts can name them on any host.
    fn render(&self) -> String {
        let mut text = String::new();
        for (name, kind, help) in ALL {
            // Writing to a string cannot fail.
            write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n").ok();
            text.extend(self.0.get(name).into_iter().flatten().map(String::as_str));
        }
        text
    }
}

fn age(entry: &Entry) -> Option<u128> {
    let age = SystemTime::now().duration_since(entry.added?).unwrap_or_default();
    Some(u128::from(age.as_secs()))
}

/// A label's value, escaped for the format.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The names of all metrics in a dashboard or in alert rules.
#[cfg(test)]
fn named(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("cni_")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const DASHBOARD: &str = include_str!("../../packaging/prometheus/grafana-dashboard.json");
    const RULES: &str = include_str!("../../packaging/prometheus/alerts.yml");
    const PAGE: &str = include_str!("../../docs/metrics.md");

    #[test]
    fn the_dashboard_and_the_alerts_name_metrics_that_exist_and_the_page_describes_each() {
        let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
        assert!(!dashboard["panels"].as_array().unwrap().is_empty());
        for name in named(DASHBOARD).into_iter().chain(named(RULES)) {
            assert!(ALL.iter().any(|(metric, ..)| *metric == name), "{name}");
        }
        for (name, ..) in ALL {
            assert!(named(DASHBOARD).contains(&name), "the dashboard shows {name}");
            assert!(PAGE.contains(&format!("| `{name}` |")), "docs/metrics.md describes {name}");
        }
    }

    #[test]
    fn labels_are_escaped() {
        let mut samples = Samples::default();
        samples.put(UNKNOWN, &[("network", "a\"b\\c\nd")], 1);
        assert!(samples.render().contains("cni_unattributed_things{network=\"a\\\"b\\\\c\\nd\"} 1\n"));
    }
}
