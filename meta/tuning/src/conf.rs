//! The configuration, as written and as checked. No I/O.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cni::{AsWritten, CniArgs, Error, Result, json};
use iface::unicast_mac;
use netlink::Mac;
use serde::Deserialize;

use crate::attribute::Attribute;
use crate::feature::Values;
use crate::sysctl::{Key, Sysctl};

/// Default of `dataDir`, as in the reference.
const DATA_DIR: &str = "/run/cni/tuning";

/// `dataDir`, the directory of the old values.
///
/// # Errors
/// Code 6 if it is not a string, 7 if it contains a NUL byte.
pub fn data_dir(raw: &AsWritten) -> Result<PathBuf> {
    json::path(raw.member("dataDir"), "dataDir", DATA_DIR)
}

/// `dataDir` for DEL and GC: the default if it is missing or invalid.
pub fn data_dir_or_default(raw: &AsWritten) -> PathBuf {
    data_dir(raw).unwrap_or_else(|error| {
        cni::warn(&format!("{}; the default directory {DATA_DIR} is used instead", error.msg()));
        DATA_DIR.into()
    })
}

/// Keys at the top, and in `args.cni`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Settings {
    sysctl: BTreeMap<String, String>,
    mac: String,
    promisc: Option<bool>,
    mtu: Option<u32>,
    allmulti: Option<bool>,
    tx_q_len: Option<u32>,
    features: Values,
}

