//! `create`: checks a new network before Podman stores it.

use cni::{Error, Result, json};
use serde_json::{Map, Value, json as value};

use crate::chain::host_interface;
use crate::document::Network;
use crate::options::{Kind, Options};
use crate::source::Source;
use crate::{address, check, rootless, warn};

/// Maximum length of a network's name, in bytes. The name of a file has 255 bytes at most, a container's id has 64, and an interface's name 15.
const LONGEST_NAME: usize = 255 - "-".len() - 64 - "-".len() - 15;

/// Checks a network, and adds the members that Podman displays.
///
/// # Errors
/// Code 7 with each mistake: the option or the position in the file, and the remedy.
pub fn create(mut document: Map<String, Value>) -> Result<Map<String, Value>> {
    rootless::refuse()?;
    let mut network: Network = json::decode(&Value::Object(document.clone()))?;
    take_servers(&mut network);
    let options = Options::read(&network.options)?;
    match options.kind {
        Kind::File(_) => refuse_flags(&network)?,
        Kind::Type(_) => refuse_ipam_driver(&network)?,
    }
    let source = Source::load(&network, &options)?;
    check::check(&source, &network.options, &options.plugin_path)?.iter().for_each(warn);
    let chain = source.chain.as_ref().map_err(crate::source::flat)?;
    refuse_long_name(&chain.name)?;
    let kind = options.kind;
    match kind {
        Kind::File(file) => {
            document.insert("subnets".to_owned(), value!(address::subnets(chain)));
            network.options.insert("conflist".to_owned(), file.display().to_string());
        }
        Kind::Type(_) => {
            let list: Value = serde_json::from_str(&source.text)?;
            refuse_unread(&network, options.has_default_route, &list)?;
            document.insert("subnets".to_owned(), value!(network.subnets));
            // Store the selected IPAM plugin, so that the network does not change if a later version has other
            // defaults.
            network.options.insert("ipam".to_owned(), ipam_of(&list));
            if let Some(interface) = host_interface(&list) {
                document.insert("network_interface".to_owned(), interface.into());
            }
        }
    }
    document.insert("options".to_owned(), value!(network.options));
    // Podman must not allocate addresses, because the chain does.
    document.insert("ipam_options".to_owned(), value!({"driver": "none"}));
    // netavark runs no DNS server for networks of a plugin.
    document.insert("dns_enabled".to_owned(), false.into());
    document.remove("network_dns_servers");
    Ok(document)
}

/// Refuses a name with which no container could be attached: libcni's cache has files named `NETWORK-CONTAINER-INTERFACE`.
fn refuse_long_name(name: &str) -> Result<()> {
    if name.len() <= LONGEST_NAME {
        return Ok(());
    }
    let text =
        format!("the network's name has {} bytes, and at most {LONGEST_NAME} are possible", name.len());
    Err(Error::config(text).detail("choose a shorter name"))
}

/// Refuses flags that the chain would ignore.
fn refuse_unread(network: &Network, has_default_route: bool, list: &Value) -> Result<()> {
    let wish = match (network.internal, has_default_route) {
        (true, _) => Some("--internal"),
        (false, false) => Some("option default-route=false"),
        (false, true) => None,
    };
    let ipam = ipam_of(list);
    let is_default = list.pointer("/plugins/0/isDefaultGateway").and_then(Value::as_bool) == Some(true);
    let has_range = network.subnets.iter().any(|subnet| subnet.lease_range.is_some());
    let ineffective = match ipam.as_str() {
        "dhcp" => wish.map(|flag| (flag, "the server sets the routes")),
        "none" => wish
            .or(network.ipv6_enabled.then_some("--ipv6"))
            .map(|flag| (flag, "the containers get neither addresses nor routes")),
        "static" => has_range.then_some(("--ip-range", "the containers have the addresses of --ip")),
        _ => None,
    };
    if let Some((flag, why)) = ineffective {
        return Err(Error::config(format!("{flag} has no effect with ipam {ipam}: {why}"))
            .detail("leave it out, or choose --opt ipam=host-local and --subnet"));
    }
    if let Some(flag) = wish.filter(|_| is_default) {
        return Err(Error::config(format!("{flag} and option isDefaultGateway=true contradict each other"))
            .detail("remove one of the two"));
    }
    let family = list.pointer("/plugins/0/ipam/family").and_then(Value::as_str);
    if network.ipv6_enabled && ipam == "dhcp" && !matches!(family, Some("ipv6" | "both")) {
        return Err(Error::config("--ipv6 has no effect with ipam dhcp: it asks for IPv4 only")
            .detail("add --opt ipam.family=both, or choose --opt ipam=host-local and --subnet fd00:1::/64"));
    }
    let interface = &network.network_interface;
    match host_interface(list) {
        _ if interface.is_empty() => Ok(()),
        Some(used) if used == interface => Ok(()),
        Some(used) => Err(Error::config(format!(
            "--interface-name {interface} contradicts the options, which name {used}"
        ))
        .detail("remove one of the two")),
        None => Err(Error::config(
            "--interface-name has no effect with this type: it needs no interface of the host",
        )
        .detail("leave it out, or choose another --opt type=PLUGIN, such as type=macvlan")),
    }
}

fn ipam_of(list: &Value) -> String {
    list.pointer("/plugins/0/ipam/type").and_then(Value::as_str).unwrap_or("none").to_owned()
}

/// Stores `--dns` of `podman network create` as an option, because Podman refuses it for a network without a DNS
/// server.
fn take_servers(network: &mut Network) {
    if network.network_dns_servers.is_empty() {
        return;
    }
    let own = network.options.remove("dns").filter(|own| !own.is_empty());
    let all: Vec<String> = own.into_iter().chain(network.network_dns_servers.drain(..)).collect();
    network.options.insert("dns".to_owned(), all.join(","));
}

/// Refuses `--ipam-driver none` together with an IPAM plugin. Only `create` can: Podman's network has the driver "none"
/// from then on.
fn refuse_ipam_driver(network: &Network) -> Result<()> {
    let is_none = network.ipam_options.get("driver").is_some_and(|driver| driver == "none");
    match network.options.get("ipam").filter(|ipam| is_none && !["", "none"].contains(&ipam.as_str())) {
        Some(ipam) => Err(address::contradicting(ipam, "none")),
        None => Ok(()),
    }
}

/// Refuses flags whose settings belong in the file.
fn refuse_flags(network: &Network) -> Result<()> {
    let driver = network.ipam_options.get("driver").is_some_and(|driver| !driver.is_empty());
    let flags = [
        ("--subnet", !network.subnets.is_empty(), "ipam"),
        ("--route", !network.routes.is_empty(), "routes of ipam"),
        ("--internal", network.internal, "ipMasq and routes"),
        ("--ipv6", network.ipv6_enabled, "ipam"),
        ("--interface-name", !network.network_interface.is_empty(), "bridge or master"),
        ("--ipam-driver", driver, "ipam"),
    ];
    let Some((flag, _, keys)) = flags.into_iter().find(|(_, is_given, _)| *is_given) else { return Ok(()) };
    Err(Error::config(format!("{flag} has no effect together with option conflist"))
        .detail(format!("write it into the file ({keys}), or use --opt type=PLUGIN in place of conflist")))
}

#[cfg(test)]
mod tests;
