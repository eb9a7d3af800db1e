//! Masquerade in a plugin's configuration.

use cni::{AsWritten, Error, Result, Undo};
use ipnetwork::IpNetwork;
use netlink::Family;
use serde::Deserialize;

use super::Masquerade;
use crate::backend::Backend;
use crate::firewall::Firewall;
use crate::owner::Owner;
use crate::repair::Expected;

/// The keys as written.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawMasquerade {
    ip_masq: bool,
    ip_masq_backend: Option<String>,
    ip_masq_family: Option<String>,
}

/// Whether and how an attachment is masqueraded (the keys `ipMasq`, `ipMasqBackend`, `ipMasqFamily`).
///
/// The commands' functions receive the attachment's addresses with their prefix lengths, and do nothing if none is to
/// be masqueraded. Rules are removed by their [`crate::Kind`], whatever the configuration is by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MasqueradeConf {
    enabled: bool,
    /// None: nftables if the kernel has it, otherwise iptables.
    backend: Option<Backend>,
    /// None: both families.
    family: Option<Family>,
}

impl MasqueradeConf {
    /// Parses the keys of a plugin's configuration. They are checked even if `ipMasq` is off, so that mistakes are
    /// found before it is turned on.
    ///
    /// # Errors
    /// Code 6 for a key of the wrong type. Code 7 for an unknown value.
    pub fn read(document: &AsWritten) -> Result<Self> {
        let raw: RawMasquerade = document.decode()?;
        let backend = raw.ip_masq_backend.filter(|text| !text.is_empty()).map(|text| text.parse());
        let backend = backend.transpose().map_err(|e| Error::config(format!("ipMasqBackend: {e}")))?;
        let family = match raw.ip_masq_family.as_deref() {
            None | Some("") => None,
            Some("ipv4") => Some(Family::V4),
            Some("ipv6") => Some(Family::V6),
            Some(other) => {
                return Err(Error::config(format!("ipMasqFamily {other:?} is neither ipv4 nor ipv6")));
            }
        };
        Ok(Self { enabled: raw.ip_masq, backend, family })
    }

    /// ADD: masquerades an attachment's addresses.
    ///
    /// # Errors
    /// Code 2 if the configured backend is not available. Code 999 if no backend is, or if the rules cannot be
    /// installed.
    pub fn install(
        &self,
        owner: &Owner,
        addresses: impl IntoIterator<Item = IpNetwork>,
        undo: &mut Undo,
    ) -> Result<()> {
        match self.rules(addresses) {
            Some(rules) => Firewall::open(self.backend)?.install(owner, &rules, undo),
            None => Ok(()),
        }
    }

    /// CHECK: compares the rules with those that ADD installed.
    ///
    /// # Errors
    /// Code 999, with the missing rule.
    pub fn check(&self, owner: &Owner, addresses: impl IntoIterator<Item = IpNetwork>) -> Result<()> {
        match self.rules(addresses) {
            Some(rules) => Firewall::open(self.backend)?.check(owner, &rules),
            None => Ok(()),
        }
    }

    /// REPAIR: the rules that ADD installed.
    pub fn expected(
        &self,
        owner: &Owner,
        addresses: impl IntoIterator<Item = IpNetwork>,
    ) -> Option<Expected> {
        let rules = Box::new(self.rules(addresses)?);
        Some(Expected { owner: owner.clone(), rules, backend: self.backend })
    }

    /// STATUS: whether the rules could be installed, if configured.
    ///
    /// # Errors
    /// Code 50 if not.
    pub fn check_available(&self) -> Result<()> {
        if self.enabled { Firewall::check_available(self.backend, Masquerade::KIND) } else { Ok(()) }
    }

    fn rules(&self, addresses: impl IntoIterator<Item = IpNetwork>) -> Option<Masquerade> {
        let is_expected = |address: &IpNetwork| {
            self.enabled && self.family.is_none_or(|family| Family::from(*address) == family)
        };
        let addresses: Vec<_> = addresses.into_iter().filter(is_expected).collect();
        (!addresses.is_empty()).then_some(Masquerade { addresses })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(keys: &str) -> Result<MasqueradeConf> {
        MasqueradeConf::read(&cni::json::parse(keys.as_bytes(), "it").unwrap().into())
    }

    #[test]
    fn the_addresses_of_the_chosen_family_are_masqueraded() {
        let (v4, v6) = ("10.0.0.2/24", "fd00::2/64");
        for (keys, expected) in [
            (r#"{}"#, &[][..]),
            (r#"{"ipMasqFamily": "ipv4"}"#, &[]),
            (r#"{"ipMasq": true}"#, &[v4, v6]),
            (r#"{"ipMasq": true, "ipMasqFamily": "", "ipMasqBackend": ""}"#, &[v4, v6]),
            (r#"{"ipMasq": true, "ipMasqFamily": "ipv4"}"#, &[v4]),
            (r#"{"ipMasq": true, "ipMasqFamily": "ipv6"}"#, &[v6]),
        ] {
            let rules = read(keys).unwrap().rules([v4, v6].map(|address| address.parse().unwrap()));
            let expected = Masquerade { addresses: expected.iter().map(|a| a.parse().unwrap()).collect() };
            assert_eq!(rules, (!expected.addresses.is_empty()).then_some(expected), "{keys}");
        }
    }

    #[test]
    fn mistakes_are_named_even_if_nothing_is_masqueraded() {
        for (keys, code, culprit) in [
            (r#"{"ipMasq": "yes"}"#, 6, "ipMasq"),
            (r#"{"ipMasqBackend": 4}"#, 6, "ipMasqBackend"),
            (r#"{"ipMasqBackend": "ebpf"}"#, 7, "ebpf"),
            (r#"{"ipMasqFamily": "inet"}"#, 7, "inet"),
        ] {
            let error = read(keys).unwrap_err();
            assert_eq!(error.code(), code, "{keys}: {error}");
            assert!(error.msg().contains(culprit), "{keys}: {error}");
        }
    }
}
