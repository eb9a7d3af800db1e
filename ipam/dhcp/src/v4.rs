//! IPv4: a DHCP client (RFC 2131), and the address, routes and MTU of its lease on the link.

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use cni::{AddResult, Error, IpConfig, Result, ResultExt};
use dhcp_client::options;
use dhcp_client::{Action, Client, Identity, Lease, Link, Random, State, Time, Timing, To, result, set_mac};
use iface::renew;
use ipnetwork::{IpNetwork, Ipv4Network};
use netlink::LinkChange;
use serde_json::{Map, Value, json};

use crate::closer::Closer;
use crate::host::Host;
use crate::lease_client::{self, Message, PendingRelease, described, left};
use crate::location::{self, InterfaceError, OpenInterface, has, is_shortage};
use crate::log::log_line;
use crate::parameters::{ClientConf, LeaseParameters, V4};
use crate::record::{LeasedAttachment, Location};

/// The client of one attachment.
#[derive(Debug)]
pub struct LeaseClient {
    /// With the lease that is on the link, or that a plugin is about to put there.
    parameters: V4,
    client: Client,
    link: Option<Link>,
    /// The address of an adopted or lost lease, which the container may still have.
    earlier_address: Option<Ipv4Addr>,
    /// An address was added to the link, and its routes not yet.
    needs_all_routes: bool,
}

impl LeaseClient {
    /// Requests a first lease.
    pub fn acquire(
        parameters: V4,
        attachment: &LeasedAttachment,
        timing: Timing,
        now: Time,
        random: Random,
    ) -> Self {
        let client = Client::acquire(identity(&parameters, attachment), timing, now, random);
        Self { parameters, client, link: None, earlier_address: None, needs_all_routes: false }
    }

    /// Continues with a lease, or requests a new one if it was lost.
    pub fn resume(
        mut parameters: V4,
        attachment: &LeasedAttachment,
        timing: Timing,
        now: Time,
        random: Random,
    ) -> Self {
        let identity = identity(&parameters, attachment);
        let mut earlier_address = None;
        let client = match (parameters.lease.clone(), attachment.on_link) {
            (Some(lease), _) => Client::resume(identity, timing, lease, now, random),
            (None, Some(IpNetwork::V4(net))) => {
                earlier_address = Some(net.ip());
                Client::reboot(identity, timing, net.ip(), now, random)
            }
            _ => Client::reacquire(identity, timing, now, random),
        };
        parameters.lease = parameters.replaced.take().or(parameters.lease);
        Self { parameters, client, link: None, earlier_address, needs_all_routes: false }
    }

    fn translate(&mut self, actions: Vec<Action>) -> Vec<lease_client::Action> {
        actions.into_iter().map(|action| self.translate_one(action)).collect()
    }

    fn translate_one(&mut self, action: Action) -> lease_client::Action {
        match action {
            Action::Send { to, message } => {
                lease_client::Action::Send(Message { to: Some(to), bytes: message })
            }
            Action::Bound(lease) => {
                let before = self.parameters.lease.as_ref().map(|before| before.address);
                let before = before.or(self.earlier_address.take());
                let line = described(lease.address, before, lease.since, lease.expiry);
                lease_client::Action::Bound(format!("{line}, by server {}", lease.server))
            }
            Action::Lost(reason) => {
                (self.parameters.lease, self.earlier_address) = (None, None);
                lease_client::Action::Lost(reason.to_string())
            }
            Action::Failed(error) => lease_client::Action::Failed(error),
        }
    }

    /// The lease that is on the link, if the client's lease differs from it in a way that concerns the link. Name servers
    /// and domains do not.
    fn replaced(&self) -> Option<&Lease> {
        let of = |lease: &Lease| (address_of(lease), self.result_of(lease).routes, result::mtu(lease));
        let new = self.client.lease()?;
        self.parameters.lease.as_ref().filter(|old| of(old) != of(new))
    }

    fn result_of(&self, lease: &Lease) -> AddResult {
        result::of_lease(lease, self.parameters.priority)
    }

