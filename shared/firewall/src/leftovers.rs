//! What other backends installed for an attachment: our own by iptables, and the reference's by either, whose
//! place we may have taken while its containers run on.
//!
//! The names are the reference's (v1.9.1: pkg/utils/utils.go, pkg/ip/ipmasq_*, plugins/meta/portmap,
//! pkg/link/spoofcheck.go).

use std::collections::BTreeSet;

use sha2::{Digest, Sha512};

use crate::iptables;
use crate::owner::{Owner, network_prefix};
use crate::rules::Kind;

/// The chains of the table nat in which rules jump to attachments' own.
pub(crate) fn parents(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Masquerade => &["POSTROUTING"],
        Kind::HostPorts => &[iptables::HOSTPORTS, "CNI-HOSTPORT-DNAT", "CNI-HOSTPORT-SNAT"],
        Kind::SpoofCheck => &[],
    }
}

/// Whose leftovers to look for.
#[derive(Debug)]
pub(crate) enum Whose<'a> {
    /// One attachment's.
    Of(&'a Owner),
    /// Those of a network that are not valid any more.
    Stale {
        /// The network.
        network: &'a str,
        /// Its attachments that are.
        valid: &'a [Owner],
    },
}

impl Whose<'_> {
    /// The chains of the table nat that are theirs, as far as their names are known.
    pub(crate) fn chains(&self, kind: Kind) -> Vec<String> {
        let Self::Of(owner) = self else { return Vec::new() };
        let hashed = |prefix: &str| {
            let hash = sha512(&[owner.network(), owner.container()]);
            format!("{prefix}{}", &hash[..28 - prefix.len()])
        };
        match kind {
            Kind::Masquerade => vec![iptables::chain(owner, kind), hashed("CNI-")],
            Kind::HostPorts => vec![iptables::chain(owner, kind), hashed("CNI-DN-"), hashed("CNI-SN-")],
            Kind::SpoofCheck => Vec::new(),
        }
    }

    /// Whether a chain of the table nat may be theirs, by its name.
    pub(crate) fn may_have_chain(&self, kind: Kind, chain: &str) -> bool {
        match self {
            Self::Of(_) => self.chains(kind).iter().any(|own| own == chain),
            Self::Stale { .. } => iptables::is_own(kind, chain) || is_reference_chain(kind, chain),
        }
    }

    /// Whether a rule that jumps to an attachment's chain is theirs, by its comment.
    pub(crate) fn has_jump(&self, comment: &str) -> bool {
        let Self::Stale { network, valid } = self else { return false };
        if let Some((name, id)) = reference_comment(comment) {
            return name == *network && !valid.iter().any(|owner| owner.container() == id);
        }
        comment.starts_with(&network_prefix(network)) && !valid.iter().any(|owner| owner.label() == comment)
    }

    /// Whether a rule of the reference's table `cni_plugins_masquerade` is theirs.
    pub(crate) fn has_masquerade(&self, comment: &str) -> bool {
        let hash = |texts: &[&str]| sha512(texts)[..16].to_owned();
        let instance = |owner: &Owner| hash(&[owner.ifname(), ":", owner.container()]);
        let Some((network, rest)) = comment.split_once('-') else { return false };
        let found = rest.split(',').next().unwrap_or_default();
        match self {
            Self::Of(owner) => network == hash(&[owner.network()]) && found == instance(owner),
            Self::Stale { network: name, valid } => {
                let valid: BTreeSet<String> = valid.iter().map(instance).collect();
                network == hash(&[name]) && !valid.contains(found)
            }
        }
    }

    /// Whether a rule of the reference's tables `cni_hostport` is theirs. It names the container alone, not
    /// the network: GC must leave it.
    pub(crate) fn has_host_port(&self, comment: &str) -> bool {
        matches!(self, Self::Of(owner) if comment == owner.container())
    }

    /// The reference's spoof check: the comment of its rules, and its chains. They name no network either.
    pub(crate) fn spoof_check(&self) -> Option<(String, [String; 2])> {
        let Self::Of(owner) = self else { return None };
        let id = format!("{}-{}", owner.container(), owner.ifname());
        let chain = format!("cni-br-iface-{id}");
        Some((format!("macspoofchk-{id}"), [chain.clone(), format!("{chain}-mac")]))
    }
}

/// Whether the reference calls the chain of an attachment so.
fn is_reference_chain(kind: Kind, chain: &str) -> bool {
    let prefixes: &[&str] = match kind {
        Kind::Masquerade => &["CNI-"],
        Kind::HostPorts => &["CNI-DN-", "CNI-SN-"],
        Kind::SpoofCheck => &[],
    };
    let is_hash = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    prefixes.iter().any(|prefix| chain.strip_prefix(prefix).is_some_and(is_hash))
}

/// The network and container in a comment of the reference's iptables rules: `dnat name: "NET" id: "ID"`.
fn reference_comment(comment: &str) -> Option<(&str, &str)> {
    let comment = comment.strip_prefix("dnat ").unwrap_or(comment);
    comment.strip_prefix("name: \"")?.strip_suffix('"')?.split_once("\" id: \"")
}

/// In hexadecimal, of texts put together.
fn sha512(texts: &[&str]) -> String {
    Sha512::digest(texts.concat()).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::tests::owner;

    #[test]
    fn the_references_names_are_known() {
        // By its own tests: pkg/utils/utils_test.go, plugins/meta/portmap/portmap_iptables_test.go.
        let chain = |network, id| Whose::Of(&owner(network, id, "eth0")).chains(Kind::Masquerade)[1].clone();
        assert_eq!(chain("test", "1234"), "CNI-2bbe0c48b91a7d1b8a6753a8");
        let chains = Whose::Of(&owner("test", "abc123", "eth0")).chains(Kind::HostPorts);
        assert!(chains[1].starts_with("CNI-DN-") && chains[1].len() == 28);
    }

    #[test]
    fn chains_that_may_be_swept_are_known_by_their_names() {
        let whose = Whose::Stale { network: "net", valid: &[] };
        let own = iptables::chain(&owner("net", "c", "eth0"), Kind::HostPorts);
        for (chain, masquerade, host_ports) in [
            ("CNI-2bbe0c48b91a7d1b8a6753a8", true, false),
            ("CNI-DN-2bbe0c48b91a7d1b8a675", false, true),
            ("CNI-HOSTPORT-DNAT", false, false),
            ("KUBE-SERVICES", false, false),
            (iptables::HOSTPORTS, false, false),
            (&own, false, true),
        ] {
            let may = [Kind::Masquerade, Kind::HostPorts].map(|kind| whose.may_have_chain(kind, chain));
            assert_eq!(may, [masquerade, host_ports], "{chain}");
        }
    }

    #[test]
    fn only_stale_rules_of_the_network_are_swept() {
        let valid = [owner("net", "c1", "eth0")];
        let whose = Whose::Stale { network: "net", valid: &valid };
        for (comment, goes) in [
            ("net/c1/eth0", false),
            ("net/c2/eth0", true),
            ("network/c2/eth0", false),
            ("name: \"net\" id: \"c1\"", false),
            ("name: \"net\" id: \"c2\"", true),
            ("dnat name: \"net\" id: \"c2\"", true),
            ("dnat name: \"other\" id: \"c2\"", false),
            ("", false),
        ] {
            assert_eq!(whose.has_jump(comment), goes, "{comment}");
        }
    }
}
