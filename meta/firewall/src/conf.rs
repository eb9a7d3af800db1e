//! The configuration: as written ([`RawConf`]) and after all checks ([`Conf`]). DEL and GC do not need it. No I/O.

use std::net::IpAddr;

use cni::{AddResult, AsWritten, Error, Result, addr};
use netfilter::{ChainName, Opening};
use serde::Deserialize;

/// Default of the administrator's chain.
const ADMIN_CHAIN: &str = "CNI-ADMIN";

/// Default of firewalld's zone.
const ZONE: &str = "trusted";

/// The configuration as written.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawConf {
    backend: Option<String>,
    iptables_admin_chain_name: Option<String>,
    firewalld_zone: Option<String>,
    ingress_policy: Option<String>,
    accept_mark_bit: Option<i64>,
}

/// The configuration after all checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conf {
    /// None: firewalld if it runs, otherwise nftables if the kernel has it, otherwise iptables.
    pub backend: Option<Backend>,
    /// How marked packets of the container are allowed.
    pub opening: Opening,
    /// firewalld's zone for the container's addresses.
    pub zone: String,
    /// The key `ingressPolicy`.
    pub policy: Policy,
}

/// The backend that allows the container's traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// nf_tables, over netlink.
    Nftables,
    /// iptables and ip6tables, by `iptables-restore`.
    Iptables,
    /// firewalld, over D-Bus.
    Firewalld,
}

/// The traffic from and to a container that is dropped (the key `ingressPolicy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Drops nothing.
    #[default]
    Open,
    /// Drops routed traffic between the container's bridge and other bridges with a policy.
    SameBridge,
    /// Like `SameBridge`, and drops traffic between the container's port and other ports of its bridge.
    Isolated,
}

/// firewalld's zone to which the reference may have added the container's addresses, for DEL. None: another backend is
/// configured, or the configuration is invalid.
pub fn zone_of_reference(raw: &AsWritten) -> Option<String> {
    let text = |key: &str| raw.key::<String>(&[key]).filter(|text| !text.is_empty());
    match text("backend").as_deref() {
        None | Some("firewalld") => Some(text("firewalldZone").unwrap_or_else(|| ZONE.into())),
        Some(_) => None,
    }
}

/// All addresses of a result except loopback and link-local ones, as in the reference: many plugins list an address
/// with an interface without a sandbox, or with another name than `CNI_IFNAME`.
pub fn addresses(result: &AddResult) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = Vec::new();
    for ip in result.ips.iter().map(|ip| ip.address.ip()).filter(|ip| addr::can_be_reached(*ip)) {
        if !addresses.contains(&ip) {
            addresses.push(ip);
        }
    }
    addresses
}

impl TryFrom<AsWritten> for Conf {
    type Error = Error;

    fn try_from(raw: AsWritten) -> Result<Self> {
        let raw: RawConf = raw.decode()?;
        let text = |value: Option<String>| value.filter(|text| !text.is_empty());
        let admin = text(raw.iptables_admin_chain_name);
        let admin = ChainName::parse(admin.as_deref().unwrap_or(ADMIN_CHAIN))
            .map_err(|e| Error::config(format!("iptablesAdminChainName {e}")))?;
        Ok(Self {
            backend: text(raw.backend).as_deref().map(backend).transpose()?,
            opening: Opening::of_forward(bit(raw.accept_mark_bit)?, admin),
            zone: text(raw.firewalld_zone).unwrap_or_else(|| ZONE.into()),
            policy: text(raw.ingress_policy).as_deref().map(policy).transpose()?.unwrap_or_default(),
        })
    }
}

fn backend(text: &str) -> Result<Backend> {
    match text {
        "nftables" => Ok(Backend::Nftables),
        "iptables" => Ok(Backend::Iptables),
        "firewalld" => Ok(Backend::Firewalld),
        _ => Err(Error::config(format!("backend {text:?} is none of nftables, iptables and firewalld"))),
    }
}

fn policy(text: &str) -> Result<Policy> {
    match text {
        "open" => Ok(Policy::Open),
        "same-bridge" => Ok(Policy::SameBridge),
        "isolated" => Ok(Policy::Isolated),
        _ => Err(Error::config(format!("ingressPolicy {text:?} is none of open, same-bridge and isolated"))),
    }
}

fn bit(number: Option<i64>) -> Result<u8> {
    match number.map_or(Ok(Opening::DEFAULT_BIT), u8::try_from) {
        Ok(bit @ 0..=31) => Ok(bit),
        _ => Err(Error::config(format!(
            "acceptMarkBit {} is not a bit of a mark: 0 to 31",
            number.unwrap_or_default()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn conf(keys: Value) -> Result<Conf> {
        AsWritten::from(keys).try_into()
    }

    #[test]
    fn missing_keys_have_the_documented_defaults() {
        for keys in [
            json!({}),
            json!({"backend": "", "iptablesAdminChainName": "", "firewalldZone": "", "ingressPolicy": ""}),
        ] {
            let conf = conf(keys).unwrap();
            assert_eq!((conf.backend, conf.policy, &*conf.zone), (None, Policy::Open, "trusted"));
            let admin = conf.opening.admin.as_ref().map(ChainName::as_str);
            assert_eq!((conf.opening.bit, admin), (12, Some("CNI-ADMIN")));
        }
    }

    #[test]
    fn a_wrong_value_is_named_with_its_key() {
        for (key, value) in [
            ("backend", json!("ipchains")),
            ("ingressPolicy", json!("closed")),
            ("iptablesAdminChainName", json!("-j ACCEPT")),
            ("iptablesAdminChainName", json!("a-name-of-more-than-28-letters")),
            ("acceptMarkBit", json!(32)),
            ("acceptMarkBit", json!(-1)),
        ] {
            let error = conf(json!({key: value})).unwrap_err();
            assert_eq!(error.code(), 7);
            assert!(error.msg().contains(key), "{error}");
        }
    }

    #[test]
    fn only_addresses_that_others_can_reach_are_used_each_once() {
        let result = json!({
            "interfaces": [{"name": "cali0"}, {"name": "eth0", "sandbox": "/n"}, {"name": "lo", "sandbox": "/n"}],
            "ips": [
                {"address": "10.1.0.6/24", "interface": 0},
                {"address": "10.1.0.5/24", "interface": 1},
                {"address": "10.1.0.5/16", "interface": 1},
                {"address": "fd00::5/64", "interface": 1},
                {"address": "fe80::5/64", "interface": 1},
                {"address": "127.0.0.1/8", "interface": 2},
            ],
        });
        let result = AddResult::from_json(&result, cni::Version::LATEST).unwrap();
        let expected = ["10.1.0.6", "10.1.0.5", "fd00::5"].map(|text| text.parse::<IpAddr>().unwrap());
        assert_eq!(addresses(&result), expected);
    }
}
