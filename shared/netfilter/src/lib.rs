//! Firewall rules of attachments as data, applied in one transaction: masquerade, host ports, spoof check, forwarding and
//! isolation.
//!
//! [`Firewall`] installs and checks [`Rules`], with one of two backends: nftables over netlink, or iptables
//! through its own restore tool. [`Removal`] removes them, whichever backend installed them, by their [`Owner`]
//! alone: (network, container, interface), without addresses or namespaces.
//!
//! Each [`Kind`] of rules is a file in `kinds`. The engines `nft` and `iptables` use only the kind's description of
//! itself.

#![warn(missing_docs)]

mod backend;
mod chain_name;
mod conntrack;
mod firewall;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod iptables;
pub mod keys;
mod kind;
mod kinds;
#[cfg(test)]
mod layers;
mod listing;
mod monitor;
mod networks;
mod nft;
mod opening;
mod owner;
mod plan;
mod reference;
mod removal;
mod repair;
pub mod route_localnet;
mod ruleset;
mod script;
mod selector;

pub use backend::Backend;
pub use chain_name::ChainName;
pub use firewall::Firewall;
pub use kind::{Kind, Rules};
pub use kinds::{
    Conditions, DnsServer, Forward, HostPort, HostPorts, Isolation, KeptGuard, LoopbackGuard, Mark,
    Masquerade, MasqueradeConf, PortIsolation, Protocol, SourceNat, SpoofCheck,
};
pub use monitor::RulesetMonitor;
pub use netlink::Family;
pub use nft::BlockingChain;
pub use opening::Opening;
pub use owner::{Owner, should_delete};
pub use removal::Removal;
pub use repair::{Expected, repair, repair_with};
