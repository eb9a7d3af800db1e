//! Options of `add` for ports, addresses and the MAC address.
//!
//! A runtime passes them as capability arguments to plugins that declare the capability (CONVENTIONS.md). Older runtimes use
//! CNI_ARGS, which all plugins receive.

use cni::{Code, Error};
use runtime::{AttachmentParameters, Network, PluginConf, Result};
use serde_json::{Value, json};

use crate::arguments::mapping;
use crate::cli::AttachArgs;

/// Applies the options to an attachment.
///
/// # Errors
/// If a port is malformed, or if no plugin of the network accepts ports or several addresses.
pub fn apply(
    attach_args: &AttachArgs,
    network: &Network,
    mut attach: AttachmentParameters,
) -> Result<AttachmentParameters> {
    let declared = network.capabilities();
    if !attach_args.publish.is_empty() {
        if !declared.contains("portMappings") {
            return Err(Error::new(
                Code::InvalidConfig,
                format!("no plugin of network {} forwards ports", network.name),
            )
            .detail(r#"add {"type": "portmap", "capabilities": {"portMappings": true}} to its plugins"#)
            .into());
        }
        let mappings: Result<Vec<Value>, String> =
            attach_args.publish.iter().map(|text| mapping(text)).collect();
        let mappings =
            mappings.map_err(|e| Error::new(Code::InvalidEnvironment, format!("--publish {e}")))?;
        attach = attach.capability("portMappings", mappings.into());
    }
    let addresses: Vec<&str> =
        attach_args.ip.iter().map(String::as_str).filter(|ip| !ip.is_empty()).collect();
    if addresses.len() > 1 && !declared.contains("ips") && !has_static(network) {
        let text = format!("no plugin of network {} accepts several addresses", network.name);
        let remedy = r#"add "capabilities": {"ips": true} to the plugin that has ipam"#;
        return Err(Error::new(Code::InvalidConfig, text).detail(remedy).into());
    }
    if !addresses.is_empty() {
        attach = if declared.contains("ips") {
            attach.capability("ips", json!(addresses))
        } else {
            attach.arg("IP", &addresses.join(","))
        };
    }
    Ok(match &attach_args.mac {
        None => attach,
        Some(mac) if declared.contains("mac") => attach.capability("mac", json!(mac)),
        Some(mac) => attach.arg("MAC", mac),
    })
}

/// Whether the network's IPAM plugin is static, which accepts a list of addresses in CNI_ARGS. Other plugins accept
/// one address.
fn has_static(network: &Network) -> bool {
    network.plugins.iter().filter_map(PluginConf::ipam).any(|ipam| ipam.as_str() == "static")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(capabilities: &Value) -> Network {
        let conf = json!({"cniVersion": "1.0.0", "name": "web", "plugins": [
            {"type": "bridge"}, {"type": "portmap", "capabilities": capabilities}]});
        Network::from_bytes(conf.to_string().as_bytes()).unwrap()
    }

    fn attach_args(publish: &[&str], ip: &[&str], mac: Option<&str>) -> AttachArgs {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        AttachArgs { publish: owned(publish), ip: owned(ip), mac: mac.map(str::to_owned) }
    }

    fn attach() -> AttachmentParameters {
        AttachmentParameters::new("c1", "eth0").unwrap()
    }

    #[test]
    fn declared_capabilities_are_passed_to_the_plugin_and_other_values_to_all_plugins() {
        let attach_args = attach_args(&["8080:80"], &["10.88.0.9", "fd00::9"], Some("0a:58:0a:00:00:05"));
        let all = json!({"portMappings": true, "ips": true, "mac": true});
        let declared = apply(&attach_args, &network(&all), attach()).unwrap();
        assert_eq!(declared.capability_args["ips"], json!(["10.88.0.9", "fd00::9"]));
        assert_eq!(declared.capability_args["mac"], "0a:58:0a:00:00:05");
        assert_eq!(declared.capability_args["portMappings"][0]["hostPort"], 8080);
        assert_eq!(declared.args.to_string(), "");

        let attach_args = self::attach_args(&["8080:80"], &["10.88.0.9", ""], Some("0a:58:0a:00:00:05"));
        let not = apply(&attach_args, &network(&json!({"portMappings": true})), attach()).unwrap();
        assert_eq!((not.args.get("IP"), not.args.get("MAC")), (Some("10.88.0.9"), Some("0a:58:0a:00:00:05")));
    }

    #[test]
    fn several_addresses_are_requested_only_if_a_plugin_accepts_them() {
        let attach_args = attach_args(&[], &["10.88.0.9", "fd00::9"], None);
        let of = |kind: &str| {
            let bridge = json!({"type": "bridge", "ipam": {"type": kind}});
            let conf = json!({"cniVersion": "1.0.0", "name": "web", "plugins": [bridge]});
            Network::from_bytes(conf.to_string().as_bytes()).unwrap()
        };
        let list = apply(&attach_args, &of("static"), attach()).unwrap();
        assert_eq!(list.args.get("IP"), Some("10.88.0.9,fd00::9"));
        let error = format!("{:?}", apply(&attach_args, &of("host-local"), attach()).unwrap_err());
        assert!(error.contains("no plugin of network web accepts several addresses"), "{error}");
        assert!(error.contains(r#""capabilities": {"ips": true}"#), "{error}");
    }

    #[test]
    fn the_ipam_plugin_may_be_that_of_a_plugin_in_the_networks_directory() {
        let mut network = network(&json!({}));
        network.push_plugin(br#"{"type": "bridge", "ipam": {"type": "static"}}"#).unwrap();
        let attach_args = attach_args(&[], &["10.88.0.9", "fd00::9"], None);
        assert_eq!(
            apply(&attach_args, &network, attach()).unwrap().args.get("IP"),
            Some("10.88.0.9,fd00::9")
        );
    }

    #[test]
    fn a_port_on_a_network_that_forwards_none_is_refused_with_what_to_add() {
        let error = apply(&attach_args(&["8080:80"], &[], None), &network(&json!({})), attach()).unwrap_err();
        let text = format!("{error:?}");
        assert!(
            text.contains("no plugin of network web forwards ports") && text.contains("portmap"),
            "{text}"
        );
    }
}
