//! Names of attachments' iptables chains: Ferrule's and the reference's.

use crate::kind::Kind;
use crate::owner::Owner;
use crate::reference::names;
use crate::selector::Selector;

/// The chain of an attachment's rules of a kind, at most 28 characters. None: the kind never uses iptables.
pub(crate) fn chain(owner: &Owner, kind: Kind) -> Option<String> {
    kind.iptables().map(|iptables| format!("{}{}", iptables.prefix, owner.digest(kind.properties.name)))
}

/// Whether a chain belongs to an attachment, of a kind.
pub(crate) fn is_own(kind: Kind, chain: &str) -> bool {
    kind.iptables().is_some_and(|iptables| chain.starts_with(iptables.prefix))
}

/// The chains of the selected attachments whose names can be computed.
pub(crate) fn of(selector: &Selector<'_>, kind: Kind) -> Vec<String> {
    let (owner, prefixes) = match selector {
        Selector::Of(owner) => (owner, kind.properties.reference.prefixes),
        Selector::Own(owner) => (owner, [].as_slice()),
        Selector::Stale(_) => return Vec::new(),
    };
    let theirs = prefixes.iter().map(|prefix| names::chain(owner, prefix));
    chain(owner, kind).into_iter().chain(theirs).collect()
}

/// Whether chains may belong to the selected attachments, by their names.
pub(crate) fn may_be_of(selector: &Selector<'_>, kind: Kind) -> impl Fn(&str) -> bool {
    let (is_for_many, known) = (selector.is_for_many(), of(selector, kind));
    let is_of_reference = move |chain: &str| {
        kind.properties.reference.prefixes.iter().any(|prefix| names::is_chain(chain, prefix))
    };
    move |chain| match is_for_many {
        true => is_own(kind, chain) || is_of_reference(chain),
        false => known.iter().any(|own| own == chain),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::tests::owner;
    use crate::selector::Stale;
    use crate::{HostPorts, Masquerade};

    #[test]
    fn chains_that_may_be_stale_are_known_by_their_names() {
        let (network, scope) = (cni::NetworkName::parse("net").unwrap(), cni::Scope::default());
        let selector = Selector::Stale(Stale::new(&network, &scope, "hostports"));
        let own = chain(&owner("net", "c", "eth0"), HostPorts::KIND).unwrap();
        for (chain, masquerade, host_ports) in [
            ("CNI-2bbe0c48b91a7d1b8a6753a8", true, false),
            ("CNI-DN-2bbe0c48b91a7d1b8a675", false, true),
            ("CNI-HOSTPORT-DNAT", false, false),
            ("KUBE-SERVICES", false, false),
            ("FERRULE-HOSTPORTS", false, false),
            (&own, false, true),
        ] {
            let may = [Masquerade::KIND, HostPorts::KIND].map(|kind| may_be_of(&selector, kind)(chain));
            assert_eq!(may, [masquerade, host_ports], "{chain}");
        }
    }
}
