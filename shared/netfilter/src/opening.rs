//! Opens FORWARD and INPUT: packets with a bit of their mark pass the chain in which hosts drop forwarded or incoming
//! packets.
//!
//! ```text
//! FORWARD       first: jump CNI-FORWARD
//! CNI-FORWARD   first: jump CNI-ADMIN;  -m mark --mark BIT/BIT -j ACCEPT
//! INPUT         first: jump CNI-INPUT
//! CNI-INPUT     -m mark --mark BIT/BIT -j ACCEPT
//! ```
//!
//! The chains are iptables' own, in nf_tables or in the legacy tables, and every version of iptables lists these rules
//! completely: the output of iptables-save(8) can be restored. A chain that Ferrule creates has a rule with a comment
//! that says so, and no effect. The chain is deleted if that is its only rule.

use std::collections::BTreeSet;
use std::net::IpAddr;

use netlink::{Family, RequestError};

use crate::chain_name::ChainName;
use crate::listing::{Content, Edit, Listed, Listing, NewRule};
use crate::reference::chains::accepts;
use crate::ruleset::Table;

/// The iptables table and chain for forwarded packets.
pub(crate) const TABLE: &str = "filter";
pub(crate) const HOOK: &str = "FORWARD";

/// The priority of the chain that sets the mark of forwarded packets: before other programs' filters, so that they see it.
pub(crate) const MARKING_PRIORITY: i32 = -10;

/// The chain that jumps to the administrator's, and then accepts packets with the mark. The reference uses the same
/// name.
pub(crate) const CHAIN: &str = "CNI-FORWARD";

/// A base chain of iptables that may drop packets, and Ferrule's chain to which it jumps so that marked packets pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedHook {
    pub(crate) hook: &'static str,
    pub(crate) chain: &'static str,
}

impl OpenedHook {
    /// Forwarded packets.
    pub(crate) const FORWARD: Self = Self { hook: HOOK, chain: CHAIN };
    /// Packets to the host.
    pub(crate) const INPUT: Self = Self { hook: "INPUT", chain: "CNI-INPUT" };
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::FORWARD, Self::INPUT];
}

/// Prefix of the comments of rules that accept packets with a bit.
pub(crate) const MARK: &str = "ferrule: mark bit ";

/// The comment of the jumps to [`CHAIN`], and from it to the administrator's chain.
pub(crate) const TO_CHAIN: &str = "ferrule: containers";
pub(crate) const TO_ADMIN: &str = "ferrule: administrator";

/// The comment of the rule in a chain that Ferrule created.
pub(crate) const CREATED: &str = "ferrule: created this chain";

/// Which packets pass, and which chain of the administrator is evaluated before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The bit of the packet's mark, 0 to 31 (the key `acceptMarkBit`).
    pub bit: u8,
    /// The chain for the administrator's rules (the key `iptablesAdminChainName`). INPUT has none.
    pub admin: Option<ChainName>,
    way: OpenedHook,
}

impl Opening {
    /// The default bit. portmap's is 13, Kubernetes uses 14 and 15, Calico 16 to 31.
    pub const DEFAULT_BIT: u8 = 12;

    /// Opens FORWARD, after the administrator's chain.
    pub fn of_forward(bit: u8, admin: ChainName) -> Self {
        Self { bit, admin: Some(admin), way: OpenedHook::FORWARD }
    }

    /// Opens INPUT.
    pub(crate) fn of_input(bit: u8) -> Self {
        Self { bit, admin: None, way: OpenedHook::INPUT }
    }

    /// Ferrule's chain, which accepts.
    pub(crate) fn chain(&self) -> &'static str {
        self.way.chain
    }

    /// The chain to open.
    pub(crate) fn hook(&self) -> &'static str {
        self.way.hook
    }

    /// The comment of the rule that accepts packets with the bit.
    pub(crate) fn comment(&self) -> String {
        format!("{MARK}{}", self.bit)
    }
}

/// The iptables table of a family.
fn table(family: Family) -> Table {
    Table::of_iptables(family, TABLE)
}

impl Edit {
    fn add(&mut self, table: Table, chain: &str, first: bool, comment: impl Into<String>, content: Content) {
        self.added.push(NewRule { table, chain: chain.into(), first, comment: comment.into(), content });
    }

    /// Creates a chain unless it exists.
    fn ensure_chain(&mut self, listing: &dyn Listing, table: Table, chain: &str) -> Result<(), RequestError> {
        if !listing.has_chain(table, chain)? {
            self.new_chains.push((table, chain.to_owned()));
            self.add(table, chain, false, CREATED, Content::Nothing);
        }
        Ok(())
    }
}

