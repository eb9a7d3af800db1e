//! Stale resources, as in a dry run of GC.

use std::collections::{BTreeMap, BTreeSet};

use cni::NetworkName;
use runtime::{Error, Result};

use super::{Finding, Host};
use crate::cleanup::{KeepReason, Plan, PlanOptions};

/// Stale leases, links and rules, and resources whose container is unknown.
pub fn check(host: &Host<'_>) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for one in host.known.iter().filter(|one| !one.network.disable_gc) {
        let name = &one.network.name;
        let plan = match Plan::make(&one.network, &PlanOptions::default(), &one.settings) {
            Ok(plan) => plan,
            Err(e) => {
                findings.push(unread(name, &e));
                continue;
            }
        };
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        kinds.extend(Some(("attachment", plan.delete.len())).filter(|(_, count)| *count > 0));
        plan.removed.iter().for_each(|resource| *kinds.entry(&resource.kind).or_default() += 1);
        if !kinds.is_empty() {
            findings.push(Finding::warning(
                format!("network {name}"),
                format!("stale resources of deleted containers: {}", counted(&kinds)),
                format!("run `cnitool gc {name}`, or enable cni-gc.timer, which runs GC every hour"),
            ));
        }
        let mut kept: BTreeMap<&str, usize> = BTreeMap::new();
        let mut values = BTreeSet::new();
        for (resource, why) in plan.kept.iter().filter(|(_, why)| !why.is_alive()) {
            *kept.entry(&resource.kind).or_default() += 1;
            values.insert(if *why == KeepReason::NoOwner { "NAME" } else { "CONTAINER" });
        }
        if !kept.is_empty() {
            let command = |value: &&str| format!("`cnitool gc {name} --force {value}`");
            let commands: Vec<String> = values.iter().map(command).collect();
            findings.push(Finding::note(
                format!("network {name}"),
                format!("resources whose container may be alive, or is unknown: {}", counted(&kept)),
                format!(
                    "`cnitool gc {name} --dry-run` lists them. To remove them, also from a running container, run {}",
                    commands.join(" or, if the owner is unknown, ")
                ),
            ));
        }
    }
    Ok(findings)
}

fn unread(name: &NetworkName, error: &Error) -> Finding {
    Finding::unread(format!("network {name}"), format!("stale resources cannot be listed: {error}"))
}

fn counted(kinds: &BTreeMap<&str, usize>) -> String {
    let text = |(kind, count): (&&str, &usize)| {
        format!("{count} {kind}{}", if *count == 1 || kind.ends_with('s') { "" } else { "s" })
    };
    kinds.iter().map(text).collect::<Vec<_>>().join(", ")
}
