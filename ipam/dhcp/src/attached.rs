//! One attachment: its client's actions, carried out in its container.

use std::time::Duration;

use cni::{AddResult, Code, Error, Result};
use dhcp_client::options::name;
use dhcp_client::{Action, Client, Lease, Link, Random, Reason, State, Time, Timing, To, result, set_mac};
use iface::{Namespace, renew};
use netlink::LinkChange;

use crate::daemon::Host;
use crate::log::log;
use crate::place::{self, Found, NotFound};
use crate::record::{Key, Place, Record, address_of, has};
use crate::v6;

/// How long after a lease its address may not be on the link yet.
pub const JUST_LEASED: Duration = Duration::from_secs(60);

/// How many packets are taken before others have their turn: any host on the link can send to the port, and never stop.
pub const AT_ONCE: usize = 64;

/// An attachment that has a lease, or gets one.
#[derive(Debug)]
pub struct Attached {
    pub key: Key,
    pub record: Record,
    client: Client,
    /// The container, until the first lease is there: later it is looked for each time, so that nothing keeps a dead one.
    here: Option<Namespace>,
    /// Open while an answer is waited for.
    link: Option<Link>,
    /// Who waits for the first lease.
    pub waits: Waits,
    /// What an earlier ADD for the same interface has. It stays as it is, in memory and on disk, unless this ADD succeeds.
    pub earlier: Option<Box<Self>>,
}

/// Who waits for the first lease of an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Nobody: it has had one.
    Nobody,
    /// A connection.
    Connection(u64),
    /// A plugin that has hung up. A server may have given an address by now, which is to be given back.
    Abandoned,
}

/// What came of actions.
#[derive(Debug)]
pub enum Outcome {
    /// Nothing that others need to know.
    Carries,
    /// The first lease is there.
    First(AddResult),
    /// There is none, and nobody asks any more.
    Failed(Error),
    /// The container or its interface has gone.
    Gone(String),
    /// The lease's address is not on the link: nobody uses it.
    Unused(String),
}

impl Attached {
    /// Asks for a first lease, in a container that is open.
    pub fn acquire(key: Key, record: Record, here: Namespace, timing: Timing, connection: u64) -> Self {
        let client = Client::acquire(record.identity(), timing, Time::now(), Random::from_kernel());
        let waits = Waits::Connection(connection);
        Self { key, record, client, here: Some(here), link: None, waits, earlier: None }
    }

    /// Carries on with a lease, or without one that was lost.
    pub fn resume(key: Key, record: Record, timing: Timing) -> Self {
        let (now, random) = (Time::now(), Random::from_kernel());
        let client = match record.lease.clone() {
            Some(lease) => Client::resume(record.identity(), timing, lease, now, random),
            None => match record.on_link {
                Some(net) => Client::reboot(record.identity(), timing, net.ip(), now, random),
                None => Client::ask_again(record.identity(), timing, now, random),
            },
        };
        Self { key, record, client, here: None, link: None, waits: Waits::Nobody, earlier: None }
    }

    /// Asks for another lease after all servers were asked in vain for one that was lost.
    pub fn ask_again(key: Key, record: Record, timing: Timing) -> Self {
        Self::resume(key, record, timing)
    }

    /// Takes up a record of an earlier daemon, at its place.
    ///
    /// # Errors
    /// If the place is there, and the address is not.
    pub fn carry_on(&mut self, host: &Host, found: &Found) -> Result<(), NotFound> {
        let Some(lease) = self.record.lease.clone() else {
            return Ok(host.store.write(&self.key, &self.record)?);
        };
        if self.record.on_link != address_of(&lease) {
            // The daemon ended while it put the address on the link.
            let new = result::of_lease(&lease, self.record.priority);
            return self.put_on_link(host, AddResult::default(), &new, &lease);
        }
        // The plugin that asked for it may not have put it there yet.
        let is_new = Time::now().since(lease.since) < JUST_LEASED;
        if is_new || found.has_address(&self.record)? {
            return Ok(());
        }
        Err(NotFound::Unused(format!("address {} is not on {}", lease.address, found.link.name)))
    }

    /// Whether an ADD at a place is a second one for the interface that has this lease.
    pub fn is_live_at(&self, place: &Place) -> bool {
        let own = &self.record.place;
        self.waits == Waits::Nobody
            && self.record.lease.is_some()
            && (own.netns_id, own.index) == (place.netns_id, place.index)
    }

