//! Policy rules: which routing table is asked, and when (ip-rule(8), include/uapi/linux/fib_rules.h).

use std::fmt;

use ipnetwork::IpNetwork;

use crate::uapi::{
    AF_INET, AF_INET6, FR_ACT_TO_TBL, FRA_DST, FRA_FWMARK, FRA_IIFNAME, FRA_PRIORITY, FRA_SRC, FRA_TABLE,
    NLM_F_CREATE, NLM_F_EXCL, RT_TABLE_UNSPEC, RTM_DELRULE, RTM_GETRULE, RTM_NEWRULE,
};
use crate::wire::{Attributes, Message, read_ip, read_str, read_u32};
use crate::{Netlink, Result, error};

/// `struct fib_rule_hdr`.
const HEADER: usize = 12;

/// A rule that sends what it matches to a routing table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// For IPv6; else for IPv4.
    pub ipv6: bool,
    /// The routing table to ask.
    pub table: u32,
    /// The order: the lowest is asked first. None: the kernel puts it before those that are there.
    pub priority: Option<u32>,
    /// Packets from there. None: from anywhere.
    pub src: Option<IpNetwork>,
    /// Packets to there. None: to anywhere.
    pub dst: Option<IpNetwork>,
    /// Packets that came in by a link of this name. None: by any, or from this host.
    pub input: Option<String>,
    /// Packets with this firewall mark. None: with any.
    pub mark: Option<u32>,
}

impl Rule {
    /// A rule for everything of a family.
    pub fn to_table(table: u32, ipv6: bool) -> Self {
        Self { ipv6, table, priority: None, src: None, dst: None, input: None, mark: None }
    }

    /// A rule for what comes from an address or a subnet.
    pub fn from_source(src: IpNetwork, table: u32) -> Self {
        Self { src: Some(src), ..Self::to_table(table, src.is_ipv6()) }
    }

    /// Decodes the payload of an RTM_NEWRULE. None for one that does something else than ask a table.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let &[family, dst_length, src_length, _, table, _, _, action, ..] =
            payload.first_chunk::<HEADER>()?;
        if action != FR_ACT_TO_TBL || ![AF_INET, AF_INET6].contains(&family) {
            return None;
        }
        let attributes = Attributes::after(HEADER, payload);
        let number = |kind| attributes.get(kind).and_then(read_u32);
        let net = |kind, length| IpNetwork::new(attributes.get(kind).and_then(read_ip)?, length).ok();
        Some(Self {
            ipv6: family == AF_INET6,
            table: number(FRA_TABLE).unwrap_or_else(|| u32::from(table)),
            // The kernel leaves out a priority of 0.
            priority: number(FRA_PRIORITY).or(Some(0)),
            src: net(FRA_SRC, src_length),
            dst: net(FRA_DST, dst_length),
            input: attributes.get(FRA_IIFNAME).and_then(read_str).map(str::to_owned),
            mark: number(FRA_FWMARK),
        })
    }

    fn message(&self, kind: u16, flags: u16) -> Message {
        let prefix = |net: Option<IpNetwork>| net.map_or(0, |net| net.prefix());
        let mut header = header(self.ipv6);
        header[1..3].copy_from_slice(&[prefix(self.dst), prefix(self.src)]);
        header[4] = RT_TABLE_UNSPEC;
        header[7] = FR_ACT_TO_TBL;
        let mut message = Message::new(kind, flags, &header);
        for (kind, net) in [(FRA_DST, self.dst), (FRA_SRC, self.src)] {
            if let Some(net) = net {
                message.put_ip(kind, net.network());
            }
        }
        let numbers = [(FRA_TABLE, Some(self.table)), (FRA_PRIORITY, self.priority), (FRA_FWMARK, self.mark)];
        for (kind, number) in numbers {
            if let Some(number) = number {
                message.put_u32(kind, number);
            }
        }
        if let Some(input) = &self.input {
            message.put_str(FRA_IIFNAME, input);
        }
        message
    }
}

/// As `ip rule` writes it.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.src {
            Some(src) => write!(f, "from {src}")?,
            None => f.write_str("from all")?,
        }
        if let Some(dst) = self.dst {
            write!(f, " to {dst}")?;
        }
        if let Some(mark) = self.mark {
            write!(f, " fwmark {mark:#x}")?;
        }
        if let Some(input) = &self.input {
            write!(f, " iif {input}")?;
        }
        write!(f, " lookup {}", self.table)
    }
}

fn header(ipv6: bool) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[0] = if ipv6 { AF_INET6 } else { AF_INET };
    bytes
}

impl Netlink {
    /// The rules of both families that ask a table, in the order in which they are asked.
    ///
    /// # Errors
    /// If the kernel refuses to tell.
    pub fn rules(&self) -> Result<Vec<Rule>> {
        let mut rules = Vec::new();
        for ipv6 in [false, true] {
            let message = Message::new(RTM_GETRULE, 0, &header(ipv6));
            let listed = self.socket.dump(message, |_, payload| Rule::parse(payload));
            match listed.map_err(|r| r.during("list", "policy rules")) {
                Ok(listed) => rules.extend(listed),
                // A kernel without the family, or without policy routing.
                Err(e) if e.is_unsupported() => {}
                Err(e) => return Err(e),
            }
        }
        Ok(rules)
    }

    /// Adds a rule.
    ///
    /// # Errors
    /// If exactly this one is there, or the kernel refuses.
    pub fn add_rule(&self, rule: &Rule) -> Result<()> {
        let message = rule.message(RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL);
        self.socket.request(message, |_, _| {}).map_err(|r| r.during("add policy rule", rule))
    }

    /// Deletes a rule, whatever its priority if it names none. That it is gone already is fine.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn delete_rule(&self, rule: &Rule) -> Result<()> {
        let outcome = self.socket.request(rule.message(RTM_DELRULE, 0), |_, _| {});
        error::missing_is_fine(outcome.map_err(|r| r.during("delete policy rule", rule)))
    }
}
