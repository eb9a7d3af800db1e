//! Other programs' tables in nf_tables, including those of iptables-nft, listed and changed over netlink.

use netlink::{Family, RequestError, Socket};

use super::batch::Batch;
use super::connection::Connection;
use super::decode::{content, jump, port, tracked};
use super::query;
use super::retry::{Attempt, plain};
use crate::kind::NftablesRules;
use crate::listing::{Content, Edit, Listed, Listing, NewRule, RuleLocation};
use crate::opening::{self, Opening, TABLE};
use crate::ruleset::uapi::*;
use crate::ruleset::{Expressions, Table};

/// All tables of nf_tables.
pub(super) struct Tables<'a>(pub(super) &'a Socket);

impl Listing for Tables<'_> {
    fn chains(&self, table: Table) -> Result<Vec<String>, RequestError> {
        query::chains(self.0, table)
    }

    fn has_chain(&self, table: Table, chain: &str) -> Result<bool, RequestError> {
        query::has_chain(self.0, table, chain)
    }

    fn rules(&self, table: Table, chain: &str) -> Result<Vec<Listed>, RequestError> {
        let listed = |rule: query::RawRule| Listed {
            location: RuleLocation { table, chain: chain.to_owned(), handle: rule.handle },
            target: jump(&rule).unwrap_or_default(),
            tracked: tracked(&rule),
            port: port(&rule),
            content: content(&rule),
            comment: rule.comment,
        };
        Ok(query::rules(self.0, table, chain)?.into_iter().map(listed).collect())
    }
}

impl Batch {
    /// Adds changes of other programs' tables to the batch.
    pub(super) fn edit(&mut self, edit: &Edit) {
        edit.new_chains.iter().for_each(|(table, chain)| self.add_regular_chain(*table, chain));
        edit.deleted.iter().for_each(|rule| self.delete_rule(rule.table, &rule.chain, rule.handle));
        edit.added.iter().for_each(|rule| {
            self.add_rule_to(rule.table, &rule.chain, rule.first, &rule.comment, &expressions(rule));
        });
        edit.old_chains.iter().for_each(|(table, chain)| self.delete_chain(*table, chain));
    }
}

/// A rule in the form that every version of iptables-nft lists completely. nft(8) loads no rule without a statement, so
/// there is a counter.
fn expressions(rule: &NewRule) -> Expressions {
    let this = Expressions::new();
    match &rule.content {
        Content::Jump(chain) => this.jump(chain),
        Content::Accept(bit) => this.xt_mark(*bit).verdict(NF_ACCEPT),
        _ => this.counter(),
    }
}

/// Opens the tables for marked packets. The records, which tell other plugins that the tables must stay open, come
/// first.
pub(super) fn open(socket: &Connection, rules: &NftablesRules) -> Attempt {
    let mut batch = Batch::new(Some(socket.generation().map_err(plain)?));
    for (family, opening) in &rules.openings {
        let edit = opening::open_for(&Tables(socket), *family, opening, &rules.accepted);
        batch.edit(&edit.map_err(plain)?);
    }
    if batch.is_empty() { Ok(()) } else { batch.commit_on(socket, &[TABLE]) }
}

/// The table in which marked packets do not pass, or other packets do. None: only marked packets pass.
pub(super) fn closed(
    socket: &Socket,
    openings: &[(Family, Opening)],
) -> Result<Option<String>, RequestError> {
    for (family, opening) in openings {
        let (_, is_open) = opening::open(&Tables(socket), *family, opening)?;
        if !is_open {
            let family = family.choose("ip", "ip6");
            return Ok(Some(format!(
                "the rule that accepts marked packets is missing in chain {} of table {family} {TABLE}; `cnitool \
                 repair --all` restores it",
                opening.chain()
            )));
        }
    }
    Ok(None)
}
