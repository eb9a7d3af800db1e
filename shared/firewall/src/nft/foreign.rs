//! What iptables-nft or the reference's nftables backends installed, removed over netlink: no process is
//! started.

use std::net::IpAddr;

use netlink::wire::{Attributes, read_be32, read_str};
use netlink::{RequestError, Socket};

use super::batch::Batch;
use super::layout::Table;
use super::query::{self, Found};
use super::retry::{Attempt, plain};
use super::uapi::*;
use crate::iptables::{HAIRPIN, HOSTPORTS, SHARED, is_own};
use crate::leftovers::{Whose, parents};
use crate::removal::Addresses;
use crate::rules::{Kind, Protocol};

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
pub(super) fn has_chain(socket: &Socket, chain: &str) -> Result<bool, RequestError> {
    Ok(query::has_chain(socket, NAT[0], chain)? || query::has_chain(socket, NAT[1], chain)?)
}

/// What is there of other backends' rules, beside those that lead packets to it.
#[derive(Debug, Default)]
pub(super) struct Theirs {
    chains: Vec<(Table, String)>,
    /// Rules that attachments shared, of which none is left.
    shared: Vec<(Table, &'static str, u64)>,
    /// The containers' addresses that UDP goes to, as far as rules name them.
    pub(super) addresses: Addresses,
    /// Whether rules are the reference's, which name no addresses.
    pub(super) unnamed: bool,
    /// Whether anything was deleted.
    pub(super) was_there: bool,
}

/// Removes what other backends installed, in one transaction; nothing is written if there is nothing. Chains that packets
/// went through stay if `stay` says so, and nothing leads there any more.
pub(super) fn remove(
    socket: &Socket,
    whose: &Whose<'_>,
    kind: Kind,
    known: &Theirs,
    stay: impl Fn(&Theirs) -> bool,
) -> Attempt<Theirs> {
    let mut batch = Batch::new(Some(query::generation(socket).map_err(plain)?));
    let mut theirs = put_removal(socket, whose, kind, known, &mut batch).map_err(plain)?;
    if !stay(&theirs) {
        theirs.shared.iter().for_each(|(table, chain, handle)| batch.delete_rule(*table, chain, *handle));
        theirs.chains.iter().for_each(|(table, chain)| batch.delete_chain(*table, chain));
    }
    theirs.was_there = !batch.is_empty();
    if theirs.was_there {
        batch.commit(socket)?;
    }
    Ok(theirs)
}

fn put_removal(
    socket: &Socket,
    whose: &Whose<'_>,
    kind: Kind,
    known: &Theirs,
    batch: &mut Batch,
) -> Result<Theirs, RequestError> {
    let mut theirs = Theirs::default();
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
            theirs.unnamed = !batch.is_empty();
        }
        Kind::SpoofCheck => {
            let Some((comment, chains)) = whose.spoof_check() else { return Ok(theirs) };
            put_rules(socket, SPOOF_CHECK, "PREROUTING", &|c| c == comment, batch)?;
            theirs.take(socket, SPOOF_CHECK, chains.into())?;
            return Ok(theirs);
        }
    }
    for table in NAT {
        put_nat(socket, table, whose, kind, known, (&mut theirs, batch))?;
    }
    Ok(theirs)
}

