//! Converts Podman's options of a container to the parameters of an attachment.

use std::collections::BTreeSet;
use std::path::Path;

use cni::{AsWritten, Error, NetworkName, Result, json};
use runtime::{AttachmentParameters, Network as Chain, PluginConf};
use serde_json::{Value, json as value};

use crate::document::{Call, ContainerOptions, PortMapping, Subnet};
use crate::source::flat;
use crate::{address, warn};

/// Maximum number of published ports. Each of them has 4 values, and the number of values in a document is limited.
const MOST_PORTS: usize = 10_000;

/// The attachment, without the container's options.
///
/// # Errors
/// Code 4 for an invalid container id or interface name.
pub fn attachment(netns: &Path, call: &Call) -> Result<AttachmentParameters> {
    let attach = AttachmentParameters::new(&call.container_id, &call.network_options.interface_name);
    Ok(attach.map_err(|e| flat(&e))?.netns(netns))
}

/// The attachment with all parameters for the plugins.
///
/// # Errors
/// Code 4 for an invalid container id or interface name. Code 7 for an option that the chain does not support.
pub fn with_container_options(
    netns: &Path,
    call: &Call,
    chain: &Chain,
    is_reload: bool,
) -> Result<AttachmentParameters> {
    let options = &call.network_options;
    if let Some(option) = options.options.keys().next() {
        return Err(Error::config(format!("the container's network option {option:?} is unknown"))
            .detail("the driver reads ip, mac, alias and interface_name; all else is set for the network"));
    }
    let mut attach = attachment(netns, call)?.arg("IgnoreUnknown", "1");
    let names = Names::of(call, chain);
    // The plugin dnsname reads this key.
    if let Some(name) = names.own {
        attach = attach.arg("K8S_POD_NAME", name);
    }
    // With other IPAM plugins, the user did not choose the addresses that a reload repeats, and the plugins may
    // refuse them.
    if !is_reload || matches!(ipam_type(chain).as_deref(), Some("host-local" | "static")) {
        attach = addresses(attach, options, call, chain)?;
    }
    attach = mac(attach, options, chain);
    if !names.aliases.is_empty() {
        attach = attach.capability("aliases", aliases(&names.aliases, chain));
    }
    ports(attach, &call.port_mappings, chain)
}

/// Sets the capability argument `ips` if a plugin declares it. Networks of Podman 4 do not declare it; for them, sets
/// `IP` in CNI_ARGS.
fn addresses(
    attach: AttachmentParameters,
    options: &ContainerOptions,
    call: &Call,
    chain: &Chain,
) -> Result<AttachmentParameters> {
    // If the file has changed since `create`, Podman still sends the subnets of before.
    let subnets = [address::subnets(chain), call.network.subnets.clone()].concat();
    let ipam = ipam_type(chain);
    let is_static = ipam.as_deref() == Some("static");
    let text = |ip: &std::net::IpAddr| match prefix(*ip, &subnets).filter(|_| is_static) {
        Some(prefix) => format!("{ip}/{prefix}"),
        None => ip.to_string(),
    };
    let mut texts: Vec<String> = Vec::new();
    // For `podman network reload`, Podman 5.4.2 sends each address twice.
    for one in options.static_ips.iter().map(text) {
        if !texts.contains(&one) {
            texts.push(one);
        }
    }
    match &texts[..] {
        [] => Ok(attach),
        all if chain.capabilities().contains("ips") => Ok(attach.capability("ips", value!(all))),
        [one] => Ok(attach.arg("IP", one)),
        // The DHCP server chooses the addresses.
        _ if ipam.as_deref() == Some("dhcp") => Ok(attach),
        _ => Err(Error::config(format!("network {} accepts only one address", chain.name))
            .detail("add \"capabilities\": {\"ips\": true} to the plugin that has the ipam")),
    }
}

fn prefix(ip: std::net::IpAddr, subnets: &[Subnet]) -> Option<u8> {
    subnets.iter().map(|one| one.subnet).find(|subnet| subnet.contains(ip)).map(|subnet| subnet.prefix())
}

/// The chain, changed so that its IPAM plugin can receive several addresses. Networks of Podman 4 do not declare the
/// capability `ips`, and CNI_ARGS can contain only one address.
pub fn declaring_ips(chain: Chain, options: &ContainerOptions) -> Result<Chain> {
    let is_known = matches!(ipam_type(&chain).as_deref(), Some("host-local" | "static"));
    if options.static_ips.len() < 2 || !is_known || chain.capabilities().contains("ips") {
        return Ok(chain);
    }
    let mut list = json::parse(chain.bytes(), "the network")?;
    let plugins = list.get_mut("plugins").and_then(Value::as_array_mut);
    let with_ipam = plugins.into_iter().flatten().find(|plugin| json::member(plugin, "ipam").is_some());
    // Plugins from a directory are not in the list, so a changed list would lose them.
    let Some(plugin) = with_ipam.filter(|_| is_whole(&chain)) else { return Ok(chain) };
    if !plugin["capabilities"].is_object() {
        plugin["capabilities"] = value!({});
    }
    plugin["capabilities"]["ips"] = true.into();
    Chain::from_bytes(list.to_string().as_bytes()).map_err(|e| flat(&e))
}

