//! One attachment: its client's actions, carried out in its container.

use std::net::Ipv6Addr;
use std::time::Duration;

use cni::{Code, Error, Result};
use dhcp_client::v6::{Action, Client, Lease, Link, State, link_local, of_lease};
use dhcp_client::{Random, Time};
use iface::Namespace;
use ipnetwork::{IpNetwork, Ipv6Network};

use super::record::Record;
use crate::attached::{AT_ONCE, JUST_LEASED, Outcome, Waits};
use crate::daemon::Host;
use crate::log::log;
use crate::place::{self, Found, NotFound};
use crate::record::{Key, Place};

/// How often it is looked whether the link is ready to send from: the kernel tells who listens, but each listener keeps the namespace alive.
const LOOK: Duration = Duration::from_millis(20);
/// How long the link's own address may take: a test for duplicates is a second, after a random delay of up to one.
const READY: Duration = Duration::from_secs(10);

/// Why a lease of an earlier daemon is given back: the ADD that asked for it ended before it had its answer, or failed.
pub const UNUSED: &str = "nobody has put the address on the link";

/// An attachment that has a lease for IPv6, or gets one.
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
    /// A message that waits until it can be sent, and since when.
    unsent: Option<(Vec<u8>, Time)>,
    /// The address waits until it is on the link, tested, to be told its times: until when.
    untimed: Option<Time>,
    /// What an earlier ADD for the same interface has. It stays as it is, in memory and on disk, unless this ADD succeeds.
    pub earlier: Option<Box<Self>>,
    /// When either is looked at.
    looks: Option<(Time, Duration)>,
    /// An earlier daemon noted the lease down, and may have told nobody: if the link has not got the address by then, it is given back.
    unused_at: Option<Time>,
}

impl Attached {
    /// Asks for a first lease, in a container that is open.
    pub fn acquire(key: Key, record: Record, here: Namespace, patience: Duration, connection: u64) -> Self {
        let client = Client::acquire(record.identity.clone(), patience, Time::now(), Random::from_kernel());
        Self { here: Some(here), waits: Waits::Connection(connection), ..Self::new(key, record, client) }
    }

    /// Carries on with a lease, or without one that was lost.
    pub fn resume(key: Key, record: Record) -> Self {
        let (now, random, identity) = (Time::now(), Random::from_kernel(), record.identity.clone());
        let client = match record.lease.clone() {
            Some(lease) => Client::resume(identity, lease, now, random),
            None => Client::ask_again(identity, record.on_link, now, random),
        };
        Self::new(key, record, client)
    }

    fn new(key: Key, record: Record, client: Client) -> Self {
        Self {
            key,
            record,
            client,
            here: None,
            link: None,
            waits: Waits::Nobody,
            unsent: None,
            untimed: None,
            earlier: None,
            looks: None,
            unused_at: None,
        }
    }

    /// Takes up a record of an earlier daemon, at its place: the address may not have its times yet, or the link not its address, such as after it was down.
    /// False: no plugin has put the address there in time, so nobody uses the lease.
    ///
    /// # Errors
    /// If the place cannot be used.
    pub fn carry_on(&mut self, host: &Host, found: &Found) -> Result<bool, NotFound> {
        let Some(lease) = self.record.lease.clone() else { return Ok(true) };
        if self.record.seen || self.record.on_link != Some(lease.address) {
            return self.put_on_link(host, found, lease.address).map(|()| true);
        }
        let until = lease.since + JUST_LEASED;
        let is_there =
            found.namespace.nl.addresses(Some(&found.link))?.iter().any(|one| one.net.ip() == lease.address);
        if !is_there && Time::now() >= until {
            return Ok(false);
        }
        self.look_at_address(Time::now());
        self.unused_at = (!is_there).then_some(until);
        Ok(true)
    }

    /// Whether an ADD at a place is a second one for the interface that has this lease.
    pub fn is_live_at(&self, place: &Place) -> bool {
        let own = &self.record.place;
        self.waits == Waits::Nobody
            && self.record.lease.is_some()
            && (own.netns_id, own.index) == (place.netns_id, place.index)
    }

    /// Whether a server may have given an address that nobody has been told of yet.
    pub fn may_be_granted(&self) -> bool {
        self.client.may_be_granted()
    }

    /// Nobody waits any more: what a server may have given is waited for a little longer, to give it back. Nothing is asked for.
    pub fn abandon(&mut self) {
        (self.waits, self.unsent) = (Waits::Abandoned, None);
        self.client.hurry(Time::now());
    }

    /// Its client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The socket that an answer is waited for at.
    pub fn socket(&self) -> Option<&Link> {
        self.link.as_ref()
    }

