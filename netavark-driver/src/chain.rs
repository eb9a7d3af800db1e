//! The chain that the driver writes for `--opt type=PLUGIN`.

use std::iter;

use cni::{Error, Result, Version};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha512};
use validate::schema::{self, Key, PLUGIN, Plugin, Role};

use crate::address::Ipam;
use crate::document::{Network, Words};
use crate::options::Options;
use crate::value;

type Object = Map<String, Value>;

/// The chained plugins that options can add, in the order in which they run.
const CHAINED: [&str; 7] = ["portmap", "firewall", "tuning", "bandwidth", "sbr", "vrf", "dnsname"];

/// Plugins for whose containers the host routes packets. Their chain has portmap and firewall, unless an option
/// removes them.
const ROUTED: [&str; 2] = ["bridge", "ptp"];

/// Options of netavark's own drivers, and what to use in their place.
const OF_NETAVARK: [(&str, &str); 9] = [
    ("isolate", "use --opt firewall.ingressPolicy=same-bridge"),
    ("no_default_route", "use --opt default-route=false"),
    ("metric", "use --opt default-route=false and --route 0.0.0.0/0,GATEWAY,METRIC"),
    ("mode", "use --opt isGateway=false and --opt ipMasq=false for a bridge that you manage"),
    ("bclim", "use --opt bcqueuelen=NUMBER with macvlan, or leave it out"),
    ("com.docker.network.driver.mtu", "use --opt mtu=BYTES"),
    ("com.docker.network.bridge.name", "use --opt bridge=NAME"),
    ("com.docker.network.bridge.enable_ip_masquerade", "use --opt ipMasq=false"),
    (
        "vrf",
        "leave it out, because the driver adds no bridge to a VRF; --opt vrf.vrfname=NAME makes a VRF in the container",
    ),
];

/// Writes the configuration list.
///
/// # Errors
/// Code 7 for an option that no plugin of the chain reads, or that the network's type does not support.
pub fn write(network: &Network, kind: &str, options: &Options<'_>) -> Result<Value> {
    let main = schema::plugin(kind).filter(|plugin| plugin.role == Role::Interface);
    let main = main.ok_or_else(|| not_a_type(kind))?;
    let sorted = SortedOptions::of(options)?;
    let ipam = Ipam::of(network, main.name, sorted.ipam)?;
    let has_names = sorted.chained("dnsname", false)?.is_some();
    let mut object = defaults(network, main, &ipam, options, has_names);
    for (path, text) in &sorted.main {
        // `mode` is a key of some types.
        if let Some(error) = of_netavark(path).filter(|_| schema::find(main.keys, path).is_none()) {
            return Err(error);
        }
        set(&mut object, main, path, text).map_err(|e| e.context(format_args!("option {path}")))?;
    }
    if !ipam.is_none() {
        let mut written = ipam.object(network, options.has_default_route)?;
        let described = ipam.described()?;
        for (path, text) in &sorted.ipam_keys {
            let outcome = set(&mut written, described, path, text);
            outcome.map_err(|e| e.context(format_args!("option ipam.{path}")))?;
        }
        object.insert("ipam".to_owned(), written.into());
    } else if let Some((path, _)) = sorted.ipam_keys.first() {
        return Err(Error::config(format!("option ipam.{path}: the network has no IPAM plugin"))
            .detail("add --opt ipam=PLUGIN, such as ipam=host-local"));
    }
    let mut plugins = vec![Value::Object(object)];
    for name in CHAINED {
        plugins.extend(sorted.chained(name, ROUTED.contains(&kind))?.map(Value::Object));
    }
    Ok(json!({"cniVersion": Version::LATEST, "name": network.name, "plugins": plugins}))
}

/// The error of an option of netavark's own drivers.
fn of_netavark(option: &str) -> Option<Error> {
    let (_, remedy) = OF_NETAVARK.iter().find(|(theirs, _)| *theirs == option)?;
    let error = Error::config(format!("option {option}: it is an option of netavark's own drivers"));
    Some(error.detail(format!("with the driver cni, {remedy}")))
}

