//! IPv6: a DHCPv6 client (RFC 8415), and its address on the link.

use std::net::Ipv6Addr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use cni::{AddResult, Code, Error, Result};
use dhcp_client::v6::{Action, Client, Link, State, link_local, of_lease};
use dhcp_client::{Random, Time, Timing};
use ipnetwork::IpNetwork;
use serde_json::{Value, json};

use crate::closer::Closer;
use crate::host::Host;
use crate::lease_client::{self, Message, PACKETS_PER_TURN, described, left};
use crate::location::{InterfaceError, OpenInterface};
use crate::parameters::{LeaseParameters, V6};
use crate::record::LeasedAttachment;

/// Timeout for the server's answer to a RELEASE. The message is sent three times, once less than in RFC 8415, section
/// 18.2.7: a DEL waits for it, and the link is deleted afterwards.
pub const RELEASING: Duration = Duration::from_secs(4);

/// The client of one attachment.
#[derive(Debug)]
pub struct LeaseClient {
    parameters: V6,
    client: Client,
    link: Option<Link>,
}

impl LeaseClient {
    /// Requests a first lease.
    pub fn acquire(parameters: V6, timing: Timing, now: Time, random: Random) -> Self {
        let client = Client::acquire(parameters.identity.clone(), timing.resend_timeout, now, random);
        Self { parameters, client, link: None }
    }

    /// Continues with a lease, or requests a new one if it was lost.
    pub fn resume(parameters: V6, attachment: &LeasedAttachment, now: Time, random: Random) -> Self {
        let identity = parameters.identity.clone();
        let hint = attachment
            .on_link
            .and_then(|net| if let IpNetwork::V6(net) = net { Some(net.ip()) } else { None });
        let client = match parameters.lease.clone() {
            Some(lease) => Client::resume(identity, lease, now, random),
            None => Client::reacquire(identity, hint, now, random),
        };
        Self { parameters, client, link: None }
    }

    fn translate(&mut self, actions: Vec<Action>) -> Vec<lease_client::Action> {
        actions.into_iter().filter_map(|action| self.translate_one(action)).collect()
    }

    fn translate_one(&mut self, action: Action) -> Option<lease_client::Action> {
        Some(match action {
            Action::Send(bytes) => lease_client::Action::Send(Message { to: None, bytes }),
            Action::Bound(lease) => {
                let before = self.parameters.lease.replace(lease.clone()).map(|before| before.address);
                lease_client::Action::Bound(described(lease.address, before, lease.since, lease.expiry))
            }
            Action::Lost(why) => {
                self.parameters.lease = None;
                lease_client::Action::Lost(why)
            }
            Action::Failed(error) => lease_client::Action::Failed(error),
            Action::Released => return None,
        })
    }
}

fn whole(address: Ipv6Addr) -> IpNetwork {
    IpNetwork::from(std::net::IpAddr::V6(address))
}

impl lease_client::LeaseClient for LeaseClient {
    fn parameters(&self) -> LeaseParameters {
        LeaseParameters::V6(V6 { lease: self.client.lease().cloned(), ..self.parameters.clone() })
    }

    fn describe(&self, entry: &mut Value) {
        let Some(lease) = self.client.lease() else { return };
        let server: String = lease.server.iter().map(|byte| format!("{byte:02x}")).collect();
        entry["server"] = json!(server);
        entry["renewIn"] = json!(left(lease.renew));
        entry["rebindIn"] = json!(left(lease.rebind));
        entry["preferredFor"] = json!(left(lease.preferred));
        entry["expiresIn"] = json!(left(lease.expiry));
        entry["nameservers"] = json!(lease.dns);
        entry["search"] = json!(lease.search);
    }

    fn state(&self) -> lease_client::State {
        let state = self.client.state();
        lease_client::State {
            name: format!("{state:?}").to_uppercase(),
            is_served: matches!(state, State::Bound | State::Confirming | State::Renewing),
            may_be_granted: self.client.may_be_granted(),
            is_releasing: state == State::Releasing,
        }
    }

    fn address(&self) -> Option<IpNetwork> {
        self.client.lease().map(|lease| whole(lease.address))
    }

    fn since(&self) -> Option<Time> {
        self.client.lease().map(|lease| lease.since)
    }

    fn ends(&self) -> [Option<Time>; 2] {
        self.client.lease().map_or([None; 2], |lease| [lease.preferred, lease.expiry])
    }

    fn result(&self) -> AddResult {
        self.client.lease().map(of_lease).unwrap_or_default()
    }

    fn deadline(&self) -> Option<Time> {
        self.client.deadline()
    }

    fn tick(&mut self, now: Time, _is_assigned: bool) -> Vec<lease_client::Action> {
        let actions = self.client.tick(now);
        self.translate(actions)
    }

    fn cancel(&mut self, now: Time) {
        self.client.hurry(now);
    }

    fn holds(&self) -> bool {
        self.client.held().is_some()
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.link.as_ref().map(AsFd::as_fd)
    }

    fn receive(&mut self, now: Time) -> Result<Option<Vec<lease_client::Action>>> {
        let Some(link) = &self.link else { return Ok(None) };
        let Some(packet) = link.receive()? else { return Ok(None) };
        let actions = self.client.receive(now, &packet);
        Ok(Some(self.translate(actions)))
    }

    fn close_idle(&mut self, host: &Host, now: Time) {
        if !self.client.awaits_packets(now) {
            self.close(host);
        }
    }

