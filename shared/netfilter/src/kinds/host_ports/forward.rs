//! A mapping in one family.

use netlink::Family;

use std::fmt::{self, Display};
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// A transport protocol (the key `protocol`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// Its number (RFC 5237's registry).
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }

    /// Its name in configurations and tools.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }
}

impl Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Protocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("protocol is missing: set it to tcp, udp or sctp".to_owned());
        }
        [Self::Tcp, Self::Udp, Self::Sctp]
            .into_iter()
            .find(|p| p.as_str().eq_ignore_ascii_case(text))
            .ok_or_else(|| format!("protocol {text:?} is none of tcp, udp, sctp"))
    }
}

/// A mapping in one family, with its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Forward {
    pub(crate) protocol: Protocol,
    /// None: all addresses of the host in the family of `to`.
    pub(crate) host_ip: Option<IpAddr>,
    pub(crate) host_port: u16,
    pub(crate) to: SocketAddr,
}

/// The text of a record: `tcp 192.0.2.1:8080 to 10.1.0.5:80`, or `tcp 8080 to 10.1.0.5:80`.
impl Display for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host_ip {
            Some(ip) => write!(f, "{} {} to {}", self.protocol, SocketAddr::new(ip, self.host_port), self.to),
            None => write!(f, "{} {} to {}", self.protocol, self.host_port, self.to),
        }
    }
}

impl FromStr for Forward {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split(' ');
        let mut word = || words.next().ok_or(());
        let protocol = word()?.parse().map_err(|_| ())?;
        let from = word()?;
        let (host_ip, host_port) = match from.parse::<SocketAddr>() {
            Ok(from) => (Some(from.ip()), from.port()),
            Err(_) => (None, from.parse().map_err(|_| ())?),
        };
        if word()? != "to" {
            return Err(());
        }
        let to: SocketAddr = word()?.parse().map_err(|_| ())?;
        let fits = host_ip.is_none_or(|ip| Family::from(ip) == Family::from(to));
        if fits && words.next().is_none() { Ok(Self { protocol, host_ip, host_port, to }) } else { Err(()) }
    }
}