fn not_a_type(kind: &str) -> Error {
    let types =
        || schema::plugins().filter(|plugin| plugin.role == Role::Interface).map(|plugin| plugin.name);
    let near = schema::nearest(kind, types()).map(|near| format!("did you mean {near:?}? "));
    let known = types().collect::<Vec<_>>().join(", ");
    Error::config(format!("option type: {kind:?} is not an interface plugin of Ferrule"))
        .detail(format!("{}type is one of {known}; for others, write a conflist", near.unwrap_or_default()))
}

fn set(object: &mut Object, plugin: &Plugin, path: &str, text: &str) -> Result<()> {
    let is_for_all = |key: &&Key| ["dns"].contains(&key.name) && plugin.role == Role::Interface;
    let keys: Vec<&Key> = plugin.keys.iter().chain(PLUGIN.iter().filter(is_for_all)).collect();
    value::put(object, &keys, path, text)
}

/// The defaults that users of Podman expect, as keys of the main plugin. `has_names`: the chain contains dnsname, whose
/// server listens on the bridge's address.
fn defaults(network: &Network, main: &Plugin, ipam: &Ipam, options: &Options<'_>, has_names: bool) -> Object {
    let mut object = Object::new();
    object.insert("type".to_owned(), main.name.into());
    let interface = &network.network_interface;
    match main.name {
        "bridge" => {
            object.insert("bridge".to_owned(), bridge_name(network).into());
            let has_gateway = ipam.has_gateway(network);
            object.insert("isGateway".to_owned(), (has_gateway && (!network.internal || has_names)).into());
            object.insert("ipMasq".to_owned(), (has_gateway && !network.internal).into());
            object.insert("hairpinMode".to_owned(), true.into());
        }
        "ptp" => drop(object.insert("ipMasq".to_owned(), (!network.internal).into())),
        _ if !interface.is_empty() => {
            let key = if main.name == "host-device" { "device" } else { "master" };
            if schema::find(main.keys, key).is_some() {
                object.insert(key.to_owned(), interface.clone().into());
            }
        }
        _ => {}
    }
    let capabilities = main.capabilities.iter().copied().filter(|name| *name == "mac");
    let capabilities = capabilities.chain(ipam.takes_addresses().then_some("ips"));
    let capabilities: Object = capabilities.map(|name| (name.to_owned(), true.into())).collect();
    if !capabilities.is_empty() {
        object.insert("capabilities".to_owned(), capabilities.into());
    }
    if !options.dns.is_empty() {
        object.insert("dns".to_owned(), json!({"nameservers": options.dns}));
    }
    object
}

/// The bridge from `--interface-name`, which Podman stores, or a name that no other network of Podman has. The bridge
/// stays after `podman network rm`. A network that is created again with the same name and subnets gets this bridge: a
/// second one would not receive the host's packets, because the first one has the route to the subnet. A network that has
/// become internal gets another one: the first bridge still has the gateway's address, by which containers reach the host.
fn bridge_name(network: &Network) -> String {
    if !network.network_interface.is_empty() {
        return network.network_interface.clone();
    }
    let subnets = network.subnets.iter().map(|subnet| subnet.subnet.to_string());
    let internal = network.internal.then(|| "internal".to_owned());
    let parts: Vec<String> = iter::once(network.name.clone()).chain(subnets).chain(internal).collect();
    Sha512::digest(parts.join(" "))[..5]
        .iter()
        .fold("cni-".to_owned(), |name, byte| format!("{name}{byte:02x}"))
}

