//! Reads the ruleset.

use std::cell::RefCell;

use netlink::wire::{Attributes, Message, read_be32, read_be64, read_str};
use netlink::{RequestError, Socket};
use nix::errno::Errno;

use super::message::{HEADER, comment, element_message, in_table, message};
use crate::ruleset::uapi::*;
use crate::ruleset::{Element, Table};

/// The generation of the ruleset. It changes with every transaction.
pub(super) fn generation(socket: &Socket) -> Result<u32, RequestError> {
    let mut generation = None;
    socket.request(message(NFT_MSG_GETGEN, 0, NFPROTO_UNSPEC), |_, payload| {
        generation = Attributes::after(HEADER, payload).get(NFTA_GEN_ID).and_then(read_be32);
    })?;
    generation.ok_or_else(|| Errno::EBADMSG.into())
}

pub(super) fn has_chain(socket: &Socket, table: Table, chain: &str) -> Result<bool, RequestError> {
    let mut get = in_table(NFT_MSG_GETCHAIN, 0, table);
    get.put_str(NFTA_CHAIN_NAME, chain);
    exists(socket.request(get, |_, _| {}))
}

/// The names of a table's sets and maps.
pub(super) fn sets(socket: &Socket, table: Table) -> Result<Vec<String>, RequestError> {
    let name = |_, payload: &[u8]| {
        Attributes::after(HEADER, payload).get(NFTA_SET_NAME).and_then(read_str).map(str::to_owned)
    };
    match socket.dump(in_table(NFT_MSG_GETSET, 0, table), name) {
        Err(refusal) if refusal.errno() == Some(Errno::ENOENT) => Ok(Vec::new()),
        other => other,
    }
}

/// The names of a table's chains. Empty if the table does not exist.
pub(super) fn chains(socket: &Socket, table: Table) -> Result<Vec<String>, RequestError> {
    let parse = |_, payload: &[u8]| {
        let chain = Attributes::after(HEADER, payload);
        let is_here = chain.get(NFTA_TABLE_NAME).and_then(read_str) == Some(table.name);
        chain.get(NFTA_CHAIN_NAME).and_then(read_str).filter(|_| is_here).map(str::to_owned)
    };
    // The kernel lists the chains of all tables of a family.
    socket.dump(message(NFT_MSG_GETCHAIN, 0, table.family), parse)
}

fn exists(outcome: Result<(), RequestError>) -> Result<bool, RequestError> {
    match outcome {
        Ok(()) => Ok(true),
        Err(refusal) if refusal.errno() == Some(Errno::ENOENT) => Ok(false),
        Err(refusal) => Err(refusal),
    }
}

/// A rule as the kernel lists it, with its expressions not decoded.
#[derive(Clone, Debug, Default)]
pub(super) struct RawRule {
    pub(super) handle: u64,
    pub(super) comment: String,
    /// The attributes of its expressions.
    pub(super) expressions: Vec<u8>,
}

/// A base chain of any program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Base {
    pub(super) family: u8,
    pub(super) table: String,
    pub(super) name: String,
    pub(super) priority: i32,
    /// Whether its policy is drop.
    pub(super) drops: bool,
}

/// A table of any program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AnyTable {
    pub(super) family: u8,
    pub(super) name: String,
    /// The number of its chains, sets and other objects.
    pub(super) uses: u32,
}

/// The tables of all families.
pub(super) fn tables(socket: &Socket) -> Result<Vec<AnyTable>, RequestError> {
    let parse = |_, payload: &[u8]| {
        let table = Attributes::after(HEADER, payload);
        Some(AnyTable {
            family: *payload.first()?,
            name: table.get(NFTA_TABLE_NAME).and_then(read_str)?.to_owned(),
            uses: table.get(NFTA_TABLE_USE).and_then(read_be32).unwrap_or_default(),
        })
    };
    socket.dump(message(NFT_MSG_GETTABLE, 0, NFPROTO_UNSPEC), parse)
}

/// The base chains for forwarded packets, of one family or of all. The kernel also lists all other chains, and there may
/// be thousands.
pub(super) fn forward_chains(socket: &Socket, family: u8) -> Result<Vec<Base>, RequestError> {
    socket.dump(message(NFT_MSG_GETCHAIN, 0, family), |_, payload| forward_base(payload))
}

/// A chain, if it is a base chain for forwarded packets.
pub(super) fn forward_chain(socket: &Socket, table: Table, name: &str) -> Result<Option<Base>, RequestError> {
    let mut get = in_table(NFT_MSG_GETCHAIN, 0, table);
    get.put_str(NFTA_CHAIN_NAME, name);
    let mut chain = None;
    exists(socket.request(get, |_, payload| chain = forward_base(payload)))?;
    Ok(chain)
}

fn forward_base(payload: &[u8]) -> Option<Base> {
    let chain = Attributes::after(HEADER, payload);
    let at = Attributes::of(chain.get(NFTA_CHAIN_HOOK)?);
    (at.get(NFTA_HOOK_HOOKNUM).and_then(read_be32)? == NF_INET_FORWARD).then_some(())?;
    Some(Base {
        family: *payload.first()?,
        table: chain.get(NFTA_CHAIN_TABLE).and_then(read_str)?.to_owned(),
        name: chain.get(NFTA_CHAIN_NAME).and_then(read_str)?.to_owned(),
        priority: at.get(NFTA_HOOK_PRIORITY).and_then(read_be32).map(u32::cast_signed)?,
        drops: chain.get(NFTA_CHAIN_POLICY).and_then(read_be32).map(u32::cast_signed) == Some(NF_DROP),
    })
}

/// The rules of a chain. Empty if it does not exist.
pub(super) fn rules(socket: &Socket, table: Table, chain: &str) -> Result<Vec<RawRule>, RequestError> {
    rules_of(socket, table.family, table.name, chain)
}

