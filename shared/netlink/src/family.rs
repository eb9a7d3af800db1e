//! Address family.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use ipnetwork::IpNetwork;
use nix::libc;

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both families.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// Returns the value for this family.
    pub const fn choose<T: Copy>(self, v4: T, v6: T) -> T {
        match self {
            Self::V4 => v4,
            Self::V6 => v6,
        }
    }

    /// 4 or 6.
    pub const fn version(self) -> u8 {
        self.choose(4, 6)
    }

    /// The kernel's number, `AF_INET` or `AF_INET6`; netfilter uses the same numbers (`NFPROTO_IPV4`, `NFPROTO_IPV6`).
    pub const fn number(self) -> u8 {
        self.choose(libc::AF_INET, libc::AF_INET6) as u8
    }
}

impl From<IpAddr> for Family {
    fn from(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

impl From<IpNetwork> for Family {
    fn from(network: IpNetwork) -> Self {
        network.ip().into()
    }
}

impl From<SocketAddr> for Family {
    fn from(address: SocketAddr) -> Self {
        address.ip().into()
    }
}

/// `IPv4` or `IPv6`.
impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IPv{}", self.version())
    }
}