    /// Nobody waits any more. Whether a server's answer still has to be waited for: what it grants is given back.
    pub fn abandon(&mut self, host: &Host) -> bool {
        self.waits = Waits::Abandoned;
        if self.client.state() != State::Requesting {
            self.renounce(host);
            return false;
        }
        true
    }

    /// Its client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The socket that an answer is waited for at.
    pub fn socket(&self) -> Option<&Link> {
        self.link.as_ref()
    }

    /// Does what is due.
    pub fn tick(&mut self, host: &Host) -> Outcome {
        let actions = self.client.tick(Time::now());
        self.act(host, actions)
    }

    /// Takes what has arrived.
    pub fn receive(&mut self, host: &Host) -> Outcome {
        for _ in 0..AT_ONCE {
            let Some(link) = &self.link else { break };
            match link.receive() {
                Ok(Some(packet)) => {
                    let actions = self.client.receive(Time::now(), &packet);
                    match self.act(host, actions) {
                        Outcome::Carries => {}
                        other => return other,
                    }
                }
                Ok(None) => break,
                // The interface is down, or has gone: the next message finds out.
                Err(_) => self.close(host),
            }
        }
        Outcome::Carries
    }

    fn close(&mut self, host: &Host) {
        self.link.take().into_iter().for_each(|link| host.closer.close(link));
    }

    fn act(&mut self, host: &Host, actions: Vec<Action>) -> Outcome {
        if self.waits == Waits::Abandoned && self.client.state() == State::Selecting {
            self.renounce(host);
            return Outcome::Failed(Error::new(Code::TryAgainLater, "nobody waits for it any more"));
        }
        let mut outcome = Outcome::Carries;
        // A client that fails releases the address that it may have: that of the earlier ADD.
        let keeps =
            self.earlier.is_some() && actions.iter().any(|action| matches!(action, Action::Failed(_)));
        for action in actions {
            let done = match action {
                Action::Send { .. } if keeps => Ok(Outcome::Carries),
                Action::Send { to, message } => self.send(host, to, message),
                Action::Bound(lease) => self.bound(host, lease),
                Action::Lost(reason) => self.lost(host, &reason),
                Action::Failed(error) => Ok(Outcome::Failed(error)),
            };
            match done {
                Ok(Outcome::Carries) => {}
                Ok(other) => outcome = other,
                Err(NotFound::Gone(what)) => return Outcome::Gone(what),
                Err(NotFound::Unused(what)) => return Outcome::Unused(what),
                // As a message that is lost, as long as there is a lease.
                Err(NotFound::Missing(what)) if self.record.lease.is_some() => log(&self.key, &what),
                Err(NotFound::Missing(what)) => return Outcome::Gone(what),
                Err(NotFound::Failed(e)) if self.waits != Waits::Nobody => {
                    self.renounce(host);
                    return Outcome::Failed(e);
                }
                Err(NotFound::Failed(e)) => log(&self.key, &e.to_string()),
            }
        }
        if !self.client.awaits_packets(Time::now()) {
            self.close(host);
        }
        outcome
    }

    /// Gives back what a server may have given, and nobody will use.
    fn renounce(&mut self, host: &Host) {
        let Some(Action::Send { to, message }) =
            self.client.clone().release().filter(|_| self.earlier.is_none())
        else {
            return;
        };
        self.record.lease = None;
        match give_back(&self.record, host, to, &message) {
            Ok(link) => host.closer.close(link),
            Err(e) => log(&self.key, &format!("not given back: {e}")),
        }
    }

    fn found(&self, host: &Host) -> Result<Found, NotFound> {
        let Some(namespace) = self.here.clone() else {
            return place::find(&self.record, &host.args.host_prefix);
        };
        let name = &self.record.if_name;
        match namespace.nl.link(name)? {
            Some(link) => Ok(Found { namespace, link }),
            None => Err(NotFound::Gone(format!("link {name} in {namespace} is gone"))),
        }
    }

