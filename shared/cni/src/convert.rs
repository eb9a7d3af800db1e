//! Conversion of results between versions of the specification. There are three forms. 0.1.0 and 0.2.0 have one address per family, with
//! its routes. 0.3.0 to 0.4.0 have lists, and a `version` with each address; 1.0.0 and later have no `version`. Before 1.1.0 an interface
//! has no `mtu`. As in libcni, `socketPath` and `pciID` are written from 1.0.0 on, and all attributes of routes from 0.3.0 on.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::addr::{self, family};
use crate::{AddResult, Code, Dns, Error, Interface, IpConfig, Route, Version, json};

impl AddResult {
    /// Serializes the result for a version. Fields that the version does not have are left out.
    ///
    /// # Errors
    /// None that a result can cause.
    pub fn to_json(&self, version: Version) -> crate::Result<String> {
        let written = if version < Version::V0_3_0 {
            serde_json::to_string_pretty(&Pair::of(self, version))
        } else {
            serde_json::to_string_pretty(&Lists::of(self, version))
        };
        Ok(written?)
    }

    /// Parses a result from a plugin or a runtime. `version` is the configuration's; the result may have another one of the same form.
    ///
    /// # Errors
    /// Code 6 if it is not a result; 7 for a version of another form.
    pub fn from_json(value: &Value, version: Version) -> crate::Result<Self> {
        let said = version_of(value)?.unwrap_or(version);
        if !said.same_format(version) {
            return Err(Error::config(format!(
                "the result has CNI version {said}, but the configuration has {version}"
            ))
            .detail("the plugin or runtime that passes the result must use the configuration's version"));
        }
        Self::decode(value, said)
    }

    /// Like [`AddResult::from_json`], for the result of a delegated plugin: it may have any version, as in libcni.
    ///
    /// # Errors
    /// Code 6 if it is not a result; 1 for an unknown version.
    pub(crate) fn from_delegate(value: &Value, version: Version) -> crate::Result<Self> {
        Self::decode(value, version_of(value)?.unwrap_or(version))
    }

    fn decode(value: &Value, version: Version) -> crate::Result<Self> {
        if version < Version::V0_3_0 {
            Ok(json::decode::<Pair>(value)?.into())
        } else {
            Ok(json::decode::<Lists>(value)?.into())
        }
    }

    /// The result without fields that a version does not have, or that libcni does not write in it.
    fn reduced_to(&self, version: Version) -> Self {
        let mut this = self.clone();
        // libcni's 1.0.0 already has both, and plugins read them in DEL.
        if version < Version::V1_0_0 {
            for interface in &mut this.interfaces {
                (interface.socket_path, interface.pci_id) = (None, None);
            }
        }
        if version < Version::V1_1_0 {
            this.interfaces.iter_mut().for_each(|interface| interface.mtu = None);
        }
        // The attributes of routes are newer than 0.3.0, but libcni and the reference write and read them in all versions since then.
        if version < Version::V0_3_0 {
            for route in &mut this.routes {
                *route = Route { gw: route.gw, ..Route::to(route.dst) };
            }
        }
        this
    }
}

/// The version that a result names, if any.
fn version_of(result: &Value) -> crate::Result<Option<Version>> {
    match json::member(result, "cniVersion").map(|version| version.as_str()) {
        None | Some(Some("")) => Ok(None),
        Some(Some(text)) => Ok(Some(Version::parse(text)?)),
        Some(None) => Err(Error::new(Code::Decoding, "cniVersion: expected a string")),
    }
}

/// 0.3.0 and later.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Lists {
    cni_version: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    interfaces: Vec<Interface>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ips: Vec<Ip>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<Route>,
    #[serde(skip_serializing_if = "Dns::is_empty")]
    dns: Dns,
}

#[derive(Serialize, Deserialize)]
struct Ip {
    /// `4` or `6`; before 1.0.0 only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(with = "addr::cidr")]
    address: IpNetwork,
    #[serde(default, with = "addr::optional_ip", skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
    /// Signed: some plugins write -1 for "none".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    interface: Option<i64>,
}

impl Lists {
    fn of(result: &AddResult, version: Version) -> Self {
        let AddResult { interfaces, ips, routes, dns } = result.reduced_to(version);
        let ip = |ip: IpConfig| Ip {
            version: (version < Version::V1_0_0).then(|| family(ip.address.ip()).to_owned()),
            address: ip.address,
            gateway: ip.gateway,
            interface: ip.interface.and_then(|i| i64::try_from(i).ok()),
        };
        let ips = ips.into_iter().map(ip).collect();
        Self { cni_version: version.to_string(), interfaces, ips, routes, dns }
    }
}

impl From<Lists> for AddResult {
    fn from(lists: Lists) -> Self {
        // An index without an interface is dropped. Otherwise it could become another interface's when interfaces are added.
        let listed = |i: i64| usize::try_from(i).ok().filter(|i| *i < lists.interfaces.len());
        let ip = |ip: Ip| IpConfig {
            interface: ip.interface.and_then(listed),
            ..IpConfig::new(ip.address, ip.gateway)
        };
        let ips = lists.ips.into_iter().map(ip).collect();
        Self { interfaces: lists.interfaces, ips, routes: lists.routes, dns: lists.dns }
    }
}

/// 0.1.0 and 0.2.0: the first address of each family.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Pair {
    cni_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip4: Option<Single>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip6: Option<Single>,
    #[serde(skip_serializing_if = "Dns::is_empty")]
    dns: Dns,
}

#[derive(Serialize, Deserialize)]
struct Single {
    #[serde(with = "addr::cidr")]
    ip: IpNetwork,
    #[serde(default, with = "addr::optional_ip", skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    routes: Vec<Route>,
}

impl Pair {
    fn of(result: &AddResult, version: Version) -> Self {
        let AddResult { ips, routes, dns, .. } = result.reduced_to(version);
        let first = |v4: bool| {
            let ip = ips.iter().find(|ip| ip.address.is_ipv4() == v4)?;
            let routes = routes.iter().filter(|r| r.dst.is_ipv4() == v4).cloned().collect();
            Some(Single { ip: ip.address, gateway: ip.gateway, routes })
        };
        Self { cni_version: version.to_string(), ip4: first(true), ip6: first(false), dns }
    }
}

impl From<Pair> for AddResult {
    fn from(pair: Pair) -> Self {
        let mut this = Self { dns: pair.dns, ..Self::default() };
        for single in [pair.ip4, pair.ip6].into_iter().flatten() {
            this.ips.push(IpConfig::new(single.ip, single.gateway));
            this.routes.extend(single.routes);
        }
        this
    }
}

#[cfg(test)]
mod tests;
