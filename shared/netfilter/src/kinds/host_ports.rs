//! Host ports: ports of this host's own addresses that are forwarded to the container.

mod conditional;
mod conditions;
mod forward;
mod iptables;
mod mapping;
mod mark;
mod nftables;
mod reference;

pub use conditions::Conditions;
pub use forward::Protocol;
pub use mapping::{HostPort, HostPorts, SourceNat};
pub use mark::Mark;

#[cfg(any(test, fuzzing))]
pub(crate) use forward::Forward;

use std::net::IpAddr;

use crate::backend::Backend;
use crate::kind::{IptablesRules, Kind, KindProperties, NftablesRules, ReferenceRules, Rules};
use crate::ruleset::{Element, TrackedPort};

static PROPERTIES: KindProperties = KindProperties {
    name: "hostports",
    maps_host_ports: true,
    nftables: nftables::PROPERTIES,
    iptables: Some(iptables::PROPERTIES),
    reference: reference::PROPERTIES,
};

impl HostPorts {
    /// The kind of these rules.
    pub const KIND: Kind = Kind::new(&PROPERTIES);
}

impl Rules for HostPorts {
    fn kind(&self) -> Kind {
        Self::KIND
    }

    /// The backend of the conditions' syntax. If a chain sets the mark, iptables.
    fn backend(&self) -> Option<Backend> {
        match self.mark {
            Mark::Chain(_) => Some(Backend::Iptables),
            Mark::Bit(_) => self.conditions.backend(),
        }
    }

    fn nftables(&self) -> NftablesRules {
        nftables::rules(self)
    }

    fn iptables(&self) -> Option<&dyn IptablesRules> {
        Some(self)
    }

    fn reference(&self) -> Option<&dyn ReferenceRules> {
        Some(self)
    }

    fn tracked_ports(&self) -> Vec<TrackedPort> {
        self.forwards().filter_map(|forward| nftables::tracked(&forward)).collect()
    }

    fn port_of_address(&self, port: &TrackedPort, host_ip: IpAddr) -> Option<Element> {
        // Rules with conditions precede all maps.
        (!self.are_conditional()).then(|| nftables::port_of_address(port, host_ip))
    }
}
