//! How connections that need source NAT are told apart.

use crate::chain_name::ChainName;

/// How a mapped connection that needs source NAT is told apart on its way through the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// By this bit of a mark, 0 to 31 (the key `markMasqBit`): the packet's with iptables, the connection's with nftables.
    Bit(u8),
    /// By jumping to a chain of somebody else, who does the source NAT too (the key `externalSetMarkChain`).
    /// The iptables backend only.
    Chain(ChainName),
}

impl Mark {
    /// The bit that is used if the configuration does not say: 13. Kubernetes uses 14 and 15, Calico 20 to
    /// 31.
    pub const DEFAULT_BIT: u8 = 13;

    /// A bit, checked.
    ///
    /// # Errors
    /// If it is not within 0 to 31.
    pub fn bit(bit: i64) -> Result<Self, String> {
        match u8::try_from(bit) {
            Ok(bit @ 0..=31) => Ok(Self::Bit(bit)),
            _ => Err(format!("{bit} is not a bit of a mark: 0 to 31")),
        }
    }
}

impl Default for Mark {
    fn default() -> Self {
        Self::Bit(Self::DEFAULT_BIT)
    }
}