    /// A line for the log about missing options. As with the reference, an ADD succeeds without an option that is not
    /// required.
    fn missing(&self, attachment: &LeasedAttachment) -> Option<String> {
        let lease = self.client.lease()?;
        let missing = identity(&self.parameters, attachment).missing(&lease.options);
        let names = missing.into_iter().map(options::name).collect::<Vec<_>>().join(", ");
        let text = format!(
            "server {} does not send {names}, which ipam.request contains. Configure the server, or set \
             \"required\" to make ADD fail",
            lease.server
        );
        (!names.is_empty()).then_some(text)
    }

    /// Lowers the link's MTU to the lease's. The daemon never raises it, because the other end of a veth keeps its MTU and
    /// would drop larger packets silently.
    fn lower_mtu(&self, found: &OpenInterface) -> Result<()> {
        let OpenInterface { namespace, link } = found;
        let mtu = self.client.lease().and_then(result::mtu).filter(|_| self.parameters.sets_mtu);
        let Some(mtu) = mtu else { return Ok(()) };
        let option = format!("option 26 (interface-mtu): MTU {mtu} for {} in {namespace}", link.name);
        if mtu > link.mtu {
            log_line(&format!("dhcp: {option}: ignored, because it is above the link's MTU, {}", link.mtu));
        }
        if mtu >= link.mtu {
            return Ok(());
        }
        let change = LinkChange { mtu: Some(mtu), ..LinkChange::default() };
        namespace.nl.change_link(link, &change).context(|| option)
    }
}

fn identity(parameters: &V4, attachment: &LeasedAttachment) -> Identity {
    let ClientConf { client_id, broadcast, provide, request, required } = parameters.asks.clone();
    Identity { mac: attachment.location.mac, client_id, broadcast, provide, request, required }
}

fn address_of(lease: &Lease) -> Option<IpNetwork> {
    Ipv4Network::new(lease.address, lease.prefix).ok().map(IpNetwork::V4)
}

impl lease_client::LeaseClient for LeaseClient {
    fn parameters(&self) -> LeaseParameters {
        let (lease, replaced) = (self.client.lease().cloned(), self.replaced().cloned());
        LeaseParameters::V4(V4 { lease, replaced, ..self.parameters.clone() })
    }

    fn describe(&self, entry: &mut Value) {
        let Some(lease) = self.client.lease() else { return };
        let named =
            |(number, value): (u8, &[u8])| (options::name(number), json!(options::display(number, value)));
        let options: Map<String, Value> = lease.options.iter().map(named).collect();
        entry["server"] = json!(lease.server);
        entry["renewIn"] = json!(left(lease.renew));
        entry["rebindIn"] = json!(left(lease.rebind));
        entry["expiresIn"] = json!(left(lease.expiry));
        entry["options"] = Value::Object(options);
    }

    fn state(&self) -> lease_client::State {
        let state = self.client.state();
        lease_client::State {
            name: format!("{state:?}").to_uppercase(),
            is_served: matches!(state, State::Bound | State::Rebooting | State::Renewing),
            may_be_granted: state == State::Requesting,
            is_releasing: state == State::Failed,
        }
    }

    fn address(&self) -> Option<IpNetwork> {
        self.client.lease().and_then(address_of)
    }

    fn since(&self) -> Option<Time> {
        self.client.lease().map(|lease| lease.since)
    }

    fn ends(&self) -> [Option<Time>; 2] {
        [self.client.lease().and_then(|lease| lease.expiry); 2]
    }

    fn result(&self) -> AddResult {
        self.client.lease().map(|lease| self.result_of(lease)).unwrap_or_default()
    }

    fn deadline(&self) -> Option<Time> {
        self.client.deadline()
    }

    fn tick(&mut self, now: Time, is_assigned: bool) -> Vec<lease_client::Action> {
        self.client.set_assigned(is_assigned);
        let actions = self.client.tick(now);
        self.translate(actions)
    }

    fn note_removed(&mut self) {
        self.client.set_assigned(false);
    }

