//! Services on the host for a target's network, until they are dropped.

use lab::firewalld::Firewalld;
use lab::{Container, Lab};

use crate::dhcp::Dhcp;
use crate::target::Target;

/// The daemons of a target.
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

    /// Connects a container with the daemons that need a link to it.
    pub fn plug(&self, container: &Container) {
        self.dhcp.iter().for_each(|dhcp| dhcp.plug(container));
    }

    /// Prepares their containers for the next ADD after a DEL or GC.
    pub fn restore(&self) {
        self.dhcp.iter().for_each(Dhcp::restore_addresses);
    }

    /// Their state of all containers except the one that stays, as lines of a snapshot. firewalld's state is in the
    /// ruleset.
    pub fn changes(&self) -> String {
        self.dhcp.as_ref().map(Dhcp::changes).unwrap_or_default()
    }

    /// Whether firewalld runs.
    pub fn has_firewalld(&self) -> bool {
        self.firewalld.is_some()
    }
}
