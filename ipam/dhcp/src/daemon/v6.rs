//! What the daemon does about leases for IPv6.

use std::collections::BTreeSet;

use cni::{Error, Result, Version};
use dhcp_client::v6::State;
use iface::enable_ipv6;
use serde_json::{Value, json};

use super::Host;
use super::serve::{Daemon, Departing};
use crate::attached::{Outcome, Waits, superseded};
use crate::list;
use crate::log::{log, say};
use crate::place::{self, Found, NotFound};
use crate::record::{Key, Place};
use crate::store::Kept;
use crate::v6::{Attached, Record, UNUSED, host_id, identity};
use crate::wire::Request;

impl Daemon {
    /// Takes up the leases on disk. One whose container has gone is forgotten.
    ///
    /// # Errors
    /// Code 5: the directory cannot be read.
    pub(super) fn carry_on_v6(&mut self) -> Result<(usize, usize)> {
        let (records, errors) = self.host.store.all::<Record>()?;
        for error in errors {
            say(&format!("dhcp daemon: {error}"));
        }
        let (known, mut missing) = (records.len(), 0);
        for record in records {
            let Some(key) = record.key() else { continue };
            if record.leaves {
                self.give_back_v6(Attached::resume(key, record));
                continue;
            }
            let found = place::find_link(&record.place, &record.if_name, &self.host.args.host_prefix);
            let mut one = Attached::resume(key.clone(), record);
            match found.and_then(|found| one.carry_on(&self.host, &found)) {
                Err(NotFound::Gone(what)) => one.forget(&self.host, &what),
                Ok(false) => {
                    log(&key, UNUSED);
                    self.give_back_v6(one);
                }
                other => {
                    // What cannot be looked at now is looked at again with the next message.
                    if let Err(e) = &other {
                        log(&key, &e.to_string());
                        missing += usize::from(matches!(e, NotFound::Missing(_)));
                    }
                    self.attached_v6.insert(key, one);
                }
            }
        }
        Ok((known, missing))
    }

    /// Has one attachment do something, and carries out what comes of it.
    pub(super) fn with_v6(&mut self, key: &Key, act: impl FnOnce(&mut Attached, &Host) -> Outcome) {
        let Some(mut one) = self.attached_v6.remove(key) else { return };
        match act(&mut one, &self.host) {
            Outcome::Carries => drop(self.attached_v6.insert(key.clone(), one)),
            Outcome::First(result) => self.first_v6(one, &result),
            Outcome::Failed(error) => self.failed_v6(one, error),
            Outcome::Unused(what) => self.failed_v6(one, Error::new(cni::Code::Internal, what)),
            Outcome::Gone(what) => match one.waits {
                Waits::Nobody => one.forget(&self.host, &what),
                _ => self.failed_v6(one, Error::new(cni::Code::UnknownContainer, what)),
            },
        }
    }

    fn first_v6(&mut self, mut one: Attached, result: &cni::AddResult) {
        let waits = std::mem::replace(&mut one.waits, Waits::Nobody);
        one.earlier = None;
        let key = one.key.clone();
        let json = result.to_json(Version::LATEST).and_then(|json| Ok(serde_json::from_str(&json)?));
        self.attached_v6.insert(key.clone(), one);
        match waits {
            Waits::Connection(number) => self.answer(number, &json),
            _ => self.release_quietly_v6(&key),
        }
    }

    /// Gives a lease back that nobody uses.
    fn give_back_v6(&mut self, one: Attached) {
        let key = one.key.clone();
        self.attached_v6.insert(key.clone(), one);
        self.release_quietly_v6(&key);
    }

    fn release_quietly_v6(&mut self, key: &Key) {
        let (departing, outcome) = self.release_v6(key);
        self.tell_when_left(None, departing, &outcome);
    }

    fn failed_v6(&mut self, mut one: Attached, error: Error) {
        log(&one.key, &format!("no lease for IPv6: {error}"));
        if let Waits::Connection(number) = one.waits {
            self.answer(number, &Err(error));
        }
        if let Some(earlier) = one.earlier.take() {
            self.attached_v6.insert(one.key, *earlier);
            return;
        }
        // What a server gave, and could not be used, or may have given, is given back.
        match one.release(&self.host) {
            Ok(leaving) => {
                let departing = leaving.into_iter().map(Departing::V6).collect();
                self.tell_when_left(None, departing, &Ok(Value::Null));
            }
            Err((one, e)) => log(&one.key, &e.to_string()),
        }
    }

