//! The rules in the tables of iptables-nft that let packets pass which have a mark.

use std::collections::BTreeSet;
use std::fmt;

use netlink::{Family, RequestError, Socket};

use super::batch::Batch;
use super::decode::jump;
use super::query::{self, Found};
use super::retry::{Attempt, plain};
use crate::kind::Rules;
use crate::opening::{CHAIN, HOOK, MARK, Opening, TABLE, TO_ADMIN, TO_CHAIN};
use crate::ruleset::uapi::*;
use crate::ruleset::{Chain, Expressions, Rule, Table};

/// A family's table.
const fn table_of(family: Family) -> Table {
    Table::new(family.number(), TABLE)
}

/// Puts what is missing of them there. To be called when the records are there by which others know that it is needed.
pub(super) fn open(socket: &Socket, rules: &dyn Rules) -> Attempt {
    let generation = query::generation(socket).map_err(plain)?;
    let missing = missing(socket, rules).map_err(plain)?;
    let mut batch = Batch::new(Some(generation));
    missing.iter().for_each(|missing| missing.put(&mut batch));
    if batch.is_empty() { Ok(()) } else { batch.commit(socket) }
}

/// What is missing of the rules in one family's table.
pub(super) struct Missing {
    table: Table,
    chains: Vec<String>,
    rules: Vec<Rule>,
}

/// What is missing of them, where there is a chain to be opened.
pub(super) fn missing(socket: &Socket, rules: &dyn Rules) -> Result<Vec<Missing>, RequestError> {
    let mut missing = Vec::new();
    for family in Family::ALL {
        if let Some(opening) = rules.opening(family) {
            missing.extend(missing_in(socket, table_of(family), opening)?);
        }
    }
    Ok(missing)
}

/// Whether a chain may have to be opened for what these rules mark.
pub(super) fn is_wanted(rules: &dyn Rules) -> bool {
    Family::ALL.iter().any(|family| rules.opening(*family).is_some())
}

fn missing_in(socket: &Socket, table: Table, opening: &Opening) -> Result<Option<Missing>, RequestError> {
    let (admin, comment) = (opening.admin.as_str(), opening.comment());
    let mut this = Missing { table, chains: Vec::new(), rules: Vec::new() };
    let leads = |rules: &[Found], to: &str| rules.iter().any(|rule| jump(rule).as_deref() == Some(to));
    let forward = query::rules(socket, table, HOOK)?;
    let is_led_to = leads(&forward, CHAIN);
    if forward.is_empty() && !query::has_chain(socket, table, HOOK)? {
        return Ok(None);
    }
    let here = query::rules(socket, table, CHAIN)?;
    let leads_on = leads(&here, admin);
    // What a rule leads to is there.
    for (chain, is_there) in [(CHAIN, is_led_to || !here.is_empty()), (admin, leads_on)] {
        if !is_there && !query::has_chain(socket, table, chain)? {
            this.chains.push(chain.to_owned());
        }
    }
    if !leads_on {
        this.rules.push(first(CHAIN, TO_ADMIN, Expressions::new().jump(admin)));
    }
    if !here.iter().any(|rule| rule.comment == comment) {
        let accept = Expressions::new().packet_marked(opening.bit).verdict(NF_ACCEPT);
        this.rules.push(Rule::new(Chain::regular(CHAIN), comment, accept));
    }
    if !is_led_to {
        this.rules.push(first(HOOK, TO_CHAIN, Expressions::new().jump(CHAIN)));
    }
    Ok((!this.rules.is_empty() || !this.chains.is_empty()).then_some(this))
}

fn first(chain: &'static str, comment: &str, expressions: Expressions) -> Rule {
    Rule { first: true, ..Rule::new(Chain::regular(chain), comment, expressions) }
}

impl Missing {
    pub(super) fn put(&self, batch: &mut Batch) {
        self.chains.iter().for_each(|chain| batch.add_regular_chain(self.table, chain));
        self.rules.iter().for_each(|rule| batch.add_rule(self.table, rule));
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = if self.table.family == NFPROTO_IPV4 { "ip" } else { "ip6" };
        let chain = self.rules.first().map(|rule| rule.chain).or(self.chains.first().map(String::as_str));
        write!(f, "{family} {TABLE} {} lacks what lets the container's packets pass", chain.unwrap_or(CHAIN))
    }
}

/// Puts the deletion of what accepts by these bits into a batch; and of what leads there, if nothing else is there, be it of the
/// administrator or of the reference.
pub(super) fn put_closing(
    socket: &Socket,
    bits: &BTreeSet<u8>,
    batch: &mut Batch,
) -> Result<(), RequestError> {
    for table in Family::ALL.map(table_of).into_iter().filter(|_| !bits.is_empty()) {
        let here = query::rules(socket, table, CHAIN)?;
        let goes = |rule: &Found| bit_of(rule).is_some_and(|bit| bits.contains(&bit));
        let (gone, left): (Vec<_>, Vec<_>) = here.iter().partition(|rule| goes(rule));
        gone.iter().for_each(|rule| batch.delete_rule(table, CHAIN, rule.handle));
        if !gone.is_empty() {
            put_end(socket, table, (&here, &left), batch)?;
        }
    }
    Ok(())
}

/// The bit by which a rule of ours accepts.
fn bit_of(rule: &Found) -> Option<u8> {
    rule.comment.strip_prefix(MARK)?.parse().ok()
}

/// All of it goes that leads to empty chains.
fn put_end(
    socket: &Socket,
    table: Table,
    (here, left): (&[Found], &[&Found]),
    batch: &mut Batch,
) -> Result<(), RequestError> {
    let admins: Option<Vec<String>> = left.iter().map(|rule| jump(rule)).collect();
    // Each rule of a chain counts as a use of it, and each jump to it.
    let is_unused = |chain: &str, uses: usize| -> Result<bool, RequestError> {
        Ok(query::uses(socket, table, chain)?.is_some_and(|found| found as usize == uses))
    };
    let forward = query::rules(socket, table, HOOK)?;
    let jumps: Vec<&Found> = forward.iter().filter(|rule| jump(rule).as_deref() == Some(CHAIN)).collect();
    let Some(admins) = admins else { return Ok(()) };
    for admin in &admins {
        if !is_unused(admin, 1)? {
            return Ok(());
        }
    }
    if !is_unused(CHAIN, here.len() + jumps.len())? {
        return Ok(());
    }
    jumps.iter().for_each(|rule| batch.delete_rule(table, HOOK, rule.handle));
    batch.delete_chain(table, CHAIN);
    admins.iter().for_each(|admin| batch.delete_chain(table, admin));
    Ok(())
}