    /// When [`Attached::tick`] has to be called next.
    pub fn deadline(&self) -> Option<Time> {
        let looks = self.looks.map(|(moment, _)| moment);
        [self.client.deadline(), looks, self.unused_at].into_iter().flatten().min()
    }

    /// Does what is due.
    pub fn tick(&mut self, host: &Host) -> Outcome {
        let now = Time::now();
        if self.looks.is_some_and(|(moment, _)| moment <= now)
            && let Err(not_found) = self.look(host, now)
        {
            return self.fails(not_found);
        }
        if self.unused_at.is_some_and(|moment| moment <= now) && !self.record.seen {
            return Outcome::Failed(Error::new(Code::Internal, UNUSED));
        }
        let actions = self.client.tick(now);
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
                Err(_) => self.link = None,
            }
        }
        Outcome::Carries
    }

    fn act(&mut self, host: &Host, actions: Vec<Action>) -> Outcome {
        let mut outcome = Outcome::Carries;
        for action in actions {
            let done = match action {
                // Nothing is asked for any more. What is given back is.
                Action::Send(_)
                    if self.waits == Waits::Abandoned && self.client.state() != State::Leaving =>
                {
                    Ok(Outcome::Carries)
                }
                Action::Send(message) => {
                    // The link is waited for since the first one that it could not send.
                    let since = self.unsent.take().map_or_else(Time::now, |(_, since)| since);
                    self.unsent = Some((message, since));
                    self.send(host).map(|()| Outcome::Carries)
                }
                Action::Bound(lease) => self.bound(host, lease),
                Action::Lost(why) => self.lost(host, &why).map(|()| Outcome::Carries),
                Action::Failed(error) => Ok(Outcome::Failed(error)),
                Action::Left => Ok(Outcome::Carries),
            };
            match done {
                Ok(Outcome::Carries) => {}
                Ok(other) => outcome = other,
                Err(not_found) => match self.fails(not_found) {
                    Outcome::Carries => {}
                    other => return other,
                },
            }
        }
        if !self.client.awaits_packets(Time::now()) {
            self.link = None;
        }
        outcome
    }

    fn fails(&self, not_found: NotFound) -> Outcome {
        match not_found {
            NotFound::Gone(what) => Outcome::Gone(what),
            NotFound::Unused(what) => Outcome::Unused(what),
            // As a message that is lost, as long as there is a lease.
            NotFound::Missing(what) if self.record.lease.is_some() => {
                log(&self.key, &what);
                Outcome::Carries
            }
            NotFound::Missing(what) => Outcome::Gone(what),
            NotFound::Failed(e) if self.waits != Waits::Nobody => Outcome::Failed(e),
            NotFound::Failed(e) => {
                log(&self.key, &e.to_string());
                Outcome::Carries
            }
        }
    }

    fn found(&self, host: &Host) -> Result<Found, NotFound> {
        let Record { place, if_name, .. } = &self.record;
        let Some(namespace) = self.here.clone() else {
            return place::find_link(place, if_name, &host.args.host_prefix);
        };
        match namespace.nl.link(if_name)? {
            Some(link) => Ok(Found { namespace, link }),
            None => Err(NotFound::Gone(format!("link {if_name} in {namespace} is gone"))),
        }
    }

    /// Sends what waits, if the link is ready; else that is looked at again soon.
    fn send(&mut self, host: &Host) -> Result<(), NotFound> {
        let Some((message, since)) = self.unsent.take() else { return Ok(()) };
        if self.link.is_none() {
            let found = self.found(host)?;
            if !found.link.up {
                found.namespace.nl.set_up(&found.link)?;
            }
            let addresses = found.namespace.nl.addresses(Some(&found.link))?;
            let Some(from) = link_local(&addresses) else {
                return self.wait_for_link(&found, message, since);
            };
            self.link = Some(Link::open(found.namespace.netns(), &found.link.name, from)?);
        }
        if let Some(Err(e)) = self.link.as_ref().map(|link| link.send(&message)) {
            // As a message that is lost. The socket is opened anew for the next one.
            self.link = None;
            log(&self.key, &e.to_string());
        }
        Ok(())
    }

    fn wait_for_link(&mut self, found: &Found, message: Vec<u8>, since: Time) -> Result<(), NotFound> {
        let now = Time::now();
        if now.since(since) < READY {
            self.unsent = Some((message, since));
            self.looks = Some((now + LOOK, LOOK));
            return Ok(());
        }
        let text = format!(
            "link {} in {} has no address of its own (fe80::/10) that can be used",
            found.link.name, found.namespace
        );
        Err(Error::new(Code::TryAgainLater, text).detail("DHCPv6 is spoken from it: is the link connected, is IPv6 enabled on it, and does another host have its address?").into())
    }

    /// Looks at what waits.
    fn look(&mut self, host: &Host, now: Time) -> Result<(), NotFound> {
        let Some((_, gap)) = self.looks.take() else { return Ok(()) };
        let sent = self.send(host);
        let timed = self.time_address(host, now);
        // What failed is tried again, too: an address without its times would stay when its lease has ended.
        if self.untimed.is_some() {
            let gap = gap * 2;
            self.looks = self.looks.or(Some((now + gap, gap)));
        }
        sent.and(timed)
    }

    /// Tells the address its times, if it waits for them and has come.
    fn time_address(&mut self, host: &Host, now: Time) -> Result<(), NotFound> {
        let Some(until) = self.untimed else { return Ok(()) };
        if now >= until {
            self.untimed = None;
        }
        let found = self.found(host)?;
        if self.is_settled(host, &found)? {
            self.untimed = None;
        }
        Ok(())
    }

    fn look_at_address(&mut self, now: Time) {
        (self.untimed, self.looks) = (Some(now + JUST_LEASED), Some((now + LOOK, LOOK)));
    }

    /// Whether the address was there, and is as it is to be. One that is another host's is declined.
    fn is_settled(&mut self, host: &Host, found: &Found) -> Result<bool, NotFound> {
        let Some(lease) = self.record.lease.clone() else { return Ok(true) };
        let addresses = found.namespace.nl.addresses(Some(&found.link))?;
        let ours = addresses.into_iter().find(|address| address.net.ip() == lease.address);
        if ours.is_some() && !self.record.seen {
            (self.record.seen, self.unused_at) = (true, None);
            host.store.write(&self.key, &self.record)?;
        }
        let Some(mut address) = ours.filter(|address| !address.tentative || address.duplicate) else {
            return Ok(false);
        };
        if address.duplicate {
            self.client.decline(true, Time::now());
            self.lost(host, "another host has it")?;
            return Ok(true);
        }
        let now = Time::now();
        let left = |end: Option<Time>| {
            end.map(|end| u32::try_from(end.after(now).as_secs()).unwrap_or(u32::MAX - 1))
        };
        // A route to itself leads nowhere, and kernels let it expire at a wrong time when lifetimes change.
        address.flags |= netlink::uapi::IFA_F_NOPREFIXROUTE;
        (address.preferred, address.valid) = (left(lease.preferred), left(lease.expiry));
        found.namespace.nl.set_lifetimes(&found.link, &address)?;
        Ok(true)
    }

    /// The address of the first lease is put on the link by the plugin that asked; a later one by us.
    fn bound(&mut self, host: &Host, lease: Lease) -> Result<Outcome, NotFound> {
        let now = Time::now();
        let before = self.record.lease.replace(lease.clone());
        let first = self.waits != Waits::Nobody;
        if first {
            self.record.on_link = Some(lease.address);
        }
        let written = host.store.write(&self.key, &self.record);
        log(&self.key, &told(&lease, before.as_ref()));
        if first {
            written?;
            self.here = None;
            self.look_at_address(now);
            return Ok(Outcome::First(of_lease(&lease)));
        }
        if !self.record.seen && self.record.on_link == Some(lease.address) {
            // The plugin that asked is still to put it there.
            return Ok(written.map(|()| Outcome::Carries)?);
        }
        // Also where nothing can be written, such as on a full disk: the kernel takes an address off whose time is not renewed.
        let found = self.found(host)?;
        self.put_on_link(host, &found, lease.address)?;
        Ok(written.map(|()| Outcome::Carries)?)
    }

    /// Puts the lease's address in the place of what was there before, if it is not there.
    fn put_on_link(&mut self, host: &Host, found: &Found, address: Ipv6Addr) -> Result<(), NotFound> {
        let nl = &found.namespace.nl;
        if let Some(old) = self.record.on_link.filter(|old| *old != address) {
            nl.delete_address(&found.link, whole(old))?;
        }
        let there = nl.addresses(Some(&found.link))?;
        if !there.iter().any(|one| one.net.ip() == address) {
            nl.add_address(&found.link, whole(address), true)?;
            log(&self.key, &format!("put {address} on {}", found.link.name));
        }
        self.look_at_address(Time::now());
        self.unused_at = None;
        if self.record.on_link != Some(address) || !self.record.seen {
            (self.record.on_link, self.record.seen) = (Some(address), true);
            host.store.write(&self.key, &self.record)?;
        }
        Ok(())
    }

    /// The address goes off the link. The link stays up: IPv4 may be in use on it.
    fn lost(&mut self, host: &Host, why: &str) -> Result<(), NotFound> {
        let known = self.record.on_link.map(|address| address.to_string()).unwrap_or_default();
        log(&self.key, &format!("lost {known}: {why}"));
        self.record.lease = None;
        // It goes off the link also where nothing can be written.
        let written = host.store.write(&self.key, &self.record);
        let found = self.found(host)?;
        (self.link, self.untimed, self.unused_at) = (None, None, None);
        if let Some(address) = self.record.on_link {
            found.namespace.nl.delete_address(&found.link, whole(address))?;
            self.record.on_link = None;
        }
        written?;
        Ok(host.store.write(&self.key, &self.record)?)
    }

    /// Gives the lease back, if there is one. Its file says so first and goes last: after a kill in between nobody renews it, and it is given
    /// back once more.
    ///
    /// # Errors
    /// Code 5: its file cannot be removed, and it is kept.
    pub fn release(mut self, host: &Host) -> Result<Option<Box<Leaving>>, (Box<Self>, Error)> {
        self.record.leaves = true;
        // Where nothing can be written, such as on a full disk, a file may still be removed.
        let noted = self.client.lease().is_some() && host.store.write(&self.key, &self.record).is_ok();
        if !noted && let Err(e) = host.store.remove::<Record>(&self.key) {
            self.record.leaves = false;
            return Err((Box::new(self), e));
        }
        self.link = None;
        let Some(address) = self.client.held() else { return Ok(None) };
        let left = self.give_back(host, address).unwrap_or_else(|e| {
            let text = format!("{address} is not given back, and its server keeps it until it expires: {e}");
            log(&self.key, &text);
            None
        });
        self.forget_quietly(host);
        Ok(left)
    }

    /// The address goes off the link before its server may give it to another (RFC 8415, section 18.2.7). One that another host has is
    /// declined: its server must not give it to anybody.
    fn give_back(&mut self, host: &Host, address: Ipv6Addr) -> Result<Option<Box<Leaving>>, NotFound> {
        let (found, now) = (self.found(host)?, Time::now());
        let addresses = found.namespace.nl.addresses(Some(&found.link))?;
        let ours = self.record.on_link.and_then(|own| addresses.iter().find(|one| one.net.ip() == own));
        let is_taken = ours.is_some_and(|ours| ours.duplicate);
        if let Some(ours) = ours {
            found.namespace.nl.delete_address(&found.link, ours.net)?;
        }
        let Some(from) = link_local(&addresses) else {
            let text = format!("link {} has no address of its own any more", found.link.name);
            return Err(Error::new(Code::Internal, text).into());
        };
        let has = if is_taken { self.client.decline(false, now) } else { self.client.leave(now) };
        let link = Link::open(found.namespace.netns(), &found.link.name, from)?;
        for action in self.client.tick(now) {
            if let Action::Send(message) = action {
                link.send(&message)?;
            }
        }
        let what = if is_taken { "declined, since another host has it:" } else { "released" };
        log(&self.key, &format!("{what} {address}"));
        let client = std::mem::replace(
            &mut self.client,
            Client::ask_again(self.record.identity.clone(), None, now, Random::seeded(0)),
        );
        Ok(has.then(|| Box::new(Leaving { client, link })))
    }

    /// Forgets it, and says nothing.
    pub fn forget_quietly(self, host: &Host) {
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

/// A client that gives its lease back, until its server says that it has it.
#[derive(Debug)]
pub struct Leaving {
    client: Client,
    link: Link,
}

/// How long the server's answer to that is waited for: the message is sent three times (RFC 8415, section 18.2.7), which is once less than that section
/// has it, as a DEL waits meanwhile. The link goes with it.
pub const RELEASING: Duration = Duration::from_secs(4);

impl Leaving {
    /// Sends it again, if that is due. Whether the server has said so, or cannot any more.
    pub fn is_done(&mut self) -> bool {
        for action in self.client.tick(Time::now()) {
            let has_ended = match action {
                Action::Send(message) => self.link.send(&message).is_err(),
                _ => true,
            };
            if has_ended {
                return true;
            }
        }
        for _ in 0..AT_ONCE {
            match self.link.receive() {
                Ok(Some(packet)) if self.client.receive(Time::now(), &packet).contains(&Action::Left) => {
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

/// An address with the prefix of one host.
fn whole(address: Ipv6Addr) -> IpNetwork {
    IpNetwork::V6(Ipv6Network::from(address))
}

/// A lease for the log.
fn told(lease: &Lease, before: Option<&Lease>) -> String {
    let what = match before {
        Some(before) if before.address == lease.address => "renewed",
        _ => "leased",
    };
    match lease.expiry {
        Some(expiry) => format!("{what} {} for {} s", lease.address, expiry.since(lease.since).as_secs()),
        None => format!("{what} {} for ever", lease.address),
    }
}
