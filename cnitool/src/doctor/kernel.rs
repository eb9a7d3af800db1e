//! Features of the kernel that configured networks need. STATUS of the plugins reports missing parts of nf_tables.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use host_local::{Conf, RangeSet};
use netlink::{LinkKind, Netlink, NewLink};
use netns::NetNs;
use runtime::Result;
use validate::{ranges, schema};

use super::{Finding, Host};

/// The kernel's error message for an unknown link kind.
const UNKNOWN: &str = "Unknown device type";

/// Link kinds that the kernel does not support.
pub fn links(host: &Host<'_>) -> Result<Vec<Finding>> {
    let mut needed: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for network in host.networks.iter().map(|one| &one.network) {
        for plugin in &network.plugins {
            let known = schema::plugin(plugin.kind.as_str());
            for kind in known.into_iter().flat_map(|known| known.link_kinds) {
                needed.entry(*kind).or_default().push(network.name.to_string());
            }
        }
    }
    let modules = Modules::of_this_kernel();
    needed.retain(|(kind, module), _| !modules.has(module).unwrap_or_else(|| kernel_makes(kind)));
    let finding = |((kind, module), networks): ((&str, &str), Vec<String>)| {
        Finding::error(
            format!("network {}", networks.join(", ")),
            format!("the kernel has no links of kind {kind}"),
            format!("install the package with the kernel's module {module}, or boot a kernel that has it"),
        )
    };
    Ok(needed.into_iter().map(finding).collect())
}

/// Tries to create a link of the kind in a namespace that is deleted when this function returns. Call this only if the
/// kernel has no module directory: otherwise the kernel would load the module.
fn kernel_makes(kind: &str) -> bool {
    let attempt = || {
        let link = NewLink::new("probe0", LinkKind::Other(kind.to_owned()));
        Netlink::open()?.create_link(&link)
    };
    match NetNs::scratch(attempt) {
        Ok(Err(e)) => !e.kernel_text().is_some_and(|text| text.contains(UNKNOWN)),
        _ => true,
    }
}

/// The modules of the running kernel, as depmod(8) lists them. None: the kernel has no module directory.
struct Modules(Option<String>);

impl Modules {
    fn of_this_kernel() -> Self {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let dir = PathBuf::from("/lib/modules").join(release.trim());
        let list = |name| fs::read_to_string(dir.join(name)).ok();
        Self(list("modules.dep").map(|loadable| loadable + &list("modules.builtin").unwrap_or_default()))
    }

    /// Whether the kernel has a module. None: the files do not show it.
    fn has(&self, name: &str) -> Option<bool> {
        if Path::new("/sys/module").join(name).exists() {
            return Some(true);
        }
        self.0.as_ref().map(|list| list.contains(&format!("/{name}.ko")))
    }
}

/// Disabled IPv6, of the host or of a network's bridge, if the network has IPv6 addresses. The host's default for new links does not matter:
/// ADD enables IPv6 on links that it creates.
pub fn ipv6(host: &Host<'_>) -> Result<Vec<Finding>> {
    let is_off = host.sysctl("net/ipv6/conf/all/disable_ipv6")?.is_none_or(|value| value != "0");
    let live = host.live()?;
    let mut findings = Vec::new();
    for network in host.networks.iter().map(|one| &one.network) {
        let has_v6 =
            |conf: &Conf| conf.sets.iter().flat_map(RangeSet::ranges).any(|range| range.subnet.is_ipv6());
        let mut parts = ranges::by_host_local(network).into_iter().filter(|(_, conf)| has_v6(conf));
        let disabled = if is_off {
            parts.next().map(|_| ("this host".to_owned(), "all".to_owned()))
        } else {
            let bridge = parts.find_map(|(request, _)| {
                live.link(ranges::gateway_bridge(&request)?).filter(|link| link.disable_ipv6 == Some(1))
            });
            bridge.map(|link| (format!("bridge {}", link.name), link.name.clone()))
        };
        if let Some((place, name)) = disabled {
            let cause = format!("the network has IPv6 addresses, but IPv6 is disabled on {place}");
            let remedy = format!(
                "run `sysctl -w net/ipv6/conf/{name}/disable_ipv6=0`, and remove the setting from /etc/sysctl.d and the kernel's \
                 command line"
            );
            findings.push(Finding::error(format!("network {}", network.name), cause, remedy));
        }
    }
    Ok(findings)
}
