//! Routing policy rules (ip-rule(8)).

use std::fmt;

use ipnetwork::IpNetwork;

use crate::address::family;
use crate::uapi::*;
use crate::wire::{Attributes, Message, read_ip, read_u32};
use crate::{Netlink, Result};

/// `struct fib_rule_hdr`.
const HEADER: usize = 12;

/// Attributes that the kernel lists for every rule.
const ALWAYS: [u16; 6] = [FRA_SRC, FRA_TABLE, FRA_PRIORITY, FRA_PROTOCOL, FRA_SUPPRESS_PREFIXLEN, FRA_PAD];

/// Value of FRA_SUPPRESS_PREFIXLEN without effect.
const SUPPRESS_NOTHING: u32 = u32::MAX;

/// A rule with a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Source addresses of the packets. `None`: all.
    pub source: Option<IpNetwork>,
    /// Table to look up. 0: none, the rule has another action.
    pub table: u32,
    /// Priority, the lowest first. `None`: the kernel's choice, before all rules but the first.
    pub priority: Option<u32>,
    /// Which program added the rule (FRA_PROTOCOL). 0: unknown.
    pub protocol: u8,
    /// Whether the rule has other conditions than the source: a mark, an interface, a destination, or a negation.
    pub has_more: bool,
}

impl Rule {
    /// `from SOURCE lookup TABLE`.
    pub fn from_source(source: IpNetwork, table: u32) -> Self {
        Self { source: Some(source), table, priority: None, protocol: 0, has_more: false }
    }

    /// Decodes the payload of an RTM_NEWRULE.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let &[_, dst, prefix, tos, table, _, _, action, flags @ ..] = payload.first_chunk::<HEADER>()?;
        let attributes = Attributes::after(HEADER, payload);
        let source = attributes.get(FRA_SRC).and_then(read_ip);
        let number = |kind| attributes.get(kind).and_then(read_u32);
        let suppresses = number(FRA_SUPPRESS_PREFIXLEN).is_some_and(|length| length != SUPPRESS_NOTHING);
        let is_inverted = u32::from_ne_bytes(flags) & FIB_RULE_INVERT != 0;
        let asks_more = { attributes }.any(|(kind, _)| !ALWAYS.contains(&kind));
        Some(Self {
            source: source.and_then(|source| IpNetwork::new(source, prefix).ok()),
            table: number(FRA_TABLE).unwrap_or_else(|| u32::from(table)),
            priority: number(FRA_PRIORITY),
            protocol: attributes.get(FRA_PROTOCOL).and_then(|value| value.first().copied()).unwrap_or(0),
            has_more: dst != 0
                || tos != 0
                || action != FR_ACT_TO_TBL
                || is_inverted
                || suppresses
                || asks_more,
        })
    }

    fn message(&self, kind: u16, flags: u16) -> Message {
        let mut header = [0; HEADER];
        header[0] = self.source.map_or(AF_INET, |source| family(source.ip()));
        header[2] = self.source.map_or(0, |source| source.prefix());
        header[7] = FR_ACT_TO_TBL;
        let mut message = Message::new(kind, flags, &header);
        if let Some(source) = self.source {
            message.put_ip(FRA_SRC, source.network());
        }
        message.put_u32(FRA_TABLE, self.table);
        message.put_optional(FRA_PRIORITY, self.priority);
        message.put_u8(FRA_PROTOCOL, self.protocol);
        message
    }
}

/// As in `ip rule`.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source {
            Some(source) => write!(f, "from {source} lookup {}", self.table),
            None => write!(f, "from all lookup {}", self.table),
        }
    }
}

impl Netlink {
    /// Lists the rules of both families, by priority within each.
    ///
    /// # Errors
    /// If the kernel refuses the request, or has no IPv4 rules (CONFIG_IP_MULTIPLE_TABLES).
    pub fn rules(&self) -> Result<Vec<Rule>> {
        let mut rules = self.rules_of(AF_INET)?;
        match self.rules_of(AF_INET6) {
            Ok(v6) => rules.extend(v6),
            Err(e) if e.is_unsupported() => {}
            Err(e) => return Err(e),
        }
        Ok(rules)
    }

    fn rules_of(&self, family: u8) -> Result<Vec<Rule>> {
        let mut header = [0; HEADER];
        header[0] = family;
        let rules =
            self.socket.dump(Message::new(RTM_GETRULE, 0, &header), |_, payload| Rule::parse(payload));
        rules.map_err(|r| r.during("list", "rules"))
    }

    /// Adds a rule. Without a priority it gets its own, even if an equal rule exists.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn add_rule(&self, rule: &Rule) -> Result<()> {
        self.order(rule.message(RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL), "add rule", rule)
    }

    /// Deletes a rule. Succeeds if it does not exist.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn delete_rule(&self, rule: &Rule) -> Result<()> {
        self.order_if_it_exists(rule.message(RTM_DELRULE, 0), "delete rule", rule)
    }
}
