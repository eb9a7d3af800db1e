//! From what Podman wants for a container to the parameters of an attachment.

use std::path::Path;

use cni::{Error, NetworkName, Result, json};
use runtime::{Attach, Network as Chain};
use serde_json::{Value, json as value};

use crate::document::{Call, PortMapping, Subnet, Wishes};
use crate::source::flat;
use crate::{address, warn};

/// More ports than this are more than a document may have values: 4 for each of them.
const MOST_PORTS: usize = 10_000;

/// The attachment, without its wishes.
///
/// # Errors
/// Code 4 for what cannot be a container's id or an interface's name.
pub fn attachment(netns: &Path, call: &Call) -> Result<Attach> {
    let attach = Attach::new(&call.container_id, &call.network_options.interface_name);
    Ok(attach.map_err(|e| flat(&e))?.netns(netns))
}

/// The attachment with all that the plugins are to know.
///
/// # Errors
/// As [`attachment`], and code 7 for a wish that the chain cannot fulfil.
pub fn with_wishes(netns: &Path, call: &Call, chain: &Chain) -> Result<Attach> {
    let wishes = &call.network_options;
    if let Some(option) = wishes.options.keys().next() {
        return Err(Error::config(format!("the container's network option {option:?} is unknown"))
            .detail("the driver reads ip, mac, alias and interface_name; all else is set for the network"));
    }
    let mut attach = attachment(netns, call)?.arg("IgnoreUnknown", "1");
    // The plugin dnsname reads it.
    if !call.container_name.contains([';', '=']) && !call.container_name.is_empty() {
        attach = attach.arg("K8S_POD_NAME", &call.container_name);
    }
    attach = addresses(attach, wishes, call, chain)?;
    attach = mac(attach, wishes, chain);
    if !wishes.aliases.is_empty() {
        attach = attach.capability("aliases", aliases(&wishes.aliases, chain));
    }
    ports(attach, &call.port_mappings, chain)
}

/// The capability `ips` where a plugin declares it. Networks of Podman 4 do not: there it is `IP` of CNI_ARGS.
fn addresses(attach: Attach, wishes: &Wishes, call: &Call, chain: &Chain) -> Result<Attach> {
    let subnets = match &call.network.subnets[..] {
        [] => address::subnets(chain),
        subnets => subnets.to_vec(),
    };
    let ipam = ipam_type(chain);
    // Other plugins chose the addresses that a reload repeats, and may refuse them.
    if wishes.may_be_of_reload() && !matches!(ipam.as_deref(), Some("host-local" | "static")) {
        return Ok(attach);
    }
    let is_static = ipam.as_deref() == Some("static");
    let text = |ip: &std::net::IpAddr| match prefix(*ip, &subnets).filter(|_| is_static) {
        Some(prefix) => format!("{ip}/{prefix}"),
        None => ip.to_string(),
    };
    let mut texts: Vec<String> = Vec::new();
    // For network reload, Podman 5.4.2 sends each twice.
    for one in wishes.static_ips.iter().map(text) {
        if !texts.contains(&one) {
            texts.push(one);
        }
    }
    match &texts[..] {
        [] => Ok(attach),
        all if chain.capabilities().contains("ips") => Ok(attach.capability("ips", value!(all))),
        [one] => Ok(attach.arg("IP", one)),
        // network reload asks for the addresses that the server chose.
        _ if ipam.as_deref() == Some("dhcp") => Ok(attach),
        _ => Err(Error::config(format!("network {} takes no more than one address", chain.name))
            .detail("add \"capabilities\": {\"ips\": true} to the plugin that has the ipam")),
    }
}

fn prefix(ip: std::net::IpAddr, subnets: &[Subnet]) -> Option<u8> {
    subnets.iter().map(|one| one.subnet).find(|subnet| subnet.contains(ip)).map(|subnet| subnet.prefix())
}