/// Whether the list contains all plugins of a chain.
fn is_whole(chain: &Chain) -> bool {
    Chain::from_bytes(chain.bytes()).is_ok_and(|inlined| inlined.plugins.len() == chain.plugins.len())
}

/// Whether the plugin host-local allocates the addresses of a chain.
pub fn is_host_local(chain: &Chain) -> bool {
    ipam_type(chain).as_deref() == Some("host-local")
}

/// Whether the plugin with the `ipam` has failed. It passes on the errors of the IPAM plugin.
pub fn is_of_ipam(failed: &runtime::Error, chain: &Chain) -> bool {
    let with_ipam = chain.plugins.iter().find(|plugin| plugin.ipam().is_some());
    let failing = failed.failures().next().and_then(|failure| failure.plugin.as_ref());
    failing.zip(with_ipam).is_some_and(|((kind, _), plugin)| *kind == plugin.kind)
}

/// The IPAM plugin of a chain.
pub fn ipam_type(chain: &Chain) -> Option<String> {
    let requests = chain.plugins.iter().filter_map(|plugin| chain.request(plugin).ok());
    let mut requests = requests.filter_map(|request| json::parse(&request, "the request").ok());
    requests
        .find_map(|request| Some(json::member(json::member(&request, "ipam")?, "type")?.as_str()?.to_owned()))
}

fn mac(attach: AttachmentParameters, options: &ContainerOptions, chain: &Chain) -> AttachmentParameters {
    match options.static_mac.as_str() {
        "" => attach,
        mac if chain.capabilities().contains("mac") => attach.capability("mac", mac.into()),
        mac => attach.arg("MAC", mac),
    }
}

/// The container's own name and its aliases.
struct Names<'a> {
    own: Option<&'a str>,
    aliases: Vec<&'a str>,
}

impl<'a> Names<'a> {
    /// Leaves out names that dnsname would refuse: Podman allows `web_` and `10.0.0.7`, DNS does not.
    fn of(call: &'a Call, chain: &Chain) -> Self {
        let mut own = Some(call.container_name.as_str());
        own = own.filter(|name| !name.is_empty() && !name.contains([';', '=']));
        let mut aliases: Vec<&str> = call.network_options.aliases.iter().map(String::as_str).collect();
        let Some(dnsname) = dnsname(chain) else { return Self { own, aliases } };
        // Podman sends the container's name as an alias, too.
        let all: BTreeSet<&str> = own.into_iter().chain(aliases.iter().copied()).collect();
        for (name, why) in all.into_iter().filter_map(|name| Some((name, dnsname.check_name(name).err()?))) {
            warn(format_args!(
                "network {} does not resolve a name of the container: the name {why}",
                chain.name
            ));
            own = own.filter(|own| *own != name);
            aliases.retain(|alias| *alias != name);
        }
        Self { own, aliases }
    }
}

/// The configuration of the chain's plugin dnsname. None: the chain has none, or the plugin will refuse it.
fn dnsname(chain: &Chain) -> Option<dnsname::Conf> {
    let request = json::parse(&chain.request(dnsname_plugin(chain)?).ok()?, "the request").ok()?;
    dnsname::Conf::try_from(AsWritten::from(request)).ok()
}

/// Whether the chain contains the plugin dnsname.
pub fn has_dnsname(chain: &Chain) -> bool {
    dnsname_plugin(chain).is_some()
}

fn dnsname_plugin(chain: &Chain) -> Option<&PluginConf> {
    chain.plugins.iter().find(|plugin| plugin.kind.as_str() == "dnsname")
}

/// The capability argument `aliases`. It is a list (CONVENTIONS.md), but for Podman's plugin dnsname it has a list
/// for each network.
fn aliases(aliases: &[&str], chain: &Chain) -> Value {
    let name: &NetworkName = &chain.name;
    match has_dnsname(chain) {
        true => value!({name.as_str(): aliases}),
        false => value!(aliases),
    }
}

fn ports(
    attach: AttachmentParameters,
    mappings: &[PortMapping],
    chain: &Chain,
) -> Result<AttachmentParameters> {
    if mappings.is_empty() {
        return Ok(attach);
    }
    if !chain.capabilities().contains("portMappings") {
        // Podman sends the same ports for all networks of a container.
        warn(format_args!(
            "network {} publishes no ports: no plugin of it declares portMappings",
            chain.name
        ));
        return Ok(attach);
    }
    Ok(attach.capability("portMappings", each_port(mappings)?.into()))
}

/// One entry for each port and protocol: the specification has no port ranges.
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
    Error::config(format!("the range of {range} ports from host port {host_port} and container port {container_port} exceeds port 65535"))
        .detail("publish a smaller range")
}

#[cfg(test)]
mod tests;
