//! Host ports that rules of iptables-nft map, too: those of attachments with the other backend, and of the reference. The
//! kernel evaluates them before Ferrule's nat chains. An earlier ADD of the attachment itself may have installed them.

use std::collections::BTreeSet;

use cni::Error;
use netlink::{Family, RequestError};

use super::decode::{destination, jump, multiport, port, protocol, redirection};
use super::query::RawRule;
use super::{Nft, query};
use crate::kind::{Kind, NftablesRules};
use crate::owner::Owner;
use crate::plan::chains;
use crate::reference::names;
use crate::ruleset::{Record, Redirected, Table};

/// Rules of iptables-nft that may precede an attachment's host ports.
#[derive(Debug, Default)]
struct Preceding {
    /// Rules of other attachments, and the reference's: the comment, which names the attachment, and the record of the port.
    others: BTreeSet<(String, String)>,
    /// Whether there are rules that Ferrule has installed for the attachment itself.
    has_own: bool,
}

impl Nft {
    /// Warns of other attachments' rules in iptables-nft for the host ports of these rules. Returns whether there are also rules that
    /// an earlier ADD of the attachment has installed.
    pub(crate) fn warn_of_iptables(&self, owner: &Owner, kind: Kind, rules: &NftablesRules) -> bool {
        if !kind.properties.maps_host_ports {
            return false;
        }
        let mut has_own = false;
        let warned = self.ports_in_iptables(owner, kind, rules).map(|preceding| {
            has_own = preceding.has_own;
            for (holder, record) in preceding.others {
                cni::warn(&format!(
                    "{holder} maps a host port of {owner} with iptables, and may get its packets until that \
                     attachment's DEL: {record}"
                ));
            }
        });
        warn_if_not_compared(owner, warned);
        has_own
    }

    fn ports_in_iptables(
        &self,
        owner: &Owner,
        kind: Kind,
        rules: &NftablesRules,
    ) -> Result<Preceding, RequestError> {
        let mut found = Preceding::default();
        let Some((properties, own)) = kind.iptables().zip(chains::chain(owner, kind)) else {
            return Ok(found);
        };
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
                for other in query::rules(&self.socket, table, chain)? {
                    let (Some((protocol, ports)), Some(chain)) = (multiport(&other), jump(&other)) else {
                        continue;
                    };
                    if chain == own {
                        found.has_own = true;
                        continue;
                    }
                    let is_here = |port: &Redirected| port.protocol == protocol && ports.contains(&port.port);
                    let mut here = records.clone();
                    here.retain(|record| record.redirects.as_ref().is_some_and(is_here));
                    if here.is_empty() {
                        continue;
                    }
                    let mapped = query::rules(&self.socket, table, &chain)?;
                    let is_others = !is_of(owner, &other.comment);
                    for record in here {
                        let mut mapping = mapped.iter().filter(|rule| may_map(rule, record));
                        if mapping.any(|rule| is_others || leads_elsewhere(rule, record)) {
                            found.others.insert((other.comment.clone(), record.to_string()));
                        }
                    }
                }
            }
        }
        Ok(found)
    }
}

/// Whether the comment of a rule of the reference names the attachment's container.
fn is_of(owner: &Owner, comment: &str) -> bool {
    names::in_comment(comment) == Some((owner.network(), owner.container()))
}

/// Whether a rule of an attachment's chain may map packets to a host port. Rules are listed without a port if their
/// iptables has written it in a way that is unknown here.
fn may_map(rule: &RawRule, record: &Record) -> bool {
    record.redirects.is_some_and(|to| {
        protocol(rule).is_none_or(|protocol| protocol == to.protocol)
            && port(rule).is_none_or(|port| port == to.port)
            && destination(rule).zip(to.host_ip).is_none_or(|(theirs, own)| theirs == own)
    })
}

/// Whether a rule redirects packets to another address than a record does. The reference's rules for the attachment's own container then
/// are of an earlier container with its id.
fn leads_elsewhere(rule: &RawRule, record: &Record) -> bool {
    record.to.is_some_and(|own| redirection(rule, Family::from(own)).is_some_and(|theirs| theirs != own))
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
    fn the_references_rules_of_a_container_are_known_by_their_comment() {
        let owner = owner("net", "c", "eth0");
        for (comment, is_own) in [
            ("net/c/eth0", false),
            ("dnat name: \"net\" id: \"c\"", true),
            ("dnat name: \"net\" id: \"d\"", false),
            ("dnat name: \"other\" id: \"c\"", false),
            ("net/d/eth0", false),
        ] {
            assert_eq!(is_of(&owner, comment), is_own, "{comment}");
        }
    }
}
