//! Finds chains or rules of other programs in one of Ferrule's tables.

use std::collections::BTreeSet;

use netlink::RequestError;

use super::{Nft, query};
use crate::kind::Kind;
use crate::ruleset::Layout;

impl Nft {
    /// Whether all chains and rules in a kind's table are Ferrule's: shared ones, and those with these labels.
    pub(super) fn has_only_ours(&self, kind: Kind, labels: &BTreeSet<&str>) -> Result<bool, RequestError> {
        let table = kind.table();
        let kinds = Kind::ALL.into_iter().filter(|other| other.table() == table).chain([kind]);
        let kinds: Vec<(Kind, Layout)> =
            kinds.map(|kind| (kind, (kind.properties.nftables.layout)())).collect();
        for name in query::chains(&self.socket, table)? {
            let is_here = |layout: &Layout| layout.chains.iter().any(|chain| chain.name == name);
            let here: Vec<_> = kinds.iter().filter(|(_, layout)| is_here(layout)).collect();
            let is_ours = |comment: &str| {
                labels.contains(comment)
                    || here.iter().any(|(kind, layout)| {
                        layout.rules.iter().any(|rule| rule.comment == comment)
                            || kind
                                .properties
                                .nftables
                                .comments
                                .iter()
                                .any(|start| comment.starts_with(start))
                    })
            };
            if here.is_empty()
                || !query::rules(&self.socket, table, &name)?.iter().all(|rule| is_ours(&rule.comment))
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
