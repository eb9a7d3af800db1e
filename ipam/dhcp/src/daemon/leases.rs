//! The table of leases. It acts on the outcomes of the attachments.

use std::collections::BTreeSet;

use cni::{AddResult, Code, Error, Result, Version};
use dhcp_client::Time;
use serde_json::Value;

use super::adoption;
use super::serve::{Daemon, Leaving};
use crate::host::Host;
use crate::key::Key;
use crate::lease_client::{PendingRelease, timeout};
use crate::location::{self, NotFound};
use crate::log::{log, log_line};
use crate::managed_lease::{ManagedLease, Outcome, Waiter};
use crate::record::{Location, Record};
use crate::wire;

impl Daemon {
    /// Takes over the leases on disk. A lease whose interface has been deleted is dropped.
    ///
    /// # Errors
    /// Code 5 if the directory cannot be read.
    pub fn load_leases(&mut self) -> Result<()> {
        let (records, errors) = self.host.store.all()?;
        for error in self.host.store.tidy()?.into_iter().chain(errors) {
            log_line(&format!("dhcp daemon: {error}"));
        }
        // libcni's cache contains an attachment until its DEL has succeeded.
        let releasing = records.iter().filter(|record| record.attachment.releasing).filter_map(Record::key);
        let releasing: BTreeSet<Key> = releasing.collect();
        let known = records.len();
        let missing = records.into_iter().filter_map(|record| self.resume_lease(record)).count();
        if self.host.args.adopt {
            let is_known = |key: &Key| self.attached.contains_key(key) || releasing.contains(key);
            for record in adoption::unknown(&self.host, &is_known) {
                self.resume_lease(record);
            }
        }
        if missing > 0 {
            let found = known - missing;
            log_line(&format!(
                "dhcp daemon: {found} of {known} leases have a network namespace at their path. The \
                 others are kept until they expire. Run the daemon in the host's mount namespace, or set -hostprefix"
            ));
        }
        let count = self.attached.len();
        log_line(&format!("dhcp daemon: {count} leases, in {}", self.host.store.path().display()));
        Ok(())
    }

    /// Takes over one lease. Returns its namespace if that is missing.
    fn resume_lease(&mut self, record: Record) -> Option<String> {
        let key = record.key()?;
        let (location, if_name, releasing) = (
            record.attachment.location.clone(),
            record.attachment.if_name.clone(),
            record.attachment.releasing,
        );
        let mut one = ManagedLease::resume(key.clone(), record, &self.host);
        if releasing {
            self.release_unused(one);
            return None;
        }
        let found = location::find(&location, &if_name, &self.host.args.host_prefix);
        let carried = found.and_then(|found| one.continue_lease(&self.host, &found));
        let missing = match carried {
            Err(NotFound::Gone(what)) => {
                one.drop_because(&self.host, &what);
                return None;
            }
            Err(NotFound::Unused(what)) => {
                log(&key, &what);
                self.release_unused(one);
                return None;
            }
            Err(NotFound::Missing(what)) => Some(what),
            // The next message tries again.
            Err(NotFound::Failed(e)) => {
                log(&key, &e.to_string());
                None
            }
            Ok(()) => None,
        };
        missing.iter().for_each(|what| log(&key, what));
        self.attached.insert(key, one);
        missing
    }

    /// Runs an action of one attachment, and handles its outcome.
    pub(super) fn with(&mut self, key: &Key, act: impl FnOnce(&mut ManagedLease, &Host) -> Outcome) {
        let Some(mut one) = self.attached.remove(key) else { return };
        match act(&mut one, &self.host) {
            Outcome::Unchanged => drop(self.attached.insert(key.clone(), one)),
            Outcome::First(result) => self.first(one, &result),
            Outcome::Failed(error) => self.failed(one, error),
            Outcome::Gone(what) => match one.waiter {
                Waiter::Nobody => one.drop_because(&self.host, &what),
                _ => self.failed(one, Error::new(Code::UnknownContainer, what)),
            },
        }
    }

    /// Sends the first lease of an attachment to the waiting plugin.
    fn first(&mut self, mut one: ManagedLease, result: &AddResult) {
        let waiter = std::mem::replace(&mut one.waiter, Waiter::Nobody);
        let Waiter::Connection(number) = waiter else { return self.release_unused(one) };
        let json = result.to_json(Version::LATEST).and_then(|json| Ok(serde_json::from_str(&json)?));
        self.attached.insert(one.key.clone(), one);
        self.answer(number, &json);
    }