/// Rules in the table nat that jump to attachments' chains.
fn put_nat(
    socket: &Socket,
    table: Table,
    whose: &Whose<'_>,
    kind: Kind,
    known: &Theirs,
    (theirs, batch): (&mut Theirs, &mut Batch),
) -> Result<(), RequestError> {
    // What attachments share may be somebody's again.
    let is_shared = |chain: &str| [HAIRPIN, HOSTPORTS].contains(&chain);
    let here = known.chains.iter().filter(|(of, chain)| *of == table && !is_shared(chain));
    let mut chains: Vec<String> = here.map(|(_, chain)| chain.clone()).collect();
    for chain in whose.chains(kind) {
        if !chains.contains(&chain) && query::has_chain(socket, table, &chain)? {
            chains.push(chain);
        }
    }
    if chains.is_empty() && matches!(whose, Whose::Of(_)) {
        return Ok(());
    }
    for parent in parents(kind) {
        let mut left = Vec::new();
        for rule in query::rules(socket, table, parent)? {
            let Some(target) = jump(&rule) else { continue };
            let is_theirs = chains.contains(&target) || whose.has_jump(&rule.comment);
            if !is_theirs {
                left.push(target);
                continue;
            }
            batch.delete_rule(table, parent, rule.handle);
            if !chains.contains(&target) {
                chains.push(target);
            }
        }
        if *parent != HOSTPORTS {
            continue;
        }
        if matches!(whose, Whose::Stale { .. }) {
            // To where nothing leads: whoever was killed before removed the rest.
            let mut own = query::chains(socket, table)?;
            own.retain(|c| is_own(Kind::HostPorts, c) && !left.contains(c) && !chains.contains(c));
            chains.append(&mut own);
        }
        if left.is_empty() && chains.iter().any(|chain| is_own(Kind::HostPorts, chain)) {
            theirs.take_shared(socket, table)?;
            chains.extend([HAIRPIN.to_owned(), HOSTPORTS.to_owned()]);
        }
    }
    theirs.take(socket, table, chains)
}

impl Theirs {
    /// Whether UDP flows may have come by them.
    pub(super) fn has_flows(&self) -> bool {
        self.unnamed || !self.addresses.is_empty()
    }

    /// The rules that attachments shared, after the last one.
    fn take_shared(&mut self, socket: &Socket, table: Table) -> Result<(), RequestError> {
        let mangle = (table.family == MANGLE.family).then_some((MANGLE, "PREROUTING"));
        let nat = ["PREROUTING", "OUTPUT", "POSTROUTING"].map(|chain| (table, chain));
        for (table, chain) in nat.into_iter().chain(mangle) {
            let rules = query::rules(socket, table, chain)?;
            let shared = rules.iter().filter(|rule| rule.comment.starts_with(SHARED));
            self.shared.extend(shared.map(|rule| (table, chain, rule.handle)));
        }
        Ok(())
    }

    /// Chains, with all that is in them. Of our own, some rules name the container's address.
    fn take(&mut self, socket: &Socket, table: Table, chains: Vec<String>) -> Result<(), RequestError> {
        for chain in chains {
            if query::has_chain(socket, table, &chain)? {
                let rules = query::rules(socket, table, &chain)?;
                let udp = rules.iter().filter(|rule| is_for_udp(rule));
                self.addresses.extend(udp.filter_map(|rule| rule.comment.parse::<IpAddr>().ok()));
                self.unnamed |= chain.starts_with("CNI-");
                self.chains.push((table, chain));
            }
        }
        Ok(())
    }
}

/// The rules of a chain that have a comment.
fn put_rules(
    socket: &Socket,
    table: Table,
    chain: &str,
    goes: &dyn Fn(&str) -> bool,
    batch: &mut Batch,
) -> Result<(), RequestError> {
    for rule in query::rules(socket, table, chain)?.iter().filter(|rule| goes(&rule.comment)) {
        batch.delete_rule(table, chain, rule.handle);
    }
    Ok(())
}

/// Whether a rule of iptables-nft is for UDP alone: it has that protocol's match, or looks at the protocol's number itself.
fn is_for_udp(rule: &Found) -> bool {
    Attributes::of(&rule.expressions).any(|(_, expression)| {
        let expression = Attributes::of(expression);
        let data = Attributes::of(expression.get(NFTA_EXPR_DATA).unwrap_or_default());
        match expression.get(NFTA_EXPR_NAME).and_then(read_str) {
            Some("match") => data.get(NFTA_MATCH_NAME).and_then(read_str) == Some("udp"),
            Some("cmp") => {
                let value = Attributes::of(data.get(NFTA_CMP_DATA).unwrap_or_default()).get(NFTA_DATA_VALUE);
                value == Some(&[Protocol::Udp.number()])
            }
            _ => false,
        }
    })
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