    fn holds(&self) -> bool {
        self.client.clone().release().is_some()
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

    fn close(&mut self, host: &Host) {
        self.link.take().into_iter().for_each(|link| host.closer.close(link));
    }

    fn needs_socket(&self, message: &Message) -> bool {
        let fits = |link: &Link| message.to.is_some_and(|to| link.fits(to));
        !self.link.as_ref().is_some_and(fits)
    }

    fn open(
        &mut self,
        host: &Host,
        attachment: &mut LeasedAttachment,
        found: &OpenInterface,
        message: &Message,
    ) -> Result<bool, InterfaceError> {
        self.close(host);
        let Some(to) = message.to else { return Ok(true) };
        if let Some(mac) = found.link.mac {
            attachment.location.mac = mac.bytes();
            self.client.set_mac(mac.bytes());
        }
        // Without a lease, a message to one server releases its address, and is broadcast.
        let has_source = !matches!(to, To::Broadcast { from } if from.is_unspecified());
        if let Some(address) = attachment.on_link.filter(|_| has_source) {
            let known = [Some(address.ip()), self.address().map(|net| net.ip())];
            let addresses = found.namespace.nl.addresses(Some(&found.link))?;
            let is_there = known.into_iter().flatten().any(|known| has(&addresses, known));
            if !is_there && !self.may_have_ended(Time::now()) {
                return Err(InterfaceError::Unused(format!(
                    "address {address} is not on {}",
                    found.link.name
                )));
            }
        }
        let open = if found.link.master.is_some() { Link::open_on_port } else { Link::open };
        self.link = Some(open(found.namespace.netns(), &found.link.name, to)?);
        Ok(true)
    }

    fn send(&mut self, attachment: &LeasedAttachment, mut message: Message) -> Result<()> {
        set_mac(&mut message.bytes, attachment.location.mac);
        let sent = self.link.as_ref().zip(message.to).map(|(link, to)| link.send(to, &message.bytes));
        sent.unwrap_or(Ok(()))
    }

    fn is_outdated(&self, on_link: Option<IpNetwork>) -> bool {
        on_link != self.address() || self.replaced().is_some()
    }

    fn take_first(&mut self, attachment: &LeasedAttachment, found: &OpenInterface) -> Result<Option<String>> {
        self.parameters.lease = self.client.lease().cloned();
        match self.lower_mtu(found) {
            Err(e) if is_shortage(&e) => return Err(e),
            // The container works with the link's MTU, too.
            Err(e) => log_line(&format!("dhcp: {e}")),
            Ok(()) => {}
        }
        Ok(self.missing(attachment))
    }

    fn put_on_link(&mut self, on_link: Option<IpNetwork>, found: &OpenInterface) -> Result<()> {
        let (new, before) = (self.result(), self.parameters.lease.as_ref());
        let addresses = found.namespace.nl.addresses(Some(&found.link))?;
        let is_missing = self.address().is_some_and(|address| !has(&addresses, address.ip()));
        self.needs_all_routes |= is_missing || before.is_some_and(|old| address_of(old) != self.address());
        let mut old = before.map(|lease| self.result_of(lease)).unwrap_or_default();
        old.ips = on_link.map(|net| IpConfig::new(net, None)).into_iter().collect();
        // An earlier attempt may have added the address already.
        old.routes.retain(|route| !self.needs_all_routes || !new.routes.contains(route));
        let replaced = renew::replace(&found.namespace, &found.link, &old, &new);
        // A server may send an MTU that the kernel refuses. The address and the routes are set nevertheless.
        let outcome = replaced.and(self.lower_mtu(found));
        // After a shortage, the next attempt needs the old lease's routes, to delete them.
        if !outcome.as_ref().is_err_and(is_shortage) {
            self.parameters.lease = self.client.lease().cloned();
            self.needs_all_routes = false;
        }
        outcome
    }

    fn note_applied(&mut self) {
        self.parameters.lease = self.client.lease().cloned();
    }

    /// The address is removed from the link as soon as the message has left: the server may allocate it again.
    fn release(
        &mut self,
        attachment: &LeasedAttachment,
        found: &OpenInterface,
    ) -> Result<(String, Option<Box<dyn PendingRelease>>)> {
        let Some(Action::Send { to: to @ To::Server { server, from }, mut message }) =
            self.client.clone().release()
        else {
            return Ok(("has no address".to_owned(), None));
        };
        found.link.mac.into_iter().for_each(|mac| set_mac(&mut message, mac.bytes()));
        let send = |to| {
            let link = Link::open_to_send(found.namespace.netns(), &found.link.name, to)?;
            let sent = link.send(to, &message);
            Ok::<_, Error>((link, sent))
        };
        let broadcast = To::Broadcast { from };
        let (mut link, mut sent) = send(if found.link.up { to } else { broadcast })?;
        if sent.is_err() {
            // The container may have no route to the server.
            (link, sent) = send(broadcast)?;
        }
        // The container's owner can make the kernel drop the message (ENOBUFS), but must not be able to make DEL fail.
        let line = match sent {
            Ok(()) => format!("released {from} to {server}"),
            Err(e) => format!("cannot release {from}, so {server} keeps it until the lease ends: {e}"),
        };
        let leased = self.address().filter(|address| Some(*address) != attachment.on_link);
        let addresses = [attachment.on_link, leased];
        let again = (!found.link.up).then(|| (Time::now() + AGAIN_AFTER, broadcast, message));
        Ok((line, Some(Box::new(Releasing { link, again, location: found.location()?, addresses }))))
    }
}

/// A message that is being sent and needs no answer.
#[derive(Debug)]
struct Releasing {
    link: Link,
    /// The message, and when it is sent again. Only if the link was down: after the link was set up, a bridge drops its
    /// packets for some milliseconds.
    again: Option<(Time, To, Vec<u8>)>,
    /// The namespace is opened again to remove the addresses. If it stayed open, each message would need more descriptors.
    location: Location,
    addresses: [Option<IpNetwork>; 2],
}

impl Releasing {
    fn remove_addresses(&self) -> Result<(), InterfaceError> {
        let found = location::find(&self.location, "", Path::new(""))?;
        for address in self.addresses.into_iter().flatten() {
            found.namespace.nl.delete_address(&found.link, address)?;
        }
        Ok(())
    }
}

/// Timeout for sending. The kernel may have to resolve the receiver's hardware address first.
const RELEASING: Duration = Duration::from_secs(1);

/// Interval between the two messages on a link that was down.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

impl PendingRelease for Releasing {
    fn timeout(&self) -> Duration {
        RELEASING
    }

