//! What lets packets through the chain that drops what no rule of it accepts: FORWARD in the table filter of iptables.
//!
//! The rules are such that iptables' own tools list them in full, and so restore them in full. It takes a set for no match at
//! all, and would let everything pass.

use crate::kinds::ChainName;

/// The table and chain of iptables that packets pass when they are forwarded.
pub(crate) const TABLE: &str = "filter";
pub(crate) const HOOK: &str = "FORWARD";

/// The chain that leads to the administrator's, and then accepts what has the mark. The reference calls it so, too.
pub(crate) const CHAIN: &str = "CNI-FORWARD";

/// Which packets pass, and what the administrator may say to it before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The bit of the packet's mark, 0 to 31 (the key `acceptMarkBit`).
    pub bit: u8,
    /// The chain that the administrator may put rules into (the key `iptablesAdminChainName`).
    pub admin: ChainName,
}

impl Opening {
    /// The bit that is used if the configuration does not say. portmap's is 13, Kubernetes uses 14 and 15, Calico 20 to 31.
    pub const DEFAULT_BIT: u8 = 12;

    /// The comment of the rule that accepts.
    pub(crate) fn comment(&self) -> String {
        format!("{MARK}{}", self.bit)
    }
}

/// What the comments of rules begin with that accept by a bit.
pub(crate) const MARK: &str = "ferrule: mark bit ";

/// The comment of the rules that lead to [`CHAIN`], and from it to the administrator's.
pub(crate) const TO_CHAIN: &str = "ferrule: containers";
pub(crate) const TO_ADMIN: &str = "ferrule: administrator";
