//! Host ports that rules of iptables-nft map, too: those of attachments with the other backend, and of the reference. Among
//! nat chains of one priority, the kernel evaluates the newest first, so the rules of either backend may come first.

use std::collections::BTreeSet;

use netlink::{Family, RequestError};

use super::decode::multiport;
use super::{Nft, query};
use crate::kind::{Kind, NftablesRules};
use crate::owner::Owner;
use crate::ruleset::{Record, Table};

impl Nft {
    /// Warns of other attachments' rules in iptables-nft for the host ports of these rules.
    pub(super) fn warn_of_iptables(
        &self,
        owner: &Owner,
        kind: Kind,
        rules: &NftablesRules,
    ) -> Result<(), RequestError> {
        if !kind.properties.maps_host_ports {
            return Ok(());
        }
        for (holder, record) in self.ports_in_iptables(owner, kind, rules)? {
            cni::warn(&format!(
                "{holder} maps a host port of {owner} with iptables, and may get its packets until that attachment's \
                 DEL: {record}"
            ));
        }
        Ok(())
    }

    /// Such rules: the comment, which names the attachment, and the record of the port.
    fn ports_in_iptables(
        &self,
        owner: &Owner,
        kind: Kind,
        rules: &NftablesRules,
    ) -> Result<BTreeSet<(String, String)>, RequestError> {
        let (mut found, label) = (BTreeSet::new(), owner.label());
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
                for other in others.into_iter().filter(|other| other.comment != label) {
                    let Some((protocol, ports)) = multiport(&other) else { continue };
                    let is_here = |record: &&&Record| {
                        record.redirects.is_some_and(|it| it.protocol == protocol && ports.contains(&it.port))
                    };
                    let here = records.iter().filter(is_here);
                    found.extend(here.map(|record| (other.comment.clone(), record.to_string())));
                }
            }
        }
        Ok(found)
    }
}