/// Keys from the runtime.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OfCall {
    args: Args,
    runtime_config: RuntimeConfig,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Args {
    cni: Settings,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RuntimeConfig {
    mac: String,
}

/// The checked configuration.
#[derive(Debug)]
pub struct Conf {
    /// Directory of the old values.
    pub data_dir: PathBuf,
    /// In the order of setting.
    pub sysctls: Vec<Sysctl>,
    /// Offload features to turn on or off.
    pub features: Values,
    /// All attributes except the hardware address.
    attributes: Vec<Attribute>,
    network_mac: Option<Mac>,
    call_mac: Option<Mac>,
}

impl Conf {
    /// The attributes to set. The hardware address is the first of `runtimeConfig`, `args.cni`, `CNI_ARGS` and the network's `mac`.
    ///
    /// # Errors
    /// Code 7 for an invalid hardware address.
    pub fn attributes(&self, args: &CniArgs) -> Result<Vec<Attribute>> {
        let mac = match (self.call_mac, args.mac()) {
            (Some(mac), _) => Some(mac),
            (None, Some(text)) => Some(unicast_mac("CNI_ARGS: MAC", text)?),
            (None, None) => self.network_mac,
        };
        Ok(mac.map(Attribute::Mac).into_iter().chain(self.attributes.iter().copied()).collect())
    }
}

impl TryFrom<AsWritten> for Conf {
    type Error = Error;

    fn try_from(raw: AsWritten) -> Result<Self> {
        let data_dir = data_dir(&raw)?;
        let network: Settings = raw.decode()?;
        let OfCall { args: Args { cni: call }, runtime_config } = raw.decode()?;
        let mac_of_call = mac("runtimeConfig.mac", &runtime_config.mac)?.or(mac("args.cni.mac", &call.mac)?);
        Ok(Self {
            data_dir,
            attributes: attributes(&network, &call),
            network_mac: mac("mac", &network.mac)?,
            call_mac: mac_of_call,
            features: network.features.into_iter().chain(call.features).collect(),
            sysctls: sysctls(network.sysctl, call.sysctl)?,
        })
    }
}

fn mac(key: &str, text: &str) -> Result<Option<Mac>> {
    Some(text).filter(|text| !text.is_empty()).map(|text| unicast_mac(key, text)).transpose()
}

/// As in the reference, an MTU of 0 and `promisc: false` mean unchanged.
fn attributes(network: &Settings, call: &Settings) -> Vec<Attribute> {
    let promisc = call.promisc.or(network.promisc).filter(|on| *on).map(Attribute::Promisc);
    let mtu = call.mtu.or(network.mtu).filter(|bytes| *bytes != 0).map(Attribute::Mtu);
    let allmulti = call.allmulti.or(network.allmulti).map(Attribute::Allmulti);
    let queue = call.tx_q_len.or(network.tx_q_len).map(Attribute::TxQueueLength);
    [promisc, mtu, allmulti, queue].into_iter().flatten().collect()
}

/// Sysctls of the network, with those of the call added or replacing them.
fn sysctls(network: BTreeMap<String, String>, call: BTreeMap<String, String>) -> Result<Vec<Sysctl>> {
    let mut all = read_sysctls("sysctl", network)?;
    all.append(&mut read_sysctls("args.cni.sysctl", call)?);
    let mut all: Vec<Sysctl> = all.into_values().collect();
    all.sort_by_key(|sysctl| sysctl.key.rank());
    Ok(all)
}

/// Parses sysctls, by their name in any spelling.
fn read_sysctls(place: &str, written: BTreeMap<String, String>) -> Result<BTreeMap<Vec<String>, Sysctl>> {
    let mut all: BTreeMap<Vec<String>, Sysctl> = BTreeMap::new();
    for (key, value) in written {
        let key = Key::parse(&key).map_err(|e| Error::config(format!("{place}: {key:?} = {value:?} {e}")))?;
        let sysctl = Sysctl { key, value };
        if sysctl.value.chars().any(|c| c.is_control() && c != '\t') {
            let text =
                format!("{place}: the value of {sysctl} contains a line break or another control character");
            return Err(Error::config(text));
        }
        if let Some(other) = all.insert(sysctl.key.segments().to_vec(), sysctl.clone()) {
            return Err(Error::config(format!("{place}: {other} and {sysctl} are the same sysctl")));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn conf(document: Value) -> Result<Conf> {
        Conf::try_from(AsWritten::from(document))
    }

    fn shown(conf: &Conf, args: &str) -> Vec<String> {
        let attributes = conf.attributes(&CniArgs::parse(args).unwrap()).unwrap();
        attributes.iter().map(ToString::to_string).collect()
    }

    fn sysctls_of(conf: &Conf) -> Vec<String> {
        conf.sysctls.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn missing_or_empty_keys_change_nothing() {
        for document in [
            json!({}),
            json!({ "mac": "", "promisc": false, "mtu": 0, "dataDir": "", "runtimeConfig": { "mac": "" } }),
            json!({ "sysctl": null, "args": { "cni": null } }),
        ] {
            let conf = conf(document).unwrap();
            assert_eq!(conf.data_dir, PathBuf::from("/run/cni/tuning"));
            assert!(conf.sysctls.is_empty() && shown(&conf, "MAC=").is_empty());
        }
    }

    #[test]
    fn args_replace_single_keys_of_the_network() {
        let conf = conf(json!({
            "mtu": 1400, "promisc": true, "allmulti": true, "txQLen": 500,
            "args": { "cni": { "mtu": 1300, "promisc": false, "allmulti": false, "txQLen": 0 } },
        }))
        .unwrap();
        assert_eq!(shown(&conf, ""), ["mtu 1300", "allmulti false", "txQLen 0"]);
    }

    #[test]
    fn args_replace_single_features_of_the_network() {
        let conf = conf(json!({
            "features": { "rx-gro": true, "tx-checksum-ip-generic": false },
            "args": { "cni": { "features": { "rx-gro": false, "rx-gro-list": true } } },
        }))
        .unwrap();
        let features = [("rx-gro", false), ("rx-gro-list", true), ("tx-checksum-ip-generic", false)];
        assert!(conf.features.iter().map(|(name, on)| (name.as_str(), *on)).eq(features));
    }

    #[test]
    fn the_runtimes_mac_wins_over_args_over_the_environment_over_the_networks() {
        let all = json!({
            "mac": "02:00:00:00:00:01",
            "args": { "cni": { "mac": "02:00:00:00:00:03" } },
            "runtimeConfig": { "mac": "02-00-00-00-00-04" },
        });
        let without = |keys: &[&str]| {
            let mut document = all.clone();
            keys.iter().for_each(|key| drop(document.as_object_mut().unwrap().remove(*key)));
            conf(document).unwrap()
        };
        let args = "MAC=02:00:00:00:00:02";
        assert_eq!(shown(&without(&[]), args), ["mac 02:00:00:00:00:04"]);
        assert_eq!(shown(&without(&["runtimeConfig"]), args), ["mac 02:00:00:00:00:03"]);
        assert_eq!(shown(&without(&["runtimeConfig", "args"]), args), ["mac 02:00:00:00:00:02"]);
        assert_eq!(shown(&without(&["runtimeConfig", "args"]), ""), ["mac 02:00:00:00:00:01"]);
    }

    #[test]
    fn a_sysctl_of_the_call_replaces_the_networks_however_it_is_written() {
        let conf = conf(json!({
            "sysctl": { "net.ipv4.ip_forward": "0", "net.core.somaxconn": "100" },
            "args": { "cni": { "sysctl": { "net/ipv4/ip_forward": "1" } } },
        }))
        .unwrap();
        assert_eq!(sysctls_of(&conf), ["net.core.somaxconn = \"100\"", "net/ipv4/ip_forward = \"1\""]);
    }

    #[test]
    fn sysctls_of_the_call_need_none_of_the_network() {
        let conf = conf(json!({ "args": { "cni": { "sysctl": { "net.core.somaxconn": "7" } } } })).unwrap();
        assert_eq!(sysctls_of(&conf), ["net.core.somaxconn = \"7\""]);
    }

    #[test]
    fn one_sysctl_in_two_spellings_is_refused_even_with_the_same_value() {
        for value in ["1", "2"] {
            let error = conf(json!({ "sysctl": { "net.a.b": "1", "net/a/b": value } })).unwrap_err();
            assert_eq!(error.code(), 7);
            let words = format!("net.a.b = \"1\" and net/a/b = {value:?} are the same sysctl");
            assert!(error.msg().contains(&words), "{error}");
        }
    }

    #[test]
    fn del_needs_only_the_directory_and_uses_the_default_one_if_it_is_mistyped() {
        let of = |document: Value| data_dir_or_default(&AsWritten::from(document));
        let wrong = json!({ "dataDir": "/x", "mtu": "large", "mac": 5, "sysctl": [] });
        assert_eq!(of(wrong), PathBuf::from("/x"));
        assert_eq!(of(json!({ "dataDir": 5 })), PathBuf::from(DATA_DIR));
        assert_eq!(data_dir(&AsWritten::from(json!({ "dataDir": 5 }))).unwrap_err().code(), 6);
    }
}