    fn send(&mut self, host: &Host, to: To, mut message: Vec<u8>) -> Result<Outcome, NotFound> {
        if !self.link.as_ref().is_some_and(|link| link.fits(to)) {
            self.close(host);
            self.link = Some(self.open(host, to)?);
        }
        set_mac(&mut message, self.record.place.mac);
        if let Some(Err(e)) = self.link.as_ref().map(|link| link.send(to, &message)) {
            // As a message that is lost. The socket is opened anew for the next one.
            self.close(host);
            log(&self.key, &e.to_string());
        }
        Ok(Outcome::Carries)
    }

    fn open(&mut self, host: &Host, to: To) -> Result<Link, NotFound> {
        let found = self.found(host)?;
        if let Some(mac) = found.link.mac {
            self.record.place.mac = mac.bytes();
            self.client.set_mac(mac.bytes());
        }
        if !found.link.up {
            found.namespace.nl.set_up(&found.link)?;
        }
        // Before there is a lease, a message to one server gives back what that has given, and goes by broadcast.
        if let (To::Server { .. }, Some(address)) = (to, self.record.on_link)
            && !found.has_address(&self.record)?
        {
            return Err(NotFound::Unused(format!("address {address} is not on {}", found.link.name)));
        }
        Ok(Link::open(found.namespace.netns(), &found.link.name, to)?)
    }

    /// The address of the first lease is put on the link by the plugin that asked; a later one by us.
    fn bound(&mut self, host: &Host, lease: Lease) -> Result<Outcome, NotFound> {
        let before = self.record.lease.replace(lease.clone());
        let first = self.waits != Waits::Nobody;
        if first {
            let found = self.found(host)?;
            self.record.on_link = address_of(&lease);
            self.set_mtu(&found, &lease)?;
        }
        host.store.write(&self.key, &self.record)?;
        self.here = None;
        let new = result::of_lease(&lease, self.record.priority);
        log(&self.key, &told(&lease, before.as_ref()));
        if first {
            self.warn_of_missing(&lease);
            return Ok(Outcome::First(new));
        }
        let old = before.as_ref().map(|lease| result::of_lease(lease, self.record.priority));
        let is_other_mtu = before.as_ref().is_some_and(|before| result::mtu(before) != result::mtu(&lease));
        let is_other = is_other_mtu || old.as_ref().is_some_and(|old| *old != new);
        if is_other || self.record.on_link != address_of(&lease) {
            self.put_on_link(host, old.unwrap_or_default(), &new, &lease)?;
        }
        Ok(Outcome::Carries)
    }

    /// As with the reference, an ADD succeeds without an option that is only requested.
    fn warn_of_missing(&self, lease: &Lease) {
        let missing = self.record.identity().missing(&lease.options);
        if !missing.is_empty() {
            let names = missing.into_iter().map(name).collect::<Vec<_>>().join(", ");
            log(
                &self.key,
                &format!(
                    "server {} sends no {names}, which ipam.request asks for. Configure the server, or set \"required\" \
                     to have ADD fail",
                    lease.server
                ),
            );
        }
    }

    fn set_mtu(&self, found: &Found, lease: &Lease) -> Result<()> {
        let mtu = result::mtu(lease).filter(|mtu| self.record.sets_mtu && *mtu != found.link.mtu);
        let change = LinkChange { mtu, ..LinkChange::default() };
        mtu.map_or(Ok(()), |_| Ok(found.namespace.nl.change_link(&found.link, &change)?))
    }

    /// Another address than before, or other routes.
    fn put_on_link(
        &mut self,
        host: &Host,
        mut old: AddResult,
        new: &AddResult,
        lease: &Lease,
    ) -> Result<(), NotFound> {
        let found = self.found(host)?;
        old.ips = self.record.on_link.map(|net| cni::IpConfig::new(net.into(), None)).into_iter().collect();
        self.set_mtu(&found, lease)?;
        let replaced = renew::replace(&found.namespace, &found.link, &old, new);
        // The address is there also if a route is refused.
        if has(&found.namespace.nl.addresses(Some(&found.link))?, lease.address) {
            self.record.on_link = address_of(lease);
            host.store.write(&self.key, &self.record)?;
        }
        replaced?;
        let now = self.record.on_link.map(|net| net.to_string()).unwrap_or_default();
        log(&self.key, &format!("put {now} with its routes on {}", found.link.name));
        Ok(())
    }