/// Like [`rules`], for a table whose name is not static.
pub(super) fn rules_of(
    socket: &Socket,
    family: u8,
    table: &str,
    chain: &str,
) -> Result<Vec<RawRule>, RequestError> {
    let mut get = message(NFT_MSG_GETRULE, 0, family);
    get.put_str(NFTA_TABLE_NAME, table);
    get.put_str(NFTA_RULE_CHAIN, chain);
    let parse = |_, payload: &[u8]| {
        let rule = Attributes::after(HEADER, payload);
        // Kernels before 5.9 do not filter by chain. If a chain is deleted meanwhile, the kernel lists the rules of
        // all.
        if rule.get(NFTA_RULE_CHAIN).and_then(read_str) != Some(chain) {
            return None;
        }
        Some(RawRule {
            handle: rule.get(NFTA_RULE_HANDLE).and_then(read_be64)?,
            comment: rule_comment(rule).unwrap_or_default().to_owned(),
            expressions: rule.get(NFTA_RULE_EXPRESSIONS).unwrap_or_default().to_vec(),
        })
    };
    match socket.dump(get, parse) {
        Err(refusal) if refusal.errno() == Some(Errno::ENOENT) => Ok(Vec::new()),
        other => other,
    }
}

/// The comment of a rule, from nft or from iptables-nft, which stores it as a match.
fn rule_comment(rule: Attributes<'_>) -> Option<&str> {
    let of_match = |(_, expression): (u16, _)| {
        let expression = Attributes::of(expression);
        let data = Attributes::of(expression.get(NFTA_EXPR_DATA)?);
        let is_comment = expression.get(NFTA_EXPR_NAME).and_then(read_str)? == "match"
            && data.get(NFTA_MATCH_NAME).and_then(read_str)? == "comment";
        // struct xt_comment_info contains only the text.
        data.get(NFTA_MATCH_INFO).filter(|_| is_comment).and_then(read_str)
    };
    let of_user = rule.get(NFTA_RULE_USERDATA).and_then(comment);
    of_user.or_else(|| Attributes::of(rule.get(NFTA_RULE_EXPRESSIONS)?).find_map(of_match))
}

/// The comment of an element. None if it does not exist. Empty without a comment.
pub(super) fn comment_of(
    socket: &Socket,
    table: Table,
    element: &Element,
) -> Result<Option<String>, RequestError> {
    let mut found = None;
    let get = element_message(NFT_MSG_GETSETELEM, 0, table, element, None);
    let outcome = socket.request(get, |_, payload| {
        found = listed(payload).next().map(|element| of(element).unwrap_or_default().to_owned());
    });
    match outcome {
        Err(refusal) if refusal.errno() != Some(Errno::ENOENT) => Err(refusal),
        _ => Ok(found),
    }
}

/// Keys and comments of all elements of a set. Empty if the set does not exist.
pub(super) fn elements(
    socket: &Socket,
    table: Table,
    set: &str,
) -> Result<Vec<(Vec<u8>, String)>, RequestError> {
    let parse = |_, payload: &[u8]| Some(listed(payload).filter_map(key_and_comment).collect::<Vec<_>>());
    match socket.dump(all(table, set), parse) {
        Err(refusal) if refusal.errno() == Some(Errno::ENOENT) => Ok(Vec::new()),
        other => Ok(other?.concat()),
    }
}

/// Visits keys and comments of elements until the visitor has enough. None for a set that does not exist.
pub(super) fn visit(
    socket: &Socket,
    table: Table,
    set: &str,
    is_enough: impl FnMut(&[u8], &str) -> bool,
) -> Result<(), RequestError> {
    let is_enough = RefCell::new(is_enough);
    let parse = |_, payload: &[u8]| {
        let mut is_enough = is_enough.borrow_mut();
        listed(payload)
            .filter_map(key_and_comment)
            .any(|(key, comment)| is_enough(&key, &comment))
            .then_some(())
    };
    match socket.dump_until(all(table, set), parse, |found| !found.is_empty()) {
        Err(refusal) if refusal.errno() == Some(Errno::ENOENT) => Ok(()),
        other => other.map(drop),
    }
}

/// The number of elements of a set, or at least `enough`: then the rest is not read.
pub(super) fn count_up_to(
    socket: &Socket,
    table: Table,
    set: &str,
    enough: usize,
) -> Result<usize, RequestError> {
    let parse = |_, payload: &[u8]| Some(listed(payload).count());
    let counts = socket.dump_until(all(table, set), parse, |counts| counts.iter().sum::<usize>() >= enough);
    Ok(counts?.iter().sum())
}

/// The request for all elements of a set.
fn all(table: Table, set: &str) -> Message {
    let mut get = in_table(NFT_MSG_GETSETELEM, 0, table);
    get.put_str(NFTA_SET_ELEM_LIST_SET, set);
    get
}

/// The elements in a message.
fn listed(payload: &[u8]) -> impl Iterator<Item = Attributes<'_>> {
    let list = Attributes::after(HEADER, payload).get(NFTA_SET_ELEM_LIST_ELEMENTS).unwrap_or_default();
    Attributes::of(list).filter(|(kind, _)| *kind == NFTA_LIST_ELEM).map(|(_, nest)| Attributes::of(nest))
}

fn key_and_comment(element: Attributes<'_>) -> Option<(Vec<u8>, String)> {
    let key = Attributes::of(element.get(NFTA_SET_ELEM_KEY)?).get(NFTA_DATA_VALUE)?;
    Some((key.to_vec(), of(element)?.to_owned()))
}

fn of<'a>(element: Attributes<'a>) -> Option<&'a str> {
    element.get(NFTA_SET_ELEM_USERDATA).and_then(comment)
}
