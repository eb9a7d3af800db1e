//! The checked configuration. No I/O.

use cni::{AsWritten, Error, IfName, Result};
use iface::tables;
use serde::Deserialize;

/// The plugin's own keys as written.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawConf {
    vrfname: String,
    table: u32,
}

/// The checked configuration.
#[derive(Clone, Debug)]
pub struct Conf {
    /// `vrfname`: name of the VRF in the container.
    pub name: IfName,
    /// `table`: routing table of the VRF. `None`: the existing VRF's, or an unused one.
    pub table: Option<u32>,
}

/// `vrfname` for DEL. `None`: an ADD cannot have succeeded.
pub fn lenient_name(raw: &AsWritten) -> Option<IfName> {
    raw.key::<String>(&["vrfname"]).and_then(|name| IfName::parse(&name).ok())
}

impl TryFrom<AsWritten> for Conf {
    type Error = Error;

    fn try_from(raw: AsWritten) -> Result<Self> {
        let RawConf { vrfname, table } = raw.decode()?;
        if vrfname.is_empty() {
            return Err(Error::config("configuration is expected to have a valid vrf name")
                .detail("vrfname is missing: it is the name of the VRF that the interface joins"));
        }
        let name = IfName::parse(&vrfname).map_err(|why| Error::config(format!("vrfname {why}")))?;
        if table != 0 && tables::is_of_the_kernel(table) {
            return Err(Error::config(format!("table {table} is reserved by the kernel for all interfaces"))
                .detail(
                    "choose a table that nothing else uses, or remove the key: then the plugin finds a free \
             table",
                ));
        }
        Ok(Self { name, table: Some(table).filter(|table| *table != 0) })
    }
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
    fn table_0_is_any_table() {
        assert_eq!(conf(json!({"vrfname": "blue"})).unwrap().table, None);
        assert_eq!(conf(json!({"vrfname": "blue", "table": 0})).unwrap().table, None);
        assert_eq!(conf(json!({"vrfname": "blue", "table": 7})).unwrap().table, Some(7));
    }

    #[test]
    fn a_vrf_cannot_have_one_of_the_kernels_own_tables() {
        for table in [253, 254, 255] {
            let error = conf(json!({"vrfname": "blue", "table": table})).unwrap_err();
            assert!(error.code() == 7 && error.msg().contains(&table.to_string()), "{error}");
        }
    }

    #[test]
    fn the_name_is_one_that_a_link_can_have() {
        for wrong in ["", "a/b", "..", "sixteen-letters-x"] {
            let error = conf(json!({"vrfname": wrong})).unwrap_err();
            assert!(error.code() == 7 && error.to_string().contains("vrfname"), "{error}");
        }
    }

    #[test]
    fn del_reads_only_the_name_and_ignores_a_mistyped_one() {
        let of = |document: Value| lenient_name(&AsWritten::from(document)).map(|name| name.to_string());
        assert_eq!(of(json!({"vrfname": "blue", "table": "x"})), Some("blue".to_owned()));
        assert_eq!(
            (of(json!({"vrfname": 5})), of(json!({"vrfname": "a/b"})), of(json!({}))),
            (None, None, None)
        );
    }
}