    fn is_done(&mut self) -> bool {
        if self.again.as_ref().is_some_and(|(due, ..)| *due > Time::now()) {
            return false;
        }
        if let Some((_, to, message)) = self.again.take() {
            // The first message was logged.
            self.link.send(to, &message).ok();
        }
        system::socket::unsent(&self.link).is_ok_and(|bytes| bytes == 0)
    }

    fn close(self: Box<Self>, closer: &Closer) {
        if let Err(InterfaceError::Failed(e)) = self.remove_addresses() {
            log_line(&format!("dhcp: cannot remove a released address: {e}"));
        }
        closer.close(self.link);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::record::Record;

    #[test]
    fn an_adopted_address_that_a_server_confirms_is_logged_as_renewed() {
        let record = Record::read(include_bytes!("record/v4.json")).unwrap();
        let LeaseParameters::V4(mut parameters) = record.parameters else { panic!("another family") };
        let lease = parameters.lease.take().unwrap();
        let (now, random) = (Time::now(), Random::from_kernel());
        let mut client = LeaseClient::resume(parameters, &record.attachment, Timing::default(), now, random);
        let bound = || Action::Bound(lease.clone());
        let actions = client.translate(vec![bound(), Action::Lost(dhcp_client::Reason::Expired), bound()]);
        let [renewed, _, leased] = &actions[..] else { panic!("{actions:?}") };
        let is_logged_as = |action: &lease_client::Action, word| match action {
            lease_client::Action::Bound(line) => line.starts_with(word),
            _ => false,
        };
        assert!(is_logged_as(renewed, "renewed ") && is_logged_as(leased, "leased "), "{actions:?}");
    }
}