    /// The address goes off the link, which is set down: nothing of the container's leaves by it any more. It comes up with the
    /// next message. With a lease for IPv6 it stays up: the kernel keeps no address that has a time on a link that is down.
    fn lost(&mut self, host: &Host, reason: &Reason) -> Result<Outcome, NotFound> {
        let address = self.record.on_link.map(|net| net.to_string()).unwrap_or_default();
        log(&self.key, &format!("lost {address}: {reason}"));
        self.record.lease = None;
        // It goes off the link also where nothing can be written, such as on a full disk.
        let written = host.store.write(&self.key, &self.record);
        let found = self.found(host)?;
        self.close(host);
        if let Some(net) = self.record.on_link {
            found.namespace.nl.delete_address(&found.link, net.into())?;
        }
        if matches!(host.store.read::<v6::Record>(&self.key), Ok(None)) {
            let down = LinkChange { up: Some(false), ..LinkChange::default() };
            found.namespace.nl.change_link(&found.link, &down)?;
        }
        self.record.on_link = None;
        written?;
        host.store.write(&self.key, &self.record)?;
        Ok(Outcome::Carries)
    }

    /// Gives the lease back, if there is one. Its file says so first and goes last: after a kill in between nobody renews it, and it is given
    /// back once more.
    ///
    /// # Errors
    /// Code 5: its file cannot be removed, and it is kept.
    pub fn release(mut self, host: &Host) -> Result<Option<Link>, (Box<Self>, Error)> {
        self.record.leaves = true;
        // Where nothing can be written, such as on a full disk, a file may still be removed.
        let noted = self.client.lease().is_some() && host.store.write(&self.key, &self.record).is_ok();
        if !noted && let Err(e) = host.store.remove::<Record>(&self.key) {
            self.record.leaves = false;
            return Err((Box::new(self), e));
        }
        self.close(host);
        let Self { key, record, client, .. } = self;
        let left = say_goodbye(host, &key, &record, client);
        if let Err(e) = host.store.remove::<Record>(&key) {
            // The next start, or a DEL, removes it.
            log(&key, &e.to_string());
        }
        Ok(left)
    }

    /// Forgets it, and says nothing.
    pub fn forget_quietly(mut self, host: &Host) {
        self.close(host);
        if let Err(e) = host.store.remove::<Record>(&self.key) {
            log(&self.key, &e.to_string());
        }
    }

    /// Forgets it: there is nothing left that could use the lease, or give it back.
    pub fn forget(self, host: &Host, why: &str) {
        log(&self.key, &format!("forgotten: {why}"));
        self.forget_quietly(host);
    }
}

/// Gives the lease of a client back. The socket is to be kept open until the message has left.
fn say_goodbye(host: &Host, key: &Key, record: &Record, client: Client) -> Option<Link> {
    let Action::Send { to: to @ To::Server { server, from: address }, message } = client.release()? else {
        return None;
    };
    match give_back(record, host, to, &message) {
        Ok(link) => {
            log(key, &format!("released {address} to {server}"));
            Some(link)
        }
        Err(e) => {
            log(key, &format!("{address} is not given back, and its server keeps it until it expires: {e}"));
            None
        }
    }
}

/// Sends a message from the place of a record. The socket is to be kept open until the message has left.
fn give_back(record: &Record, host: &Host, to: To, message: &[u8]) -> Result<Link, NotFound> {
    let found = place::find(record, &host.args.host_prefix)?;
    let link = Link::open(found.namespace.netns(), &found.link.name, to)?;
    let mut message = message.to_vec();
    found.link.mac.into_iter().for_each(|mac| set_mac(&mut message, mac.bytes()));
    link.send(to, &message)?;
    Ok(link)
}

/// A lease for the log.
fn told(lease: &Lease, before: Option<&Lease>) -> String {
    let what = match before {
        Some(before) if before.address == lease.address => "renewed",
        _ => "leased",
    };
    let time = match lease.expiry {
        Some(expiry) => format!("for {} s", expiry.since(lease.since).as_secs()),
        None => "for ever".to_owned(),
    };
    format!("{what} {}/{} from {} {time}", lease.address, lease.prefix, lease.server)
}

/// Code 11: the plugin's ADD was ended by another call for the same attachment.
pub fn superseded() -> Error {
    Error::new(Code::TryAgainLater, "another call for the same attachment came, and ended this one")
}

#[cfg(test)]
mod tests;
