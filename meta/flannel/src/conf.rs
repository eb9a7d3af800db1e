//! The checked configuration. No I/O.

use std::path::PathBuf;

use cni::{AsWritten, Code, Error, PluginType, Result, json};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{Flannel, document};
use cni::Plugin;

/// Default path of flanneld's file.
const SUBNET_FILE: &str = "/run/flannel/subnet.env";
/// Default directory of the state for DEL, as in the reference.
const DATA_DIR: &str = "/var/lib/cni/flannel";

/// The configuration.
#[derive(Debug)]
pub struct Conf {
    /// `subnetFile`, written by flanneld.
    pub subnet_file: PathBuf,
    /// `dataDir`, the directory of the state for DEL.
    pub data_dir: PathBuf,
    /// `delegate`: keys of the other plugin's configuration.
    pub delegate: Map<String, Value>,
    /// `ipam`: keys of its IPAM plugin.
    pub ipam: Map<String, Value>,
    /// `runtimeConfig`, passed on unchanged.
    pub runtime_config: Option<Value>,
    /// `prevResult`, passed on unchanged.
    pub prev_result: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawConf {
    delegate: Map<String, Value>,
    ipam: Map<String, Value>,
    runtime_config: Map<String, Value>,
}

impl TryFrom<AsWritten> for Conf {
    type Error = Error;

    fn try_from(written: AsWritten) -> Result<Self> {
        let RawConf { delegate, ipam, .. } = written.decode()?;
        let conf = Self {
            subnet_file: subnet_file(&written)?,
            data_dir: data_dir(&written)?,
            delegate,
            ipam,
            runtime_config: written.member("runtimeConfig").cloned(),
            prev_result: written.member("prevResult").cloned(),
        };
        conf.check_delegate()?;
        Ok(conf)
    }
}

impl Conf {
    /// The configuration for DEL and GC: keys of the wrong type count as missing.
    pub fn leniently(written: &AsWritten) -> Self {
        let or_default = |path: Result<PathBuf>, default: &str| {
            path.unwrap_or_else(|error| {
                cni::warn(&format!("{}; {default} is used instead", error.msg()));
                default.into()
            })
        };
        let mut delegate: Map<String, Value> = written.key(&["delegate"]).unwrap_or_default();
        delegate.retain(|key, value| !key.eq_ignore_ascii_case("type") || value.is_string());
        Self {
            subnet_file: or_default(subnet_file(written), SUBNET_FILE),
            data_dir: or_default(data_dir(written), DATA_DIR),
            delegate,
            ipam: written.key(&["ipam"]).unwrap_or_default(),
            runtime_config: written.key::<Map<_, _>>(&["runtimeConfig"]).map(Value::Object),
            prev_result: written.member("prevResult").cloned(),
        }
    }

    fn check_delegate(&self) -> Result<()> {
        let is_set = |key: &str| self.delegate.keys().any(|set| set.eq_ignore_ascii_case(key));
        let own =
            [("name", "remove it"), ("ipam", "put keys of the IPAM plugin under ipam, next to delegate")];
        if let Some((key, remedy)) = own.into_iter().find(|(key, _)| is_set(key)) {
            let text = format!("delegate.{key} must not be set: flannel sets it");
            return Err(Error::config(text).detail(remedy));
        }
        let Some(kind) = document::get(&self.delegate, "type") else { return Ok(()) };
        let Some(kind) = kind.as_str() else {
            return Err(Error::new(Code::Decoding, "delegate.type: expected a string"));
        };
        PluginType::parse(kind).map_err(|e| Error::config(format!("delegate.type {e}")))?;
        if kind == Flannel::NAME {
            return Err(Error::config("delegate.type: flannel cannot delegate to itself"));
        }
        Ok(())
    }
}

fn subnet_file(written: &AsWritten) -> Result<PathBuf> {
    json::path(written.member("subnetFile"), "subnetFile", SUBNET_FILE)
}

fn data_dir(written: &AsWritten) -> Result<PathBuf> {
    json::path(written.member("dataDir"), "dataDir", DATA_DIR)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn conf(document: Value) -> Result<Conf> {
        Conf::try_from(AsWritten::from(document))
    }

    #[test]
    fn keys_that_flannel_sets_itself_are_refused() {
        for (delegate, code, word) in [
            (json!({"name": "x"}), 7, "delegate.name"),
            (json!({"IPAM": {}}), 7, "delegate.ipam"),
            (json!({"type": 5}), 6, "delegate.type"),
            (json!({"type": "../bridge"}), 7, "delegate.type"),
            (json!({"type": "flannel"}), 7, "itself"),
            (json!([]), 6, "delegate"),
        ] {
            let error = conf(json!({"delegate": delegate})).unwrap_err();
            assert!(error.code() == code && error.msg().contains(word), "{delegate}: {error:?}");
        }
        for (delegate, remedy) in [
            (json!({"name": "x"}), "remove it"),
            (json!({"ipam": {}}), "put keys of the IPAM plugin under ipam, next to delegate"),
        ] {
            assert_eq!(conf(json!({"delegate": delegate})).unwrap_err().details(), remedy);
        }
    }

    #[test]
    fn del_uses_only_keys_of_the_right_type() {
        let written =
            json!({"delegate": {"type": 5, "bridge": "br0"}, "ipam": 7, "dataDir": [], "subnetFile": "/x"});
        let conf = Conf::leniently(&AsWritten::from(written));
        assert_eq!(Value::Object(conf.delegate), json!({"bridge": "br0"}));
        assert_eq!((conf.data_dir, conf.subnet_file), (DATA_DIR.into(), "/x".into()));
        assert!(conf.ipam.is_empty());
    }
}
