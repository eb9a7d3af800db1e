//! The kinds of rules. Each one defines its rules for nftables, for iptables and as the reference installs them.
//! `KindProperties` of the [`Kind`] are enough to find and remove the rules of any attachment. [`crate::Rules`] are the
//! rules of one attachment.
//!
//! To add a kind, write a file here, and add it to [`Kind::ALL`]. The engines need no change.

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
pub use loopback_guard::{KeptGuard, LoopbackGuard};
pub use masquerade::Masquerade;
pub use masquerade::conf::MasqueradeConf;
pub use spoof_check::SpoofCheck;

use crate::kind::Kind;

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Masquerade::KIND,
        HostPorts::KIND,
        SpoofCheck::KIND,
        Forward::KIND,
        Isolation::KIND,
        PortIsolation::KIND,
        LoopbackGuard::KIND,
        KeptGuard::KIND,
        DnsServer::KIND,
    ];

    /// The kind that outlives the attachment's link, and that no repair installs.
    pub(crate) const KEPT_GUARD: Self = KeptGuard::KIND;
}
