//! How connections that need source NAT are told apart.

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

/// The name of an iptables chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainName(String);

impl ChainName {
    /// Checks the name: 1 to 28 printable characters, no white space, no quotes, not beginning with `-` or
    /// `!` (as iptables(8) itself checks it).
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\'' | '\\' | ':' | '#');
        if text.is_empty() || text.len() > 28 || !text.chars().all(plain) || text.starts_with(['-', '!']) {
            return Err(format!("{text:?} is not the name of an iptables chain"));
        }
        Ok(Self(text.to_owned()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
