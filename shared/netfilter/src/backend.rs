//! The backends: nftables and iptables.

use std::fmt;
use std::str::FromStr;

/// A backend that installs rules (the keys `backend` and `ipMasqBackend`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// nf_tables, over netlink.
    Nftables,
    /// iptables and ip6tables, by `iptables-restore`.
    Iptables,
}

impl Backend {
    /// The backend that is not this one.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Nftables => Self::Iptables,
            Self::Iptables => Self::Nftables,
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nftables => "nftables",
            Self::Iptables => "iptables",
        })
    }
}

impl FromStr for Backend {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "nftables" => Ok(Self::Nftables),
            "iptables" => Ok(Self::Iptables),
            _ => Err(format!("backend {text:?} is neither nftables nor iptables")),
        }
    }
}
