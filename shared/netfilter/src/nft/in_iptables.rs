//! Host ports that rules of iptables-nft map, too: those of attachments with the other backend, and of the reference. The
//! kernel evaluates them before Ferrule's nat chains.

use std::collections::BTreeSet;

use cni::Error;
use netlink::{Family, RequestError};

use super::decode::{destination, jump, multiport, port};
use super::query::RawRule;
use super::{Nft, query};
use crate::kind::{Kind, NftablesRules};
use crate::owner::Owner;
use crate::reference::names;
use crate::ruleset::{Record, Redirected, Table};

impl Nft {
    /// Warns of other attachments' rules in iptables-nft for the host ports of these rules.
    pub(crate) fn warn_of_iptables(&self, owner: &Owner, kind: Kind, rules: &NftablesRules) {
        if !kind.properties.maps_host_ports {
            return;
        }
        let warned = self.ports_in_iptables(owner, kind, rules).map(|found| {
            for (holder, record) in found {
                cni::warn(&format!(
                    "{holder} maps a host port of {owner} with iptables, and may get its packets until that \
                     attachment's DEL: {record}"
                ));
            }
        });
        warn_if_not_compared(owner, warned);
    }

    /// Such rules: the comment, which names the attachment, and the record of the port.
    fn ports_in_iptables(
        &self,
        owner: &Owner,
        kind: Kind,
        rules: &NftablesRules,
    ) -> Result<BTreeSet<(String, String)>, RequestError> {
        let mut found = BTreeSet::new();
        let Some(properties) = kind.iptables() else { return Ok(found) };
        // One request on a host without such a table.
        let tables = query::tables(&self.socket)?;
        for family in Family::ALL {
            let is_of_family = |record: &&Record| record.redirects.is_some_and(|port| port.family == family);
            let records: Vec<&Record> = rules.records.iter().filter(is_of_family).collect();
            let table = Table::of_iptables(family, properties.table);
            if records.is_empty()
                || !tables.iter().any(|it| (it.family, &*it.name) == (table.family, table.name))
            {
                continue;
            }
            for chain in properties.parents {
                let others = query::rules(&self.socket, table, chain)?;
                for other in others.into_iter().filter(|other| !is_of(owner, &other.comment)) {
                    let (Some((protocol, ports)), Some(chain)) = (multiport(&other), jump(&other)) else {
                        continue;
                    };
                    let is_here = |port: &Redirected| port.protocol == protocol && ports.contains(&port.port);
                    let mut here = records.clone();
                    here.retain(|record| record.redirects.as_ref().is_some_and(is_here));
                    if !here.is_empty() {
                        let mapped = query::rules(&self.socket, table, &chain)?;
                        here.retain(|record| record.redirects.is_some_and(|port| may_map(&mapped, &port)));
                    }
                    found.extend(here.iter().map(|record| (other.comment.clone(), record.to_string())));
                }
            }
        }
        Ok(found)
    }
}

/// Whether a comment is an attachment's own, of Ferrule or of the reference.
fn is_of(owner: &Owner, comment: &str) -> bool {
    comment == owner.label() || names::in_comment(comment) == Some((owner.network(), owner.container()))
}

/// Whether the rules of an attachment's chain may map packets to a host port. Rules are listed without a port if their
/// iptables has written it in a way that is unknown here.
fn may_map(rules: &[RawRule], to: &Redirected) -> bool {
    rules.iter().any(|rule| {
        port(rule).is_none_or(|port| port == to.port)
            && destination(rule).zip(to.host_ip).is_none_or(|(theirs, own)| theirs == own)
    })
}

/// Warns if an attachment's rules were not compared with those that may precede them: they work as well.
pub(super) fn warn_if_not_compared(owner: &Owner, compared: Result<(), RequestError>) {
    if let Err(refusal) = compared {
        let e = Error::from(refusal.during("nf_tables:", "read other attachments' rules"));
        cni::warn(&format!("{owner}: host ports were not compared with rules that precede them: {e}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::tests::owner;

    #[test]
    fn an_attachment_is_not_warned_of_its_own_rules() {
        let owner = owner("net", "c", "eth0");
        for (comment, is_own) in [
            ("net/c/eth0", true),
            ("dnat name: \"net\" id: \"c\"", true),
            ("dnat name: \"net\" id: \"d\"", false),
            ("dnat name: \"other\" id: \"c\"", false),
            ("net/d/eth0", false),
        ] {
            assert_eq!(is_of(&owner, comment), is_own, "{comment}");
        }
    }
}