    fn failed(&mut self, mut one: ManagedLease, error: Error) {
        log(&one.key, &format!("no lease: {error}"));
        if let Waiter::Connection(number) = one.waiter {
            self.answer(number, &Err(error));
        }
        one.waiter = Waiter::Nobody;
        self.end(one);
    }

    /// Ends an ADD without a lease, or a lease that is not in use. The lease of an earlier ADD stays.
    fn end(&mut self, mut one: ManagedLease) {
        match one.earlier.take() {
            Some(earlier) => drop(self.attached.insert(one.key, *earlier)),
            None => self.release_unused(one),
        }
    }

    /// Releases a lease that is not in use.
    fn release_unused(&mut self, one: ManagedLease) {
        let (departing, outcome) = self.release(one);
        self.answer_when_left(None, departing, &outcome);
    }

    /// Ends an earlier ADD of the same attachment that is still running. A lease for the same interface stays until the
    /// new call succeeds.
    pub(super) fn supersede(&mut self, key: &Key, location: &Location) -> Option<Box<ManagedLease>> {
        let mut one = self.attached.remove(key)?;
        self.refuse_superseded(&one);
        if one.is_live_at(location) {
            return Some(Box::new(one));
        }
        one.earlier.take().filter(|earlier| earlier.is_live_at(location))
    }

    fn refuse_superseded(&mut self, one: &ManagedLease) {
        if let Waiter::Connection(waiting) = one.waiter {
            let text = "another request for the same attachment has cancelled this one";
            self.answer(waiting, &Err(Error::new(Code::TryAgainLater, text)));
        }
    }

    /// Cancels a request whose plugin has exited. It stays while a server may still answer.
    pub(super) fn cancel(&mut self, mut one: ManagedLease) {
        if one.earlier.is_none() && one.cancel() {
            self.attached.insert(one.key.clone(), one);
        } else {
            self.end(one);
        }
    }

    /// Releases the attachment's lease of one family. Returns messages that are being sent, and the result.
    pub(super) fn release_key(&mut self, key: &Key) -> (Vec<Box<dyn PendingRelease>>, Result<Value>) {
        let Some(mut one) = self.attached.remove(key) else {
            // A file that could not be read at the start may still exist.
            return (Vec::new(), self.host.store.remove(key).map(|()| Value::Null));
        };
        if one.waiter == Waiter::Nobody {
            return self.release(one);
        }
        self.refuse_superseded(&one);
        match one.earlier.take() {
            Some(earlier) => self.release(*earlier),
            None => {
                self.cancel(one);
                (Vec::new(), Ok(Value::Null))
            }
        }
    }

    /// Releases the lease of a failed ADD. The lease of an earlier ADD stays.
    pub(super) fn take_back(&mut self, key: &Key, add: u64) -> (Vec<Box<dyn PendingRelease>>, Result<Value>) {
        let Some(mut one) = self.attached.remove(key) else { return (Vec::new(), Ok(Value::Null)) };
        if !one.is_of(add) {
            self.attached.insert(key.clone(), one);
            return (Vec::new(), Ok(Value::Null));
        }
        if one.waiter != Waiter::Nobody {
            self.refuse_superseded(&one);
            self.cancel(one);
            return (Vec::new(), Ok(Value::Null));
        }
        let had_lease = one.earlier.is_some();
        match one.take_other_earlier() {
            Some(earlier) => {
                let (departing, outcome) = self.release(one);
                let written = earlier.write(&self.host);
                self.attached.insert(key.clone(), earlier);
                (departing, outcome.and(written.map(|()| Value::Null)))
            }
            None if had_lease => {
                self.attached.insert(key.clone(), one);
                (Vec::new(), Ok(Value::Null))
            }
            None => self.release(one),
        }
    }

    fn release(&mut self, one: ManagedLease) -> (Vec<Box<dyn PendingRelease>>, Result<Value>) {
        let key = one.key.clone();
        match one.release(&self.host) {
            Ok(departing) => (departing.into_iter().collect(), Ok(Value::Null)),
            Err((one, e)) => {
                self.attached.insert(key, *one);
                (Vec::new(), Err(e))
            }
        }
    }

    /// Answers a connection as soon as its messages have been sent.
    pub(super) fn answer_when_left(
        &mut self,
        connection: Option<u64>,
        departing: Vec<Box<dyn PendingRelease>>,
        outcome: &Result<Value>,
    ) {
        // No connection has this number.
        let leaving = Leaving {
            connection: connection.unwrap_or(u64::MAX),
            until: Time::now() + timeout(&departing),
            departing,
            answer: wire::reply(outcome),
        };
        self.leaving.push(leaving);
        self.poll_pending_releases();
    }
}
