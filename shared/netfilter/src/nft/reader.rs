//! Rules of others, read.

use netlink::{RequestError, Socket};

use super::decode::jump;
use super::query;
use crate::ruleset::Table;

/// Reads the rules of others.
#[derive(Debug)]
pub struct Reader<'a>(pub(super) &'a Socket);

impl Reader<'_> {
    /// The comments of a chain's rules, empty where one has none.
    pub(crate) fn comments(&self, table: Table, chain: &str) -> Result<Vec<String>, RequestError> {
        Ok(query::rules(self.0, table, chain)?.into_iter().map(|rule| rule.comment).collect())
    }

    /// Whether a rule of a chain leads to another chain.
    pub(crate) fn leads(&self, table: Table, from: &str, to: &str) -> Result<bool, RequestError> {
        Ok(query::rules(self.0, table, from)?.iter().any(|rule| jump(rule).as_deref() == Some(to)))
    }
}
