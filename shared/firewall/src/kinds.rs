//! The kinds of rules. Each one is a file that says how it is in nftables and in iptables, and as the reference has it: a
//! description of the [`Kind`], and an implementation of [`crate::Rules`].

mod host_ports;
mod masquerade;
mod spoof_check;

#[cfg(any(test, fuzzing))]
pub(crate) use host_ports::Forward;
pub use host_ports::{ChainName, Conditions, HostPort, HostPorts, Mark, Protocol, SourceNat};
pub use masquerade::Masquerade;
pub use masquerade::conf::MasqueradeConf;
pub use spoof_check::SpoofCheck;

use crate::kind::Kind;

impl Kind {
    /// All that there are.
    pub const ALL: [Self; 3] = [Masquerade::KIND, HostPorts::KIND, SpoofCheck::KIND];
}
