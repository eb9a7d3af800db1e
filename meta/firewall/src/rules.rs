//! The rules of an attachment, according to its configuration.

use std::path::Path;

use cni::{AddResult, IfName, Result};
use netfilter::{BlockingChain, Family, Firewall, Forward, Isolation, PortIsolation, Rules};

use crate::conf::{self, Backend, Conf, Policy};
use crate::firewalld::{self, Zone};
use crate::port::Port;

/// The rules of an attachment.
#[derive(Debug)]
pub(crate) struct FirewallRules {
    isolation: Option<Isolation>,
    port_isolation: Option<PortIsolation>,
    forward: Option<Forward>,
    /// Used instead of `forward`.
    pub(crate) zone: Option<Zone>,
}

impl FirewallRules {
    /// Builds the rules. Calls firewalld over D-Bus, unless the configuration names the backend. Opens the container's
    /// namespace for `ingressPolicy`. `may_be_of_reference` is whether CHECK accepts the reference's rules.
    ///
    /// # Errors
    /// Code 5 or 11 if the bus does not answer. Code 7 if there is an `ingressPolicy` and the container is on no
    /// bridge.
    pub(crate) fn query_bus_and_namespace(
        conf: &Conf,
        result: &AddResult,
        netns: &Path,
        ifname: &IfName,
        may_be_of_reference: bool,
    ) -> Result<Self> {
        let has_policy = conf.policy != Policy::Open;
        let port = has_policy.then(|| Port::find_in_namespace(result, netns, ifname)).transpose()?;
        let addresses = conf::addresses(result);
        let is_by_firewalld = !addresses.is_empty() && query_bus_for_backend(conf)?;
        let (bit, isolates_containers) = (conf.opening.bit, conf.policy == Policy::Isolated);
        let isolation = port.clone().map(|port| Isolation {
            interface: port.routed_by().clone(),
            bridge: port.bridge,
            isolates_containers,
            bit,
            may_be_of_reference,
        });
        let port_isolation = port.filter(|_| isolates_containers).map(|port| PortIsolation {
            bridge: port.bridge,
            port: port.name,
            gateway_port: port.gateway.and_then(|gateway| gateway.port),
            bit,
            may_be_of_reference,
        });
        let (zone, forward) = match addresses {
            none if none.is_empty() => (None, None),
            addresses if is_by_firewalld => (Some(Zone::new(&conf.zone, addresses)), None),
            addresses => {
                let opening = conf.opening.clone();
                (None, Some(Forward { addresses, opening, may_be_of_reference }))
            }
        };
        Ok(Self { isolation, port_isolation, forward, zone })
    }

    /// Whether no address is allowed through the host's firewall.
    pub(crate) fn open_nothing(&self) -> bool {
        self.forward.is_none() && self.zone.is_none()
    }

    /// Whether there are no rules except a zone.
    pub(crate) fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }

    /// The chains of other programs that drop the container's packets.
    pub(crate) fn blocking_chains(&self, firewall: &Firewall) -> Result<Vec<BlockingChain>> {
        let Some(forward) = &self.forward else { return Ok(Vec::new()) };
        let families: Vec<Family> = forward.addresses.iter().copied().map(Family::from).collect();
        firewall.blocking_chains(forward.opening.bit, &families)
    }

    /// Like [`FirewallRules::all`].
    pub(crate) fn into_all(self) -> impl Iterator<Item = Box<dyn Rules>> {
        let rules = [
            self.isolation.map(|rules| Box::new(rules) as Box<dyn Rules>),
            self.port_isolation.map(|rules| Box::new(rules) as Box<dyn Rules>),
            self.forward.map(|rules| Box::new(rules) as Box<dyn Rules>),
        ];
        rules.into_iter().flatten()
    }

    /// In the order of installation: isolation comes before the rules that accept packets.
    pub(crate) fn all(&self) -> impl Iterator<Item = &dyn Rules> {
        let rules = [
            self.isolation.as_ref().map(|rules| rules as &dyn Rules),
            self.port_isolation.as_ref().map(|rules| rules as &dyn Rules),
            self.forward.as_ref().map(|rules| rules as &dyn Rules),
        ];
        rules.into_iter().flatten()
    }
}

/// Whether firewalld has to accept the container's packets: it drops packets that are in none of its zones, whatever
/// other chains do. Calls firewalld over D-Bus, unless the configuration names the backend.
pub(crate) fn query_bus_for_backend(conf: &Conf) -> Result<bool> {
    match conf.backend {
        Some(Backend::Firewalld) => Ok(true),
        Some(_) => Ok(false),
        None => firewalld::is_on_bus(),
    }
}
