//! What iptables-nft or the reference's nftables backends installed, removed over netlink: no process is
//! started.

use std::net::IpAddr;

use netlink::wire::{Attributes, read_be32, read_str};
use netlink::{Refusal, Socket};

use super::batch::Batch;
use super::layout::Table;
use super::query::{self, Found};
use super::retry::{Attempt, plain};
use super::uapi::*;
use crate::iptables::{HAIRPIN, HOSTPORTS, SHARED};
use crate::leftovers::{Whose, parents};
use crate::rules::Kind;
use crate::sweep::{Addresses, Forget};

const fn table(family: u8, name: &'static str) -> Table {
    Table { family, name }
}

/// What iptables-nft and ip6tables-nft call their tables.
pub(super) const NAT: [Table; 2] = [table(NFPROTO_IPV4, "nat"), table(NFPROTO_IPV6, "nat")];
const MANGLE: Table = table(NFPROTO_IPV4, "mangle");

// The reference's own tables.
pub(super) const MASQUERADE: Table = table(NFPROTO_INET, "cni_plugins_masquerade");
pub(super) const HOST_PORTS: [Table; 2] =
    [table(NFPROTO_IPV4, "cni_hostport"), table(NFPROTO_IPV6, "cni_hostport")];
pub(super) const SPOOF_CHECK: Table = table(NFPROTO_BRIDGE, "nat");

/// Whether iptables-nft has a chain, in either family.
pub(super) fn has_chain(socket: &Socket, chain: &str) -> Result<bool, Refusal> {
    Ok(query::has_chain(socket, NAT[0], chain)? || query::has_chain(socket, NAT[1], chain)?)
}

/// Removes what other backends installed, in one transaction. None: there is nothing, and nothing is written. Else the
/// container's addresses, as far as the rules name them.
pub(super) fn remove(
    socket: &Socket,
    whose: &Whose<'_>,
    kind: Kind,
    forget: Forget<'_>,
) -> Attempt<Option<Addresses>> {
    let mut batch = Batch::new(Some(query::generation(socket).map_err(plain)?));
    let addresses = put_removal(socket, whose, kind, &mut batch).map_err(plain)?;
    if batch.is_empty() {
        return Ok(None);
    }
    forget(&addresses);
    batch.commit(socket)?;
    Ok(Some(addresses))
}

fn put_removal(
    socket: &Socket,
    whose: &Whose<'_>,
    kind: Kind,
    batch: &mut Batch,
) -> Result<Addresses, Refusal> {
    match kind {
        Kind::Masquerade => {
            put_rules(socket, MASQUERADE, "masq_checks", &|c| whose.has_masquerade(c), batch)?;
        }
        Kind::HostPorts => {
            for table in HOST_PORTS {
                for chain in ["hostports", "hostip_hostports", "masquerading"] {
                    put_rules(socket, table, chain, &|c| whose.has_host_port(c), batch)?;
                }
            }
        }
        Kind::SpoofCheck => {
            let Some((comment, chains)) = whose.spoof_check() else { return Ok(Addresses::new()) };
            put_rules(socket, SPOOF_CHECK, "PREROUTING", &|c| c == comment, batch)?;
            return put_chains(socket, SPOOF_CHECK, &chains, batch);
        }
    }
    let [v4, v6] = NAT.map(|table| put_nat(socket, table, whose, kind, batch));
    Ok(v4?.into_iter().chain(v6?).collect())
}

/// Attachments' chains in the table nat, and the rules that jump there.
fn put_nat(
    socket: &Socket,
    table: Table,
    whose: &Whose<'_>,
    kind: Kind,
    batch: &mut Batch,
) -> Result<Addresses, Refusal> {
    let mut chains = Vec::new();
    for chain in whose.chains(kind) {
        if query::has_chain(socket, table, &chain)? {
            chains.push(chain);
        }
    }
    if chains.is_empty() && matches!(whose, Whose::Of(_)) {
        return Ok(Addresses::new());
    }
    for parent in parents(kind) {
        let (mut left, mut gone) = (0, 0);
        for rule in query::rules(socket, table, parent)? {
            let Some(target) = jump(&rule) else { continue };
            let is_theirs = chains.contains(&target) || whose.has_jump(&rule.comment);
            if !is_theirs {
                left += 1;
                continue;
            }
            gone += 1;
            batch.delete_rule(table, parent, rule.handle);
            if !chains.contains(&target) {
                chains.push(target);
            }
        }
        if *parent == HOSTPORTS && left == 0 && gone > 0 {
            put_shared(socket, table, batch)?;
            chains.extend([HAIRPIN.to_owned(), HOSTPORTS.to_owned()]);
        }
    }
    put_chains(socket, table, &chains, batch)
}

/// The rules that attachments shared, after the last one.
fn put_shared(socket: &Socket, table: Table, batch: &mut Batch) -> Result<(), Refusal> {
    let is_shared = |comment: &str| comment.starts_with(SHARED);
    for chain in ["PREROUTING", "OUTPUT", "POSTROUTING"] {
        put_rules(socket, table, chain, &is_shared, batch)?;
    }
    if table.family == MANGLE.family {
        put_rules(socket, MANGLE, "PREROUTING", &is_shared, batch)?;
    }
    Ok(())
}

/// The rules of a chain that have a comment.
fn put_rules(
    socket: &Socket,
    table: Table,
    chain: &str,
    goes: &dyn Fn(&str) -> bool,
    batch: &mut Batch,
) -> Result<(), Refusal> {
    for rule in query::rules(socket, table, chain)?.iter().filter(|rule| goes(&rule.comment)) {
        batch.delete_rule(table, chain, rule.handle);
    }
    Ok(())
}

/// Chains with all that is in them. Of our own, some rules name the container's address.
fn put_chains(
    socket: &Socket,
    table: Table,
    chains: &[String],
    batch: &mut Batch,
) -> Result<Addresses, Refusal> {
    let mut addresses = Addresses::new();
    for chain in chains {
        if query::has_chain(socket, table, chain)? {
            let rules = query::rules(socket, table, chain)?;
            addresses.extend(rules.iter().filter_map(|rule| rule.comment.parse::<IpAddr>().ok()));
            batch.delete_chain(table, chain);
        }
    }
    Ok(addresses)
}

/// The chain that a rule jumps or goes to.
pub(super) fn jump(rule: &Found) -> Option<String> {
    let of_expression = |(_, expression)| {
        let data =
            Attributes::of(Attributes::of(expression).get(NFTA_EXPR_DATA)?).get(NFTA_IMMEDIATE_DATA)?;
        let verdict = Attributes::of(Attributes::of(data).get(NFTA_DATA_VERDICT)?);
        let code = verdict.get(NFTA_VERDICT_CODE).and_then(read_be32)?.cast_signed();
        let chain = verdict.get(NFTA_VERDICT_CHAIN).and_then(read_str)?;
        matches!(code, NFT_JUMP | NFT_GOTO).then(|| chain.to_owned())
    };
    Attributes::of(&rule.expressions).find_map(of_expression)
}
