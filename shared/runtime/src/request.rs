//! Requests: a plugin's stdin, derived from its configuration (SPEC.md, section 3, "Deriving request configuration from plugin
//! configuration").

use std::collections::BTreeMap;

use cni::{Attachment, Attachments};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use crate::conf::{Network, PluginConf};
use crate::{AttachmentParameters, Result};

/// Keys that the runtime adds.
#[derive(Debug, Default)]
pub(crate) struct Extras<'a> {
    pub(crate) attach: Option<&'a AttachmentParameters>,
    /// The previous result, in the network's version.
    pub(crate) prev: Option<&'a Value>,
    pub(crate) valid: Option<&'a Attachments>,
}

impl Extras<'_> {
    /// Builds the request. The plugin's own keys are passed on undecoded, except keys that only a runtime may set (see
    /// [`is_runtimes`]). As libcni, this passes on a `runtimeConfig` of the configuration, unless the call has capability arguments.
    pub(crate) fn request(&self, network: &Network, plugin: &PluginConf) -> Result<Vec<u8>> {
        let added = self.keys(network, plugin)?;
        let mut request: BTreeMap<&str, &RawValue> = plugin
            .keys
            .iter()
            .filter(|(key, _)| !is_runtimes(key) && !added.iter().any(|(k, _)| k.eq_ignore_ascii_case(key)))
            .map(|(key, value)| (key.as_str(), &**value))
            .collect();
        request.extend(added.iter().map(|(key, value)| (*key, &**value)));
        Ok(serde_json::to_vec(&request).map_err(cni::Error::from)?)
    }

    fn keys(
        &self,
        network: &Network,
        plugin: &PluginConf,
    ) -> cni::Result<Vec<(&'static str, Box<RawValue>)>> {
        let mut keys = vec![("name", to_raw_value(network.name.as_str())?)];
        keys.push(("cniVersion", to_raw_value(&network.version)?));
        if let Some(prev) = self.prev {
            keys.push(("prevResult", to_raw_value(prev)?));
        }
        let arguments =
            self.attach.map(|attach| runtime_config(plugin, attach)).filter(|map| !map.is_empty());
        if let Some(arguments) = arguments {
            keys.push(("runtimeConfig", to_raw_value(&arguments)?));
        }
        if let Some(valid) = self.valid {
            let valid = to_raw_value(&valid.iter().map(entry).collect::<Vec<_>>())?;
            // The specification used the second name for a while, and libcni sends both (containernetworking/cni#1101).
            keys.push(("cni.dev/attachments", valid.clone()));
            keys.push(("cni.dev/valid-attachments", valid));
        }
        Ok(keys)
    }
}

fn entry(at: &Attachment) -> Value {
    json!({"containerID": at.container.as_str(), "ifname": at.ifname.as_str()})
}

/// Capability arguments that the plugin declares.
fn runtime_config<'a>(plugin: &PluginConf, attach: &'a AttachmentParameters) -> Map<String, Value> {
    let declared = |(name, _): &(&'a String, &'a Value)| plugin.capabilities.contains(*name);
    attach.capability_args.iter().filter(declared).map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// Whether only a runtime may set a key. A plugin would take the configuration's own `prevResult` for the result of an earlier plugin.
fn is_runtimes(key: &str) -> bool {
    key.starts_with("cni.dev/")
        || ["capabilities", "prevResult"].iter().any(|own| own.eq_ignore_ascii_case(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(plugin: &str) -> Network {
        let list = format!(r#"{{"cniVersion": "1.0.0", "name": "n", "plugins": [{plugin}]}}"#);
        Network::from_bytes(list.as_bytes()).unwrap()
    }

    fn request(network: &Network, extras: &Extras<'_>) -> Value {
        serde_json::from_slice(&extras.request(network, &network.plugins[0]).unwrap()).unwrap()
    }

    #[test]
    fn keys_that_the_runtime_does_not_know_reach_the_plugin_unchanged() {
        let network =
            network(r#"{"type": "t", "big": 12345678901234567890123, "f": 1.10, "x": {"b":1,"a":[null]}}"#);
        let text = Extras::default().request(&network, &network.plugins[0]).unwrap();
        let text = String::from_utf8(text).unwrap();
        for kept in [r#""big":12345678901234567890123"#, r#""f":1.10"#, r#""x":{"b":1,"a":[null]}"#] {
            assert!(text.contains(kept), "{kept} in {text}");
        }
    }

    #[test]
    fn name_and_version_of_the_network_replace_those_in_the_plugins_configuration() {
        let network = network(r#"{"type": "t", "CNIVersion": "0.3.0", "Name": "other"}"#);
        let sent = request(&network, &Extras::default());
        assert_eq!(sent, json!({"type": "t", "cniVersion": "1.0.0", "name": "n"}));
    }

    #[test]
    fn only_declared_capabilities_become_runtime_config_and_the_declaration_itself_is_not_sent() {
        let plugin = r#"{"type": "t", "capabilities": {"portMappings": true, "mac": false, "ips": true}}"#;
        let attach = AttachmentParameters::new("c", "eth0").unwrap();
        let attach = attach.capability("portMappings", json!([1])).capability("mac", json!("x"));
        let sent = request(&network(plugin), &Extras { attach: Some(&attach), ..Extras::default() });
        assert_eq!(sent["runtimeConfig"], json!({"portMappings": [1]}));
        assert!(sent.get("capabilities").is_none());
        let without = AttachmentParameters::new("c", "eth0").unwrap();
        let sent = request(&network(plugin), &Extras { attach: Some(&without), ..Extras::default() });
        assert!(sent.get("runtimeConfig").is_none());
    }

    #[test]
    fn a_previous_result_is_never_copied_from_the_configuration_and_a_runtime_config_is() {
        let network =
            network(r#"{"type": "t", "prevResult": {}, "runtimeConfig": {"mac": "x"}, "PrevResult": {}}"#);
        let expected =
            json!({"type": "t", "cniVersion": "1.0.0", "name": "n", "runtimeConfig": {"mac": "x"}});
        assert_eq!(request(&network, &Extras::default()), expected);
        let prev = json!({"ips": []});
        let sent = request(&network, &Extras { prev: Some(&prev), ..Extras::default() });
        assert_eq!(sent["prevResult"], prev);
    }

    #[test]
    fn valid_attachments_are_sent_under_both_names_and_never_copied_from_the_configuration() {
        let network = network(r#"{"type": "t", "cni.dev/valid-attachments": []}"#);
        assert!(request(&network, &Extras::default()).get("cni.dev/valid-attachments").is_none());
        let at = [AttachmentParameters::new("c", "eth0").unwrap().attachment].into_iter().collect();
        let sent = request(&network, &Extras { valid: Some(&at), ..Extras::default() });
        let list = json!([{"containerID": "c", "ifname": "eth0"}]);
        assert_eq!((&sent["cni.dev/valid-attachments"], &sent["cni.dev/attachments"]), (&list, &list));
    }
}
