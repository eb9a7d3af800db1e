//! What runs on the host for a target's network, until it is dropped.

use lab::firewalld::Firewalld;
use lab::{Container, Lab};

use crate::dhcp::Dhcp;
use crate::target::Target;

/// The daemons that a target needs.
#[derive(Debug)]
pub struct Services {
    dhcp: Option<Dhcp>,
    firewalld: Option<Firewalld>,
}

impl Services {
    /// Starts them.
    pub fn start(target: &Target, lab: &Lab) -> Self {
        Self {
            dhcp: target.dhcp.then(|| Dhcp::start(lab, &target.dir())),
            firewalld: target.firewalld.then(|| Firewalld::start(lab, "nftables", "public")),
        }
    }

    /// Connects a container with those that it needs a link to.
    pub fn plug(&self, container: &Container) {
        self.dhcp.iter().for_each(|dhcp| dhcp.plug(container));
    }

    /// What they know of containers but of the one that stays, in lines as of a snapshot: what firewalld knows is in the ruleset.
    pub fn changes(&self) -> String {
        self.dhcp.as_ref().map(Dhcp::changes).unwrap_or_default()
    }

    /// Whether firewalld is one of them.
    pub fn has_firewalld(&self) -> bool {
        self.firewalld.is_some()
    }
}
