//! Host ports: ports of this host's own addresses that lead to the container.

mod conditional;
mod conditions;
mod forward;
mod iptables;
mod mapping;
mod mark;
mod nftables;
mod reference;

use netlink::{Family, RequestError};

pub use conditions::Conditions;
pub use forward::Protocol;
pub use mapping::{HostPort, HostPorts, SourceNat};
pub use mark::{ChainName, Mark};

#[cfg(any(test, fuzzing))]
pub(crate) use forward::Forward;

use crate::backend::Backend;
use crate::conntrack::MappedPort;
use crate::iptables::script::Script;
use crate::kind::{Facts, Kind, Rules};
use crate::nft::reader::Reader;
use crate::ruleset::{Layout, Record, Rule};
use crate::selector::Selector;

static FACTS: Facts = Facts {
    name: "hostports",
    redirects: true,
    nftables: nftables::FACTS,
    iptables: Some(iptables::FACTS),
    reference: reference::FACTS,
};

impl HostPorts {
    /// The kind of these rules.
    pub const KIND: Kind = Kind::new(&FACTS);
}

impl Rules for HostPorts {
    fn kind(&self) -> Kind {
        Self::KIND
    }

    /// Whose words the conditions are, or iptables if marks are set by a chain.
    fn backend(&self) -> Option<Backend> {
        match self.mark {
            Mark::Chain(_) => Some(Backend::Iptables),
            Mark::Bit(_) => self.conditions.backend(),
        }
    }

    fn records(&self) -> Vec<Record> {
        nftables::records(self)
    }

    fn extend_layout(&self, layout: &mut Layout) {
        nftables::extend_layout(self, layout);
    }

    fn conditional_rules(&self, label: &str) -> Vec<Rule> {
        if self.are_conditional() { conditional::rules(self, label) } else { Vec::new() }
    }

    fn write(&self, script: &mut Script, label: &str, family: Family) {
        iptables::write(self, script, label, family);
    }

    fn waiting(&self, saved: &str, chain: &str) -> Vec<String> {
        iptables::waiting(saved, chain)
    }

    fn mapped_udp_ports(&self) -> Vec<MappedPort> {
        let udp = self.forwards().filter(|forward| forward.protocol == Protocol::Udp);
        udp.map(|forward| MappedPort {
            family: Family::from(forward.to),
            host_ip: forward.host_ip,
            port: forward.host_port,
        })
        .collect()
    }

    fn reference_count(&self, family: Family) -> usize {
        self.forwards().filter(|forward| Family::from(forward.to) == family).count()
    }

    fn is_in_reference(&self, reader: &Reader<'_>, selector: &Selector<'_>) -> Result<bool, RequestError> {
        reference::has(self, reader, selector)
    }
}
