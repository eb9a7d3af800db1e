//! Configuration of the other plugin. No I/O, except [`rebuilt`].

use cni::{Code, Error, Gc, NetConf, Result};
use serde_json::{Map, Value, json};

use crate::conf::Conf;
use crate::subnet::Subnet;

/// Default of `delegate.type`.
const BRIDGE: &str = "bridge";

/// Builds it from the configuration and flanneld's settings. Without the latter, it is sufficient for DEL and GC.
///
/// # Errors
/// Code 6 if `ipam.routes` is not a list.
pub fn of(conf: &Conf, net: &NetConf, subnet: Option<&Subnet>) -> Result<Value> {
    let mut document = conf.delegate.clone();
    put(&mut document, "name", net.name.as_str().into());
    put(&mut document, "cniVersion", net.version.as_str().into());
    let kind = get(&document, "type").and_then(Value::as_str).unwrap_or(BRIDGE).to_owned();
    put(&mut document, "type", kind.as_str().into());
    if let Some(subnet) = subnet {
        // Either flanneld (option --ip-masq) or the plugin masquerades.
        put_unless_set(&mut document, "ipMasq", (!subnet.ip_masq).into());
        put_unless_set(&mut document, "mtu", subnet.mtu.into());
    }
    if kind == BRIDGE {
        put_unless_set(&mut document, "isGateway", true.into());
    }
    if let Some(runtime_config) = &conf.runtime_config {
        put(&mut document, "runtimeConfig", runtime_config.clone());
    }
    put(&mut document, "ipam", ipam(&conf.ipam, subnet)?);
    Ok(Value::Object(document))
}

/// Configuration of the IPAM plugin.
fn ipam(base: &Map<String, Value>, subnet: Option<&Subnet>) -> Result<Value> {
    let mut ipam = base.clone();
    put_unless_set(&mut ipam, "type", "host-local".into());
    let Some(subnet) = subnet else { return Ok(Value::Object(ipam)) };
    let ranges: Vec<Value> =
        subnet.subnets.iter().map(|subnet| json!([{"subnet": subnet.to_string()}])).collect();
    put(&mut ipam, "ranges", ranges.into());
    let mut routes = match get(&ipam, "routes") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(routes)) => routes.clone(),
        Some(_) => return Err(Error::new(Code::Decoding, "ipam.routes: expected a list")),
    };
    // The bridge may have another default route; flannel's network is always reached through the bridge.
    routes.extend(subnet.networks.iter().map(|network| json!({"dst": network.to_string()})));
    put(&mut ipam, "routes", routes.into());
    Ok(Value::Object(ipam))
}

/// Builds it again for DEL and GC if the saved one is lost. flanneld's file is optional.
///
/// # Errors
/// Code 6 if `ipam.routes` is not a list.
pub fn rebuilt(conf: &Conf, net: &NetConf) -> Result<Value> {
    let subnet = Subnet::read(&conf.subnet_file).ok();
    of(conf, net, subnet.as_ref()).or_else(|_| of(conf, net, None))
}

/// Adds the call's `prevResult`, which has the call's version.
pub fn with_prev(mut document: Value, net: &NetConf, prev: Option<&Value>) -> Value {
    if let (Some(prev), Value::Object(document)) = (prev, &mut document) {
        put(document, "cniVersion", net.version.as_str().into());
        put(document, "prevResult", prev.clone());
    }
    document
}

/// Adds the attachments that GC keeps, and removes keys of a single attachment.
pub fn for_gc(mut document: Value, call: &Gc) -> Value {
    let valid: Vec<Value> = call
        .scope
        .valid()
        .iter()
        .map(|at| json!({"containerID": at.container.as_str(), "ifname": at.ifname.as_str()}))
        .collect();
    if let Value::Object(document) = &mut document {
        document.retain(|key, _| !["runtimeConfig", "prevResult"].contains(&key.as_str()));
        put(document, "cniVersion", call.net.version.as_str().into());
        // The specification's key, and libcni's earlier one.
        for key in ["cni.dev/valid-attachments", "cni.dev/attachments"] {
            put(document, key, valid.clone().into());
        }
    }
    document
}

/// The plugin's type.
pub fn kind(document: &Value) -> &str {
    let kind = document.as_object().and_then(|document| get(document, "type"));
    kind.and_then(Value::as_str).unwrap_or(BRIDGE)
}

/// Whether it belongs to a network.
pub fn is_of(document: &Value, net: &str) -> bool {
    name_of(document) == Some(net)
}

