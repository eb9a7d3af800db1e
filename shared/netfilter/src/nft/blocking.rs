//! Other programs' chains that drop forwarded packets. Only their owners can open them.

use std::fmt;

use netlink::wire::{Attributes, read_be32, read_str};
use netlink::{Family, RequestError, Socket};

use super::decode::{expressions, value, verdict};
use super::query::{self, Base, RawRule};
use crate::opening::{self, MARKING_PRIORITY};
use crate::ruleset::uapi::*;
use crate::ruleset::{INET, Table};

/// A base chain that drops packets, with the rule that opens it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockingChain {
    chain: Base,
    /// None: allowed packets are not marked, so the chain cannot be opened for them.
    bit: Option<u8>,
    /// Whether rules that do not look at this bit may accept the containers' packets, for example by their addresses.
    may_accept: bool,
}

impl BlockingChain {
    /// Whether the chain is evaluated before Ferrule's rules mark the packets.
    fn precedes_mark(&self) -> bool {
        self.chain.priority < MARKING_PRIORITY
    }

    /// Whether the chain is for packets of this family.
    pub(crate) fn is_for(&self, family: Family) -> bool {
        families(&self.chain).contains(&family)
    }

    /// Whether the chain drops the containers' packets of this family for certain: none of its rules can accept them.
    pub fn surely_drops(&self, family: Family) -> bool {
        self.is_for(family) && !self.may_accept
    }

    /// The chain, and why the plugin cannot open it.
    pub fn cause(&self) -> String {
        let Base { table, name, priority, .. } = &self.chain;
        let why = match (table.as_str(), self.bit) {
            ("firewalld", _) => "only firewalld can change that".to_owned(),
            (_, None) => "no rule of iptables can change that".to_owned(),
            (_, Some(_)) if self.precedes_mark() => format!(
                "no rule can accept them by their mark, because the chain's priority {priority} is below {MARKING_PRIORITY}, \
                 that of the chain which marks them"
            ),
            (_, Some(_)) => "only a rule in it can change that".to_owned(),
        };
        format!(
            "the chain {name} of the table {} {table} drops forwarded packets, and {why}",
            family_name(&self.chain)
        )
    }

    /// What the administrator has to do.
    pub fn remedy(&self) -> String {
        let Base { table, name, .. } = &self.chain;
        match (table.as_str(), self.bit) {
            ("firewalld", _) => {
                "set the backend to firewalld and create the containers again, or add the bridge to a zone".to_owned()
            }
            (_, None) => {
                "set the backend to nftables, and create the containers again: ADD then prints the rule to add".to_owned()
            }
            (_, Some(_)) if self.precedes_mark() => {
                "change its priority to 0, or accept the containers' addresses in it".to_owned()
            }
            (_, Some(bit)) => {
                let (family, bit) = (family_name(&self.chain), 1_u32 << bit);
                format!("run `nft insert rule {family} {table} {name} meta mark and {bit:#x} == {bit:#x} accept`")
            }
        }
    }
}

impl fmt::Display for BlockingChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.cause(), self.remedy())
    }
}

/// The chains that drop packets with a bit of their mark. None: packets without a mark.
pub(super) fn find(socket: &Socket, bit: Option<u8>) -> Result<Vec<BlockingChain>, RequestError> {
    let mut blocking = Vec::new();
    for chain in forward_chains(socket)? {
        if !is_filter(&chain) || is_ours(&chain) {
            continue;
        }
        let rules = query::rules_of(socket, chain.family, &chain.table, &chain.name)?;
        let drops = chain.drops || rules.iter().any(drops_all);
        let is_opening = |rule: &RawRule| bit.is_some_and(|bit| accepts(rule, bit));
        let mut reached = rules.iter().take_while(|rule| !drops_all(rule));
        let may_accept = reached.any(|rule| may_accept_new(rule) && !is_opening(rule));
        let chain = BlockingChain { chain, bit, may_accept };
        let is_opened = || rules.iter().any(is_opening);
        if drops && (chain.precedes_mark() || !is_opened()) {
            blocking.push(chain);
        }
    }
    Ok(blocking)
}

/// Other programs' base chains that drop all forwarded packets except those that one of their rules accepts, as
/// arguments of `nft list chain`, each with its families.
pub(super) fn dropping(socket: &Socket) -> Result<Vec<(String, &'static [Family])>, RequestError> {
    let mut dropping = Vec::new();
    for chain in forward_chains(socket)? {
        if !is_filter(&chain) || chain.family == INET.family && chain.table == INET.name {
            continue;
        }
        let rules = query::rules_of(socket, chain.family, &chain.table, &chain.name)?;
        if chain.drops || rules.iter().any(drops_all) {
            dropping.push((chain_name(&chain), families(&chain)));
        }
    }
    Ok(dropping)
}

fn chain_name(chain: &Base) -> String {
    format!("{} {} {}", family_name(chain), chain.table, chain.name)
}

/// The families of the packets that a chain sees.
fn families(chain: &Base) -> &'static [Family] {
    match chain.family {
        NFPROTO_IPV4 => &[Family::V4],
        NFPROTO_IPV6 => &[Family::V6],
        _ => &Family::ALL,
    }
}

/// The family of a chain's table, as nft(8) names it.
fn family_name(chain: &Base) -> &'static str {
    match chain.family {
        NFPROTO_IPV4 => "ip",
        NFPROTO_IPV6 => "ip6",
        _ => "inet",
    }
}

