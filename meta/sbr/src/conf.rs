//! The checked configuration. No I/O.

use std::net::IpAddr;

use cni::{AsWritten, Error, Result};
use serde::Deserialize;

/// The plugin's own keys as written.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawConf {
    table: Option<u32>,
    gateways: Vec<String>,
    add_source_hints: bool,
}

/// The checked configuration.
#[derive(Clone, Debug)]
pub struct Conf {
    /// `table`: only add rules that lead to this table. `None`: choose and fill a table for each address.
    pub table: Option<u32>,
    /// `gateways`: gateways of the tables' default routes, at most one per family.
    pub gateways: Vec<IpAddr>,
    /// `addSourceHints`: keep routes to the interface's own subnets in the main table, with its address as preferred source.
    pub source_hints: bool,
}

/// `table` for DEL.
pub fn lenient_table(raw: &AsWritten) -> Option<u32> {
    raw.key::<u32>(&["table"]).filter(|table| *table != 0)
}

impl TryFrom<AsWritten> for Conf {
    type Error = Error;

    fn try_from(raw: AsWritten) -> Result<Self> {
        let RawConf { table, gateways, add_source_hints } = raw.decode()?;
        if table == Some(0) {
            return Err(Error::config("table 0 does not exist: tables have numbers from 1"));
        }
        let gateways = gateways.iter().map(|text| gateway(text)).collect::<Result<Vec<_>>>()?;
        for (position, one) in gateways.iter().enumerate() {
            if let Some(other) = gateways[..position].iter().find(|other| other.is_ipv4() == one.is_ipv4()) {
                let family = if one.is_ipv4() { "IPv4" } else { "IPv6" };
                let msg = format!("gateways list contains multiple {family} addresses: {other} and {one}");
                return Err(Error::config(msg).detail("set at most one gateway for each address family"));
            }
        }
        Ok(Self { table, gateways, source_hints: add_source_hints })
    }
}

fn gateway(text: &str) -> Result<IpAddr> {
    let parsed: Option<IpAddr> = text.parse().ok();
    parsed
        .filter(|ip| !ip.is_unspecified() && !ip.is_multicast())
        .ok_or_else(|| Error::config(format!("gateways: {text:?} is not a valid gateway address")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn conf(document: Value) -> Result<Conf> {
        Conf::try_from(AsWritten::from(document))
    }

    #[test]
    fn without_keys_a_table_is_chosen_and_filled() {
        let conf = conf(json!({"gateways": null})).unwrap();
        assert!(conf.table.is_none() && conf.gateways.is_empty() && !conf.source_hints);
    }

    #[test]
    fn each_family_has_one_gateway_at_most() {
        let conf_of = |gateways: Value| conf(json!({"gateways": gateways}));
        assert_eq!(conf_of(json!(["fd00::1", "10.0.0.1"])).unwrap().gateways.len(), 2);
        for (wrong, word) in [
            (json!(["10.0.0.1", "fd00::1", "10.0.0.2"]), "10.0.0.1 and 10.0.0.2"),
            (json!(["10.0.0.1/24"]), "10.0.0.1/24"),
            (json!(["0.0.0.0"]), "0.0.0.0"),
            (json!(["ff02::1"]), "ff02::1"),
        ] {
            let error = conf_of(wrong).unwrap_err();
            assert!(error.code() == 7 && error.msg().contains(word), "{error}");
        }
    }

    #[test]
    fn del_reads_only_the_table_and_ignores_a_mistyped_one() {
        let of = |document: Value| lenient_table(&AsWritten::from(document));
        assert_eq!(of(json!({"table": 5, "gateways": 7})), Some(5));
        assert_eq!((of(json!({"table": "x"})), of(json!({"table": 0}))), (None, None));
    }
}
