//! Marks of connections that need source NAT.

use crate::chain_name::ChainName;

/// How a mapped connection that needs source NAT is recognized on its way through the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// By this bit of a mark, 0 to 31 (the key `markMasqBit`). iptables uses the packet's mark, nftables the
    /// connection's.
    Bit(u8),
    /// By jumping to another program's chain, which also does the source NAT (the key `externalSetMarkChain`). Only
    /// with the iptables backend.
    Chain(ChainName),
}

impl Mark {
    /// The default bit. Kubernetes uses 14 and 15, Calico 16 to 31.
    pub const DEFAULT_BIT: u8 = 13;

    /// A checked bit.
    ///
    /// # Errors
    /// If it is not in 0 to 31.
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