/// The name of its network.
pub fn name_of(document: &Value) -> Option<&str> {
    document.as_object().and_then(|document| get(document, "name")).and_then(Value::as_str)
}

/// Returns a member. Plugins compare keys case-insensitively.
pub fn get<'a>(object: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    object.get(key).or_else(|| object.iter().find(|(k, _)| k.eq_ignore_ascii_case(key)).map(|(_, v)| v))
}

/// Sets a member, and replaces one with another case.
fn put(object: &mut Map<String, Value>, key: &str, value: Value) {
    object.retain(|k, _| !k.eq_ignore_ascii_case(key));
    object.insert(key.to_owned(), value);
}

fn put_unless_set(object: &mut Map<String, Value>, key: &str, value: Value) {
    if get(object, key).is_none_or(Value::is_null) {
        put(object, key, value);
    }
}

#[cfg(test)]
mod tests {
    use cni::{AsWritten, NetworkName, Version};

    use super::*;

    fn net() -> NetConf {
        NetConf {
            name: NetworkName::parse("cbr0").unwrap(),
            version: Version::V0_3_1,
            dns: None,
            ipam: None,
            path: Vec::new(),
        }
    }

    fn subnet() -> Subnet {
        let text = "FLANNEL_NETWORK=10.42.0.0/16,10.43.0.0/16\nFLANNEL_SUBNET=10.42.1.1/24\n\
                    FLANNEL_IPV6_NETWORK=fd00:42::/56\nFLANNEL_IPV6_SUBNET=fd00:42:0:1::1/64\nFLANNEL_MTU=1450\n\
                    FLANNEL_IPMASQ=true\n";
        Subnet::parse(text).unwrap()
    }

    fn made_of(written: Value) -> Value {
        of(&Conf::try_from(AsWritten::from(written)).unwrap(), &net(), Some(&subnet())).unwrap()
    }

    #[test]
    fn a_bridge_is_configured_with_the_values_of_flanneld() {
        let made = made_of(json!({"delegate": {"hairpinMode": true, "isDefaultGateway": true}}));
        assert_eq!(
            made,
            json!({
                "name": "cbr0", "cniVersion": "0.3.1", "type": "bridge", "mtu": 1450, "ipMasq": false,
                "isGateway": true, "hairpinMode": true, "isDefaultGateway": true,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": "10.42.1.0/24"}], [{"subnet": "fd00:42:0:1::/64"}]],
                    "routes": [{"dst": "10.42.0.0/16"}, {"dst": "10.43.0.0/16"}, {"dst": "fd00:42::/56"}],
                },
            })
        );
    }

    #[test]
    fn the_configurations_values_are_preferred_to_flannelds() {
        let made = made_of(json!({
            "delegate": {"Type": "ptp", "ipMasq": true, "MTU": 1400},
            "ipam": {"type": "other", "ranges": 7, "dataDir": "/d", "routes": [{"dst": "10.0.0.0/8"}]},
            "runtimeConfig": {"mac": "02:00:00:00:00:01", "odd": [1]},
        }));
        assert_eq!(
            (&made["type"], &made["ipMasq"], &made["MTU"]),
            (&json!("ptp"), &json!(true), &json!(1400))
        );
        assert!(made.get("isGateway").is_none() && made.get("mtu").is_none() && kind(&made) == "ptp");
        assert_eq!(made["runtimeConfig"], json!({"mac": "02:00:00:00:00:01", "odd": [1]}));
        let ipam = &made["ipam"];
        assert_eq!((&ipam["type"], &ipam["dataDir"]), (&json!("other"), &json!("/d")));
        assert_eq!(ipam["ranges"].as_array().map(Vec::len), Some(2));
        assert_eq!(
            (&ipam["routes"][0]["dst"], ipam["routes"].as_array().unwrap().len()),
            (&json!("10.0.0.0/8"), 4)
        );
    }

    #[test]
    fn a_document_for_del_needs_no_file_of_flanneld() {
        let conf =
            Conf::leniently(&AsWritten::from(json!({"subnetFile": "/nowhere", "ipam": {"routes": 5}})));
        let made = rebuilt(&conf, &net()).unwrap();
        assert_eq!((&made["type"], &made["ipam"]["type"]), (&json!("bridge"), &json!("host-local")));
        assert!(made.get("mtu").is_none() && made["ipam"].get("ranges").is_none());
    }
}