    fn close(&mut self, _host: &Host) {
        self.link = None;
    }

    fn needs_socket(&self, _message: &Message) -> bool {
        self.link.is_none()
    }

    fn open(
        &mut self,
        _host: &Host,
        _about: &mut LeasedAttachment,
        found: &OpenInterface,
        _message: &Message,
    ) -> Result<bool, InterfaceError> {
        let addresses = found.namespace.nl.addresses(Some(&found.link))?;
        let Some(from) = link_local(&addresses) else { return Ok(false) };
        self.link = Some(Link::open(found.namespace.netns(), &found.link.name, from)?);
        Ok(true)
    }

    fn send(&mut self, _about: &LeasedAttachment, message: Message) -> Result<()> {
        self.link.as_ref().map_or(Ok(()), |link| link.send(&message.bytes))
    }

    fn is_outdated(&self, on_link: Option<IpNetwork>) -> bool {
        on_link != self.address()
    }

    fn take_first(&mut self, _about: &LeasedAttachment, _found: &OpenInterface) -> Result<Option<String>> {
        Ok(None)
    }

    fn put_on_link(&mut self, on_link: Option<IpNetwork>, found: &OpenInterface) -> Result<()> {
        let (nl, Some(address)) = (&found.namespace.nl, self.address()) else { return Ok(()) };
        if let Some(old) = on_link.filter(|old| *old != address) {
            nl.delete_address(&found.link, old)?;
        }
        let there = nl.addresses(Some(&found.link))?;
        if !there.iter().any(|one| one.net.ip() == address.ip()) {
            nl.add_address(&found.link, address, true)?;
        }
        Ok(())
    }

    fn decline(&mut self, now: Time) {
        self.client.decline(true, now);
    }

    /// Removes the address from the link before the server may allocate it again (RFC 8415, section 18.2.7). An address
    /// that another host has is declined, so that the server does not allocate it.
    fn release(
        &mut self,
        attachment: &LeasedAttachment,
        found: &OpenInterface,
    ) -> Result<(String, Option<Box<dyn lease_client::PendingRelease>>)> {
        let (now, Some(address)) = (Time::now(), self.client.held()) else {
            return Ok(("has no address".to_owned(), None));
        };
        let addresses = found.namespace.nl.addresses(Some(&found.link))?;
        let ours = attachment.on_link.and_then(|own| addresses.iter().find(|one| one.net.ip() == own.ip()));
        let is_taken = ours.is_some_and(|ours| ours.duplicate);
        if let Some(ours) = ours {
            found.namespace.nl.delete_address(&found.link, ours.net)?;
        }
        let Some(from) = link_local(&addresses) else {
            let text = format!("link {} has lost its link-local address", found.link.name);
            return Err(Error::new(Code::Internal, text));
        };
        let link = Link::open(found.namespace.netns(), &found.link.name, from)?;
        // If the message cannot be sent, the lease is unchanged, so that the release can be repeated.
        let mut client = self.client.clone();
        let holds = if is_taken { client.decline(false, now) } else { client.release(now) };
        for action in client.tick(now) {
            if let Action::Send(message) = action {
                link.send(&message)?;
            }
        }
        self.client = Client::reacquire(self.parameters.identity.clone(), None, now, Random::seeded(0));
        let what = if is_taken { "declined, since another host has it:" } else { "released" };
        let pending =
            holds.then(|| Box::new(PendingRelease { client, link }) as Box<dyn lease_client::PendingRelease>);
        Ok((format!("{what} {address}"), pending))
    }
}

/// A client that releases its lease, until the server confirms this.
#[derive(Debug)]
struct PendingRelease {
    client: Client,
    link: Link,
}

impl lease_client::PendingRelease for PendingRelease {
    fn timeout(&self) -> Duration {
        RELEASING
    }

    fn close(self: Box<Self>, _closer: &Closer) {}

    /// Sends the message again if that is due. Returns whether the server has confirmed it, or cannot any more.
    fn is_done(&mut self) -> bool {
        for action in self.client.tick(Time::now()) {
            let has_ended = match action {
                Action::Send(message) => self.link.send(&message).is_err(),
                _ => true,
            };
            if has_ended {
                return true;
            }
        }
        for _ in 0..PACKETS_PER_TURN {
            match self.link.receive() {
                Ok(Some(packet)) if self.client.receive(Time::now(), &packet).contains(&Action::Released) => {
                    return true;
                }
                Ok(Some(_)) => {}
                Ok(None) => return false,
                Err(_) => return true,
            }
        }
        false
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::record::Record;

    #[test]
    fn a_lost_address_that_is_leased_again_is_not_logged_as_renewed() {
        let record = Record::read(include_bytes!("record/v6.json")).unwrap();
        let LeaseParameters::V6(parameters) = record.parameters else { panic!("another family") };
        let lease = parameters.lease.clone().unwrap();
        let mut client =
            LeaseClient::resume(parameters, &record.attachment, Time::now(), Random::from_kernel());
        let bound = || Action::Bound(lease.clone());
        let actions = client.translate(vec![bound(), Action::Lost("it expired".to_owned()), bound()]);
        let [renewed, _, leased] = &actions[..] else { panic!("{actions:?}") };
        let is_logged_as = |action: &lease_client::Action, word| match action {
            lease_client::Action::Bound(line) => line.starts_with(word),
            _ => false,
        };
        assert!(is_logged_as(renewed, "renewed ") && is_logged_as(leased, "leased "), "{actions:?}");
    }
}
