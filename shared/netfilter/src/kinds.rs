//! The kinds of rules. Each one says how it is in nftables and in iptables, and as the reference has it: by `KindProperties` about the
//! [`Kind`], which are enough to find and remove rules of whatever attachment, and by [`crate::Rules`] for the rules of one.
//!
//! A new kind is a file here, and a line in [`Kind::ALL`]. The engines need not know of it.

mod dns_server;
mod forward;
mod host_ports;
mod isolation;
mod loopback_guard;
mod masquerade;
mod spoof_check;
#[cfg(test)]
mod tests;

pub use dns_server::DnsServer;
pub use forward::Forward;
#[cfg(any(test, fuzzing))]
pub(crate) use host_ports::Forward as PortForward;
pub use host_ports::{Conditions, HostPort, HostPorts, Mark, Protocol, SourceNat};
pub use isolation::{Isolation, PortIsolation};
pub use loopback_guard::LoopbackGuard;
pub use masquerade::Masquerade;
pub use masquerade::conf::MasqueradeConf;
pub use spoof_check::SpoofCheck;

use crate::kind::Kind;

impl Kind {
    /// All that there are.
    pub const ALL: [Self; 8] = [
        Masquerade::KIND,
        HostPorts::KIND,
        SpoofCheck::KIND,
        Forward::KIND,
        Isolation::KIND,
        PortIsolation::KIND,
        LoopbackGuard::KIND,
        DnsServer::KIND,
    ];
}