/// The options, sorted by the plugin to which they belong.
#[derive(Debug, Default)]
struct SortedOptions<'a> {
    main: Vec<(&'a str, &'a str)>,
    ipam: Option<&'a str>,
    ipam_keys: Vec<(&'a str, &'a str)>,
    /// `PLUGIN=true` and `PLUGIN=false`.
    switches: Vec<(&'static str, bool)>,
    keys: Vec<(&'static str, &'a str, &'a str)>,
}

impl<'a> SortedOptions<'a> {
    fn of(options: &Options<'a>) -> Result<Self> {
        let mut this = Self::default();
        for &(option, text) in &options.keys {
            let (first, below) = option.split_once('.').map_or((option, None), |(a, b)| (a, Some(b)));
            let chained = CHAINED.into_iter().find(|name| *name == first);
            match (first, chained, below) {
                ("ipam", _, None) => this.ipam = Some(text),
                ("ipam", _, Some(path)) => this.ipam_keys.push((path, text)),
                (_, Some(name), None) => this.switches.push((name, switch(name, text)?)),
                (_, Some(name), Some(path)) => this.keys.push((name, path, text)),
                _ => this.main.push((option, text)),
            }
        }
        Ok(this)
    }

    /// The configuration of a chained plugin. None: the chain does not contain it.
    fn chained(&self, name: &'static str, is_routed: bool) -> Result<Option<Object>> {
        let keys: Vec<_> = self.keys.iter().filter(|(plugin, _, _)| *plugin == name).collect();
        let by_default = is_routed && ["portmap", "firewall"].contains(&name);
        let switch = self.switches.iter().find(|(plugin, _)| *plugin == name).map(|(_, on)| *on);
        if switch == Some(false) && !keys.is_empty() {
            let (_, path, _) = keys[0];
            return Err(Error::config(format!("options {name}=false and {name}.{path} exclude each other"))
                .detail("remove one of the two"));
        }
        if !switch.unwrap_or(by_default || !keys.is_empty()) {
            return Ok(None);
        }
        let described = schema::plugin(name).ok_or_else(|| not_a_type(name))?;
        let mut object = Object::new();
        object.insert("type".to_owned(), name.into());
        if !described.capabilities.is_empty() {
            let all: Object =
                described.capabilities.iter().map(|one| ((*one).to_owned(), true.into())).collect();
            object.insert("capabilities".to_owned(), all.into());
        }
        for (_, path, text) in keys {
            let outcome = set(&mut object, described, path, text);
            outcome.map_err(|e| e.context(format_args!("option {name}.{path}")))?;
        }
        Ok(Some(object))
    }
}

fn switch(name: &str, text: &str) -> Result<bool> {
    let neither = || {
        Error::config(format!("option {name} is neither true nor false"))
            .detail(format!("{name}=true adds the plugin to the chain; {name}.KEY=VALUE sets a key of it"))
    };
    text.parse().map_err(|_| of_netavark(name).unwrap_or_else(neither))
}

/// The interface of the host that Podman displays: the bridge, or the master.
pub fn host_interface(list: &Value) -> Option<&str> {
    let main = list.get("plugins")?.get(0)?;
    let text = |key: &str| main.get(key).and_then(Value::as_str);
    text("bridge").or_else(|| text("master")).or_else(|| text("device"))
}

/// The option, or the flag of Podman, from which a key of the written chain comes.
pub fn origin_of(path: &[String], list: &Value, options: &Words) -> Option<String> {
    let [first, index, rest @ ..] = path else { return None };
    let index: usize = index.parse().ok().filter(|_| first == "plugins")?;
    let kind = list.get("plugins")?.get(index)?.get("type")?.as_str()?;
    match (index, rest) {
        (_, []) => Some("option type".to_owned()),
        (0, [ipam, key]) if ipam == "ipam" && key == "type" => Some("option ipam".to_owned()),
        (1.., [key]) if key == "type" => Some(format!("option {kind}")),
        (0, rest) => Some(flag_of(rest, options).unwrap_or_else(|| format!("option {}", rest.join(".")))),
        (_, rest) => Some(format!("option {kind}.{}", rest.join("."))),
    }
}

/// The flag from which a key of `ipam` comes, unless an option has set it.
fn flag_of(path: &[String], options: &Words) -> Option<String> {
    let [ipam, key, rest @ ..] = path else { return None };
    let flag = match (key.as_str(), rest.last().map(String::as_str)) {
        ("ranges", Some("gateway")) | ("addresses", _) => "--gateway",
        ("ranges", Some("rangeStart" | "rangeEnd")) => "--ip-range",
        ("ranges", _) => "--subnet",
        ("routes", _) => "--route",
        _ => return None,
    };
    let is_flag = ipam == "ipam" && !options.contains_key(&format!("ipam.{key}"));
    is_flag.then(|| flag.to_owned())
}

#[cfg(test)]
mod tests;