/// Up to this number of chains, listing all of them is faster than looking into each table.
const FEW: u32 = 256;

/// The tables of iptables-nft.
const IPTABLES: [&str; 5] = ["filter", "mangle", "nat", "raw", "security"];

/// The base chains for forwarded packets. With thousands of chains, as kube-proxy creates them by iptables, the tables
/// of iptables are not listed: iptables only works with a table that has no other base chains than its own.
fn forward_chains(socket: &Socket) -> Result<Vec<Base>, RequestError> {
    let tables = query::tables(socket)?;
    if tables.iter().map(|table| table.uses).sum::<u32>() < FEW {
        return query::forward_chains(socket, NFPROTO_UNSPEC);
    }
    let mut chains = Vec::new();
    for family in [NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6] {
        let names: Vec<&str> =
            tables.iter().filter(|table| table.family == family).map(|table| table.name.as_str()).collect();
        match of_iptables(socket, family, &names)? {
            Some(found) => chains.extend(found),
            None if names.iter().all(|name| family == INET.family && *name == INET.name) => {}
            None => chains.extend(query::forward_chains(socket, family)?),
        }
    }
    Ok(chains)
}

/// The chains, if all tables are iptables'. None: there are others.
fn of_iptables(socket: &Socket, family: u8, names: &[&str]) -> Result<Option<Vec<Base>>, RequestError> {
    let mut chains = Vec::new();
    for name in names {
        let Some(name) = IPTABLES.iter().find(|of_iptables| *of_iptables == name) else { return Ok(None) };
        let table = Table::new(family, name);
        // Each table has at least one of these.
        let hooks = [opening::HOOK, "PREROUTING", "OUTPUT", "POSTROUTING"];
        let mut is_of_iptables = false;
        for hook in hooks {
            is_of_iptables = is_of_iptables || query::has_chain(socket, table, hook)?;
        }
        if family == NFPROTO_INET || !is_of_iptables {
            return Ok(None);
        }
        chains.extend(query::forward_chain(socket, table, opening::HOOK)?);
    }
    Ok(Some(chains))
}

fn is_filter(chain: &Base) -> bool {
    [NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6].contains(&chain.family)
}

/// Whether the chain is Ferrule's, or one that Ferrule opens.
fn is_ours(chain: &Base) -> bool {
    let opened = chain.family != NFPROTO_INET && chain.table == opening::TABLE && chain.name == opening::HOOK;
    opened || chain.family == INET.family && chain.table == INET.name
}

/// Whether a rule drops or rejects every packet.
fn drops_all(rule: &RawRule) -> bool {
    let mut drops = false;
    for (name, data) in expressions(rule) {
        match name {
            "counter" | "log" => {}
            "reject" => drops = true,
            // iptables-nft leaves its target REJECT to the module of iptables.
            "target" if data.get(NFTA_TARGET_NAME).and_then(read_str) == Some("REJECT") => drops = true,
            "immediate" => drops |= verdict(data) == Some((NF_DROP, "")),
            _ => return false,
        }
    }
    drops
}

/// Whether a rule may accept packets that open a connection. A jump counts, because the other chain may accept them.
fn may_accept_new(rule: &RawRule) -> bool {
    let decides = |(name, data): (&str, Attributes<'_>)| match name {
        "immediate" => verdict(data).is_some_and(|(code, _)| code != NF_DROP),
        // A verdict map.
        "lookup" => data.get(NFTA_LOOKUP_DREG).and_then(read_be32) == Some(NFT_REG_VERDICT),
        "queue" | "target" => true,
        _ => false,
    };
    expressions(rule).any(decides) && !is_for_answers(rule)
}

/// Whether a rule begins with `ct state established,related`, or one of the two.
fn is_for_answers(rule: &RawRule) -> bool {
    let expressions: Vec<_> = expressions(rule).collect();
    let [("ct", ct), ("bitwise", bits), ("cmp", compared), ..] = &expressions[..] else { return false };
    let number = |kind| ct.get(kind).and_then(read_be32);
    let mask =
        value(*bits, NFTA_BITWISE_MASK).and_then(|mask| Some(u32::from_ne_bytes(*mask.first_chunk()?)));
    number(NFTA_CT_KEY) == Some(NFT_CT_STATE)
        && mask.is_some_and(|mask| mask & !(IP_CT_ESTABLISHED_BIT | IP_CT_RELATED_BIT) == 0)
        && compared.get(NFTA_CMP_OP).and_then(read_be32) == Some(NFT_CMP_NEQ)
        && value(*compared, NFTA_CMP_DATA) == Some(&[0; 4])
}

/// Whether a rule tests a bit of the packet's mark, and accepts.
fn accepts(rule: &RawRule, bit: u8) -> bool {
    let mask = (1_u32 << bit).to_ne_bytes();
    let (mut marks, mut masks, mut accepts) = (false, false, false);
    for (name, data) in expressions(rule) {
        match name {
            "meta" => marks |= data.get(NFTA_META_KEY).and_then(read_be32) == Some(NFT_META_MARK),
            "bitwise" => masks |= value(data, NFTA_BITWISE_MASK) == Some(&mask),
            "immediate" => accepts |= verdict(data) == Some((NF_ACCEPT, "")),
            _ => {}
        }
    }
    marks && masks && accepts
}
