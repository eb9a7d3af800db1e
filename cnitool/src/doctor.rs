//! `doctor`: checks of the whole host. Each group of checks is a file; each check is a function from [`Host`] to
//! findings. A check changes nothing.

mod attachments;
mod bridges;
mod configurations;
mod finding;
mod firewalls;
mod forwarding;
mod host;
mod kernel;
mod mtu;
mod networks;
mod plugins;
mod stale;

use runtime::Result;

pub use self::finding::{Finding, Severity};
pub use self::host::Host;
pub use self::plugins::installed;

/// The remedy for an attachment that only ADD can create. On Kubernetes, the restart of a container calls no plugin.
const RECREATE: &str = "delete the pod, or restart the container";

/// A check, and its name in JSON.
type Check = (&'static str, fn(&Host<'_>) -> Result<Vec<Finding>>);

const CHECKS: &[Check] = &[
    ("plugins.answer", plugins::answer),
    ("plugins.suite", plugins::suite),
    ("plugins.version", plugins::version),
    ("plugins.path", plugins::path),
    ("configurations.valid", configurations::valid),
    ("configurations.any", configurations::any),
    ("networks.status", networks::status),
    ("networks.version", networks::version),
    ("networks.bridge", bridges::check),
    ("networks.full", networks::nearly_full),
    ("kernel.links", kernel::links),
    ("kernel.ipv6", kernel::ipv6),
    ("attachments.check", attachments::check),
    ("attachments.results", attachments::results),
    ("stale", stale::check),
    ("forwarding", forwarding::check),
    ("mtu.bridge", mtu::bridge),
    ("mtu.uplink", mtu::uplink),
    ("firewalls.nftables", firewalls::nftables),
    ("firewalls.legacy", firewalls::legacy),
];

/// Runs all checks. The findings are sorted by severity, the worst first. A warning is left out if an error has its cause and remedy for the same
/// network: STATUS and CHECK may report what a check of `doctor` finds too.
pub fn examine(host: &Host<'_>) -> Vec<(&'static str, Finding)> {
    let mut found = Vec::new();
    for (name, check) in CHECKS {
        match check(host) {
            Ok(findings) => found.extend(findings.into_iter().map(|finding| (*name, finding))),
            Err(e) => found.push((*name, not_checked(name, &e))),
        }
    }
    found.sort_by_key(|(_, finding)| finding.severity);
    let errors: Vec<Finding> = found.iter().map(|(_, finding)| finding.clone()).filter(is_error).collect();
    found.retain(|(_, finding)| is_error(finding) || !errors.iter().any(|error| error.includes(finding)));
    found
}

fn is_error(finding: &Finding) -> bool {
    finding.severity == Severity::Error
}

/// The number of checks.
pub fn count() -> usize {
    CHECKS.len()
}

fn not_checked(name: &str, error: &runtime::Error) -> Finding {
    Finding::warning(
        format!("check {name}"),
        format!("the check failed: {error}"),
        "run `cnitool doctor` as root, in the host's namespaces",
    )
}