/// The changes that open a family's table, and whether it is open already for exactly these packets. A rule in
/// another form is replaced. If the table lacks the chain to open, nothing is needed.
pub(crate) fn open(
    listing: &dyn Listing,
    family: Family,
    opening: &Opening,
) -> Result<(Edit, bool), RequestError> {
    let (mut edit, table) = (Edit::default(), table(family));
    let OpenedHook { hook, chain } = opening.way;
    let hooked = listing.rules(table, hook)?;
    if hooked.is_empty() && !listing.has_chain(table, hook)? {
        return Ok((edit, true));
    }
    let expected = Content::Accept(opening.bit);
    let here = listing.rules(table, chain)?;
    let is_led_to = leads(&hooked, chain);
    if !is_led_to {
        edit.ensure_chain(listing, table, chain)?;
    }
    // Another program has flushed the chain.
    if here.is_empty() && edit.new_chains.is_empty() {
        edit.add(table, chain, false, CREATED, Content::Nothing);
    }
    if let Some(admin) = opening.admin.as_ref().map(ChainName::as_str).filter(|admin| !leads(&here, admin)) {
        edit.ensure_chain(listing, table, admin)?;
        edit.add(table, chain, true, TO_ADMIN, Content::Jump(admin.to_owned()));
    }
    let comment = opening.comment();
    let (exact, others): (Vec<_>, Vec<_>) =
        here.into_iter().filter(|rule| rule.comment == comment).partition(|rule| rule.content == expected);
    let is_open = is_led_to
        && edit.added.is_empty()
        && !(exact.is_empty() && others.is_empty())
        && others.iter().all(|rule| rule.content == Content::AcceptNatively(opening.bit));
    edit.deleted.extend(others.into_iter().map(|rule| rule.location));
    if exact.is_empty() {
        edit.add(table, chain, false, comment, expected);
    }
    if !is_led_to {
        edit.add(table, hook, true, TO_CHAIN, Content::Jump(chain.to_owned()));
    }
    Ok((edit, is_open))
}

/// Like [`open`], and deletes the reference's rules for addresses whose container Ferrule attaches now: they are of an
/// earlier container.
pub(crate) fn open_for(
    listing: &dyn Listing,
    family: Family,
    opening: &Opening,
    addresses: &[IpAddr],
) -> Result<Edit, RequestError> {
    let (mut edit, _) = open(listing, family, opening)?;
    edit.deleted.extend(accepts(listing, family, (TABLE, opening.chain()), addresses)?);
    Ok(edit)
}

/// Deletes the rules that accept packets with these bits. See [`close`].
pub(crate) fn close_bits(
    listing: &dyn Listing,
    family: Family,
    way: OpenedHook,
    bits: &BTreeSet<u8>,
) -> Result<Edit, RequestError> {
    if bits.is_empty() {
        return Ok(Edit::default());
    }
    close(listing, family, way, |rule| {
        rule.comment
            .strip_prefix(MARK)
            .and_then(|bit| bit.parse().ok())
            .is_some_and(|bit| bits.contains(&bit))
    })
}

/// Deletes the unused rules in Ferrule's chain, as selected by the closure. If no other program has rules in the
/// chains, the jumps to them and the chains that Ferrule created are deleted too.
pub(crate) fn close(
    listing: &dyn Listing,
    family: Family,
    OpenedHook { hook, chain }: OpenedHook,
    is_unused: impl Fn(&Listed) -> bool,
) -> Result<Edit, RequestError> {
    let (mut edit, table) = (Edit::default(), table(family));
    let (unused, rest): (Vec<_>, Vec<_>) = listing.rules(table, chain)?.into_iter().partition(is_unused);
    if unused.is_empty() {
        // Another program has flushed the table.
        let is_flushed = rest.is_empty() && listing.has_chain(table, chain)?;
        if is_flushed && jumps(listing, table, chain)? == 0 {
            edit.old_chains.push((table, chain.to_owned()));
        }
        return Ok(edit);
    }
    edit.deleted.extend(unused.into_iter().map(|rule| rule.location));
    let (to_admin, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(is_way_to_admin);
    let (created, others): (Vec<_>, Vec<_>) = others.into_iter().partition(is_created_here);
    let mut admins = Vec::new();
    for rule in &to_admin {
        let rules = listing.rules(table, &rule.target)?;
        if rules.iter().any(|rule| !is_created_here(rule)) {
            return Ok(edit);
        }
        if !rules.is_empty() && jumps(listing, table, &rule.target)? == 1 {
            admins.push((table, rule.target.clone()));
        }
    }
    if !others.is_empty() {
        return Ok(edit);
    }
    let is_way_here = |rule: &Listed| rule.comment == TO_CHAIN && leads(std::slice::from_ref(rule), chain);
    let ways: Vec<_> = listing.rules(table, hook)?.into_iter().filter(is_way_here).collect();
    if !created.is_empty() {
        if jumps(listing, table, chain)? == ways.len() {
            edit.old_chains.push((table, chain.to_owned()));
        } else {
            // The chain of another program, which was empty, so `open` marked it as created here.
            edit.deleted.extend(created.into_iter().map(|rule| rule.location));
        }
    }
    // A chain can be deleted only if no rule jumps to it.
    edit.deleted.extend(to_admin.into_iter().chain(ways).map(|rule| rule.location));
    edit.old_chains.extend(admins);
    Ok(edit)
}

/// The number of rules of the table that jump to a chain.
fn jumps(listing: &dyn Listing, table: Table, to: &str) -> Result<usize, RequestError> {
    let mut count = 0;
    for chain in listing.chains(table)? {
        count += listing.rules(table, &chain)?.iter().filter(|rule| rule.target == to).count();
    }
    Ok(count)
}

fn leads(rules: &[Listed], to: &str) -> bool {
    rules.iter().any(|rule| matches!(&rule.content, Content::Jump(chain) if chain == to))
}

fn is_way_to_admin(rule: &Listed) -> bool {
    rule.comment == TO_ADMIN && matches!(rule.content, Content::Jump(_))
}

fn is_created_here(rule: &Listed) -> bool {
    rule.comment == CREATED && rule.content == Content::Nothing
}