/// The chain, such that its IPAM plugin gets several addresses: networks of Podman 4 declare no `ips`, and CNI_ARGS has room for one.
pub fn declaring_ips(chain: Chain, wishes: &Wishes) -> Result<Chain> {
    let is_known = matches!(ipam_type(&chain).as_deref(), Some("host-local" | "static"));
    if wishes.static_ips.len() < 2 || !is_known || chain.capabilities().contains("ips") {
        return Ok(chain);
    }
    let mut list = json::parse(chain.bytes(), "the network")?;
    let plugins = list.get_mut("plugins").and_then(Value::as_array_mut);
    let with_ipam = plugins.into_iter().flatten().find(|plugin| json::member(plugin, "ipam").is_some());
    // Plugins of a directory are not in the list.
    let Some(plugin) = with_ipam.filter(|_| is_whole(&chain)) else { return Ok(chain) };
    if !plugin["capabilities"].is_object() {
        plugin["capabilities"] = value!({});
    }
    plugin["capabilities"]["ips"] = true.into();
    Chain::from_bytes(list.to_string().as_bytes()).map_err(|e| flat(&e))
}

/// Whether all plugins of a chain are in its list.
fn is_whole(chain: &Chain) -> bool {
    Chain::from_bytes(chain.bytes()).is_ok_and(|inlined| inlined.plugins.len() == chain.plugins.len())
}

/// The IPAM plugin of a chain.
pub fn ipam_type(chain: &Chain) -> Option<String> {
    let requests = chain.plugins.iter().filter_map(|plugin| chain.request(plugin).ok());
    let mut requests = requests.filter_map(|request| json::parse(&request, "the request").ok());
    requests
        .find_map(|request| Some(json::member(json::member(&request, "ipam")?, "type")?.as_str()?.to_owned()))
}

fn mac(attach: Attach, wishes: &Wishes, chain: &Chain) -> Attach {
    match wishes.static_mac.as_str() {
        "" => attach,
        mac if chain.capabilities().contains("mac") => attach.capability("mac", mac.into()),
        mac => attach.arg("MAC", mac),
    }
}

/// A list (CONVENTIONS.md), but Podman's plugin dnsname has a list for each network.
fn aliases(aliases: &[String], chain: &Chain) -> Value {
    let name: &NetworkName = &chain.name;
    match chain.plugins.iter().any(|plugin| plugin.kind.as_str() == "dnsname") {
        true => value!({name.as_str(): aliases}),
        false => value!(aliases),
    }
}

fn ports(attach: Attach, mappings: &[PortMapping], chain: &Chain) -> Result<Attach> {
    if mappings.is_empty() {
        return Ok(attach);
    }
    if !chain.capabilities().contains("portMappings") {
        // Podman tells all networks of a container the same ports.
        warn(format_args!(
            "network {} publishes no ports: no plugin of it declares portMappings",
            chain.name
        ));
        return Ok(attach);
    }
    Ok(attach.capability("portMappings", each_port(mappings)?.into()))
}

/// One entry for each port and protocol: the specification has no ranges.
fn each_port(mappings: &[PortMapping]) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for mapping in mappings {
        let protocols = if mapping.protocol.is_empty() { "tcp" } else { &mapping.protocol };
        for (protocol, n) in protocols.split(',').flat_map(|p| (0..mapping.range.max(1)).map(move |n| (p, n)))
        {
            let ports = mapping.host_port.checked_add(n).zip(mapping.container_port.checked_add(n));
            let (host, container) = ports.ok_or_else(|| beyond(mapping))?;
            let mut entry =
                value!({"hostPort": host, "containerPort": container, "protocol": protocol.trim()});
            if !mapping.host_ip.is_empty() {
                entry["hostIP"] = mapping.host_ip.as_str().into();
            }
            all.push(entry);
        }
        if all.len() > MOST_PORTS {
            return Err(Error::config(format!("more than {MOST_PORTS} ports are published"))
                .detail("publish fewer, or reach the container by its own address"));
        }
    }
    Ok(all)
}

fn beyond(mapping: &PortMapping) -> Error {
    let PortMapping { host_port, container_port, range, .. } = mapping;
    Error::config(format!("{range} ports from {host_port} and {container_port} on are beyond port 65535"))
        .detail("publish a smaller range")
}

#[cfg(test)]
mod tests;
