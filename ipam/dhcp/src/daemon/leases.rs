//! The table of leases. It acts on the outcomes of the attachments.

use std::collections::BTreeSet;

use cni::{AddResult, Code, Error, Failures, Result, Version};
use dhcp_client::Time;
use serde_json::Value;

use super::adoption;
use super::serve::{Daemon, PendingAnswer};
use crate::host::Host;
use crate::key::{Family, Key};
use crate::lease_client::{PendingRelease, timeout};
use crate::location::InterfaceError;
use crate::log::{log, log_line};
use crate::managed_lease::{ManagedLease, Outcome, Waiter};
use crate::offline::MOST_MESSAGES;
use crate::record::{LeasedAttachment, Location, Record};

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
        // `-adopt` must not adopt an attachment whose lease is being released: libcni's cache contains the attachment
        // until its DEL succeeds.
        let releasing = records.iter().filter(|record| record.attachment.releasing).filter_map(Record::key);
        let releasing: BTreeSet<Key> = releasing.collect();
        let known = records.len();
        let missing = records
            .into_iter()
            .map(|record| self.load_lease(record))
            .filter(|is_missing| *is_missing)
            .count();
        if self.host.args.adopt {
            let is_known = |key: &Key| self.leases.contains_key(key) || releasing.contains(key);
            for record in adoption::unknown(&self.host, &is_known) {
                self.load_lease(record);
            }
        }
        if missing > 0 {
            let found = known - missing;
            log_line(&format!(
                "dhcp daemon: {found} of {known} leases have a network namespace at their path. The \
                 others are kept until they expire. Run the daemon in the host's mount namespace, or set -hostprefix"
            ));
        }
        let count = self.leases.len();
        log_line(&format!("dhcp daemon: {count} leases, in {}", self.host.store.path().display()));
        Ok(())
    }

    /// Loads one lease. Returns whether its namespace's path does not exist.
    fn load_lease(&mut self, record: Record) -> bool {
        let Some(key) = record.key() else { return false };
        let releasing = record.attachment.releasing;
        let mut lease = ManagedLease::from_record(key.clone(), record, &self.host);
        if releasing {
            self.release_unused(lease);
            return false;
        }
        let compared = lease.compare_with_link(&self.host);
        let is_path_missing = matches!(compared, Err(InterfaceError::PathMissing(_)));
        match compared {
            Ok(()) => {}
            Err(InterfaceError::Deleted(what)) => {
                lease.drop_because(&self.host, &what);
                return false;
            }
            Err(InterfaceError::Unused(what)) => {
                log(&key, &what);
                self.release_unused(lease);
                return false;
            }
            // The lease is kept. A path may exist later: the next message tries again. After another failure, the
            // comparison is repeated soon.
            Err(e @ (InterfaceError::PathMissing(_) | InterfaceError::Failed(_))) => {
                log(&key, &e.to_string())
            }
        }
        self.leases.insert(key, lease);
        is_path_missing
    }

    /// Runs an action of one attachment, and handles its outcome.
    pub(super) fn run_action(&mut self, key: &Key, act: impl FnOnce(&mut ManagedLease, &Host) -> Outcome) {
        let Some(mut lease) = self.leases.remove(key) else { return };
        match act(&mut lease, &self.host) {
            Outcome::Unchanged => drop(self.leases.insert(key.clone(), lease)),
            Outcome::First(result) => self.deliver_first_lease(lease, &result),
            Outcome::Failed(error) => self.failed(lease, error),
            Outcome::Deleted(what) => match lease.waiter {
                Waiter::Nobody => lease.drop_because(&self.host, &what),
                _ => self.failed(lease, Error::new(Code::UnknownContainer, what)),
            },
        }
    }

    /// Sends the first lease of an attachment to the waiting plugin.
    fn deliver_first_lease(&mut self, mut lease: ManagedLease, result: &AddResult) {
        let waiter = std::mem::replace(&mut lease.waiter, Waiter::Nobody);
        let Waiter::Connection(number) = waiter else { return self.release_unused(lease) };
        let json = result.to_json(Version::LATEST).and_then(|json| Ok(serde_json::from_str(&json)?));
        // The plugin releases the leases of an ADD that fails.
        let answer = self.keeps_other_family(&lease).and(json);
        self.drop_other_containers(&lease.attachment);
        self.leases.insert(lease.key.clone(), lease);
        self.answer(number, &answer);
    }

    /// Code 11 if the ADD of this lease has got an address of the other family, and that address was lost since.
    fn keeps_other_family(&self, lease: &ManagedLease) -> Result<()> {
        let lost = |family| self.leases.get(&lease.key.of(family))?.lost_for(lease);
        match Family::ALL.into_iter().find_map(lost) {
            None => Ok(()),
            Some(lost) => {
                let text =
                    format!("the lease of {lost} was lost while this ADD waited for the other family's");
                Err(Error::new(Code::TryAgainLater, text).detail("the daemon's log says why; try again"))
            }
        }
    }

    fn failed(&mut self, mut lease: ManagedLease, error: Error) {
        log(&lease.key, &format!("no lease: {error}"));
        if let Waiter::Connection(number) = lease.waiter {
            self.answer(number, &Err(error));
        }
        lease.waiter = Waiter::Nobody;
        self.discard(lease);
    }

    /// Ends an ADD without a lease, or a lease that is not in use. The lease of an earlier ADD stays.
    fn discard(&mut self, mut lease: ManagedLease) {
        let (key, address) = (lease.key.clone(), lease.address());
        match lease.earlier.take() {
            Some(earlier) if address.is_some() && address != earlier.address() => {
                let (releases, outcome) = self.replace_by_earlier(lease, *earlier);
                outcome.err().into_iter().for_each(|e| log(&key, &e.to_string()));
                self.answer_after(None, releases, Failures::new());
            }
            Some(earlier) => drop(self.leases.insert(key, *earlier)),
            None => self.release_unused(lease),
        }
    }

    /// Releases a lease, and restores that of an earlier ADD, which has another address.
    fn replace_by_earlier(
        &mut self,
        lease: ManagedLease,
        earlier: ManagedLease,
    ) -> (Vec<Box<dyn PendingRelease>>, Result<Value>) {
        // `release` removes the file, so the earlier record is written afterwards.
        let (releases, outcome) = self.release(lease);
        let written = earlier.write(&self.host);
        self.leases.insert(earlier.key.clone(), earlier);
        (releases, outcome.and(written.map(|()| Value::Null)))
    }

    /// Releases a lease that is not in use.
    fn release_unused(&mut self, lease: ManagedLease) {
        // A failure was logged.
        let (releases, _) = self.release(lease);
        self.answer_after(None, releases, Failures::new());
    }

    /// Ends an earlier ADD of the same attachment that is still running. A lease for the same interface stays until the
    /// new call succeeds.
    pub(super) fn supersede(&mut self, key: &Key, location: &Location) -> Option<Box<ManagedLease>> {
        let mut lease = self.leases.remove(key)?;
        self.refuse_superseded(&lease);
        if lease.is_live_at(location) {
            return Some(Box::new(lease));
        }
        lease.earlier.take().filter(|earlier| earlier.is_live_at(location))
    }

    /// Drops the leases of other containers on a link. A successful ADD on the link shows that the runtime deleted these
    /// containers without a DEL. If the leases stayed, the daemon would put their addresses on the new container's link.
    fn drop_other_containers(&mut self, attachment: &LeasedAttachment) {
        let container = &attachment.container_id;
        let is_stale = |lease: &ManagedLease| {
            lease.waiter == Waiter::Nobody
                && !lease.attachment.releasing
                && lease.attachment.container_id != *container
                && lease.attachment.location.is_same_link(&attachment.location)
        };
        let stale: Vec<Key> =
            self.leases.iter().filter(|(_, lease)| is_stale(lease)).map(|(key, _)| key.clone()).collect();
        for lease in stale.iter().filter_map(|key| self.leases.remove(key)).collect::<Vec<_>>() {
            lease.drop_because(&self.host, &format!("its link is now that of container {container}"));
        }
    }

    /// Whether an ADD of the attachment waits for a lease. With both families, it may have the other family's already.
    pub(super) fn is_adding(&self, key: &Key) -> bool {
        let is_awaited = |lease: &ManagedLease| lease.waiter != Waiter::Nobody;
        Family::ALL.into_iter().any(|family| self.leases.get(&key.of(family)).is_some_and(is_awaited))
    }

    fn refuse_superseded(&mut self, lease: &ManagedLease) {
        if let Waiter::Connection(waiting) = lease.waiter {
            let text = "another request for the same attachment has cancelled this one";
            self.answer(waiting, &Err(Error::new(Code::TryAgainLater, text)));
        }
    }

    /// Cancels a request whose plugin has exited. It stays while a server may still answer.
    pub(super) fn cancel(&mut self, mut lease: ManagedLease) {
        if lease.earlier.is_none() && lease.cancel() {
            self.leases.insert(lease.key.clone(), lease);
        } else {
            self.discard(lease);
        }
    }

    /// Releases the attachment's lease of one family. Returns messages that are being sent, and the result.
    pub(super) fn release_key(&mut self, key: &Key) -> (Vec<Box<dyn PendingRelease>>, Result<Value>) {
        let Some(mut lease) = self.leases.remove(key) else {
            return self.release_on_disk(key);
        };
        if lease.waiter == Waiter::Nobody {
            return self.release(lease);
        }
        self.refuse_superseded(&lease);
        match lease.earlier.take() {
            Some(earlier) => self.release(*earlier),
            None => {
                self.cancel(lease);
                (Vec::new(), Ok(Value::Null))
            }
        }
    }

    /// Releases the lease of a failed ADD. The lease of an earlier ADD stays.
    pub(super) fn take_back(&mut self, key: &Key, add: u64) -> (Vec<Box<dyn PendingRelease>>, Result<Value>) {
        let Some(mut lease) = self.leases.remove(key) else { return (Vec::new(), Ok(Value::Null)) };
        if !lease.is_of(add) {
            self.leases.insert(key.clone(), lease);
            return (Vec::new(), Ok(Value::Null));
        }
        if lease.waiter != Waiter::Nobody {
            self.refuse_superseded(&lease);
            self.cancel(lease);
            return (Vec::new(), Ok(Value::Null));
        }
        let had_lease = lease.earlier.is_some();
        match lease.take_other_earlier() {
            Some(earlier) => self.replace_by_earlier(lease, earlier),
            None if had_lease => {
                self.leases.insert(key.clone(), lease);
                (Vec::new(), Ok(Value::Null))
            }
            None => self.release(lease),
        }
    }

    /// Releases a lease whose file could not be read at the start.
    fn release_on_disk(&mut self, key: &Key) -> (Vec<Box<dyn PendingRelease>>, Result<Value>) {
        match self.host.store.take(key) {
            Ok(Some(record)) => self.release(ManagedLease::from_record(key.clone(), record, &self.host)),
            Ok(None) => (Vec::new(), Ok(Value::Null)),
            Err(e) => (Vec::new(), Err(e)),
        }
    }

    fn release(&mut self, lease: ManagedLease) -> (Vec<Box<dyn PendingRelease>>, Result<Value>) {
        let key = lease.key.clone();
        match lease.release(&self.host) {
            Ok(releases) => (releases.into_iter().collect(), Ok(Value::Null)),
            Err((lease, e)) => {
                self.leases.insert(key, *lease);
                (Vec::new(), Err(e))
            }
        }
    }

    /// Answers a connection as soon as the messages of these releases have been sent.
    pub(super) fn answer_after(
        &mut self,
        connection: Option<u64>,
        releases: Vec<Box<dyn PendingRelease>>,
        failures: Failures,
    ) {
        let pending = PendingAnswer {
            connection,
            deadline: Time::now() + timeout(&releases),
            releases,
            stale: Vec::new(),
            failures,
        };
        self.pending_answers.push(pending);
        self.poll_pending_releases();
    }

    /// Releases stale leases, and answers a connection afterwards.
    pub(super) fn collect(&mut self, connection: u64, stale: Vec<Key>) {
        self.pending_answers.push(PendingAnswer {
            connection: Some(connection),
            deadline: Time::now(),
            releases: Vec::new(),
            stale,
            failures: Failures::new(),
        });
        self.poll_pending_releases();
    }

    /// Releases the next stale leases. Each message has a socket, so their number is limited.
    pub(super) fn release_stale(&mut self, pending: &mut PendingAnswer) {
        let count = pending.stale.len().min(MOST_MESSAGES);
        for key in pending.stale.drain(..count) {
            // The lease may have been released since, or an ADD may be running.
            if !self.leases.contains_key(&key) || self.is_adding(&key) {
                continue;
            }
            log(&key, "the attachment is not valid any more");
            let (releases, outcome) = self.release_key(&key);
            pending.releases.extend(releases);
            pending.failures.note(outcome);
        }
        pending.deadline = Time::now() + timeout(&pending.releases);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::managed_lease::tests::{EARLIER, Fixture, lab_host};

    /// A daemon that restarts would otherwise find the unused lease on disk, and forget the one in use.
    #[test]
    fn an_unused_lease_is_released_and_that_of_an_earlier_add_restored_in_the_table_and_on_disk() {
        let fixture = Fixture::new();
        let mut daemon = Daemon::new(lab_host()).unwrap();
        let unused = fixture.unused_with_earlier();
        let key = unused.key.clone();
        daemon.leases.insert(key.clone(), unused);
        daemon.run_action(&key, ManagedLease::tick);
        let earlier = Some(EARLIER.parse().unwrap());
        assert_eq!(daemon.leases.get(&key).unwrap().address(), earlier);
        let on_disk = fixture.host.store.read(&key).unwrap().unwrap();
        assert_eq!(ManagedLease::from_record(key, on_disk, &fixture.host).address(), earlier);
        fixture.hears_release();
    }
}
