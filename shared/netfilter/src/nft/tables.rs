//! The tables of iptables-nft, listed and changed over netlink.

use netlink::{Family, RequestError, Socket};

use super::batch::Batch;
use super::connection::Connection;
use super::decode::{content, is_for_udp, jump};
use super::query;
use super::retry::{Attempt, plain};
use crate::kind::Rules;
use crate::listing::{Content, Listed, Listing};
use crate::opening::{self, Edit, NewRule, TABLE};
use crate::ruleset::uapi::*;
use crate::ruleset::{Expressions, Table};

/// The tables of iptables-nft, or of ip6tables-nft.
pub(super) struct IptablesNft<'a> {
    socket: &'a Socket,
    family: Family,
}

impl<'a> IptablesNft<'a> {
    /// Both.
    pub(super) fn all(socket: &'a Socket) -> [Self; 2] {
        Family::ALL.map(|family| Self { socket, family })
    }

    pub(super) fn table(&self, name: &'static str) -> Table {
        Table::new(self.family.number(), name)
    }

    /// Puts changes of the table `filter` into a batch.
    pub(super) fn put(&self, edit: &Edit<u64>, batch: &mut Batch) {
        let table = self.table(TABLE);
        edit.new_chains.iter().for_each(|chain| batch.add_regular_chain(table, chain));
        edit.deleted.iter().for_each(|(chain, handle)| batch.delete_rule(table, chain, *handle));
        edit.added.iter().for_each(|rule| {
            batch.add_rule_to(table, &rule.chain, rule.first, &rule.comment, &expressions(rule));
        });
        edit.old_chains.iter().for_each(|chain| batch.delete_chain(table, chain));
    }
}

impl Listing for IptablesNft<'_> {
    type Handle = u64;
    type Error = RequestError;

    fn chains(&self, table: &'static str) -> Result<Vec<String>, RequestError> {
        query::chains(self.socket, self.table(table))
    }

    fn has_chain(&self, table: &'static str, chain: &str) -> Result<bool, RequestError> {
        query::has_chain(self.socket, self.table(table), chain)
    }

    fn rules(&self, table: &'static str, chain: &str) -> Result<Vec<Listed<u64>>, RequestError> {
        let listed = |rule: query::Found| Listed {
            handle: rule.handle,
            target: jump(&rule).unwrap_or_default(),
            is_for_udp: is_for_udp(&rule),
            content: content(&rule),
            comment: rule.comment,
        };
        Ok(query::rules(self.socket, self.table(table), chain)?.into_iter().map(listed).collect())
    }
}

/// A rule as every version of iptables-nft lists it in full. nft(8) loads no rule without a statement, hence the counter.
fn expressions(rule: &NewRule) -> Expressions {
    let this = Expressions::new();
    match &rule.content {
        Content::Jump(chain) => this.jump(chain),
        Content::Accept(bit) => this.xt_mark(*bit).verdict(NF_ACCEPT),
        _ => this.counter(),
    }
}

/// Opens the tables for packets that rules mark. The records by which others know that they have to stay open come first.
pub(super) fn open(socket: &Connection, rules: &dyn Rules) -> Attempt {
    let mut batch = Batch::new(Some(socket.generation().map_err(plain)?));
    for tables in IptablesNft::all(socket) {
        let Some(opening) = rules.opening(tables.family) else { continue };
        tables.put(&opening::open(&tables, opening).map_err(plain)?, &mut batch);
    }
    if batch.is_empty() { Ok(()) } else { batch.commit_on(socket, &[TABLE]) }
}

/// The table in which the packets that rules mark do not pass, or others do. None: they pass.
pub(super) fn closed(socket: &Socket, rules: &dyn Rules) -> Result<Option<String>, RequestError> {
    for tables in IptablesNft::all(socket) {
        let Some(opening) = rules.opening(tables.family) else { continue };
        if !opening::open(&tables, opening)?.is_open {
            let family = tables.family.choose("ip", "ip6");
            return Ok(Some(format!(
                "{family} {TABLE} {} lacks what lets the container's packets pass",
                opening::CHAIN
            )));
        }
    }
    Ok(None)
}