    /// Asks for an address, for a connection.
    pub(super) fn acquire_v6(
        &mut self,
        number: u64,
        key: Key,
        request: &Request,
        found: Found,
    ) -> Result<()> {
        let place = Place { netns: request.netns.clone().unwrap_or_default(), ..found.place()? };
        let identity = identity(&key, &host_id(&self.host.args.host_prefix));
        let record = Record::new(&request.network, &request.container_id, &request.if_name, place, identity);
        enable_ipv6(&found.namespace, &found.link)?;
        found.namespace.nl.set_up(&found.link)?;
        let patience = self.host.timing.resend_timeout;
        let earlier = self.supersede_v6(&key, &record.place);
        let mut one = Attached::acquire(key.clone(), record, found.namespace, patience, number);
        one.earlier = earlier;
        self.attached_v6.insert(key.clone(), one);
        self.with_v6(&key, Attached::tick);
        Ok(())
    }

    /// A call that comes later ends an ADD of the same attachment that is under way. A lease for the same interface stays until the call succeeds.
    fn supersede_v6(&mut self, key: &Key, place: &Place) -> Option<Box<Attached>> {
        let mut one = self.attached_v6.remove(key)?;
        if let Waits::Connection(waiting) = one.waits {
            self.answer(waiting, &Err(superseded()));
        }
        if one.is_live_at(place) {
            return Some(Box::new(one));
        }
        let earlier = one.earlier.take().filter(|earlier| earlier.is_live_at(place));
        if earlier.is_none() {
            one.forget_quietly(&self.host);
        }
        earlier
    }

    /// The plugin that waited has gone. The address is given back as soon as it comes.
    pub(super) fn hang_up_v6(&mut self, number: u64) {
        let waiting = self.attached_v6.values().find(|one| one.waits == Waits::Connection(number));
        let Some(key) = waiting.map(|one| one.key.clone()) else { return };
        log(&key, "the plugin hung up");
        if let Some(one) = self.attached_v6.remove(&key) {
            self.abandon_v6(one);
        }
    }

    /// Nobody waits for it any more. It stays as long as a server's answer still has to be waited for.
    fn abandon_v6(&mut self, mut one: Attached) {
        if let Some(earlier) = one.earlier.take() {
            self.attached_v6.insert(one.key, *earlier);
        } else if one.may_be_granted() {
            one.abandon();
            self.attached_v6.insert(one.key.clone(), one);
        }
    }

    /// Gives the lease of an attachment back, if there is one. What is on its way, and what failed.
    pub(super) fn release_v6(&mut self, key: &Key) -> (Vec<Departing>, Result<Value>) {
        let Some(one) = self.attached_v6.remove(key) else {
            // A file that could not be read at the start may be left of it.
            return (Vec::new(), self.host.store.remove::<Record>(key).map(|()| Value::Null));
        };
        if one.waits != Waits::Nobody {
            if let Waits::Connection(waiting) = one.waits {
                self.answer(waiting, &Err(superseded()));
            }
            let has_earlier = one.earlier.is_some();
            self.abandon_v6(one);
            return if has_earlier { self.release_v6(key) } else { (Vec::new(), Ok(Value::Null)) };
        }
        match one.release(&self.host) {
            Ok(leaving) => (leaving.into_iter().map(Departing::V6).collect(), Ok(Value::Null)),
            Err((one, e)) => {
                self.attached_v6.insert(key.clone(), *one);
                (Vec::new(), Err(e))
            }
        }
    }

    /// The attachments of a network that have a lease, and are not among the valid ones.
    pub(super) fn stale_v6(&self, network: &str, valid: &BTreeSet<Key>) -> Vec<Key> {
        let is_stale = |one: &&Attached| {
            one.record.network == network && one.waits == Waits::Nobody && !valid.contains(&one.key)
        };
        self.attached_v6.values().filter(is_stale).map(|one| one.key.clone()).collect()
    }

    /// The attachments of a network whose lease runs out, or has.
    pub(super) fn suffering_v6(&self, network: &str) -> impl Iterator<Item = String> {
        let suffers = move |one: &&Attached| {
            let state = one.client().state();
            one.record.network == network
                && one.waits == Waits::Nobody
                && !matches!(state, State::Bound | State::Confirming | State::Renewing)
        };
        self.attached_v6.values().filter(suffers).map(|one| format!("{} (IPv6)", one.key))
    }

    /// Whether an attachment of a network has a lease that servers extend.
    pub(super) fn is_served_v6(&self, network: &str) -> bool {
        self.attached_v6.values().any(|one| {
            one.record.network == network
                && one.waits == Waits::Nobody
                && matches!(one.client().state(), State::Bound | State::Confirming | State::Renewing)
        })
    }

    /// The address that an attachment has, for CHECK.
    pub(super) fn check_v6(&self, key: &Key) -> Result<Value> {
        let one = self.attached_v6.get(key).map(|one| one.earlier.as_deref().unwrap_or(one));
        let lease = one.and_then(|one| one.record.lease.as_ref());
        let address = lease.map(|lease| json!({"address": format!("{}/128", lease.address)}));
        address.ok_or_else(|| super::operations::no_lease(format_args!("{key} for IPv6")))
    }

    /// All leases, for people.
    pub(super) fn list_v6(&self) -> impl Iterator<Item = Value> {
        self.attached_v6.values().map(list::entry_v6)
    }
}
